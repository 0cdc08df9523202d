//! From frames to the state that they add up to. Pure.
//!
//! Owns: the number of the newest event, and what it counts in. Never: folds an event twice or
//! over a gap.

use agent_core::{AgentState, reduce};
use agent_daemon::protocol::{Control, EventFrame, Frame, Replay};

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
        // 4.4: where numbers were merged or filtered, the frame says what came before it. Merged
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
