//! The event FIFO: number, reduce, deliver.
//!
//! Owns: the order of events. An event is numbered and reduced when it is published, in the same
//! step that made it true, and delivered to every listener before the next one is (C5.4, C6.1, C6.2).
//! Never: holds the agent's lock across an await, or spawns a task per event. Whoever finds the
//! FIFO untended delivers until it is empty.

use std::{
    collections::VecDeque,
    future::Future,
    sync::{Arc, Mutex, MutexGuard, PoisonError, Weak},
};

use tokio::{runtime::Handle, sync::Notify};

use crate::{
    AgentState, BoxFuture, CancelSignal, Event, EventKind, RunId, Snapshot,
    contain::{AgentId, as_code_of, catch_panic},
    guarded::Core,
    reduce,
};

/// What a listener reports when it fails.
pub type ListenerError = Box<dyn std::error::Error + Send + Sync>;

type Listener =
    dyn Fn(Arc<Event>, CancelSignal) -> BoxFuture<'static, Result<(), ListenerError>> + Send + Sync;

/// An agent's lock and the means to deliver what happens under it.
pub(crate) struct Publisher {
    core: Mutex<Core>,
    /// Woken after each delivery and when the FIFO has become empty.
    progress: Notify,
    pub(crate) runtime: Handle,
}

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
    listeners: Arc<Vec<(u64, Arc<Listener>)>>,
    next_listener: u64,
}

struct Delivery {
    event: Arc<Event>,
    signal: CancelSignal,
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
    pub(crate) fn publish(
        &mut self,
        run_id: Option<RunId>,
        signal: CancelSignal,
        kind: EventKind,
    ) -> u64 {
        self.seq += 1;
        let event = Arc::new(Event { seq: self.seq, run_id, kind });
        self.state = self.state.take().map(|state| reduce(state, &event));
        self.waiting.push_back(Delivery { event, signal });
        self.seq
    }

    pub(crate) fn state(&self) -> &AgentState {
        self.state.as_ref().expect("only `publish` takes the state, and puts it back")
    }

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
}

/// Keeps the promise that delivery never stops for good: if the delivering future is dropped (its
/// runtime shuts down), the next one to publish delivers.
struct Tending<'a>(&'a Publisher);

impl Drop for Tending<'_> {
    fn drop(&mut self) {
        self.0.lock().feed.delivering = false;
        self.0.progress.notify_waiters();
    }
}

impl Publisher {
    pub(crate) fn new(core: Core, runtime: Handle) -> Arc<Self> {
        Arc::new(Publisher { core: Mutex::new(core), progress: Notify::new(), runtime })
    }

    /// Names the agent in task-local bookkeeping.
    pub(crate) fn id(&self) -> AgentId {
        std::ptr::from_ref(self) as AgentId
    }

    /// The lock. Held for a few steps at a time and never across an await.
    pub(crate) fn lock(&self) -> MutexGuard<'_, Core> {
        // Nothing under the lock can panic half-way through a change.
        self.core.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Does one atomic step and sees to it that what it published is delivered, by another task.
    /// For calls that do not wait.
    pub(crate) fn step<T>(self: &Arc<Self>, step: impl FnOnce(&mut Core) -> T) -> T {
        let mut core = self.lock();
        let result = step(&mut core);
        if !core.feed.waiting.is_empty() && !core.feed.delivering {
            core.feed.delivering = true;
            self.deliver_in_task();
        }
        result
    }

    /// Waits until the event with that number has reached every listener, and delivers it itself
    /// if nobody else does. Only for tasks that are never dropped.
    pub(crate) async fn delivered(self: &Arc<Self>, seq: u64) {
        loop {
            let progress = self.progress.notified();
            let mut progress = std::pin::pin!(progress);
            progress.as_mut().enable();
            let tend = {
                let mut core = self.lock();
                if core.feed.delivered >= seq {
                    return;
                }
                let tend = !core.feed.delivering;
                core.feed.delivering = true;
                tend
            };
            match tend {
                true => self.deliver(seq).await,
                false => progress.await,
            }
        }
    }

