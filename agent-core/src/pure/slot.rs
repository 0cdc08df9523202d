//! The active run, in the one slot that holds it.
//!
//! Owns: who may start, what input is accepted, what a boundary takes and when input closes. Every
//! method is one atomic step under the agent's lock.
//! Never: awaits, publishes or reads a clock; so every order of calls can be tested.

use std::sync::Arc;

use crate::{
    data::{
        config::QueueMode,
        event::{EndReason, QueueKind, Queued, RunId, Undelivered},
    },
    pure::queue::{PendingQueue, QueueFull},
};

/// What lives for one run.
#[derive(Debug)]
struct ActiveRun {
    id: RunId,
    /// It was aborted, and can end in no other way.
    aborted: bool,
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
pub(crate) struct RunSlot {
    active: Option<ActiveRun>,
    started: u64,
    /// Messages that were accepted while no run could take them. (C8.7)
    held: Queues,
    /// How much of the steering queue a boundary takes.
    pub(crate) steering_mode: QueueMode,
    /// How much of the follow-up queue a boundary takes.
    pub(crate) follow_up_mode: QueueMode,
}

/// A turn that is over, as a boundary sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Boundary {
    /// There are tool results that the model has not seen.
    pub(crate) has_results: bool,
    /// The run has had all the turns that it may have.
    pub(crate) at_turn_limit: bool,
    /// How the run ends when nothing is left to do.
    pub(crate) natural_end: EndReason,
}

/// Messages taken from one queue, oldest first.
#[derive(Debug, PartialEq)]
pub(crate) struct Taken {
    /// The queue that they were in.
    pub(crate) queue: QueueKind,
    /// The messages.
    pub(crate) messages: Vec<Arc<Queued>>,
}

impl RunSlot {
    /// Starts a run if none is active. What was held becomes its own. (C8.7)
    ///
    /// # Errors
    /// The run that is active.
    pub(crate) fn begin(&mut self) -> Result<RunId, RunId> {
        if let Some(active) = &self.active {
            return Err(active.id);
        }
        self.started += 1;
        let id = RunId(self.started);
        let queues = std::mem::take(&mut self.held);
        self.active = Some(ActiveRun { id, aborted: false, queues, ending: None });
        Ok(id)
    }

    /// The run that is active.
    pub(crate) fn active(&self) -> Option<RunId> {
        self.active.as_ref().map(|run| run.id)
    }

    /// Whether a run of this number ever started.
    pub(crate) fn has_started(&self, id: RunId) -> bool {
        (1..=self.started).contains(&id.0)
    }

    /// The active run, if it still accepts input.
    pub(crate) fn accepting(&self) -> Option<RunId> {
        self.active.as_ref().filter(|run| run.ending.is_none()).map(|run| run.id)
    }

    /// Aborts the active run, while it can still end as aborted; whether it will. (C7.8)
    pub(crate) fn abort(&mut self) -> bool {
        let may_abort =
            |run: &&mut ActiveRun| matches!(run.ending, None | Some(EndReason::Aborted));
        self.active.as_mut().filter(may_abort).map(|run| run.aborted = true).is_some()
    }

    /// Accepts a message: for the active run if it still takes input, else for the next one.
    ///
    /// # Errors
    /// The queue is full.
    pub(crate) fn push(
        &mut self,
        kind: QueueKind,
        queued: Arc<Queued>,
    ) -> Result<usize, QueueFull> {
        let queues = match &mut self.active {
            Some(run) if run.ending.is_none() => &mut run.queues,
            _ => &mut self.held,
        };
        queues.of(kind).push(queued)
    }

    /// Takes the steering that precedes the run's first request, unless the run was aborted.
    pub(crate) fn take_first(&mut self, id: RunId) -> Result<Taken, EndReason> {
        let mode = self.steering_mode;
        let run = self.open(id)?;
        let messages = run.queues.steering.take(mode);
        Ok(Taken { queue: QueueKind::Steering, messages })
    }

