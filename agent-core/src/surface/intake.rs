//! Taking input in: what a user means by it, where it goes, and what became of it.
//!
//! Owns: the one decision between a run, a queue, waiting and refusal (C8.7 and C8.8).
//! Never: starts a run; [`Agent`](crate::Agent) does, in the same step.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::{
    data::{
        config::WhenIdle,
        event::{EventKind, QueueKind, Queued, RunId},
        message::{Input, Message, MessageId},
    },
    run::guarded::{Core, removed, to_message},
    surface::{
        error::{Busy, ContinueError, SubmitError, WrongRun},
        handle::RunHandle,
    },
};

/// What a user means by some input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Intent {
    /// Start a run.
    Prompt {
        /// What to do while a run is active.
        on_busy: OnBusy,
    },
    /// Put it into a queue of the current run.
    Queue {
        /// Which queue.
        queue: QueueKind,
        /// The run that is meant; any if none is named.
        expected_run_id: Option<RunId>,
        /// What to do when no run takes input; as configured if not given.
        when_idle: Option<NoRun>,
    },
}

/// What a prompt does while a run is active.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema,
)]
#[serde(rename_all = "camelCase")]
pub enum OnBusy {
    /// It fails.
    #[default]
    Reject,
    /// It becomes steering.
    Steer,
    /// It becomes a follow-up.
    FollowUp,
}

/// What queued input does when no run takes input.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum NoRun {
    /// It fails.
    Reject,
    /// It waits for the next run.
    Hold,
    /// It starts a run.
    Prompt,
}

/// Input that was accepted: it will join the transcript or come back in `run_end.undelivered`.
#[derive(Debug)]
pub struct Accepted {
    /// What became of it.
    pub disposition: Disposition,
    /// The run that has it; none while it is held.
    pub run_id: Option<RunId>,
    /// The id that the message has and keeps.
    pub message_id: MessageId,
    /// Its place in the queue, counted from 0.
    pub position: Option<usize>,
    /// The newest event after the call took effect.
    pub seq: u64,
    /// The run that it started.
    pub handle: Option<RunHandle>,
}

/// What became of accepted input.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum Disposition {
    /// It started a run.
    Started,
    /// It waits in the steering queue of a run.
    Steered,
    /// It waits in the follow-up queue of a run.
    Queued,
    /// It waits for the next run.
    Held,
}

/// Where input goes.
pub(crate) enum InputPlace {
    NewRun,
    Queue(QueueKind),
}

impl Core {
    pub(crate) fn place(&self, intent: Intent) -> Result<InputPlace, SubmitError> {
        match intent {
            Intent::Prompt { on_busy } => {
                let Some(active) = self.slot.active() else { return Ok(InputPlace::NewRun) };
                let open = self.slot.accepting().is_some();
                match on_busy {
                    OnBusy::Steer if open => Ok(InputPlace::Queue(QueueKind::Steering)),
                    OnBusy::FollowUp if open => Ok(InputPlace::Queue(QueueKind::FollowUp)),
                    _ => Err(Busy { run_id: active }.into()),
                }
            }
            Intent::Queue { queue, expected_run_id, when_idle } => {
                self.expect(expected_run_id)?;
                if self.slot.accepting().is_some() {
                    return Ok(InputPlace::Queue(queue));
                }
                // Held or prompted, it would land in another run than the one that was meant. (C8.8)
                if expected_run_id.is_some() {
                    return Err(SubmitError::NotRunning);
                }
                match when_idle.unwrap_or(self.settings.when_idle.into()) {
                    NoRun::Reject => Err(SubmitError::NotRunning),
                    NoRun::Hold => Ok(InputPlace::Queue(queue)),
                    NoRun::Prompt => match self.slot.active() {
                        Some(active) => Err(Busy { run_id: active }.into()),
                        None => Ok(InputPlace::NewRun),
                    },
                }
            }
        }
    }

    pub(crate) fn expect(&self, expected: Option<RunId>) -> Result<(), WrongRun> {
        let actual = self.slot.active();
        match expected {
            Some(expected) if actual != Some(expected) => Err(WrongRun { expected, actual }),
            _ => Ok(()),
        }
    }

    pub(crate) fn push(&mut self, kind: QueueKind, input: Input) -> Result<Accepted, SubmitError> {
        let message_id = self.next_message_id();
        let Input { content, origin } = input;
        let queued = Arc::new(Queued { message_id: message_id.clone(), content, origin });
        let position = self.slot.push(kind, queued.clone())?;
        let run_id = self.slot.accepting();
        let update = EventKind::QueueUpdate { queue: kind, added: Some(queued), removed: vec![] };
        self.publish(run_id, update);
        let seq = self.feed.seq();
        let disposition = match (run_id, kind) {
            (None, _) => Disposition::Held,
            (Some(_), QueueKind::Steering) => Disposition::Steered,
            (Some(_), QueueKind::FollowUp) => Disposition::Queued,
        };
        let position = Some(position);
        Ok(Accepted { disposition, run_id, message_id, position, seq, handle: None })
    }

    /// The messages that a run which continues after an answer begins with.
    pub(crate) fn take_prompt(&mut self) -> Result<Vec<Arc<Message>>, ContinueError> {
        let taken = self.slot.take_held();
        if taken.messages.is_empty() {
            return Err(ContinueError::NothingToContinue);
        }
        self.publish(None, removed(taken.queue, &taken.messages));
        Ok(taken.messages.iter().map(|queued| to_message(queued)).collect())
    }

    pub(crate) fn clear(&mut self, kind: QueueKind) -> Vec<Arc<Queued>> {
        let cleared = self.slot.clear(kind);
        if !cleared.is_empty() {
            self.publish(self.slot.accepting(), removed(kind, &cleared));
        }
        cleared
    }
}

impl From<WhenIdle> for NoRun {
    fn from(when_idle: WhenIdle) -> Self {
        match when_idle {
            WhenIdle::Reject => NoRun::Reject,
            WhenIdle::Hold => NoRun::Hold,
        }
    }
}
