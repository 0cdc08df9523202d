//! The stream of a chat completion: events in, model events out. Pure.

use agent_core::{ModelEnd, ModelEvent, StopReason, Usage};
use serde_json::Value;

use super::{calls::StreamedCalls, proofs::Proofs, request::REASONING_FIELDS};
use crate::model::{
    reported::Reported,
    stream_failure::StreamFailure,
    wire_format::{Decoder, Progress},
};

/// The state of one answer.
#[derive(Debug, Default)]
pub(super) struct CompletionsDecoder {
    calls: StreamedCalls,
    /// The only call came as a `function_call`.
    is_legacy: bool,
    proofs: Proofs,
    /// The block that the proofs are kept in, once there are any.
    proofs_block: Option<u32>,
    /// The block that text or thinking is being added to.
    open: Option<(Kind, u32)>,
    blocks: u32,
    finish_reason: Option<String>,
    usage: Usage,
    done: bool,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Kind {
    Text,
    Thinking,
}

impl Decoder for CompletionsDecoder {
    fn event(
        &mut self,
        name: &str,
        chunk: &Value,
        events: &mut Vec<ModelEvent>,
    ) -> Result<(), StreamFailure> {
        if let Some(reported) = failure(chunk, name) {
            return Err(StreamFailure::Reported(reported));
        }
        if let Some(usage) = chunk.get("usage").and_then(usage) {
            self.usage = usage;
        }
        let choices = chunk.get("choices").and_then(Value::as_array);
        // Only the first answer was asked for.
        let first = |choice: &&Value| choice.get("index").and_then(Value::as_i64).unwrap_or(0) == 0;
        match choices.and_then(|choices| choices.iter().find(first)) {
            Some(choice) => self.choice(choice, events),
            None => Ok(()),
        }
    }

    fn done(&mut self) {
        self.done = true;
    }

    fn progress(&self) -> Progress {
        match (self.done, &self.finish_reason) {
            (true, _) => Progress::Over,
            (false, Some(_)) => Progress::Whole,
            (false, None) => Progress::Going,
        }
    }

    fn end(&self) -> Result<ModelEnd, StreamFailure> {
        let said_something = self.blocks > 0;
        let stop_reason = match self.finish_reason.as_deref() {
            Some("length" | "max_tokens") => StopReason::Length,
            Some("content_filter") => {
                let why = "its content filter stopped it".to_owned();
                return Err(StreamFailure::Withheld(why));
            }
            Some(failed @ ("error" | "network_error" | "insufficient_system_resource")) => {
                return Err(StreamFailure::Reported(Reported {
                    status: Some(500),
                    message: format!("the answer ended as `{failed}`"),
                    ..Reported::default()
                }));
            }
            None if !(self.done && said_something) => return Err(StreamFailure::Truncated),
            _ if self.calls.is_empty() => StopReason::Stop,
            _ => StopReason::ToolUse,
        };
        self.calls.check()?;
        Ok(ModelEnd { stop_reason, usage: self.usage })
    }
}

impl CompletionsDecoder {
    fn choice(
        &mut self,
        choice: &Value,
        events: &mut Vec<ModelEvent>,
    ) -> Result<(), StreamFailure> {
        // `message` where a server answers in one piece.
        let delta = choice.get("delta").or_else(|| choice.get("message")).unwrap_or(&Value::Null);
        let reasoning = REASONING_FIELDS.iter().find_map(|field| {
            Some((*field, delta.get(field)?.as_str().filter(|text| !text.is_empty())?))
        });
        if let Some((field, text)) = reasoning {
            self.think(text, Some(field), events);
        }
        match delta.get("content") {
            Some(Value::String(text)) => self.say(text, events),
            Some(Value::Array(parts)) => parts.iter().for_each(|part| self.part(part, events)),
            _ => {}
        }
        if let Some(refusal) = delta.get("refusal").and_then(Value::as_str) {
            self.say(refusal, events);
        }
        for entry in delta.get("tool_calls").and_then(Value::as_array).into_iter().flatten() {
            self.call(entry, events)?;
        }
        if let Some(function) = delta.get("function_call").filter(|call| call.is_object()) {
            self.only_call(function, events)?;
        }
        if let Some(details) = delta.get("reasoning_details").and_then(Value::as_array) {
            self.proofs.add_details(details)?;
        }
        let reason = choice.get("finish_reason").and_then(Value::as_str);
        if let Some(reason) = reason.filter(|reason| !reason.is_empty()) {
            self.finish_reason = Some(reason.to_owned());
        }
        if let Some(usage) = choice.get("usage").and_then(usage) {
            self.usage = usage;
        }
        // Once they are whole; what little may follow is sent again with all before.
        if self.finish_reason.is_some() {
            self.prove(events);
        }
        Ok(())
    }

    fn call(&mut self, entry: &Value, events: &mut Vec<ModelEvent>) -> Result<(), StreamFailure> {
        self.open = None;
        let place = self.calls.piece(entry, || next(&mut self.blocks), events)?;
        match entry.get("extra_content").filter(|extra| extra.is_object()) {
            Some(extra) => self.proofs.add_extra(place, extra),
            None => Ok(()),
        }
    }

