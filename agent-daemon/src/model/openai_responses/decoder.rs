//! The stream of a response: events in, model events out. Pure.

use agent_core::{ModelEnd, ModelEvent, StopReason, Usage};
use serde_json::Value;

use super::goes_back;
use crate::model::{
    reported::Reported,
    stream_failure::StreamFailure,
    wire_format::{Decoder, MOST_CALLS, Progress},
};

/// The state of one answer.
#[derive(Debug, Default)]
pub(super) struct ResponsesDecoder {
    items: Vec<Item>,
    outcome: Option<Outcome>,
    usage: Usage,
}

#[derive(Debug)]
enum Outcome {
    Completed,
    CutByLimit,
    Withheld,
}

/// One item of the answer; its place in the list is its block's number.
#[derive(Debug)]
struct Item {
    number: Option<u64>,
    id: String,
    kind: Kind,
    /// Deltas have come, so that the whole at the item's end says nothing new.
    streamed: bool,
}

#[derive(Debug)]
enum Kind {
    Message,
    Reasoning,
    Call {
        id: String,
        name: String,
    },
    /// Something that is not for us, such as a search that the provider made by itself.
    Other,
}

impl Decoder for ResponsesDecoder {
    fn event(
        &mut self,
        name: &str,
        payload: &Value,
        events: &mut Vec<ModelEvent>,
    ) -> Result<(), StreamFailure> {
        match payload["type"].as_str().unwrap_or_default() {
            "response.output_item.added" => {
                self.item(payload, events)?;
            }
            "response.output_text.delta"
            | "response.refusal.delta"
            | "response.reasoning_summary_text.delta"
            | "response.reasoning_text.delta"
            | "response.function_call_arguments.delta" => {
                let delta = payload["delta"].as_str().unwrap_or_default();
                return self.grow(payload, delta, events);
            }
            // Parts of a summary are paragraphs.
            "response.reasoning_summary_part.added" => self.part_begins(payload, events),
            "response.output_item.done" => return self.item_ends(payload, events),
            "response.completed" => self.ends(&payload["response"], Outcome::Completed),
            "response.incomplete" => self.incomplete(&payload["response"]),
            "response.failed" => return Err(reported(&payload["response"])),
            kind if kind == "error" || name == "error" || payload["error"].is_object() => {
                return Err(reported(payload));
            }
            _ if payload["object"] == "response" => return self.whole(payload, events),
            // What repeats the deltas, and whatever may be invented yet.
            _ => {}
        }
        Ok(())
    }

    fn progress(&self) -> Progress {
        if self.outcome.is_some() { Progress::Over } else { Progress::Going }
    }

    fn end(&self) -> Result<ModelEnd, StreamFailure> {
        let has_calls = self.items.iter().any(|item| matches!(item.kind, Kind::Call { .. }));
        let stop_reason = match self.outcome {
            None => return Err(StreamFailure::Truncated),
            Some(Outcome::Withheld) => {
                let why = "its content filter stopped it".to_owned();
                return Err(StreamFailure::Withheld(why));
            }
            Some(Outcome::CutByLimit) => StopReason::Length,
            Some(Outcome::Completed) if has_calls => StopReason::ToolUse,
            Some(Outcome::Completed) => StopReason::Stop,
        };
        Ok(ModelEnd { stop_reason, usage: self.usage })
    }
}

impl ResponsesDecoder {
    /// The place of the item that an event speaks of: by its number, which not every server gives,
    /// else by its id, which some servers change between events.
    fn find(&self, payload: &Value) -> Option<usize> {
        let id = payload["item_id"].as_str().or_else(|| payload["item"]["id"].as_str());
        match payload["output_index"].as_u64() {
            Some(number) => self.items.iter().rposition(|item| item.number == Some(number)),
            None => self.items.iter().rposition(|item| Some(item.id.as_str()) == id),
        }
    }

    /// The same, and begins the item if it is new.
    fn item(
        &mut self,
        payload: &Value,
        events: &mut Vec<ModelEvent>,
    ) -> Result<usize, StreamFailure> {
        if let Some(place) = self.find(payload) {
            return Ok(place);
        }
        if self.items.len() == MOST_CALLS {
            let what = format!("more than {MOST_CALLS} items in one answer");
            return Err(StreamFailure::Malformed(what));
        }
        let item = &payload["item"];
        let text = |field: &str| item[field].as_str().unwrap_or_default().to_owned();
        let kind = match item["type"].as_str().unwrap_or_default() {
            "message" => Kind::Message,
            "reasoning" => Kind::Reasoning,
            "function_call" if item["name"].as_str().is_none_or(str::is_empty) => {
                return Err(StreamFailure::Malformed("a tool call without a name".to_owned()));
            }
            "function_call" => Kind::Call { id: text("call_id"), name: text("name") },
            _ => Kind::Other,
        };
        let place = self.items.len();
        let number = payload["output_index"].as_u64();
        self.items.push(Item { number, id: text("id"), kind, streamed: false });
        events.extend(self.call_event(place, String::new()));
        Ok(place)
    }

