//! The turns of one run.
//!
//! Owns: the order of what a run does, from `run_start` to `run_end`, and its own context.
//! Never: touches state but by publishing, or reads a queue outside a boundary (C8.2).

use std::sync::Arc;

use tokio::sync::oneshot;

use crate::{
    data::{
        event::{EndReason, EventKind, QueueKind, RunId, Source},
        message::{AssistantMessage, Block, Message, StopReason, ToolResultMessage, Usage},
        outcome::ToolOutput,
    },
    pure::slot::{Boundary, Taken},
    run::{
        contain::catch_panic,
        guarded::{Core, now, removed, to_message},
        hook_call::Interrupted,
        run_task::{RunResult, RunTask},
        stream, tool_batch,
    },
    seam::hooks::FinishedTurn,
};

/// Why the turns are over.
pub(crate) struct RunEnding {
    reason: EndReason,
    error_message: Option<String>,
}

impl RunEnding {
    pub(crate) fn error(message: impl Into<String>) -> Self {
        RunEnding { reason: EndReason::Error, error_message: Some(message.into()) }
    }
}

impl From<EndReason> for RunEnding {
    fn from(reason: EndReason) -> Self {
        RunEnding { reason, error_message: None }
    }
}

impl From<Interrupted> for RunEnding {
    fn from(interrupted: Interrupted) -> Self {
        match interrupted {
            Interrupted::Aborted => EndReason::Aborted.into(),
            Interrupted::Failed(message) => RunEnding::error(message),
        }
    }
}

/// Runs to the end, whatever happens, and tells the handle.
pub(crate) async fn run(mut task: RunTask, done: oneshot::Sender<RunResult>) {
    let span = tracing::debug_span!("run", id = %task.id);
    let ending = match catch_panic(tracing::Instrument::instrument(task.turns(), span)).await {
        Ok(ending) => ending,
        Err(panic) => task.tidy_up(format!("the agent itself failed: {panic}")).await,
    };
    let result = task.settle(ending).await;
    // Nobody may be waiting; the run is over all the same.
    let _ = done.send(result);
}

impl RunTask {
    async fn turns(&mut self) -> RunEnding {
        // Nobody asks a model before the listeners have seen the run begin.
        self.step(|_, _| ()).await;
        if let Err(reason) = self.begin_first_turn().await {
            return reason.into();
        }
        loop {
            let (finished, boundary) = match self.turn().await {
                Ok(turn) => turn,
                Err(ending) => return ending,
            };
            if let Err(ending) = self.begin_next_turn(finished, boundary).await {
                return ending;
            }
        }
    }

    /// Clears the run's own slot, publishes its `run_end` and waits for every listener. (C5.3)
    async fn settle(&mut self, ending: RunEnding) -> RunResult {
        let RunEnding { reason, error_message } = ending;
        let usage = self.usage;
        let end =
            |run: &mut Self, core: &mut Core| core.end_run(run.id, reason, error_message, usage);
        let (end, undelivered) = self.step(end).await;
        RunResult {
            run_id: end.run_id,
            reason: end.reason,
            error_message: end.error_message,
            new_messages: std::mem::take(&mut self.new_messages),
            messages: std::mem::take(&mut self.context),
            undelivered,
            usage,
        }
    }

    /// Takes the steering that is there before the first request, unless already aborted. (C7.2)
    async fn begin_first_turn(&mut self) -> Result<(), EndReason> {
        self.begin_turn(|core, id| core.slot.take_first(id)).await
    }

    /// The boundary: cancellation, hook, turn limit, steering, follow-ups, in this order. (C8.2)
    async fn begin_next_turn(
        &mut self,
        finished: FinishedTurn,
        mut boundary: Boundary,
    ) -> Result<(), RunEnding> {
        let hooks = self.hook_call();
        let turn = finished.clone();
        if hooks.should_stop_after_turn(turn).await? {
            return Err(self.close(EndReason::StoppedByHook).into());
        }
        let max_turns = self.publisher.lock().settings.max_turns;
        boundary.at_turn_limit = max_turns > 0 && self.turn >= max_turns;
        self.publisher.lock().slot.may_go_on(self.id, boundary)?;
        let next = hooks.prepare_next_turn(finished).await?;
        if let Some(next) = next {
            drop(self.publisher.step(|core| core.configure(next)));
        }
        self.begin_turn(|core, id| core.slot.take_or_close(id, boundary)).await?;
        Ok(())
    }

