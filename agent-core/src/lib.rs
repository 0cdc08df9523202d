//! A stateful agent that many clients can share.
//!
//! An [`Agent`] holds a conversation and carries it on: it asks a [`Model`], runs the [`Tool`]s that
//! the model calls, and takes what people say meanwhile. Everything that happens is an [`Event`];
//! what the events add up to is the [`AgentState`], which [`reduce`] computes, here and in clients.
//!
//! # An agent in thirty lines
//!
//! ```
//! use std::sync::Arc;
//!
//! use agent_core::{
//!     Agent, AgentOptions, BoxFuture, EventKind, ScriptedModel, Tool, ToolContext, ToolError,
//!     ToolOutput, ToolSpec,
//! };
//! use serde_json::{Value, json};
//!
//! struct Add(ToolSpec);
//!
//! impl Tool for Add {
//!     fn spec(&self) -> &ToolSpec {
//!         &self.0
//!     }
//!
//!     fn call<'a>(
//!         &'a self,
//!         arguments: Value,
//!         _context: ToolContext,
//!     ) -> BoxFuture<'a, Result<ToolOutput, ToolError>> {
//!         // The arguments fit the schema; what does not never gets here.
//!         let sum = arguments["a"].as_i64().unwrap_or(0) + arguments["b"].as_i64().unwrap_or(0);
//!         Box::pin(async move { Ok(ToolOutput::text(sum.to_string())) })
//!     }
//! }
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let number = json!({ "type": "integer" });
//! let add = Add(ToolSpec {
//!     name: "add".into(),
//!     description: "Adds two numbers.".into(),
//!     parameters: json!({ "type": "object", "properties": { "a": number, "b": number } }),
//! });
//! // A real agent has a real model here; this one plays a script.
//! let model =
//!     ScriptedModel::new().calls([("1", "add", r#"{"a": 2, "b": 3}"#)]).says("That makes 5.");
//! let agent = Agent::new(AgentOptions { tools: vec![Arc::new(add)], ..AgentOptions::new(model) });
//! agent.subscribe(|event, _signal| async move {
//!     if let EventKind::TextDelta { delta, .. } = &event.kind {
//!         print!("{delta}");
//!     }
//!     Ok(())
//! });
//! let result = agent.prompt("What is 2 + 3?")?.await?;
//! let texts: Vec<String> = result.messages.iter().map(|message| message.text()).collect();
//! assert_eq!(texts, ["What is 2 + 3?", "", "5", "That makes 5."]);
//! # Ok(())
//! # }
//! ```
//!
//! # What to read for what
//!
//! | to … | see |
//! | --- | --- |
//! | start, steer, continue and abort runs | [`Agent`] |
//! | choose where input goes | [`Intent`], answered by [`Accepted`] |
//! | show what happens | [`Agent::subscribe`], [`Event`] |
//! | show what is | [`Agent::snapshot`], [`AgentState`] |
//! | follow an agent from elsewhere | [`Snapshot`] and [`reduce`] |
//! | speak to a provider | [`Model`] |
//! | let the model do things | [`Tool`] |
//! | look into runs and change their course | [`Hooks`] |
//! | test any of these | [`ScriptedModel`], [`Gate`], [`collect`], [`ToolContext::detached`] |
//!
//! # Promises
//!
//! - One run at a time. Exactly one `run_end` for each `run_start`, whatever models, tools, hooks and
//!   listeners do; a panic in any of them is contained.
//! - An accepted message joins the transcript once or comes back in `run_end.undelivered` once.
//! - Each tool call has one result, in call order, before anything else is said to the model.
//! - [`Agent::abort`] settles within the grace period of [`Limits`]. Only a listener that never
//!   returns can hold a run up: it is awaited on purpose.
//! - Events are numbered without gaps, and every listener sees all of them in that order.
//!
//! # Costs
//!
//! A snapshot is a few reference counts, however long the transcript is. An event holds only what is
//! new, so that a run's cost is linear in what the model says. Each listener adds one boxed future
//! per event, and its own time.
//!
//! # Cancelling
//!
//! Dropping any future of this crate is safe and loses nothing: runs live in tasks of their own. To
//! end a run, call [`Agent::abort`]. Tools, models and hooks are told by a [`CancelSignal`].
//!
//! # The runtime
//!
//! An agent lives on the tokio runtime that it is made on, which needs timers. On a runtime of
//! several threads, a model, tool or hook that blocks or spins harms nobody else. On one of a single
//! thread it must yield, as all code there must.
//!
//! # Reading the code
//!
//! Begin with `data::event`, then `data::state`, `pure::reduce`, `pure::slot`, `run::agent_loop` and
//! `surface::agent`.

mod data;
mod pure;
mod run;
mod seam;
mod surface;

pub use data::{
    config::{Config, ConfigChange, QueueMode, ThinkingLevel, ToolExecution, WhenIdle},
    event::{EndReason, Event, EventKind, QueueKind, Queued, Role, RunId, Source, Undelivered},
    message::{
        AssistantMessage, Block, Input, Message, MessageId, Origin, StopReason, ToolCall,
        ToolResultMessage, Usage, UserMessage, text_of,
    },
    outcome::{ModelError, ModelErrorKind, ToolError, ToolOutcome, ToolOutput},
    state::{Activity, AgentState, LastRun, Partial, PartialBlock, Snapshot},
    transcript::{GrowingText, Transcript},
};
pub use pure::{
    queue::{MAX_QUEUED_BYTES, MAX_QUEUED_MESSAGES, QueueFull},
    reduce::reduce,
    retry::RetryPolicy,
};
pub use run::{
    feed::ListenerError, publisher::Subscription, run_task::RunResult, settings::SettingsChange,
};
pub use seam::{
    BoxFuture,
    cancel::{CancelSignal, CancelSource},
    hooks::{FinishedTurn, HookError, Hooks, NextTurn, ToolDecision},
    model::{Model, ModelEnd, ModelEvent, ModelRequest, ModelSink, SinkClosed, collect},
    options::{AgentOptions, Limits},
    tool::{Tool, ToolConcurrency, ToolContext, ToolSpec, ToolUpdates},
};
pub use surface::{
    agent::{Abort, Agent, Idle},
    error::{Busy, ContinueError, SubmitError, WaitError, WrongRun},
    handle::RunHandle,
    intake::{Accepted, Disposition, Intent, NoRun, OnBusy},
    scripted::{Gate, ScriptedModel, Step},
};
