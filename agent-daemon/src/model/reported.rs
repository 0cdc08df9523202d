//! A failure as a server reports it.
//!
//! Owns: the shapes of error objects, and what their codes and words stand for. Pure.
//! Never: says what to do about it.

use serde_json::Value;

/// A failure in a server's own words.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Reported {
    /// The HTTP status that it named, or that its type stands for.
    pub(super) status: Option<u16>,
    /// Its types and codes, for sorting.
    pub(super) codes: Vec<String>,
    pub(super) message: String,
}

impl Reported {
    /// Reads any of the shapes that servers use; none if it is no error object.
    pub(super) fn from_json(value: &Value) -> Option<Self> {
        let value = unlisted(value);
        match value.get("error").or_else(|| value.get("errors")?.get(0)).filter(|e| !e.is_null()) {
            Some(Value::String(message)) => {
                let mut reported = Reported { message: message.clone(), ..Reported::default() };
                reported.add_codes(value);
                Some(reported)
            }
            Some(error) => Self::from_error_object(error)
                .or_else(|| Some(Reported { message: error.to_string(), ..Reported::default() })),
            None => Self::from_error_object(value),
        }
    }

    fn from_error_object(error: &Value) -> Option<Self> {
        let message =
            ["message", "detail", "msg"].iter().find_map(|key| match error.get(key)? {
                Value::String(message) => Some(message.clone()),
                Value::Null => None,
                other => Some(other.to_string()),
            })?;
        let mut reported = Reported { message, ..Reported::default() };
        reported.add_codes(error);
        if let Some(metadata) = error.get("metadata") {
            reported.add_upstream(metadata);
        }
        Some(reported)
    }

    /// What OpenRouter was told by the server that it asked; its own words say nothing then.
    fn add_upstream(&mut self, metadata: &Value) {
        let raw = match metadata.get("raw") {
            Some(Value::String(raw)) if !raw.trim().is_empty() => raw.clone(),
            Some(object @ Value::Object(_)) => object.to_string(),
            _ => return,
        };
        let upstream = serde_json::from_str(&raw).ok().and_then(|raw| Self::from_json(&raw));
        let upstream = upstream.unwrap_or(Reported { message: raw, ..Reported::default() });
        if let Some(name) = metadata.get("provider_name").and_then(Value::as_str) {
            self.message += &format!(" ({name})");
        }
        self.message += &format!(": {}", upstream.message);
        self.codes.extend(upstream.codes);
    }

    fn add_codes(&mut self, error: &Value) {
        for key in ["code", "type", "status"] {
            match error.get(key) {
                Some(Value::Number(number)) => {
                    let status = number.as_u64().and_then(|number| u16::try_from(number).ok());
                    self.status =
                        self.status.or(status.filter(|status| (400..600).contains(status)));
                }
                Some(Value::String(code)) => self.codes.push(code.clone()),
                _ => {}
            }
        }
        self.status = self.status.or_else(|| self.codes.iter().find_map(|code| status_of(code)));
    }

    pub(super) fn is_context_overflow(&self) -> bool {
        let known = |code: &String| {
            matches!(
                code.as_str(),
                "context_length_exceeded"
                    | "exceed_context_size_error"
                    | "model_context_window_exceeded"
            )
        };
        let message = self.message.to_lowercase();
        self.codes.iter().any(known)
            || OVERFLOW_PHRASES.iter().any(|phrase| message.contains(phrase))
    }

    /// A quota that is used up does not pass by waiting seconds.
    pub(super) fn is_quota(&self) -> bool {
        self.codes.iter().any(|code| code == "insufficient_quota" || code == "billing_error")
    }
}

/// Google answers with a list of one error.
pub(super) fn unlisted(body: &Value) -> &Value {
    body.as_array().and_then(|list| list.first()).unwrap_or(body)
}

/// How servers say that a request is longer than the context window.
const OVERFLOW_PHRASES: &[&str] = &[
    "maximum context length",
    "max context length",
    "maximum model length",
    "model's context length",
    "available context size",
    "context length exceeded",
    "context length of only",
    "than the context length",
    "context window",
    "context_length",
    "exceeds the context",
    "exceed context limit",
    "exceeded model token limit",
    "exceeds the maximum number of tokens",
    "prompt is too long",
    "prompt too long",
    "prompt exceeds max length",
    "input is too long",
    "range of input length",
    "`inputs` tokens + `max_new_tokens`",
    "maximum prompt length",
    "reduce the length of the messages",
    "token count exceeds",
    "prompt token count of",
];

