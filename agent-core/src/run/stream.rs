//! Asking the model: one answer, with as many requests as it takes.
//!
//! Owns: the model's task, the limits on its silence and its answer's size, retries, and the
//! streaming events.
//! Never: lets a model outlive its run: its task ends, and the connection closes, with the wait.

use std::{sync::Arc, time::Duration};

use tokio::{
    sync::mpsc,
    time::{Instant, sleep, sleep_until},
};

use crate::{
    data::{
        event::EventKind,
        message::{Block, StopReason, Usage},
        outcome::{ModelError, ModelErrorKind},
    },
    pure::retry::RetryDecision,
    run::{
        answer::{Answer, TooLong},
        contain::{OwnedTask, as_code_of, aside, catch_panic},
        hook_call::Interrupted,
        run_task::RunTask,
    },
    seam::{
        cancel::CancelSignal,
        model::{ModelEnd, ModelOutput, ModelRequest, ModelSink},
    },
};

/// How many events a model may be ahead of the run's listeners.
const SINK_CAPACITY: usize = 64;

/// What the model came up with.
pub(crate) struct Answered {
    pub(crate) content: Vec<Block>,
    pub(crate) usage: Usage,
    pub(crate) outcome: AnswerEnd,
}

/// How an answer ended.
pub(crate) enum AnswerEnd {
    Complete(StopReason),
    Aborted,
    Failed(String),
}

/// Asks until there is an answer, retrying what passes. The `message_start` is published, the
/// `message_end` is not.
///
/// An answer without text or calls is none: neither a user nor the next turn could do anything with
/// it. It is asked for once more, although its thoughts have been published; the `retry` says that
/// they count no longer, and the next attempt has a `message_start` of its own.
///
/// # Errors
/// A hook failed or the run was aborted before the model was asked.
pub(crate) async fn answer(run: &mut RunTask) -> Result<Answered, Interrupted> {
    let mut failures = Failures::default();
    loop {
        let request = request(run).await?;
        let mut asked = Attempt::new(run, failures.usage);
        let error = match asked.stream(run, request).await {
            Streamed::Complete(end) if asked.is_answered(end) => {
                return Ok(asked.complete(run, end).await);
            }
            Streamed::Complete(end) => {
                asked.usage.add(end.usage);
                nothing_said(run, &asked.answer)
            }
            Streamed::Aborted => return Ok(asked.cut(run, AnswerEnd::Aborted).await),
            // After any output nothing is retried: it has been published. (C5.9)
            Streamed::Failed(error) if asked.started => {
                return Ok(asked.cut(run, AnswerEnd::Failed(error.message)).await);
            }
            Streamed::Failed(error) => error,
        };
        let delay = match failures.decide(run, &error) {
            RetryDecision::GiveUp(message) => {
                return Ok(asked.cut(run, AnswerEnd::Failed(message)).await);
            }
            RetryDecision::Again(delay) => delay,
        };
        failures.usage = asked.usage;
        if !wait(run, failures.count(), delay, error.message).await {
            return Ok(Attempt::new(run, failures.usage).cut(run, AnswerEnd::Aborted).await);
        }
    }
}

/// The attempts at one answer that came to nothing.
#[derive(Default)]
struct Failures {
    failed: u32,
    empty: u32,
    /// What they cost all the same.
    usage: Usage,
}

impl Failures {
    fn count(&self) -> u32 {
        self.failed + self.empty
    }