    /// Whether the run goes on after a turn; if not, input closes with this very step. (C8.2)
    ///
    /// # Errors
    /// Why the run ends.
    pub(crate) fn may_go_on(&mut self, id: RunId, boundary: Boundary) -> Result<(), EndReason> {
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
    /// accepted and then never read. (C8.4)
    ///
    /// # Errors
    /// Why the run ends.
    pub(crate) fn take_or_close(
        &mut self,
        id: RunId,
        boundary: Boundary,
    ) -> Result<Taken, EndReason> {
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

    /// Takes what a run that continues after an answer begins with: steering, else follow-ups. (C5.6)
    pub(crate) fn take_held(&mut self) -> Taken {
        let messages = self.held.steering.take(self.steering_mode);
        if !messages.is_empty() {
            return Taken { queue: QueueKind::Steering, messages };
        }
        let messages = self.held.follow_up.take(self.follow_up_mode);
        Taken { queue: QueueKind::FollowUp, messages }
    }

    /// Closes input and decides how the run ends: as proposed, or as what was decided before, or
    /// as aborted if its token has fired, for such a run can end in no other way. (C7.5)
    pub(crate) fn close(&mut self, id: RunId, proposed: EndReason) -> EndReason {
        match self.open(id) {
            Ok(run) => *run.ending.insert(proposed),
            Err(end) => end,
        }
    }

    /// Releases the slot, but only for the run that still holds it, and hands back what the run
    /// accepted and did not deliver. (C8.5)
    pub(crate) fn finish(&mut self, id: RunId) -> Undelivered {
        match self.active.take_if(|run| run.id == id) {
            Some(mut run) => Undelivered {
                steering: run.queues.steering.clear(),
                follow_up: run.queues.follow_up.clear(),
            },
            None => Undelivered::default(),
        }
    }

    /// Takes one message out of whichever queue it waits in.
    pub(crate) fn remove(&mut self, id: &str) -> Option<(QueueKind, Arc<Queued>)> {
        [QueueKind::Steering, QueueKind::FollowUp].into_iter().find_map(|kind| {
            self.queues().find_map(|queues| queues.of(kind).remove(id)).map(|queued| (kind, queued))
        })
    }

    /// Empties one queue, the held messages included.
    pub(crate) fn clear(&mut self, kind: QueueKind) -> Vec<Arc<Queued>> {
        self.queues().flat_map(|queues| queues.of(kind).clear()).collect()
    }

    /// The active run's queues before the held ones.
    fn queues(&mut self) -> impl Iterator<Item = &mut Queues> {
        self.active.iter_mut().map(|run| &mut run.queues).chain([&mut self.held])
    }

    /// The run, if its end is still open. Cancellation comes before anything else. (C8.2)
    fn open(&mut self, id: RunId) -> Result<&mut ActiveRun, EndReason> {
        let run = self.active.as_mut().filter(|run| run.id == id).ok_or(EndReason::Aborted)?;
        if run.ending.is_none() && run.aborted {
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

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use proptest::{collection::vec, prelude::*};

    use super::*;
    use crate::Block;

    fn queued(id: u32) -> Arc<Queued> {
        let message_id = id.to_string().into();
        Arc::new(Queued { message_id, content: vec![Block::text("x")], origin: None })
    }

    /// Any call, by any of the runs that there were; only the model decides what is right.
    #[derive(Clone, Copy, Debug)]
    enum Call {
        Begin,
        Push(QueueKind),
        TakeFirst(u64),
        MayGoOn(u64, Boundary),
        TakeOrClose(u64, Boundary),
        TakeHeld,
        Close(u64, EndReason),
        Cancel,
        Finish(u64),
        RemoveNth(usize),
        Clear(QueueKind),
        SetModes(QueueMode, QueueMode),
    }

    fn call() -> impl Strategy<Value = Call> {
        let run = || 1..5_u64;
        let kind = || prop_oneof![Just(QueueKind::Steering), Just(QueueKind::FollowUp)];
        let mode = || prop_oneof![Just(QueueMode::OneAtATime), Just(QueueMode::All)];
        let end = || prop_oneof![Just(EndReason::Stop), Just(EndReason::Length)];
        let boundary = || {
            (any::<bool>(), any::<bool>(), end()).prop_map(
                |(has_results, at_turn_limit, natural_end)| Boundary {
                    has_results,
                    at_turn_limit,
                    natural_end,
                },
            )
        };
        let ending = prop_oneof![Just(EndReason::Error), Just(EndReason::StoppedByHook)];
        prop_oneof![
            4 => Just(Call::Begin),
            8 => kind().prop_map(Call::Push),
            1 => run().prop_map(Call::TakeFirst),
            1 => (run(), boundary()).prop_map(|(run, at)| Call::MayGoOn(run, at)),
            4 => (run(), boundary()).prop_map(|(run, at)| Call::TakeOrClose(run, at)),
            1 => Just(Call::TakeHeld),
            1 => (run(), ending).prop_map(|(run, end)| Call::Close(run, end)),
            1 => Just(Call::Cancel),
            3 => run().prop_map(Call::Finish),
            1 => (0..6_usize).prop_map(Call::RemoveNth),
            1 => kind().prop_map(Call::Clear),
            1 => (mode(), mode()).prop_map(|(steering, follow_up)| Call::SetModes(steering, follow_up)),
        ]
    }

    /// The slot as one would write it down on paper.
    #[derive(Default)]
    struct Paper {
        active: Option<u64>,
        started: u64,
        ending: Option<EndReason>,
        cancelled: bool,
        mine: [Vec<u32>; 2],
        held: [Vec<u32>; 2],
        all: [bool; 2],
    }

    impl Paper {
        fn is_open(&mut self, run: u64) -> Result<(), EndReason> {
            if self.active != Some(run) {
                return Err(EndReason::Aborted);
            }
            if self.ending.is_none() && self.cancelled {
                self.ending = Some(EndReason::Aborted);
            }
            self.ending.map_or(Ok(()), Err)
        }

        fn may_go_on(&mut self, run: u64, at: Boundary) -> Result<(), EndReason> {
            self.is_open(run)?;
            let has_more = at.has_results || self.mine.iter().any(|queue| !queue.is_empty());
            let end = match (has_more, at.at_turn_limit) {
                (false, _) => at.natural_end,
                (true, true) => EndReason::MaxTurns,
                (true, false) => return Ok(()),
            };
            self.ending = Some(end);
            Err(end)
        }
    }

    fn take(queue: &mut Vec<u32>, all: bool) -> Vec<u32> {
        let count = if all { queue.len() } else { queue.len().min(1) };
        queue.drain(..count).collect()
    }

    fn ids(messages: &[Arc<Queued>]) -> Vec<u32> {
        messages.iter().map(|queued| queued.message_id.parse().unwrap()).collect()
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        // C5.4, C8.2, C8.3, C8.4, C8.5, C8.7
        #[test]
        fn in_every_order_of_calls_the_slot_does_what_is_written_on_paper(calls in vec(call(), 0..60)) {
            let (mut slot, mut paper) = (RunSlot::default(), Paper::default());
            let mut next = 0;
            // Where each accepted message went: exactly one place.
            let mut left: HashMap<u32, u32> = HashMap::new();
            for call in calls {
                match call {
                    Call::Begin => {
                        let begun = slot.begin().map(|id| id.0).map_err(|id| id.0);
                        match paper.active {
                            Some(active) => prop_assert_eq!(begun, Err(active)),
                            None => {
                                paper.started += 1;
                                prop_assert_eq!(begun, Ok(paper.started));
                                paper.active = Some(paper.started);
                                (paper.ending, paper.cancelled) = (None, false);
                                paper.mine = std::mem::take(&mut paper.held);
                            }
                        }
                    }
                    Call::Push(kind) => {
                        next += 1;
                        let open = paper.active.is_some() && paper.ending.is_none();
                        let queues = if open { &mut paper.mine } else { &mut paper.held };
                        prop_assert_eq!(slot.push(kind, queued(next)), Ok(queues[kind as usize].len()));
                        queues[kind as usize].push(next);
                    }
                    Call::TakeFirst(run) => {
                        let expected = paper.is_open(run).map(|()| take(&mut paper.mine[0], paper.all[0]));
                        let taken = slot.take_first(RunId(run)).map(|taken| ids(&taken.messages));
                        prop_assert_eq!(&taken, &expected);
                        count(&mut left, taken.unwrap_or_default());
                    }
                    Call::MayGoOn(run, at) => {
                        prop_assert_eq!(slot.may_go_on(RunId(run), at), paper.may_go_on(run, at));
                    }
                    Call::TakeOrClose(run, at) => {
                        let expected = paper.may_go_on(run, at).map(|()| {
                            let steering = take(&mut paper.mine[0], paper.all[0]);
                            match steering.is_empty() && !at.has_results {
                                true => (QueueKind::FollowUp, take(&mut paper.mine[1], paper.all[1])),
                                false => (QueueKind::Steering, steering),
                            }
                        });
                        let taken = slot.take_or_close(RunId(run), at);
                        let taken = taken.map(|taken| (taken.queue, ids(&taken.messages)));
                        prop_assert_eq!(&taken, &expected);
                        if let Ok((_, messages)) = taken {
                            prop_assert!(at.has_results || !messages.is_empty(), "a turn has a reason");
                            count(&mut left, messages);
                        }
                    }
                    Call::TakeHeld => {
                        let steering = take(&mut paper.held[0], paper.all[0]);
                        let expected = match steering.is_empty() {
                            true => take(&mut paper.held[1], paper.all[1]),
                            false => steering,
                        };
                        let taken = ids(&slot.take_held().messages);
                        prop_assert_eq!(&taken, &expected);
                        count(&mut left, taken);
                    }
                    Call::Close(run, proposed) => {
                        let expected = match paper.is_open(run) {
                            Ok(()) => *paper.ending.insert(proposed),
                            Err(end) => end,
                        };
                        prop_assert_eq!(slot.close(RunId(run), proposed), expected);
                    }
                    Call::Cancel => {
                        let may = matches!(paper.ending, None | Some(EndReason::Aborted));
                        let may = may && paper.active.is_some();
                        prop_assert_eq!(slot.abort(), may);
                        paper.cancelled |= may;
                    }
                    Call::Finish(run) => {
                        let Undelivered { steering, follow_up } = slot.finish(RunId(run));
                        let mut expected = <[Vec<u32>; 2]>::default();
                        if paper.active == Some(run) {
                            paper.active = None;
                            expected = std::mem::take(&mut paper.mine);
                        }
                        let given = [ids(&steering), ids(&follow_up)];
                        prop_assert_eq!(&given, &expected);
                        given.into_iter().for_each(|ids| count(&mut left, ids));
                    }
                    Call::RemoveNth(index) => {
                        let Paper { mine, held, .. } = &mut paper;
                        let [[a, b], [c, d]] = [mine, held];
                        // The run's before the held ones; steering before follow-ups.
                        let mut queues = [a, c, b, d];
                        let all: Vec<u32> = queues.iter().flat_map(|queue| queue.iter().copied()).collect();
                        let Some(id) = all.get(index).copied() else { continue };
                        queues.iter_mut().for_each(|queue| queue.retain(|other| *other != id));
                        let removed = slot.remove(&id.to_string()).map(|(_, queued)| ids(&[queued]));
                        prop_assert_eq!(removed, Some(vec![id]));
                        prop_assert_eq!(slot.remove(&id.to_string()), None);
                        count(&mut left, vec![id]);
                    }
                    Call::Clear(kind) => {
                        let mut expected = std::mem::take(&mut paper.mine[kind as usize]);
                        expected.append(&mut paper.held[kind as usize]);
                        let cleared = ids(&slot.clear(kind));
                        prop_assert_eq!(&cleared, &expected);
                        count(&mut left, cleared);
                    }
                    Call::SetModes(steering, follow_up) => {
                        (slot.steering_mode, slot.follow_up_mode) = (steering, follow_up);
                        paper.all = [steering, follow_up].map(|mode| mode == QueueMode::All);
                    }
                }
                let accepting = paper.active.filter(|_| paper.ending.is_none());
                prop_assert_eq!(slot.accepting().map(|id| id.0), accepting);
                prop_assert_eq!(slot.active().map(|id| id.0), paper.active);
            }
            let waiting = paper.mine.iter().chain(&paper.held).flatten().copied().collect();
            count(&mut left, waiting);
            for id in 1..=next {
                prop_assert_eq!(left.get(&id), Some(&1), "message {} left once, or waits", id);
            }
        }
    }

    fn count(left: &mut HashMap<u32, u32>, ids: Vec<u32>) {
        ids.into_iter().for_each(|id| *left.entry(id).or_default() += 1);
    }
}
