//! Accepting on one socket, and a connection for everybody whom it lets in.
//!
//! Owns: that accepting goes on whatever happens to one of them.
//! Never: lets a peer take part before its transport has said that it may.

use std::{sync::Arc, time::Duration};

use tokio::task::JoinSet;

use crate::{peer::server::Server, transport::socket::Socket};

/// How long to wait when the system has no descriptor left for a new connection.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// A socket that others can connect to.
#[derive(Debug)]
pub(crate) struct Acceptor {
    socket: Box<dyn Socket>,
}

impl Acceptor {
    pub(crate) fn new(socket: Box<dyn Socket>) -> Self {
        Acceptor { socket }
    }

    /// The address as a client is to be told, as `tcp:127.0.0.1:4000`.
    pub(crate) fn address(&self) -> String {
        self.socket.address()
    }

    /// Serves everybody who connects, until [`Server::stop`]; completes when the last one is gone.
    /// Dropped before, it drops them all.
    pub(crate) async fn serve(self, server: Arc<Server>) {
        let mut connections = JoinSet::new();
        let mut is_refused = false;
        loop {
            let accepted = tokio::select! {
                accepted = self.socket.accept(&server) => accepted,
                Some(_) = connections.join_next() => continue,
                () = server.stop.cancelled() => break,
            };
            match accepted {
                Ok(serving) => {
                    is_refused = false;
                    connections.spawn(serving);
                    // However many wait: whoever is in already comes first.
                    tokio::task::yield_now().await;
                }
                Err(error) => {
                    // Said once, not with every attempt.
                    if !std::mem::replace(&mut is_refused, true) {
                        tracing::warn!(%error, "cannot accept a connection");
                    }
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                }
            }
        }
        // The name goes first, so that a client that comes now starts another daemon.
        drop(self);
        while connections.join_next().await.is_some() {}
    }
}

#[cfg(test)]
mod tests;
