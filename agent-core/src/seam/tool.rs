//! Tools: what a model can ask for.
//!
//! Owns: the [`Tool`] trait, how a tool is described, and what a call is given.
//! Never: pairs, orders or publishes results; that is `tool_batch`'s work.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use tokio::sync::mpsc;

use crate::{
    data::outcome::{ToolError, ToolOutput},
    seam::{BoxFuture, cancel::CancelSignal},
};

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

/// How a tool is described to a model.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ToolSpec {
    /// Unique among the agent's tools.
    pub name: String,
    /// What it does and when to use it.
    pub description: String,
    /// A JSON Schema of an object: the arguments.
    pub parameters: Value,
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
