//! A model behind an HTTP server.
//!
//! Owns: one request from transcript to end: build, send, read, decode, hand on.
//! Never: retries; keeps the connection when its future is dropped.

use std::{sync::Arc, time::Duration};

use agent_core::{
    Block, BoxFuture, Message, Model, ModelEnd, ModelError, ModelErrorKind, ModelEvent,
    ModelRequest, ModelSink,
};
use serde_json::Value;

use super::{
    Api, ModelConfig,
    abilities::largest_picture,
    answer_stream::{AnswerStream, Progress},
    anthropic_messages,
    failure::Asked,
    http::{Answer, Http, Interrupted, LONGEST_PAGE},
    openai_completions, openai_responses,
    provider::Provider,
};

/// One model of one provider.
#[derive(Debug)]
pub(super) struct RemoteModel {
    /// `PROVIDER/ID`.
    pub(super) name: String,
    pub(super) provider: Arc<Provider>,
    pub(super) config: ModelConfig,
    pub(super) http: Arc<Http>,
}

/// How long usage may follow a whole answer. Some servers keep the connection open after it.
const AFTERMATH: Duration = Duration::from_secs(5);

/// The largest answer in one piece.
const LARGEST_ANSWER: usize = 16 * 1024 * 1024;

impl Model for RemoteModel {
    fn name(&self) -> &str {
        &self.name
    }

    fn respond<'a>(
        &'a self,
        request: ModelRequest,
        sink: ModelSink,
    ) -> BoxFuture<'a, Result<ModelEnd, ModelError>> {
        Box::pin(self.ask(request, sink))
    }
}

impl RemoteModel {
    async fn ask(&self, request: ModelRequest, sink: ModelSink) -> Result<ModelEnd, ModelError> {
        self.refuse_unseen_pictures(&request)?;
        let body = self.body(&request).to_string().into_bytes();
        // The transcript may be large, and an answer may take minutes.
        drop(request);
        let headers = self.provider.headers.clone();
        let posted = self.http.post(&self.provider.url, headers, body).await;
        let mut answer = posted.map_err(|failure| self.interrupted(failure, false))?;
        let idle = self.http.idle_timeout;
        if !answer.status().is_success() {
            let page = answer.page(LONGEST_PAGE, idle.min(AFTERMATH)).await;
            return Err(self.asked().answered(answer.status(), answer.headers(), &page));
        }
        match answer.content_type().as_str() {
            "application/json" => self.read_whole(answer, sink).await,
            html if html.contains("html") => {
                let page = answer.page(LONGEST_PAGE, idle.min(AFTERMATH)).await;
                Err(self.asked().not_a_stream(html, &page))
            }
            _ => self.read_stream(answer, sink).await,
        }
    }

    fn body(&self, request: &ModelRequest) -> Value {
        match self.provider.api {
            Api::AnthropicMessages => anthropic_messages::request::body(self, request),
            Api::OpenaiResponses => openai_responses::request::body(self, request),
            Api::OpenaiCompletions => openai_completions::request::body(self, request),
        }
    }

    /// The largest picture that it takes, in bytes of base64; 0 if it takes none.
    pub(super) fn largest_picture(&self) -> usize {
        match self.provider.api {
            _ if !self.config.images => 0,
            Api::AnthropicMessages => largest_picture(&self.config.id),
            Api::OpenaiCompletions | Api::OpenaiResponses => usize::MAX,
        }
    }

    /// Only those of the newest message: older ones are left out with a note, so that a
    /// conversation can go on with a model that cannot see them.
    fn refuse_unseen_pictures(&self, request: &ModelRequest) -> Result<(), ModelError> {
        let newest = request.messages.iter().rev().find_map(|message| match &**message {
            Message::User(user) => Some(&user.content),
            _ => None,
        });
        let size = |block: &Block| match block {
            Block::Image { data, .. } => data.len(),
            _ => 0,
        };
        let largest = newest.into_iter().flatten().map(size).max().unwrap_or(0);
        let message = match self.largest_picture() {
            limit if largest <= limit => return Ok(()),
            0 => format!(
                "{} takes no pictures, so nothing was sent. Leave the picture out, choose another \
                 model, or set `images = true` for it in [providers.{}] if it does.",
                self.name, self.provider.name,
            ),
            limit => format!(
                "{} takes no pictures of more than {limit} bytes of base64, and one has {largest}, \
                 so nothing was sent. Make it smaller, or choose another model.",
                self.name,
            ),
        };
        Err(ModelError::new(ModelErrorKind::Unsupported, message))
    }

    async fn read_stream(
        &self,
        mut answer: Answer,
        sink: ModelSink,
    ) -> Result<ModelEnd, ModelError> {
        let mut stream = AnswerStream::new(self.provider.api);
        let mut events = Vec::new();
        while stream.progress() < Progress::Over {
            let whole = stream.progress() == Progress::Whole;
            let idle = self.http.idle_timeout;
            match answer.piece(if whole { idle.min(AFTERMATH) } else { idle }).await {
                Ok(Some(bytes)) => {
                    let fed = stream.feed(&bytes, &mut events);
                    // Before the failure, if there is one: what was said counts.
                    hand_on(&mut events, &sink).await?;
                    fed.map_err(|failure| self.asked().in_stream(failure))?;
                }
                Ok(None) => break,
                Err(_) if whole => break,
                Err(failure) => return Err(self.interrupted(failure, true)),
            }
        }
        let end = stream.finish(&mut events);
        hand_on(&mut events, &sink).await?;
        end.map_err(|failure| self.asked().in_stream(failure))
    }

    async fn read_whole(
        &self,
        mut answer: Answer,
        sink: ModelSink,
    ) -> Result<ModelEnd, ModelError> {
        let body = answer.page(LARGEST_ANSWER, self.http.idle_timeout).await;
        let mut stream = AnswerStream::new(self.provider.api);
        let mut events = Vec::new();
        let taken = stream.whole(body, &mut events);
        let end = taken.and_then(|()| stream.finish(&mut events));
        hand_on(&mut events, &sink).await?;
        end.map_err(|failure| self.asked().in_stream(failure))
    }

    fn asked(&self) -> Asked<'_> {
        Asked { name: &self.name, provider: &self.provider }
    }

    fn interrupted(&self, failure: Interrupted, answering: bool) -> ModelError {
        match failure {
            Interrupted::Lost(error) => self.asked().lost(&error, answering),
            Interrupted::Stalled(limit) => self.asked().stalled(limit),
        }
    }
}

async fn hand_on(events: &mut Vec<ModelEvent>, sink: &ModelSink) -> Result<(), ModelError> {
    for event in events.drain(..) {
        sink.send(event).await?;
    }
    Ok(())
}
