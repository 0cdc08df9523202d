//! The agent: one long-lived object that many callers share.
//!
//! Owns: the public calls. Each is one atomic step under the agent's lock, returns at once and says
//! with `seq` where among the events it took effect.
//! Never: waits inside a step. Runs live in tasks of their own (5.8).

use std::{
    future::Future,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use serde::{Deserialize, Serialize};
use tokio::{runtime::Handle, sync::oneshot};

use crate::{
    AgentState, Block, Busy, CancelSignal, Config, ContinueError, EndReason, Event, EventKind,
    Hooks, Input, LastRun, Message, MessageId, Model, QueueKind, QueueMode, Queued, RetryPolicy,
    RunId, RunSlot, Snapshot, SubmitError, ThinkingLevel, Tool, ToolExecution, Transcript,
    Undelivered, Usage, UserMessage, WaitError, WhenIdle, WrongRun,
    agent_loop::{self, RunTask},
    contain::is_code_of,
    publish::{Feed, ListenerError, Publisher, Subscription},
    settings::{PreparedChange, Settings, SettingsChange},
};

/// What an agent is made of.
#[derive(Clone)]
pub struct AgentOptions {
    /// The model that answers.
    pub model: Arc<dyn Model>,
    /// Instructions that precede the transcript; empty for none.
    pub system_prompt: Arc<str>,
    /// The tools that the model may call. Of two with one name the first counts.
    pub tools: Vec<Arc<dyn Tool>>,
    /// Where the program looks into runs.
    pub hooks: Option<Arc<dyn Hooks>>,
    /// How much the model thinks.
    pub thinking_level: ThinkingLevel,
    /// How many steering messages are taken at a boundary.
    pub steering_mode: QueueMode,
    /// How many follow-ups are taken when the run would stop.
    pub follow_up_mode: QueueMode,
    /// What becomes of `steer` and `follow_up` at idle.
    pub when_idle: WhenIdle,
    /// The most turns that a run may have; 0 for no limit.
    pub max_turns: u32,
    /// Whether calls of one batch may overlap.
    pub tool_execution: ToolExecution,
    /// A transcript to go on from.
    pub messages: Transcript,
    /// How long things may take.
    pub limits: Limits,
    /// How often failed requests are sent again.
    pub retry: RetryPolicy,
}

impl AgentOptions {
    /// The defaults, with a model.
    pub fn new(model: impl Model) -> Self {
        AgentOptions {
            model: Arc::new(model),
            system_prompt: "".into(),
            tools: Vec::new(),
            hooks: None,
            thinking_level: ThinkingLevel::default(),
            steering_mode: QueueMode::default(),
            follow_up_mode: QueueMode::default(),
            when_idle: WhenIdle::default(),
            max_turns: 0,
            tool_execution: ToolExecution::default(),
            messages: Transcript::default(),
            limits: Limits::default(),
            retry: RetryPolicy::default(),
        }
    }
}

/// How long things may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// How long tools may still take when the run was aborted; 5 s unless set.
    pub abort_grace: Duration,
    /// How long a model may be silent; 5 minutes unless set.
    pub idle_timeout: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Limits { abort_grace: Duration::from_secs(5), idle_timeout: Duration::from_secs(300) }
    }
}

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

/// What `abort` found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Abort {
    /// Whether a run will end as aborted.
    pub aborted: bool,
    /// The run that is active.
    pub run_id: Option<RunId>,
    /// The newest event.
    pub seq: u64,
}

/// An agent at rest.
#[derive(Clone, Debug, PartialEq)]
pub struct Idle {
    /// The newest event; every listener has had it.
    pub seq: u64,
    /// How the run that was waited for, or else the last one, ended.
    pub last_run: Option<Arc<LastRun>>,
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

/// A stateful agent. Cheap to clone; all clones are the same agent.
///
/// Every method but the two waits is synchronous and takes effect before it returns. Dropping the
/// last clone ends nothing: a run that is active goes on to its end.
#[derive(Clone)]
pub struct Agent {
    publisher: Arc<Publisher>,
}

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
    pub(crate) fn next_message_id(&mut self) -> MessageId {
        self.messages += 1;
        format!("m{}", self.messages).into()
    }

