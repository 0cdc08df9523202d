//! Putting together tool calls that arrive in pieces.
//!
//! Owns: which call a piece belongs to. OpenAI tells by `index`; other servers leave it out, use
//! the same one for every call, repeat the name in each piece, or make up an id for each piece.
//! Pure. Never: parses the arguments, but to tell where one call's may have ended.

use agent_core::ModelEvent;
use serde_json::Value;

use crate::model::{stream_failure::StreamFailure, wire_format::MOST_CALLS};

/// The calls of one answer so far.
#[derive(Debug, Default)]
pub(super) struct StreamedCalls {
    calls: Vec<StreamedCall>,
    /// The size of all arguments.
    size: usize,
}

#[derive(Debug, Default)]
struct StreamedCall {
    index: Option<i64>,
    id: String,
    name: String,
    /// The block's number in the answer, once the call has a name.
    block: Option<u32>,
    arguments: String,
}

/// One entry of `tool_calls`.
struct CallPiece<'a> {
    index: Option<i64>,
    id: &'a str,
    name: &'a str,
    arguments: String,
}

/// Arguments above this are a runaway.
const LARGEST_ARGUMENTS: usize = 32 * 1024 * 1024;

impl StreamedCalls {
    pub(super) fn is_empty(&self) -> bool {
        self.calls.is_empty()
    }

    /// The ids as they came, by place.
    pub(super) fn ids(&self) -> Vec<&str> {
        self.calls.iter().map(|call| call.id.as_str()).collect()
    }

    /// Takes one entry of `tool_calls`; `next_block` numbers a block that begins. Tells the place
    /// of the call that it belongs to.
    pub(super) fn piece(
        &mut self,
        entry: &Value,
        mut next_block: impl FnMut() -> u32,
        events: &mut Vec<ModelEvent>,
    ) -> Result<usize, StreamFailure> {
        let piece = CallPiece::new(entry);
        self.size += piece.arguments.len();
        if self.size > LARGEST_ARGUMENTS {
            return Err(malformed(format!("arguments of more than {LARGEST_ARGUMENTS} bytes")));
        }
        let slot = match self.find(&piece) {
            Some(slot) => slot,
            None if self.calls.len() == MOST_CALLS => {
                return Err(malformed(format!("more than {MOST_CALLS} tool calls in one answer")));
            }
            None => {
                self.calls.push(StreamedCall { index: piece.index, ..StreamedCall::default() });
                self.calls.len() - 1
            }
        };
        let call = &mut self.calls[slot];
        if call.block.is_some() {
            call.arguments.push_str(&piece.arguments);
            if !piece.arguments.is_empty() {
                events.push(call.event(piece.arguments));
            }
            return Ok(slot);
        }
        call.arguments.push_str(&piece.arguments);
        if call.id.is_empty() {
            call.id = piece.id.to_owned();
        }
        // Until it has a name nobody can be told of the call.
        if !piece.name.is_empty() {
            call.name = piece.name.to_owned();
            call.block = Some(next_block());
            events.push(call.event(call.arguments.clone()));
        }
        Ok(slot)
    }

    /// Where the piece belongs; none if it begins a call.
    fn find(&self, piece: &CallPiece<'_>) -> Option<usize> {
        let by_index = || self.calls.iter().rposition(|call| call.index == piece.index);
        match (piece.index, piece.id) {
            (Some(_), "") => by_index().filter(|slot| !self.begins_another(*slot, piece)),
            (_, "") if piece.name.is_empty() => self.calls.len().checked_sub(1),
            (None, "") => None,
            (index, id) => self
                .calls
                .iter()
                .rposition(|call| call.id == id && (index.is_none() || call.index == index))
                // A new id on a used index is another call, if it has a name. Without one it is
                // the same call, on a server that makes up an id for every piece.
                .or_else(|| by_index().filter(|slot| self.continues(*slot, piece))),
        }
    }

    fn continues(&self, slot: usize, piece: &CallPiece<'_>) -> bool {
        piece.name.is_empty() || self.calls[slot].name.is_empty()
    }

    /// A piece with a name and no id, on a call that is complete already: a server that numbers
    /// every call 0. (Others repeat the name in every piece of one call.)
    fn begins_another(&self, slot: usize, piece: &CallPiece<'_>) -> bool {
        let call = &self.calls[slot];
        !piece.name.is_empty()
            && !call.name.is_empty()
            && (call.name != piece.name
                || (!piece.arguments.is_empty() && is_complete(&call.arguments)))
    }

    /// Checks that every call can be told of.
    pub(super) fn check(&self) -> Result<(), StreamFailure> {
        if self.calls.iter().any(|call| call.block.is_none()) {
            return Err(malformed("a tool call without a name".to_owned()));
        }
        Ok(())
    }
}

impl StreamedCall {
    fn event(&self, delta: String) -> ModelEvent {
        ModelEvent::ToolCall {
            index: self.block.unwrap_or_default(),
            id: self.id.clone(),
            name: self.name.clone(),
            delta,
        }
    }
}

impl<'a> CallPiece<'a> {
    fn new(entry: &'a Value) -> Self {
        let function = entry.get("function").unwrap_or(entry);
        let text = |value: &'a Value, key: &str| value.get(key).and_then(Value::as_str);
        let arguments = match function.get("arguments") {
            Some(Value::String(arguments)) => arguments.clone(),
            None | Some(Value::Null) => String::new(),
            Some(object) => object.to_string(),
        };
        CallPiece {
            index: entry.get("index").and_then(Value::as_i64),
            id: text(entry, "id").unwrap_or_default(),
            name: text(function, "name").unwrap_or_default(),
            arguments,
        }
    }
}

