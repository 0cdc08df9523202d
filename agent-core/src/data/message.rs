//! The transcript's data: messages and the content blocks that they are made of.
//!
//! Owns: the shapes of the contract's section 3, as the wire has them.
//! Never: reads a clock or makes an id; whoever publishes a message sets both.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// One entry of the transcript.
///
/// Serialises to the contract's `Message`, with `role` telling the three apart.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(tag = "role", rename_all = "camelCase")]
pub enum Message {
    /// What a person, or a program on a person's behalf, said.
    User(UserMessage),
    /// What the model answered.
    Assistant(AssistantMessage),
    /// What one tool call of the assistant message before it came to.
    ToolResult(ToolResultMessage),
}

/// A message to the model.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct UserMessage {
    /// Given when the message is accepted and kept ever after.
    pub id: MessageId,
    /// Text and images, in order.
    pub content: Vec<Block>,
    /// Milliseconds since 1970, when it joined the transcript.
    pub timestamp: u64,
    /// The client that sent it, where there was one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub origin: Option<Origin>,
}

/// One answer of the model, complete or cut short.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AssistantMessage {
    /// Unique within the agent.
    pub id: MessageId,
    /// Text, thinking and tool calls in the order in which the model began them.
    pub content: Vec<Block>,
    /// Milliseconds since 1970.
    pub timestamp: u64,
    /// The model that answered, as `PROVIDER/ID`.
    pub model: String,
    /// Why the answer ended.
    pub stop_reason: StopReason,
    /// What the answer cost.
    pub usage: Usage,
    /// With [`StopReason::Error`], what went wrong and what can be done.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error_message: Option<String>,
}

/// The result that pairs with one tool call.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ToolResultMessage {
    /// Unique within the agent.
    pub id: MessageId,
    /// The call that this answers.
    pub tool_call_id: String,
    /// The tool that was asked for, also when there is none of that name.
    pub tool_name: String,
    /// What the model gets to see.
    pub content: Vec<Block>,
    /// Whether the call failed, was refused or never ran.
    pub is_error: bool,
    /// Milliseconds since 1970.
    pub timestamp: u64,
    /// What people and programs may want to see besides; the model never does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub details: Option<Value>,
}

/// One piece of a message's content.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(tag = "type", rename_all = "camelCase", rename_all_fields = "camelCase")]
pub enum Block {
    /// Plain text.
    Text {
        /// The text.
        text: String,
    },
    /// A picture.
    Image {
        /// Such as `image/png`.
        mime_type: String,
        /// The bytes in base64. Shared, since images are large and messages are copied.
        data: Arc<str>,
    },
    /// What the model thought before it answered.
    Thinking {
        /// The text of the thought; may be empty where a provider hides it.
        thinking: String,
        /// The provider's proof of it, to be sent back unchanged.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        signature: Option<String>,
    },
    /// A tool that the model asked for.
    ToolCall(ToolCall),
}

/// One call that the model asked for.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ToolCall {
    /// Unique within its message.
    pub id: String,
    /// The tool's name, as the model gave it.
    pub name: String,
    /// A JSON object; a string where what the model wrote is none.
    pub arguments: Value,
}

/// Tokens.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema,
)]
#[serde(rename_all = "camelCase", default)]
pub struct Usage {
    /// Read by the model, not from a cache.
    pub input: u64,
    /// Written by the model.
    pub output: u64,
    /// Read from the provider's cache.
    pub cache_read: u64,
    /// Written to the provider's cache.
    pub cache_write: u64,
}

impl Usage {
    /// Adds another request's tokens.
    pub fn add(&mut self, other: Usage) {
        self.input = self.input.saturating_add(other.input);
        self.output = self.output.saturating_add(other.output);
        self.cache_read = self.cache_read.saturating_add(other.cache_read);
        self.cache_write = self.cache_write.saturating_add(other.cache_write);
    }
}

