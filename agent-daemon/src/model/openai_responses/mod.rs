//! OpenAI's responses.
//!
//! Owns: this wire format: items by number, thoughts that come back sealed and are sent back whole,
//! nothing kept on the server.
//! Never: touches the network.

mod decoder;
pub(super) mod request;

pub(super) use decoder::ResponsesDecoder;
