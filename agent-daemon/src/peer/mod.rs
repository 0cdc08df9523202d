//! One peer: what it sends is carried out in order, and what it is owed is written.
//!
//! Owns: everything that ends with a connection, and what all connections share.
//! Never: knows what a method does, or how the peer's bytes come here.

pub(crate) mod caller;
mod calls;
pub mod connection;
pub(crate) mod outbox;
pub mod request;
pub mod server;
pub(crate) mod strangers;
pub(crate) mod tally;
pub mod transport;