    /// The one call of an answer before there were several. Servers that know both ways may say the
    /// same in both.
    fn only_call(
        &mut self,
        function: &Value,
        events: &mut Vec<ModelEvent>,
    ) -> Result<(), StreamFailure> {
        if self.calls.is_empty() {
            self.is_legacy = true;
        }
        if !self.is_legacy {
            return Ok(());
        }
        self.call(&serde_json::json!({ "index": 0, "function": function }), events)
    }

    fn prove(&mut self, events: &mut Vec<ModelEvent>) {
        if let Some(signature) = self.proofs.signature(&self.calls.ids()) {
            let index = *self.proofs_block.get_or_insert_with(|| next(&mut self.blocks));
            events.push(ModelEvent::ThinkingSignature { index, signature });
        }
    }

    /// One part of a content that is a list, as Mistral sends it.
    fn part(&mut self, part: &Value, events: &mut Vec<ModelEvent>) {
        if let Some(text) = part.get("text").and_then(Value::as_str) {
            self.say(text, events);
        }
        for thought in part.get("thinking").and_then(Value::as_array).into_iter().flatten() {
            if let Some(text) = thought.get("text").and_then(Value::as_str) {
                self.think(text, None, events);
            }
        }
    }

    fn say(&mut self, text: &str, events: &mut Vec<ModelEvent>) {
        if !text.is_empty() {
            let (index, _) = self.block(Kind::Text);
            events.push(ModelEvent::Text { index, delta: text.to_owned() });
        }
    }

    /// The field's name goes along as the signature: it says where to put the thought back.
    fn think(&mut self, text: &str, field: Option<&str>, events: &mut Vec<ModelEvent>) {
        let (index, begins) = self.block(Kind::Thinking);
        events.push(ModelEvent::Thinking { index, delta: text.to_owned() });
        if let Some(field) = field.filter(|_| begins) {
            events.push(ModelEvent::ThinkingSignature { index, signature: field.to_owned() });
        }
    }

    /// The block that a piece of this kind belongs to, and whether it begins with it.
    fn block(&mut self, kind: Kind) -> (u32, bool) {
        match self.open {
            Some((open, index)) if open == kind => (index, false),
            _ => {
                let index = next(&mut self.blocks);
                self.open = Some((kind, index));
                (index, true)
            }
        }
    }
}

/// The number of a block that begins.
fn next(blocks: &mut u32) -> u32 {
    *blocks += 1;
    *blocks - 1
}

/// An error object, wrapped or bare.
fn failure(chunk: &Value, event_name: &str) -> Option<Reported> {
    let is_error = chunk.get("error").is_some_and(|error| !error.is_null())
        || event_name == "error"
        || chunk.get("object").and_then(Value::as_str) == Some("error");
    if !is_error {
        return None;
    }
    let otherwise = || Reported { message: chunk.to_string(), ..Reported::default() };
    Some(Reported::from_json(chunk).unwrap_or_else(otherwise))
}

/// The input of the contract leaves out what the cache gave.
fn usage(usage: &Value) -> Option<Usage> {
    let number = |pointer: &str| usage.pointer(pointer).and_then(Value::as_u64);
    let prompt = number("/prompt_tokens")?;
    let cache_read = number("/prompt_tokens_details/cached_tokens")
        .or_else(|| number("/prompt_cache_hit_tokens"))
        .unwrap_or(0);
    let cache_write = number("/prompt_tokens_details/cache_write_tokens").unwrap_or(0);
    Some(Usage {
        input: prompt.saturating_sub(cache_read).saturating_sub(cache_write),
        output: number("/completion_tokens").unwrap_or(0),
        cache_read,
        cache_write,
    })
}

#[cfg(test)]
mod tests {
    use crate::model::{openai_completions::FORMAT, recorded::decoded};

