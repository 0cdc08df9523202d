//! The active run, in the one slot that holds it.
//!
//! Owns: who may start, what input is accepted, what a boundary takes and when input closes. Every
//! method is one atomic step under the agent's lock.
//! Never: awaits, publishes or reads a clock; so every order of calls can be tested.

use std::sync::Arc;

use crate::{
    CancelSource, EndReason, QueueKind, QueueMode, Queued, RunId, Undelivered,
    queue::{PendingQueue, QueueFull},
};

/// What lives for one run.
#[derive(Debug)]
pub struct ActiveRun {
    /// The run.
    pub id: RunId,
    /// Its cancellation; each run has its own. (7.7)
    pub cancel: CancelSource,
    queues: Queues,
    // Invariant: input is accepted while this is none, and never again once it is some.
    ending: Option<EndReason>,
}

/// The two queues of a run, or those that wait for one.
#[derive(Debug, Default)]
struct Queues {
    steering: PendingQueue,
    follow_up: PendingQueue,
}

/// The slot.
#[derive(Debug, Default)]
pub struct RunSlot {
    active: Option<ActiveRun>,
    started: u64,
    /// Messages that were accepted while no run could take them. (8.7)
    held: Queues,
    /// How much of the steering queue a boundary takes.
    pub steering_mode: QueueMode,
    /// How much of the follow-up queue a boundary takes.
    pub follow_up_mode: QueueMode,
}

/// A turn that is over, as a boundary sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Boundary {
    /// There are tool results that the model has not seen.
    pub has_results: bool,
    /// The run has had all the turns that it may have.
    pub at_turn_limit: bool,
    /// How the run ends when nothing is left to do.
    pub natural_end: EndReason,
}

/// Messages taken from one queue, oldest first.
#[derive(Debug, PartialEq)]
pub struct Taken {
    /// The queue that they were in.
    pub queue: QueueKind,
    /// The messages.
    pub messages: Vec<Arc<Queued>>,
}

impl RunSlot {
    /// Starts a run if none is active. What was held becomes its own. (8.7)
    ///
    /// # Errors
    /// The run that is active.
    pub fn begin(&mut self) -> Result<(RunId, CancelSource), RunId> {
        if let Some(active) = &self.active {
            return Err(active.id);
        }
        self.started += 1;
        let id = RunId(self.started);
        let cancel = CancelSource::default();
        let queues = std::mem::take(&mut self.held);
        self.active = Some(ActiveRun { id, cancel: cancel.clone(), queues, ending: None });
        Ok((id, cancel))
    }

    /// The run that is active.
    pub fn active(&self) -> Option<&ActiveRun> {
        self.active.as_ref()
    }

    /// Whether a run of this number ever started.
    pub fn has_started(&self, id: RunId) -> bool {
        (1..=self.started).contains(&id.0)
    }

    /// The active run, if it still accepts input.
    pub fn accepting(&self) -> Option<RunId> {
        self.active.as_ref().filter(|run| run.ending.is_none()).map(|run| run.id)
    }

    /// The active run's cancellation, while the run can still end as aborted. (7.8)
    pub fn cancellable(&self) -> Option<&ActiveRun> {
        let may_abort = |run: &&ActiveRun| matches!(run.ending, None | Some(EndReason::Aborted));
        self.active.as_ref().filter(may_abort)
    }

    /// Accepts a message: for the active run if it still takes input, else for the next one.
    ///
    /// # Errors
    /// The queue is full.
    pub fn push(&mut self, kind: QueueKind, queued: Arc<Queued>) -> Result<usize, QueueFull> {
        let queues = match &mut self.active {
            Some(run) if run.ending.is_none() => &mut run.queues,
            _ => &mut self.held,
        };
        queues.of(kind).push(queued)
    }

    /// Takes the steering that precedes the run's first request, unless the run was aborted.
    pub fn take_first(&mut self, id: RunId) -> Result<Taken, EndReason> {
        let mode = self.steering_mode;
        let run = self.open(id)?;
        let messages = run.queues.steering.take(mode);
        Ok(Taken { queue: QueueKind::Steering, messages })
    }