    /// Takes messages and publishes that they were taken, in one step: whoever looks sees them
    /// either in the queue or in the transcript.
    async fn begin_turn(
        &mut self,
        take: impl FnOnce(&mut Core, RunId) -> Result<Taken, EndReason>,
    ) -> Result<(), EndReason> {
        let begun = self.step(|run, core| {
            let taken = take(core, run.id)?;
            run.turn += 1;
            let old = std::mem::replace(&mut run.settings, core.settings.clone());
            core.publish(Some(run.id), EventKind::TurnStart { turn: run.turn });
            run.unfinished.turn = true;
            run.join_taken(core, taken);
            Ok(old)
        });
        // Models and tools are not ours: the old ones are dropped here, without the lock.
        begun.await.map(drop)
    }

    fn join_taken(&mut self, core: &mut Core, taken: Taken) {
        let source = match taken.queue {
            QueueKind::Steering => Source::Steering,
            QueueKind::FollowUp => Source::FollowUp,
        };
        for queued in taken.messages {
            core.publish(Some(self.id), removed(taken.queue, [&queued]));
            self.join(core, to_message(&queued), source);
        }
    }

    /// One model answer and, if it asks for tools, their complete batch of results.
    async fn turn(&mut self) -> Result<(FinishedTurn, Boundary), RunEnding> {
        if self.cancel.is_cancelled() {
            return Err(self.end_turn_early(EndReason::Aborted.into(), Usage::default()).await);
        }
        let answered = match stream::answer(self).await {
            Ok(answered) => answered,
            Err(interrupted) => {
                return Err(self.end_turn_early(interrupted.into(), Usage::default()).await);
            }
        };
        let message = self.join_answer(answered).await?;
        let batch = tool_batch::run(self, &message).await;
        let results = self.join_results(batch.results).await;
        if let Some(failure) = batch.hook_failure {
            return Err(self.end_turn_early(RunEnding::error(failure), message.usage).await);
        }
        self.end_turn(&message).await?;
        let natural_end = match message.stop_reason {
            StopReason::Length => EndReason::Length,
            _ => EndReason::Stop,
        };
        let boundary =
            Boundary { has_results: !results.is_empty(), at_turn_limit: false, natural_end };
        let (turn, messages) = (self.turn, self.context.clone());
        Ok((FinishedTurn { turn, message, results, messages }, boundary))
    }

    /// The answer joins the transcript. One that failed or was aborted closes input first. (C8.5)
    async fn join_answer(
        &mut self,
        answered: stream::Answered,
    ) -> Result<Arc<AssistantMessage>, RunEnding> {
        let (failure, mut ending) = match answered.outcome {
            stream::AnswerEnd::Complete(stop_reason) => {
                return Ok(self
                    .join_assistant(answered.content, stop_reason, answered.usage, None)
                    .await);
            }
            stream::AnswerEnd::Aborted => (None, EndReason::Aborted),
            stream::AnswerEnd::Failed(message) => (Some(message), EndReason::Error),
        };
        ending = self.close(ending);
        let failure = failure.filter(|_| ending == EndReason::Error);
        let (stop_reason, usage) = (stop_reason_of(ending), answered.usage);
        self.join_assistant(answered.content, stop_reason, usage, failure.clone()).await;
        Err(self.end_turn_early(RunEnding { reason: ending, error_message: failure }, usage).await)
    }

