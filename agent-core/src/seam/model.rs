//! Models: what turns a request into a stream of events.
//!
//! Owns: the [`Model`] trait, what it is given and what it may answer.
//! Never: retries, accumulates or publishes; that is the loop's work.

use std::sync::Arc;

use tokio::sync::mpsc;

use crate::{
    data::{
        config::ThinkingLevel,
        message::{StopReason, Usage},
        outcome::{ModelError, ModelErrorKind},
        transcript::Transcript,
    },
    seam::{BoxFuture, cancel::CancelSignal, tool::ToolSpec},
};

/// Something that answers a transcript.
///
/// A model answers by sending [`ModelEvent`]s into the [`ModelSink`] and returning how the answer
/// ended. Exactly one end per request is a matter of types: there is no way to return none or two.
///
/// The future runs in a task of its own. It is dropped, at its next await, when the run is aborted:
/// dropping must close the connection, so that the provider stops billing. A model may block, spin,
/// flood or panic; the run survives all of them (C5.7, C7.6).
pub trait Model: Send + Sync + 'static {
    /// The model's name as `PROVIDER/ID`; shown in `config` and kept in each answer.
    fn name(&self) -> &str;

    /// Answers one request.
    ///
    /// # Errors
    /// See [`ModelErrorKind`]. Whether the request is sent again is the loop's decision.
    fn respond<'a>(
        &'a self,
        request: ModelRequest,
        sink: ModelSink,
    ) -> BoxFuture<'a, Result<ModelEnd, ModelError>>;
}

/// What a model is asked.
#[derive(Clone)]
pub struct ModelRequest {
    /// Instructions that precede the transcript; empty for none.
    pub system_prompt: Arc<str>,
    /// The messages, oldest first. Each tool call in it is followed by its one result, in call
    /// order and before any user message.
    pub messages: Transcript,
    /// The tools that the model may call.
    pub tools: Arc<[ToolSpec]>,
    /// How much the model should think before it answers.
    pub thinking_level: ThinkingLevel,
    /// Fires when the run is aborted.
    pub signal: CancelSignal,
}

/// One piece of an answer.
///
/// `index` tells the blocks of one answer apart; any number will do, in any order. The loop
/// renumbers them 0, 1, 2 … as they first appear.
#[derive(Clone, Debug, PartialEq)]
pub enum ModelEvent {
    /// More text.
    Text {
        /// The block.
        index: u32,
        /// Only what is new.
        delta: String,
    },
    /// More thinking.
    Thinking {
        /// The block.
        index: u32,
        /// Only what is new.
        delta: String,
    },
    /// The provider's proof of a thinking block; the last one counts.
    ThinkingSignature {
        /// The block.
        index: u32,
        /// To be sent back unchanged.
        signature: String,
    },
    /// A piece of a call. `id` and `name` are those of the whole call, in each piece. The first
    /// piece may be empty: it says that the call has begun.
    ToolCall {
        /// The block.
        index: u32,
        /// The provider's id of the call; may be empty, and the loop then gives it one.
        id: String,
        /// The tool.
        name: String,
        /// Only what is new of the arguments' JSON text. None at all counts as `{}`.
        delta: String,
    },
}

/// How an answer ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ModelEnd {
    /// [`StopReason::Stop`], [`StopReason::Length`] or [`StopReason::ToolUse`]. The loop goes by
    /// the calls that it saw: an answer with calls that says `Stop` is `ToolUse` all the same.
    pub stop_reason: StopReason,
    /// What the request cost.
    pub usage: Usage,
}

/// Where a model puts its events. Cheap to clone.
///
/// The channel is bounded (64 events): a model that floods waits for the run's listeners.
#[derive(Clone)]
pub struct ModelSink {
    pub(crate) events: mpsc::Sender<ModelOutput>,
}

/// What travels from a model's task to the loop, in one channel so that the end is last.
pub(crate) enum ModelOutput {
    Event(ModelEvent),
    End(Result<ModelEnd, ModelError>),
}

impl ModelSink {
    /// Hands an event to the run; waits while the run is busy with earlier ones.
    ///
    /// # Errors
    /// The run no longer listens. A model should return then; what it returns is ignored.
    pub async fn send(&self, event: ModelEvent) -> Result<(), SinkClosed> {
        self.events.send(ModelOutput::Event(event)).await.map_err(|_| SinkClosed)
    }
}

/// Asks a model outside any run and gathers what it answers, events first.
///
/// For trying a model alone. Memory grows with the answer.
pub async fn collect(
    model: &dyn Model,
    request: ModelRequest,
) -> (Vec<ModelEvent>, Result<ModelEnd, ModelError>) {
    let (events, mut outputs) = mpsc::channel(64);
    let gather = async {
        let mut gathered = Vec::new();
        while let Some(ModelOutput::Event(event)) = outputs.recv().await {
            gathered.push(event);
        }
        gathered
    };
    let answer = async {
        let end = model.respond(request, ModelSink { events: events.clone() }).await;
        // A model may have leaked its sink; the end tells `gather` not to wait for it.
        let _ = events.send(ModelOutput::End(end.clone())).await;
        end
    };
    let (gathered, end) = futures_util::future::join(gather, answer).await;
    (gathered, end)
}

/// The run that asked is no longer interested.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the run no longer listens to this model")]
pub struct SinkClosed;

impl From<SinkClosed> for ModelError {
    fn from(closed: SinkClosed) -> Self {
        ModelError::new(ModelErrorKind::Connection, closed.to_string())
    }
}
