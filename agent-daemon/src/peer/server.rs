//! What all connections share.
//!
//! Owns: the method table, the limits, the token, the places and the number of open connections.
//! Never: knows what a method does.

use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicU64, AtomicUsize, Ordering},
    },
    time::Duration,
};

use agent_protocol::local::token::Token;
use jsonrpsee::Methods;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_util::sync::CancellationToken;

use crate::{events::policy::SlowReaderPolicy, peer::strangers::Strangers};

/// The bounds on every connection. The defaults are the protocol's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ServerLimits {
    /// A longer message is skipped (W1.3).
    pub max_message_bytes: usize,
    /// The same, while the peer has not shown the token that it needs.
    pub unauthorized_message_bytes: usize,
    /// How long a peer may take to show the token.
    pub authorization: Duration,
    /// Calls of one connection that may wait aside (W1.6).
    pub waiting_calls: usize,
    /// Subscriptions of one connection.
    pub subscriptions: usize,
    /// What becomes of peers that do not read what they asked for.
    pub slow_readers: SlowReaderPolicy,
    /// Connections on sockets that are served at once; others wait to be accepted. Those that have
    /// not shown the token that they need are not among them:
    pub connections: usize,
    /// so many of these there may be, and the next one takes a place from one of them.
    pub strangers: usize,
}

impl ServerLimits {
    /// The defaults, or less: at least half of so many descriptors, or 512, are kept back for tools,
    /// models and files. A connection may need two, a stranger three.
    pub(crate) fn within(descriptors: u64) -> Self {
        let kept_back = (descriptors / 2).min(512);
        let at_most =
            |wanted: usize, count: u64| usize::try_from(count).unwrap_or(wanted).min(wanted);
        let limits = ServerLimits::default();
        let for_peers = descriptors - kept_back;
        let strangers = at_most(limits.strangers, for_peers / 16).max(1);
        let connections = (for_peers.saturating_sub(3 * strangers as u64)) / 2;
        ServerLimits {
            connections: at_most(limits.connections, connections).max(1),
            strangers,
            ..limits
        }
    }
}

impl Default for ServerLimits {
    fn default() -> Self {
        ServerLimits {
            max_message_bytes: 32 << 20,
            unauthorized_message_bytes: 64 << 10,
            authorization: Duration::from_secs(5),
            waiting_calls: 32,
            subscriptions: 32,
            slow_readers: SlowReaderPolicy::default(),
            connections: 1024,
            strangers: 64,
        }
    }
}

/// What all connections share.
pub struct Server {
    pub(crate) methods: Methods,
    pub(crate) limits: ServerLimits,
    pub(crate) token: Option<Token>,
    pub(crate) strangers: Arc<Strangers>,
    places: Arc<Semaphore>,
    /// Fires when connections are to end.
    pub(crate) stop: CancellationToken,
    /// Fires when a peer whose `shutdown` was accepted has gone.
    left: CancellationToken,
    opened: AtomicU64,
    open: AtomicUsize,
}

impl Server {
    /// A server of these methods. Peers over TCP or WebSocket need the token; without one nobody
    /// gets in that way.
    pub fn new(
        methods: impl Into<Methods>,
        limits: ServerLimits,
        token: Option<Token>,
    ) -> Arc<Self> {
        Arc::new(Server {
            methods: methods.into(),
            limits,
            token,
            strangers: Strangers::new(limits.strangers, limits.authorization),
            places: Arc::new(Semaphore::new(limits.connections)),
            stop: CancellationToken::new(),
            left: CancellationToken::new(),
            opened: AtomicU64::new(0),
            open: AtomicUsize::new(0),
        })
    }

    /// How many connections are open.
    pub fn connections(&self) -> usize {
        self.open.load(Ordering::Relaxed)
    }

    /// Ends every connection, after what is in flight has been answered and what waits for
    /// subscriptions has been written; no new ones are accepted.
    pub fn stop(&self) {
        self.stop.cancel();
    }

    /// Completes when a peer whose `shutdown` was accepted has said `exit` or gone otherwise.
    pub(crate) async fn left_after_shutdown(&self) {
        self.left.cancelled().await;
    }

    /// Waits for one of the places for connections.
    pub(crate) async fn place(&self) -> OwnedSemaphorePermit {
        let place = self.places.clone().acquire_owned().await;
        place.expect("nobody closes the semaphore")
    }

    /// The next connection's number. Numbers count from 1 and are never used again.
    pub(crate) fn open(&self) -> u64 {
        self.open.fetch_add(1, Ordering::Relaxed);
        self.opened.fetch_add(1, Ordering::Relaxed) + 1
    }

    pub(crate) fn close(&self, after_shutdown: bool) {
        self.open.fetch_sub(1, Ordering::Relaxed);
        if after_shutdown {
            self.left.cancel();
        }
    }
}

impl fmt::Debug for Server {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Server").field("connections", &self.connections()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn descriptors_are_kept_back_for_tools_and_models() {
        for (descriptors, connections, strangers) in [
            (0, 1, 1),
            (64, 13, 2),
            (256, 52, 8),
            (1_024, 208, 32),
            (4_096, 1_024, 64),
            (1 << 20, 1_024, 64),
        ] {
            let limits = ServerLimits::within(descriptors);
            assert_eq!((limits.connections, limits.strangers), (connections, strangers));
            let used = 2 * connections as u64 + 3 * strangers as u64;
            assert!(descriptors < 8 || used <= descriptors - (descriptors / 2).min(512));
        }
    }
}
