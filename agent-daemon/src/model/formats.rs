//! The wire formats that are spoken: the one list.
//!
//! Owns: the list, a format's name in the configuration, and telling a format by an answer.
//! Never: anything that is true of one of them alone; that is in its directory.

use serde::{Deserialize, Deserializer, Serializer, de::Error as _};
use serde_json::Value;

use super::{
    anthropic_messages, openai_completions, openai_responses,
    stream_failure::Shape,
    wire_format::{WireFormat, field_text, has},
};

/// All of them. A new one is a directory and a row.
pub(super) static FORMATS: [&WireFormat; 3] =
    [&openai_completions::FORMAT, &anthropic_messages::FORMAT, &openai_responses::FORMAT];

/// Reads a wire format by its name.
pub(super) fn deserialize<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<&'static WireFormat, D::Error> {
    let name = String::deserialize(deserializer)?;
    FORMATS.iter().copied().find(|format| format.name == name).ok_or_else(|| {
        let names: Vec<_> = FORMATS.iter().map(|format| format!("`{}`", format.name)).collect();
        D::Error::custom(format!("unknown variant `{name}`, expected one of {}", names.join(", ")))
    })
}

/// Writes a wire format's name.
pub(super) fn serialize<S: Serializer>(
    format: &'static WireFormat,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(format.name)
}

/// The API that this is an answer of, or a piece of one.
pub(super) fn shape(value: &Value) -> Option<Shape> {
    match FORMATS.iter().find(|format| (format.is_answer)(value)) {
        Some(format) => Some(Shape::Spoken(format.name)),
        None => unspoken(value).map(Shape::Other),
    }
}

/// The API that no wire format is of.
fn unspoken(value: &Value) -> Option<&'static str> {
    let has = |key: &str| has(value, key);
    if field_text(value, "object") == "text_completion" {
        Some("OpenAI's older completions API")
    } else if has("candidates") {
        Some("Gemini's own API")
    } else if has("done") && (has("message") || has("response")) {
        Some("Ollama's own API")
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn answers_tell_their_api() {
        let completions = Some(Shape::Spoken("openai-completions"));
        let messages = Some(Shape::Spoken("anthropic-messages"));
        let responses = Some(Shape::Spoken("openai-responses"));
        for (value, expected) in [
            (json!({"choices": []}), completions),
            (json!({"type": "message_start"}), messages),
            (json!({"object": "response", "output": []}), responses),
            (json!({"type": "response.created"}), responses),
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
            assert_eq!(shape(&value), expected, "{value}");
        }
    }

    #[test]
    fn a_name_means_one_format() {
        for (index, format) in FORMATS.iter().enumerate() {
            assert!(FORMATS[..index].iter().all(|other| other != format), "{format:?}");
        }
    }
}
