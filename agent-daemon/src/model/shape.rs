//! Whose API a piece of JSON is of, when it is not the one that was asked.
//!
//! Owns: what their answers look like, whole and in pieces. Pure.

use serde_json::Value;

use super::Api;

/// An API that can be told by its answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Shape {
    /// One that we speak.
    Spoken(Api),
    /// One that we do not, by its name for people.
    Other(&'static str),
}

impl Shape {
    /// The API that this is an answer of, or a piece of one.
    pub(super) fn of(value: &Value) -> Option<Self> {
        let text = |key: &str| value.get(key).and_then(Value::as_str).unwrap_or_default();
        let has = |key: &str| value.get(key).is_some_and(|value| !value.is_null());
        let (kind, object) = (text("type"), text("object"));
        Some(match kind {
            "message" if has("content") => Shape::Spoken(Api::AnthropicMessages),
            "message_start"
            | "message_delta"
            | "message_stop"
            | "content_block_start"
            | "content_block_delta"
            | "content_block_stop" => Shape::Spoken(Api::AnthropicMessages),
            _ if kind.starts_with("response.") || object == "response" => {
                Shape::Spoken(Api::OpenaiResponses)
            }
            _ if object == "text_completion" => Shape::Other("OpenAI's older completions API"),
            _ if has("choices") || object.starts_with("chat.completion") => {
                Shape::Spoken(Api::OpenaiCompletions)
            }
            _ if has("candidates") => Shape::Other("Gemini's own API"),
            _ if has("done") && (has("message") || has("response")) => {
                Shape::Other("Ollama's own API")
            }
            _ => return None,
        })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn answers_tell_their_api() {
        for (value, expected) in [
            (json!({"choices": []}), Some(Shape::Spoken(Api::OpenaiCompletions))),
            (json!({"type": "message_start"}), Some(Shape::Spoken(Api::AnthropicMessages))),
            (
                json!({"object": "response", "output": []}),
                Some(Shape::Spoken(Api::OpenaiResponses)),
            ),
            (json!({"type": "response.created"}), Some(Shape::Spoken(Api::OpenaiResponses))),
            (
                json!({"object": "text_completion", "choices": []}),
                Some(Shape::Other("OpenAI's older completions API")),
            ),
            (json!({"candidates": [{}]}), Some(Shape::Other("Gemini's own API"))),
            (
                json!({"message": {"content": "a"}, "done": false}),
                Some(Shape::Other("Ollama's own API")),
            ),
            (json!({"type": "message", "message": "no such model"}), None),
            (json!({"error": {"message": "no"}}), None),
            (json!([]), None),
            (json!("choices"), None),
        ] {
            assert_eq!(Shape::of(&value), expected, "{value}");
        }
    }
}
