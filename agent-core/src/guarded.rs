//! What the agent's lock guards, and the steps that its owners have in common.
//!
//! Owns: that whatever changes the slot or the settings also publishes it, in the same step.
//! Never: awaits, or calls code that is not ours.

use std::{
    sync::Arc,
    time::{SystemTime, UNIX_EPOCH},
};

use crate::{
    AgentOptions, AgentState, Block, CancelSignal, EndReason, EventKind, LastRun, Message,
    MessageId, Origin, QueueKind, Queued, RunId, RunSlot, Undelivered, Usage, UserMessage,
    publish::Feed,
    settings::{PreparedChange, Settings},
};

/// What the agent's lock guards.
pub(crate) struct Core {
    pub(crate) slot: RunSlot,
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
        Core { slot, feed, settings, ends: Vec::new(), messages: messages.unwrap_or(0) }
    }

    pub(crate) fn next_message_id(&mut self) -> MessageId {
        self.messages += 1;
        format!("m{}", self.messages).into()
    }

    /// Publishes something of a run that is active.
    pub(crate) fn publish(&mut self, run_id: RunId, signal: CancelSignal, kind: EventKind) -> u64 {
        self.feed.publish(Some(run_id), signal, kind)
    }

    /// Publishes something that happened beside any run.
    pub(crate) fn publish_outside(&mut self, kind: EventKind) -> u64 {
        self.feed.publish(None, CancelSignal::never(), kind)
    }

    /// Publishes something of a run, or beside any run if there is none.
    fn publish_of(&mut self, run: Option<(RunId, CancelSignal)>, kind: EventKind) -> u64 {
        match run {
            Some((id, signal)) => self.publish(id, signal, kind),
            None => self.publish_outside(kind),
        }
    }

    /// Publishes something of the run that takes input, or beside any run if none does.
    pub(crate) fn publish_of_open_run(&mut self, kind: EventKind) -> u64 {
        let open = self.slot.accepting();
        self.publish_of(self.active_if(open), kind)
    }

    /// Reports what went wrong beside a run, as the run's news while it is active: the news of a
    /// run that is over would be ignored.
    pub(crate) fn diagnose(&mut self, run_id: Option<RunId>, message: String) {
        self.publish_of(self.active_if(run_id), EventKind::Diagnostic { message });
    }

    /// The active run and its signal, if it is this one.
    fn active_if(&self, run_id: Option<RunId>) -> Option<(RunId, CancelSignal)> {
        let run = self.slot.active().filter(|run| Some(run.id) == run_id)?;
        Some((run.id, run.cancel.signal()))
    }

    /// Publishes that messages left a queue.
    pub(crate) fn publish_removed(
        &mut self,
        run: Option<(RunId, CancelSignal)>,
        queue: QueueKind,
        removed: Vec<MessageId>,
    ) -> u64 {
        let kind = EventKind::QueueUpdate { queue, added: None, removed };
        match run {
            Some((id, signal)) => self.publish(id, signal, kind),
            None => self.publish_of_open_run(kind),
        }
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
            self.publish_outside(EventKind::ConfigChanged { change: difference });
        }
        old
    }

    /// Releases the slot and publishes the run's one `run_end`, in one step: no other run can
    /// begin in between. (C5.3, C5.4)
    pub(crate) fn end_run(
        &mut self,
        id: RunId,
        signal: CancelSignal,
        proposed: EndReason,
        error_message: Option<String>,
        usage: Usage,
    ) -> (LastRun, Undelivered, u64) {
        let reason = self.slot.close(id, proposed);
        let error_message = error_message.filter(|_| reason == EndReason::Error);
        let undelivered = self.slot.finish(id);
        let end = LastRun { run_id: id, reason, error_message: error_message.clone() };
        self.ends.push(Arc::new(end.clone()));
        let kind =
            EventKind::RunEnd { reason, error_message, undelivered: undelivered.clone(), usage };
        let seq = self.publish(id, signal, kind);
        (end, undelivered, seq)
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
