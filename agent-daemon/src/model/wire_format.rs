//! A wire format: all that the rest asks of one, as one value.
//!
//! Owns: the shape of such a value and of a decoder. [`formats`](super::formats) lists the values.
//! Never: knows one of them.

use std::fmt;

use agent_core::{ModelEnd, ModelEvent, ModelRequest};
use reqwest::Url;
use serde_json::Value;

use super::{model_config::ModelConfig, stream_failure::StreamFailure};

/// A wire format that providers' servers speak. Two are equal if they have the same name.
pub struct WireFormat {
    /// Its name in the configuration, and for people.
    pub(super) name: &'static str,
    /// The path of a request, after the path of the provider's base URL, which is given.
    pub(super) path: fn(base: &str) -> &'static str,
    /// The header that carries the key.
    pub(super) key_header: &'static str,
    /// What precedes the key in that header.
    pub(super) key_prefix: &'static str,
    /// Headers that go with a request to a URL besides the key and those of all formats.
    pub(super) headers: fn(&Url) -> Vec<(&'static str, &'static str)>,
    /// The body of a request. Pure.
    pub(super) body: fn(&Recipient<'_>, &ModelRequest) -> Value,
    /// A decoder for one answer.
    pub(super) decoder: fn() -> Box<dyn Decoder>,
    /// Whether a piece of JSON is an answer in this format, or a piece of one.
    pub(super) is_answer: fn(&Value) -> bool,
    /// Words that are in every piece of a tool call. One that cannot be read leaves a hole in the call.
    pub(super) call_marks: &'static [&'static str],
    /// The largest picture, in bytes of base64, that a model with this id takes if it takes any.
    pub(super) largest_picture: fn(id: &str) -> usize,
    /// Whether the model with this id can be told how much to think, where the format's author
    /// hosts it.
    pub(super) thinks: fn(id: &str) -> bool,
}

/// The model that a request is for.
#[derive(Clone, Copy, Debug)]
pub(super) struct Recipient<'a> {
    /// `PROVIDER/ID`.
    pub(super) name: &'a str,
    pub(super) config: &'a ModelConfig,
    /// Where the request goes.
    pub(super) url: &'a Url,
    /// The largest picture that it takes, in bytes of base64; 0 if it takes none.
    pub(super) largest_picture: usize,
}

/// What one wire format makes of its events.
pub(super) trait Decoder: Send {
    /// Takes one event, by its name and JSON, and appends what it says.
    fn event(
        &mut self,
        name: &str,
        payload: &Value,
        events: &mut Vec<ModelEvent>,
    ) -> Result<(), StreamFailure>;

    /// Takes `[DONE]`, which only one wire format has a use for.
    fn done(&mut self) {}

    /// How far the answer is.
    fn progress(&self) -> Progress;

    /// How the answer ended.
    ///
    /// # Errors
    /// It has not: the stream was cut.
    fn end(&self) -> Result<ModelEnd, StreamFailure>;
}

/// How far an answer is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Progress {
    Going,
    /// It is whole. The usage may still follow; that it does not is no failure.
    Whole,
    /// Nothing more follows.
    Over,
}

/// More calls than this in one answer are a runaway.
pub(super) const MOST_CALLS: usize = 128;

impl PartialEq for WireFormat {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name
    }
}

impl fmt::Debug for WireFormat {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(self.name)
    }
}

/// Whether JSON has a field that says something.
pub(super) fn has(value: &Value, key: &str) -> bool {
    value.get(key).is_some_and(|value| !value.is_null())
}

/// A field's text, empty if it has none.
pub(super) fn field_text<'a>(value: &'a Value, key: &str) -> &'a str {
    value.get(key).and_then(Value::as_str).unwrap_or_default()
}