/// The HTTP status that an error type stands for.
fn status_of(code: &str) -> Option<u16> {
    Some(match code {
        "invalid_request_error" => 400,
        "authentication_error" | "invalid_api_key" => 401,
        "billing_error" => 402,
        "permission_error" => 403,
        "not_found_error" | "model_not_found" => 404,
        "request_too_large" => 413,
        "rate_limit_error" | "rate_limit_exceeded" | "insufficient_quota" => 429,
        "api_error" | "server_error" | "internal_server_error" => 500,
        "unavailable_error" => 503,
        "timeout_error" => 504,
        "overloaded_error" => 529,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// In each server's own words.
    const OVERFLOWS: &[(&str, &str)] = &[
        ("OpenAI", "Your input exceeds the context window of this model."),
        (
            "vLLM",
            "This model's maximum context length is 4096 tokens. However, you requested 5000.",
        ),
        (
            "vLLM",
            "The decoder prompt (length 5000) is longer than the maximum model length of 4096.",
        ),
        (
            "SGLang",
            "The input (5000 tokens) is longer than the model's context length (4096 tokens).",
        ),
        ("llama.cpp", "the request exceeds the available context size, try increasing it"),
        ("Anthropic", "prompt is too long: 210000 tokens > 200000 maximum"),
        (
            "Anthropic",
            "input length and `max_tokens` exceed context limit: 190000 + 20000 > 200000",
        ),
        ("Bedrock", "Input is too long for requested model."),
        (
            "Gemini",
            "The input token count (1196265) exceeds the maximum number of tokens allowed (1048575).",
        ),
        ("Ollama", "prompt too long; exceeded max context length by 3 tokens"),
        (
            "LM Studio",
            "The number of tokens to keep from the initial prompt is greater than the context length.",
        ),
        ("LM Studio", "the model is loaded with context length of only 4096 tokens"),
        (
            "TGI",
            "Input validation error: `inputs` tokens + `max_new_tokens` must be <= 4096. Given: 5000",
        ),
        (
            "xAI",
            "This model's maximum prompt length is 131072 but the request contains 537812 tokens.",
        ),
        ("Groq", "Please reduce the length of the messages or completion."),
        ("Copilot", "prompt token count of 130000 exceeds the limit of 128000"),
        ("Kimi", "Invalid request: Your request exceeded model token limit: 262144"),
        ("Zhipu", "Prompt exceeds max length"),
        ("DashScope", "Range of input length should be [1, 129024]"),
        (
            "Mistral",
            "Prompt contains 40000 tokens, too large for model with 32768 maximum context length",
        ),
    ];

    #[test]
    fn a_context_overflow_is_recognised_in_any_words() {
        let said = |message: &str| Reported { message: message.to_owned(), ..Reported::default() };
        for (server, message) in OVERFLOWS {
            assert!(said(message).is_context_overflow(), "{server}: {message}");
        }
        for other in
            ["Unsupported parameter: 'max_tokens'", "Input is not valid", "too many requests"]
        {
            assert!(!said(other).is_context_overflow(), "{other}");
        }
    }

    #[test]
    fn what_an_upstream_server_said_is_told() {
        for (metadata, expected) in [
            (
                json!({"provider_name": "Anthropic", "raw": "{\"error\":{\"message\":\"prompt is too long\",\"type\":\"t\"}}"}),
                "Provider returned error (Anthropic): prompt is too long [t]",
            ),
            (json!({"raw": "slow down"}), "Provider returned error: slow down []"),
            (json!({"raw": {"message": "no"}}), "Provider returned error: no []"),
            (json!({"provider_name": "X"}), "Provider returned error []"),
            (json!({"raw": null}), "Provider returned error []"),
        ] {
            let body =
                json!({"error": {"message": "Provider returned error", "metadata": metadata}});
            let told = Reported::from_json(&body)
                .map(|reported| format!("{} [{}]", reported.message, reported.codes.join(" ")));
            assert_eq!(told.as_deref(), Some(expected));
        }
    }
}
