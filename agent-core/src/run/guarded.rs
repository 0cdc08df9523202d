//! What the agent's lock guards, and the steps that its owners have in common.
//!
//! Owns: that whatever changes the slot or the settings also publishes it, in the same step.
//! Never: awaits, or calls code that is not ours.

use std::{
    sync::Arc,
    time::{SystemTime, UNIX_EPOCH},
};

use crate::{
    data::{
        event::{EndReason, EventKind, QueueKind, Queued, RunId, Undelivered},
        message::{Block, Message, MessageId, Origin, Usage, UserMessage},
        state::{AgentState, LastRun},
    },
    pure::slot::RunSlot,
    run::{
        feed::Feed,
        settings::{PreparedChange, Settings},
    },
    seam::{
        cancel::{CancelSignal, CancelSource},
        options::AgentOptions,
    },
};

/// What the agent's lock guards.
pub(crate) struct Core {
    pub(crate) slot: RunSlot,
    /// The cancellation of the active run, or of the last one. Each run has its own. (C7.7)
    cancel: CancelSource,
    pub(crate) feed: Feed,
    pub(crate) settings: Settings,
    /// How each run ended; run 1 first.
    ends: Vec<Arc<LastRun>>,
    messages: u64,
}

impl Core {
    pub(crate) fn new(options: AgentOptions) -> Self {
        let transcript = options.messages.clone();
        let settings = Settings::new(options);
        let mut slot = RunSlot::default();
        slot.steering_mode = settings.steering_mode;
        slot.follow_up_mode = settings.follow_up_mode;
        // A transcript to go on from has ids of its own, which no new message may have.
        let messages = transcript.iter().filter_map(|message| number_of(message.id())).max();
        let feed = Feed::new(AgentState::new(settings.to_config(), transcript));
        Core {
            slot,
            cancel: CancelSource::default(),
            feed,
            settings,
            ends: Vec::new(),
            messages: messages.unwrap_or(0),
        }
    }

    pub(crate) fn next_message_id(&mut self) -> MessageId {
        self.messages += 1;
        format!("m{}", self.messages).into()
    }

    /// Publishes an event: the news of the run that is active or just ends, or of none.
    pub(crate) fn publish(&mut self, run_id: Option<RunId>, kind: EventKind) {
        let signal = match run_id {
            Some(_) => self.cancel.signal(),
            None => CancelSignal::never(),
        };
        self.feed.publish(run_id, signal, kind);
    }

    /// The run, while it is active: the news of one that is over would be ignored.
    pub(crate) fn if_active(&self, run_id: Option<RunId>) -> Option<RunId> {
        run_id.filter(|_| self.slot.active() == run_id)
    }

    /// Starts a run if none is active.
    ///
    /// # Errors
    /// The run that is active.
    pub(crate) fn begin(&mut self) -> Result<(RunId, CancelSource), RunId> {
        let id = self.slot.begin()?;
        self.cancel = CancelSource::default();
        Ok((id, self.cancel.clone()))
    }

    /// Aborts the active run, while its end is still open; whether it will end as aborted.
    pub(crate) fn abort(&mut self) -> bool {
        let aborts = self.slot.abort();
        if aborts {
            self.cancel.cancel(self.settings.limits.abort_grace);
        }
        aborts
    }

    /// Changes settings; publishes what differs. Returns the old ones, for the caller to drop after
    /// the lock: models and tools are not ours.
    #[must_use]
    pub(crate) fn configure(&mut self, change: PreparedChange) -> Settings {
        let old = self.settings.clone();
        self.settings.apply(change);
        self.slot.steering_mode = self.settings.steering_mode;
        self.slot.follow_up_mode = self.settings.follow_up_mode;
        let difference = self.feed.state().config.difference(&self.settings.to_config());
        if !difference.is_empty() {
            self.publish(None, EventKind::ConfigChanged { change: difference });
        }
        old
    }

    /// Releases the slot and publishes the run's one `run_end`, in one step: no other run can
    /// begin in between. (C5.3, C5.4)
    pub(crate) fn end_run(
        &mut self,
        id: RunId,
        proposed: EndReason,
        error_message: Option<String>,
        usage: Usage,
    ) -> (LastRun, Undelivered) {
        let reason = self.slot.close(id, proposed);
        let error_message = error_message.filter(|_| reason == EndReason::Error);
        let undelivered = self.slot.finish(id);
        let end = LastRun { run_id: id, reason, error_message: error_message.clone() };
        self.ends.push(Arc::new(end.clone()));
        let kind =
            EventKind::RunEnd { reason, error_message, undelivered: undelivered.clone(), usage };
        self.publish(Some(id), kind);
        (end, undelivered)
    }

    pub(crate) fn is_idle(&self) -> bool {
        self.slot.active().is_none() && self.feed.is_quiet()
    }

    pub(crate) fn end_of(&self, id: RunId) -> Option<Arc<LastRun>> {
        self.ends.get(usize::try_from(id.0).ok()?.checked_sub(1)?).cloned()
    }
}

/// The number in an id of ours.
fn number_of(id: &str) -> Option<u64> {
    // Half of all numbers are enough to count on from.
    id.strip_prefix('m')?.parse().ok().filter(|number| *number < u64::MAX / 2)
}

/// What is told when messages leave a queue.
pub(crate) fn removed<'a>(
    queue: QueueKind,
    messages: impl IntoIterator<Item = &'a Arc<Queued>>,
) -> EventKind {
    let removed = messages.into_iter().map(|queued| queued.message_id.clone()).collect();
    EventKind::QueueUpdate { queue, added: None, removed }
}

/// A queued message, as it joins the transcript now.
pub(crate) fn to_message(queued: &Queued) -> Arc<Message> {
    user_message(queued.message_id.clone(), queued.content.clone(), queued.origin.clone())
}

pub(crate) fn user_message(
    id: MessageId,
    content: Vec<Block>,
    origin: Option<Origin>,
) -> Arc<Message> {
    Arc::new(Message::User(UserMessage { id, content, timestamp: now(), origin }))
}

/// Milliseconds since 1970.
pub(crate) fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as u64)
}
