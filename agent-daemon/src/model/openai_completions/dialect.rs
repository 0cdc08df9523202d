//! Where servers of this API differ in what they refuse.
//!
//! Owns: what an address or a model's name tells about that. Pure.
//! Never: what a configuration says of a model.

use crate::model::remote::RemoteModel;

/// How to speak to one model.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Dialect {
    /// The name of the output limit. OpenAI's own reasoning models refuse the old one; many other
    /// servers know no other.
    pub(super) limit_field: &'static str,
    /// Whether every earlier answer must come with reasoning, be it another model's: DeepSeek and
    /// Kimi refuse a conversation otherwise, as soon as there are tool calls in it.
    pub(super) reasoning_everywhere: bool,
    /// Whether every call must come with a thought's signature: Gemini 3 refuses one without.
    pub(super) signed_calls: bool,
}

impl Dialect {
    pub(super) fn of(model: &RemoteModel) -> Self {
        let host = model.provider.url.host_str().unwrap_or_default();
        let id = model.config.id.to_lowercase();
        let is_of = |names: &[&str]| names.iter().any(|name| id.contains(name));
        let is_openai =
            ["api.openai.com", ".openai.azure.com"].iter().any(|own| host.ends_with(own));
        Dialect {
            limit_field: if is_openai { "max_completion_tokens" } else { "max_tokens" },
            reasoning_everywhere: is_of(&["deepseek", "kimi"]),
            signed_calls: host == "generativelanguage.googleapis.com" && !is_of(&OLDER_GEMINIS),
        }
    }
}

const OLDER_GEMINIS: [&str; 2] = ["gemini-1", "gemini-2"];

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use crate::model::{Api, test_requests::thinking_model};

    #[test]
    fn addresses_and_names_tell_the_dialect() {
        const GOOGLE: &str = "https://generativelanguage.googleapis.com/v1beta/openai";
        for (url, id, expected) in [
            ("https://api.openai.com/v1", "gpt-5", ("max_completion_tokens", false, false)),
            ("https://x.openai.azure.com/openai/v1", "o3", ("max_completion_tokens", false, false)),
            ("https://openrouter.ai/api/v1", "google/gemini-3-pro", ("max_tokens", false, false)),
            ("https://openrouter.ai/api/v1", "DeepSeek/V4", ("max_tokens", true, false)),
            ("https://api.moonshot.ai/v1", "kimi-k2.6", ("max_tokens", true, false)),
            (GOOGLE, "gemini-3-pro-preview", ("max_tokens", false, true)),
            (GOOGLE, "models/gemini-2.5-flash", ("max_tokens", false, false)),
        ] {
            let mut model = thinking_model(Api::OpenaiCompletions);
            std::sync::Arc::get_mut(&mut model.provider).unwrap().url = url.parse().unwrap();
            model.config.id = id.to_owned();
            let dialect = Dialect::of(&model);
            let told = (dialect.limit_field, dialect.reasoning_everywhere, dialect.signed_calls);
            assert_eq!(told, expected, "{id} at {url}");
        }
    }
}
