//! How peers reach the daemon (W1 and W6).
//!
//! Owns: the table of all that can be listened on. Adding a transport is a file and a row of it.
//! Never: says what is said on it; each transport ends in a pair of a reader and a writer, and what
//! goes over them is the peer's.

use crate::transport::socket::Listened;

pub(crate) mod acceptor;
pub mod endpoint;
pub(crate) mod socket;
pub mod stdio;
pub(crate) mod tcp;
pub mod unix;
pub(crate) mod websocket;

/// All transports that `--listen` knows.
pub(crate) static LISTENED: &[&Listened] = &[&unix::LISTENED, &tcp::LISTENED, &websocket::LISTENED];
