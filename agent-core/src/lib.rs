//! A stateful agent that many clients can share.
//!
//! To read the code, begin with [`event`], then [`state`], [`reduce`], `run`, `agent_loop` and
//! [`agent`](Agent).

use std::{future::Future, pin::Pin};

mod cancel;
mod message;
mod model;
mod tool;
mod transcript;

pub use cancel::{CancelSignal, CancelSource};
pub use message::{
    AssistantMessage, Block, Input, Message, MessageId, Origin, StopReason, ToolCall,
    ToolResultMessage, Usage, UserMessage, text_of,
};
pub use model::{
    Model, ModelEnd, ModelError, ModelErrorKind, ModelEvent, ModelRequest, ModelSink, SinkClosed,
    ThinkingLevel, ToolSpec, collect,
};
pub use tool::{Tool, ToolConcurrency, ToolContext, ToolError, ToolOutput, ToolUpdates};
pub use transcript::{GrowingText, Transcript};

/// A boxed future, so that the traits can be used as objects.
pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;
