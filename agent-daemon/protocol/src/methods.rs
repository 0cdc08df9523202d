//! The methods: what each is called, what it takes and what it gives.
//!
//! Owns: the one list of them, from which the schema and the daemon's table are made, and the names
//! that are no method's.
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
    /// When a call of it takes effect.
    const ORDER: Order;
    /// Its params, always an object.
    type Params: Serialize + DeserializeOwned + JsonSchema;
    /// Its result.
    type Result: Serialize + DeserializeOwned + JsonSchema;
}

/// When a call takes effect, seen from the other calls of its connection (W1.4, W1.5).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// Before every call that came after it. Without an id it is carried out and not answered.
    InTurn,
    /// In turn as well. Its answer is what it is for, so without an id it is ignored.
    ForItsAnswer,
    /// It may wait, and holds up no other call meanwhile. Without an id it is ignored.
    Aside,
}

/// Sees one method; see [`each_method`].
pub trait Visit<M: Method> {
    /// Called once with the method.
    fn visit(&mut self);
}

macro_rules! methods {
    ($(
        $(#[doc = $doc:literal])*
        $name:literal $method:ident($params:ty) -> $result:ty, $order:ident;
    )*) => {
        $(
            $(#[doc = $doc])*
            #[derive(Clone, Copy, Debug)]
            pub enum $method {}

            impl Method for $method {
                const NAME: &'static str = $name;
                const ABOUT: &'static str = concat!($($doc),*);
                const ORDER: Order = Order::$order;
                type Params = $params;
                type Result = $result;
            }
        )*

        impl Order {
            /// The order of the method of that name, if there is one.
            pub fn of(method: &str) -> Option<Self> {
                match method {
                    $($name => Some(Order::$order),)*
                    _ => None,
                }
            }
        }

        /// Shows a visitor every method of the protocol, in the protocol's order. One that does
        /// not know what to do with each of them does not compile.
        pub fn each_method<V>(visitor: &mut V)
        where
            $(V: Visit<$method>,)*
        {
            $(Visit::<$method>::visit(visitor);)*
        }
    };
}

methods! {
    /// Agrees on the protocol's version and says who speaks.
    "initialize" Initialize(InitializeParams) -> InitializeResult, ForItsAnswer;
    /// Stops taking work, aborts the runs, lets them settle and answers.
    "shutdown" Shutdown(ShutdownParams) -> (), Aside;
    /// Starts a run, or with `onBusy` adds to the active one.
    "prompt" Prompt(PromptParams) -> PromptResult, InTurn;
    /// Runs again without a new message.
    "continue" Continue(SessionParams) -> ContinueResult, InTurn;
    /// Says something before the run's next model request.
    "steer" Steer(QueueParams) -> QueueResult, InTurn;
    /// Says what to do when the run would otherwise stop.
    "followUp" FollowUp(QueueParams) -> QueueResult, InTurn;
    /// Asks the active run to end; only signals, never waits.
    "abort" Abort(AbortParams) -> AbortResult, InTurn;
    /// Waits until the agent is idle, or one run has settled.
    "waitForIdle" WaitForIdle(WaitForIdleParams) -> WaitForIdleResult, Aside;
    /// Takes one message out of a queue.
    "removeQueued" RemoveQueued(RemoveQueuedParams) -> RemoveQueuedResult, InTurn;
    /// Empties one queue or both, and gives what was in them.
    "clearQueues" ClearQueues(ClearQueuesParams) -> ClearQueuesResult, InTurn;
    /// Gives the session's state at one moment.
    "getState" GetState(GetStateParams) -> GetStateResult, InTurn;
    /// Gives a page of the transcript.
    "getMessages" GetMessages(GetMessagesParams) -> GetMessagesResult, InTurn;
    /// Sends the session's events as they happen.
    "subscribe" Subscribe(SubscribeParams) -> String, ForItsAnswer;
    /// Ends a subscription of this connection.
    "unsubscribe" Unsubscribe(UnsubscribeParams) -> bool, InTurn;
    /// Changes settings, all or none; they take effect at the next turn.
    "setConfig" SetConfig(SetConfigParams) -> agent_core::Config, InTurn;
    /// Lists the models that a session can use.
    "listModels" ListModels(SessionParams) -> ListModelsResult, InTurn;
    /// Empties the transcript of an idle session.
    "reset" Reset(SessionParams) -> SeqResult, InTurn;
    /// Makes a session, or finds the one of a directory.
    "createSession" CreateSession(CreateSessionParams) -> CreateSessionResult, InTurn;
    /// Lists all sessions.
    "listSessions" ListSessions(SessionParams) -> ListSessionsResult, InTurn;
    /// Aborts a session's run, lets it settle and forgets the session.
    "closeSession" CloseSession(SessionParams) -> CloseSessionResult, Aside;
    /// Tells whether the daemon takes work, and how much it has to do.
    "health" Health(SessionParams) -> HealthResult, InTurn;
    /// Gives the JSON Schema of every method, event and error.
    "getSchema" GetSchema(SessionParams) -> Value, InTurn;
}
