//! What some servers send along with an answer and want back unchanged.
//!
//! Owns: OpenRouter's `reasoning_details` of an answer and Gemini's `extra_content` of a call: put
//! together from a stream, kept as the signature of a thinking block of its own, and written into
//! the next request. Gemini 3 refuses a conversation without them; others think everything afresh.
//! Pure. Never: looks into what was sent.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::model::failure::StreamFailure;

/// The proofs of one answer.
#[derive(Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Proofs {
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    reasoning_details: Vec<Map<String, Value>>,
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

    pub(super) fn signature(&self) -> Option<String> {
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
    pub(super) fn write(self, message: &mut Value) {
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

    fn written(proofs: &Proofs, mut message: Value) -> Value {
        Proofs::of_signature(&proofs.signature().unwrap()).unwrap().write(&mut message);
        message
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
        assert_eq!(written(&proofs, json!({"content": "x"})), expected);
    }

    #[test]
    fn what_came_with_a_call_goes_back_with_it() {
        let mut proofs = Proofs::default();
        let extra = json!({"google": {"thought_signature": "s"}});
        proofs.add_extra(1, &extra).unwrap();
        proofs.add_extra(5, &extra).unwrap();
        let expected = json!({"tool_calls": [{"id": "a"}, {"id": "b", "extra_content": extra}]});
        assert_eq!(written(&proofs, json!({"tool_calls": [{"id": "a"}, {"id": "b"}]})), expected);
    }

    #[test]
    fn other_signatures_are_none_of_these() {
        assert_eq!(Proofs::default().signature(), None);
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
