//! Everything that can happen to an agent, as every listener and every client sees it.
//!
//! Owns: the one vocabulary from the core to the wire (C3).
//! Never: repeats a partial message or the transcript; an event holds only what is new (C3.2).

use std::{fmt, sync::Arc};

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::data::{
    config::ConfigChange,
    message::{Block, Message, MessageId, Origin, StopReason, Usage},
    outcome::ToolOutput,
};

/// One thing that happened.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Event {
    /// 1, 2, 3 … for each agent, without gaps.
    pub seq: u64,
    /// The run that it belongs to; none for what happens to the agent outside a run.
    pub run_id: Option<RunId>,
    /// What happened.
    #[serde(flatten)]
    pub kind: EventKind,
}

/// What can happen.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(tag = "type", rename_all = "snake_case", rename_all_fields = "camelCase")]
pub enum EventKind {
    /// The run exists, and these user messages joined the transcript.
    RunStart {
        /// The prompt; empty when a run continues.
        messages: Vec<Arc<Message>>,
    },
    /// A turn begins.
    TurnStart {
        /// 1, 2 … within the run.
        turn: u32,
    },
    /// The model began to answer.
    MessageStart {
        /// Always the assistant.
        role: Role,
    },
    /// More text.
    TextDelta {
        /// The block that grows.
        content_index: u32,
        /// Only what is new.
        delta: String,
    },
    /// More thinking.
    ThinkingDelta {
        /// The block that grows.
        content_index: u32,
        /// Only what is new.
        delta: String,
    },
    /// A piece of a call's JSON arguments.
    ToolCallDelta {
        /// The block that grows.
        content_index: u32,
        /// The call.
        tool_call_id: String,
        /// The tool.
        tool_name: String,
        /// Only what is new.
        delta: String,
    },
    /// A message joined the transcript.
    MessageEnd {
        /// The message, whole.
        message: Arc<Message>,
        /// Where it came from.
        source: Source,
    },
    /// A tool's execution began.
    ToolStart {
        /// The call.
        tool_call_id: Arc<str>,
        /// The tool.
        tool_name: String,
        /// The arguments that it was given.
        args: Value,
    },
    /// Progress of a long tool.
    ToolUpdate {
        /// The call.
        tool_call_id: Arc<str>,
        /// What there is so far.
        partial: ToolOutput,
    },
    /// This call finished. In order of completion.
    ToolEnd {
        /// The call.
        tool_call_id: Arc<str>,
        /// What it came to.
        result: ToolOutput,
        /// Whether it failed.
        is_error: bool,
    },
    /// The call never ran.
    ToolSkipped {
        /// The call.
        tool_call_id: Arc<str>,
        /// Why.
        reason: String,
    },
    /// Messages entered or left one queue.
    QueueUpdate {
        /// Which queue.
        queue: QueueKind,
        /// What entered.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        added: Option<Arc<Queued>>,
        /// The ids of what left.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        removed: Vec<MessageId>,
    },
    /// The model request failed in a passing way and will be sent again. What was published of an
    /// answer that had no text in the end, its thoughts, counts no longer: another `message_start`
    /// follows.
    Retry {
        /// 1 for the first repetition.
        attempt: u32,
        /// Milliseconds until it is sent.
        delay_ms: u64,
        /// What went wrong.
        error: String,
    },
    /// A turn is complete. The run may go on.
    TurnEnd {
        /// The number of its `turn_start`.
        turn: u32,
        /// How it ended.
        stop_reason: StopReason,
        /// What it cost.
        usage: Usage,
    },
    /// Something went wrong beside the run.
    Diagnostic {
        /// For people.
        message: String,
    },
    /// Settings changed.
    ConfigChanged {
        /// Only what changed.
        #[serde(flatten)]
        change: ConfigChange,
    },
    /// The transcript was emptied.
    Reset {},
    /// The run is over.
    RunEnd {
        /// Why.
        reason: EndReason,
        /// With [`EndReason::Error`], what went wrong.
        error_message: Option<String>,
        /// What was accepted and not delivered.
        undelivered: Undelivered,
        /// What the run cost.
        usage: Usage,
    },
}

/// Numbers the runs of one agent 1, 2, 3 …
#[derive(
    Clone,
    Copy,
    Debug,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Hash,
    Serialize,
    Deserialize,
    schemars::JsonSchema,
)]
#[serde(transparent)]
pub struct RunId(pub u64);

impl fmt::Display for RunId {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(out)
    }
}

/// Who speaks in a streamed message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum Role {
    /// The model.
    Assistant,
}

/// Where a message of the transcript came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum Source {
    /// The model said it.
    Model,
    /// It pairs with a tool call.
    Tool,
    /// It was steered into the run.
    Steering,
    /// It was to be done when the run would stop.
    FollowUp,
    /// A hook put it there.
    Hook,
}

/// The two queues.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum QueueKind {
    /// For the next model request of the current run.
    Steering,
    /// For when the run would otherwise stop.
    FollowUp,
}

/// A message that waits in a queue.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Queued {
    /// The id that it will have in the transcript.
    pub message_id: MessageId,
    /// Text and images.
    pub content: Vec<Block>,
    /// The client that sent it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub origin: Option<Origin>,
}

/// What a run accepted and did not deliver, in order; for an editor's input box.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Undelivered {
    /// What was left of the steering queue.
    pub steering: Vec<Arc<Queued>>,
    /// What was left of the follow-up queue.
    pub follow_up: Vec<Arc<Queued>>,
}

/// Why a run ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum EndReason {
    /// The model had said what it wanted to say, and nothing was queued.
    Stop,
    /// The output limit cut the last answer off.
    Length,
    /// Another turn was needed and not allowed.
    MaxTurns,
    /// The hook `should_stop_after_turn` said so.
    StoppedByHook,
    /// A model request or a hook failed.
    Error,
    /// `abort` was called.
    Aborted,
}
