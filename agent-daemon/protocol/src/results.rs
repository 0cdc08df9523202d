//! The results of the methods.

use std::sync::Arc;

use agent_core::{
    AgentState, Disposition, LastRun, Message, MessageId, Queued, RunId, Undelivered,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What `initialize` answers.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct InitializeResult {
    /// The version of the protocol that the daemon will speak: 1.
    pub protocol_version: u32,
    /// Which program the daemon is, and which process.
    pub server_info: ServerInfo,
    /// The id of this start of the daemon. Sequence numbers count within it: those of another
    /// instance mean nothing here.
    pub instance_id: String,
    /// The session that is meant by calls without a `sessionId`.
    pub default_session_id: String,
    /// What the daemon can do, and how much of it.
    pub capabilities: Capabilities,
}

/// Which program the daemon is, and which process.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ServerInfo {
    /// The name of the program: `agent-daemon`.
    pub name: String,
    /// The version of the program, which is not that of the protocol.
    pub version: String,
    /// The process id of the daemon.
    pub pid: u32,
}

/// What a daemon can do, and how much of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Capabilities {
    /// The longest message that the daemon reads, in bytes.
    pub max_message_bytes: usize,
    /// How much of a session's past the daemon can repeat.
    pub replay: ReplayCapacity,
    /// The transports on which the daemon can be reached, each once: `stdio`, `unix`, `tcp`, `ws`.
    pub transports: Vec<String>,
    /// A short text that differs whenever what `getSchema` answers does.
    pub schema_hash: String,
}

/// How much of a session's past can be repeated: the newest events, within both bounds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ReplayCapacity {
    /// The most events that are kept.
    pub events: usize,
    /// The most bytes of events that are kept.
    pub bytes: usize,
}

/// What `prompt` answers, once the message is accepted.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PromptResult {
    /// What became of the message: `started`, `steered` or `queued`.
    pub disposition: Disposition,
    /// The run that the message started, or the active run that will see it.
    pub run_id: RunId,
    /// The id that the message has in its queue and in the transcript.
    pub message_id: MessageId,
    /// The number of the newest event after the call took effect.
    pub seq: u64,
}

/// What `steer` and `followUp` answer, once the message is accepted.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct QueueResult {
    /// What became of the message: `steered` or `queued` for the active run; without one, `held` or
    /// `started`.
    pub disposition: Disposition,
    /// The run that will see the message; null when it is held.
    pub run_id: Option<RunId>,
    /// The id that the message has in its queue and in the transcript.
    pub message_id: MessageId,
    /// The place of the message in its queue, from 0; null when it started a run.
    pub position: Option<usize>,
    /// The number of the newest event after the call took effect.
    pub seq: u64,
}

/// What `continue` answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ContinueResult {
    /// The run that began.
    pub run_id: RunId,
    /// The number of the newest event after the call took effect.
    pub seq: u64,
}

/// What `abort` answers, at once; the run ends later.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AbortResult {
    /// Whether a run was active that now ends as aborted.
    pub aborted: bool,
    /// The run that ends; absent when none was active.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run_id: Option<RunId>,
    /// The number of the newest event after the call took effect.
    pub seq: u64,
}

/// What `waitForIdle` answers, when the wait is over.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct WaitForIdleResult {
    /// Whether what was waited for has come, or the time was over before.
    pub status: WaitStatus,
    /// The number of the newest event. All events up to it were sent to this connection's
    /// subscriptions before this answer.
    pub seq: u64,
    /// How the run ended that was waited for, or else the last one; absent before the first run has
    /// ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_run: Option<Arc<LastRun>>,
}

/// Why `waitForIdle` answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum WaitStatus {
    /// What was waited for has come: the agent is idle, or the run has settled.
    Idle,
    /// `timeoutMs` milliseconds were over before that.
    Timeout,
}

/// What `removeQueued` answers.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RemoveQueuedResult {
    /// The message that was taken out; null when no queue holds it, or holds it any more.
    pub removed: Option<Arc<Queued>>,
    /// The number of the newest event after the call took effect.
    pub seq: u64,
}

/// What `clearQueues` answers.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ClearQueuesResult {
    /// What the queues held.
    #[serde(flatten)]
    pub cleared: Undelivered,
    /// The number of the newest event after the call took effect.
    pub seq: u64,
}

/// What `getState` answers.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct GetStateResult {
    /// The number of the newest event that the state contains.
    pub seq: u64,
    /// The instance that `seq` counts in.
    pub instance_id: String,
    /// The session whose state it is.
    pub session_id: String,
    /// The state of the session's agent, with as many messages as were asked for.
    pub state: AgentState,
}

/// What `getMessages` answers.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct GetMessagesResult {
    /// The messages of the page, oldest first.
    pub messages: Vec<Arc<Message>>,
    /// How many messages the whole transcript has.
    pub total: usize,
    /// The number of the newest event that the transcript contains.
    pub seq: u64,
}

/// What `listModels` answers.
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
    /// The name by which the model is chosen, as `PROVIDER/ID`. An ID of `*` stands for any that
    /// the provider knows.
    pub id: String,
    /// The name of the model's provider.
    pub provider: String,
    /// The wire format that the provider speaks, as the configuration names it; `offline` for the
    /// built-in model, which is on no wire, and `unknown` for one that is not configured.
    pub api: String,
    /// How many tokens fit into the model's context; absent where that is not configured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub context_window: Option<u64>,
    /// How many tokens one answer may have; absent where that is not configured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_output_tokens: Option<u64>,
    /// Whether the model sees pictures.
    pub images: bool,
    /// Whether the model can be told how much to think.
    pub thinking: bool,
    /// Whether the model can be used now.
    pub available: bool,
    /// Why the model cannot be used, and what to do; absent for one that can.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// What those methods answer that only have an effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SeqResult {
    /// The number of the newest event after the call took effect.
    pub seq: u64,
}

/// What `createSession` answers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CreateSessionResult {
    /// The session that was made or found.
    pub session_id: String,
    /// Whether the session was made by this call.
    pub created: bool,
}

/// What `listSessions` answers.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ListSessionsResult {
    /// All sessions, oldest first.
    pub sessions: Vec<SessionSummary>,
}

/// One session, as `listSessions` shows it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SessionSummary {
    /// The id of the session.
    pub session_id: String,
    /// The instance that the session's sequence numbers count in.
    pub instance_id: String,
    /// The working directory of the session, absolute.
    pub cwd: String,
    /// The model of the session, as `PROVIDER/ID`.
    pub model: String,
    /// The run that is active; null at idle.
    pub active_run_id: Option<RunId>,
    /// How many messages the transcript has.
    pub messages: usize,
    /// The number of the session's newest event.
    pub seq: u64,
}

/// What `closeSession` answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct CloseSessionResult {
    /// Whether the session is gone. False for `main`, which stays.
    pub closed: bool,
}

/// What `health` answers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct HealthResult {
    /// Whether the daemon takes work.
    pub status: HealthStatus,
    /// For how many milliseconds the daemon has run.
    pub uptime_ms: u64,
    /// How many sessions the daemon has.
    pub sessions: usize,
    /// How many connections the daemon serves, this one among them.
    pub connections: usize,
    /// The version of the program.
    pub version: String,
}

/// Whether a daemon takes work.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum HealthStatus {
    /// The daemon takes work.
    Ok,
    /// The daemon takes no more work and is about to end.
    ShuttingDown,
}
