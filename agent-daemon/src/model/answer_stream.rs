//! An answer as it comes off the wire: bytes in, model events out.
//!
//! Owns: joining the event decoder and one wire format's decoder, events that cannot be read, and
//! what the end of the bytes means. Pure.
//! Never: reads a socket; loses events that came before a failure.

use agent_core::{ModelEnd, ModelEvent};
use serde_json::Value;

use super::{
    cut_characters::{self, Joiner},
    foreign_text,
    formats::shape,
    json_text,
    reported::Reported,
    sse::{SseDecoder, SseEvent},
    stream_failure::{Shape, StreamFailure},
    wire_format::{Decoder, Progress, WireFormat},
};

/// The decoders of one answer.
pub(super) struct AnswerStream {
    api: &'static WireFormat,
    sse: SseDecoder,
    decoder: Box<dyn Decoder>,
    joiner: Joiner,
    /// The decoder has made something of an event.
    said_something: bool,
    /// The first event's JSON, for when nothing comes of any.
    first: Option<Value>,
    unreadable: Unreadable,
}

/// The events that are no JSON. One of them is a server's mishap and costs only itself.
#[derive(Debug, Default)]
struct Unreadable {
    count: u32,
    in_a_row: u32,
    /// What is wrong with the newest event.
    newest: Option<String>,
}

/// The largest event: a whole answer in one piece, or arguments with a file in them.
const LARGEST_EVENT: usize = 16 * 1024 * 1024;

/// More events in a row that are no JSON are another protocol.
const MOST_UNREADABLE: u32 = 100;

/// Explanations are short.
const LARGEST_FIRST: usize = 64 * 1024;

impl AnswerStream {
    pub(super) fn new(api: &'static WireFormat) -> Self {
        AnswerStream {
            api,
            sse: SseDecoder::new(LARGEST_EVENT),
            decoder: (api.decoder)(),
            joiner: Joiner::default(),
            said_something: false,
            first: None,
            unreadable: Unreadable::default(),
        }
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
            self.event(&event, events)?;
        }
        fed.map_err(|too_large| StreamFailure::Malformed(too_large.to_string()))
    }

    /// Takes an answer that came in one piece, as from servers that cannot stream; or in lines, as
    /// from servers that know no server-sent events.
    pub(super) fn whole(
        &mut self,
        body: &[u8],
        events: &mut Vec<ModelEvent>,
    ) -> Result<(), StreamFailure> {
        let data = cut_characters::text_of(body.to_vec());
        match json_text::read(&data) {
            Ok(payload) => self.payload("", payload, data.len(), events)?,
            Err(error) if !data.trim().contains('\n') => self.skip(&error, &data)?,
            Err(_) => {
                for line in data.lines() {
                    let data = line.to_owned();
                    self.event(&SseEvent { name: String::new(), data }, events)?;
                }
            }
        }
        self.decoder.done();
        Ok(())
    }

    fn event(
        &mut self,
        event: &SseEvent,
        events: &mut Vec<ModelEvent>,
    ) -> Result<(), StreamFailure> {
        let data = event.data.trim();
        if data.is_empty() || self.progress() == Progress::Over {
            return Ok(());
        }
        if data == "[DONE]" {
            self.decoder.done();
            return Ok(());
        }
        match json_text::read(data) {
            Ok(payload) => {
                (self.unreadable.in_a_row, self.unreadable.newest) = (0, None);
                self.payload(&event.name, payload, data.len(), events)
            }
            Err(error) => self.skip(&error, data),
        }
    }

    fn payload(
        &mut self,
        name: &str,
        payload: Value,
        size: usize,
        events: &mut Vec<ModelEvent>,
    ) -> Result<(), StreamFailure> {
        let mut said = Vec::new();
        let taken = self.decoder.event(name, &payload, &mut said);
        self.said_something |= !said.is_empty();
        for event in said {
            self.joiner.join(event, events);
        }
        if self.first.is_none() && size <= LARGEST_FIRST {
            self.first = Some(payload);
        }
        taken
    }

    fn skip(&mut self, error: &serde_json::Error, data: &str) -> Result<(), StreamFailure> {
        let shown = foreign_text::cut(data, 1000);
        // Of a text a piece may be missing, but not of what is carried out.
        if self.api.call_marks.iter().any(|mark| data.contains(mark)) {
            let what = format!("a piece of a tool call is no JSON ({error}): {shown}");
            return Err(StreamFailure::Malformed(what));
        }
        let what = format!("an event is no JSON ({error}): {shown}");
        self.unreadable.count += 1;
        self.unreadable.in_a_row += 1;
        if self.unreadable.in_a_row > MOST_UNREADABLE {
            return Err(StreamFailure::Malformed(what));
        }
        self.unreadable.newest = Some(what);
        Ok(())
    }

    pub(super) fn progress(&self) -> Progress {
        self.decoder.progress()
    }

    /// How many events were no JSON.
    pub(super) fn unreadable(&self) -> u32 {
        self.unreadable.count
    }

    /// Takes the end of the bytes.
    pub(super) fn finish(
        mut self,
        events: &mut Vec<ModelEvent>,
    ) -> Result<ModelEnd, StreamFailure> {
        let ended = self.last_event(events);
        self.joiner.finish(events);
        ended?;
        self.decoder.end().map_err(|failure| match failure {
            StreamFailure::Truncated => self.why_nothing_more(),
            failure => failure,
        })
    }

    fn last_event(&mut self, events: &mut Vec<ModelEvent>) -> Result<(), StreamFailure> {
        let newest = self.unreadable.newest.take();
        let Some(last) = self.sse.finish() else {
            self.unreadable.newest = newest;
            return Ok(());
        };
        let taken = self.event(&last, events);
        // An event that was cut off is no broken server but a cut connection.
        self.unreadable.newest = None;
        match taken {
            Err(StreamFailure::Malformed(_)) => Ok(()),
            taken => taken,
        }
    }

    /// What a stream that ends too early has said instead of an answer.
    fn why_nothing_more(self) -> StreamFailure {
        if let Some(what) = self.unreadable.newest {
            return StreamFailure::Malformed(what);
        }
        let first = self.first.filter(|_| !self.said_something);
        let Some(first) = first else { return StreamFailure::Truncated };
        match shape(&first) {
            Some(Shape::Spoken(name)) if name == self.api.name => StreamFailure::Truncated,
            Some(shape) => StreamFailure::OtherApi(shape),
            None => Reported::from_json(&first)
                .map_or(StreamFailure::Truncated, StreamFailure::Reported),
        }
    }
}
