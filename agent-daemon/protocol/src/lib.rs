//! What the daemon and its clients say to each other: wire protocol, version 1.
//!
//! Owns: the methods with their params and results, the frames that subscriptions send, the table of
//! errors, and how messages are told apart in bytes. What both sides need besides: text of others
//! made [`harmless`], and [`local`], where on a machine they meet.
//! Never: speaks. There is no socket, task or model here, and no file is touched but by [`local`].
//! Where the core has a type, the wire has the same one.
//!
//! To read the code, begin with `methods`, then `params`, `results` and `frames`.

pub mod codec;
mod content;
mod error;
mod frames;
pub mod harmless;
pub mod local;
mod methods;
mod params;
mod results;
pub mod schema;
#[cfg(test)]
mod tests;

pub use agent_core::{Disposition, NoRun, OnBusy};
pub use content::Content;
pub use error::{ErrorData, RpcError};
pub use frames::{Control, ControlFrame, EVENT_TYPES, EventFrame, Frame, Replay};
pub use methods::*;
pub use params::{
    AbortParams, ClearQueuesParams, ClientInfo, CreateSessionParams, GetMessagesParams,
    GetStateParams, InitializeParams, MessagesWanted, PromptParams, QueueParams,
    RemoveQueuedParams, SessionParams, SetConfigParams, ShutdownParams, ShutdownScope,
    SubscribeParams, UnsubscribeParams, WaitForIdleParams, WhichQueues,
};
pub use results::{
    AbortResult, Capabilities, ClearQueuesResult, CloseSessionResult, ContinueResult,
    CreateSessionResult, GetMessagesResult, GetStateResult, HealthResult, HealthStatus,
    InitializeResult, ListModelsResult, ListSessionsResult, ModelDescription, PromptResult,
    QueueResult, RemoveQueuedResult, ReplayCapacity, SeqResult, ServerInfo, SessionSummary,
    WaitForIdleResult, WaitStatus,
};
