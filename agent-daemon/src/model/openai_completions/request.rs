//! A request for chat completions. Pure.

use std::borrow::Cow;

use agent_core::{ModelRequest, ThinkingLevel, ToolSpec};
use serde_json::{Value, json};

use super::{dialect::Dialect, proofs::Proofs};
use crate::model::{
    abilities::{NO_THOUGHT, thinks_unless_told},
    history::{Part, Said, Turn, history},
    wire_format::Recipient,
};

/// The fields in which servers put reasoning; in this order, since some fill both.
pub(super) const REASONING_FIELDS: [&str; 2] = ["reasoning_content", "reasoning"];

/// The body of a request.
pub(super) fn body(model: &Recipient<'_>, request: &ModelRequest) -> Value {
    let turns = history(&request.messages, model.name, model.largest_picture);
    let dialect = Dialect::of(model);
    let mut body = json!({
        "model": model.config.id,
        "stream": true,
        "stream_options": { "include_usage": true },
        "messages": messages(&request.system_prompt, &turns, dialect),
    });
    if !request.tools.is_empty() {
        body["tools"] = request.tools.iter().map(tool).collect();
    }
    if let Some(limit) = model.config.max_output_tokens {
        body[dialect.limit_field] = limit.into();
    }
    if dialect.asks_for_cache {
        body["cache_control"] = json!({ "type": "ephemeral" });
    }
    if model.config.thinking {
        match request.thinking_level {
            ThinkingLevel::Off if thinks_unless_told(model.url) => {
                body["thinking"] = json!({ "type": "disabled" });
            }
            ThinkingLevel::Off => {}
            level => body["reasoning_effort"] = json!(level),
        }
    }
    body
}

fn tool(spec: &ToolSpec) -> Value {
    json!({
        "type": "function",
        "function": {
            "name": spec.name,
            "description": spec.description,
            "parameters": spec.parameters,
        },
    })
}

