//! The wire protocol, version 1: method names, params, results and frames.
//!
//! Owns: everything that a client needs in order to speak to the daemon.
//! Never: depends on the daemon; the client uses it too. Where the core has a type, the wire has
//! the same one.

use std::{fmt, sync::Arc};

use agent_core::{
    AgentState, Block, ConfigChange, Event, LastRun, Message, MessageId, QueueMode, Queued, RunId,
    ThinkingLevel, ToolExecution, Undelivered, WhenIdle,
};
pub use agent_core::{Disposition, NoRun, OnBusy};
use schemars::JsonSchema;
use serde::{
    Deserialize, Deserializer, Serialize, Serializer,
    de::{self, DeserializeOwned, SeqAccess, Visitor},
};
use serde_json::Value;

pub use crate::error::{ErrorData, RpcError};

/// The version that `initialize` agrees on.
pub const PROTOCOL_VERSION: u32 = 1;
/// The session that every daemon has, in the daemon's own directory.
pub const DEFAULT_SESSION: &str = "main";
/// The notification that carries a subscription's frames.
pub const EVENT: &str = "event";
/// The notification that ends the process on stdio, and the connection elsewhere.
pub const EXIT: &str = "exit";
/// The notification that follows `initialize` in LSP; accepted and ignored.
pub const INITIALIZED: &str = "initialized";
/// The notification that cancels a waiting call.
pub const CANCEL_REQUEST: &str = "$/cancelRequest";
/// How many messages `"tail"` gives.
pub const TAIL_MESSAGES: usize = 50;

/// One method: what it is called, what it takes and what it gives.
pub trait Method {
    /// The name on the wire.
    const NAME: &'static str;
    /// One sentence for the schema.
    const ABOUT: &'static str;
    /// Its params, always an object.
    type Params: Serialize + DeserializeOwned + JsonSchema;
    /// Its result.
    type Result: Serialize + DeserializeOwned + JsonSchema;
}

