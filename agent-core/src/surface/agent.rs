//! The agent: one long-lived object that many callers share.
//!
//! Owns: the public calls. Each is one atomic step under the agent's lock, returns at once and says
//! with `seq` where among the events it took effect.
//! Never: waits inside a step. Runs live in tasks of their own (C5.8).

use std::{future::Future, sync::Arc};

use tokio::{runtime::Handle, sync::oneshot};

use crate::{
    data::{
        config::Config,
        event::{Event, EventKind, QueueKind, Queued, RunId, Undelivered},
        message::{Block, Input, Message},
        state::{LastRun, Snapshot},
    },
    run::{
        agent_loop,
        contain::is_code_of,
        feed::ListenerError,
        guarded::{Core, removed, user_message},
        publisher::{Publisher, Subscription},
        run_task::RunTask,
        settings::SettingsChange,
    },
    seam::{cancel::CancelSignal, options::AgentOptions},
    surface::{
        error::{Busy, ContinueError, SubmitError, WaitError, WrongRun},
        handle::RunHandle,
        intake::{Accepted, Disposition, InputPlace, Intent, OnBusy},
    },
};

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

/// A stateful agent. Cheap to clone; all clones are the same agent.
///
/// Every method but the two waits is synchronous, takes effect before it returns and may be called
/// from anywhere, inside listeners, tools and hooks too. Each costs a short time under one lock,
/// whatever the transcript's length. Dropping the last clone ends nothing: a run that is active goes
/// on to its end.
#[derive(Clone)]
pub struct Agent {
    publisher: Arc<Publisher>,
}

impl Agent {
    /// An agent at idle. Its runs live on the runtime that it is made on, which needs timers.
    ///
    /// # Panics
    /// Outside a tokio runtime.
    pub fn new(options: AgentOptions) -> Self {
        let core = Core::new(options);
        Agent { publisher: Publisher::new(core, Handle::current()) }
    }

    /// Starts a run in a task of its own and returns at once. The handle gives the run's result;
    /// dropping it changes nothing.
    ///
    /// # Errors
    /// [`SubmitError::Busy`] while a run is active, [`SubmitError::EmptyInput`].
    pub fn prompt(&self, input: impl Into<Input>) -> Result<RunHandle, SubmitError> {
        let accepted = self.submit(input.into(), Intent::Prompt { on_busy: OnBusy::Reject })?;
        Ok(accepted.handle.expect("a prompt that is not queued starts a run"))
    }

    /// Gives the current run a message for its next model request. What is accepted joins the
    /// transcript, or comes back in `run_end.undelivered` or from the call that removed it: once, and
    /// in order.
    ///
    /// # Errors
    /// See [`SubmitError`]; never `Busy`.
    pub fn steer(&self, input: impl Into<Input>) -> Result<Accepted, SubmitError> {
        self.enqueue(QueueKind::Steering, input.into())
    }

    /// Gives the current run a message for when it would otherwise stop. Promises what
    /// [`steer`](Agent::steer) promises.
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
        if input.content.iter().all(Block::is_blank) {
            return Err(SubmitError::EmptyInput);
        }
        self.publisher.step(|core| {
            let place = core.place(intent)?;
            match place {
                InputPlace::NewRun => Ok(self.start_with_input(core, input)),
                InputPlace::Queue(queue) => core.push(queue, input),
            }
        })
    }

    /// Runs again without a new message (C5.6).
    ///
    /// # Errors
    /// A run is active, or there is nothing to answer.
    pub fn continue_run(&self) -> Result<RunHandle, ContinueError> {
        self.publisher.step(|core| {
            if let Some(run_id) = core.slot.active() {
                return Err(Busy { run_id }.into());
            }
            let messages = match core.feed.state().messages.last().map(|message| &**message) {
                None => return Err(ContinueError::NothingToContinue),
                Some(Message::Assistant(_)) => core.take_prompt()?,
                Some(_) => Vec::new(),
            };
            Ok(self.start(core, messages))
        })
    }

    /// Cancels the active run, or the one that is named. Only signals: the run settles itself,
    /// within the grace period, whatever its model, tools and hooks do. Idempotent; at idle, or when
    /// the run's end is decided, it does nothing and says so.
    ///
    /// # Errors
    /// The named run is not active.
    pub fn abort(&self, expected: Option<RunId>) -> Result<Abort, WrongRun> {
        self.publisher.step(|core| {
            core.expect(expected)?;
            let (aborted, run_id) = (core.abort(), core.slot.active());
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
    /// delivery on, one at a time, and the run waits for it: a listener that is slow slows the run,
    /// and one that never returns stops it. It gets the run's signal; for events outside a run, one
    /// that never fires. A failure or panic becomes a `diagnostic` and stops nobody.
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
                core.publish(core.slot.accepting(), removed(kind, [&queued]));
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
        let (_old, config, seq) = self.publisher.step(|core| {
            let old = core.configure(change);
            (old, core.feed.state().config.clone(), core.feed.seq())
        });
        (config, seq)
    }

    /// Empties the transcript.
    ///
    /// # Errors
    /// A run is active.
    pub fn reset(&self) -> Result<u64, Busy> {
        self.publisher.step(|core| match core.slot.active() {
            Some(run_id) => Err(Busy { run_id }),
            None => {
                core.publish(None, EventKind::Reset {});
                Ok(core.feed.seq())
            }
        })
    }

    fn start_with_input(&self, core: &mut Core, input: Input) -> Accepted {
        let id = core.next_message_id();
        let message = user_message(id.clone(), input.content, input.origin);
        let handle = self.start(core, vec![message]);
        Accepted {
            disposition: Disposition::Started,
            run_id: Some(handle.run_id()),
            message_id: id,
            position: None,
            seq: core.feed.seq(),
            handle: Some(handle),
        }
    }

    /// Starts a run; the caller has seen that none is active.
    fn start(&self, core: &mut Core, messages: Vec<Arc<Message>>) -> RunHandle {
        let (run_id, cancel) = core.begin().expect("the caller has seen that no run is active");
        // Taken before `run_start` is published, so that no listener can change it. (C5.2)
        let mut context = core.feed.state().messages.clone();
        context.extend(messages.iter().cloned());
        let kind = EventKind::RunStart { messages: messages.clone() };
        core.publish(Some(run_id), kind);
        let seq = core.feed.seq();
        let (done, result) = oneshot::channel();
        let start = (core.settings.clone(), seq);
        let task = RunTask::new(self.publisher.clone(), run_id, cancel, context, messages, start);
        self.publisher.runtime.spawn(agent_loop::run(task, done));
        RunHandle::new(run_id, seq, self.publisher.clone(), result)
    }
}
