//! Everything that a run works with.
//!
//! Owns: how a run publishes: what it did in one step is delivered before it goes on. (C6.1)
//! Never: knows the order of what a run does; [`agent_loop`](crate::run::agent_loop) does.

use std::sync::Arc;

use crate::{
    data::{
        event::{EndReason, EventKind, Role, RunId, Undelivered},
        message::{Message, Usage},
        transcript::Transcript,
    },
    run::{guarded::Core, hook_call::HookCall, publisher::Publisher, settings::Settings},
    seam::cancel::CancelSource,
};

/// Everything that a run works with.
pub(crate) struct RunTask {
    pub(crate) publisher: Arc<Publisher>,
    pub(crate) id: RunId,
    pub(crate) cancel: CancelSource,
    /// What the next model request will see. The run's own copy: what others do cannot change it.
    pub(crate) context: Transcript,
    pub(crate) settings: Settings,
    pub(crate) turn: u32,
    pub(crate) new_messages: Vec<Arc<Message>>,
    pub(crate) usage: Usage,
    /// The number of the newest event that this run published.
    published: u64,
    /// What has begun and not ended; a panic of the loop must not leave it so. (C5.8)
    pub(crate) unfinished: Unfinished,
}

/// What a run came to.
#[derive(Clone, Debug)]
pub struct RunResult {
    /// The run.
    pub run_id: RunId,
    /// Why it ended.
    pub reason: EndReason,
    /// With [`EndReason::Error`], what went wrong.
    pub error_message: Option<String>,
    /// What the run added to the transcript, the prompt included.
    pub new_messages: Vec<Arc<Message>>,
    /// The whole transcript.
    pub messages: Transcript,
    /// What was accepted and not delivered.
    pub undelivered: Undelivered,
    /// What the run cost.
    pub usage: Usage,
}

/// What has begun and not ended.
#[derive(Default)]
pub(crate) struct Unfinished {
    pub(crate) turn: bool,
    pub(crate) message: bool,
}

impl RunTask {
    pub(crate) fn new(
        publisher: Arc<Publisher>,
        id: RunId,
        cancel: CancelSource,
        context: Transcript,
        new_messages: Vec<Arc<Message>>,
        (settings, published): (Settings, u64),
    ) -> Self {
        RunTask {
            publisher,
            id,
            cancel,
            context,
            settings,
            turn: 0,
            new_messages,
            usage: Usage::default(),
            published,
            unfinished: Unfinished::default(),
        }
    }

    /// Does one atomic step and waits until every listener has finished with what it published.
    pub(crate) async fn step<T>(&mut self, step: impl FnOnce(&mut Self, &mut Core) -> T) -> T {
        let publisher = self.publisher.clone();
        let result = {
            let mut core = publisher.lock();
            let before = core.feed.seq();
            let result = step(self, &mut core);
            if core.feed.seq() > before {
                self.published = core.feed.seq();
            }
            result
        };
        publisher.delivered(self.published).await;
        result
    }

    /// Publishes an event of this run and waits until every listener has finished with it.
    pub(crate) async fn publish(&mut self, kind: EventKind) {
        self.step(|run, core| core.publish(Some(run.id), kind)).await;
    }

    /// The model began to answer.
    pub(crate) async fn message_started(&mut self) {
        self.unfinished.message = true;
        self.publish(EventKind::MessageStart { role: Role::Assistant }).await;
    }

    /// What the model began counts no longer; the next attempt begins anew.
    pub(crate) fn message_dropped(&mut self) {
        self.unfinished.message = false;
    }

    /// Closes the run to input and decides how it ends.
    pub(crate) fn close(&self, proposed: EndReason) -> EndReason {
        self.publisher.lock().slot.close(self.id, proposed)
    }

    pub(crate) fn hook_call(&self) -> HookCall {
        HookCall {
            publisher: self.publisher.clone(),
            hooks: self.settings.hooks.clone(),
            run: self.id,
            signal: self.cancel.signal(),
        }
    }
}
