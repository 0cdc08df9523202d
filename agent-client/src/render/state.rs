//! A session's state, for people.

use agent_core::{AgentState, Partial, PartialBlock, Queued, text_of};
use agent_protocol::harmless::one_line;

/// How many characters of a text a line has room for.
const EXCERPT_CHARS: usize = 70;

/// A state for people.
pub fn told(seq: u64, session_id: &str, state: &AgentState) -> String {
    let mut rows = vec![("session", one_line(session_id)), ("status", status(state))];
    rows.push(("model", one_line(&state.config.model)));
    rows.push(("messages", state.transcript_len().to_string()));
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
