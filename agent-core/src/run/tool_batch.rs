//! One turn's calls: run, pair, order. Whether one may run is [`check`]'s question.
//!
//! Owns: that each call of a message gets exactly one result, in call order, whatever its tool, a
//! hook or an abort does (C3.4, C7.4, C11.2).
//! Never: lets a tool outlive the batch, or a late word of one reach the events.

use std::{collections::VecDeque, future::Future, pin::Pin, sync::Arc};

use tokio::{sync::mpsc, task::JoinSet};

use crate::{
    data::{
        config::ToolExecution,
        event::EventKind,
        message::{
            AssistantMessage, Block, Message, MessageId, StopReason, ToolCall, ToolResultMessage,
        },
        outcome::{ToolOutcome, ToolOutput},
        transcript::Transcript,
    },
    pure::nesting::{self, MAX_DEPTH},
    run::{
        check::{Checked, Refusal, check},
        contain::{as_code_of, aside, catch_panic, first_step},
        hook_call::{HookCall, Interrupted},
        run_task::RunTask,
    },
    seam::{
        cancel::CancelSource,
        tool::{ToolConcurrency, ToolContext, ToolUpdate},
    },
};

/// How many updates of a batch's tools may wait for the run's listeners.
const UPDATE_CAPACITY: usize = 64;

/// What a batch came to.
pub(crate) struct BatchResult {
    /// One for each call, in call order.
    pub(crate) results: Vec<PairedResult>,
    /// A hook failed, which ends the run.
    pub(crate) hook_failure: Option<String>,
}

/// A call and what it came to.
pub(crate) struct PairedResult {
    tool_call_id: String,
    tool_name: String,
    outcome: ToolOutcome,
}

impl PairedResult {
    pub(crate) fn into_message(self, id: MessageId, timestamp: u64) -> ToolResultMessage {
        ToolResultMessage {
            id,
            tool_call_id: self.tool_call_id,
            tool_name: self.tool_name,
            content: self.outcome.output.content,
            is_error: self.outcome.is_error,
            timestamp,
            details: self.outcome.output.details,
        }
    }
}

/// Carries out a message's calls.
pub(crate) async fn run(run: &mut RunTask, message: &AssistantMessage) -> BatchResult {
    let calls: Vec<ToolCall> = message.tool_calls().cloned().collect();
    if calls.is_empty() {
        return BatchResult { results: Vec::new(), hook_failure: None };
    }
    let mut batch = Batch::new(run, calls);
    match message.stop_reason {
        // The arguments may be cut, too. (C5.10)
        StopReason::Length => batch.skip_rest(CUT_OFF).await,
        _ => batch.drive().await,
    }
    batch.into_result()
}

/// The calls at a transcript's end that have no result, paired with one that says so.
pub(crate) fn unpaired(context: &Transcript) -> Vec<PairedResult> {
    let mut answered = Vec::new();
    for message in context.iter().rev() {
        match &**message {
            Message::ToolResult(result) => answered.push(result.tool_call_id.clone()),
            Message::Assistant(message) => {
                let open = message.tool_calls().filter(|call| !answered.contains(&call.id));
                return open.map(|call| pair(call, failed("The run failed."))).collect();
            }
            Message::User(_) => return Vec::new(),
        }
    }
    Vec::new()
}

const CUT_OFF: &str = "The answer was cut off by the output limit, so the call was not run: its \
                       arguments may be incomplete. Call again, with less in one answer.";
const ABORTED: &str = "The run was aborted before the call began.";

struct Batch<'a> {
    run: &'a mut RunTask,
    hooks: HookCall,
    /// Fires with the run's, and alone when a hook failed.
    cancel: CancelSource,
    calls: Vec<ToolCall>,
    outcomes: Vec<Option<ToolOutcome>>,
    /// Indices of calls that nobody has looked at yet.
    waiting: VecDeque<usize>,
    running: Vec<Running>,
    /// Ends when the newest call has taken its first step. The next one starts after that, so that
    /// what calls queue for they get in call order.
    beginning: Option<Pin<Box<dyn Future<Output = ()> + Send>>>,
    tasks: JoinSet<Finished>,
    updates: (mpsc::Sender<ToolUpdate>, mpsc::Receiver<ToolUpdate>),
    hook_failure: Option<String>,
}

struct Running {
    index: usize,
    alone: bool,
}

struct Finished {
    index: usize,
    outcome: Result<ToolOutcome, Interrupted>,
}

/// A check that is under way.
type Checking = Pin<Box<dyn Future<Output = Result<Checked, Refusal>> + Send>>;

enum Happened {
    Cancelled,
    GraceOver,
    Begun,
    Finished(Option<Finished>),
    Checked(Result<Checked, Refusal>),
    Updated(ToolUpdate),
}

