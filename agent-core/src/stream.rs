//! Asking the model: one answer, with as many requests as it takes.
//!
//! Owns: the model's task, the idle time limit, retries, and the streaming events.
//! Never: lets a model outlive its run: its task ends, and the connection closes, with the wait.

use std::{sync::Arc, time::Duration};

use tokio::{
    sync::mpsc,
    time::{Instant, sleep, sleep_until},
};

use crate::{
    Block, CancelSignal, EventKind, ModelError, ModelErrorKind, ModelRequest, ModelSink,
    RetryDecision, StopReason, Usage,
    agent_loop::RunTask,
    answer::Answer,
    contain::{OwnedTask, as_code_of, aside, catch_panic},
    hook_call::Interrupted,
    model::ModelOutput,
};

/// How many events a model may be ahead of the run's listeners.
const SINK_CAPACITY: usize = 64;

/// What the model came up with.
pub(crate) struct Answered {
    pub(crate) content: Vec<Block>,
    pub(crate) usage: Usage,
    pub(crate) outcome: Outcome,
}

/// How an answer ended.
pub(crate) enum Outcome {
    Complete(StopReason),
    Aborted,
    Failed(String),
}

/// Asks until there is an answer, retrying what passes. The `message_start` is published, the
/// `message_end` is not.
///
/// # Errors
/// A hook failed or the run was aborted before the model was asked.
pub(crate) async fn answer(run: &mut RunTask) -> Result<Answered, Interrupted> {
    let mut retries = 0;
    loop {
        let request = request(run).await?;
        let mut asked = Asked { answer: Answer::default(), started: false };
        let error = match asked.stream(run, request).await {
            Streamed::Complete(end) => return Ok(asked.complete(run, end).await),
            Streamed::Aborted => return Ok(asked.cut(run, Outcome::Aborted).await),
            Streamed::Failed(error) => error,
        };
        // After any output nothing is retried: it has been published. (5.9)
        if asked.started {
            return Ok(asked.cut(run, Outcome::Failed(error.message)).await);
        }
        let delay = match run.settings.retry.decide(&error, retries, fastrand::f64()) {
            RetryDecision::GiveUp(message) => {
                return Ok(asked.cut(run, Outcome::Failed(message)).await);
            }
            RetryDecision::Again(delay) => delay,
        };
        retries += 1;
        if !wait(run, retries, delay, error.message).await {
            return Ok(asked.cut(run, Outcome::Aborted).await);
        }
    }
}

async fn request(run: &RunTask) -> Result<ModelRequest, Interrupted> {
    let messages = run.hook_call().context(run.context.clone()).await?;
    Ok(ModelRequest {
        system_prompt: run.settings.system_prompt.clone(),
        messages,
        tools: run.settings.tools.specs(),
        thinking_level: run.settings.thinking_level,
        signal: run.cancel.signal(),
    })
}

/// Whether the wait was not cut short by an abort.
async fn wait(run: &mut RunTask, attempt: u32, delay: Duration, error: String) -> bool {
    // From here, not from when the listeners have heard of it.
    let until = Instant::now().checked_add(delay);
    let delay_ms = delay.as_millis() as u64;
    run.publish(EventKind::Retry { attempt, delay_ms, error }).await;
    let signal = run.cancel.signal();
    let over = async {
        match until {
            Some(until) => sleep_until(until).await,
            None => std::future::pending().await,
        }
    };
    tokio::select! {
        biased;
        () = signal.cancelled() => false,
        () = over => true,
    }
}

/// One request and what has come back so far.
struct Asked {
    answer: Answer,
    /// The `message_start` is published.
    started: bool,
}

enum Streamed {
    Complete(crate::ModelEnd),
    Aborted,
    Failed(ModelError),
}