    /// Lines of data, and what they say.
    const CASES: &[(&str, &str)] = &[
        (
            r#"{"choices":[{"delta":{"role":"assistant","content":null,"reasoning":"hm"}}]}
{"choices":[{"delta":{"content":"","reasoning":"m","reasoning_content":""}}]}
{"choices":[{"delta":{"content":"a"}}]}
{"choices":[{"delta":{"reasoning":"so"}}]}
{"choices":[{"delta":{"content":"b"},"finish_reason":""}]}
{"choices":[{"delta":{},"finish_reason":"eos"}]}
[DONE]
{"choices":[{"delta":{"content":"after the end"}}]}"#,
            "thinking[reasoning] hmm | text a | thinking[reasoning] so | text b | Stop 0+0",
        ),
        (
            r#"{"choices":[{"delta":{"reasoning":"hm","reasoning_content":"hm"}}]}
{"choices":[{"delta":{"refusal":"no"}}]}
{"choices":[{"index":1,"delta":{"content":"another answer"}}]}
{"choices":[],"usage":null}
[DONE]"#,
            "thinking[reasoning_content] hm | text no | Stop 0+0",
        ),
        (
            r#"{"choices":[{"delta":{"content":[{"type":"thinking","thinking":[{"type":"text","text":"hm"}]},{"type":"text","text":"a"}]}}]}
{"choices":[{"delta":{},"finish_reason":"stop","usage":{"prompt_tokens":9,"completion_tokens":2,"prompt_cache_hit_tokens":4}}]}"#,
            "thinking hm | text a | Stop 5+2 cached 4+0",
        ),
        (
            r#"{"choices":[{"delta":{"content":"a"}}],"usage":{"prompt_tokens":9,"completion_tokens":1}}
{"choices":[{"delta":{},"finish_reason":"length"}]}
{"choices":[],"usage":{"prompt_tokens":9,"completion_tokens":2,"prompt_tokens_details":{"cached_tokens":3,"cache_write_tokens":5}}}"#,
            "text a | Length 1+2 cached 3+5",
        ),
        (
            r#"{"choices":[{"delta":{"content":"a"}}]}
{"choices":[{"delta":{"tool_calls":[{"index":0,"id":"c","function":{"name":"ls","arguments":"{}"}}]}}]}
{"choices":[{"delta":{"content":"b"}}]}
{"choices":[{"delta":{},"finish_reason":"stop"}]}"#,
            "text a | call c ls {} | text b | ToolUse 0+0",
        ),
        (
            r#"{"choices":[{"delta":{"role":"assistant","content":null,"function_call":{"name":"ls","arguments":""}}}]}
{"choices":[{"delta":{"function_call":{"arguments":"{\"a\""}}}]}
{"choices":[{"delta":{"function_call":{"name":"ls","arguments":":1}"}}}]}
{"choices":[{"delta":{"function_call":null},"finish_reason":"function_call"}]}"#,
            "call  ls {\"a\":1} | ToolUse 0+0",
        ),
        (
            r#"{"choices":[{"finish_reason":"function_call","message":{"tool_calls":[{"id":"c","function":{"name":"ls","arguments":"{}"}}],"function_call":{"name":"ls","arguments":"{}"}}}]}"#,
            "call c ls {} | ToolUse 0+0",
        ),
        ("[DONE]", " | Truncated"),
        (r#"{"choices":[{"delta":{"content":"a"}}]}"#, "text a | Truncated"),
        (
            r#"{"choices":[{"delta":{"content":"a"},"finish_reason":"content_filter"}]}"#,
            "text a | Withheld(\"its content filter stopped it\")",
        ),
        (
            r#"{"choices":[{"delta":{"content":"a"},"finish_reason":"error"}]}"#,
            "text a | Reported(Reported { status: Some(500), codes: [], message: \"the answer ended as `error`\" })",
        ),
        (
            r#"{"error":"overloaded"}"#,
            " | Reported(Reported { status: None, codes: [], message: \"overloaded\" })",
        ),
        (
            r#"{"object":"error","message":"too long","code":400,"type":"BadRequestError"}"#,
            " | Reported(Reported { status: Some(400), codes: [\"BadRequestError\"], message: \"too long\" })",
        ),
        (
            r#"{"error":{"code":502,"message":"Upstream failed","metadata":{}},"choices":[{"delta":{"content":""},"finish_reason":"error"}]}"#,
            " | Reported(Reported { status: Some(502), codes: [], message: \"Upstream failed\" })",
        ),
        (
            r#"{"choices":[{"finish_reason":"tool_calls","index":0,"message":{"role":"assistant","content":"","tool_calls":[{"type":"function","function":{"name":"ls","arguments":"{}"},"id":"c"}]}}],"usage":{"prompt_tokens":5,"completion_tokens":3}}"#,
            "call c ls {} | ToolUse 5+3",
        ),
        (
            r#"{"choices":[{"delta":{"tool_calls":[{"extra_content":{"google":{"thought_signature":"s"}},"id":"c","function":{"name":"ls","arguments":"{}"}}]}}]}
{"choices":[{"delta":{},"finish_reason":"tool_calls"}]}"#,
            "call c ls {} | thinking[{\"extra_content\":{\"0\":{\"google\":{\"thought_signature\":\"s\"}}}}]  | ToolUse 0+0",
        ),
        (
            r#"{"choices":[{"delta":{"reasoning":"hm","reasoning_details":[{"type":"reasoning.text","text":"h"}]}}]}
{"choices":[{"delta":{"content":"a","reasoning_details":[{"type":"reasoning.text","text":"m"}]},"finish_reason":"stop"}]}
{"choices":[{"delta":{"reasoning_details":[{"type":"reasoning.encrypted","data":"x"}]},"finish_reason":"stop"}]}"#,
            "thinking[reasoning] hm | text a | thinking[{\"reasoning_details\":[{\"text\":\"hm\",\"type\":\"reasoning.text\"},{\"data\":\"x\",\"type\":\"reasoning.encrypted\"}]}]  | Stop 0+0",
        ),
    ];

    #[test]
    fn completions_are_understood() {
        for (lines, expected) in CASES {
            let stream: String = lines.lines().map(|line| format!("data: {line}\n\n")).collect();
            assert_eq!(decoded(&FORMAT, [stream.as_bytes()]), *expected, "{lines}");
        }
    }
}
