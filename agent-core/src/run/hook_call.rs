//! Calling a hook: in a task of its own, ended by abort, reported when slow.
//!
//! Owns: what every hook call has in common. Never: decides what a hook's answer means.

use std::{future::Future, sync::Arc, time::Duration};

use crate::{
    data::{
        event::{EventKind, RunId},
        message::ToolCall,
        outcome::ToolOutcome,
        transcript::Transcript,
    },
    run::{
        contain::{OwnedTask, as_code_of, aside, catch_panic},
        publisher::Publisher,
        settings::{PreparedChange, SettingsChange},
    },
    seam::{
        cancel::CancelSignal,
        hooks::{FinishedTurn, HookError, Hooks, ToolDecision},
    },
};

/// How long a hook may take before it is reported.
const SLOW: Duration = Duration::from_secs(5);

/// Why something that a run waited for did not come about.
#[derive(Debug, PartialEq)]
pub(crate) enum Interrupted {
    /// The run was aborted.
    Aborted,
    /// It failed, with a message for people.
    Failed(String),
}

/// What a run's hook calls need.
#[derive(Clone)]
pub(crate) struct HookCall {
    pub(crate) publisher: Arc<Publisher>,
    pub(crate) hooks: Option<Arc<dyn Hooks>>,
    pub(crate) run: RunId,
    pub(crate) signal: CancelSignal,
}

/// How much time a hook has after an abort.
#[derive(Clone, Copy)]
enum AfterAbort {
    /// None: its answer no longer matters.
    Dropped,
    /// The rest of the grace period: it has a result in hand.
    Grace,
}

impl HookCall {
    pub(crate) async fn context(&self, messages: Transcript) -> Result<Transcript, Interrupted> {
        let Some(hooks) = self.hooks.clone() else { return Ok(messages) };
        let signal = self.signal.clone();
        let call = async move {
            let transformed = hooks.transform_context(messages, signal.clone()).await;
            let transformed =
                transformed.map_err(|error| HookError(format!("transform_context: {error}")))?;
            let converted = hooks.convert_to_model(transformed, signal).await;
            converted.map_err(|error| HookError(format!("convert_to_model: {error}")))
        };
        self.run("before a model request", AfterAbort::Dropped, call).await
    }

    pub(crate) async fn before_tool_call(
        &self,
        call: ToolCall,
    ) -> Result<ToolDecision, Interrupted> {
        let Some(hooks) = self.hooks.clone() else { return Ok(ToolDecision::Run) };
        let signal = self.signal.clone();
        let call = async move { hooks.before_tool_call(call, signal).await };
        self.run("before_tool_call", AfterAbort::Dropped, call).await
    }

    pub(crate) async fn after_tool_call(
        &self,
        call: ToolCall,
        outcome: ToolOutcome,
    ) -> Result<ToolOutcome, Interrupted> {
        let Some(hooks) = self.hooks.clone() else { return Ok(outcome) };
        let signal = self.signal.clone();
        let call = async move { hooks.after_tool_call(call, outcome, signal).await };
        self.run("after_tool_call", AfterAbort::Grace, call).await
    }

    pub(crate) async fn should_stop_after_turn(
        &self,
        turn: FinishedTurn,
    ) -> Result<bool, Interrupted> {
        let Some(hooks) = self.hooks.clone() else { return Ok(false) };
        let signal = self.signal.clone();
        let call = async move { hooks.should_stop_after_turn(turn, signal).await };
        self.run("should_stop_after_turn", AfterAbort::Dropped, call).await
    }

    pub(crate) async fn prepare_next_turn(
        &self,
        turn: FinishedTurn,
    ) -> Result<Option<PreparedChange>, Interrupted> {
        let Some(hooks) = self.hooks.clone() else { return Ok(None) };
        let signal = self.signal.clone();
        let call = async move {
            let next = hooks.prepare_next_turn(turn, signal).await?;
            // Models and tools tell their names here: it is code of the hook's program too.
            Ok(SettingsChange::from(next).prepare())
        };
        self.run("prepare_next_turn", AfterAbort::Dropped, call).await.map(Some)
    }

    async fn run<T: Send + 'static>(
        &self,
        name: &str,
        after_abort: AfterAbort,
        call: impl Future<Output = Result<T, HookError>> + Send + 'static,
    ) -> Result<T, Interrupted> {
        if self.signal.is_cancelled() && matches!(after_abort, AfterAbort::Dropped) {
            return Err(Interrupted::Aborted);
        }
        let call = aside(catch_panic(as_code_of(self.publisher.id(), call)));
        let mut task = OwnedTask::spawn(&self.publisher.runtime, call);
        let interrupted = async {
            match after_abort {
                AfterAbort::Dropped => self.signal.cancelled().await,
                AfterAbort::Grace => self.signal.grace_over().await,
            }
        };
        let mut interrupted = std::pin::pin!(interrupted);
        let mut slow = std::pin::pin!(tokio::time::sleep(SLOW));
        let mut reported = false;
        loop {
            tokio::select! {
                biased;
                () = &mut interrupted => return Err(Interrupted::Aborted),
                answer = task.join() => return self.read(name, answer),
                () = &mut slow, if !reported => {
                    reported = true;
                    self.report_slow(name);
                }
            }
        }
    }

    fn read<T>(
        &self,
        name: &str,
        answer: Option<Result<Result<T, HookError>, String>>,
    ) -> Result<T, Interrupted> {
        let problem = match answer {
            Some(Ok(Ok(value))) => return Ok(value),
            Some(Ok(Err(error))) => format!("the hook {name} failed: {error}"),
            Some(Err(panic)) => format!("the hook {name} panicked: {panic}"),
            None => format!("the hook {name} was stopped from outside"),
        };
        Err(Interrupted::Failed(problem))
    }

    fn report_slow(&self, name: &str) {
        let message = format!("the hook {name} has taken {} s so far", SLOW.as_secs());
        self.publisher.step(|core| {
            core.publish(core.if_active(Some(self.run)), EventKind::Diagnostic { message });
        });
    }
}
