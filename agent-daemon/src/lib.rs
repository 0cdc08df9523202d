//! The daemon: agents over JSON-RPC on stdio and sockets, with the real models and tools.
//!
//! To read the code, begin with [`protocol`].

pub mod caller;
mod calls;
pub mod codec;
pub mod connection;
pub mod entry;
pub mod error;
pub mod fanout;
pub mod instructions;
pub mod model;
pub mod outbox;
pub mod params;
pub mod paths;
pub mod protocol;
pub mod request;
pub mod server;
pub mod subscription;
pub mod tool;
pub mod transport;
