//! What some servers send along with an answer and want back unchanged.
//!
//! Owns: OpenRouter's `reasoning_details` of an answer and Gemini's `extra_content` of a call: put
//! together from a stream, kept as the signature of a thinking block of its own, and written into
//! the next request. Gemini 3 refuses a conversation without them; others think everything afresh.
//! Pure. Never: looks into what was sent.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::model::stream_failure::StreamFailure;

/// The proofs of one answer.
#[derive(Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Proofs {
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    reasoning_details: Vec<Map<String, Value>>,
    /// The details that belong to a call, which they name by its id, and its place: the id may be
    /// another one in the request.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    details_of_calls: BTreeMap<usize, usize>,
    /// By the call's place among the answer's calls.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    extra_content: BTreeMap<usize, Value>,
    /// The size of all that was taken.
    #[serde(skip)]
    size: usize,
}

/// Proofs above this are a runaway.
const LARGEST: usize = 32 * 1024 * 1024;

/// The parts of a detail that come in pieces.
const GROWING: [&str; 3] = ["text", "summary", "signature"];

impl Proofs {
    /// The proofs that a signature stands for, if it is one of these.
    pub(super) fn of_signature(signature: &str) -> Option<Self> {
        serde_json::from_str(signature).ok()
    }

    /// What all of them are kept as, with the ids of the answer's calls; none if there are none.
    pub(super) fn signature(&mut self, call_ids: &[&str]) -> Option<String> {
        let place = |detail: &Map<String, Value>| {
            let id = detail.get("id")?.as_str()?;
            call_ids.iter().position(|call| *call == id)
        };
        let places = self.reasoning_details.iter().enumerate();
        self.details_of_calls =
            places.filter_map(|(number, detail)| Some((number, place(detail)?))).collect();
        let is_empty = self.reasoning_details.is_empty() && self.extra_content.is_empty();
        (!is_empty).then(|| serde_json::json!(self).to_string())
    }

    /// Takes what one event says about the answer's reasoning.
    pub(super) fn add_details(&mut self, details: &[Value]) -> Result<(), StreamFailure> {
        for detail in details.iter().filter_map(Value::as_object) {
            self.grow(details_size(detail))?;
            match self.reasoning_details.last_mut().filter(|last| continues(last, detail)) {
                Some(last) => append(last, detail),
                None => self.reasoning_details.push(detail.clone()),
            }
        }
        Ok(())
    }

    /// Takes what came with a call.
    pub(super) fn add_extra(&mut self, call: usize, extra: &Value) -> Result<(), StreamFailure> {
        self.grow(extra.to_string().len())?;
        self.extra_content.insert(call, extra.clone());
        Ok(())
    }

    fn grow(&mut self, more: usize) -> Result<(), StreamFailure> {
        self.size += more;
        if self.size > LARGEST {
            let what = format!("proofs of reasoning of more than {LARGEST} bytes");
            return Err(StreamFailure::Malformed(what));
        }
        Ok(())
    }

    /// Puts everything where it came from.
    pub(super) fn write(mut self, message: &mut Value) {
        for (number, place) in &self.details_of_calls {
            let id = message.pointer(&format!("/tool_calls/{place}/id"));
            if let (Some(detail), Some(id)) = (self.reasoning_details.get_mut(*number), id) {
                detail.insert("id".to_owned(), id.clone());
            }
        }
        if !self.reasoning_details.is_empty() {
            message["reasoning_details"] = serde_json::json!(self.reasoning_details);
        }
        let calls = message.get_mut("tool_calls").and_then(Value::as_array_mut);
        for (place, call) in calls.into_iter().flatten().enumerate() {
            if let Some(extra) = self.extra_content.get(&place) {
                call["extra_content"] = extra.clone();
            }
        }
    }
}

fn details_size(detail: &Map<String, Value>) -> usize {
    detail.values().map(|value| value.as_str().map_or(8, str::len)).sum()
}

