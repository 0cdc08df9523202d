//! What a transport has to be for daemons to listen on it.
//!
//! Owns: the trait, and the words between a transport and those who use it.
//! Never: knows one.

use std::{
    fmt, io,
    net::{Ipv4Addr, SocketAddr},
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
    /// Reads what is behind the colon.
    pub address: fn(&str) -> Result<Address, String>,
    /// Begins to listen.
    pub bind: Bind,
}

/// Begins to listen at an address, by the rules.
pub(crate) type Bind =
    for<'a> fn(&'a Address, &'a Rules) -> BoxFuture<'a, Result<Box<dyn Socket>, ListenError>>;

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

/// Where to listen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Address {
    /// In the file system.
    Path(PathBuf),
    /// On a network.
    Network(SocketAddr),
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

impl Address {
    /// The path, for a transport that reads paths.
    pub(crate) fn on_disk(&self) -> &Path {
        match self {
            Address::Path(path) => path,
            Address::Network(_) => unreachable!("a transport is given what it has read"),
        }
    }

    /// The address, for a transport that reads those.
    pub(crate) fn on_network(&self) -> SocketAddr {
        match self {
            Address::Network(address) => *address,
            Address::Path(_) => unreachable!("a transport is given what it has read"),
        }
    }

    /// Reads a path.
    pub(crate) fn path(text: &str) -> Result<Self, String> {
        Ok(Address::Path(text.into()))
    }

    /// Reads an address of a network, with its port.
    pub(crate) fn network(text: &str) -> Result<Self, String> {
        // The one name that needs no resolver and means the same everywhere.
        if let Some(port) = text.strip_prefix("localhost:").and_then(|port| port.parse().ok()) {
            return Ok(Address::Network((Ipv4Addr::LOCALHOST, port).into()));
        }
        let problem = || format!("`{text}` is no address with a port, such as 127.0.0.1:7000");
        text.parse().map(Address::Network).map_err(|_| problem())
    }
}

impl fmt::Display for Address {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Address::Path(path) => write!(out, "{}", path.display()),
            Address::Network(address) => write!(out, "{address}"),
        }
    }
}