    async fn join_assistant(
        &mut self,
        content: Vec<Block>,
        stop_reason: StopReason,
        usage: Usage,
        error_message: Option<String>,
    ) -> Arc<AssistantMessage> {
        self.step(|run, core| {
            let message = AssistantMessage {
                id: core.next_message_id(),
                content,
                timestamp: now(),
                model: run.settings.model_name.clone(),
                stop_reason,
                usage,
                error_message,
            };
            run.usage.add(usage);
            run.unfinished.message = false;
            run.join(core, Arc::new(Message::Assistant(message.clone())), Source::Model);
            Arc::new(message)
        })
        .await
    }

    async fn join_results(
        &mut self,
        results: Vec<tool_batch::PairedResult>,
    ) -> Vec<Arc<ToolResultMessage>> {
        let mut joined = Vec::with_capacity(results.len());
        for result in results {
            let join = |run: &mut Self, core: &mut Core| {
                let message = result.into_message(core.next_message_id(), now());
                run.join(core, Arc::new(Message::ToolResult(message.clone())), Source::Tool);
                Arc::new(message)
            };
            joined.push(self.step(join).await);
        }
        joined
    }

    fn join(&mut self, core: &mut Core, message: Arc<Message>, source: Source) {
        self.context.push(message.clone());
        self.new_messages.push(message.clone());
        core.publish(Some(self.id), EventKind::MessageEnd { message, source });
    }

    /// The turn is complete; whether the run goes on is the boundary's question.
    async fn end_turn(&mut self, message: &AssistantMessage) -> Result<(), RunEnding> {
        let end = |run: &mut Self, core: &mut Core| {
            // A turn that was aborted closes input before its `turn_end`. (C8.5)
            let aborted = run.cancel.is_cancelled();
            let stop_reason = match aborted {
                true => StopReason::Aborted,
                false => message.stop_reason,
            };
            if aborted {
                core.slot.close(run.id, EndReason::Aborted);
            }
            let (turn, usage) = (run.turn, message.usage);
            core.publish(Some(run.id), EventKind::TurnEnd { turn, stop_reason, usage });
            run.unfinished.turn = false;
            aborted
        };
        let aborted = self.step(end).await;
        match aborted {
            true => Err(EndReason::Aborted.into()),
            false => Ok(()),
        }
    }

    /// Ends a turn that failed or was aborted and has no further message: input closes before
    /// `turn_end`. (C8.5)
    async fn end_turn_early(&mut self, ending: RunEnding, usage: Usage) -> RunEnding {
        let reason = self.close(ending.reason);
        let stop_reason = stop_reason_of(reason);
        self.publish(EventKind::TurnEnd { turn: self.turn, stop_reason, usage }).await;
        self.unfinished.turn = false;
        RunEnding { reason, ..ending }
    }

    /// The calls that have begun and not ended. No other run is active, so they are this one's.
    fn pending(&self) -> Vec<Arc<str>> {
        self.publisher.lock().feed.state().pending_tool_call_ids.to_vec()
    }

    /// After a panic of the loop: closes what it had opened and pairs what it had not.
    async fn tidy_up(&mut self, error: String) -> RunEnding {
        tracing::error!(run = %self.id, error, "a run failed in the agent itself");
        let ending = RunEnding { reason: self.close(EndReason::Error), error_message: Some(error) };
        if self.unfinished.message {
            let failure = ending.error_message.clone();
            self.join_assistant(Vec::new(), StopReason::Error, Usage::default(), failure).await;
        }
        for tool_call_id in self.pending() {
            let result = ToolOutput::text("The run failed.");
            self.publish(EventKind::ToolEnd { tool_call_id, result, is_error: true }).await;
        }
        let unpaired = tool_batch::unpaired(&self.context);
        self.join_results(unpaired).await;
        match self.unfinished.turn {
            true => self.end_turn_early(ending, Usage::default()).await,
            false => ending,
        }
    }
}

/// How a turn stopped that its run's end cut short.
fn stop_reason_of(ending: EndReason) -> StopReason {
    match ending {
        EndReason::Error => StopReason::Error,
        _ => StopReason::Aborted,
    }
}
