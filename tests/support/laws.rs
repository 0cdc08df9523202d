//! The laws that every complete timeline obeys, whatever was played.

use std::{collections::HashMap, sync::Arc};

use agent_core::{
    AgentState, Event, EventKind, Message, ModelRequest, QueueKind, RunId, Snapshot, Source,
    StopReason, Transcript, reduce,
};

/// Checks all events of an agent, from its first to an idle moment, against its own state then.
///
/// # Panics
/// A law does not hold.
pub fn check_laws(events: &[Arc<Event>], snapshot: &Snapshot) {
    let mut laws = Laws::default();
    for (index, event) in events.iter().enumerate() {
        assert_eq!(event.seq, index as u64 + 1, "seq has no gaps");
        laws.see(event);
    }
    assert_eq!(laws.run, None, "every run_start has its run_end");
    assert_eq!(snapshot.seq, events.len() as u64, "every event was delivered");
    assert_eq!(snapshot.state.active_run(), None);
    assert_eq!(snapshot.state.partial, None);
    assert!(snapshot.state.pending_tool_call_ids.is_empty());
    check_fold(events, snapshot);
}

/// The fold of all events over the first state is the agent's own state, and the queues hold what
/// was added and neither taken nor handed back.
fn check_fold(events: &[Arc<Event>], snapshot: &Snapshot) {
    // The configuration and the transcript to go on from are not events: they are taken as given.
    let mut state = AgentState::new((*snapshot.state.config).clone(), Transcript::default());
    let has_reset = events.iter().any(|event| matches!(event.kind, EventKind::Reset {}));
    let grown = events.iter().map(|event| joined(event)).sum::<usize>();
    if !has_reset {
        let before = snapshot.state.messages.len() - grown;
        state.messages = snapshot.state.messages.range(0, before).cloned().collect();
    }
    let state = events.iter().fold(state, |state, event| reduce(state, event));
    assert_eq!(state, snapshot.state, "the fold of the events is the state");
}

fn joined(event: &Event) -> usize {
    match &event.kind {
        EventKind::RunStart { messages } => messages.len(),
        EventKind::MessageEnd { .. } => 1,
        _ => 0,
    }
}

#[derive(Default)]
struct Laws {
    run: Option<RunId>,
    runs: u64,
    turn: Option<u32>,
    turns: u32,
    answering: bool,
    /// The calls of the turn's answer, in call order, and what has become of each.
    calls: Vec<(String, Call)>,
    /// How many of them have their result in the transcript.
    paired: usize,
    /// What waits, and in which queue.
    queued: HashMap<String, QueueKind>,
    /// A message that has left its queue for the transcript, and not arrived yet.
    under_way: Vec<String>,
    /// The turn failed or was aborted.
    failed: bool,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Call {
    Waiting,
    Running,
    Ended,
    Skipped,
}

impl Laws {
    fn see(&mut self, event: &Event) {
        if let EventKind::RunStart { messages } = &event.kind {
            assert_eq!(self.run, None, "a run starts when none is active");
            self.runs += 1;
            assert_eq!(event.run_id, Some(RunId(self.runs)), "runs are numbered 1, 2, 3 …");
            self.run = event.run_id;
            (self.turns, self.failed) = (0, false);
            for message in messages {
                self.under_way.retain(|id| **id != **message.id());
            }
        } else if event.run_id.is_some() {
            assert_eq!(event.run_id, self.run, "an event of a run comes while it is active");
        }
        match &event.kind {
            EventKind::TurnStart { turn } => self.turn_started(*turn),
            EventKind::MessageStart { .. } => {
                assert!(self.turn.is_some() && !self.answering, "one answer at a time, in a turn");
                self.answering = true;
            }
            // An answer that was empty is followed by another one, or by none.
            EventKind::Retry { .. } => self.answering = false,
            EventKind::TextDelta { .. }
            | EventKind::ThinkingDelta { .. }
            | EventKind::ToolCallDelta { .. } => assert!(self.answering, "deltas are of an answer"),
            EventKind::MessageEnd { message, source } => self.joined(message, *source),
            EventKind::ToolStart { tool_call_id, .. } => {
                self.moves(tool_call_id, Call::Waiting, Call::Running);
            }
            EventKind::ToolUpdate { tool_call_id, .. } => {
                self.moves(tool_call_id, Call::Running, Call::Running);
            }
            EventKind::ToolEnd { tool_call_id, .. } => {
                self.moves(tool_call_id, Call::Running, Call::Ended);
            }
            EventKind::ToolSkipped { tool_call_id, .. } => {
                self.moves(tool_call_id, Call::Waiting, Call::Skipped);
            }
            EventKind::QueueUpdate { queue, added, removed } => {
                assert_eq!(added.is_none(), !removed.is_empty(), "a queue_update says something");
                if let Some(queued) = added {
                    let before = self.queued.insert(queued.message_id.to_string(), *queue);
                    assert_eq!(before, None, "a message is queued once");
                }
                for id in removed {
                    let before = self.queued.remove(&**id);
                    assert_eq!(before, Some(*queue), "what leaves a queue was in it");
                    self.under_way.push(id.to_string());
                }
            }
            EventKind::TurnEnd { turn, stop_reason, .. } => self.turn_ended(*turn, *stop_reason),
            EventKind::Reset {} => assert_eq!(self.run, None, "reset only at idle"),
            EventKind::RunEnd { undelivered, .. } => {
                assert_eq!(self.turn, None, "turns are balanced");
                self.run = None;
                let steering = undelivered.steering.iter().map(|q| (q, QueueKind::Steering));
                let follow_up = undelivered.follow_up.iter().map(|q| (q, QueueKind::FollowUp));
                for (queued, kind) in steering.chain(follow_up) {
                    let before = self.queued.remove(&*queued.message_id);
                    assert_eq!(before, Some(kind), "what is handed back was queued");
                }
            }
            _ => {}
        }
    }