impl<'a> Batch<'a> {
    fn new(run: &'a mut RunTask, calls: Vec<ToolCall>) -> Self {
        let cancel = run.cancel.child();
        Batch {
            hooks: HookCall { signal: cancel.signal(), ..run.hook_call() },
            cancel,
            outcomes: calls.iter().map(|_| None).collect(),
            waiting: (0..calls.len()).collect(),
            running: Vec::new(),
            beginning: None,
            tasks: JoinSet::new(),
            updates: mpsc::channel(UPDATE_CAPACITY),
            hook_failure: None,
            calls,
            run,
        }
    }

    /// Until no call waits or runs. Calls are checked one after another, in call order, while
    /// earlier ones already run.
    async fn drive(&mut self) {
        let mut checking: Option<Checking> = None;
        let signal = self.cancel.signal();
        loop {
            if signal.is_cancelled() {
                // Dropped before its call is skipped: no hook may speak for it any more.
                checking = None;
                self.skip_rest(ABORTED).await;
            }
            if checking.is_none() && self.may_start_next() {
                checking = self.waiting.front().map(|index| self.check(*index));
            }
            if checking.is_none() && self.running.is_empty() {
                return;
            }
            let happened = tokio::select! {
                biased;
                () = signal.cancelled(), if !signal.is_cancelled() => Happened::Cancelled,
                () = signal.grace_over() => Happened::GraceOver,
                () = if_any(&mut self.beginning) => Happened::Begun,
                checked = if_any(&mut checking) => Happened::Checked(checked),
                Some(finished) = self.tasks.join_next() => Happened::Finished(finished.ok()),
                Some(update) = self.updates.1.recv() => Happened::Updated(update),
            };
            match happened {
                Happened::Cancelled => {}
                Happened::GraceOver => self.abandon().await,
                Happened::Begun => self.beginning = None,
                Happened::Finished(finished) => self.finished(finished).await,
                Happened::Checked(checked) => {
                    checking = None;
                    self.checked(checked).await;
                }
                Happened::Updated(update) => self.updated(update).await,
            }
        }
    }

    /// Whether nothing that runs, and nothing about the next call, stands in its way. One that waits
    /// for others to end is not even checked: no hook speaks for it, and an abort skips it.
    fn may_start_next(&self) -> bool {
        let Some(next) = self.waiting.front() else { return false };
        let sequential = self.run.settings.tool_execution == ToolExecution::Sequential;
        let alone = sequential || self.asks_to_run_alone(&self.calls[*next].name);
        let has_room = self.running.len() < self.run.settings.limits.max_parallel.get();
        let beside = || !alone && !self.running.iter().any(|running| running.alone);
        self.running.is_empty() || (has_room && self.beginning.is_none() && beside())
    }

    fn asks_to_run_alone(&self, name: &str) -> bool {
        self.run.settings.tools.concurrency(name) == ToolConcurrency::Alone
    }

    fn check(&self, index: usize) -> Checking {
        let (tools, hooks) = (self.run.settings.tools.clone(), self.hooks.clone());
        Box::pin(check(tools, hooks, self.calls[index].clone()))
    }

    async fn checked(&mut self, checked: Result<Checked, Refusal>) {
        match checked {
            // Between the check and this moment the run may have been aborted.
            Ok(_) if self.cancel.is_cancelled() => {}
            Ok(checked) => {
                let Some(index) = self.waiting.pop_front() else { return };
                self.start(index, checked).await;
            }
            Err(Refusal::Call(reason)) => {
                let Some(index) = self.waiting.pop_front() else { return };
                self.skip(index, &reason).await;
            }
            Err(Refusal::Batch(interrupted)) => self.give_up(interrupted).await,
        }
    }

    async fn start(&mut self, index: usize, Checked { tool, call }: Checked) {
        let tool_call_id: Arc<str> = call.id.as_str().into();
        let start = EventKind::ToolStart {
            tool_call_id: tool_call_id.clone(),
            tool_name: call.name.clone(),
            args: call.arguments.clone(),
        };
        self.running.push(Running { index, alone: self.asks_to_run_alone(&call.name) });
        self.run.publish(start).await;
        // A listener may have aborted; what has not begun must not begin then. (C7.4)
        if self.cancel.is_cancelled() {
            return self.end(index, failed(ABORTED)).await;
        }
        let signal = self.cancel.signal();
        let context = ToolContext { tool_call_id, signal, updates: self.updates.0.clone() };
        let hooks = self.hooks.clone();
        let agent = self.run.publisher.id();
        let task = async move {
            let arguments = call.arguments.clone();
            let call_tool = as_code_of(agent, async move { tool.call(arguments, context).await });
            let outcome = match aside(catch_panic(call_tool)).await {
                Ok(Ok(output)) => ToolOutcome { output, is_error: false },
                Ok(Err(error)) => ToolOutcome { output: error.output, is_error: true },
                Err(panic) => failed(&format!("The tool panicked: {panic}")),
            };
            Finished { index, outcome: hooks.after_tool_call(call, outcome).await }
        };
        let (task, first_step) = first_step(task);
        self.beginning = Some(Box::pin(first_step));
        self.tasks.spawn_on(task, &self.run.publisher.runtime);
    }

