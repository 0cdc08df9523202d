//! `state` and `messages`.

use agent_core::{AgentState, Message, Partial, PartialBlock, Queued, text_of};
use agent_protocol::{
    GetMessages, GetMessagesParams, GetState, GetStateParams, GetStateResult, MessagesWanted,
    Method, harmless::one_line,
};
use serde::Deserialize;
use serde_json::value::RawValue;

use super::{Context, line};
use crate::{
    arguments::Wanted,
    catch_up::transcript_len,
    exit::{Exit, Failure},
    render::{Renderer, plain},
};

/// How many characters of a text a line has room for.
const EXCERPT_CHARS: usize = 70;

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
                super::write(&plain(&renderer.message(&message)))?;
            }
        }
        if page.messages.is_empty() || next >= page.total {
            return Ok(Exit::Done);
        }
    }
}

/// A state for people.
pub(crate) fn told(seq: u64, session_id: &str, state: &AgentState) -> String {
    let mut rows = vec![("session", one_line(session_id)), ("status", status(state))];
    rows.push(("model", one_line(&state.config.model)));
    rows.push(("messages", transcript_len(state).to_string()));
    let usage = state.usage;
    rows.push(("tokens", format!("{} in, {} out", usage.input + usage.cache_read, usage.output)));
    rows.extend(state.steering.iter().map(|queued| ("steering", queued_text(queued))));
    rows.extend(state.follow_up.iter().map(|queued| ("follow-up", queued_text(queued))));
    rows.extend(state.partial.iter().map(|partial| ("answer", answer(partial))));
    rows.extend(state.diagnostics.iter().map(|text| ("diagnostic", excerpt(text))));
    rows.push(("event", seq.to_string()));
    rows.iter().map(|(name, value)| format!("{name:<10} {value}\n")).collect()
}

fn status(state: &AgentState) -> String {
    let tools = match state.pending_tool_call_ids.len() {
        0 => String::new(),
        1 => ", a tool is at work".to_owned(),
        several => format!(", {several} tools are at work"),
    };
    match (state.active_run(), &state.last_run) {
        (Some(run_id), _) => format!("run {run_id}{tools}"),
        (None, None) => "idle".to_owned(),
        (None, Some(last_run)) => {
            let reason = serde_json::to_value(last_run.reason).unwrap_or_default();
            let reason = reason.as_str().unwrap_or_default();
            let message = last_run.error_message.as_ref();
            let message = message.map_or_else(String::new, |text| format!(": {}", one_line(text)));
            format!("idle; run {} ended: {reason}{message}", last_run.run_id)
        }
    }
}

fn queued_text(queued: &Queued) -> String {
    match text_of(&queued.content) {
        text if text.is_empty() => "[image]".to_owned(),
        text => excerpt(&text),
    }
}

fn answer(partial: &Partial) -> String {
    let text = partial.content.iter().rev().find_map(|block| match block {
        PartialBlock::Text(text) if !text.is_empty() => Some(text.to_string()),
        _ => None,
    });
    match text {
        None => "…".to_owned(),
        Some(text) => {
            let line = one_line(&text);
            let skipped = line.chars().count().saturating_sub(EXCERPT_CHARS);
            let end: String = line.chars().skip(skipped).collect();
            if skipped == 0 { end } else { format!("…{end}") }
        }
    }
}

fn excerpt(text: &str) -> String {
    let line = one_line(text);
    match line.char_indices().nth(EXCERPT_CHARS) {
        Some((end, _)) => format!("{}…", &line[..end]),
        None => line,
    }
}
