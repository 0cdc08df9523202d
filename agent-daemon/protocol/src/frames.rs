//! What subscriptions send.
//!
//! Owns: the frames around events. Never: a type for an event; the core has it.

use agent_core::{AgentState, Event};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize, de};

/// What the notification of a subscription holds in `params.result`.
#[derive(Clone, Debug, PartialEq, JsonSchema)]
#[schemars(untagged)]
pub enum Frame {
    /// An event of the session.
    Event(EventFrame),
    /// Something about the subscription itself.
    Control(ControlFrame),
}

/// An event, as a subscription sends it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct EventFrame {
    /// The session in which the event happened.
    pub session_id: String,
    /// The number of the event before this one that the subscription knows. Present only where that
    /// is not `seq` - 1: numbers between them were filtered out or are merged into this frame.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prev_seq: Option<u64>,
    /// The event: its number, its run and what happened.
    #[serde(flatten)]
    pub event: Event,
}

/// A frame that has no `seq` and is never filtered.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ControlFrame {
    /// The session that is subscribed to.
    pub session_id: String,
    /// What happened to the subscription.
    #[serde(flatten)]
    pub control: Control,
}

/// What happens to a subscription.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "type", rename_all = "snake_case", rename_all_fields = "camelCase")]
#[allow(clippy::large_enum_variant)] // Made once per subscription, and the large one most often.
pub enum Control {
    /// The subscription begins here, or after `lagged` begins anew. Events follow.
    Subscribed {
        /// The instance that the numbers of the events count in.
        instance_id: String,
        /// The number of the newest event at this point.
        head_seq: u64,
        /// The number of the oldest event that can still be replayed.
        oldest_seq: u64,
        /// How the past is made up for.
        replay: Replay,
        /// The state that contains all events up to `headSeq`; present when `replay` is `snapshot`.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        state: Option<AgentState>,
    },
    /// The reader was too slow: events were dropped, and a new `subscribed` with the state follows.
    Lagged {
        /// The number of the first event that was dropped.
        from_seq: u64,
        /// The number of the last event that was dropped.
        to_seq: u64,
    },
    /// The session was closed. Nothing follows.
    SessionClosed {},
    /// The daemon is about to end. Nothing follows.
    ServerShutdown {
        /// Why the daemon ends, in words for people.
        reason: String,
    },
}

/// How a subscription makes up for the past.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum Replay {
    /// It was not asked to; events follow as they happen.
    None,
    /// The events after `fromSeq` follow first.
    Events,
    /// The state is in this frame: it was asked for, or the events after `fromSeq` are no longer
    /// held.
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