    /// Whether the run goes on after a turn; if not, input closes with this very step. (8.2)
    ///
    /// # Errors
    /// Why the run ends.
    pub fn may_go_on(&mut self, id: RunId, boundary: Boundary) -> Result<(), EndReason> {
        let run = self.open(id)?;
        let end = if !boundary.has_results && run.queues.are_empty() {
            boundary.natural_end
        } else if boundary.at_turn_limit {
            EndReason::MaxTurns
        } else {
            return Ok(());
        };
        run.ending = Some(end);
        Err(end)
    }

    /// Takes what the next turn must see, or closes the run to further input.
    ///
    /// One step, not two: a `steer` landing between "nothing queued" and "closed" would be
    /// accepted and then never read. (8.4)
    ///
    /// # Errors
    /// Why the run ends.
    pub fn take_or_close(&mut self, id: RunId, boundary: Boundary) -> Result<Taken, EndReason> {
        self.may_go_on(id, boundary)?;
        let (steering_mode, follow_up_mode) = (self.steering_mode, self.follow_up_mode);
        let run = self.open(id)?;
        let steering = run.queues.steering.take(steering_mode);
        if steering.is_empty() && !boundary.has_results {
            let messages = run.queues.follow_up.take(follow_up_mode);
            return Ok(Taken { queue: QueueKind::FollowUp, messages });
        }
        Ok(Taken { queue: QueueKind::Steering, messages: steering })
    }

    /// Takes what a run that continues after an answer begins with: steering, else follow-ups. (5.6)
    pub fn take_held(&mut self) -> Taken {
        let messages = self.held.steering.take(self.steering_mode);
        if !messages.is_empty() {
            return Taken { queue: QueueKind::Steering, messages };
        }
        let messages = self.held.follow_up.take(self.follow_up_mode);
        Taken { queue: QueueKind::FollowUp, messages }
    }

    /// Closes input and decides how the run ends: as proposed, or as what was decided before, or
    /// as aborted if its token has fired, for such a run can end in no other way. (7.5)
    pub fn close(&mut self, id: RunId, proposed: EndReason) -> EndReason {
        match self.open(id) {
            Ok(run) => *run.ending.insert(proposed),
            Err(end) => end,
        }
    }

    /// Releases the slot, but only for the run that still holds it, and hands back what the run
    /// accepted and did not deliver. (8.5)
    pub fn finish(&mut self, id: RunId) -> Undelivered {
        match self.active.take_if(|run| run.id == id) {
            Some(mut run) => Undelivered {
                steering: run.queues.steering.clear(),
                follow_up: run.queues.follow_up.clear(),
            },
            None => Undelivered::default(),
        }
    }

    /// Takes one message out of whichever queue it waits in.
    pub fn remove(&mut self, id: &str) -> Option<(QueueKind, Arc<Queued>)> {
        [QueueKind::Steering, QueueKind::FollowUp].into_iter().find_map(|kind| {
            self.queues().find_map(|queues| queues.of(kind).remove(id)).map(|queued| (kind, queued))
        })
    }

    /// Empties one queue, the held messages included.
    pub fn clear(&mut self, kind: QueueKind) -> Vec<Arc<Queued>> {
        self.queues().flat_map(|queues| queues.of(kind).clear()).collect()
    }

    /// The active run's queues before the held ones.
    fn queues(&mut self) -> impl Iterator<Item = &mut Queues> {
        self.active.iter_mut().map(|run| &mut run.queues).chain([&mut self.held])
    }

    /// The run, if its end is still open. Cancellation comes before anything else. (8.2)
    fn open(&mut self, id: RunId) -> Result<&mut ActiveRun, EndReason> {
        let run = self.active.as_mut().filter(|run| run.id == id).ok_or(EndReason::Aborted)?;
        if run.ending.is_none() && run.cancel.is_cancelled() {
            run.ending = Some(EndReason::Aborted);
        }
        match run.ending {
            None => Ok(run),
            Some(end) => Err(end),
        }
    }
}

impl Queues {
    fn of(&mut self, kind: QueueKind) -> &mut PendingQueue {
        match kind {
            QueueKind::Steering => &mut self.steering,
            QueueKind::FollowUp => &mut self.follow_up,
        }
    }

    fn are_empty(&self) -> bool {
        self.steering.is_empty() && self.follow_up.is_empty()
    }
}
