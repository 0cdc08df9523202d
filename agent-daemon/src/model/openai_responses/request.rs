//! A request for a response. Pure.

use agent_core::{ModelRequest, ThinkingLevel, ToolSpec};
use serde_json::{Value, json};

use super::goes_back;
use crate::model::{
    history::{Part, Said, Turn, history},
    wire_format::Recipient,
};

/// The body of a request.
pub(super) fn body(model: &Recipient<'_>, request: &ModelRequest) -> Value {
    let turns = history(&request.messages, model.name, model.largest_picture);
    let mut body = json!({
        "model": model.config.id,
        "stream": true,
        // The transcript is ours; the server need not remember it.
        "store": false,
        "input": turns.iter().flat_map(items).collect::<Vec<_>>(),
    });
    if !request.system_prompt.trim().is_empty() {
        body["instructions"] = json!(request.system_prompt);
    }
    if !request.tools.is_empty() {
        body["tools"] = request.tools.iter().map(tool).collect();
    }
    if let Some(limit) = model.config.max_output_tokens {
        body["max_output_tokens"] = limit.into();
    }
    if model.config.thinking {
        // Also without a level: these models think anyhow, and want it back.
        body["include"] = json!(["reasoning.encrypted_content"]);
        if request.thinking_level != ThinkingLevel::Off {
            body["reasoning"] = json!({ "effort": request.thinking_level, "summary": "auto" });
        }
    }
    body
}

fn tool(spec: &ToolSpec) -> Value {
    json!({
        "type": "function",
        "name": spec.name,
        "description": spec.description,
        "parameters": spec.parameters,
        // The default would demand that every argument is required.
        "strict": false,
    })
}

fn items(turn: &Turn<'_>) -> Vec<Value> {
    match turn {
        Turn::User(parts) => vec![json!({ "role": "user", "content": content(parts) })],
        Turn::Assistant(said) => {
            // A thought that nothing follows is refused.
            let end = said.iter().rposition(|piece| !matches!(piece, Said::Thinking { .. }));
            said.iter().take(end.map_or(0, |end| end + 1)).filter_map(said_item).collect()
        }
        Turn::ToolResult { call_id, content, .. } => vec![json!({
            "type": "function_call_output",
            "call_id": call_id,
            "output": output(content),
        })],
    }
}

fn said_item(piece: &Said<'_>) -> Option<Value> {
    Some(match piece {
        Said::Text(text) => json!({
            "type": "message",
            "role": "assistant",
            "content": [{ "type": "output_text", "text": text }],
        }),
        Said::Call { id, name, arguments } => json!({
            "type": "function_call",
            "call_id": id,
            "name": name,
            "arguments": arguments.to_string(),
        }),
        // The signature is the whole item, as it came.
        Said::Thinking { signature, .. } => {
            serde_json::from_str((*signature)?).ok().filter(goes_back)?
        }
    })
}

fn content(parts: &[Part<'_>]) -> Vec<Value> {
    let part = |part: &Part<'_>| match part {
        Part::Text(text) => json!({ "type": "input_text", "text": text }),
        Part::Image { mime_type, data } => json!({
            "type": "input_image",
            "image_url": format!("data:{mime_type};base64,{data}"),
        }),
    };
    parts.iter().map(part).collect()
}

/// A string where there is only text: not every server takes a list.
fn output(parts: &[Part<'_>]) -> Value {
    let text = |part: &Part<'_>| match part {
        Part::Text(text) => Some(text.to_string()),
        Part::Image { .. } => None,
    };
    match parts.iter().map(text).collect::<Option<Vec<_>>>() {
        Some(texts) if texts.is_empty() => "(nothing)".into(),
        Some(texts) => texts.join("\n").into(),
        None => content(parts).into(),
    }
}

#[cfg(test)]
mod tests {
    use agent_core::StopReason;

    use super::*;
    use crate::model::{
        openai_responses::FORMAT,
        test_requests::{bash, lines, request, request_of, seeing_model, thinking_model},
        test_transcripts::{assistant, call, image, result, text, thinking, user},
        wire_format::WireFormat,
    };

    const API: &WireFormat = &FORMAT;

    #[test]
    fn everything_that_can_be_set_is_sent() {
        let mut model = thinking_model(API);
        model.config.max_output_tokens = Some(100);
        let mut request = request_of("be brief", [user([text("hi")])], [bash()]);
        request.thinking_level = ThinkingLevel::High;
        let mut expected = json!({
            "model": "m",
            "stream": true,
            "store": false,
            "instructions": "be brief",
            "input": [{ "role": "user", "content": [{ "type": "input_text", "text": "hi" }] }],
            "max_output_tokens": 100,
            "include": ["reasoning.encrypted_content"],
            "reasoning": { "effort": "high", "summary": "auto" },
            "tools": [{
                "type": "function",
                "name": "bash",
                "description": "The bash tool.",
                "parameters": bash().parameters,
                "strict": false,
            }],
        });
        assert_eq!(model.body(&request), expected);
        request.thinking_level = ThinkingLevel::Off;
        expected.as_object_mut().expect("it is one").remove("reasoning");
        assert_eq!(model.body(&request), expected);
    }

    #[test]
    fn thoughts_go_back_as_they_came() {
        let sealed = r#"{"encrypted_content":"x","id":"rs_1","summary":[],"type":"reasoning"}"#;
        let kept = r#"{"content":[],"id":"rs_2","summary":[],"type":"reasoning"}"#;
        let open = r#"{"content":[{"text":"so","type":"reasoning_text"}],"id":"rs_3","summary":[],"type":"reasoning"}"#;
        let transcript = [
            user([text("look"), image()]),
            assistant(
                "p/m",
                StopReason::ToolUse,
                [
                    thinking("hm", Some(sealed)),
                    thinking("hm", Some(kept)),
                    thinking("so", Some(open)),
                    thinking("hm", Some("reasoning_content")),
                    text("ok"),
                    call("call_1", "bash", r#"{"command":"ls"}"#),
                    call("call_2", "read", r#""{\"pa""#),
                    thinking("last", Some(sealed)),
                ],
            ),
            result("call_1", "bash", [text("a"), text("b")]),
            result("call_2", "read", [text("see"), image()]),
        ];
        let body = seeing_model(API).body(&request(transcript));
        let picture = json!({"type": "input_image", "image_url": "data:image/png;base64,aW1n"});
        let expected = json!([
            {"role": "user", "content": [{"type": "input_text", "text": "look"}, picture]},
            {"encrypted_content": "x", "id": "rs_1", "summary": [], "type": "reasoning"},
            {"content": [{"text": "so", "type": "reasoning_text"}], "id": "rs_3", "summary": [], "type": "reasoning"},
            {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "ok"}]},
            {"type": "function_call", "call_id": "call_1", "name": "bash", "arguments": "{\"command\":\"ls\"}"},
            {"type": "function_call", "call_id": "call_2", "name": "read", "arguments": "{}"},
            {"type": "function_call_output", "call_id": "call_1", "output": "a\nb"},
            {"type": "function_call_output", "call_id": "call_2", "output": [{"type": "input_text", "text": "see"}, picture]},
        ]);
        assert_eq!(lines(&body["input"]), lines(&expected));
    }
}