    /// Publishes something of a run that is active.
    pub(crate) fn publish(&mut self, run_id: RunId, signal: CancelSignal, kind: EventKind) -> u64 {
        self.feed.publish(Some(run_id), signal, kind)
    }

    /// Publishes something that happened beside any run.
    fn publish_outside(&mut self, kind: EventKind) -> u64 {
        self.feed.publish(None, CancelSignal::never(), kind)
    }

    /// Publishes something of the run that takes input, or beside any run if none does.
    fn publish_of_open_run(&mut self, kind: EventKind) -> u64 {
        match self.slot.active().filter(|run| self.slot.accepting() == Some(run.id)) {
            Some(run) => {
                let (id, signal) = (run.id, run.cancel.signal());
                self.publish(id, signal, kind)
            }
            None => self.publish_outside(kind),
        }
    }

    /// Reports what went wrong beside a run, as the run's news while it is active: the news of a
    /// run that is over would be ignored.
    pub(crate) fn diagnose(&mut self, run_id: Option<RunId>, message: String) {
        let kind = EventKind::Diagnostic { message };
        match self.slot.active().filter(|run| Some(run.id) == run_id) {
            Some(run) => {
                let (id, signal) = (run.id, run.cancel.signal());
                self.publish(id, signal, kind)
            }
            None => self.publish_outside(kind),
        };
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

    /// Changes settings; publishes what differs.
    pub(crate) fn configure(&mut self, change: PreparedChange) {
        self.settings.apply(change);
        self.slot.steering_mode = self.settings.steering_mode;
        self.slot.follow_up_mode = self.settings.follow_up_mode;
        let difference = self.feed.state().config.difference(&self.settings.to_config());
        if !difference.is_empty() {
            self.publish_outside(EventKind::ConfigChanged { change: difference });
        }
    }

    /// Releases the slot and publishes the run's one `run_end`, in one step: no other run can
    /// begin in between. (5.3, 5.4)
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

    fn is_idle(&self) -> bool {
        self.slot.active().is_none() && self.feed.is_quiet()
    }

    fn end_of(&self, id: RunId) -> Option<Arc<LastRun>> {
        self.ends.get(usize::try_from(id.0).ok()?.checked_sub(1)?).cloned()
    }
}

impl Agent {
    /// An agent at idle.
    ///
    /// # Panics
    /// Outside a tokio runtime: the agent's runs live on the runtime that it was made on.
    pub fn new(options: AgentOptions) -> Self {
        let messages = options.messages.clone();
        let settings = Settings::new(options);
        let mut slot = RunSlot::default();
        slot.steering_mode = settings.steering_mode;
        slot.follow_up_mode = settings.follow_up_mode;
        let feed = Feed::new(AgentState::new(settings.to_config(), messages));
        let core = Core { slot, feed, settings, ends: Vec::new(), messages: 0 };
        Agent { publisher: Publisher::new(core, Handle::current()) }
    }

    /// Starts a run.
    ///
    /// # Errors
    /// [`SubmitError::Busy`] while a run is active, [`SubmitError::EmptyInput`].
    pub fn prompt(&self, input: impl Into<Input>) -> Result<RunHandle, SubmitError> {
        let accepted = self.submit(input.into(), Intent::Prompt { on_busy: OnBusy::Reject })?;
        Ok(accepted.handle.expect("a prompt that is not queued starts a run"))
    }

    /// Gives the current run a message for its next model request.
    ///
    /// # Errors
    /// See [`SubmitError`]; never `Busy`.
    pub fn steer(&self, input: impl Into<Input>) -> Result<Accepted, SubmitError> {
        self.enqueue(QueueKind::Steering, input.into())
    }

    /// Gives the current run a message for when it would otherwise stop.
    ///
    /// # Errors
    /// See [`SubmitError`]; never `Busy`.
    pub fn follow_up(&self, input: impl Into<Input>) -> Result<Accepted, SubmitError> {
        self.enqueue(QueueKind::FollowUp, input.into())
    }

    fn enqueue(&self, queue: QueueKind, input: Input) -> Result<Accepted, SubmitError> {
        self.submit(input, Intent::Queue { queue, expected_run_id: None, when_idle: None })
    }

