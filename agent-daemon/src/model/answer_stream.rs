//! An answer as it comes off the wire: bytes in, model events out.
//!
//! Owns: joining the event decoder and one wire format's decoder, and what the end of the bytes
//! means. Pure.
//! Never: reads a socket; loses events that came before a failure.

use agent_core::{ModelEnd, ModelEvent};
use serde_json::Value;

use super::{
    Api,
    anthropic_messages::MessagesDecoder,
    failure::StreamFailure,
    json_text,
    openai_completions::CompletionsDecoder,
    openai_responses::ResponsesDecoder,
    sse::{SseDecoder, SseEvent},
};

/// What one wire format makes of its events.
pub(super) trait Decoder: Send {
    /// Takes one event and appends what it says.
    fn event(
        &mut self,
        event: &SseEvent,
        events: &mut Vec<ModelEvent>,
    ) -> Result<(), StreamFailure>;

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

/// The decoders of one answer.
pub(super) struct AnswerStream {
    sse: SseDecoder,
    decoder: Box<dyn Decoder>,
}

/// More calls than this in one answer are a runaway.
pub(super) const MOST_CALLS: usize = 128;

/// The largest event: a whole answer in one piece, or arguments with a file in them.
const LARGEST_EVENT: usize = 16 * 1024 * 1024;

impl AnswerStream {
    pub(super) fn new(api: Api) -> Self {
        let decoder: Box<dyn Decoder> = match api {
            Api::AnthropicMessages => Box::new(MessagesDecoder::default()),
            Api::OpenaiResponses => Box::new(ResponsesDecoder::default()),
            Api::OpenaiCompletions => Box::new(CompletionsDecoder::default()),
        };
        AnswerStream { sse: SseDecoder::new(LARGEST_EVENT), decoder }
    }

    /// Takes the next bytes. On a failure the events before it have been appended.
    pub(super) fn feed(
        &mut self,
        bytes: &[u8],
        events: &mut Vec<ModelEvent>,
    ) -> Result<(), StreamFailure> {
        let mut decoded = Vec::new();
        let fed = self.sse.feed(bytes, &mut decoded);
        for event in decoded {
            if self.decoder.progress() == Progress::Over {
                return Ok(());
            }
            self.decoder.event(&event, events)?;
        }
        fed.map_err(|too_large| StreamFailure::Malformed(too_large.to_string()))
    }

    /// Takes an answer that came in one piece, as from servers that cannot stream; or that only say
    /// so.
    pub(super) fn whole(
        &mut self,
        body: Vec<u8>,
        events: &mut Vec<ModelEvent>,
    ) -> Result<(), StreamFailure> {
        let begins = |start: &&[u8]| body.trim_ascii_start().starts_with(start);
        if [&b"data:"[..], b"event:", b":"].iter().any(begins) {
            return self.feed(&body, events);
        }
        let data = String::from_utf8_lossy(&body).into_owned();
        self.decoder.event(&SseEvent { name: String::new(), data }, events)
    }

    pub(super) fn progress(&self) -> Progress {
        self.decoder.progress()
    }

    /// Takes the end of the bytes.
    pub(super) fn finish(
        mut self,
        events: &mut Vec<ModelEvent>,
    ) -> Result<ModelEnd, StreamFailure> {
        if self.decoder.progress() < Progress::Over
            && let Some(last) = self.sse.finish()
        {
            match self.decoder.event(&last, events) {
                // An event that was cut off is no broken server but a cut connection.
                Ok(()) | Err(StreamFailure::Malformed(_)) => {}
                Err(failure) => return Err(failure),
            }
        }
        self.decoder.end()
    }
}

/// An event's JSON; none where it says nothing, or only that the stream is over.
///
/// # Errors
/// It is no JSON.
pub(super) fn parse(data: &str) -> Result<Option<Value>, StreamFailure> {
    let data = data.trim();
    if data.is_empty() || data == "[DONE]" {
        return Ok(None);
    }
    let parsed = json_text::read(data);
    parsed
        .map(Some)
        .map_err(|error| StreamFailure::Malformed(format!("an event is no JSON ({error}): {data}")))
}
