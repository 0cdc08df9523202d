//! The events that are on their way: numbered, reduced, waiting to be delivered.
//!
//! Owns: that an event is numbered and reduced in one step, and that at most one task delivers.
//! Never: calls a listener; [`publisher`](crate::run::publisher) does, without the lock.

use std::{collections::VecDeque, sync::Arc};

use crate::{
    data::{
        event::{Event, EventKind, RunId},
        state::{AgentState, Snapshot},
    },
    pure::reduce::reduce,
    seam::{BoxFuture, cancel::CancelSignal},
};

/// What a listener reports when it fails.
pub type ListenerError = Box<dyn std::error::Error + Send + Sync>;

/// What is called with every event.
pub(crate) type Listener =
    dyn Fn(Arc<Event>, CancelSignal) -> BoxFuture<'static, Result<(), ListenerError>> + Send + Sync;

/// All listeners, in their order, with the numbers that tell them apart.
pub(crate) type Listeners = Arc<Vec<(u64, Arc<Listener>)>>;

/// The numbered events that are on their way.
pub(crate) struct Feed {
    seq: u64,
    // Invariant: some, but for the moment in which `publish` reduces it. Taken out rather than
    // cloned, since shared nodes would be copied on the next write.
    state: Option<AgentState>,
    waiting: VecDeque<Delivery>,
    /// Someone delivers. Set and cleared under the lock, so at most one ever does.
    delivering: bool,
    delivered: u64,
    settled: Option<RunId>,
    listeners: Listeners,
    next_listener: u64,
}

/// An event with the signal that its listeners are given.
pub(crate) struct Delivery {
    pub(crate) event: Arc<Event>,
    pub(crate) signal: CancelSignal,
}

/// What whoever delivers has to do.
pub(crate) enum DeliveryStep {
    /// Tell these listeners, then say that it is [`delivered`](Feed::delivered).
    Deliver(Delivery, Listeners),
    /// Let another task deliver what is left. It is still tended.
    HandOver,
    /// Stop: nothing waits, and nobody delivers any more.
    Stop,
}

impl Feed {
    pub(crate) fn new(state: AgentState) -> Self {
        Feed {
            seq: 0,
            state: Some(state),
            waiting: VecDeque::new(),
            delivering: false,
            delivered: 0,
            settled: None,
            listeners: Arc::default(),
            next_listener: 0,
        }
    }

    /// Numbers an event, reduces it and puts it behind those that are on their way.
    pub(crate) fn publish(&mut self, run_id: Option<RunId>, signal: CancelSignal, kind: EventKind) {
        self.seq += 1;
        let event = Arc::new(Event { seq: self.seq, run_id, kind });
        self.state = self.state.take().map(|state| reduce(state, &event));
        self.waiting.push_back(Delivery { event, signal });
    }

    pub(crate) fn state(&self) -> &AgentState {
        self.state.as_ref().expect("only `publish` takes the state, and puts it back")
    }

    /// The number of the newest event.
    pub(crate) fn seq(&self) -> u64 {
        self.seq
    }

    pub(crate) fn snapshot(&self) -> Snapshot {
        Snapshot { seq: self.seq, state: self.state().clone() }
    }

    /// Whether every event has been delivered.
    pub(crate) fn is_quiet(&self) -> bool {
        self.waiting.is_empty() && !self.delivering
    }

    /// Whether the run's `run_end` has been delivered. Runs settle in the order of their numbers.
    pub(crate) fn has_settled(&self, id: RunId) -> bool {
        self.settled >= Some(id)
    }

    /// Whether that event has been delivered.
    pub(crate) fn has_delivered(&self, seq: u64) -> bool {
        self.delivered >= seq
    }

    /// Whether something waits.
    pub(crate) fn waits(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// Whether the caller is to deliver from now on, since nobody else does.
    pub(crate) fn tend(&mut self) -> bool {
        !std::mem::replace(&mut self.delivering, true)
    }

    /// Whoever delivered is gone; the next one to publish delivers.
    pub(crate) fn abandon(&mut self) {
        self.delivering = false;
    }

    /// What is next for whoever delivers up to that event. What comes after it is another task's
    /// work, so that nobody is kept by news that is not theirs.
    pub(crate) fn next(&mut self, up_to: u64) -> DeliveryStep {
        if self.has_delivered(up_to) && self.waits() {
            return DeliveryStep::HandOver;
        }
        match self.waiting.pop_front() {
            // The listeners of this moment: changes take effect from the next event. (C6.1)
            Some(delivery) => DeliveryStep::Deliver(delivery, self.listeners.clone()),
            None => {
                // In one step with the look at the FIFO: nothing can be left untended.
                self.delivering = false;
                DeliveryStep::Stop
            }
        }
    }

    /// Every listener has finished with this event.
    pub(crate) fn delivered(&mut self, event: &Event) {
        self.delivered = event.seq;
        if matches!(event.kind, EventKind::RunEnd { .. }) {
            self.settled = event.run_id;
        }
    }

    /// Adds a listener behind those that there are, and tells its number.
    pub(crate) fn listen(&mut self, listener: Arc<Listener>) -> u64 {
        self.next_listener += 1;
        Arc::make_mut(&mut self.listeners).push((self.next_listener, listener));
        self.next_listener
    }

    /// Removes one listener and hands it back, for the caller to drop without the lock: what it owns
    /// is not ours.
    #[must_use]
    pub(crate) fn forget(&mut self, number: u64) -> Option<Arc<Listener>> {
        let listeners = Arc::make_mut(&mut self.listeners);
        let index = listeners.iter().position(|(listener, _)| *listener == number)?;
        Some(listeners.remove(index).1)
    }
}
