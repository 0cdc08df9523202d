//! The models: three wire formats over HTTP, and a built-in one that needs neither network nor key.
//!
//! To read the code, begin with [`catalog`](ModelCatalog), then `remote`, which carries out one
//! request, `wire_format`, which is what it asks of a wire format, and one of those that `formats`
//! lists. In each, `request` is a function from the transcript to JSON and `decoder` a machine from
//! events to model events; neither does I/O. `history` is what all of them send.
//!
//! Owns: everything between [`agent_core::Model`] and a provider's server.
//! Never: retries; that is the loop's work, and visible. Shows a key.

mod abilities;
mod answer_stream;
mod anthropic_messages;
mod body;
mod catalog;
mod cut_characters;
mod failure;
mod foreign_text;
mod formats;
mod history;
mod http;
mod json_text;
mod model_config;
mod offline;
mod openai_completions;
mod openai_responses;
mod patience;
mod pictures;
mod provider;
mod proxy;
mod remote;
mod reported;
mod retry_after;
mod secret;
mod sse;
mod stream_failure;
mod unavailable;
mod wire_format;

#[cfg(test)]
mod body_tests;
#[cfg(test)]
mod broken_tests;
#[cfg(test)]
mod proxy_tests;
#[cfg(test)]
mod real_tests;
#[cfg(test)]
mod recorded;
#[cfg(test)]
mod server_tests;
#[cfg(test)]
mod test_requests;
#[cfg(test)]
mod test_transcripts;

pub use catalog::ModelCatalog;
pub use model_config::ModelConfig;
pub use provider::ProviderConfig;
pub use unavailable::ModelUnavailable;
pub use wire_format::WireFormat;
