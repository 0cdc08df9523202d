//! From frames to the state that they add up to. Pure.
//!
//! Owns: the number of the newest event, and what it counts in. Never: folds an event twice or
//! over a gap.

use agent_core::{AgentState, reduce};
use agent_protocol::{Control, EventFrame, Frame, Replay};

/// How far a session's events have been seen.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Cursor {
    /// The instance that `seq` counts in; none before the first frame.
    pub instance_id: Option<String>,
    /// The newest event.
    pub seq: u64,
}

/// What a frame means to someone who has seen the ones before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// It is the next event.
    Event,
    /// It was seen before.
    Known,
    /// Something before it is missing; ask for it again.
    Gap,
    /// It begins a subscription that goes on from where we are.
    Begun,
    /// It brings the state anew.
    Snapshot(Missed),
    /// The daemon has dropped events; a snapshot follows.
    Lagged,
    /// The session was closed, and will say no more.
    Closed,
    /// The daemon is about to end.
    ShuttingDown,
}

/// What happened between the state before and a snapshot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Missed {
    /// There was no state before.
    Nothing,
    /// Events of the same agent.
    Events,
    /// The agent itself: the daemon was restarted.
    Agent,
}

/// A state, kept up to date.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Fold {
    /// How far.
    pub cursor: Cursor,
    /// The state there; none before the first snapshot.
    pub state: Option<AgentState>,
}

impl Cursor {
    /// Moves to where a frame leads.
    pub fn step(&mut self, frame: &Frame) -> Step {
        match frame {
            Frame::Event(frame) => self.event(frame),
            Frame::Control(frame) => match &frame.control {
                Control::Subscribed { instance_id, head_seq, replay, state, .. } => {
                    self.subscribed(instance_id, *head_seq, *replay, state.is_some())
                }
                Control::Lagged { .. } => Step::Lagged,
                Control::SessionClosed {} => Step::Closed,
                Control::ServerShutdown { .. } => Step::ShuttingDown,
            },
        }
    }

    fn event(&mut self, frame: &EventFrame) -> Step {
        let seq = frame.event.seq;
        if seq <= self.seq {
            return Step::Known;
        }
        // W4.4: where numbers were merged or filtered, the frame says what came before it. Merged
        // deltas that we know in part cannot be told apart, so an older number is a gap as well.
        if frame.prev_seq.unwrap_or(seq - 1) != self.seq {
            return Step::Gap;
        }
        self.seq = seq;
        Step::Event
    }

    fn subscribed(
        &mut self,
        instance_id: &str,
        head_seq: u64,
        replay: Replay,
        has_state: bool,
    ) -> Step {
        let missed = match &self.instance_id {
            None => Missed::Nothing,
            Some(known) if known == instance_id => Missed::Events,
            Some(_) => Missed::Agent,
        };
        self.instance_id = Some(instance_id.to_owned());
        // Who asked for no past begins at the head.
        if has_state || replay == Replay::None {
            self.seq = head_seq;
        }
        if has_state { Step::Snapshot(missed) } else { Step::Begun }
    }
}

