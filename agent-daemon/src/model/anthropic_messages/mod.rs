//! Anthropic's messages, and the servers that imitate them.
//!
//! Owns: this wire format: blocks by index, which may overlap; thoughts with their signatures, sent
//! back as they came; cache marks; results of one turn in one message.
//! Never: touches the network.

mod decoder;
pub(super) mod request;

pub(super) use decoder::MessagesDecoder;

/// Marks the signature of a thought that the provider keeps to itself. Others begin differently:
/// they are base64.
const REDACTED: &str = "redacted:";
