//! A model that a session is to have and that cannot be used.
//!
//! Owns: what is said of it. Never: answers; whoever hosts the session refuses what would ask it,
//! and it becomes usable only by another one taking its place.

use agent_core::{BoxFuture, Model, ModelEnd, ModelError, ModelErrorKind, ModelRequest, ModelSink};
use agent_protocol::ModelDescription;

/// A model that cannot be used (error 1012).
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the model {model} is not available: {reason}")]
pub struct ModelUnavailable {
    /// The name that was asked for.
    pub model: String,
    /// Why, and what to do.
    pub reason: String,
}

impl ModelUnavailable {
    /// As `listModels` shows it, where no configured model is it.
    pub(crate) fn describe(&self) -> ModelDescription {
        let provider = self.model.split_once('/').map_or("", |(provider, _)| provider);
        ModelDescription {
            id: self.model.clone(),
            provider: provider.to_owned(),
            api: "unknown".to_owned(),
            context_window: None,
            max_output_tokens: None,
            images: false,
            thinking: false,
            available: false,
            reason: Some(self.reason.clone()),
        }
    }
}

impl Model for ModelUnavailable {
    fn name(&self) -> &str {
        &self.model
    }

    fn respond<'a>(
        &'a self,
        _: ModelRequest,
        _: ModelSink,
    ) -> BoxFuture<'a, Result<ModelEnd, ModelError>> {
        let error = ModelError::new(ModelErrorKind::Unsupported, self.to_string());
        Box::pin(std::future::ready(Err(error)))
    }
}
