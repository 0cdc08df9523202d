//! What a transport has to be for daemons to listen on it.
//!
//! Owns: the trait, and the words between a transport and those who use it.
//! Never: knows one.

use std::{
    fmt, io,
    net::SocketAddr,
    path::{Path, PathBuf},
    sync::Arc,
};

use agent_protocol::local::place::PlaceError;
use futures_util::future::BoxFuture;

use crate::peer::{server::Server, transport::Transport};

/// A transport that can be listened on.
pub(crate) struct Listened {
    /// What is true of its peers.
    pub transport: &'static Transport,
    /// How an endpoint of it is written.
    pub form: &'static str,
    /// What is behind the colon, and how to listen there.
    pub bind: Bind,
}

/// Begins to listen at an address of one kind.
#[derive(Clone, Copy)]
pub(crate) enum Bind {
    /// In the file system.
    OnDisk(fn(&Path) -> Binding<'_>),
    /// On a network, by the rules.
    OnNetwork(for<'a> fn(SocketAddr, &'a Rules) -> Binding<'a>),
}

/// A socket that is about to be listened on.
pub(crate) type Binding<'a> = BoxFuture<'a, Result<Box<dyn Socket>, ListenError>>;

/// Serves one peer to its end.
pub(crate) type Serving = BoxFuture<'static, ()>;

/// A socket that others can connect to. Dropped, it is gone.
pub(crate) trait Socket: fmt::Debug + Send + Sync {
    /// The address as a client is to be told, as `tcp:127.0.0.1:4000`.
    fn address(&self) -> String;

    /// The next peer, once there is a place for it: who is too many waits in the system's queue.
    /// Safe to drop, but for a peer that was turned away already.
    ///
    /// # Errors
    /// The system refuses, for now.
    fn accept<'a>(&'a self, server: &'a Arc<Server>) -> BoxFuture<'a, io::Result<Serving>>;
}

/// Who may reach a daemon that listens on a network.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Rules {
    /// Whether other machines may, and whether the daemon may be called by other names than this
    /// machine's own.
    pub allow_remote: bool,
    /// The web pages that may, as `https://editor.example`. Programs send no `Origin`.
    pub allowed_origins: Vec<String>,
}

/// A socket cannot be listened on.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ListenError {
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

/// The socket cannot be served.
#[derive(Debug, thiserror::Error)]
pub(crate) enum UnixSocketError {
    /// Another daemon serves it.
    #[error(
        "{} is served by another daemon already{}; use that one, stop it, or name another socket",
        path.display(),
        pid.map_or_else(String::new, |pid| format!(", process {pid}"))
    )]
    InUse {
        /// The socket.
        path: PathBuf,
        /// The daemon, where it can be told.
        pid: Option<u32>,
    },
    /// Something else has the name.
    #[error("{} exists and is not a socket; remove it, or name another socket", .0.display())]
    NotASocket(PathBuf),
    /// Others could put their own socket in the place of ours.
    #[error(transparent)]
    Place(#[from] PlaceError),
    /// The system refused something.
    #[error("cannot serve the socket {}: {source}", path.display())]
    Io {
        /// The socket.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
}
