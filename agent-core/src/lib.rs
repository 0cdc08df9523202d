//! A stateful agent that many clients can share.
//!
//! To read the code, begin with `event`, then `state`, [`reduce`], `run`, `agent_loop` and
//! [`agent`](Agent).

use std::{future::Future, pin::Pin};

mod agent;
mod agent_loop;
mod answer;
mod cancel;
mod config;
mod contain;

mod error;
mod event;
mod guarded;
mod handle;
mod hook_call;
mod hooks;
mod intake;
mod message;
mod model;
mod options;
mod publish;
mod queue;
mod reduce;
mod retry;
mod run;
mod scripted;
mod settings;
mod state;
mod stream;
mod tool;
mod tool_batch;
mod tool_set;
mod transcript;

pub use agent::{Abort, Agent, Idle};
pub use cancel::{CancelSignal, CancelSource};
pub use config::{Config, ConfigChange, QueueMode, ToolExecution, WhenIdle};
pub use error::{Busy, ContinueError, SubmitError, WaitError, WrongRun};
pub use event::{EndReason, Event, EventKind, QueueKind, Queued, Role, RunId, Source, Undelivered};
pub use handle::{RunHandle, RunResult};
pub use hooks::{FinishedTurn, HookError, Hooks, NextTurn, ToolDecision, ToolOutcome};
pub use intake::{Accepted, Disposition, Intent, NoRun, OnBusy};
pub use message::{
    AssistantMessage, Block, Input, Message, MessageId, Origin, StopReason, ToolCall,
    ToolResultMessage, Usage, UserMessage, text_of,
};
pub use model::{
    Model, ModelEnd, ModelError, ModelErrorKind, ModelEvent, ModelRequest, ModelSink, SinkClosed,
    ThinkingLevel, ToolSpec, collect,
};
pub use options::{AgentOptions, Limits};
pub use publish::{ListenerError, Subscription};
pub use queue::{MAX_QUEUED_BYTES, MAX_QUEUED_MESSAGES, PendingQueue, QueueFull};
pub use reduce::reduce;
pub use retry::{RetryDecision, RetryPolicy};
pub use run::{ActiveRun, Boundary, RunSlot, Taken};
pub use scripted::{Gate, ScriptedModel, Step};
pub use settings::SettingsChange;
pub use state::{Activity, AgentState, LastRun, Partial, PartialBlock, Snapshot};
pub use tool::{Tool, ToolConcurrency, ToolContext, ToolError, ToolOutput, ToolUpdates};
pub use transcript::{GrowingText, Transcript};

/// A boxed future, so that the traits can be used as objects.
pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;