    fn decide(&mut self, run: &RunTask, error: &ModelError) -> RetryDecision {
        let retries = match error.kind {
            ModelErrorKind::Empty => &mut self.empty,
            _ => &mut self.failed,
        };
        let decision = run.settings.retry.decide(error, *retries, fastrand::f64());
        *retries += 1;
        decision
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
    run.message_dropped();
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
struct Attempt {
    answer: Answer,
    /// The `message_start` is published.
    started: bool,
    /// What the attempts before it cost.
    usage: Usage,
}

enum Streamed {
    Complete(ModelEnd),
    Aborted,
    Failed(ModelError),
}

impl Attempt {
    fn new(run: &RunTask, usage: Usage) -> Self {
        let answer = Answer::new(run.settings.limits.max_answer_bytes);
        Attempt { answer, started: false, usage }
    }

    async fn stream(&mut self, run: &mut RunTask, request: ModelRequest) -> Streamed {
        let (events, mut outputs) = mpsc::channel(SINK_CAPACITY);
        let signal = run.cancel.signal();
        // Its own task: a model that blocks or spins must not keep the run from ending. (C7.6)
        let _task = spawn(run, request, events);
        let mut silence = Silence::new(run.settings.limits.idle_timeout);
        loop {
            match next(&signal, &mut outputs, &mut silence).await {
                Heard::Output(ModelOutput::Event(event)) => {
                    let (news, fits) = self.answer.take(event);
                    if let Some(kind) = news {
                        silence.broken();
                        self.start(run).await;
                        run.publish(kind).await;
                    }
                    if let Err(too_long) = fits {
                        return Streamed::Failed(overlong(run, &too_long));
                    }
                }
                Heard::Output(ModelOutput::End(Ok(end))) => return Streamed::Complete(end),
                Heard::Output(ModelOutput::End(Err(error))) => return Streamed::Failed(error),
                Heard::Aborted => return Streamed::Aborted,
                Heard::Stalled(limit) => return Streamed::Failed(stalled(limit)),
                Heard::Gone => return Streamed::Failed(gone()),
            }
        }
    }

    async fn start(&mut self, run: &mut RunTask) {
        if !self.started {
            self.started = true;
            run.message_started().await;
        }
    }

    /// Whether there is something to go on with. What a limit cut off while it was still thinking
    /// says so by itself. (C5.10)
    fn is_answered(&self, end: ModelEnd) -> bool {
        end.stop_reason == StopReason::Length || !self.answer.says_nothing()
    }

    async fn complete(mut self, run: &mut RunTask, end: ModelEnd) -> Answered {
        self.start(run).await;
        self.usage.add(end.usage);
        let content = self.answer.finish();
        let has_calls = content.iter().any(|block| matches!(block, Block::ToolCall(_)));
        let stop_reason = match (end.stop_reason, has_calls) {
            (StopReason::Length, _) => StopReason::Length,
            (_, true) => StopReason::ToolUse,
            (_, false) => StopReason::Stop,
        };
        Answered { content, usage: self.usage, outcome: AnswerEnd::Complete(stop_reason) }
    }

    async fn cut(mut self, run: &mut RunTask, outcome: AnswerEnd) -> Answered {
        // Every `message_end` has a `message_start`, also when there was no text. (C3.3)
        self.start(run).await;
        let content = self.answer.finish_without_calls();
        Answered { content, usage: self.usage, outcome }
    }
}

fn spawn(run: &RunTask, request: ModelRequest, events: mpsc::Sender<ModelOutput>) -> OwnedTask<()> {
    let model = Arc::clone(&run.settings.model);
    let agent = run.publisher.id();
    let signal = run.cancel.signal();
    OwnedTask::spawn(&run.publisher.runtime, async move {
        let sink = ModelSink { events: events.clone() };
        let call = as_code_of(agent, async move { model.respond(request, sink).await });
        // Dropped at once, not when the run's listeners have finished with what came before. (C7.3)
        let end = tokio::select! {
            biased;
            () = signal.cancelled() => return,
            end = aside(catch_panic(call)) => end.unwrap_or_else(|panic| Err(panicked(&panic))),
        };
        // The end goes the way of the events, so that it cannot overtake them.
        let _ = events.send(ModelOutput::End(end)).await;
    })
}

enum Heard {
    Output(ModelOutput),
    Aborted,
    Stalled(Duration),
    /// The model's task was stopped from outside.
    Gone,
}

/// How long a model has said nothing, by our own waiting: what our listeners took is not the
/// model's silence.
struct Silence {
    limit: Duration,
    left: Duration,
}

impl Silence {
    fn new(limit: Duration) -> Self {
        Silence { limit, left: limit }
    }

    fn broken(&mut self) {
        self.left = self.limit;
    }
}

/// What comes next. Cancellation comes before anything else. (C7.5)
async fn next(
    signal: &CancelSignal,
    outputs: &mut mpsc::Receiver<ModelOutput>,
    silence: &mut Silence,
) -> Heard {
    if signal.is_cancelled() {
        return Heard::Aborted;
    }
    if let Ok(output) = outputs.try_recv() {
        // No timer for a model that is ahead of us, but others get their turn.
        tokio::task::consume_budget().await;
        return Heard::Output(output);
    }
    let begun = Instant::now();
    let next = tokio::select! {
        biased;
        () = signal.cancelled() => Heard::Aborted,
        output = outputs.recv() => output.map_or(Heard::Gone, Heard::Output),
        () = sleep(silence.left) => Heard::Stalled(silence.limit),
    };
    silence.left = silence.left.saturating_sub(begun.elapsed());
    next
}

fn nothing_said(run: &RunTask, answer: &Answer) -> ModelError {
    let thought = if answer.thinks() { "thought, but then said nothing" } else { "said nothing" };
    let message = format!(
        "{} {thought}: its answer ended without text or a tool call. Try again, or choose another \
         model.",
        run.settings.model_name,
    );
    ModelError::new(ModelErrorKind::Empty, message)
}

fn overlong(run: &RunTask, too_long: &TooLong) -> ModelError {
    let message = format!("{} was stopped: {too_long}", run.settings.model_name);
    ModelError::new(ModelErrorKind::TooLong, message)
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
