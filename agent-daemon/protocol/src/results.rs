//! The results of the methods.

use std::sync::Arc;

use agent_core::{
    AgentState, Disposition, LastRun, Message, MessageId, Queued, RunId, Undelivered,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What `initialize` gives.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct InitializeResult {
    /// The version that the daemon will speak: 1.
    pub protocol_version: u32,
    /// Who the daemon is.
    pub server_info: ServerInfo,
    /// This start of the daemon; sequence numbers count within it.
    pub instance_id: String,
    /// The session that calls without a `sessionId` mean.
    pub default_session_id: String,
    /// What the daemon can do.
    pub capabilities: Capabilities,
}

/// Who the daemon is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ServerInfo {
    /// `agent-daemon`.
    pub name: String,
    /// Its version.
    pub version: String,
    /// Its process.
    pub pid: u32,
}

/// What the daemon can do.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Capabilities {
    /// The longest message that it reads.
    pub max_message_bytes: usize,
    /// How much of the past it can repeat.
    pub replay: ReplayCapacity,
    /// How it can be reached: `stdio`, `unix`, `tcp`, `ws`.
    pub transports: Vec<String>,
    /// Differs when `getSchema` does.
    pub schema_hash: String,
}

/// How much of a session's past can be repeated, whichever is less.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ReplayCapacity {
    /// So many events.
    pub events: usize,
    /// So many bytes of them.
    pub bytes: usize,
}

/// What `prompt` gives, once the run is admitted.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PromptResult {
    /// What became of it: `started`, `steered` or `queued`.
    pub disposition: Disposition,
    /// The run that it started, or that will see it.
    pub run_id: RunId,
    /// The message's id, also in the transcript.
    pub message_id: MessageId,
    /// The head after the call took effect.
    pub seq: u64,
}

/// What `steer` and `followUp` give.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct QueueResult {
    /// What became of it: `steered` or `queued`, `held` or `started`.
    pub disposition: Disposition,
    /// The run that will see it; null when held.
    pub run_id: Option<RunId>,
    /// The message's id, also in the transcript.
    pub message_id: MessageId,
    /// Its place in the queue, from 0; null when it started a run.
    pub position: Option<usize>,
    /// The head after the call took effect.
    pub seq: u64,
}

/// What `continue` gives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ContinueResult {
    /// The run that began.
    pub run_id: RunId,
    /// The head after the call took effect.
    pub seq: u64,
}

/// What `abort` gives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AbortResult {
    /// Whether a run will end as aborted.
    pub aborted: bool,
    /// Which.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run_id: Option<RunId>,
    /// The head after the call took effect.
    pub seq: u64,
}

/// What `waitForIdle` gives.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct WaitForIdleResult {
    /// Whether the wait is over or only the patience.
    pub status: WaitStatus,
    /// The head; everything up to it was sent to this connection's subscriptions before.
    pub seq: u64,
    /// How the run ended that was waited for, or else the last one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_run: Option<Arc<LastRun>>,
}

/// Why `waitForIdle` answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum WaitStatus {
    /// What was waited for has come.
    Idle,
    /// `timeoutMs` is over.
    Timeout,
}

/// What `removeQueued` gives.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RemoveQueuedResult {
    /// The message; null when no queue holds it (any more).
    pub removed: Option<Arc<Queued>>,
    /// The head after the call took effect.
    pub seq: u64,
}

/// What `clearQueues` gives.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ClearQueuesResult {
    /// What the queues held.
    #[serde(flatten)]
    pub cleared: Undelivered,
    /// The head after the call took effect.
    pub seq: u64,
}

/// What `getState` gives.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct GetStateResult {
    /// The newest event that the state knows.
    pub seq: u64,
    /// The instance that `seq` counts in.
    pub instance_id: String,
    /// The session.
    pub session_id: String,
    /// The state.
    pub state: AgentState,
}

/// What `getMessages` gives.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct GetMessagesResult {
    /// The page.
    pub messages: Vec<Arc<Message>>,
    /// How long the whole transcript is.
    pub total: usize,
    /// The newest event that the transcript knows.
    pub seq: u64,
}

/// What `listModels` gives.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ListModelsResult {
    /// All models that are configured; before them the session's own, where it is none of them.
    pub models: Vec<ModelDescription>,
    /// The session's model, as `PROVIDER/ID`.
    pub current: String,
}

/// One model, as `listModels` shows it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ModelDescription {
    /// `PROVIDER/ID`. An ID of `*` stands for any that the provider knows.
    pub id: String,
    /// The provider's name.
    pub provider: String,
    /// The wire format that it speaks, as the configuration names it; `offline` for the built-in
    /// model, which is on no wire, and `unknown` for one that is not configured.
    pub api: String,
    /// How many tokens fit, where that is configured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub context_window: Option<u64>,
    /// How many tokens one answer may have, where that is configured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_output_tokens: Option<u64>,
    /// Whether it sees pictures.
    pub images: bool,
    /// Whether it can be told how much to think.
    pub thinking: bool,
    /// Whether it can be used now.
    pub available: bool,
    /// If not, why.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// What methods give that only have an effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SeqResult {
    /// The head after the call took effect.
    pub seq: u64,
}

/// What `createSession` gives.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CreateSessionResult {
    /// The session.
    pub session_id: String,
    /// Whether it is new.
    pub created: bool,
}

/// What `listSessions` gives.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ListSessionsResult {
    /// All of them, oldest first.
    pub sessions: Vec<SessionSummary>,
}

/// One session, as `listSessions` shows it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SessionSummary {
    /// The session.
    pub session_id: String,
    /// What its sequence numbers count in.
    pub instance_id: String,
    /// Its working directory.
    pub cwd: String,
    /// Its model, as `PROVIDER/ID`.
    pub model: String,
    /// The run that is active; null at idle.
    pub active_run_id: Option<RunId>,
    /// How many messages its transcript has.
    pub messages: usize,
    /// Its newest event.
    pub seq: u64,
}

/// What `closeSession` gives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct CloseSessionResult {
    /// False for `main`, which stays.
    pub closed: bool,
}

/// What `health` gives.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct HealthResult {
    /// Whether it takes work.
    pub status: HealthStatus,
    /// Milliseconds since it was started.
    pub uptime_ms: u64,
    /// How many sessions it has.
    pub sessions: usize,
    /// How many clients are connected.
    pub connections: usize,
    /// Its version.
    pub version: String,
}

/// Whether the daemon takes work.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum HealthStatus {
    /// It does.
    Ok,
    /// It is about to end.
    ShuttingDown,
}
