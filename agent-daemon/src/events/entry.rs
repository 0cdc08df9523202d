//! One event as JSON, made once for all its readers.
//!
//! Owns: where in that JSON the number and the delta are, so that a frame that names the number
//! before it (W4.4), or that joins neighbouring deltas, is put together from pieces of text.
//! Never: serialises an event a second time.

use std::ops::Range;

use agent_core::{Event, EventKind};
use agent_protocol::{EVENT_TYPES, RpcError, codec::one_line};

/// What an entry costs besides its text, roughly.
const OVERHEAD: usize = 96;

/// One event, ready to be sent.
#[derive(Debug)]
pub(crate) struct Entry {
    /// The event's number.
    pub(crate) seq: u64,
    /// What came before is nobody's any more: the transcript was emptied.
    pub(crate) begins_anew: bool,
    bit: u32,
    /// `{"sessionId":"main","seq":42,"runId":1,"type":…}`, on one line.
    json: Box<str>,
    // Invariant: an offset into `json`, just behind the comma that follows `seq`.
    rest: usize,
    // Invariant: an offset into `json` of the text between the quotes of `delta`.
    delta: Option<Range<usize>>,
}

impl Entry {
    /// `session` is the session's id as JSON text.
    pub(crate) fn new(session: &str, event: &Event) -> Self {
        let event_json = json(event);
        let head = format!(r#"{{"seq":{},"#, event.seq);
        let rest = event_json.strip_prefix(&head).expect("`seq` is an event's first field");
        let head = format!(r#"{{"sessionId":{session},"seq":{},"#, event.seq);
        let delta = has_delta(&event.kind).then(|| delta_in(rest)).flatten();
        let delta = delta.map(|range| range.start + head.len()..range.end + head.len());
        Entry {
            seq: event.seq,
            begins_anew: matches!(event.kind, EventKind::Reset { .. }),
            bit: bit_of(&event.kind),
            rest: head.len(),
            json: (head + rest).into(),
            delta,
        }
    }

    /// What keeping it costs, in bytes.
    pub(crate) fn weight(&self) -> usize {
        self.json.len() + OVERHEAD
    }

    /// Whether `next` goes on where this one ends: the same block of the same message.
    fn joins(&self, next: &Entry) -> bool {
        let (Some(mine), Some(theirs)) = (&self.delta, &next.delta) else { return false };
        next.seq == self.seq + 1
            && self.bit == next.bit
            && self.json[self.rest..mine.start] == next.json[next.rest..theirs.start]
            && self.json[mine.end..] == next.json[theirs.end..]
    }
}

/// Writes a frame for the first entries of a list, and answers how many it took: one, or, when
/// `merge` is set, all neighbouring deltas of one block. `previous` is the number of the frame before.
pub(crate) fn write_frame<E: AsRef<Entry>>(
    entries: &[E],
    merge: bool,
    previous: u64,
    out: &mut String,
) -> usize {
    let joined = entries.windows(2).take_while(|pair| pair[0].as_ref().joins(pair[1].as_ref()));
    let taken = 1 + if merge { joined.count() } else { 0 };
    let last = entries[taken - 1].as_ref();
    out.push_str(&last.json[..last.rest]);
    if last.seq != previous + 1 {
        out.push_str(&format!(r#""prevSeq":{previous},"#));
    }
    match &last.delta {
        Some(delta) if taken > 1 => {
            out.push_str(&last.json[last.rest..delta.start]);
            for entry in entries[..taken].iter().map(AsRef::as_ref) {
                out.push_str(&entry.json[entry.delta.clone().expect("only deltas join")]);
            }
            out.push_str(&last.json[delta.end..]);
        }
        _ => out.push_str(&last.json[last.rest..]),
    }
    taken
}

fn json<T: serde::Serialize + ?Sized>(value: &T) -> String {
    one_line(serde_json::to_string(value).expect("all types in an event have a JSON form"))
}

/// Which types of events a subscription wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Filter {
    bits: u32,
}

impl Filter {
    /// What is in `include`, or everything without one, but for what is in `exclude`.
    ///
    /// # Errors
    /// A name that is no event type. It would be a filter that silently lets nothing through.
    pub(crate) fn new(
        include: Option<&[String]>,
        exclude: Option<&[String]>,
    ) -> Result<Filter, RpcError> {
        let included = include.map_or(Ok(u32::MAX), |names| bits_of("include", names))?;
        let excluded = exclude.map_or(Ok(0), |names| bits_of("exclude", names))?;
        Ok(Filter { bits: included & !excluded })
    }

    pub(crate) fn admits(self, entry: &Entry) -> bool {
        self.bits & entry.bit != 0
    }
}

fn bits_of(field: &str, names: &[String]) -> Result<u32, RpcError> {
    names.iter().try_fold(0, |bits, name| {
        let index = EVENT_TYPES.iter().position(|known| known == name);
        let index = index.ok_or_else(|| {
            let types = EVENT_TYPES.join(", ");
            RpcError::invalid_param(field, format!("{name:?} is no event type; they are {types}"))
        })?;
        Ok(bits | 1 << index)
    })
}

fn has_delta(kind: &EventKind) -> bool {
    matches!(
        kind,
        EventKind::TextDelta { .. }
            | EventKind::ThinkingDelta { .. }
            | EventKind::ToolCallDelta { .. }
    )
}

/// Where the text of an event's last field is. Inside a string the quotes would be escaped, so
/// that only the field itself can be found.
fn delta_in(json: &str) -> Option<Range<usize>> {
    const FIELD: &str = r#","delta":""#;
    let start = json.find(FIELD)? + FIELD.len();
    Some(start..json.strip_suffix(r#""}"#)?.len())
}

/// A bit for each type, in the order of [`EVENT_TYPES`].
fn bit_of(kind: &EventKind) -> u32 {
    let index = match kind {
        EventKind::RunStart { .. } => 0,
        EventKind::TurnStart { .. } => 1,
        EventKind::MessageStart { .. } => 2,
        EventKind::TextDelta { .. } => 3,
        EventKind::ThinkingDelta { .. } => 4,
        EventKind::ToolCallDelta { .. } => 5,
        EventKind::MessageEnd { .. } => 6,
        EventKind::ToolStart { .. } => 7,
        EventKind::ToolUpdate { .. } => 8,
        EventKind::ToolEnd { .. } => 9,
        EventKind::ToolSkipped { .. } => 10,
        EventKind::QueueUpdate { .. } => 11,
        EventKind::Retry { .. } => 12,
        EventKind::TurnEnd { .. } => 13,
        EventKind::Diagnostic { .. } => 14,
        EventKind::ConfigChanged { .. } => 15,
        EventKind::Reset { .. } => 16,
        EventKind::RunEnd { .. } => 17,
    };
    1 << index
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::sync::Arc;

    use agent_core::RunId;
    use serde_json::Value;

    use super::*;

    fn text(seq: u64, content_index: u32, delta: &str) -> Event {
        let kind = EventKind::TextDelta { content_index, delta: delta.to_owned() };
        Event { seq, run_id: Some(RunId(1)), kind }
    }

    fn call(seq: u64, id: &str, delta: &str) -> Event {
        let kind = EventKind::ToolCallDelta {
            content_index: 0,
            tool_call_id: id.to_owned(),
            tool_name: "bash".to_owned(),
            delta: delta.to_owned(),
        };
        Event { seq, run_id: Some(RunId(1)), kind }
    }

    fn frames(events: &[Event], merge: bool, mut previous: u64) -> Vec<String> {
        let entries: Vec<Arc<Entry>> =
            events.iter().map(|event| Arc::new(Entry::new("\"main\"", event))).collect();
        let mut rest = &entries[..];
        let mut frames = Vec::new();
        while !rest.is_empty() {
            let mut out = String::new();
            let taken = write_frame(rest, merge, previous, &mut out);
            previous = rest[taken - 1].seq;
            rest = &rest[taken..];
            frames.push(out);
        }
        frames
    }

    #[test]
    fn a_frame_is_the_event_with_its_session() {
        assert_eq!(
            frames(&[text(42, 0, "a\"b\u{2028}")], true, 41),
            [
                r#"{"sessionId":"main","seq":42,"runId":1,"type":"text_delta","contentIndex":0,"delta":"a\"b\u2028"}"#
            ],
        );
    }

    #[test]
    fn a_gap_names_the_number_before_it() {
        assert_eq!(
            frames(&[text(42, 0, "x")], false, 40),
            [
                r#"{"sessionId":"main","seq":42,"prevSeq":40,"runId":1,"type":"text_delta","contentIndex":0,"delta":"x"}"#
            ],
        );
    }

    #[test]
    fn neighbouring_deltas_of_one_block_join() {
        let events = [
            text(5, 0, "a\n"),
            text(6, 0, ""),
            text(7, 0, "\"é"),
            text(8, 1, "b"),
            call(9, "c1", "{"),
            call(10, "c1", "}"),
            call(11, "c,\"delta\":\"", "{"),
            text(13, 0, "x"),
        ];
        let story: Vec<String> = frames(&events, true, 4)
            .iter()
            .map(|frame| {
                let frame: Value = serde_json::from_str(frame).unwrap();
                let previous = frame.get("prevSeq").map_or("-".to_owned(), Value::to_string);
                format!("{previous}<{} {}", frame["seq"], frame["delta"])
            })
            .collect();
        let expected =
            [r#"4<7 "a\n\"é""#, r#"-<8 "b""#, r#"8<10 "{}""#, r#"-<11 "{""#, r#"11<13 "x""#];
        assert_eq!(story, expected);
    }

    #[test]
    fn the_filter_s_names_are_the_events_own() {
        let kinds = [
            r#"{"type":"run_start","messages":[]}"#,
            r#"{"type":"turn_start","turn":1}"#,
            r#"{"type":"message_start","role":"assistant"}"#,
            r#"{"type":"text_delta","contentIndex":0,"delta":""}"#,
            r#"{"type":"thinking_delta","contentIndex":0,"delta":""}"#,
            r#"{"type":"tool_call_delta","contentIndex":0,"toolCallId":"","toolName":"","delta":""}"#,
            r#"{"type":"message_end","source":"model","message":{"role":"user","id":"1","content":[],"timestamp":0}}"#,
            r#"{"type":"tool_start","toolCallId":"","toolName":"","args":{}}"#,
            r#"{"type":"tool_update","toolCallId":"","partial":{"content":[]}}"#,
            r#"{"type":"tool_end","toolCallId":"","result":{"content":[]},"isError":false}"#,
            r#"{"type":"tool_skipped","toolCallId":"","reason":""}"#,
            r#"{"type":"queue_update","queue":"steering"}"#,
            r#"{"type":"retry","attempt":1,"delayMs":1,"error":""}"#,
            r#"{"type":"turn_end","turn":1,"stopReason":"stop","usage":{}}"#,
            r#"{"type":"diagnostic","message":""}"#,
            r#"{"type":"config_changed"}"#,
            r#"{"type":"reset"}"#,
            r#"{"type":"run_end","reason":"stop","undelivered":{"steering":[],"followUp":[]},"usage":{}}"#,
        ];
        for (name, kind) in EVENT_TYPES.iter().zip(kinds) {
            let kind: EventKind = serde_json::from_str(kind).unwrap();
            let entry = Entry::new("\"main\"", &Event { seq: 1, run_id: None, kind });
            assert!(entry.json.contains(&format!(r#""type":"{name}""#)), "{}", entry.json);
            let names = [(*name).to_owned()];
            assert!(Filter::new(Some(&names), None).unwrap().admits(&entry));
            assert!(!Filter::new(None, Some(&names)).unwrap().admits(&entry));
            assert!(!Filter::new(Some(&names), Some(&names)).unwrap().admits(&entry));
        }
        assert!(Filter::new(Some(&["text".to_owned()]), None).is_err());
    }
}
