//! A request for a message. Pure.

use agent_core::{ModelRequest, ThinkingLevel, ToolSpec};
use serde_json::{Value, json};

use super::REDACTED;
use crate::model::{
    abilities::{
        NO_THOUGHT, presumed_output_limit, proves_thoughts, thinks_adaptively, thinks_unless_told,
        wants_every_thought,
    },
    history::{Part, Said, Turn, history},
    wire_format::Recipient,
};

/// The smallest budget that the provider accepts.
const SMALLEST_BUDGET: u64 = 1024;

/// What is left for the answer when thinking takes all of its budget.
const LEFT_FOR_ANSWER: u64 = 1024;

/// The body of a request.
pub(super) fn body(model: &Recipient<'_>, request: &ModelRequest) -> Value {
    let turns = history(&request.messages, model.name, model.largest_picture);
    let limit = model.config.max_output_tokens;
    let limit = limit.unwrap_or_else(|| presumed_output_limit(&model.config.id));
    let mut body = json!({
        "model": model.config.id,
        "max_tokens": limit,
        "stream": true,
    });
    if !request.system_prompt.trim().is_empty() {
        let mut system = text(&request.system_prompt);
        mark_for_cache(&mut system);
        body["system"] = json!([system]);
    }
    if !request.tools.is_empty() {
        let mut tools: Vec<Value> = request.tools.iter().map(tool).collect();
        tools.last_mut().into_iter().for_each(mark_for_cache);
        body["tools"] = tools.into();
    }
    if model.config.thinking {
        think(&mut body, model, request.thinking_level, limit, &turns);
    }
    let mut messages = messages(&turns, &model.config.id);
    mark_newest(&mut messages);
    body["messages"] = messages.into();
    body
}

/// The provider keeps everything up to a mark, for five minutes after each use.
fn mark_for_cache(block: &mut Value) {
    block["cache_control"] = json!({ "type": "ephemeral" });
}

/// Marks the newest user message, and the one before it: that is where the last request's mark
/// was, and the provider looks only 20 blocks back for one. With the system prompt and the tools
/// that makes four, which is all that it allows.
fn mark_newest(messages: &mut [Value]) {
    let users = messages.iter_mut().rev().filter(|message| message["role"] == "user");
    for message in users.take(2) {
        let blocks = message["content"].as_array_mut();
        blocks.and_then(|blocks| blocks.last_mut()).into_iter().for_each(mark_for_cache);
    }
}

fn tool(spec: &ToolSpec) -> Value {
    json!({
        "name": spec.name,
        "description": spec.description,
        "input_schema": spec.parameters,
    })
}

