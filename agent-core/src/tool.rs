//! Tools: what a model can ask for.
//!
//! Owns: the [`Tool`] trait, what a call is given and what it may answer.
//! Never: pairs, orders or publishes results; that is `tool_batch`'s work.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use tokio::sync::mpsc;

use crate::{Block, BoxFuture, CancelSignal, ToolSpec};

/// Something that a model can ask for.
///
/// Each call runs in a task of its own. A batch's calls begin in call order, each when the one before
/// has come to its first await, or has blocked its thread for half a second. When the run is aborted
/// the call's signal fires; the tool then has the grace period to return, and is abandoned after it:
/// its task is aborted at the next await and whatever it still says is dropped (C7.4).
pub trait Tool: Send + Sync + 'static {
    /// Name, description and the JSON Schema of the arguments.
    fn spec(&self) -> &ToolSpec;

    /// Whether calls of this tool may overlap with other calls of the same batch.
    fn execution(&self) -> ToolConcurrency {
        ToolConcurrency::Shared
    }

    /// Carries out one call. The arguments are a JSON object that fits the schema.
    ///
    /// # Errors
    /// A [`ToolError`] becomes an error result that the model sees; the run goes on.
    fn call<'a>(
        &'a self,
        arguments: Value,
        context: ToolContext,
    ) -> BoxFuture<'a, Result<ToolOutput, ToolError>>;
}

/// Whether a tool's calls may run beside others of their batch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ToolConcurrency {
    /// Beside any other shared call.
    #[default]
    Shared,
    /// Alone: earlier calls finish first, later ones wait.
    Alone,
}

/// What one call is given besides its arguments.
#[derive(Clone)]
pub struct ToolContext {
    /// The call's id, unique within its message.
    pub tool_call_id: Arc<str>,
    /// Fires when the run is aborted.
    pub signal: CancelSignal,
    pub(crate) updates: mpsc::Sender<ToolUpdate>,
}

/// Progress of one call, on its way to the loop.
pub(crate) struct ToolUpdate {
    pub(crate) tool_call_id: Arc<str>,
    pub(crate) partial: ToolOutput,
}

impl ToolContext {
    /// A context outside any run, for trying a tool alone, and the updates that it will be given.
    pub fn detached(tool_call_id: &str, signal: CancelSignal) -> (Self, ToolUpdates) {
        let (updates, receiver) = mpsc::channel(64);
        let context = ToolContext { tool_call_id: tool_call_id.into(), signal, updates };
        (context, ToolUpdates { receiver })
    }

    /// Shows progress (event `tool_update`). Never waits: an update that finds the run busy with
    /// 64 earlier ones is dropped, and so is one that comes after the call has ended.
    pub fn update(&self, partial: ToolOutput) {
        let update = ToolUpdate { tool_call_id: self.tool_call_id.clone(), partial };
        // Full or closed: progress is worth nothing once it is late.
        let _ = self.updates.try_send(update);
    }
}

/// The receiving end of [`ToolContext::detached`].
pub struct ToolUpdates {
    receiver: mpsc::Receiver<ToolUpdate>,
}

impl ToolUpdates {
    /// The next update; none when the call's context is gone. Safe to drop.
    pub async fn next(&mut self) -> Option<ToolOutput> {
        self.receiver.recv().await.map(|update| update.partial)
    }
}

/// What a call came to: the contract's `Result`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct ToolOutput {
    /// What the model gets to see.
    pub content: Vec<Block>,
    /// What people and programs may want to see besides.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub details: Option<Value>,
}

impl ToolOutput {
    /// An output of one text block.
    pub fn text(text: impl Into<String>) -> Self {
        ToolOutput { content: vec![Block::text(text)], details: None }
    }

    /// The same output with details.
    ///
    /// # Errors
    /// The details cannot be expressed as JSON.
    pub fn with_details(mut self, details: impl Serialize) -> Result<Self, ToolError> {
        let details = serde_json::to_value(details)
            .map_err(|error| ToolError::new(format!("the result cannot be serialised: {error}")))?;
        self.details = Some(details);
        Ok(self)
    }
}

/// A call that failed. The model sees the output, marked as an error.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error("{}", crate::message::text_of(&self.output.content))]
pub struct ToolError {
    /// What the model gets to see.
    pub output: ToolOutput,
}

impl ToolError {
    /// An error of one text.
    pub fn new(message: impl Into<String>) -> Self {
        ToolError { output: ToolOutput::text(message) }
    }
}

impl From<ToolOutput> for ToolError {
    fn from(output: ToolOutput) -> Self {
        ToolError { output }
    }
}
