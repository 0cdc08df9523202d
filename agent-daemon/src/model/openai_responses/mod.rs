//! OpenAI's responses.
//!
//! Owns: this wire format: items by number, thoughts that come sealed or open and are sent back
//! whole, nothing kept on the server.
//! Never: touches the network.

mod decoder;
mod request;

use serde_json::Value;

use super::{
    abilities::openai_thinks,
    wire_format::{WireFormat, field_text},
};

pub(super) static FORMAT: WireFormat = WireFormat {
    name: "openai-responses",
    path: |_| "/responses",
    key_header: "authorization",
    key_prefix: "Bearer ",
    headers: |_| Vec::new(),
    body: request::body,
    decoder: || Box::new(decoder::ResponsesDecoder::default()),
    is_answer: |value| {
        field_text(value, "type").starts_with("response.")
            || field_text(value, "object") == "response"
    },
    call_marks: &["function_call"],
    largest_picture: |_| usize::MAX,
    thinks: openai_thinks,
};

/// Whether a thought can be sent back: it is there, sealed or open. What is neither is on a server
/// that keeps responses.
fn goes_back(item: &Value) -> bool {
    let is_open = item["content"].as_array().is_some_and(|content| !content.is_empty());
    item["type"] == "reasoning" && (is_open || item["encrypted_content"].is_string())
}
