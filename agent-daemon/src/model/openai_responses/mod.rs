//! OpenAI's responses.
//!
//! Owns: this wire format: items by number, thoughts that come sealed or open and are sent back
//! whole, nothing kept on the server.
//! Never: touches the network.

mod decoder;
pub(super) mod request;

pub(super) use decoder::ResponsesDecoder;

/// Whether a thought can be sent back: it is there, sealed or open. What is neither is on a server
/// that keeps responses.
fn goes_back(item: &serde_json::Value) -> bool {
    let is_open = item["content"].as_array().is_some_and(|content| !content.is_empty());
    item["type"] == "reasoning" && (is_open || item["encrypted_content"].is_string())
}
