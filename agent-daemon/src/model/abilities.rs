//! What is taken for granted of models that no configuration describes.
//!
//! Owns: the few facts about the hosted models that a request cannot do without.
//! Never: limits what can be configured; a described model is taken as described.

use super::{Api, ModelConfig};

/// What a model of a provider without a list can presumably do.
pub(super) fn presumed(api: Api, hosted: bool, id: &str) -> ModelConfig {
    ModelConfig {
        id: id.to_owned(),
        context_window: None,
        max_output_tokens: None,
        // Refusing what might work would be worse than the server's own refusal.
        images: true,
        thinking: hosted && thinks(api, id),
    }
}

/// Whether a hosted model can be told how much to think.
fn thinks(api: Api, id: &str) -> bool {
    match api {
        Api::OpenaiCompletions => {
            ["o1", "o3", "o4", "gpt-5", "gpt-6", "codex"].iter().any(|new| id.starts_with(new))
        }
    }
}