fn think(
    body: &mut Value,
    model: &Recipient<'_>,
    level: ThinkingLevel,
    limit: u64,
    turns: &[Turn<'_>],
) {
    if level == ThinkingLevel::Off && thinks_unless_told(model.url) {
        body["thinking"] = json!({ "type": "disabled" });
        return;
    }
    let id = &model.config.id;
    if thinks_adaptively(id) {
        let effort = match level {
            ThinkingLevel::Off => return,
            ThinkingLevel::Minimal | ThinkingLevel::Low => "low",
            ThinkingLevel::Medium => "medium",
            ThinkingLevel::High => "high",
        };
        body["thinking"] = json!({ "type": "adaptive", "display": "summarized" });
        body["output_config"] = json!({ "effort": effort });
        return;
    }
    let wanted = match level {
        ThinkingLevel::Off => return,
        ThinkingLevel::Minimal => SMALLEST_BUDGET,
        ThinkingLevel::Low => 4_096,
        ThinkingLevel::Medium => 10_240,
        ThinkingLevel::High => 24_576,
    };
    // The budget is part of `max_tokens`.
    let budget = wanted.min(limit.saturating_sub(LEFT_FOR_ANSWER));
    if budget >= SMALLEST_BUDGET && may_think(turns, id) {
        body["thinking"] = json!({ "type": "enabled", "budget_tokens": budget });
    }
}

/// Within a tool loop the provider wants the thought that the loop began with. There is none when
/// another model began it, or this one before it was told to think.
fn may_think(turns: &[Turn<'_>], id: &str) -> bool {
    let in_loop = matches!(turns.last(), Some(Turn::ToolResult { .. }));
    let last_said = turns.iter().rev().find_map(|turn| match turn {
        Turn::Assistant(said) => Some(said),
        _ => None,
    });
    !in_loop || last_said.is_some_and(|said| begins_with_thought(&said_blocks(said, id)))
}

/// The messages, those of one side joined: the provider wants them to alternate, and all results
/// of a turn in one.
fn messages(turns: &[Turn<'_>], id: &str) -> Vec<Value> {
    let mut messages: Vec<(&str, Vec<Value>)> = Vec::with_capacity(turns.len());
    for turn in turns {
        let (role, blocks) = match turn {
            Turn::User(parts) => ("user", parts.iter().map(part_block).collect()),
            Turn::Assistant(said) => ("assistant", said_blocks(said, id)),
            Turn::ToolResult { call_id, content, is_error, .. } => {
                ("user", vec![result_block(call_id, content, *is_error)])
            }
        };
        match messages.last_mut() {
            Some((last, joined)) if *last == role => joined.extend::<Vec<Value>>(blocks),
            _ => messages.push((role, blocks)),
        }
    }
    let message = |(role, content)| json!({ "role": role, "content": content });
    messages.into_iter().map(message).collect()
}

fn text(text: &str) -> Value {
    json!({ "type": "text", "text": text })
}

fn part_block(part: &Part<'_>) -> Value {
    match part {
        Part::Text(words) => text(words),
        Part::Image { mime_type, data } => json!({
            "type": "image",
            "source": { "type": "base64", "media_type": mime_type, "data": data },
        }),
    }
}

/// What a model said, as the model `id` takes it.
fn said_blocks(said: &[Said<'_>], id: &str) -> Vec<Value> {
    let proven = proves_thoughts(id);
    let mut blocks: Vec<_> = said.iter().filter_map(|piece| said_block(piece, proven)).collect();
    if wants_every_thought(id) && !begins_with_thought(&blocks) {
        blocks.insert(0, thinking_block(NO_THOUGHT, ""));
    }
    blocks
}

/// None for a thought whose proof is missing.
fn said_block(piece: &Said<'_>, proven: bool) -> Option<Value> {
    Some(match piece {
        Said::Text(words) => text(words),
        Said::Call { id, name, arguments } => {
            json!({ "type": "tool_use", "id": id, "name": name, "input": arguments })
        }
        Said::Thinking { thinking, signature } => {
            let signature = signature.unwrap_or_default();
            match signature.strip_prefix(REDACTED) {
                Some(sealed) => json!({ "type": "redacted_thinking", "data": sealed }),
                None if signature.is_empty() && proven => return None,
                None => thinking_block(thinking, signature),
            }
        }
    })
}

fn thinking_block(thinking: &str, signature: &str) -> Value {
    json!({ "type": "thinking", "thinking": thinking, "signature": signature })
}

fn begins_with_thought(blocks: &[Value]) -> bool {
    let first = blocks.first().map(|block| &block["type"]);
    first.is_some_and(|kind| kind == "thinking" || kind == "redacted_thinking")
}

fn result_block(call_id: &str, content: &[Part<'_>], is_error: bool) -> Value {
    let mut block = json!({ "type": "tool_result", "tool_use_id": call_id });
    // An error without words is refused.
    block["content"] = match content {
        [] => "(nothing)".into(),
        parts => parts.iter().map(part_block).collect(),
    };
    if is_error {
        block["is_error"] = true.into();
    }
    block
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use agent_core::{Block, StopReason};

    use super::*;
    use crate::model::{
        anthropic_messages::FORMAT,
        test_requests::{
            bash, lines, request, request_of, seeing_model, thinking_model, thinking_model_at, tool,
        },
        test_transcripts::{assistant, call, image, result, text, thinking, user},
        wire_format::WireFormat,
    };

    const API: &WireFormat = &FORMAT;

    #[test]
    fn a_request_says_no_more_than_it_must() {
        let body = thinking_model(API).body(&request([user([text("hi")])]));
        let expected = json!({
            "model": "m",
            "max_tokens": 16_384,
            "stream": true,
            "messages": [{ "role": "user", "content": [
                { "type": "text", "text": "hi", "cache_control": { "type": "ephemeral" } },
            ] }],
        });
        assert_eq!(body, expected);
    }

    #[test]
    fn what_stays_the_same_is_marked_for_the_cache() {
        let transcript = [
            user([text("1")]),
            assistant("p/m", StopReason::Stop, [text("a")]),
            user([text("2")]),
            assistant("p/m", StopReason::Stop, [text("b")]),
            user([text("3"), text("4")]),
        ];
        let tools = [bash(), tool("read", &["path"])];
        let body = thinking_model(API).body(&request_of("be brief", transcript, tools));
        let mark = json!({ "type": "ephemeral" });
        assert_eq!(body["system"][0]["cache_control"], mark);
        assert_eq!(body["tools"][0].get("cache_control"), None);
        assert_eq!(body["tools"][1]["cache_control"], mark);
        assert_eq!(body["messages"][2]["content"][0]["cache_control"], mark);
        assert_eq!(body["messages"][4]["content"][1]["cache_control"], mark);
        assert_eq!(body.to_string().matches("ephemeral").count(), 4, "the provider allows no more");
    }

    #[test]
    fn results_of_a_turn_and_what_follows_are_one_message() {
        let transcript = [
            user([text("look"), image()]),
            user([text("now")]),
            assistant(
                "p/m",
                StopReason::ToolUse,
                [
                    thinking("hm", Some("c2ln")),
                    thinking("", Some("redacted:eA==")),
                    text("ok"),
                    call("a:1", "read", r#"{"path":"a"}"#),
                    call("a:2", "bash", r#""{\"comm""#),
                ],
            ),
            result("a:1", "read", [text("see"), image()]),
            result("a:2", "bash", []),
            user([text("and?")]),
        ];
        let picture = json!({"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "aW1n"}});
        let mark = json!({"type": "ephemeral"});
        let expected = [
            json!({"role": "user", "content": [
                {"type": "text", "text": "look"},
                picture,
                {"type": "text", "text": "now", "cache_control": mark},
            ]}),
            json!({"role": "assistant", "content": [
                {"type": "thinking", "thinking": "hm", "signature": "c2ln"},
                {"type": "redacted_thinking", "data": "eA=="},
                {"type": "text", "text": "ok"},
                {"type": "tool_use", "id": "a_1", "name": "read", "input": {"path": "a"}},
                {"type": "tool_use", "id": "a_2", "name": "bash", "input": {}},
            ]}),
            json!({"role": "user", "content": [
                {"type": "tool_result", "tool_use_id": "a_1", "content": [{"type": "text", "text": "see"}, picture]},
                {"type": "tool_result", "tool_use_id": "a_2", "content": "(nothing)"},
                {"type": "text", "text": "and?", "cache_control": mark},
            ]}),
        ];
        let body = seeing_model(API).body(&request(transcript));
        assert_eq!(lines(&body["messages"]), lines(&json!(expected)));
    }

    /// An answer of `by` with this block and a call, as the model `p/m` with an id is sent it.
    fn sent_back(id: &str, by: &str, block: Block) -> String {
        let model = thinking_model_at(API, "http://127.0.0.1:9", id);
        let content = [block, call("1", "bash", "{}")];
        let transcript = [
            user([text("1")]),
            assistant(by, StopReason::ToolUse, content),
            result("1", "bash", [text("x")]),
        ];
        let body = model.body(&request(transcript));
        let blocks = body["messages"][1]["content"].as_array().unwrap();
        let shown = |block: &Value| match block["type"].as_str().unwrap() {
            "thinking" => format!("{}:{}", block["thinking"], block["signature"]),
            kind => kind.to_owned(),
        };
        blocks.iter().map(shown).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn thoughts_go_back_as_models_take_them() {
        for (id, by, block, expected) in [
            ("claude-opus-4-5", "p/m", thinking("hm", Some("s")), r#""hm":"s" tool_use"#),
            ("claude-opus-4-5", "p/m", thinking("hm", None), "tool_use"),
            ("claude-opus-4-5", "p/m", thinking("hm", Some("")), "tool_use"),
            ("claude-opus-4-5", "other/m", thinking("hm", Some("s")), "tool_use"),
            // A server that proves nothing asks for no proof either.
            ("gemma", "p/m", thinking("hm", Some("")), r#""hm":"" tool_use"#),
            ("gemma", "p/m", thinking("hm", None), r#""hm":"" tool_use"#),
            ("gemma", "other/m", thinking("hm", None), "tool_use"),
            ("deepseek-v4-pro", "p/m", thinking("hm", None), r#""hm":"" tool_use"#),
            ("deepseek-v4-pro", "p/m", text("ok"), r#"" ":"" text tool_use"#),
            ("kimi-k2.6", "other/m", thinking("hm", Some("s")), r#"" ":"" tool_use"#),
        ] {
            assert_eq!(sent_back(id, by, block.clone()), expected, "{id} {by} {block:?}");
        }
    }

    #[test]
    fn the_budget_fits_into_the_output_limit() {
        use ThinkingLevel::{High, Low, Medium, Minimal, Off};
        for (id, limit, level, expected) in [
            ("m", None, Off, "null"),
            ("m", None, Minimal, r#"{"budget_tokens":1024,"type":"enabled"}"#),
            ("m", None, Low, r#"{"budget_tokens":4096,"type":"enabled"}"#),
            ("m", None, Medium, r#"{"budget_tokens":10240,"type":"enabled"}"#),
            ("m", None, High, r#"{"budget_tokens":15360,"type":"enabled"}"#),
            ("claude-opus-4-5", None, High, r#"{"budget_tokens":24576,"type":"enabled"}"#),
            ("m", Some(4_000), High, r#"{"budget_tokens":2976,"type":"enabled"}"#),
            ("m", Some(2_000), High, "null"),
            ("claude-opus-4-6", None, High, r#"{"display":"summarized","type":"adaptive"}"#),
            ("claude-opus-4-6", None, Off, "null"),
        ] {
            let mut model = thinking_model(API);
            model.config.id = id.to_owned();
            model.config.max_output_tokens = limit;
            let mut request = request([user([text("hi")])]);
            request.thinking_level = level;
            let body = model.body(&request);
            assert_eq!(body["thinking"].to_string(), expected, "{id} {limit:?} {level:?}");
            let budget = body["thinking"]["budget_tokens"].as_u64().unwrap_or(0);
            assert!(budget < body["max_tokens"].as_u64().unwrap_or(0));
        }
    }

    #[test]
    fn off_is_said_to_who_thinks_anyhow() {
        for (url, expected) in [
            ("https://api.deepseek.com/anthropic", r#"{"type":"disabled"}"#),
            ("https://api.anthropic.com", "null"),
        ] {
            let model = thinking_model_at(API, url, "m");
            let body = model.body(&request([user([text("hi")])]));
            assert_eq!(body["thinking"].to_string(), expected, "{url}");
        }
    }

    #[test]
    fn a_tool_loop_that_began_without_a_thought_goes_on_without() {
        let looping = |began_by: &str, thought: Block| {
            let mut request = request([
                user([text("hi")]),
                assistant(began_by, StopReason::ToolUse, [thought, call("1", "bash", "{}")]),
                result("1", "bash", [text("x")]),
            ]);
            request.thinking_level = ThinkingLevel::Low;
            thinking_model(API).body(&request)["thinking"]["type"].to_string()
        };
        assert_eq!(looping("p/m", thinking("hm", Some("c2ln"))), "\"enabled\"");
        assert_eq!(looping("p/m", thinking("", Some("redacted:eA=="))), "\"enabled\"");
        assert_eq!(looping("other/m", thinking("hm", Some("c2ln"))), "null");
        assert_eq!(looping("p/m", text("no thought")), "null");
    }
}