fn messages(system_prompt: &str, turns: &[Turn<'_>], dialect: Dialect) -> Vec<Value> {
    let mut messages = Vec::with_capacity(turns.len() + 1);
    if !system_prompt.trim().is_empty() {
        messages.push(json!({ "role": "system", "content": system_prompt }));
    }
    // What people say in a row is one message: the templates of many local models refuse two.
    // Pictures of tool results are a part of it: nothing may come between results.
    let mut asked: Vec<Part<'_>> = Vec::new();
    for turn in turns {
        match turn {
            Turn::User(parts) => asked.extend(parts.iter().cloned()),
            Turn::Assistant(said) => {
                ask(&mut asked, &mut messages, dialect);
                messages.push(assistant(said, dialect));
            }
            Turn::ToolResult { call_id, tool, content, .. } => {
                messages.push(json!({
                    "role": "tool",
                    "tool_call_id": dialect.call_id(call_id),
                    "content": words(content),
                }));
                asked.extend(pictures_of(tool, content));
            }
        }
    }
    ask(&mut asked, &mut messages, dialect);
    messages
}

/// Adds what people said, if they said anything.
fn ask(asked: &mut Vec<Part<'_>>, messages: &mut Vec<Value>, dialect: Dialect) {
    let parts = std::mem::take(asked);
    if parts.is_empty() {
        return;
    }
    if dialect.mistral && messages.last().is_some_and(|last| last["role"] == "tool") {
        messages.push(json!({ "role": "assistant", "content": "I have the results." }));
    }
    messages.push(json!({ "role": "user", "content": content(&parts) }));
}

/// One answer, with the reasoning of the model itself: some servers need it, and those that do
/// not leave it out by themselves.
fn assistant(said: &[Said<'_>], dialect: Dialect) -> Value {
    let mut message = json!({ "role": "assistant", "content": null });
    let mut words = Vec::new();
    let mut calls = Vec::new();
    let mut proofs = Proofs::default();
    for piece in said {
        match piece {
            Said::Text(text) => words.push(*text),
            Said::Call { id, name, arguments } => calls.push(json!({
                "id": dialect.call_id(id),
                "type": "function",
                "function": { "name": name, "arguments": arguments.to_string() },
            })),
            // The signature is the name of the field that the thought came in, or its proof.
            Said::Thinking { thinking, signature: Some(field) }
                if REASONING_FIELDS.contains(field) =>
            {
                let so_far = message[*field].as_str().unwrap_or_default().to_owned();
                message[*field] = (so_far + thinking).into();
            }
            Said::Thinking { signature, .. } => {
                proofs = signature.and_then(Proofs::of_signature).unwrap_or(proofs);
            }
        }
    }
    if !words.is_empty() {
        message["content"] = words.join("\n").into();
    }
    if !calls.is_empty() {
        message["tool_calls"] = calls.into();
    }
    proofs.write(&mut message);
    complete(&mut message, dialect);
    message
}

/// Fills in what a server insists on and another model's answer does not have.
fn complete(message: &mut Value, dialect: Dialect) {
    let has_reasoning = REASONING_FIELDS
        .iter()
        .chain(&["reasoning_details"])
        .any(|field| message.get(*field).is_some());
    if dialect.reasoning_everywhere && !has_reasoning {
        message["reasoning_content"] = NO_THOUGHT.into();
    }
    // Signatures are looked for on the first of parallel calls only.
    if dialect.signed_calls
        && let Some(call) = message.pointer_mut("/tool_calls/0")
        && call.get("extra_content").is_none()
    {
        // Google's own word for calls that another model made.
        call["extra_content"] =
            json!({ "google": { "thought_signature": "skip_thought_signature_validator" } });
    }
}

/// A string where there is only text: the templates of many local servers take nothing else.
fn content(parts: &[Part<'_>]) -> Value {
    if parts.iter().all(|part| matches!(part, Part::Text(_))) {
        return words(parts).into();
    }
    parts.iter().map(part).collect()
}

fn part(part: &Part<'_>) -> Value {
    match part {
        Part::Text(text) => json!({ "type": "text", "text": text }),
        Part::Image { mime_type, data } => json!({
            "type": "image_url",
            "image_url": { "url": format!("data:{mime_type};base64,{data}") },
        }),
    }
}

/// The text of a tool result; never empty, which some servers refuse.
fn words<'a>(parts: &'a [Part<'_>]) -> Cow<'a, str> {
    let mut texts = parts.iter().filter_map(|part| match part {
        Part::Text(text) => Some(text.as_ref()),
        Part::Image { .. } => None,
    });
    match (texts.next(), texts.next()) {
        (None, _) if parts.is_empty() => "(nothing)".into(),
        (None, _) => "(a picture, shown below)".into(),
        (Some(text), None) => text.into(),
        (Some(first), Some(second)) => {
            [first, second].into_iter().chain(texts).collect::<Vec<_>>().join("\n").into()
        }
    }
}

/// Tool messages take no pictures; a user message does.
fn pictures_of<'a>(tool: &str, content: &[Part<'a>]) -> Vec<Part<'a>> {
    let pictures = content.iter().filter(|part| matches!(part, Part::Image { .. })).cloned();
    let mut shown: Vec<_> = pictures.collect();
    if !shown.is_empty() {
        shown.insert(0, Part::Text(format!("From the result of {tool}:").into()));
    }
    shown
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use agent_core::{Block, StopReason};

    use super::*;
    use crate::model::{
        openai_completions::FORMAT,
        test_requests::{
            bash, lines, request, request_of, seeing_model, thinking_model, thinking_model_at,
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
            "stream": true,
            "stream_options": { "include_usage": true },
            "messages": [{ "role": "user", "content": "hi" }],
        });
        assert_eq!(body, expected);
    }

    #[test]
    fn everything_that_can_be_set_is_sent() {
        let mut model = thinking_model(API);
        model.config.max_output_tokens = Some(100);
        let mut request = request_of("be brief", [user([text("a"), text("b")])], [bash()]);
        request.thinking_level = ThinkingLevel::Minimal;
        let body = model.body(&request);
        assert_eq!(body["max_tokens"], 100);
        assert_eq!(body["reasoning_effort"], "minimal");
        assert_eq!(body["tools"][0]["function"]["name"], "bash");
        assert_eq!(body["tools"][0]["function"]["parameters"], bash().parameters);
        assert_eq!(
            lines(&body["messages"]),
            "{\"content\":\"be brief\",\"role\":\"system\"}\n{\"content\":\"a\\nb\",\"role\":\"user\"}\n"
        );
    }

    #[test]
    fn calls_and_results_are_paired_and_pictures_follow_the_batch() {
        let transcript = [
            user([text("look"), image()]),
            assistant(
                "p/m",
                StopReason::ToolUse,
                [
                    thinking("hm", Some("reasoning")),
                    text("ok"),
                    call("1", "read", r#"{"path":"a"}"#),
                    call("2", "bash", r#""{\"comm""#),
                ],
            ),
            result("1", "read", [image()]),
            result("2", "bash", []),
            user([text("and?")]),
        ];
        let body = seeing_model(API).body(&request(transcript));
        let expected = [
            json!({"role": "user", "content": [
                {"type": "text", "text": "look"},
                {"type": "image_url", "image_url": {"url": "data:image/png;base64,aW1n"}},
            ]}),
            json!({"role": "assistant", "content": "ok", "reasoning": "hm", "tool_calls": [
                {"id": "1", "type": "function", "function": {"name": "read", "arguments": "{\"path\":\"a\"}"}},
                {"id": "2", "type": "function", "function": {"name": "bash", "arguments": "{}"}},
            ]}),
            json!({"role": "tool", "tool_call_id": "1", "content": "(a picture, shown below)"}),
            json!({"role": "tool", "tool_call_id": "2", "content": "(nothing)"}),
            json!({"role": "user", "content": [
                {"type": "text", "text": "From the result of read:"},
                {"type": "image_url", "image_url": {"url": "data:image/png;base64,aW1n"}},
                {"type": "text", "text": "and?"},
            ]}),
        ];
        assert_eq!(body["messages"], json!(expected));
    }

    #[test]
    fn mistral_gets_its_ids_and_an_answer_to_every_result() {
        let calls = [call("call_1", "bash", "{}"), call("aB3dE6gH9", "bash", "{}")];
        let transcript = [
            user([text("1")]),
            assistant("other/m", StopReason::ToolUse, calls),
            result("call_1", "bash", [text("x")]),
            result("aB3dE6gH9", "bash", [text("y")]),
            user([text("2")]),
        ];
        let mut body =
            thinking_model_at(API, "https://api.mistral.ai/v1", "m").body(&request(transcript));
        let calls = body["messages"][1]["tool_calls"].take();
        let (first, second) = (&calls[0]["id"], &calls[1]["id"]);
        assert_eq!((first.as_str().unwrap().len(), second), (9, &json!("aB3dE6gH9")));
        let expected = json!([
            {"role": "user", "content": "1"},
            {"role": "assistant", "content": null, "tool_calls": null},
            {"role": "tool", "tool_call_id": first, "content": "x"},
            {"role": "tool", "tool_call_id": second, "content": "y"},
            {"role": "assistant", "content": "I have the results."},
            {"role": "user", "content": "2"},
        ]);
        assert_eq!(body["messages"], expected);
    }

    #[test]
    fn off_is_said_to_who_thinks_anyhow() {
        let thinking_of = |url: &str, level: ThinkingLevel| {
            let mut request = request([user([text("hi")])]);
            request.thinking_level = level;
            let body = thinking_model_at(API, url, "m").body(&request);
            format!("{} {}", body["thinking"]["type"], body["reasoning_effort"])
        };
        for (url, level, expected) in [
            ("https://api.deepseek.com", ThinkingLevel::Off, "\"disabled\" null"),
            ("https://api.deepseek.com", ThinkingLevel::High, "null \"high\""),
            ("http://127.0.0.1:8080/v1", ThinkingLevel::Off, "null null"),
        ] {
            assert_eq!(thinking_of(url, level), expected, "{url} {level:?}");
        }
    }

    #[test]
    fn a_cache_is_asked_for_where_there_is_none_otherwise() {
        let cache_of = |id: &str| {
            let model = thinking_model_at(API, "https://openrouter.ai/api/v1", id);
            model.body(&request([user([text("hi")])]))["cache_control"].take()
        };
        assert_eq!(cache_of("anthropic/claude-opus-5"), json!({ "type": "ephemeral" }));
        assert_eq!(cache_of("openai/gpt-5"), Value::Null);
    }

    #[test]
    fn people_who_speak_in_a_row_are_one_message() {
        let transcript = [
            user([text("1")]),
            assistant("p/m", StopReason::Aborted, []),
            user([text("2")]),
            assistant("p/m", StopReason::Stop, [text("ok")]),
            user([image()]),
            user([text("3")]),
        ];
        let body = seeing_model(API).body(&request(transcript));
        let expected = json!([
            {"role": "user", "content": "1\n2"},
            {"role": "assistant", "content": "ok"},
            {"role": "user", "content": [
                {"type": "image_url", "image_url": {"url": "data:image/png;base64,aW1n"}},
                {"type": "text", "text": "3"},
            ]},
        ]);
        assert_eq!(body["messages"], expected);
    }

    const DETAILS: &str = r#"{"reasoning_details":[{"type":"reasoning.text","text":"a"}]}"#;
    const EXTRA: &str = r#"{"extra_content":{"0":{"google":{"thought_signature":"s"}}}}"#;
    const SKIP: &str = r#"{"google":{"thought_signature":"skip_thought_signature_validator"}}"#;

    /// What an earlier answer of `by`, with these thoughts and a call, is sent as to a model, with
    /// a new question behind it.
    fn sent_back(to: (&str, &str), by: &str, thoughts: &[Block]) -> Value {
        let model = thinking_model_at(API, to.0, to.1);
        let mut content = thoughts.to_vec();
        content.push(call("1", "bash", "{}"));
        let transcript = [
            user([text("1")]),
            assistant(by, StopReason::ToolUse, content),
            result("1", "bash", [text("x")]),
            user([text("2")]),
        ];
        let mut sent = model.body(&request(transcript))["messages"][1].take();
        sent["tool_calls"] = sent["tool_calls"][0]["extra_content"].take();
        sent
    }

    #[test]
    fn thoughts_go_back_as_servers_insist() {
        const SOME: (&str, &str) = ("http://127.0.0.1:9", "m");
        const GEMINI: (&str, &str) =
            ("https://generativelanguage.googleapis.com/v1beta/openai", "gemini-3-pro");
        const KIMI: (&str, &str) = ("https://api.moonshot.ai/v1", "kimi-k2.6");
        let plain: &[Block] =
            &[thinking("a", Some("reasoning_content")), thinking("b", Some("reasoning_content"))];
        let detailed: &[Block] = &[thinking("a", Some("reasoning")), thinking("", Some(DETAILS))];
        let signed: &[Block] = &[thinking("", Some(EXTRA))];
        let nothing = r#"{"content":null,"role":"assistant","tool_calls":null}"#;
        for (to, by, thoughts, expected) in [
            (
                SOME,
                "p/m",
                plain,
                r#"{"content":null,"reasoning_content":"ab","role":"assistant","tool_calls":null}"#,
            ),
            (SOME, "other/m", plain, nothing),
            (
                SOME,
                "p/m",
                detailed,
                r#"{"content":null,"reasoning":"a","reasoning_details":[{"text":"a","type":"reasoning.text"}],"role":"assistant","tool_calls":null}"#,
            ),
            (SOME, "other/m", detailed, nothing),
            (
                KIMI,
                "p/m",
                plain,
                r#"{"content":null,"reasoning_content":"ab","role":"assistant","tool_calls":null}"#,
            ),
            (
                KIMI,
                "p/m",
                &[],
                r#"{"content":null,"reasoning_content":" ","role":"assistant","tool_calls":null}"#,
            ),
            (
                KIMI,
                "other/m",
                plain,
                r#"{"content":null,"reasoning_content":" ","role":"assistant","tool_calls":null}"#,
            ),
            (
                GEMINI,
                "p/m",
                signed,
                r#"{"content":null,"role":"assistant","tool_calls":{"google":{"thought_signature":"s"}}}"#,
            ),
            (
                GEMINI,
                "other/m",
                signed,
                &format!(r#"{{"content":null,"role":"assistant","tool_calls":{SKIP}}}"#),
            ),
        ] {
            assert_eq!(sent_back(to, by, thoughts).to_string(), expected, "{} {by}", to.1);
        }
    }
}
