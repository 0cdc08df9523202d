//! What a screen may show of an agent at one moment.
//!
//! Owns: [`AgentState`], in structures that make a copy O(1) (C4.5).
//! Never: decides anything; `reduce` derives it from events, and nothing else writes it.

use std::sync::Arc;

use rpds::VectorSync;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::Value;

use crate::data::{
    config::Config,
    event::{EndReason, Queued, RunId},
    message::{Block, ToolCall, Usage},
    transcript::{GrowingText, Transcript},
};

/// An agent's public state: what its events so far add up to.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AgentState {
    /// Whether a run is active, and which.
    #[serde(flatten)]
    pub activity: Activity,
    /// What the next model request will see.
    #[schemars(with = "Vec<crate::data::message::Message>")]
    pub messages: Transcript,
    /// The index of `messages[0]`, when not all are given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub messages_from: Option<usize>,
    /// The answer that the model is in the middle of.
    pub partial: Option<Partial>,
    /// Calls that began and have not ended.
    pub pending_tool_call_ids: Arc<Vec<Arc<str>>>,
    /// Messages for the next model request.
    pub steering: Arc<Vec<Arc<Queued>>>,
    /// Messages for when the run would stop.
    pub follow_up: Arc<Vec<Arc<Queued>>>,
    /// How the last run ended.
    pub last_run: Option<Arc<LastRun>>,
    /// What went wrong beside the runs; the oldest are dropped.
    pub diagnostics: Arc<Vec<Arc<str>>>,
    /// What all runs cost together.
    pub usage: Usage,
    /// The settings.
    pub config: Arc<Config>,
}

/// The state after the event with number `seq`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Snapshot {
    /// The newest event that the state knows.
    pub seq: u64,
    /// The state.
    pub state: AgentState,
}

/// Whether a run is active. On the wire: `status` and `activeRunId`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(tag = "status", rename_all = "lowercase", rename_all_fields = "camelCase")]
pub enum Activity {
    /// No run is active.
    Idle {
        /// Always null.
        #[serde(rename = "activeRunId", default)]
        none: (),
    },
    /// A run is active.
    Running {
        /// Its number.
        active_run_id: RunId,
    },
}

impl Default for Activity {
    fn default() -> Self {
        Activity::Idle { none: () }
    }
}

/// How a run ended.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct LastRun {
    /// The run.
    pub run_id: RunId,
    /// Why it ended.
    pub reason: EndReason,
    /// What went wrong.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error_message: Option<String>,
}

/// A message that is still being streamed.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct Partial {
    /// The blocks so far. A delta's `contentIndex` is an index into them.
    #[serde(serialize_with = "serialize_blocks", deserialize_with = "deserialize_blocks")]
    #[schemars(with = "Vec<Block>")]
    pub content: VectorSync<PartialBlock>,
}

/// A block that is still being streamed. Serialises as the [`Block`] that it would be now.
#[derive(Clone, Debug, PartialEq)]
pub enum PartialBlock {
    /// Text so far.
    Text(GrowingText),
    /// Thinking so far.
    Thinking(GrowingText),
    /// A call whose arguments are still text.
    ToolCall {
        /// The call.
        id: Arc<str>,
        /// The tool.
        name: Arc<str>,
        /// JSON text so far.
        arguments: GrowingText,
    },
    /// A block that no delta grows.
    Whole(Arc<Block>),
}

impl AgentState {
    /// The state of an agent to which nothing has happened.
    pub fn new(config: Config, messages: Transcript) -> Self {
        AgentState {
            activity: Activity::default(),
            messages,
            messages_from: None,
            partial: None,
            pending_tool_call_ids: Arc::default(),
            steering: Arc::default(),
            follow_up: Arc::default(),
            last_run: None,
            diagnostics: Arc::default(),
            usage: Usage::default(),
            config: Arc::new(config),
        }
    }

    /// How many messages the whole transcript has, also where the state holds only its end.
    pub fn transcript_len(&self) -> usize {
        self.messages_from.unwrap_or(0) + self.messages.len()
    }

    /// The run that is active.
    pub fn active_run(&self) -> Option<RunId> {
        match self.activity {
            Activity::Idle { .. } => None,
            Activity::Running { active_run_id } => Some(active_run_id),
        }
    }
}

impl PartialBlock {
    fn to_block(&self) -> Block {
        match self {
            PartialBlock::Text(text) => Block::text(text.to_string()),
            PartialBlock::Thinking(text) => {
                Block::Thinking { thinking: text.to_string(), signature: None }
            }
            PartialBlock::ToolCall { id, name, arguments } => Block::ToolCall(ToolCall {
                id: id.to_string(),
                name: name.to_string(),
                arguments: Value::String(arguments.to_string()),
            }),
            PartialBlock::Whole(block) => Block::clone(block),
        }
    }
}

impl From<Block> for PartialBlock {
    fn from(block: Block) -> Self {
        match block {
            Block::Text { text } => PartialBlock::Text(text.as_str().into()),
            Block::Thinking { thinking, signature: None } => {
                PartialBlock::Thinking(thinking.as_str().into())
            }
            Block::ToolCall(ToolCall { id, name, arguments: Value::String(arguments) }) => {
                PartialBlock::ToolCall {
                    id: id.into(),
                    name: name.into(),
                    arguments: arguments.as_str().into(),
                }
            }
            other => PartialBlock::Whole(Arc::new(other)),
        }
    }
}

/// Partial blocks as the blocks that they would be now.
fn serialize_blocks<S: Serializer>(
    content: &VectorSync<PartialBlock>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    serializer.collect_seq(content.iter().map(PartialBlock::to_block))
}

fn deserialize_blocks<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<VectorSync<PartialBlock>, D::Error> {
    let blocks = Vec::<Block>::deserialize(deserializer)?;
    Ok(blocks.into_iter().map(PartialBlock::from).collect())
}