/// Why an assistant message, and with it a turn, ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum StopReason {
    /// The model had said what it wanted to say.
    Stop,
    /// The output limit cut it off.
    Length,
    /// It waits for the results of its tool calls.
    ToolUse,
    /// The request failed.
    Error,
    /// The run was aborted.
    Aborted,
}

/// Who sent a message, so that a client recognises its own.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Origin {
    /// The name that the client gave itself.
    pub client: String,
    /// The number of its connection.
    pub connection: u64,
    /// The client's own id for the message.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client_message_id: Option<String>,
}

/// Names one message for as long as its agent lives.
pub type MessageId = Arc<str>;

impl Message {
    /// The message's id.
    pub fn id(&self) -> &MessageId {
        match self {
            Message::User(message) => &message.id,
            Message::Assistant(message) => &message.id,
            Message::ToolResult(message) => &message.id,
        }
    }

    /// The message's content.
    pub fn content(&self) -> &[Block] {
        match self {
            Message::User(message) => &message.content,
            Message::Assistant(message) => &message.content,
            Message::ToolResult(message) => &message.content,
        }
    }

    /// All text blocks, joined by line feeds.
    pub fn text(&self) -> String {
        text_of(self.content())
    }
}

impl AssistantMessage {
    /// The calls that the message asks for, in order.
    pub fn tool_calls(&self) -> impl Iterator<Item = &ToolCall> {
        self.content.iter().filter_map(|block| match block {
            Block::ToolCall(call) => Some(call),
            _ => None,
        })
    }
}

impl Block {
    /// A text block.
    pub fn text(text: impl Into<String>) -> Self {
        Block::Text { text: text.into() }
    }

    /// An image block; `data` is base64.
    pub fn image(mime_type: impl Into<String>, data: impl Into<Arc<str>>) -> Self {
        Block::Image { mime_type: mime_type.into(), data: data.into() }
    }

    /// How many bytes of content the block holds.
    pub fn len(&self) -> usize {
        match self {
            Block::Text { text } => text.len(),
            Block::Image { mime_type, data } => mime_type.len() + data.len(),
            Block::Thinking { thinking, signature } => {
                thinking.len() + signature.as_ref().map_or(0, String::len)
            }
            Block::ToolCall(call) => call.id.len() + call.name.len(),
        }
    }

    /// Whether the block has no content at all.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Whether the block says nothing: it is empty, or a text of nothing but white space and
    /// characters that are never seen. Providers refuse such a message, or never get to see it.
    pub fn is_blank(&self) -> bool {
        match self {
            Block::Text { text } => text.chars().all(is_unseen),
            block => block.is_empty(),
        }
    }
}

/// White space, control characters, zero-width spaces and joiners, byte order marks.
fn is_unseen(letter: char) -> bool {
    let has_no_width = matches!(letter, '\u{200b}'..='\u{200d}' | '\u{2060}' | '\u{feff}');
    letter.is_whitespace() || letter.is_control() || has_no_width
}

/// The text blocks of some content, joined by line feeds.
pub fn text_of(content: &[Block]) -> String {
    let mut text = String::new();
    for block in content {
        if let Block::Text { text: more } = block {
            if !text.is_empty() {
                text.push('\n');
            }
            text.push_str(more);
        }
    }
    text
}

/// What a user says: a string, or blocks of text and images.
#[derive(Clone, Debug, PartialEq)]
pub struct Input {
    /// The blocks, in order.
    pub content: Vec<Block>,
    /// The client that sent it.
    pub origin: Option<Origin>,
}

impl From<Vec<Block>> for Input {
    fn from(content: Vec<Block>) -> Self {
        Input { content, origin: None }
    }
}

impl From<String> for Input {
    fn from(text: String) -> Self {
        vec![Block::text(text)].into()
    }
}

impl From<&str> for Input {
    fn from(text: &str) -> Self {
        text.to_owned().into()
    }
}
