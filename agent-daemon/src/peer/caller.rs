//! The peer of one connection, as methods see it.
//!
//! Owns: who the peer says it is, and whether it may speak.
//! Never: outlives its connection's subscriptions; they end with the connection.

use std::sync::{
    Arc, OnceLock,
    atomic::{AtomicBool, Ordering},
};

use agent_protocol::{RpcError, SubscribeParams};
use tokio_util::sync::CancellationToken;

use crate::{
    events::fanout::EventLog,
    peer::{outbox::Outbox, server::Server, transport::Transport},
};

/// The peer of one connection. Methods find it, as an `Arc`, in their extensions.
#[derive(Debug)]
pub(crate) struct Caller {
    connection: u64,
    transport: &'static Transport,
    server: Arc<Server>,
    client: OnceLock<Arc<str>>,
    /// Fires when the peer may speak.
    authorized: CancellationToken,
    has_shown_no_token: AtomicBool,
    has_shut_down: AtomicBool,
    pub(crate) outbox: Outbox,
}

impl Caller {
    pub(crate) fn new(server: Arc<Server>, transport: &'static Transport) -> Arc<Self> {
        let authorized = CancellationToken::new();
        if !transport.needs_token {
            authorized.cancel();
        }
        Arc::new(Caller {
            connection: server.open(),
            transport,
            client: OnceLock::new(),
            authorized,
            has_shown_no_token: AtomicBool::new(false),
            has_shut_down: AtomicBool::new(false),
            outbox: Outbox::new(server.limits.slow_readers, server.limits.subscriptions),
            server,
        })
    }

    /// The connection's number.
    pub(crate) fn connection(&self) -> u64 {
        self.connection
    }

    /// How the peer reached us.
    pub(crate) fn transport(&self) -> &'static Transport {
        self.transport
    }

    /// What all connections share.
    pub(crate) fn server(&self) -> &Arc<Server> {
        &self.server
    }

    /// The name that the peer gave itself, once it has.
    pub(crate) fn client(&self) -> Option<&Arc<str>> {
        self.client.get()
    }

    /// Lets the peer in, if its transport needs no token or this is it.
    ///
    /// # Errors
    /// It is not, or there is none. A peer that has not been let in before loses its connection.
    pub(crate) fn authorize(&self, token: Option<&str>) -> Result<(), RpcError> {
        if self.transport.needs_token {
            let expected = self.server.token.as_ref();
            if !expected.is_some_and(|expected| expected.is(token.unwrap_or_default())) {
                self.has_shown_no_token.store(true, Ordering::Relaxed);
                self.server.strangers.note("a wrong token, or none");
                return Err(RpcError::Unauthorized);
            }
        }
        self.authorized.cancel();
        Ok(())
    }

    /// Whether the peer has tried to get in and has to go.
    pub(crate) fn is_turned_away(&self) -> bool {
        self.has_shown_no_token.load(Ordering::Relaxed) && !self.is_authorized()
    }

    /// Completes when the peer may do anything but `initialize`.
    pub(crate) async fn authorized(&self) {
        self.authorized.cancelled().await;
    }

    /// Whether the peer may do anything but `initialize`.
    pub(crate) fn is_authorized(&self) -> bool {
        self.authorized.is_cancelled()
    }

    /// Keeps the name that the peer gives itself.
    ///
    /// # Errors
    /// It has given one before; nothing changes.
    pub(crate) fn initialize(&self, client: &str) -> Result<(), RpcError> {
        let problem = "this connection is initialized already".to_owned();
        self.client.set(client.into()).map_err(|_| RpcError::InvalidRequest { problem })
    }

    /// Subscribes to a session's events, cut between two events at this moment. The first frame
    /// follows the answer of the call that this is called from, which must be a synchronous method.
    ///
    /// # Errors
    /// One subscription too many, or events that have not happened yet.
    pub(crate) fn subscribe(
        &self,
        log: &Arc<EventLog>,
        params: &SubscribeParams,
    ) -> Result<Arc<str>, RpcError> {
        self.outbox.subscribe(log, params)
    }

    /// Ends one of the connection's own subscriptions; false if there is none of that name.
    pub(crate) fn unsubscribe(&self, id: &str) -> bool {
        self.outbox.unsubscribe(id)
    }

    /// Completes when each of the connection's subscriptions to the session has been sent
    /// everything up to `seq`, so that an answer given now comes after it (W3.2).
    pub(crate) async fn events_sent(&self, log: &Arc<EventLog>, seq: u64) {
        self.outbox.events_sent(log, seq).await;
    }

    /// Whether a `shutdown` of this connection was accepted.
    pub(crate) fn has_shut_down(&self) -> bool {
        self.has_shut_down.load(Ordering::Relaxed)
    }

    /// Notes that a `shutdown` of this connection was accepted.
    pub(crate) fn note_shutdown(&self) {
        self.has_shut_down.store(true, Ordering::Relaxed);
    }
}

impl Drop for Caller {
    fn drop(&mut self) {
        self.server.close(self.has_shut_down());
    }
}