/// Whether a detail is the next piece of the last one. Sealed ones come whole.
fn continues(last: &Map<String, Value>, detail: &Map<String, Value>) -> bool {
    let same = |key: &str| last.get(key) == detail.get(key);
    let no_other = |key: &str| match (last.get(key), detail.get(key)) {
        (Some(Value::String(last)), Some(Value::String(new))) => last == new,
        _ => true,
    };
    same("type") && same("index") && no_other("id") && !detail.contains_key("data")
}

fn append(last: &mut Map<String, Value>, detail: &Map<String, Value>) {
    for (key, value) in detail.iter().filter(|(_, value)| !value.is_null()) {
        match (last.get_mut(key), value) {
            (Some(Value::String(last)), Value::String(more)) if GROWING.contains(&key.as_str()) => {
                last.push_str(more);
            }
            _ => {
                last.insert(key.clone(), value.clone());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use serde_json::json;

    use super::*;

    fn written(proofs: &mut Proofs, mut message: Value) -> Value {
        let signature = proofs.signature(&["a", "b"]).unwrap();
        Proofs::of_signature(&signature).unwrap().write(&mut message);
        message
    }

    #[test]
    fn a_detail_follows_its_call_to_another_id() {
        let mut proofs = Proofs::default();
        let sealed = |id: &str| json!({"type": "reasoning.encrypted", "data": "x", "id": id});
        proofs.add_details(&[sealed("none"), sealed("b")]).unwrap();
        let written = written(&mut proofs, json!({"tool_calls": [{"id": "a_2"}, {"id": "b_2"}]}));
        assert_eq!(written["reasoning_details"], json!([sealed("none"), sealed("b_2")]));
    }

    #[test]
    fn details_are_put_together_and_come_back_in_order() {
        let mut proofs = Proofs::default();
        for details in [
            json!([{"type":"reasoning.text","text":"h","signature":null,"index":0,"format":"f"}]),
            json!([{"type":"reasoning.text","text":"m","index":0}, "no object"]),
            json!([{"type":"reasoning.text","signature":"s","index":0}]),
            json!([{"type":"reasoning.text","text":"so","index":1}]),
            json!([{"type":"reasoning.encrypted","data":"a","id":"1","index":2}]),
            json!([{"type":"reasoning.encrypted","data":"b","id":"2","index":2}]),
        ] {
            proofs.add_details(details.as_array().unwrap()).unwrap();
        }
        let expected = json!({"content": "x", "reasoning_details": [
            {"type":"reasoning.text","text":"hm","signature":"s","index":0,"format":"f"},
            {"type":"reasoning.text","text":"so","index":1},
            {"type":"reasoning.encrypted","data":"a","id":"1","index":2},
            {"type":"reasoning.encrypted","data":"b","id":"2","index":2},
        ]});
        assert_eq!(written(&mut proofs, json!({"content": "x"})), expected);
    }

    #[test]
    fn what_came_with_a_call_goes_back_with_it() {
        let mut proofs = Proofs::default();
        let extra = json!({"google": {"thought_signature": "s"}});
        proofs.add_extra(1, &extra).unwrap();
        proofs.add_extra(5, &extra).unwrap();
        let expected = json!({"tool_calls": [{"id": "a"}, {"id": "b", "extra_content": extra}]});
        assert_eq!(
            written(&mut proofs, json!({"tool_calls": [{"id": "a"}, {"id": "b"}]})),
            expected
        );
    }

    #[test]
    fn other_signatures_are_none_of_these() {
        assert_eq!(Proofs::default().signature(&[]), None);
        for signature in ["", "reasoning", "{\"type\":\"reasoning\"}"] {
            assert_eq!(Proofs::of_signature(signature), None, "{signature}");
        }
    }

    #[test]
    fn a_runaway_is_stopped() {
        let mut proofs = Proofs::default();
        let detail = [json!({"type": "reasoning.text", "text": "x".repeat(LARGEST / 2)})];
        proofs.add_details(&detail).unwrap();
        assert!(matches!(proofs.add_details(&detail), Err(StreamFailure::Malformed(_))));
    }
}