    /// Takes input in, as `prompt`, `steer` and `follow_up` do, with every choice that there is.
    ///
    /// # Errors
    /// See [`SubmitError`]; nothing has changed then.
    pub fn submit(&self, input: Input, intent: Intent) -> Result<Accepted, SubmitError> {
        if input.content.iter().all(Block::is_empty) {
            return Err(SubmitError::EmptyInput);
        }
        self.publisher.step(|core| {
            let place = core.place(intent)?;
            match place {
                Place::NewRun => Ok(self.start_with_input(core, input)),
                Place::Queue(queue) => core.push(queue, input),
            }
        })
    }

    /// Runs again without a new message (5.6).
    ///
    /// # Errors
    /// A run is active, or there is nothing to answer.
    pub fn continue_run(&self) -> Result<RunHandle, ContinueError> {
        self.publisher.step(|core| {
            if let Some(active) = core.slot.active() {
                return Err(Busy { run_id: active.id }.into());
            }
            let messages = match core.feed.state().messages.last().map(|message| &**message) {
                None => return Err(ContinueError::NothingToContinue),
                Some(Message::Assistant(_)) => core.take_prompt()?,
                Some(_) => Vec::new(),
            };
            Ok(self.start(core, messages))
        })
    }

    /// Cancels the active run, or the one that is named. Only signals: the run settles itself.
    /// Idempotent; at idle it does nothing and says so.
    ///
    /// # Errors
    /// The named run is not active.
    pub fn abort(&self, expected: Option<RunId>) -> Result<Abort, WrongRun> {
        self.publisher.step(|core| {
            core.expect(expected)?;
            let grace = core.settings.limits.abort_grace;
            let aborted = core.slot.cancellable().map(|run| run.cancel.cancel(grace)).is_some();
            let run_id = core.slot.active().map(|run| run.id);
            Ok(Abort { aborted, run_id, seq: core.feed.seq() })
        })
    }

    /// Completes when the agent is idle: no run, and every event delivered. At idle: at once. If a
    /// listener starts another run first, it waits on. Safe to drop.
    ///
    /// # Errors
    /// [`WaitError::WaitsForItself`].
    pub fn wait_for_idle(&self) -> impl Future<Output = Result<Idle, WaitError>> + Send + 'static {
        self.wait(|core| {
            core.is_idle().then(|| {
                let last_run = core.feed.state().last_run.clone();
                Ok(Idle { seq: core.feed.seq(), last_run })
            })
        })
    }