/// Looks at the end first: the whole of a long text need not be read again for every piece.
fn is_complete(arguments: &str) -> bool {
    arguments.trim_end().ends_with('}')
        && serde_json::from_str::<serde::de::IgnoredAny>(arguments).is_ok()
}

fn malformed(what: String) -> StreamFailure {
    StreamFailure::Malformed(what)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// The calls that come of some pieces: `block id name arguments`, then the failure.
    fn story(pieces: &[Value]) -> String {
        let mut calls = StreamedCalls::default();
        let mut events = Vec::new();
        let mut blocks = 0;
        let mut outcome = Ok(());
        for piece in pieces {
            let next = || {
                blocks += 1;
                blocks - 1
            };
            outcome = outcome.and_then(|()| calls.piece(piece, next, &mut events).map(drop));
        }
        let mut rows: Vec<(u32, String)> = Vec::new();
        for event in events {
            let ModelEvent::ToolCall { index, id, name, delta } = event else { unreachable!() };
            match rows.iter_mut().find(|row| row.0 == index) {
                Some(row) => row.1.push_str(&delta),
                None => rows.push((index, format!("{id} {name} {delta}"))),
            }
        }
        let rows: Vec<_> = rows.into_iter().map(|(block, row)| format!("{block} {row}")).collect();
        match outcome.and_then(|()| calls.check()) {
            Ok(()) => rows.join("; "),
            Err(failure) => format!("{}; {failure:?}", rows.join("; ")),
        }
    }

    fn piece(index: Option<i64>, id: &str, name: &str, arguments: &str) -> Value {
        let mut piece = json!({ "function": { "arguments": arguments } });
        if let Some(index) = index {
            piece["index"] = index.into();
        }
        if !id.is_empty() {
            piece["id"] = id.into();
        }
        if !name.is_empty() {
            piece["function"]["name"] = name.into();
        }
        piece
    }

    #[test]
    fn pieces_find_their_call() {
        let (zero, one) = (Some(0), Some(1));
        let cases: &[(&str, &[Value], &str)] = &[
            (
                "two interleaved",
                &[
                    piece(zero, "a", "ls", ""),
                    piece(one, "b", "rm", "{"),
                    piece(zero, "", "", "{\"x\""),
                    piece(one, "", "", "}"),
                    piece(zero, "", "", ":1}"),
                ],
                "0 a ls {\"x\":1}; 1 b rm {}",
            ),
            (
                "no index, whole calls",
                &[piece(None, "a", "ls", "{}"), piece(None, "b", "ls", "{}")],
                "0 a ls {}; 1 b ls {}",
            ),
            (
                "no index, the id in each piece",
                &[
                    piece(None, "a", "ls", "{"),
                    piece(None, "b", "rm", "{"),
                    piece(None, "a", "", "}"),
                    piece(None, "b", "", "}"),
                ],
                "0 a ls {}; 1 b rm {}",
            ),
            (
                "neither index nor id",
                &[
                    piece(None, "", "ls", "{"),
                    piece(None, "", "", "}"),
                    piece(None, "", "rm", "{}"),
                ],
                "0  ls {}; 1  rm {}",
            ),
            (
                "the first has index 1",
                &[piece(one, "a", "ls", "{"), piece(one, "", "", "}")],
                "0 a ls {}",
            ),
            (
                "both have index 0",
                &[piece(zero, "a", "ls", "{}"), piece(zero, "b", "rm", "{}")],
                "0 a ls {}; 1 b rm {}",
            ),
            (
                "both have index 0, no ids, other names",
                &[piece(zero, "", "ls", "{}"), piece(zero, "", "rm", "{}")],
                "0  ls {}; 1  rm {}",
            ),
            (
                "both have index 0, no ids, one name",
                &[piece(zero, "", "ls", "{}"), piece(zero, "", "ls", "{\"a\":1}")],
                "0  ls {}; 1  ls {\"a\":1}",
            ),
            (
                "the name in each piece",
                &[
                    piece(zero, "a", "ls", "{"),
                    piece(zero, "a", "ls", "}"),
                    piece(zero, "", "ls", ""),
                ],
                "0 a ls {}",
            ),
            (
                "a new id in each piece",
                &[piece(zero, "a", "ls", "{"), piece(zero, "b", "", "}")],
                "0 a ls {}",
            ),
            (
                "the name late",
                &[
                    piece(zero, "a", "", ""),
                    piece(zero, "", "", "{"),
                    piece(zero, "", "ls", ""),
                    piece(zero, "", "", "}"),
                ],
                "0 a ls {}",
            ),
            ("no arguments", &[piece(zero, "a", "ls", "")], "0 a ls "),
            (
                "arguments as an object",
                &[json!({ "id": "a", "function": { "name": "ls", "arguments": { "x": 1 } } })],
                "0 a ls {\"x\":1}",
            ),
            (
                "nulls",
                &[
                    piece(zero, "a", "ls", "{"),
                    json!({ "index": 0, "id": null, "type": null, "function": { "name": null, "arguments": "}" } }),
                    json!({ "index": 0, "id": "", "function": { "name": "", "arguments": null } }),
                ],
                "0 a ls {}",
            ),
            (
                "no name at all",
                &[piece(zero, "a", "", "{}")],
                "; Malformed(\"a tool call without a name\")",
            ),
        ];
        for (case, pieces, expected) in cases {
            assert_eq!(story(pieces), *expected, "{case}");
        }
    }

    #[test]
    fn a_runaway_is_stopped() {
        let pieces: Vec<_> =
            (0..=MOST_CALLS).map(|n| piece(None, &format!("c{n}"), "ls", "{}")).collect();
        assert!(story(&pieces).ends_with("Malformed(\"more than 128 tool calls in one answer\")"));
    }
}
