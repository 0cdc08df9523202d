//! OpenAI's chat completions, and the many servers that imitate them.
//!
//! Owns: this wire format, with the oddities that were seen of servers: calls without index or id,
//! reasoning under two names, proofs of it that must come back, no `[DONE]`, answers that were not
//! asked to come in one piece.
//! Never: touches the network.

mod calls;
mod decoder;
mod dialect;
mod proofs;
mod request;

use serde_json::Value;

use super::{
    abilities::openai_thinks,
    wire_format::{WireFormat, field_text, has},
};

pub(super) static FORMAT: WireFormat = WireFormat {
    name: "openai-completions",
    path: |_| "/chat/completions",
    key_header: "authorization",
    key_prefix: "Bearer ",
    headers: |_| Vec::new(),
    body: request::body,
    decoder: || Box::new(decoder::CompletionsDecoder::default()),
    is_answer,
    call_marks: &["tool_calls", "function_call"],
    largest_picture: |_| usize::MAX,
    thinks: openai_thinks,
};

fn is_answer(value: &Value) -> bool {
    let object = field_text(value, "object");
    // The older completions have choices too.
    let has_choices = has(value, "choices") && object != "text_completion";
    has_choices || object.starts_with("chat.completion")
}
