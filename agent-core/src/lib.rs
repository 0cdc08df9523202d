//! A stateful agent that many clients can share.
//!
//! To read the code, begin with [`event`], then [`state`], [`reduce`], `run`, `agent_loop` and
//! [`agent`](Agent).

use std::{future::Future, pin::Pin};

mod cancel;
mod config;
mod event;
mod message;
mod model;
mod queue;
mod reduce;
mod run;
mod state;
mod tool;
mod transcript;

pub use cancel::{CancelSignal, CancelSource};
pub use config::{Config, ConfigChange, QueueMode, ToolExecution, WhenIdle};
pub use event::{EndReason, Event, EventKind, QueueKind, Queued, Role, RunId, Source, Undelivered};
pub use message::{
    AssistantMessage, Block, Input, Message, MessageId, Origin, StopReason, ToolCall,
    ToolResultMessage, Usage, UserMessage, text_of,
};
pub use model::{
    Model, ModelEnd, ModelError, ModelErrorKind, ModelEvent, ModelRequest, ModelSink, SinkClosed,
    ThinkingLevel, ToolSpec, collect,
};
pub use queue::{MAX_QUEUED_BYTES, MAX_QUEUED_MESSAGES, PendingQueue, QueueFull};
pub use reduce::reduce;
pub use run::{ActiveRun, Boundary, RunSlot, Taken};
pub use state::{Activity, AgentState, LastRun, Partial, PartialBlock, Snapshot};
pub use tool::{Tool, ToolConcurrency, ToolContext, ToolError, ToolOutput, ToolUpdates};
pub use transcript::{GrowingText, Transcript};

/// A boxed future, so that the traits can be used as objects.
pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;
