//! What tool calls and model requests come to.
//!
//! Owns: results and errors as data. Never: decides what becomes of them; the loop does.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::data::message::Block;

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
#[error("{}", crate::data::message::text_of(&self.output.content))]
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

/// What a call came to, good or bad.
#[derive(Clone, Debug, PartialEq)]
pub struct ToolOutcome {
    /// Content and details.
    pub output: ToolOutput,
    /// Whether it failed.
    pub is_error: bool,
}

/// A model request that failed.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error("{message}")]
pub struct ModelError {
    /// What kind of failure, which decides whether it passes.
    pub kind: ModelErrorKind,
    /// For people: provider, model, what happened, and what to do. Never a secret.
    pub message: String,
    /// How long the provider asked us to wait before the next attempt.
    pub retry_after: Option<Duration>,
}

/// The kinds of failure that are told apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ModelErrorKind {
    /// The server could not be reached, or the connection was lost.
    Connection,
    /// The server answered with this HTTP status, or reported the same in its stream.
    Status(u16),
    /// The request is longer than the model's context window.
    ContextOverflow,
    /// The stream ended before the answer did.
    Truncated,
    /// The stream said something that we do not understand.
    Malformed,
    /// Nothing arrived for too long.
    Stalled,
    /// The answer came to its end without text or calls.
    Empty,
    /// The answer was longer than is taken.
    TooLong,
    /// The model cannot do what was asked (images, tools), so nothing was sent.
    Unsupported,
    /// The provider reported a failure that fits no other kind.
    Provider,
    /// The provider's code panicked.
    Panicked,
}

impl ModelError {
    /// An error without a `Retry-After`.
    pub fn new(kind: ModelErrorKind, message: impl Into<String>) -> Self {
        ModelError { kind, message: message.into(), retry_after: None }
    }
}
