//! How peers reach the daemon (W1 and W6).
//!
//! Owns: the table of all that can be listened on. Adding a transport is a file and a row of it.
//! Never: says what is said on it; each transport ends in a pair of a reader and a writer, and what
//! goes over them is the peer's.

use std::{fmt, io, net::SocketAddr, sync::Arc};

use futures_util::future::BoxFuture;

use crate::{
    peer::{server::Server, transport::Transport},
    transport::{
        endpoint::{Address, Rules},
        unix::UnixSocketError,
    },
};

pub mod endpoint;
pub mod listener;
pub mod stdio;
pub mod tcp;
pub mod unix;
pub mod websocket;

/// All transports that `--listen` knows.
pub static LISTENED: &[&Listened] = &[&unix::LISTENED, &tcp::LISTENED, &websocket::LISTENED];

/// A transport that can be listened on.
pub struct Listened {
    /// What is true of its peers.
    pub transport: &'static Transport,
    /// How an endpoint of it is written.
    pub form: &'static str,
    /// Reads what is behind the colon.
    pub address: fn(&str) -> Result<Address, String>,
    /// Begins to listen.
    pub bind: Bind,
}

/// Begins to listen at an address, by the rules.
pub type Bind =
    for<'a> fn(&'a Address, &'a Rules) -> BoxFuture<'a, Result<Box<dyn Socket>, ListenError>>;

/// Serves one peer to its end.
pub type Serving = BoxFuture<'static, ()>;

/// A socket that others can connect to. Dropped, it is gone.
pub trait Socket: fmt::Debug + Send + Sync {
    /// The address as a client is to be told, as `tcp:127.0.0.1:4000`.
    fn address(&self) -> String;

    /// The next peer, once there is a place for it: who is too many waits in the system's queue.
    /// Safe to drop, but for a peer that was turned away already.
    ///
    /// # Errors
    /// The system refuses, for now.
    fn accept<'a>(&'a self, server: &'a Arc<Server>) -> BoxFuture<'a, io::Result<Serving>>;
}

/// A socket cannot be listened on.
#[derive(Debug, thiserror::Error)]
pub enum ListenError {
    /// A Unix socket.
    #[error(transparent)]
    Unix(#[from] UnixSocketError),
    /// The address is not this machine's own.
    #[error(
        "{0} can be reached from other machines; listen on 127.0.0.1 or [::1], or say \
         --allow-remote"
    )]
    Remote(SocketAddr),
    /// The system refuses.
    #[error("cannot listen on {address}: {source}")]
    Io {
        /// The address.
        address: SocketAddr,
        /// What the system said.
        source: io::Error,
    },
}
