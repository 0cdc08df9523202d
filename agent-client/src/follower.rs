//! A session that is shown as it goes on.
//!
//! Owns: how much of it has been shown, so that after a gap only what is missing is.
//! Never: decides what is worth showing; whoever shows it does.

use agent_client_library::{
    client::CallError,
    mirror::{Change, Mirror, MirrorError},
};
use agent_core::{AgentState, Event};
use agent_protocol::{GetMessages, GetMessagesParams};

use crate::render::{piece::Piece, renderer::Renderer};

/// A mirrored session and what has been shown of it.
pub struct Follower {
    mirror: Mirror,
    renderer: Renderer,
    /// How many messages the transcript had before the newest change.
    known: usize,
}

impl Follower {
    /// Shows a session by this renderer.
    pub fn new(mirror: Mirror, renderer: Renderer) -> Self {
        let known = mirror.state().map_or(0, AgentState::transcript_len);
        Follower { mirror, renderer, known }
    }

    /// The session.
    pub fn mirror(&self) -> &Mirror {
        &self.mirror
    }

    /// The next change. May be dropped while it waits.
    ///
    /// # Errors
    /// As [`Mirror::next`].
    pub async fn next(&mut self) -> Result<Change, MirrorError> {
        self.known = self.mirror.state().map_or(0, AgentState::transcript_len);
        self.mirror.next().await
    }

    /// What an event looks like.
    pub fn event(&mut self, event: &Event) -> Vec<Piece> {
        self.renderer.event(event)
    }

    /// What an unfinished answer looks like, but for what of it has been shown already.
    pub fn unfinished(&mut self) -> Vec<Piece> {
        let partial = self.mirror.state().and_then(|state| state.partial.as_ref());
        partial.map_or_else(Vec::new, |partial| self.renderer.partial(partial))
    }

    /// What the whole state looks like, whatever was shown before.
    pub fn whole(&mut self) -> Vec<Piece> {
        self.renderer.forget();
        let messages = self.mirror.state().into_iter().flat_map(|state| state.messages.iter());
        let mut pieces: Vec<_> =
            messages.flat_map(|message| self.renderer.message(message)).collect();
        pieces.extend(self.unfinished());
        pieces
    }

    /// What was shown of an unfinished answer belongs to another one than what comes now.
    pub fn forget(&mut self) {
        self.renderer.forget();
    }

    /// What the newest change brought, where events are lost for good: the messages that joined the
    /// transcript meanwhile and the answer so far, but for what of it has been shown already.
    ///
    /// # Errors
    /// The daemon does not tell.
    pub async fn missed(&mut self) -> Result<Vec<Piece>, CallError> {
        let mut pieces = Vec::new();
        let Some(state) = self.mirror.state() else { return Ok(pieces) };
        let (mut from, total) = (self.known, state.transcript_len());
        while from < total {
            let params = GetMessagesParams {
                from: Some(from),
                limit: Some(total - from),
                session_id: Some(self.mirror.session_id().to_owned()),
                ..GetMessagesParams::default()
            };
            let page = self.mirror.client().call::<GetMessages>(&params).await?;
            if page.messages.is_empty() {
                break; // Emptied meanwhile; the event that says so follows.
            }
            from += page.messages.len();
            for message in &page.messages {
                pieces.extend(self.renderer.message(message));
            }
        }
        match state.partial.is_some() {
            true => pieces.extend(self.unfinished()),
            false => pieces.push(Piece::AnswerEnd),
        }
        Ok(pieces)
    }
}