    fn call_event(&self, place: usize, delta: String) -> Option<ModelEvent> {
        match &self.items[place].kind {
            Kind::Call { id, name } => {
                let (id, name) = (id.clone(), name.clone());
                Some(ModelEvent::ToolCall { index: place as u32, id, name, delta })
            }
            _ => None,
        }
    }

    fn grow(
        &mut self,
        payload: &Value,
        delta: &str,
        events: &mut Vec<ModelEvent>,
    ) -> Result<(), StreamFailure> {
        let Some(place) = self.find(payload) else {
            let what = "a delta of an item that has not begun".to_owned();
            return Err(StreamFailure::Malformed(what));
        };
        self.add(place, delta, events);
        Ok(())
    }

    fn add(&mut self, place: usize, delta: &str, events: &mut Vec<ModelEvent>) {
        if delta.is_empty() {
            return;
        }
        self.items[place].streamed = true;
        let (index, delta) = (place as u32, delta.to_owned());
        match &self.items[place].kind {
            Kind::Message => events.push(ModelEvent::Text { index, delta }),
            Kind::Reasoning => events.push(ModelEvent::Thinking { index, delta }),
            Kind::Call { .. } => events.extend(self.call_event(place, delta)),
            Kind::Other => {}
        }
    }

    fn part_begins(&mut self, payload: &Value, events: &mut Vec<ModelEvent>) {
        if let Some(place) = self.find(payload).filter(|place| self.items[*place].streamed) {
            self.add(place, "\n\n", events);
        }
    }

    /// The item as a whole: what was not streamed, and the proof of a thought.
    fn item_ends(
        &mut self,
        payload: &Value,
        events: &mut Vec<ModelEvent>,
    ) -> Result<(), StreamFailure> {
        let place = self.item(payload, events)?;
        let item = &payload["item"];
        if !self.items[place].streamed {
            let whole = match &self.items[place].kind {
                Kind::Message => texts(&item["content"]).concat(),
                Kind::Reasoning => thought(item),
                Kind::Call { .. } => item["arguments"].as_str().unwrap_or_default().to_owned(),
                Kind::Other => String::new(),
            };
            self.add(place, &whole, events);
        }
        if goes_back(item) {
            let signature = item.to_string();
            events.push(ModelEvent::ThinkingSignature { index: place as u32, signature });
        }
        Ok(())
    }

    fn ends(&mut self, response: &Value, outcome: Outcome) {
        self.outcome = Some(outcome);
        let count = |pointer: &str| response.pointer(pointer).and_then(Value::as_u64).unwrap_or(0);
        let cache_read = count("/usage/input_tokens_details/cached_tokens");
        self.usage = Usage {
            // The contract's input leaves out what the cache gave.
            input: count("/usage/input_tokens").saturating_sub(cache_read),
            output: count("/usage/output_tokens"),
            cache_read,
            cache_write: 0,
        };
    }

    fn incomplete(&mut self, response: &Value) {
        let outcome = match response["incomplete_details"]["reason"].as_str() {
            Some("content_filter") => Outcome::Withheld,
            _ => Outcome::CutByLimit,
        };
        self.ends(response, outcome);
    }

    /// A response in one piece, from a server that does not stream.
    fn whole(
        &mut self,
        response: &Value,
        events: &mut Vec<ModelEvent>,
    ) -> Result<(), StreamFailure> {
        for (number, item) in response["output"].as_array().into_iter().flatten().enumerate() {
            let done = serde_json::json!({ "output_index": number, "item": item });
            self.item_ends(&done, events)?;
        }
        match response["status"].as_str() {
            Some("failed" | "cancelled") => return Err(reported(response)),
            Some("incomplete") => self.incomplete(response),
            _ => self.ends(response, Outcome::Completed),
        }
        Ok(())
    }
}

/// The words of a reasoning item: its summary, or where there is none what was thought.
fn thought(item: &Value) -> String {
    let of = |part: &str| texts(&item[part]).join("\n\n");
    let summary = of("summary");
    if summary.is_empty() { of("content") } else { summary }
}

/// The texts and refusals of a list of parts.
fn texts(parts: &Value) -> Vec<&str> {
    let parts = parts.as_array().into_iter().flatten();
    parts.filter_map(|part| part["text"].as_str().or_else(|| part["refusal"].as_str())).collect()
}

fn reported(payload: &Value) -> StreamFailure {
    let otherwise = || Reported { message: payload.to_string(), ..Reported::default() };
    StreamFailure::Reported(Reported::from_json(payload).unwrap_or_else(otherwise))
}

#[cfg(test)]
mod tests {
    use crate::model::{openai_responses::FORMAT, recorded::decoded};

