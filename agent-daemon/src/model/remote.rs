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
    answer_stream::AnswerStream,
    body::{Body, without_blanks},
    failure::Asked,
    http::{Http, HttpAnswer, Interruption},
    model_config::ModelConfig,
    patience::{AFTERMATH, Patience},
    provider::Provider,
    stream_failure::StreamFailure,
    wire_format::{Progress, Recipient},
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
        if !answer.status().is_success() {
            let page = answer.page(Vec::new(), self.time_for_a_page()).await;
            return Err(self.asked().answered(answer.status(), answer.headers(), &page));
        }
        let mut reading = Reading {
            patience: Patience::new(self.http.idle_timeout),
            answer,
            beginning: Vec::new(),
        };
        match self.kind_of_body(&mut reading).await? {
            Body::Events => self.read_stream(reading, sink).await,
            Body::Json => self.read_whole(reading, sink).await,
            Body::Page => {
                let Reading { mut answer, beginning, .. } = reading;
                let page = answer.page(beginning, self.time_for_a_page()).await;
                Err(self.asked().not_an_answer(&answer.content_type(), &page))
            }
        }
    }

    /// Reads until it is clear what is being sent. A body that ends before is an empty stream, or
    /// a short page.
    async fn kind_of_body(&self, reading: &mut Reading) -> Result<Body, ModelError> {
        loop {
            if let Some(kind) = Body::of(&reading.beginning) {
                return Ok(kind);
            }
            match self.piece(reading, false).await? {
                Some(piece) => reading.beginning.extend(piece),
                None if reading.beginning.is_empty() => return Ok(Body::Events),
                None => return Ok(Body::Page),
            }
            reading.beginning = without_blanks(&reading.beginning).to_vec();
        }
    }

    /// The next bytes, if they come in time.
    async fn piece(
        &self,
        reading: &mut Reading,
        answering: bool,
    ) -> Result<Option<Vec<u8>>, ModelError> {
        let Reading { answer, patience, .. } = reading;
        let limit = patience.limit();
        let piece = match limit.is_zero() {
            // Bytes that are there already would be read all the same.
            true => Err(Interruption::Mute(patience.longest())),
            false => answer.piece(limit).await,
        };
        piece.map_err(|failure| match failure {
            Interruption::Stalled(_) if limit < self.http.idle_timeout => {
                self.interrupted(Interruption::Mute(patience.longest()), answering)
            }
            failure => self.interrupted(failure, answering),
        })
    }

    fn time_for_a_page(&self) -> Duration {
        self.http.idle_timeout.min(AFTERMATH)
    }

    /// The body of a request.
    pub(super) fn body(&self, request: &ModelRequest) -> Value {
        (self.provider.api.body)(&self.recipient(), request)
    }

    /// The model, as its wire format knows it.
    pub(super) fn recipient(&self) -> Recipient<'_> {
        let largest_picture = match self.config.images {
            true => (self.provider.api.largest_picture)(&self.config.id),
            false => 0,
        };
        Recipient {
            name: &self.name,
            config: &self.config,
            url: &self.provider.url,
            largest_picture,
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
        let message = match self.recipient().largest_picture {
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
        mut reading: Reading,
        sink: ModelSink,
    ) -> Result<ModelEnd, ModelError> {
        let mut stream = AnswerStream::new(self.provider.api);
        let mut events = Vec::new();
        let mut bytes = std::mem::take(&mut reading.beginning);
        loop {
            let fed = stream.feed(&bytes, &mut events);
            if !events.is_empty() {
                // Before the failure, if there is one: what was said counts.
                hand_on(&mut events, &sink).await?;
                reading.patience.said();
            }
            fed.map_err(|failure| self.asked().in_stream(failure))?;
            match stream.progress() {
                Progress::Going => {}
                Progress::Whole => reading.patience.is_whole(),
                Progress::Over => break,
            }
            match self.piece(&mut reading, true).await {
                Ok(Some(piece)) => bytes = piece,
                Ok(None) => break,
                Err(_) if stream.progress() == Progress::Whole => break,
                Err(failure) => return Err(failure),
            }
        }
        self.note_unreadable(&stream);
        let end = stream.finish(&mut events);
        hand_on(&mut events, &sink).await?;
        end.map_err(|failure| self.asked().in_stream(failure))
    }

    async fn read_whole(
        &self,
        mut reading: Reading,
        sink: ModelSink,
    ) -> Result<ModelEnd, ModelError> {
        let mut body = std::mem::take(&mut reading.beginning);
        while let Some(piece) = self.piece(&mut reading, true).await? {
            body.extend(piece);
            if body.len() > LARGEST_ANSWER {
                let what = format!("an answer of more than {LARGEST_ANSWER} bytes in one piece");
                return Err(self.asked().in_stream(StreamFailure::Malformed(what)));
            }
        }
        let mut stream = AnswerStream::new(self.provider.api);
        let mut events = Vec::new();
        let taken = stream.whole(&body, &mut events);
        self.note_unreadable(&stream);
        let end = taken.and_then(|()| stream.finish(&mut events));
        let said_something = !events.is_empty();
        hand_on(&mut events, &sink).await?;
        let answer = &reading.answer;
        end.map_err(|failure| match failure {
            StreamFailure::Truncated if !said_something => {
                self.asked().not_an_answer(&answer.content_type(), &body)
            }
            failure => self.asked().in_page(failure, answer.headers(), &body),
        })
    }

    fn note_unreadable(&self, stream: &AnswerStream) {
        let events = stream.unreadable();
        if events > 0 {
            tracing::warn!(model = self.name, events, "events that are no JSON were left out");
        }
    }

    fn asked(&self) -> Asked<'_> {
        let proxy = self.http.proxy(&self.provider.url);
        Asked { name: &self.name, provider: &self.provider, proxy }
    }

    fn interrupted(&self, failure: Interruption, answering: bool) -> ModelError {
        match failure {
            Interruption::Lost(error) => self.asked().lost(&error, answering),
            Interruption::Stalled(limit) => self.asked().stalled("nothing arrived from", limit),
            Interruption::Mute(limit) => self.asked().stalled("not a word arrived from", limit),
        }
    }
}

/// An answer that is being read.
struct Reading {
    answer: HttpAnswer,
    patience: Patience,
    /// What has been read to see what it is.
    beginning: Vec<u8>,
}

async fn hand_on(events: &mut Vec<ModelEvent>, sink: &ModelSink) -> Result<(), ModelError> {
    for event in events.drain(..) {
        sink.send(event).await?;
    }
    Ok(())
}
