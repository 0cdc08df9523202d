//! The stream of a message: events in, model events out. Pure.

use agent_core::{ModelEnd, ModelEvent, StopReason, Usage};
use serde_json::Value;

use super::REDACTED;
use crate::model::{
    reported::Reported,
    stream_failure::StreamFailure,
    wire_format::{Decoder, MOST_CALLS, Progress},
};

/// The state of one answer.
#[derive(Debug, Default)]
pub(super) struct MessagesDecoder {
    blocks: Vec<OpenBlock>,
    /// The size of all signatures.
    signatures: usize,
    stop_reason: Option<String>,
    usage: Usage,
    over: bool,
}

#[derive(Debug)]
struct OpenBlock {
    index: u32,
    kind: Kind,
}

#[derive(Debug)]
enum Kind {
    Text,
    Thinking {
        /// Comes in pieces, and is told when it is whole.
        signature: String,
    },
    /// `input` holds arguments that came with the block's start; deltas take their place.
    ToolUse {
        id: String,
        name: String,
        input: Option<String>,
    },
    /// Something that is not for us, such as a search that the provider made by itself.
    Other,
}

impl Decoder for MessagesDecoder {
    fn event(
        &mut self,
        name: &str,
        payload: &Value,
        events: &mut Vec<ModelEvent>,
    ) -> Result<(), StreamFailure> {
        // By the JSON's own type, since not every server names its events.
        match payload["type"].as_str().unwrap_or_default() {
            "message_start" => self.add_usage(&payload["message"]["usage"]),
            "content_block_start" => return self.block_starts(payload, events),
            "content_block_delta" => return self.block_grows(payload, events),
            "content_block_stop" => self.block_ends(index_of(payload), events),
            "message_delta" => {
                self.message_grows(payload);
                self.all_blocks_end(events);
            }
            "message_stop" => self.over = true,
            "message" => return self.whole(payload, events),
            kind if kind == "error" || name == "error" || payload["error"].is_object() => {
                let otherwise = || Reported { message: payload.to_string(), ..Reported::default() };
                let reported = Reported::from_json(payload).unwrap_or_else(otherwise);
                return Err(StreamFailure::Reported(reported));
            }
            // `ping`, and whatever may be invented yet.
            _ => {}
        }
        Ok(())
    }

    fn progress(&self) -> Progress {
        match (self.over, &self.stop_reason) {
            (true, _) => Progress::Over,
            (false, Some(_)) => Progress::Whole,
            (false, None) => Progress::Going,
        }
    }

    fn end(&self) -> Result<ModelEnd, StreamFailure> {
        let stop_reason = match self.stop_reason.as_deref() {
            Some("max_tokens" | "model_context_window_exceeded") => StopReason::Length,
            Some("tool_use") => StopReason::ToolUse,
            Some("refusal") => {
                return Err(StreamFailure::Withheld("it refused to go on".to_owned()));
            }
            Some(_) => StopReason::Stop,
            None => return Err(StreamFailure::Truncated),
        };
        Ok(ModelEnd { stop_reason, usage: self.usage })
    }
}

/// More blocks than this in one answer are a runaway.
const MOST_BLOCKS: usize = 2_000;

/// The proofs of an answer's thoughts are a few kilobytes.
const LARGEST_SIGNATURES: usize = 4 * 1024 * 1024;

impl MessagesDecoder {
    fn block_starts(
        &mut self,
        payload: &Value,
        events: &mut Vec<ModelEvent>,
    ) -> Result<(), StreamFailure> {
        let index = index_of(payload);
        let block = &payload["content_block"];
        let kind = match block["type"].as_str().unwrap_or_default() {
            "text" => Kind::Text,
            "thinking" => Kind::Thinking { signature: String::new() },
            "redacted_thinking" => {
                let sealed = block["data"].as_str().unwrap_or_default();
                let signature = format!("{REDACTED}{sealed}");
                events.push(ModelEvent::ThinkingSignature { index, signature });
                Kind::Other
            }
            "tool_use" => tool_use(block)?,
            _ => Kind::Other,
        };
        if self.blocks.len() == MOST_BLOCKS {
            let what = format!("more than {MOST_BLOCKS} blocks in one answer");
            return Err(StreamFailure::Malformed(what));
        }
        let calls = self.blocks.iter().filter(|block| matches!(block.kind, Kind::ToolUse { .. }));
        if calls.count() == MOST_CALLS {
            let what = format!("more than {MOST_CALLS} tool calls in one answer");
            return Err(StreamFailure::Malformed(what));
        }
        if let Kind::ToolUse { id, name, .. } = &kind {
            events.push(call_event(index, id, name, String::new()));
        }
        self.blocks.push(OpenBlock { index, kind });
        // Nearly always empty, but some servers put all of a block here.
        for field in ["text", "thinking", "signature"] {
            if let Some(text) = block[field].as_str() {
                self.grow(index, field, text, events)?;
            }
        }
        Ok(())
    }

