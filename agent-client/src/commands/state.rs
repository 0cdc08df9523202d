//! `state` and `messages`.

use agent_core::Message;
use agent_protocol::{
    GetMessages, GetMessagesParams, GetState, GetStateParams, GetStateResult, MessagesWanted,
    Method,
};
use serde::Deserialize;
use serde_json::value::RawValue;

use crate::{
    arguments::Wanted,
    context::Context,
    exit::{Exit, Failure},
    output::{line, write},
    render::{piece::plain, renderer::Renderer, state::told},
};

pub(super) async fn state(context: &Context, messages: Wanted) -> Result<Exit, Failure> {
    let (client, session_id) = match context.existing().await? {
        Ok(found) => found,
        Err(none) => return context.nothing(&none, Some("null")),
    };
    let session_id = Some(session_id);
    // People get to see how many there are.
    let messages = if context.json { messages.into() } else { MessagesWanted::None };
    let messages = Some(messages);
    let params = GetStateParams { messages, session_id, ..GetStateParams::default() };
    let told = |result: GetStateResult| told(result.seq, &result.session_id, &result.state);
    context.print(&client, GetState::NAME, &params, told).await
}

pub(super) async fn messages(
    context: &Context,
    from: Option<usize>,
    last: Option<usize>,
) -> Result<Exit, Failure> {
    /// A page whose messages are left as they came.
    #[derive(Deserialize)]
    struct Page {
        messages: Vec<Box<RawValue>>,
        total: usize,
    }
    let (client, session_id) = match context.existing().await? {
        Ok(found) => found,
        Err(none) => return context.nothing(&none, None),
    };
    let session_id = Some(session_id);
    let mut params = GetMessagesParams { session_id, ..GetMessagesParams::default() };
    let mut next = from.unwrap_or(0);
    if let Some(last) = last {
        params.limit = Some(0);
        next = client.call::<GetMessages>(&params).await?.total.saturating_sub(last);
        params.limit = None;
    }
    let mut renderer = Renderer::default();
    loop {
        params.from = Some(next);
        let page: Page = client.call_json(GetMessages::NAME, &params).await?;
        next += page.messages.len();
        for message in &page.messages {
            if context.json {
                line(message.get())?;
            } else if let Ok(message) = serde_json::from_str::<Message>(message.get()) {
                write(&plain(&renderer.message(&message)))?;
            }
        }
        if page.messages.is_empty() || next >= page.total {
            return Ok(Exit::Done);
        }
    }
}