    /// Completes when that run has settled; at once if it is over. Safe to drop.
    ///
    /// # Errors
    /// [`WaitError::UnknownRun`], [`WaitError::WaitsForItself`].
    pub fn wait_for_run(
        &self,
        id: RunId,
    ) -> impl Future<Output = Result<Idle, WaitError>> + Send + 'static {
        self.wait(move |core| {
            if !core.slot.has_started(id) {
                return Some(Err(WaitError::UnknownRun(id)));
            }
            let settled = core.feed.has_settled(id);
            settled.then(|| Ok(Idle { seq: core.feed.seq(), last_run: core.end_of(id) }))
        })
    }

    fn wait<C>(
        &self,
        condition: C,
    ) -> impl Future<Output = Result<Idle, WaitError>> + Send + 'static
    where
        C: Fn(&Core) -> Option<Result<Idle, WaitError>> + Send + Sync + 'static,
    {
        let publisher = self.publisher.clone();
        async move {
            if let Some(result) = condition(&publisher.lock()) {
                return result;
            }
            if is_code_of(publisher.id()) {
                return Err(WaitError::WaitsForItself);
            }
            publisher.until(condition).await
        }
    }

    /// The state after the newest event. Costs the same however long the transcript is.
    pub fn snapshot(&self) -> Snapshot {
        self.publisher.lock().feed.snapshot()
    }

    /// The number of the newest event; 0 before the first.
    pub fn seq(&self) -> u64 {
        self.publisher.lock().feed.seq()
    }

    /// Adds a listener behind those that there are. It is called with every event from the next
    /// delivery on, one at a time, and the run waits for it. It gets the run's signal; for events
    /// outside a run, one that never fires.
    pub fn subscribe<F, Fut>(&self, listener: F) -> Subscription
    where
        F: Fn(Arc<Event>, CancelSignal) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<(), ListenerError>> + Send + 'static,
    {
        Subscription::new(&self.publisher, listener)
    }

    /// Takes one message out of a queue.
    pub fn remove_queued(&self, message_id: &str) -> (Option<Arc<Queued>>, u64) {
        self.publisher.step(|core| {
            let removed = core.slot.remove(message_id).map(|(kind, queued)| {
                core.publish_removed(None, kind, vec![queued.message_id.clone()]);
                queued
            });
            (removed, core.feed.seq())
        })
    }

    /// Empties the steering queue and returns what was in it.
    pub fn clear_steering(&self) -> Vec<Arc<Queued>> {
        self.clear_queues(Some(QueueKind::Steering)).0.steering
    }

    /// Empties the follow-up queue and returns what was in it.
    pub fn clear_follow_ups(&self) -> Vec<Arc<Queued>> {
        self.clear_queues(Some(QueueKind::FollowUp)).0.follow_up
    }

    /// Empties one queue or, if none is named, both, and returns what was in them.
    pub fn clear_queues(&self, which: Option<QueueKind>) -> (Undelivered, u64) {
        self.publisher.step(|core| {
            let mut clear = |kind| match which.is_none_or(|only| only == kind) {
                true => core.clear(kind),
                false => Vec::new(),
            };
            let steering = clear(QueueKind::Steering);
            let follow_up = clear(QueueKind::FollowUp);
            (Undelivered { steering, follow_up }, core.feed.seq())
        })
    }

    /// Changes settings, all of them or none; they take effect at the next turn.
    pub fn configure(&self, change: SettingsChange) -> (Arc<Config>, u64) {
        let change = change.prepare();
        self.publisher.step(|core| {
            core.configure(change);
            (core.feed.state().config.clone(), core.feed.seq())
        })
    }

    /// Empties the transcript.
    ///
    /// # Errors
    /// A run is active.
    pub fn reset(&self) -> Result<u64, Busy> {
        self.publisher.step(|core| match core.slot.active() {
            Some(run) => Err(Busy { run_id: run.id }),
            None => Ok(core.publish_outside(EventKind::Reset {})),
        })
    }

    fn start_with_input(&self, core: &mut Core, input: Input) -> Accepted {
        let id = core.next_message_id();
        let message = user_message(id.clone(), input.content, input.origin);
        let handle = self.start(core, vec![message]);
        Accepted {
            disposition: Disposition::Started,
            run_id: Some(handle.run_id),
            message_id: id,
            position: None,
            seq: core.feed.seq(),
            handle: Some(handle),
        }
    }

    /// Starts a run; the caller has seen that none is active.
    fn start(&self, core: &mut Core, messages: Vec<Arc<Message>>) -> RunHandle {
        let (run_id, cancel) =
            core.slot.begin().expect("the caller has seen that no run is active");
        // Taken before `run_start` is published, so that no listener can change it. (5.2)
        let mut context = core.feed.state().messages.clone();
        context.extend(messages.iter().cloned());
        let kind = EventKind::RunStart { messages: messages.clone() };
        let seq = core.publish(run_id, cancel.signal(), kind);
        let (done, result) = oneshot::channel();
        let start = (core.settings.clone(), seq);
        let task = RunTask::new(self.publisher.clone(), run_id, cancel, context, messages, start);
        self.publisher.runtime.spawn(agent_loop::run(task, done));
        RunHandle { run_id, seq, publisher: self.publisher.clone(), result }
    }
}

/// Where input goes.
enum Place {
    NewRun,
    Queue(QueueKind),
}

