//! Hooks: where an embedding program may look into a run and change its course.
//!
//! Owns: the [`Hooks`] trait and what its methods are given and may answer (C10).
//! Never: runs; the loop and the tool batch call it, each call in a task of its own.

use std::sync::Arc;

use serde_json::Value;

use crate::{
    data::{
        config::ThinkingLevel,
        message::{AssistantMessage, ToolCall, ToolResultMessage},
        outcome::ToolOutcome,
        transcript::Transcript,
    },
    seam::{BoxFuture, cancel::CancelSignal, model::Model, tool::Tool},
};

/// What an embedding program may do at certain moments of a run. Every method does nothing unless
/// it is implemented.
///
/// A hook that fails or panics ends the run as `error`, without unpaired calls. A hook that is
/// running when the run is aborted is dropped at its next await, except `after_tool_call`, which
/// has the rest of the grace period. A hook that takes more than five seconds is reported as a
/// `diagnostic`.
pub trait Hooks: Send + Sync + 'static {
    /// Before each model request: may answer with other messages, for this request only.
    fn transform_context(
        &self,
        messages: Transcript,
        _signal: CancelSignal,
    ) -> BoxFuture<'_, Result<Transcript, HookError>> {
        Box::pin(async { Ok(messages) })
    }

    /// After `transform_context`: drops or translates messages that are not for the model.
    fn convert_to_model(
        &self,
        messages: Transcript,
        _signal: CancelSignal,
    ) -> BoxFuture<'_, Result<Transcript, HookError>> {
        Box::pin(async { Ok(messages) })
    }

    /// When a call's arguments fit the schema and before it runs. Calls are asked about one after
    /// another, in call order; changed arguments are validated again.
    fn before_tool_call(
        &self,
        _call: ToolCall,
        _signal: CancelSignal,
    ) -> BoxFuture<'_, Result<ToolDecision, HookError>> {
        Box::pin(async { Ok(ToolDecision::Run) })
    }

    /// When a call that ran has finished, before its `tool_end`: may replace content, details or
    /// the error flag.
    fn after_tool_call(
        &self,
        _call: ToolCall,
        outcome: ToolOutcome,
        _signal: CancelSignal,
    ) -> BoxFuture<'_, Result<ToolOutcome, HookError>> {
        Box::pin(async { Ok(outcome) })
    }

    /// After a turn that did not fail: `true` ends the run as `stopped_by_hook`.
    fn should_stop_after_turn(
        &self,
        _turn: FinishedTurn,
        _signal: CancelSignal,
    ) -> BoxFuture<'_, Result<bool, HookError>> {
        Box::pin(async { Ok(false) })
    }

    /// Before each turn but the first: may change settings from that turn on.
    fn prepare_next_turn(
        &self,
        _turn: FinishedTurn,
        _signal: CancelSignal,
    ) -> BoxFuture<'_, Result<NextTurn, HookError>> {
        Box::pin(async { Ok(NextTurn::default()) })
    }
}

/// What becomes of a call.
#[derive(Clone, Debug, PartialEq)]
pub enum ToolDecision {
    /// It runs.
    Run,
    /// It runs with these arguments instead.
    RunWith(Value),
    /// It does not run; the model sees the reason as an error result.
    Block {
        /// Why, for the model and for people.
        reason: String,
    },
}

/// A turn that is complete.
#[derive(Clone, Debug)]
pub struct FinishedTurn {
    /// Its number within the run.
    pub turn: u32,
    /// What the model said.
    pub message: Arc<AssistantMessage>,
    /// What its calls came to, in call order.
    pub results: Vec<Arc<ToolResultMessage>>,
    /// The run's context after the turn.
    pub messages: Transcript,
}

/// Settings to change before the next turn. They are the agent's settings: the change is published
/// as `config_changed` and lasts.
#[derive(Clone, Default)]
pub struct NextTurn {
    /// Another model.
    pub model: Option<Arc<dyn Model>>,
    /// Another thinking level.
    pub thinking_level: Option<ThinkingLevel>,
    /// Another system prompt.
    pub system_prompt: Option<Arc<str>>,
    /// Other tools.
    pub tools: Option<Vec<Arc<dyn Tool>>>,
}

/// A hook that failed. Ends the run.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct HookError(pub String);

impl HookError {
    /// An error with a message for people.
    pub fn new(message: impl Into<String>) -> Self {
        HookError(message.into())
    }
}