    async fn finished(&mut self, finished: Option<Finished>) {
        // None: a task that was stopped from outside; it is found when none is left.
        let Some(Finished { index, outcome }) = finished else {
            if self.tasks.is_empty() {
                self.abandon().await;
            }
            return;
        };
        // What it said before it finished comes before its end. Not more than there can be: another
        // tool may be flooding.
        for _ in 0..UPDATE_CAPACITY {
            let Ok(update) = self.updates.1.try_recv() else { break };
            self.updated(update).await;
        }
        match outcome {
            Ok(outcome) => self.end(index, bounded(outcome)).await,
            Err(interrupted) => {
                let text =
                    "The tool ran, but the hook after it did not finish; its result is lost.";
                self.end(index, failed(text)).await;
                self.give_up(interrupted).await;
            }
        }
    }

    async fn updated(&mut self, ToolUpdate { tool_call_id, partial }: ToolUpdate) {
        // A word that comes after its call has ended is dropped.
        let is_running =
            self.running.iter().any(|running| self.calls[running.index].id == *tool_call_id);
        if is_running && is_shallow(&partial) {
            self.run.publish(EventKind::ToolUpdate { tool_call_id, partial }).await;
        }
    }

    /// A hook ended more than its own call.
    async fn give_up(&mut self, interrupted: Interrupted) {
        if let Interrupted::Failed(failure) = interrupted {
            self.hook_failure.get_or_insert(failure.clone());
            self.cancel.cancel(self.run.settings.limits.abort_grace);
            self.skip_rest(&failure).await;
        }
    }

    /// The grace period is over: whatever still runs is on its own. (C7.4)
    async fn abandon(&mut self) {
        // Those that were in time, while the run's listeners were not.
        while let Some(finished) = self.tasks.try_join_next() {
            if let Ok(Finished { index, outcome: Ok(outcome) }) = finished {
                self.end(index, bounded(outcome)).await;
            }
        }
        self.tasks.abort_all();
        self.tasks = JoinSet::new();
        for Running { index, .. } in std::mem::take(&mut self.running) {
            let text = "The tool was aborted and did not stop in time; what it did is unknown.";
            self.end(index, failed(text)).await;
        }
    }

    async fn end(&mut self, index: usize, outcome: ToolOutcome) {
        self.running.retain(|running| running.index != index);
        let end = EventKind::ToolEnd {
            tool_call_id: self.calls[index].id.as_str().into(),
            result: outcome.output.clone(),
            is_error: outcome.is_error,
        };
        self.outcomes[index] = Some(outcome);
        self.run.publish(end).await;
    }

    async fn skip_rest(&mut self, reason: &str) {
        while let Some(index) = self.waiting.pop_front() {
            self.skip(index, reason).await;
        }
    }

    async fn skip(&mut self, index: usize, reason: &str) {
        self.outcomes[index] = Some(failed(reason));
        let tool_call_id = self.calls[index].id.as_str().into();
        let reason = reason.to_owned();
        self.run.publish(EventKind::ToolSkipped { tool_call_id, reason }).await;
    }

    fn into_result(self) -> BatchResult {
        let paired = self.calls.iter().zip(self.outcomes).map(|(call, outcome)| {
            pair(call, outcome.unwrap_or_else(|| failed("The call has no result.")))
        });
        BatchResult { results: paired.collect(), hook_failure: self.hook_failure }
    }
}

/// Waits for a future if there is one, else for ever.
async fn if_any<F: Future + Unpin>(future: &mut Option<F>) -> F::Output {
    match future {
        Some(future) => future.await,
        None => std::future::pending().await,
    }
}

fn pair(call: &ToolCall, outcome: ToolOutcome) -> PairedResult {
    PairedResult { tool_call_id: call.id.clone(), tool_name: call.name.clone(), outcome }
}

fn failed(text: &str) -> ToolOutcome {
    ToolOutcome {
        output: ToolOutput { content: vec![Block::text(text)], details: None },
        is_error: true,
    }
}

/// A result that readers of our events could not take in is an error, not a broken stream.
fn bounded(outcome: ToolOutcome) -> ToolOutcome {
    match is_shallow(&outcome.output) {
        true => outcome,
        false => failed(&format!("The tool's details nest deeper than {MAX_DEPTH} levels.")),
    }
}

fn is_shallow(output: &ToolOutput) -> bool {
    output.details.as_ref().is_none_or(nesting::is_shallow)
}