impl Fold {
    /// Folds a frame.
    pub fn step(&mut self, frame: &Frame) -> Step {
        let step = self.cursor.step(frame);
        match (step, frame) {
            (Step::Event, Frame::Event(frame)) => {
                self.state = self.state.take().map(|state| reduce(state, &frame.event));
            }
            (Step::Snapshot(_), Frame::Control(frame)) => {
                if let Control::Subscribed { state, .. } = &frame.control {
                    self.state.clone_from(state);
                }
            }
            _ => {}
        }
        step
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use agent_core::{Config, Event, EventKind, RunId, Transcript};
    use proptest::prelude::*;
    use serde_json::{Value, json};

    use super::*;

    /// A state in the middle of an answer, after event 2.
    fn beginning() -> AgentState {
        let config: Config = serde_json::from_value(json!({
            "model": "a/b", "thinkingLevel": "off", "systemPrompt": "", "tools": [],
            "steeringMode": "all", "followUpMode": "all", "whenIdle": "reject", "maxTurns": 0,
            "toolExecution": "parallel",
        }))
        .unwrap();
        let state = AgentState::new(config, Transcript::default());
        let start = EventKind::RunStart { messages: Vec::new() };
        let answer = EventKind::MessageStart { role: agent_core::Role::Assistant };
        let event = |seq, kind| Event { seq, run_id: Some(RunId(1)), kind };
        reduce(reduce(state, &event(1, start)), &event(2, answer))
    }

    fn frame(value: Value) -> Frame {
        Frame::from_json(&value.to_string()).unwrap()
    }

    /// The deltas `from` to `to` in one: each says its own number.
    fn deltas(from: u64, to: u64) -> Frame {
        let delta: String = (from..=to).map(|seq| format!("{seq},")).collect();
        let mut value = json!({
            "sessionId": "main", "seq": to, "runId": 1, "type": "text_delta",
            "contentIndex": 0, "delta": delta,
        });
        if from != to {
            value["prevSeq"] = json!(from - 1);
        }
        frame(value)
    }

    fn subscribed(
        instance_id: &str,
        head_seq: u64,
        replay: &str,
        state: Option<&AgentState>,
    ) -> Frame {
        let mut value = json!({
            "sessionId": "main", "type": "subscribed", "instanceId": instance_id,
            "headSeq": head_seq, "oldestSeq": 1, "replay": replay,
        });
        if let Some(state) = state {
            value["state"] = serde_json::to_value(state).unwrap();
        }
        frame(value)
    }

    proptest! {
        /// Whatever comes twice, merged, too early or not at all: the state is the one that the
        /// events up to the cursor add up to.
        #[test]
        fn the_state_is_always_that_of_the_events_up_to_the_cursor(
            ranges in prop::collection::vec((0..6_u64, 0..4_u64), 0..40),
        ) {
            let mut fold = Fold::default();
            let opening = subscribed("i", 2, "none", Some(&beginning()));
            prop_assert_eq!(fold.step(&opening), Step::Snapshot(Missed::Nothing));
            for (back, length) in ranges {
                let seq = fold.cursor.seq;
                // Mostly the next one, else one that is known, in part or whole, or too far ahead.
                let from = (seq + 3).saturating_sub(back).max(3);
                let step = fold.step(&deltas(from, from + length));
                let expected = match () {
                    () if from + length <= seq => Step::Known,
                    () if from == seq + 1 => Step::Event,
                    () => Step::Gap,
                };
                prop_assert_eq!(step, expected);
                let state = (3..=fold.cursor.seq).fold(beginning(), |state, seq| {
                    let Frame::Event(frame) = deltas(seq, seq) else { unreachable!() };
                    reduce(state, &frame.event)
                });
                prop_assert_eq!(fold.state.as_ref(), Some(&state));
            }
        }
    }

    #[test]
    fn a_subscription_says_what_was_missed() {
        let state = beginning();
        let mut fold = Fold::default();
        for (opening, expected, seq) in [
            (subscribed("one", 7, "none", Some(&state)), Step::Snapshot(Missed::Nothing), 7),
            (subscribed("one", 9, "events", None), Step::Begun, 7),
            (subscribed("one", 12, "snapshot", Some(&state)), Step::Snapshot(Missed::Events), 12),
            (subscribed("two", 3, "snapshot", Some(&state)), Step::Snapshot(Missed::Agent), 3),
        ] {
            assert_eq!(fold.step(&opening), expected);
            assert_eq!(fold.cursor.seq, seq);
        }
    }

    #[test]
    fn frames_about_the_subscription_leave_the_state_alone() {
        let mut fold = Fold::default();
        fold.step(&subscribed("one", 7, "none", Some(&beginning())));
        let before = fold.clone();
        for (fields, expected) in [
            (json!({ "type": "lagged", "fromSeq": 8, "toSeq": 9 }), Step::Lagged),
            (json!({ "type": "session_closed" }), Step::Closed),
            (json!({ "type": "server_shutdown", "reason": "x" }), Step::ShuttingDown),
        ] {
            let mut value = fields;
            value["sessionId"] = json!("main");
            assert_eq!(fold.step(&frame(value)), expected);
            assert_eq!(fold, before);
        }
    }
}
