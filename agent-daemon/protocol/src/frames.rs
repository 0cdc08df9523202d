//! What subscriptions send.
//!
//! Owns: the frames around events. Never: a type for an event; the core has it.

use agent_core::{AgentState, Event};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize, de};

/// What a subscription's notification holds: `params.result`.
#[derive(Clone, Debug, PartialEq, JsonSchema)]
#[schemars(untagged)]
pub enum Frame {
    /// Something happened.
    Event(EventFrame),
    /// Something about the subscription itself.
    Control(ControlFrame),
}

/// An event, as a subscription sends it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct EventFrame {
    /// Where it happened.
    pub session_id: String,
    /// Where numbers were left out or merged, the last one before this.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prev_seq: Option<u64>,
    /// What happened.
    #[serde(flatten)]
    pub event: Event,
}

/// A frame that has no `seq` and is never filtered.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ControlFrame {
    /// The subscription's session.
    pub session_id: String,
    /// What it says.
    #[serde(flatten)]
    pub control: Control,
}

/// What happens to a subscription.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "type", rename_all = "snake_case", rename_all_fields = "camelCase")]
#[allow(clippy::large_enum_variant)] // Made once per subscription, and the large one most often.
pub enum Control {
    /// The first frame, and the first after `lagged`.
    Subscribed {
        /// What the numbers count in.
        instance_id: String,
        /// The newest event at this point.
        head_seq: u64,
        /// The oldest event that can still be replayed.
        oldest_seq: u64,
        /// How the past is made up for.
        replay: Replay,
        /// The state after `headSeq`.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        state: Option<AgentState>,
    },
    /// The reader was too slow; events were dropped and a new `subscribed` follows.
    Lagged {
        /// The first that was dropped.
        from_seq: u64,
        /// The last that was dropped.
        to_seq: u64,
    },
    /// The session was closed. Nothing follows.
    SessionClosed {},
    /// The daemon is about to end. Nothing follows.
    ServerShutdown {
        /// Why, for people.
        reason: String,
    },
}

/// How a subscription makes up for the past.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum Replay {
    /// It was not asked to.
    None,
    /// The events after `fromSeq` follow.
    Events,
    /// Those are no longer held, so here is the state.
    Snapshot,
}

/// The types that events have, in the contract's order.
pub const EVENT_TYPES: &[&str] = &[
    "run_start",
    "turn_start",
    "message_start",
    "text_delta",
    "thinking_delta",
    "tool_call_delta",
    "message_end",
    "tool_start",
    "tool_update",
    "tool_end",
    "tool_skipped",
    "queue_update",
    "retry",
    "turn_end",
    "diagnostic",
    "config_changed",
    "reset",
    "run_end",
];

impl Frame {
    /// Reads a frame.
    ///
    /// # Errors
    /// The text is neither an event nor a control frame.
    pub fn from_json(text: &str) -> Result<Self, serde_json::Error> {
        #[derive(Deserialize)]
        struct Numbered {
            seq: Option<de::IgnoredAny>,
        }
        // Looked at first, since what an untagged enum says of a bad frame helps nobody.
        match serde_json::from_str::<Numbered>(text)?.seq {
            Some(_) => serde_json::from_str(text).map(Frame::Event),
            None => serde_json::from_str(text).map(Frame::Control),
        }
    }
}