    /// Waits until a condition of the agent holds. Safe to drop.
    pub(crate) async fn until<T>(&self, condition: impl Fn(&Core) -> Option<T>) -> T {
        loop {
            let progress = self.progress.notified();
            let mut progress = std::pin::pin!(progress);
            progress.as_mut().enable();
            if let Some(result) = condition(&self.lock()) {
                return result;
            }
            progress.await;
        }
    }

    /// Delivers until nothing waits. The caller has set `delivering`.
    fn deliver_in_task(self: &Arc<Self>) {
        let publisher = self.clone();
        self.runtime.spawn(async move { publisher.deliver(u64::MAX).await });
    }

    /// Delivers up to that event, or until nothing waits; what comes after it is another task's
    /// work, so that nobody is kept by news that is not theirs. The caller has set `delivering`.
    async fn deliver(self: &Arc<Self>, up_to: u64) {
        let tending = Tending(self);
        loop {
            let (delivery, listeners) = {
                let mut core = self.lock();
                if core.feed.delivered >= up_to && !core.feed.waiting.is_empty() {
                    self.deliver_in_task();
                    break;
                }
                let Some(delivery) = core.feed.waiting.pop_front() else {
                    // In one step with the look at the FIFO: nothing can be left untended.
                    core.feed.delivering = false;
                    break;
                };
                // Those of this moment: changes take effect from the next event. (C6.1)
                (delivery, core.feed.listeners.clone())
            };
            for (_, listener) in listeners.iter() {
                self.tell(&**listener, &delivery).await;
            }
            let mut core = self.lock();
            core.feed.delivered = delivery.event.seq;
            if matches!(delivery.event.kind, EventKind::RunEnd { .. }) {
                core.feed.settled = delivery.event.run_id;
            }
            drop(core);
            self.progress.notify_waiters();
        }
        std::mem::forget(tending);
        self.progress.notify_waiters();
    }

    /// Calls one listener. Its failure is an event of its own and stops nobody. (C6.3)
    async fn tell(&self, listener: &Listener, delivery: &Delivery) {
        let Delivery { event, signal } = delivery;
        let call = async { listener(event.clone(), signal.clone()).await };
        let failure = match catch_panic(as_code_of(self.id(), call)).await {
            Ok(Ok(())) => return,
            Ok(Err(error)) => format!("a listener failed: {error}"),
            Err(panic) => format!("a listener panicked: {panic}"),
        };
        // One that fails on every event would otherwise report itself for ever.
        if !matches!(event.kind, EventKind::Diagnostic { .. }) {
            self.lock().diagnose(event.run_id, failure);
        }
    }
}

/// A listener's place in the order; it stays until `unsubscribe` is called.
#[derive(Clone)]
pub struct Subscription {
    publisher: Weak<Publisher>,
    listener: u64,
}

impl Subscription {
    pub(crate) fn new<F, Fut>(publisher: &Arc<Publisher>, listener: F) -> Self
    where
        F: Fn(Arc<Event>, CancelSignal) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<(), ListenerError>> + Send + 'static,
    {
        let listener: Arc<Listener> = Arc::new(move |event, signal| {
            Box::pin(listener(event, signal)) as BoxFuture<'static, _>
        });
        let mut core = publisher.lock();
        core.feed.next_listener += 1;
        let id = core.feed.next_listener;
        Arc::make_mut(&mut core.feed.listeners).push((id, listener));
        Subscription { publisher: Arc::downgrade(publisher), listener: id }
    }

    /// Removes this listener and no other, from the next event on. Again: does nothing.
    pub fn unsubscribe(&self) {
        let Some(publisher) = self.publisher.upgrade() else { return };
        let removed = {
            let mut core = publisher.lock();
            let listeners = Arc::make_mut(&mut core.feed.listeners);
            let index = listeners.iter().position(|(id, _)| *id == self.listener);
            index.map(|index| listeners.remove(index))
        };
        // What a listener owns is not ours; dropping it may call the agent, so not under the lock.
        drop(removed);
    }
}
