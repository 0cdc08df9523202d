//! What there is to show when events are lost for good.
//!
//! Owns: getting the messages that joined the transcript meanwhile. Never: shows again what was
//! shown; the renderer knows.

use agent_core::AgentState;
use agent_protocol::{GetMessages, GetMessagesParams};

use crate::{
    client::CallError,
    mirror::Mirror,
    render::{Piece, Renderer},
};

/// How many messages the whole transcript has.
pub fn transcript_len(state: &AgentState) -> usize {
    state.messages_from.unwrap_or(0) + state.messages.len()
}

/// What the mirror's state has beyond the first `known` messages and what the renderer has shown.
pub async fn missed(
    mirror: &Mirror,
    known: usize,
    renderer: &mut Renderer,
) -> Result<Vec<Piece>, CallError> {
    let mut pieces = Vec::new();
    let Some(state) = mirror.state() else { return Ok(pieces) };
    let total = transcript_len(state);
    let mut from = known;
    while from < total {
        let params = GetMessagesParams {
            from: Some(from),
            limit: Some(total - from),
            session_id: Some(mirror.session_id().to_owned()),
            ..GetMessagesParams::default()
        };
        let page = mirror.client().call::<GetMessages>(&params).await?;
        if page.messages.is_empty() {
            break; // Emptied meanwhile; the event that says so follows.
        }
        from += page.messages.len();
        for message in &page.messages {
            pieces.extend(renderer.message(message));
        }
    }
    match &state.partial {
        Some(partial) => pieces.extend(renderer.partial(partial)),
        None => pieces.push(Piece::AnswerEnd),
    }
    Ok(pieces)
}
