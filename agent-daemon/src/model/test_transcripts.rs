//! Short spellings of messages, for the tests of this directory.

use agent_core::{
    AssistantMessage, Block, Message, StopReason, ToolCall, ToolResultMessage, Usage, UserMessage,
};

pub(super) fn text(text: &str) -> Block {
    Block::text(text)
}

pub(super) fn image() -> Block {
    Block::image("image/png", "aW1n")
}

pub(super) fn thinking(thinking: &str, signature: Option<&str>) -> Block {
    Block::Thinking { thinking: thinking.to_owned(), signature: signature.map(str::to_owned) }
}

pub(super) fn call(id: &str, name: &str, arguments: &str) -> Block {
    let arguments = serde_json::from_str(arguments).expect("a test's arguments are JSON");
    Block::ToolCall(ToolCall { id: id.to_owned(), name: name.to_owned(), arguments })
}

pub(super) fn user(content: impl Into<Vec<Block>>) -> Message {
    Message::User(UserMessage {
        id: "m".into(),
        content: content.into(),
        timestamp: 0,
        origin: None,
    })
}

pub(super) fn assistant(
    model: &str,
    stop_reason: StopReason,
    content: impl Into<Vec<Block>>,
) -> Message {
    Message::Assistant(AssistantMessage {
        id: "m".into(),
        content: content.into(),
        timestamp: 0,
        model: model.to_owned(),
        stop_reason,
        usage: Usage::default(),
        error_message: None,
    })
}

pub(super) fn result(call_id: &str, tool: &str, content: impl Into<Vec<Block>>) -> Message {
    Message::ToolResult(ToolResultMessage {
        id: "m".into(),
        tool_call_id: call_id.to_owned(),
        tool_name: tool.to_owned(),
        content: content.into(),
        is_error: false,
        timestamp: 0,
        details: None,
    })
}