impl Core {
    fn place(&self, intent: Intent) -> Result<Place, SubmitError> {
        match intent {
            Intent::Prompt { on_busy } => {
                let Some(active) = self.slot.active() else { return Ok(Place::NewRun) };
                let open = self.slot.accepting().is_some();
                match on_busy {
                    OnBusy::Steer if open => Ok(Place::Queue(QueueKind::Steering)),
                    OnBusy::FollowUp if open => Ok(Place::Queue(QueueKind::FollowUp)),
                    _ => Err(Busy { run_id: active.id }.into()),
                }
            }
            Intent::Queue { queue, expected_run_id, when_idle } => {
                self.expect(expected_run_id)?;
                if self.slot.accepting().is_some() {
                    return Ok(Place::Queue(queue));
                }
                match when_idle.unwrap_or(self.settings.when_idle.into()) {
                    NoRun::Reject => Err(SubmitError::NotRunning),
                    NoRun::Hold => Ok(Place::Queue(queue)),
                    NoRun::Prompt => match self.slot.active() {
                        Some(active) => Err(Busy { run_id: active.id }.into()),
                        None => Ok(Place::NewRun),
                    },
                }
            }
        }
    }

    fn expect(&self, expected: Option<RunId>) -> Result<(), WrongRun> {
        let actual = self.slot.active().map(|run| run.id);
        match expected {
            Some(expected) if actual != Some(expected) => Err(WrongRun { expected, actual }),
            _ => Ok(()),
        }
    }

    fn push(&mut self, kind: QueueKind, input: Input) -> Result<Accepted, SubmitError> {
        let message_id = self.next_message_id();
        let Input { content, origin } = input;
        let queued = Arc::new(Queued { message_id: message_id.clone(), content, origin });
        let position = self.slot.push(kind, queued.clone())?;
        let run_id = self.slot.accepting();
        let update = EventKind::QueueUpdate { queue: kind, added: Some(queued), removed: vec![] };
        let seq = self.publish_of_open_run(update);
        let disposition = match (run_id, kind) {
            (None, _) => Disposition::Held,
            (Some(_), QueueKind::Steering) => Disposition::Steered,
            (Some(_), QueueKind::FollowUp) => Disposition::Queued,
        };
        let position = Some(position);
        Ok(Accepted { disposition, run_id, message_id, position, seq, handle: None })
    }

    /// The messages that a run which continues after an answer begins with.
    fn take_prompt(&mut self) -> Result<Vec<Arc<Message>>, ContinueError> {
        let taken = self.slot.take_held();
        if taken.messages.is_empty() {
            return Err(ContinueError::NothingToContinue);
        }
        let removed = taken.messages.iter().map(|queued| queued.message_id.clone()).collect();
        self.publish_removed(None, taken.queue, removed);
        Ok(taken.messages.iter().map(|queued| to_message(queued)).collect())
    }

    fn clear(&mut self, kind: QueueKind) -> Vec<Arc<Queued>> {
        let cleared = self.slot.clear(kind);
        if !cleared.is_empty() {
            let removed = cleared.iter().map(|queued| queued.message_id.clone()).collect();
            self.publish_removed(None, kind, removed);
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

/// A queued message, as it joins the transcript now.
pub(crate) fn to_message(queued: &Queued) -> Arc<Message> {
    user_message(queued.message_id.clone(), queued.content.clone(), queued.origin.clone())
}

fn user_message(id: MessageId, content: Vec<Block>, origin: Option<crate::Origin>) -> Arc<Message> {
    Arc::new(Message::User(UserMessage { id, content, timestamp: now(), origin }))
}

/// Milliseconds since 1970.
pub(crate) fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as u64)
}

/// A run that was started. Awaiting it gives the result; dropping it changes nothing (5.8).
pub struct RunHandle {
    run_id: RunId,
    seq: u64,
    publisher: Arc<Publisher>,
    result: oneshot::Receiver<RunResult>,
}

impl RunHandle {
    /// The run.
    pub fn run_id(&self) -> RunId {
        self.run_id
    }

    /// The number of its `run_start`.
    pub fn seq(&self) -> u64 {
        self.seq
    }
}

impl std::fmt::Debug for RunHandle {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(out, "RunHandle({})", self.run_id)
    }
}

impl Future for RunHandle {
    type Output = Result<RunResult, WaitError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        match Pin::new(&mut self.result).poll(context) {
            Poll::Ready(result) => Poll::Ready(result.map_err(|_| WaitError::RuntimeGone)),
            // 5.5: it would wait for the very listener that is polling it.
            Poll::Pending if is_code_of(self.publisher.id()) => {
                Poll::Ready(Err(WaitError::WaitsForItself))
            }
            Poll::Pending => Poll::Pending,
        }
    }
}