impl Asked {
    async fn stream(&mut self, run: &mut RunTask, request: ModelRequest) -> Streamed {
        let (events, mut outputs) = mpsc::channel(SINK_CAPACITY);
        let signal = run.cancel.signal();
        // Its own task: a model that blocks or spins must not keep the run from ending. (7.6)
        let _task = spawn(run, request, events);
        let limit = run.settings.limits.idle_timeout;
        loop {
            match next(&signal, &mut outputs, limit).await {
                Next::Output(ModelOutput::Event(event)) => {
                    let Some(kind) = self.answer.take(event) else { continue };
                    self.start(run).await;
                    run.publish(kind).await;
                }
                Next::Output(ModelOutput::End(Ok(end))) => return Streamed::Complete(end),
                Next::Output(ModelOutput::End(Err(error))) => return Streamed::Failed(error),
                Next::Aborted => return Streamed::Aborted,
                Next::Stalled(limit) => return Streamed::Failed(stalled(limit)),
                Next::Gone => return Streamed::Failed(gone()),
            }
        }
    }

    async fn start(&mut self, run: &mut RunTask) {
        if !self.started {
            self.started = true;
            run.message_started().await;
        }
    }

    async fn complete(mut self, run: &mut RunTask, end: crate::ModelEnd) -> Answered {
        self.start(run).await;
        let content = self.answer.finish();
        let has_calls = content.iter().any(|block| matches!(block, Block::ToolCall(_)));
        let stop_reason = match (end.stop_reason, has_calls) {
            (StopReason::Length, _) => StopReason::Length,
            (_, true) => StopReason::ToolUse,
            (_, false) => StopReason::Stop,
        };
        Answered { content, usage: end.usage, outcome: Outcome::Complete(stop_reason) }
    }

    async fn cut(mut self, run: &mut RunTask, outcome: Outcome) -> Answered {
        // Every `message_end` has a `message_start`, also when there was no text. (3.3)
        self.start(run).await;
        let content = self.answer.finish_without_calls();
        Answered { content, usage: Usage::default(), outcome }
    }
}

fn spawn(run: &RunTask, request: ModelRequest, events: mpsc::Sender<ModelOutput>) -> OwnedTask<()> {
    let model = Arc::clone(&run.settings.model);
    let agent = run.publisher.id();
    let signal = run.cancel.signal();
    OwnedTask::spawn(&run.publisher.runtime, async move {
        let sink = ModelSink { events: events.clone() };
        let call = as_code_of(agent, async move { model.respond(request, sink).await });
        // Dropped at once, not when the run's listeners have finished with what came before. (7.3)
        let end = tokio::select! {
            biased;
            () = signal.cancelled() => return,
            end = aside(catch_panic(call)) => end.unwrap_or_else(|panic| Err(panicked(&panic))),
        };
        // The end goes the way of the events, so that it cannot overtake them.
        let _ = events.send(ModelOutput::End(end)).await;
    })
}

enum Next {
    Output(ModelOutput),
    Aborted,
    Stalled(Duration),
    /// The model's task was stopped from outside.
    Gone,
}

/// What comes next. Cancellation comes before anything else. (7.5)
///
/// The limit counts from the call: what our own listeners took is not the model's silence.
async fn next(
    signal: &CancelSignal,
    outputs: &mut mpsc::Receiver<ModelOutput>,
    limit: Duration,
) -> Next {
    if signal.is_cancelled() {
        return Next::Aborted;
    }
    if let Ok(output) = outputs.try_recv() {
        // No timer for a model that is ahead of us, but others get their turn.
        tokio::task::consume_budget().await;
        return Next::Output(output);
    }
    tokio::select! {
        biased;
        () = signal.cancelled() => Next::Aborted,
        output = outputs.recv() => output.map_or(Next::Gone, Next::Output),
        () = sleep(limit) => Next::Stalled(limit),
    }
}

fn stalled(limit: Duration) -> ModelError {
    let message =
        format!("the model sent nothing for {} s; the request was given up", limit.as_secs_f64());
    ModelError::new(ModelErrorKind::Stalled, message)
}

fn gone() -> ModelError {
    ModelError::new(ModelErrorKind::Panicked, "the model's task was stopped from outside")
}

fn panicked(panic: &str) -> ModelError {
    ModelError::new(ModelErrorKind::Panicked, format!("the model's code panicked: {panic}"))
}