macro_rules! methods {
    ($($(#[doc = $doc:literal])* $name:literal $method:ident($params:ty) -> $result:ty;)*) => {
        $(
            $(#[doc = $doc])*
            #[derive(Clone, Copy, Debug)]
            pub enum $method {}

            impl Method for $method {
                const NAME: &'static str = $name;
                const ABOUT: &'static str = concat!($($doc),*);
                type Params = $params;
                type Result = $result;
            }
        )*

        /// Sees each method in turn; see [`each_method`].
        pub trait MethodVisitor {
            /// One method.
            fn method<M: Method>(&mut self);
        }

        /// Shows a visitor every method of the protocol, in the protocol's order.
        pub fn each_method(visitor: &mut impl MethodVisitor) {
            $(visitor.method::<$method>();)*
        }
    };
}

methods! {
    /// Agrees on the protocol's version and says who speaks.
    "initialize" Initialize(InitializeParams) -> InitializeResult;
    /// Stops taking work, aborts the runs, lets them settle and answers.
    "shutdown" Shutdown(ShutdownParams) -> ();
    /// Starts a run, or with `onBusy` adds to the active one.
    "prompt" Prompt(PromptParams) -> PromptResult;
    /// Runs again without a new message.
    "continue" Continue(SessionParams) -> ContinueResult;
    /// Says something before the run's next model request.
    "steer" Steer(QueueParams) -> QueueResult;
    /// Says what to do when the run would otherwise stop.
    "followUp" FollowUp(QueueParams) -> QueueResult;
    /// Asks the active run to end; only signals, never waits.
    "abort" Abort(AbortParams) -> AbortResult;
    /// Waits until the agent is idle, or one run has settled.
    "waitForIdle" WaitForIdle(WaitForIdleParams) -> WaitForIdleResult;
    /// Takes one message out of a queue.
    "removeQueued" RemoveQueued(RemoveQueuedParams) -> RemoveQueuedResult;
    /// Empties queues.
    "clearQueues" ClearQueues(ClearQueuesParams) -> ClearQueuesResult;
    /// The session's state at one moment.
    "getState" GetState(GetStateParams) -> GetStateResult;
    /// A page of the transcript.
    "getMessages" GetMessages(GetMessagesParams) -> GetMessagesResult;
    /// Sends the session's events as they happen.
    "subscribe" Subscribe(SubscribeParams) -> String;
    /// Ends a subscription of this connection.
    "unsubscribe" Unsubscribe(UnsubscribeParams) -> bool;
    /// Changes settings, all or none; they take effect at the next turn.
    "setConfig" SetConfig(SetConfigParams) -> agent_core::Config;
    /// The models that a session can use.
    "listModels" ListModels(SessionParams) -> ListModelsResult;
    /// Empties the transcript of an idle session.
    "reset" Reset(SessionParams) -> SeqResult;
    /// Makes a session, or finds the one of a directory.
    "createSession" CreateSession(CreateSessionParams) -> CreateSessionResult;
    /// All sessions.
    "listSessions" ListSessions(SessionParams) -> ListSessionsResult;
    /// Aborts a session's run, lets it settle and forgets the session.
    "closeSession" CloseSession(SessionParams) -> CloseSessionResult;
    /// Whether the daemon works, and how much it has to do.
    "health" Health(SessionParams) -> HealthResult;
    /// The JSON Schema of every method, event and error.
    "getSchema" GetSchema(SessionParams) -> Value;
}

// Params. `deny_unknown_fields` does not go together with `flatten`, and errors inside a flattened
// struct lose their field's name, so the common fields are written out by a macro.
macro_rules! params {
    ($(#[$about:meta])* $name:ident {
        $($(#[$doc:meta])* $field:ident: $type:ty,)*
    }) => {
        $(#[$about])*
        #[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
        #[serde(rename_all = "camelCase", deny_unknown_fields)]
        pub struct $name {
            $($(#[$doc])* pub $field: $type,)*
            /// The session that is meant; `main` without it.
            #[serde(default, skip_serializing_if = "Option::is_none")]
            pub session_id: Option<String>,
            /// Free for the client's own use; ignored.
            #[serde(default, rename = "_meta", skip_serializing_if = "Option::is_none")]
            pub meta: Option<Value>,
        }
    };
}

// As `params!`, with a field for each setting.
macro_rules! settings_params {
    ($(#[$about:meta])* $name:ident {
        $($(#[$doc:meta])* $field:ident: $type:ty,)*
    }) => {
        params! {
            $(#[$about])*
            $name {
                $($(#[$doc])* $field: $type,)*
                /// The model as `PROVIDER/ID`.
                #[serde(default, skip_serializing_if = "Option::is_none")]
                model: Option<String>,
                /// How much the model thinks.
                #[serde(default, skip_serializing_if = "Option::is_none")]
                thinking_level: Option<ThinkingLevel>,
                /// Instructions that precede the transcript.
                #[serde(default, skip_serializing_if = "Option::is_none")]
                system_prompt: Option<Arc<str>>,
                /// The names of the tools that the model may call.
                #[serde(default, skip_serializing_if = "Option::is_none")]
                tools: Option<Vec<String>>,
                /// How many steering messages are taken at a boundary.
                #[serde(default, skip_serializing_if = "Option::is_none")]
                steering_mode: Option<QueueMode>,
                /// How many follow-ups are taken when the run would stop.
                #[serde(default, skip_serializing_if = "Option::is_none")]
                follow_up_mode: Option<QueueMode>,
                /// What becomes of `steer` and `followUp` at idle.
                #[serde(default, skip_serializing_if = "Option::is_none")]
                when_idle: Option<WhenIdle>,
                /// The most turns that a run may have; 0 for no limit.
                #[serde(default, skip_serializing_if = "Option::is_none")]
                max_turns: Option<u32>,
                /// Whether calls of one batch may overlap.
                #[serde(default, skip_serializing_if = "Option::is_none")]
                tool_execution: Option<ToolExecution>,
            }
        }

        impl $name {
            /// The settings that are to change.
            pub fn change(&self) -> ConfigChange {
                ConfigChange {
                    model: self.model.clone(),
                    thinking_level: self.thinking_level,
                    system_prompt: self.system_prompt.clone(),
                    tools: self.tools.clone(),
                    steering_mode: self.steering_mode,
                    follow_up_mode: self.follow_up_mode,
                    when_idle: self.when_idle,
                    max_turns: self.max_turns,
                    tool_execution: self.tool_execution,
                }
            }
        }
    };
}

/// What `initialize` takes. Unlike all others it ignores fields that it does not know.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct InitializeParams {
    /// The version that the client speaks: 1.
    pub protocol_version: u32,
    /// Who the client is.
    pub client_info: ClientInfo,
    /// On stdio the parent to watch: when it is gone, so is the daemon.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub process_id: Option<u32>,
    /// The daemon's token, in hex; needed on TCP and WebSocket.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub token: Option<String>,
}

/// Who a client is; its name becomes `origin.client`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ClientInfo {
    /// Such as an editor's name.
    pub name: String,
    /// For the log.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
}

params! {
    /// What methods take that need no more than a session.
    SessionParams {}
}

params! {
    /// What `shutdown` takes.
    ShutdownParams {
        /// Needed on a socket, so that nobody ends everybody's daemon by a habit from LSP.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        scope: Option<ShutdownScope>,
    }
}

params! {
    /// What `prompt` takes.
    PromptParams {
        /// What the user says.
        input: Content,
        /// Makes a repeated call harmless: seen again, the first answer is given again.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        client_message_id: Option<String>,
        /// What becomes of it while a run is active; refused without it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        on_busy: Option<OnBusy>,
    }
}

params! {
    /// What `steer` and `followUp` take.
    QueueParams {
        /// What the user says.
        input: Content,
        /// The run that is meant; when another is active or none, nothing happens.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        expected_run_id: Option<RunId>,
        /// What becomes of it when no run can take it; the session's setting without it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        when_idle: Option<NoRun>,
        /// Makes a repeated call harmless: seen again, the first answer is given again.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        client_message_id: Option<String>,
    }
}

params! {
    /// What `abort` takes.
    AbortParams {
        /// The run that is meant; when another is active or none, nothing happens.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        expected_run_id: Option<RunId>,
    }
}

params! {
    /// What `waitForIdle` takes.
    WaitForIdleParams {
        /// Wait for this run only.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        run_id: Option<RunId>,
        /// Answer after so many milliseconds at the latest.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        timeout_ms: Option<u64>,
    }
}

params! {
    /// What `removeQueued` takes.
    RemoveQueuedParams {
        /// The message's id, from the answer of `steer` or `followUp`.
        message_id: String,
    }
}

params! {
    /// What `clearQueues` takes.
    ClearQueuesParams {
        /// Which; both without it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        which: Option<WhichQueues>,
    }
}

params! {
    /// What `getState` takes.
    GetStateParams {
        /// How much of the transcript; all without it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        messages: Option<MessagesWanted>,
        /// At most so many messages, the newest; for `tail`, instead of 50.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        limit: Option<usize>,
    }
}

params! {
    /// What `getMessages` takes.
    GetMessagesParams {
        /// The index of the first message, from 0.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        from: Option<usize>,
        /// At most so many. An answer may hold fewer: ask on at `from` + their number.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        limit: Option<usize>,
    }
}

params! {
    /// What `subscribe` takes.
    SubscribeParams {
        /// Replay everything with a larger `seq` first.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        from_seq: Option<u64>,
        /// The instance that `fromSeq` counts in.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        instance_id: Option<String>,
        /// Begin with the whole state.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        snapshot: Option<bool>,
        /// How much of the transcript a snapshot holds; all without it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        messages: Option<MessagesWanted>,
        /// Only events of these types.
        #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "event_types")]
        include: Option<Vec<String>>,
        /// No events of these types.
        #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "event_types")]
        exclude: Option<Vec<String>>,
    }
}

params! {
    /// What `unsubscribe` takes; `[id]` will do, too.
    UnsubscribeParams {
        /// The id that `subscribe` answered with.
        subscription: String,
    }
}

settings_params! {
    /// What `setConfig` takes.
    SetConfigParams {}
}

settings_params! {
    /// What `createSession` takes. Without a `sessionId` it is the directory's session.
    CreateSessionParams {
        /// The session's working directory; the daemon's own without it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        cwd: Option<String>,
    }
}

/// What a user says. On the wire a string, or an array of text and image blocks.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Content(pub Vec<Block>);

/// The blocks that a user can say.
#[derive(Deserialize, JsonSchema)]
#[serde(
    tag = "type",
    rename_all = "camelCase",
    rename_all_fields = "camelCase",
    deny_unknown_fields
)]
enum InputBlock {
    /// Plain text.
    Text {
        /// The text.
        text: String,
    },
    /// A picture.
    Image {
        /// Such as `image/png`.
        mime_type: String,
        /// The bytes in base64.
        data: Arc<str>,
    },
}

/// Whose end `shutdown` asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum ShutdownScope {
    /// The whole daemon's.
    Daemon,
}

/// Which queues to clear.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum WhichQueues {
    /// For the next model request.
    Steering,
    /// For when the run would stop.
    FollowUp,
    /// Both.
    #[default]
    All,
}

/// How much of the transcript a state holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum MessagesWanted {
    /// All of it.
    #[default]
    All,
    /// The newest messages.
    Tail,
    /// None of it.
    None,
}

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
    /// All models that are configured.
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
    /// model, which is on no wire.
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

/// What a subscription's notification holds: `params.result`.
#[derive(Clone, Debug, PartialEq, JsonSchema)]
#[schemars(untagged)]
pub enum Frame {
    /// Something happened.
    Event(EventFrame),
    /// Something about the subscription itself.
    Control(ControlFrame),
}

/// An event, as a subscription sends it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct EventFrame {
    /// Where it happened.
    pub session_id: String,
    /// Where numbers were left out or merged, the last one before this.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prev_seq: Option<u64>,
    /// What happened.
    #[serde(flatten)]
    pub event: Event,
}

/// A frame that has no `seq` and is never filtered.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ControlFrame {
    /// The subscription's session.
    pub session_id: String,
    /// What it says.
    #[serde(flatten)]
    pub control: Control,
}

/// What happens to a subscription.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "type", rename_all = "snake_case", rename_all_fields = "camelCase")]
#[allow(clippy::large_enum_variant)] // Made once per subscription, and the large one most often.
pub enum Control {
    /// The first frame, and the first after `lagged`.
    Subscribed {
        /// What the numbers count in.
        instance_id: String,
        /// The newest event at this point.
        head_seq: u64,
        /// The oldest event that can still be replayed.
        oldest_seq: u64,
        /// How the past is made up for.
        replay: Replay,
        /// The state after `headSeq`.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        state: Option<AgentState>,
    },
    /// The reader was too slow; events were dropped and a new `subscribed` follows.
    Lagged {
        /// The first that was dropped.
        from_seq: u64,
        /// The last that was dropped.
        to_seq: u64,
    },
    /// The session was closed. Nothing follows.
    SessionClosed {},
    /// The daemon is about to end. Nothing follows.
    ServerShutdown {
        /// Why, for people.
        reason: String,
    },
}

/// How a subscription makes up for the past.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum Replay {
    /// It was not asked to.
    None,
    /// The events after `fromSeq` follow.
    Events,
    /// Those are no longer held, so here is the state.
    Snapshot,
}

/// The types that events have, in the contract's order.
pub const EVENT_TYPES: &[&str] = &[
    "run_start",
    "turn_start",
    "message_start",
    "text_delta",
    "thinking_delta",
    "tool_call_delta",
    "message_end",
    "tool_start",
    "tool_update",
    "tool_end",
    "tool_skipped",
    "queue_update",
    "retry",
    "turn_end",
    "diagnostic",
    "config_changed",
    "reset",
    "run_end",
];

impl Frame {
    /// Reads a frame.
    ///
    /// # Errors
    /// The text is neither an event nor a control frame.
    pub fn from_json(text: &str) -> Result<Self, serde_json::Error> {
        #[derive(Deserialize)]
        struct Numbered {
            seq: Option<de::IgnoredAny>,
        }
        // Looked at first, since what an untagged enum says of a bad frame helps nobody.
        match serde_json::from_str::<Numbered>(text)?.seq {
            Some(_) => serde_json::from_str(text).map(Frame::Event),
            None => serde_json::from_str(text).map(Frame::Control),
        }
    }
}

impl From<&str> for Content {
    fn from(text: &str) -> Self {
        Content(vec![Block::text(text)])
    }
}

impl From<String> for Content {
    fn from(text: String) -> Self {
        Content(vec![Block::Text { text }])
    }
}

impl Serialize for Content {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.0.as_slice() {
            [Block::Text { text }] => serializer.serialize_str(text),
            blocks => blocks.serialize(serializer),
        }
    }
}

impl<'de> Deserialize<'de> for Content {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct StringOrBlocks;

        impl<'de> Visitor<'de> for StringOrBlocks {
            type Value = Content;

            fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
                out.write_str("a string or an array of text and image blocks")
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<Content, E> {
                Ok(text.into())
            }

            fn visit_string<E: de::Error>(self, text: String) -> Result<Content, E> {
                Ok(text.into())
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut blocks: A) -> Result<Content, A::Error> {
                let mut content = Vec::new();
                while let Some(block) = blocks.next_element::<InputBlock>()? {
                    content.push(match block {
                        InputBlock::Text { text } => Block::Text { text },
                        InputBlock::Image { mime_type, data } => Block::Image { mime_type, data },
                    });
                }
                Ok(Content(content))
            }
        }

        deserializer.deserialize_any(StringOrBlocks)
    }
}

impl JsonSchema for Content {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Content".into()
    }

    fn json_schema(generator: &mut schemars::SchemaGenerator) -> schemars::Schema {
        let blocks = generator.subschema_for::<Vec<InputBlock>>();
        schemars::json_schema!({
            "description": "What a user says: a string, or text and image blocks.",
            "anyOf": [{ "type": "string" }, blocks],
        })
    }
}

// A misspelt type would filter everything, or nothing, and nobody would know why.
fn event_types<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<Vec<String>>, D::Error> {
    let types = Option::<Vec<String>>::deserialize(deserializer)?;
    match types.iter().flatten().find(|name| !EVENT_TYPES.contains(&name.as_str())) {
        Some(unknown) => Err(de::Error::unknown_variant(unknown, EVENT_TYPES)),
        None => Ok(types),
    }
}

#[cfg(test)]
mod tests;
