//! Anthropic's messages, and the servers that imitate them.
//!
//! Owns: this wire format: blocks by index, which may overlap; thoughts with their signatures, sent
//! back as they came; cache marks; results of one turn in one message.
//! Never: touches the network.

mod decoder;
mod request;

use reqwest::Url;
use serde_json::Value;

use super::{
    abilities::{claude_thinks, largest_picture},
    wire_format::{WireFormat, field_text, has},
};

pub(super) static FORMAT: WireFormat = WireFormat {
    name: "anthropic-messages",
    // Many write the version all the same, since the other APIs want it.
    path: |base| if base.ends_with("/v1") { "/messages" } else { "/v1/messages" },
    key_header: "x-api-key",
    key_prefix: "",
    headers,
    body: request::body,
    decoder: || Box::new(decoder::MessagesDecoder::default()),
    is_answer,
    call_marks: &["tool_use", "input_json_delta"],
    largest_picture,
    thinks: claude_thinks,
};

/// Marks the signature of a thought that the provider keeps to itself. Others begin differently:
/// they are base64.
const REDACTED: &str = "redacted:";

fn headers(url: &Url) -> Vec<(&'static str, &'static str)> {
    let mut headers = vec![("anthropic-version", "2023-06-01")];
    if url.host_str() == Some("api.anthropic.com") {
        // Older models think between tool calls only when asked to; newer ones ignore it.
        headers.push(("anthropic-beta", "interleaved-thinking-2025-05-14"));
    }
    headers
}

fn is_answer(value: &Value) -> bool {
    match field_text(value, "type") {
        "message" => has(value, "content"),
        "message_start"
        | "message_delta"
        | "message_stop"
        | "content_block_start"
        | "content_block_delta"
        | "content_block_stop" => true,
        _ => false,
    }
}
