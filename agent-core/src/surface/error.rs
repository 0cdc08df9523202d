//! What the public calls of an agent can fail with. Nothing has changed when they do.

use crate::{data::event::RunId, pure::queue::QueueFull};

/// A run is active.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("Agent is busy with run {run_id}: wait for it, steer it or abort it")]
pub struct Busy {
    /// The run.
    pub run_id: RunId,
}

/// The run that was meant is not the one that is active. (C8.8)
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("run {expected} is not active; {}", self.active())]
pub struct WrongRun {
    /// The run that was meant.
    pub expected: RunId,
    /// The run that is active.
    pub actual: Option<RunId>,
}

impl WrongRun {
    fn active(&self) -> String {
        self.actual.map_or("no run is".into(), |run_id| format!("run {run_id} is"))
    }
}

/// Why input was not accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SubmitError {
    /// There is nothing in it, or nothing but white space.
    #[error("the input is empty: it takes a picture, or text that is more than white space")]
    EmptyInput,
    /// A run is active, or about to end.
    #[error(transparent)]
    Busy(#[from] Busy),
    /// No run takes input.
    #[error("no run takes input: steer and follow-up work only until the current run has ended")]
    NotRunning,
    /// Another run than the one that was meant is active, or none.
    #[error(transparent)]
    WrongRun(#[from] WrongRun),
    /// The queue has no room.
    #[error(transparent)]
    QueueFull(#[from] QueueFull),
}

/// Why a run could not be continued.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ContinueError {
    /// A run is active.
    #[error(transparent)]
    Busy(#[from] Busy),
    /// The transcript is empty, or ends in an answer and nothing is queued.
    #[error("nothing to continue: the last message is an answer, and no message is queued")]
    NothingToContinue,
}

/// Why waiting makes no sense.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WaitError {
    /// The wait is inside a listener, hook, tool or model of the same agent, so that the run would
    /// wait for itself.
    #[error("waiting for an agent inside its own listener, hook, tool or model would never end")]
    WaitsForItself,
    /// No run of that number ever started.
    #[error("run {0} never started")]
    UnknownRun(RunId),
    /// The runtime that the run belonged to is gone.
    #[error("the runtime that the run belonged to has shut down")]
    RuntimeGone,
}
