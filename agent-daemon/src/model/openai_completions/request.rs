//! A request for chat completions. Pure.

use std::borrow::Cow;

use agent_core::{ModelRequest, ThinkingLevel, ToolSpec};
use serde_json::{Value, json};

use crate::model::{
    history::{Part, Said, Turn, history},
    remote::RemoteModel,
};

/// The fields in which servers put reasoning; in this order, since some fill both.
pub(super) const REASONING_FIELDS: [&str; 2] = ["reasoning_content", "reasoning"];

/// The body of a request.
pub(in crate::model) fn body(model: &RemoteModel, request: &ModelRequest) -> Value {
    let turns = history(&request.messages, &model.name, model.config.images);
    let mut body = json!({
        "model": model.config.id,
        "stream": true,
        "stream_options": { "include_usage": true },
        "messages": messages(&request.system_prompt, &turns),
    });
    if !request.tools.is_empty() {
        body["tools"] = request.tools.iter().map(tool).collect();
    }
    if let Some(limit) = model.config.max_output_tokens {
        body[limit_field(model)] = limit.into();
    }
    if model.config.thinking && request.thinking_level != ThinkingLevel::Off {
        body["reasoning_effort"] = json!(request.thinking_level);
    }
    body
}

/// OpenAI's own reasoning models refuse the old name; many other servers know no other.
fn limit_field(model: &RemoteModel) -> &'static str {
    let host = model.provider.url.host_str().unwrap_or_default();
    let is_openai = ["api.openai.com", ".openai.azure.com"].iter().any(|own| host.ends_with(own));
    if is_openai { "max_completion_tokens" } else { "max_tokens" }
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

fn messages(system_prompt: &str, turns: &[Turn<'_>]) -> Vec<Value> {
    let mut messages = Vec::with_capacity(turns.len() + 1);
    if !system_prompt.trim().is_empty() {
        messages.push(json!({ "role": "system", "content": system_prompt }));
    }
    let last_user = turns.iter().rposition(|turn| matches!(turn, Turn::User(_)));
    // Pictures of tool results wait for the end of the batch: nothing may come between results.
    let mut pictures = Vec::new();
    for (index, turn) in turns.iter().enumerate() {
        if !matches!(turn, Turn::ToolResult { .. }) {
            messages.extend(shown_pictures(&mut pictures));
        }
        match turn {
            Turn::User(parts) => {
                messages.push(json!({ "role": "user", "content": content(parts) }))
            }
            Turn::Assistant(said) => {
                messages.push(assistant(said, last_user.is_none_or(|last_user| index > last_user)));
            }
            Turn::ToolResult { call_id, tool, content, .. } => {
                messages.push(json!({
                    "role": "tool",
                    "tool_call_id": call_id,
                    "content": words(content),
                }));
                pictures.extend(pictures_of(tool, content));
            }
        }
    }
    messages.extend(shown_pictures(&mut pictures));
    messages
}

/// One answer. Its reasoning goes back only within the tool loop that it belongs to: some models
/// need it there, and some servers refuse it anywhere else.
fn assistant(said: &[Said<'_>], with_reasoning: bool) -> Value {
    let mut message = json!({ "role": "assistant", "content": null });
    let mut words = Vec::new();
    let mut calls = Vec::new();
    for piece in said {
        match piece {
            Said::Text(text) => words.push(*text),
            Said::Call { id, name, arguments } => calls.push(json!({
                "id": id,
                "type": "function",
                "function": { "name": name, "arguments": arguments.to_string() },
            })),
            // The signature is the name of the field that the thought came in.
            Said::Thinking { thinking, signature: Some(field) }
                if with_reasoning && REASONING_FIELDS.contains(field) =>
            {
                let so_far = message[*field].as_str().unwrap_or_default().to_owned();
                message[*field] = (so_far + thinking).into();
            }
            Said::Thinking { .. } => {}
        }
    }
    if !words.is_empty() {
        message["content"] = words.join("\n").into();
    }
    if !calls.is_empty() {
        message["tool_calls"] = calls.into();
    }
    message
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
fn pictures_of(tool: &str, content: &[Part<'_>]) -> Vec<Value> {
    let pictures: Vec<Value> =
        content.iter().filter(|part| matches!(part, Part::Image { .. })).map(part).collect();
    if pictures.is_empty() {
        return pictures;
    }
    let words = json!({ "type": "text", "text": format!("From the result of {tool}:") });
    std::iter::once(words).chain(pictures).collect()
}

fn shown_pictures(pictures: &mut Vec<Value>) -> Option<Value> {
    let content = std::mem::take(pictures);
    (!content.is_empty()).then(|| json!({ "role": "user", "content": content }))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use agent_core::StopReason;

    use super::*;
    use crate::model::{
        Api,
        test_requests::{bash, lines, request, request_of, seeing_model, thinking_model},
        test_transcripts::{assistant, call, image, result, text, thinking, user},
    };

    const API: Api = Api::OpenaiCompletions;

    #[test]
    fn a_request_says_no_more_than_it_must() {
        let body = body(&thinking_model(API), &request([user([text("hi")])]));
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
        let body = body(&model, &request);
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
    fn openai_itself_wants_the_new_name_of_the_limit() {
        let mut model = thinking_model(API);
        for (url, expected) in [
            ("https://api.openai.com/v1", "max_completion_tokens"),
            ("https://x.openai.azure.com/openai/v1", "max_completion_tokens"),
            ("https://openrouter.ai/api/v1", "max_tokens"),
        ] {
            std::sync::Arc::get_mut(&mut model.provider).unwrap().url = url.parse().unwrap();
            assert_eq!(limit_field(&model), expected);
        }
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
        let body = body(&seeing_model(API), &request(transcript));
        let expected = [
            json!({"role": "user", "content": [
                {"type": "text", "text": "look"},
                {"type": "image_url", "image_url": {"url": "data:image/png;base64,aW1n"}},
            ]}),
            json!({"role": "assistant", "content": "ok", "tool_calls": [
                {"id": "1", "type": "function", "function": {"name": "read", "arguments": "{\"path\":\"a\"}"}},
                {"id": "2", "type": "function", "function": {"name": "bash", "arguments": "{}"}},
            ]}),
            json!({"role": "tool", "tool_call_id": "1", "content": "(a picture, shown below)"}),
            json!({"role": "tool", "tool_call_id": "2", "content": "(nothing)"}),
            json!({"role": "user", "content": [
                {"type": "text", "text": "From the result of read:"},
                {"type": "image_url", "image_url": {"url": "data:image/png;base64,aW1n"}},
            ]}),
            json!({"role": "user", "content": "and?"}),
        ];
        assert_eq!(body["messages"], json!(expected));
    }

    #[test]
    fn reasoning_goes_back_within_its_tool_loop_only() {
        let answer = |id: &str| {
            assistant(
                "p/m",
                StopReason::ToolUse,
                [
                    thinking("a", Some("reasoning_content")),
                    thinking("b", Some("reasoning_content")),
                    call(id, "bash", "{}"),
                ],
            )
        };
        let transcript = [
            user([text("1")]),
            answer("1"),
            result("1", "bash", [text("x")]),
            user([text("2")]),
            answer("2"),
            result("2", "bash", [text("x")]),
        ];
        let body = body(&thinking_model(API), &request(transcript));
        assert_eq!(body["messages"][1].get("reasoning_content"), None);
        assert_eq!(body["messages"][4]["reasoning_content"], "ab");
    }
}