    /// Lines of JSON, and what they say.
    const CASES: &[(&str, &str)] = &[
        (
            r#"{"type":"response.created","response":{"error":null}}
{"type":"response.output_item.added","output_index":0,"item":{"type":"reasoning","id":"rs_1","summary":[]}}
{"type":"response.reasoning_summary_part.added","output_index":0,"summary_index":0}
{"type":"response.reasoning_summary_text.delta","output_index":0,"item_id":"rs_1","delta":"one"}
{"type":"response.reasoning_summary_part.added","output_index":0,"summary_index":1}
{"type":"response.reasoning_summary_text.delta","output_index":0,"item_id":"rs_1","delta":"two"}
{"type":"response.output_item.done","output_index":0,"item":{"type":"reasoning","id":"rs_1","encrypted_content":"x"}}
{"type":"response.output_item.added","output_index":1,"item":{"type":"message","id":"msg_1"}}
{"type":"response.output_item.added","output_index":2,"item":{"type":"function_call","id":"fc_1","call_id":"c_1","name":"bash","arguments":""}}
{"type":"response.output_item.added","output_index":3,"item":{"type":"function_call","id":"fc_2","call_id":"c_2","name":"ls","arguments":""}}
{"type":"response.function_call_arguments.delta","output_index":3,"item_id":"other","delta":"{}"}
{"type":"response.function_call_arguments.delta","output_index":2,"item_id":"fc_1","delta":"{\"a\""}
{"type":"response.output_text.delta","output_index":1,"item_id":"msg_1","delta":"ok"}
{"type":"response.function_call_arguments.delta","output_index":2,"item_id":"fc_1","delta":":1}"}
{"type":"response.function_call_arguments.done","output_index":2,"item_id":"fc_1","arguments":"{\"a\":1}"}
{"type":"response.output_item.done","output_index":2,"item":{"type":"function_call","id":"fc_1","call_id":"c_1","name":"bash","arguments":"{\"a\":1}"}}
{"type":"response.something_new"}
{"type":"response.completed","response":{"usage":{"input_tokens":10,"output_tokens":5,"input_tokens_details":{"cached_tokens":4}}}}"#,
            "thinking[{\"encrypted_content\":\"x\",\"id\":\"rs_1\",\"type\":\"reasoning\"}] one⏎⏎two \
             | call c_1 bash {\"a\":1} | call c_2 ls {} | text ok | ToolUse 6+5 cached 4+0",
        ),
        (
            r#"{"type":"response.output_item.done","item":{"type":"message","id":"m","content":[{"type":"output_text","text":"a"},{"type":"refusal","refusal":"no"}]}}
{"type":"response.output_item.done","item":{"type":"function_call","id":"f","call_id":"c","name":"ls","arguments":"{}"}}
{"type":"response.output_item.done","item":{"type":"web_search_call","id":"w"}}
{"type":"response.completed","response":{}}"#,
            "text ano | call c ls {} | ToolUse 0+0",
        ),
        (
            r#"{"type":"response.output_item.added","item":{"type":"message","id":"m"}}
{"type":"response.output_text.delta","item_id":"m","delta":"a"}
{"type":"response.incomplete","response":{"incomplete_details":{"reason":"max_output_tokens"}}}"#,
            "text a | Length 0+0",
        ),
        (
            r#"{"type":"response.incomplete","response":{"incomplete_details":{"reason":"content_filter"}}}"#,
            " | Withheld(\"its content filter stopped it\")",
        ),
        (
            r#"{"type":"response.failed","response":{"error":{"code":"rate_limit_exceeded","message":"slow down"}}}"#,
            " | Reported(Reported { status: Some(429), codes: [\"rate_limit_exceeded\"], message: \"slow down\" })",
        ),
        (
            r#"{"type":"error","code":"context_length_exceeded","message":"too long"}"#,
            " | Reported(Reported { status: None, codes: [\"context_length_exceeded\", \"error\"], message: \"too long\" })",
        ),
        (
            r#"{"type":"response.output_text.delta","item_id":"m","delta":"a"}"#,
            " | Malformed(\"a delta of an item that has not begun\")",
        ),
        (
            r#"{"type":"response.output_item.added","item":{"type":"message","id":"m"}}
{"type":"response.output_text.delta","item_id":"m","delta":"a"}"#,
            "text a | Truncated",
        ),
        (
            r#"{"object":"response","status":"completed","output":[{"type":"reasoning","id":"r","summary":[{"text":"one"},{"text":"two"}]},{"type":"function_call","id":"f","call_id":"c","name":"ls","arguments":"{}"}],"usage":{"input_tokens":3,"output_tokens":2}}"#,
            "thinking one⏎⏎two | call c ls {} | ToolUse 3+2",
        ),
        (
            r#"{"type":"response.output_item.done","item":{"type":"reasoning","id":"r","summary":[],"content":[{"type":"reasoning_text","text":"so"}]}}
{"type":"response.completed","response":{}}"#,
            "thinking[{\"content\":[{\"text\":\"so\",\"type\":\"reasoning_text\"}],\"id\":\"r\",\"summary\":[],\"type\":\"reasoning\"}] so | Stop 0+0",
        ),
    ];

    #[test]
    fn responses_are_understood() {
        for (lines, expected) in CASES {
            let stream: String = lines.lines().map(|line| format!("data: {line}\n\n")).collect();
            assert_eq!(decoded(&FORMAT, [stream.as_bytes()]), *expected, "{lines}");
        }
    }
}
