//! Delivering what happens under the agent's lock.
//!
//! Owns: the lock, and the order of events as listeners see it. An event is numbered and reduced when
//! it is published, in the same step that made it true, and delivered to every listener before the
//! next one is (C5.4, C6.1, C6.2).
//! Never: holds the agent's lock across an await, or spawns a task per event. Whoever finds the
//! FIFO untended delivers until it is empty.

use std::{
    future::Future,
    sync::{Arc, Mutex, MutexGuard, PoisonError, Weak},
};

use tokio::{runtime::Handle, sync::Notify};

use crate::{
    data::event::{Event, EventKind},
    run::{
        contain::{AgentId, as_code_of, catch_panic},
        feed::{Delivery, DeliveryStep, Listener, ListenerError},
        guarded::Core,
    },
    seam::{BoxFuture, cancel::CancelSignal},
};

/// An agent's lock and the means to deliver what happens under it.
pub(crate) struct Publisher {
    core: Mutex<Core>,
    /// Woken after each delivery and when the FIFO has become empty.
    progress: Notify,
    pub(crate) runtime: Handle,
}

/// Keeps the promise that delivery never stops for good: if the delivering future is dropped (its
/// runtime shuts down), the next one to publish delivers.
struct Tending<'a>(&'a Publisher);

impl Drop for Tending<'_> {
    fn drop(&mut self) {
        self.0.lock().feed.abandon();
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
        if core.feed.waits() && core.feed.tend() {
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
                if core.feed.has_delivered(seq) {
                    return;
                }
                core.feed.tend()
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

    /// Delivers until nothing waits. The caller tends the feed.
    fn deliver_in_task(self: &Arc<Self>) {
        let publisher = self.clone();
        self.runtime.spawn(async move { publisher.deliver(u64::MAX).await });
    }

    /// Delivers up to that event, or until nothing waits. The caller tends the feed.
    async fn deliver(self: &Arc<Self>, up_to: u64) {
        let tending = Tending(self);
        loop {
            let (delivery, listeners) = {
                let mut core = self.lock();
                match core.feed.next(up_to) {
                    DeliveryStep::Deliver(delivery, listeners) => (delivery, listeners),
                    DeliveryStep::HandOver => {
                        self.deliver_in_task();
                        break;
                    }
                    DeliveryStep::Stop => break,
                }
            };
            for (_, listener) in listeners.iter() {
                self.tell(&**listener, &delivery).await;
            }
            self.lock().feed.delivered(&delivery.event);
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
            let mut core = self.lock();
            let run_id = core.if_active(event.run_id);
            core.publish(run_id, EventKind::Diagnostic { message: failure });
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
        let listener = publisher.lock().feed.listen(listener);
        Subscription { publisher: Arc::downgrade(publisher), listener }
    }

    /// Removes this listener and no other, from the next event on. Again: does nothing.
    pub fn unsubscribe(&self) {
        let Some(publisher) = self.publisher.upgrade() else { return };
        let removed = publisher.lock().feed.forget(self.listener);
        // Dropping it may call the agent, so not under the lock.
        drop(removed);
    }
}
