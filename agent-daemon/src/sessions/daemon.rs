//! The daemon: its sessions and its life.
//!
//! Owns: what all connections have in common, and the step from taking work to taking none.
//! Never: knows a transport.

use std::{
    sync::{Arc, OnceLock},
    time::{Duration, Instant},
};

use agent_protocol::{
    Capabilities, Control, DEFAULT_SESSION, HealthResult, HealthStatus, InitializeResult,
    PROTOCOL_VERSION, ReplayCapacity, RpcError, ServerInfo, schema::Schema,
};
use futures_util::future::join_all;
use tokio::{
    sync::watch,
    time::{Instant as Deadline, timeout_at},
};

use crate::{
    peer::transport::Transport,
    sessions::registry::{Blueprint, Sessions},
    transport::stdio::STDIO,
};

/// The daemon's name in `initialize`.
const NAME: &str = "agent-daemon";
/// The daemon's version.
const VERSION: &str = env!("CARGO_PKG_VERSION");

/// How much of the daemon's end the runs may have.
const SETTLING: Duration = Duration::from_secs(8);

/// What all connections have in common.
pub struct Daemon {
    /// The sessions.
    pub sessions: Sessions,
    instance_id: Arc<str>,
    started: Instant,
    max_message_bytes: usize,
    replay: ReplayCapacity,
    transports: Vec<String>,
    schema: OnceLock<Schema>,
    stage: watch::Sender<Stage>,
    /// Until when runs may settle, once they are to.
    settled_by: OnceLock<Deadline>,
    parent: watch::Sender<Option<u32>>,
}

/// How far the daemon's life has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Stage {
    /// It takes work.
    Working,
    /// It takes none, and its runs are settling.
    Settling,
    /// A `shutdown` that came over a socket was carried out: nothing runs.
    Settled,
}

impl Daemon {
    /// A daemon with its default session. Needs a runtime.
    pub fn new(blueprint: Blueprint) -> Self {
        let instance_id: Arc<str> = uuid::Uuid::new_v4().to_string().into();
        let configuration = &blueprint.configuration;
        let mut transports = Vec::new();
        let stdio = configuration.stdio.then_some(&STDIO);
        let listen = configuration.listen.iter().map(|endpoint| endpoint.transport());
        for transport in stdio.into_iter().chain(listen).map(Transport::to_string) {
            if !transports.contains(&transport) {
                transports.push(transport);
            }
        }
        Daemon {
            max_message_bytes: configuration.settings.limits.max_message_bytes as usize,
            replay: ReplayCapacity {
                events: configuration.slow_readers.replay_events,
                bytes: configuration.slow_readers.replay_bytes,
            },
            transports,
            sessions: Sessions::new(blueprint, instance_id.clone()),
            instance_id,
            started: Instant::now(),
            schema: OnceLock::new(),
            stage: watch::Sender::new(Stage::Working),
            settled_by: OnceLock::new(),
            parent: watch::Sender::new(None),
        }
    }

    /// What `initialize` answers.
    pub(crate) fn introduction(&self) -> InitializeResult {
        InitializeResult {
            protocol_version: PROTOCOL_VERSION,
            server_info: ServerInfo {
                name: NAME.to_owned(),
                version: VERSION.to_owned(),
                pid: std::process::id(),
            },
            instance_id: self.instance_id.to_string(),
            default_session_id: DEFAULT_SESSION.to_owned(),
            capabilities: Capabilities {
                max_message_bytes: self.max_message_bytes,
                replay: self.replay,
                transports: self.transports.clone(),
                schema_hash: self.schema().hash.clone(),
            },
        }
    }

    /// What `health` answers.
    pub(crate) fn health(&self, connections: usize) -> HealthResult {
        let status = match *self.stage.borrow() {
            Stage::Working => HealthStatus::Ok,
            Stage::Settling | Stage::Settled => HealthStatus::ShuttingDown,
        };
        HealthResult {
            status,
            uptime_ms: self.started.elapsed().as_millis() as u64,
            sessions: self.sessions.all().len(),
            connections,
            version: VERSION.to_owned(),
        }
    }

    /// The schema of the protocol.
    pub(crate) fn schema(&self) -> &Schema {
        self.schema.get_or_init(Schema::of_protocol)
    }

    /// Takes no more work.
    pub(crate) fn close(&self) {
        self.advance(Stage::Settling);
        self.sessions.close(&RpcError::ShuttingDown);
    }

    /// Takes no more work, aborts the runs and completes when they have settled, or have had their
    /// 8 s. Again: waits for the same. Safe to drop; the runs end all the same.
    pub async fn shut_down(&self) {
        self.close();
        let sessions = self.sessions.all();
        let settled = join_all(sessions.iter().map(|session| session.settle()));
        let deadline = *self.settled_by.get_or_init(|| Deadline::now() + SETTLING);
        if timeout_at(deadline, settled).await.is_err() {
            tracing::warn!("a run did not settle in time");
        }
    }

    /// Notes that a `shutdown` that came over a socket was carried out.
    pub(crate) fn has_shut_down(&self) {
        self.advance(Stage::Settled);
    }

    /// Completes when the daemon has come that far.
    pub(crate) async fn reached(&self, stage: Stage) {
        let mut stages = self.stage.subscribe();
        // The sender is in `self`, so it cannot be gone.
        let _ = stages.wait_for(|now| *now >= stage).await;
    }

    /// Says the last thing to every subscription.
    pub(crate) fn say_goodbye(&self, reason: &str) {
        for session in self.sessions.all() {
            session.log.finish(Control::ServerShutdown { reason: reason.to_owned() });
        }
    }

    /// Notes which process to outlive in no case.
    pub(crate) fn watch_parent(&self, process: u32) {
        self.parent.send_replace(Some(process));
    }

    /// Completes when a process is named that the daemon must not outlive.
    pub(crate) async fn parent(&self) -> u32 {
        let mut parents = self.parent.subscribe();
        let named = parents.wait_for(Option::is_some).await.ok().and_then(|parent| *parent);
        match named {
            Some(process) => process,
            // The sender is in `self`, so it cannot be gone.
            None => std::future::pending().await,
        }
    }

    fn advance(&self, stage: Stage) {
        self.stage.send_if_modified(|now| {
            let is_news = *now < stage;
            *now = stage.max(*now);
            is_news
        });
    }
}
