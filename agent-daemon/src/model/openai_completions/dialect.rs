//! Where servers of this API differ in what they refuse.
//!
//! Owns: what an address or a model's name tells about that. Pure.
//! Never: what a configuration says of a model.

use std::{
    borrow::Cow,
    hash::{DefaultHasher, Hash, Hasher},
};

use crate::model::{abilities::wants_every_thought, wire_format::Recipient};

/// How to speak to one model.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Dialect {
    /// The name of the output limit. OpenAI's own reasoning models refuse the old one; many other
    /// servers know no other.
    pub(super) limit_field: &'static str,
    /// Whether every earlier answer must come with reasoning.
    pub(super) reasoning_everywhere: bool,
    /// Whether every call must come with a thought's signature: Gemini 3 refuses one without.
    pub(super) signed_calls: bool,
    /// Whether Mistral's rules hold, which are also in the templates of its open models: a call's
    /// id has nine letters and digits, and no question comes straight after a tool's result.
    pub(super) mistral: bool,
    /// Whether the request must ask for a cache: OpenRouter passes that on to Anthropic, whose
    /// models forget everything otherwise.
    pub(super) asks_for_cache: bool,
}

impl Dialect {
    pub(super) fn of(model: &Recipient<'_>) -> Self {
        let host = model.url.host_str().unwrap_or_default();
        let id = model.config.id.to_lowercase();
        let is_of = |names: &[&str]| names.iter().any(|name| id.contains(name));
        let is_openai =
            ["api.openai.com", ".openai.azure.com"].iter().any(|own| host.ends_with(own));
        Dialect {
            limit_field: if is_openai { "max_completion_tokens" } else { "max_tokens" },
            reasoning_everywhere: wants_every_thought(&model.config.id),
            signed_calls: host == "generativelanguage.googleapis.com" && !is_of(&OLDER_GEMINIS),
            mistral: host == "api.mistral.ai" || is_of(&MISTRALS),
            asks_for_cache: host == "openrouter.ai" && id.starts_with("anthropic/"),
        }
    }

    /// A call's id as the server takes it; the same id always gives the same.
    pub(super) fn call_id(self, id: &str) -> Cow<'_, str> {
        let fits = id.len() == MISTRAL_ID && id.bytes().all(|byte| byte.is_ascii_alphanumeric());
        if !self.mistral || fits {
            return id.into();
        }
        let mut hasher = DefaultHasher::new();
        id.hash(&mut hasher);
        let mut hash = hasher.finish();
        let digit = |_| {
            let digit = char::from_digit((hash % 36) as u32, 36).expect("it is below 36");
            hash /= 36;
            digit
        };
        (0..MISTRAL_ID).map(digit).collect::<String>().into()
    }
}

/// The length of every call's id at Mistral.
const MISTRAL_ID: usize = 9;

const MISTRALS: [&str; 5] = ["istral", "devstral", "codestral", "mixtral", "pixtral"];

const OLDER_GEMINIS: [&str; 2] = ["gemini-1", "gemini-2"];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{
        openai_completions::FORMAT, remote::RemoteModel, test_requests::thinking_model_at,
    };

    fn model(url: &str, id: &str) -> RemoteModel {
        thinking_model_at(&FORMAT, url, id)
    }

    /// What is special about a model.
    fn told(url: &str, id: &str) -> String {
        let dialect = Dialect::of(&model(url, id).recipient());
        let special = [
            (dialect.reasoning_everywhere, "reasoning"),
            (dialect.signed_calls, "signatures"),
            (dialect.mistral, "mistral"),
            (dialect.asks_for_cache, "cache"),
        ];
        let special = special.iter().filter(|(holds, _)| *holds).map(|(_, word)| *word);
        [dialect.limit_field].into_iter().chain(special).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn addresses_and_names_tell_the_dialect() {
        const GOOGLE: &str = "https://generativelanguage.googleapis.com/v1beta/openai";
        for (url, id, expected) in [
            ("http://127.0.0.1:8080/v1", "gemma", "max_tokens"),
            ("https://api.openai.com/v1", "gpt-5", "max_completion_tokens"),
            ("https://x.openai.azure.com/openai/v1", "o3", "max_completion_tokens"),
            ("https://openrouter.ai/api/v1", "google/gemini-3-pro", "max_tokens"),
            ("https://openrouter.ai/api/v1", "anthropic/claude-opus-5", "max_tokens cache"),
            ("https://openrouter.ai/api/v1", "DeepSeek/V4", "max_tokens reasoning"),
            ("https://api.moonshot.ai/v1", "kimi-k2.6", "max_tokens reasoning"),
            (GOOGLE, "gemini-3-pro-preview", "max_tokens signatures"),
            (GOOGLE, "models/gemini-2.5-flash", "max_tokens"),
            ("https://api.mistral.ai/v1", "codestral-latest", "max_tokens mistral"),
            ("http://127.0.0.1:8080/v1", "Magistral-Small", "max_tokens mistral"),
            ("http://127.0.0.1:8080/v1", "Devstral-Small-2.gguf", "max_tokens mistral"),
        ] {
            assert_eq!(told(url, id), expected, "{id} at {url}");
        }
    }

    #[test]
    fn ids_are_made_to_fit_mistral_alone() {
        let mistral = Dialect::of(&model("http://h", "mistral-large").recipient());
        let other = Dialect::of(&model("http://h", "m").recipient());
        let mut made = std::collections::HashSet::new();
        for id in ["", "call_1", "call_2", "call_1_2", "123456789é", "12345678_"] {
            let wire_id = mistral.call_id(id);
            assert!(wire_id.len() == 9 && wire_id.bytes().all(|byte| byte.is_ascii_alphanumeric()));
            assert_eq!(mistral.call_id(id), wire_id);
            assert!(made.insert(wire_id), "{id}");
            assert_eq!(other.call_id(id), id);
        }
        assert_eq!(mistral.call_id("aB3dE6gH9"), "aB3dE6gH9");
    }
}