    fn block_grows(
        &mut self,
        payload: &Value,
        events: &mut Vec<ModelEvent>,
    ) -> Result<(), StreamFailure> {
        let (index, delta) = (index_of(payload), &payload["delta"]);
        let field = match delta["type"].as_str().unwrap_or_default() {
            "text_delta" => "text",
            "thinking_delta" => "thinking",
            "signature_delta" => "signature",
            "input_json_delta" => "partial_json",
            _ => return Ok(()),
        };
        if !self.blocks.iter().any(|block| block.index == index) {
            let what = format!("a delta of block {index}, which has not begun");
            return Err(StreamFailure::Malformed(what));
        }
        self.grow(index, field, delta[field].as_str().unwrap_or_default(), events)
    }

    fn grow(
        &mut self,
        index: u32,
        field: &str,
        more: &str,
        events: &mut Vec<ModelEvent>,
    ) -> Result<(), StreamFailure> {
        let block = self.blocks.iter_mut().rfind(|block| block.index == index);
        let Some(block) = block.filter(|_| !more.is_empty()) else { return Ok(()) };
        let delta = more.to_owned();
        match (&mut block.kind, field) {
            (Kind::Text, "text") => events.push(ModelEvent::Text { index, delta }),
            (Kind::Thinking { .. }, "thinking") => {
                events.push(ModelEvent::Thinking { index, delta });
            }
            (Kind::Thinking { signature }, "signature") => {
                self.signatures += more.len();
                if self.signatures > LARGEST_SIGNATURES {
                    let what = format!("signatures of more than {LARGEST_SIGNATURES} bytes");
                    return Err(StreamFailure::Malformed(what));
                }
                signature.push_str(more);
            }
            (Kind::ToolUse { id, name, input }, "partial_json") => {
                *input = None;
                events.push(call_event(index, id, name, delta));
            }
            _ => {}
        }
        Ok(())
    }

    fn block_ends(&mut self, index: u32, events: &mut Vec<ModelEvent>) {
        let block = self.blocks.iter_mut().rfind(|block| block.index == index);
        match block.map(|block| &mut block.kind) {
            Some(Kind::ToolUse { id, name, input }) => {
                let whole = input.take();
                events.extend(whole.map(|arguments| call_event(index, id, name, arguments)));
            }
            Some(Kind::Thinking { signature }) if !signature.is_empty() => {
                let signature = std::mem::take(signature);
                events.push(ModelEvent::ThinkingSignature { index, signature });
            }
            _ => {}
        }
    }

    /// Not every server says where a block ends.
    fn all_blocks_end(&mut self, events: &mut Vec<ModelEvent>) {
        let indices: Vec<u32> = self.blocks.iter().map(|block| block.index).collect();
        indices.into_iter().for_each(|index| self.block_ends(index, events));
    }

    fn message_grows(&mut self, payload: &Value) {
        if let Some(reason) = payload["delta"]["stop_reason"].as_str() {
            self.stop_reason = Some(reason.to_owned());
        }
        self.add_usage(&payload["usage"]);
    }

    /// Counts are totals of the message so far; what is left out has not changed.
    fn add_usage(&mut self, usage: &Value) {
        let set = |count: &mut u64, field: &str| {
            *count = usage[field].as_u64().unwrap_or(*count);
        };
        set(&mut self.usage.input, "input_tokens");
        set(&mut self.usage.output, "output_tokens");
        set(&mut self.usage.cache_read, "cache_read_input_tokens");
        set(&mut self.usage.cache_write, "cache_creation_input_tokens");
    }

    /// A message in one piece, from a server that does not stream.
    fn whole(
        &mut self,
        message: &Value,
        events: &mut Vec<ModelEvent>,
    ) -> Result<(), StreamFailure> {
        self.add_usage(&message["usage"]);
        for (index, block) in (0u32..).zip(message["content"].as_array().into_iter().flatten()) {
            let start = serde_json::json!({ "index": index, "content_block": block });
            self.block_starts(&start, events)?;
            self.block_ends(index, events);
        }
        self.stop_reason = message["stop_reason"].as_str().map(str::to_owned);
        self.over = true;
        Ok(())
    }
}

fn tool_use(block: &Value) -> Result<Kind, StreamFailure> {
    let text = |field: &str| block[field].as_str().unwrap_or_default().to_owned();
    let name = text("name");
    if name.is_empty() {
        return Err(StreamFailure::Malformed("a tool call without a name".to_owned()));
    }
    let input = block["input"].as_object().filter(|input| !input.is_empty());
    let input = input.map(|_| block["input"].to_string());
    Ok(Kind::ToolUse { id: text("id"), name, input })
}

fn call_event(index: u32, id: &str, name: &str, delta: String) -> ModelEvent {
    ModelEvent::ToolCall { index, id: id.to_owned(), name: name.to_owned(), delta }
}

