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
pub(super) mod request;

pub(super) use decoder::CompletionsDecoder;
