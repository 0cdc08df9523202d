//! The methods: what each is called, what it takes and what it gives.
//!
//! Owns: the list of them, and the names that are no method's.
//! Never: knows what a method does; the daemon does.

use schemars::JsonSchema;
use serde::{Serialize, de::DeserializeOwned};
use serde_json::Value;

use crate::{
    params::{
        AbortParams, ClearQueuesParams, CreateSessionParams, GetMessagesParams, GetStateParams,
        InitializeParams, PromptParams, QueueParams, RemoveQueuedParams, SessionParams,
        SetConfigParams, ShutdownParams, SubscribeParams, UnsubscribeParams, WaitForIdleParams,
    },
    results::{
        AbortResult, ClearQueuesResult, CloseSessionResult, ContinueResult, CreateSessionResult,
        GetMessagesResult, GetStateResult, HealthResult, InitializeResult, ListModelsResult,
        ListSessionsResult, PromptResult, QueueResult, RemoveQueuedResult, SeqResult,
        WaitForIdleResult,
    },
};

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