fn index_of(payload: &Value) -> u32 {
    payload["index"].as_u64().and_then(|index| u32::try_from(index).ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use crate::model::{anthropic_messages::FORMAT, recorded::decoded};

    /// Lines of JSON, and what they say.
    const CASES: &[(&str, &str)] = &[
        (
            r#"{"type":"message_start","message":{"usage":{"input_tokens":7,"cache_creation_input_tokens":3,"cache_read_input_tokens":5,"output_tokens":1}}}
{"type":"content_block_start","index":0,"content_block":{"type":"thinking","thinking":"","signature":""}}
{"type":"ping"}
{"type":"content_block_delta","index":0,"delta":{"type":"thinking_delta","thinking":"hm"}}
{"type":"content_block_delta","index":0,"delta":{"type":"signature_delta","signature":"si"}}
{"type":"content_block_delta","index":0,"delta":{"type":"signature_delta","signature":"g"}}
{"type":"content_block_stop","index":0}
{"type":"content_block_start","index":1,"content_block":{"type":"redacted_thinking","data":"eA=="}}
{"type":"content_block_stop","index":1}
{"type":"content_block_start","index":2,"content_block":{"type":"text","text":""}}
{"type":"content_block_delta","index":2,"delta":{"type":"text_delta","text":"ok"}}
{"type":"content_block_delta","index":2,"delta":{"type":"citations_delta","citation":{}}}
{"type":"content_block_start","index":3,"content_block":{"type":"tool_use","id":"t1","name":"bash","input":{}}}
{"type":"content_block_start","index":4,"content_block":{"type":"tool_use","id":"t2","name":"ls","input":{}}}
{"type":"content_block_delta","index":4,"delta":{"type":"input_json_delta","partial_json":""}}
{"type":"content_block_delta","index":3,"delta":{"type":"input_json_delta","partial_json":"{\"a\""}}
{"type":"content_block_delta","index":3,"delta":{"type":"input_json_delta","partial_json":":1}"}}
{"type":"something_new","index":9}
{"type":"content_block_stop","index":2}
{"type":"content_block_stop","index":3}
{"type":"content_block_stop","index":4}
{"type":"message_delta","delta":{"stop_reason":"tool_use"},"usage":{"output_tokens":42}}
{"type":"message_stop"}
{"type":"content_block_start","index":0,"content_block":{"type":"text","text":"after the end"}}"#,
            "thinking[sig] hm | thinking[redacted:eA==]  | text ok | call t1 bash {\"a\":1} | call t2 ls  \
             | ToolUse 7+42 cached 5+3",
        ),
        (
            r#"{"type":"content_block_start","index":0,"content_block":{"type":"tool_use","id":"t1","name":"bash","input":{"a":1}}}
{"type":"content_block_stop","index":0}
{"type":"message_delta","delta":{"stop_reason":"tool_use"}}"#,
            "call t1 bash {\"a\":1} | ToolUse 0+0",
        ),
        (
            r#"{"type":"content_block_start","index":0,"content_block":{"type":"server_tool_use","id":"s","name":"search","input":{}}}
{"type":"content_block_delta","index":0,"delta":{"type":"input_json_delta","partial_json":"{}"}}
{"type":"content_block_start","index":1,"content_block":{"type":"text","text":"found"}}
{"type":"message_delta","delta":{"stop_reason":"pause_turn"}}"#,
            "text found | Stop 0+0",
        ),
        (
            r#"{"type":"content_block_start","index":0,"content_block":{"type":"text","text":"a"}}
{"type":"message_delta","delta":{"stop_reason":"refusal"}}
{"type":"message_stop"}"#,
            "text a | Withheld(\"it refused to go on\")",
        ),
        (
            r#"{"type":"content_block_start","index":0,"content_block":{"type":"text","text":"a"}}
{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}"#,
            "text a | Reported(Reported { status: Some(529), codes: [\"overloaded_error\"], message: \"Overloaded\" })",
        ),
        (
            r#"{"type":"content_block_start","index":0,"content_block":{"type":"text","text":"a"}}
{"type":"content_block_stop","index":0}
{"type":"message_stop"}"#,
            "text a | Truncated",
        ),
        (
            r#"{"type":"content_block_delta","index":3,"delta":{"type":"text_delta","text":"a"}}"#,
            " | Malformed(\"a delta of block 3, which has not begun\")",
        ),
        (
            r#"{"type":"content_block_start","index":0,"content_block":{"type":"tool_use","id":"t1"}}"#,
            " | Malformed(\"a tool call without a name\")",
        ),
        (
            r#"{"type":"message","content":[{"type":"text","text":"a"},{"type":"tool_use","id":"t","name":"ls","input":{"b":2}}],"stop_reason":"tool_use","usage":{"input_tokens":5,"output_tokens":30}}"#,
            "text a | call t ls {\"b\":2} | ToolUse 5+30",
        ),
    ];

    #[test]
    fn messages_are_understood() {
        for (lines, expected) in CASES {
            let stream: String = lines.lines().map(|line| format!("data: {line}\n\n")).collect();
            assert_eq!(decoded(&FORMAT, [stream.as_bytes()]), *expected, "{lines}");
        }
    }
}