    fn turn_started(&mut self, turn: u32) {
        assert!(self.run.is_some() && self.turn.is_none(), "turns do not overlap");
        assert!(!self.failed, "a turn that failed is the run's last");
        self.turns += 1;
        assert_eq!(turn, self.turns, "turns are numbered 1, 2 … within the run");
        self.turn = Some(turn);
        self.calls.clear();
        self.paired = 0;
    }

    fn turn_ended(&mut self, turn: u32, stop_reason: StopReason) {
        assert_eq!(self.turn.take(), Some(turn), "turns are balanced");
        assert!(!self.answering, "every message_start has its message_end");
        assert_eq!(self.paired, self.calls.len(), "every call has its result when the turn ends");
        self.failed = matches!(stop_reason, StopReason::Error | StopReason::Aborted);
    }

    fn joined(&mut self, message: &Message, source: Source) {
        assert!(self.turn.is_some(), "messages join within a turn");
        match message {
            Message::Assistant(answer) => {
                assert_eq!(source, Source::Model);
                assert!(self.answering, "an answer has begun before it ends");
                self.answering = false;
                let calls = answer.tool_calls().map(|call| (call.id.clone(), Call::Waiting));
                self.calls = calls.collect();
                let failed = matches!(answer.stop_reason, StopReason::Error | StopReason::Aborted);
                assert!(!failed || self.calls.is_empty(), "an answer that failed has no calls");
            }
            Message::ToolResult(result) => {
                let over = self.calls.iter().all(|(_, call)| is_over(*call));
                assert!(over, "results join after the whole batch has finished");
                let (id, call) = &self.calls[self.paired];
                assert_eq!(result.tool_call_id, *id, "results join in call order");
                assert!(*call != Call::Skipped || result.is_error, "a skipped call is an error");
                self.paired += 1;
            }
            Message::User(message) => {
                let index = self.under_way.iter().position(|id| **id == *message.id);
                self.under_way.remove(index.expect("a queued message is taken before it joins"));
            }
        }
    }

    fn moves(&mut self, id: &str, from: Call, to: Call) {
        let call = self.calls.iter_mut().find(|(call, _)| call == id);
        let (_, state) = call.expect("tool events are about a call of the turn's answer");
        assert_eq!(*state, from, "call {id} becomes {to:?}");
        *state = to;
    }
}

fn is_over(call: Call) -> bool {
    matches!(call, Call::Ended | Call::Skipped)
}

/// Every request pairs each call with exactly one result, in call order, before any user message.
///
/// # Panics
/// One does not.
pub fn check_requests(requests: &[ModelRequest]) {
    for request in requests {
        let mut open = Vec::new();
        for message in request.messages.iter() {
            match &**message {
                Message::Assistant(answer) => {
                    assert_eq!(open, [""; 0], "an answer comes after the results");
                    open = answer.tool_calls().rev_ids();
                }
                Message::ToolResult(result) => {
                    assert_eq!(open.pop(), Some(&*result.tool_call_id), "in call order");
                }
                Message::User(_) => assert_eq!(open, [""; 0], "a user message after the results"),
            }
        }
        assert_eq!(open, [""; 0], "each call has its result");
    }
}

trait ReverseIds<'a> {
    fn rev_ids(self) -> Vec<&'a str>;
}

impl<'a, I: Iterator<Item = &'a agent_core::ToolCall>> ReverseIds<'a> for I {
    fn rev_ids(self) -> Vec<&'a str> {
        let mut ids: Vec<&str> = self.map(|call| &*call.id).collect();
        ids.reverse();
        ids
    }
}
