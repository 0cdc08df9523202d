//! `reduce(state, event) -> state`: the one place where events become state.
//!
//! Owns: what each event means. Pure and total: no clock, no I/O, no panic, whatever the events.
//! The agent and its clients fold the same function, so they cannot disagree (contract 4.4).

use std::sync::Arc;

use rpds::VectorSync;

use crate::{
    Activity, AgentState, EndReason, Event, EventKind, GrowingText, LastRun, Message, MessageId,
    Partial, PartialBlock, QueueKind, Queued, RunId, Source, Transcript, Undelivered,
};

/// How many diagnostics a state keeps.
const MAX_DIAGNOSTICS: usize = 64;

/// The state after an event.
///
/// Costs the same whatever the state's size, also while other copies of it exist.
pub fn reduce(state: AgentState, event: &Event) -> AgentState {
    match &event.kind {
        EventKind::RunStart { messages } => run_started(state, event.run_id, messages),
        // Run 1 may still be reporting after run 2 began; its news is old. (4.2)
        _ if event.run_id.is_some() && event.run_id != state.active_run() => state,
        EventKind::MessageStart { .. } => message_started(state),
        EventKind::TextDelta { content_index, delta } => {
            block_grew(state, *content_index, Growth::Text(delta))
        }
        EventKind::ThinkingDelta { content_index, delta } => {
            block_grew(state, *content_index, Growth::Thinking(delta))
        }
        EventKind::ToolCallDelta { content_index, tool_call_id, tool_name, delta } => {
            block_grew(state, *content_index, Growth::ToolCall(tool_call_id, tool_name, delta))
        }
        EventKind::MessageEnd { message, source } => message_joined(state, message, *source),
        EventKind::ToolStart { tool_call_id, .. } => tool_started(state, tool_call_id),
        EventKind::ToolEnd { tool_call_id, .. } => tool_ended(state, tool_call_id),
        EventKind::QueueUpdate { queue, added, removed } => {
            queue_changed(state, *queue, added.as_ref(), removed)
        }
        EventKind::Diagnostic { message } => diagnosed(state, message),
        EventKind::ConfigChanged { change } => {
            let mut state = state;
            Arc::make_mut(&mut state.config).apply(change);
            state
        }
        EventKind::Reset {} => {
            AgentState { messages: Transcript::default(), messages_from: None, ..state }
        }
        EventKind::RunEnd { reason, error_message, undelivered, .. } => {
            run_ended(state, event.run_id, *reason, error_message.as_ref(), undelivered)
        }
        // Nothing that a screen keeps.
        EventKind::TurnStart { .. }
        | EventKind::ToolUpdate { .. }
        | EventKind::ToolSkipped { .. }
        | EventKind::Retry { .. }
        | EventKind::TurnEnd { .. } => state,
    }
}

fn run_started(
    mut state: AgentState,
    run_id: Option<RunId>,
    messages: &[Arc<Message>],
) -> AgentState {
    // A run without a number cannot be told from no run; such an event is nobody's.
    let Some(active_run_id) = run_id else { return state };
    state.activity = Activity::Running { active_run_id };
    state.messages.extend(messages.iter().cloned());
    clear_turn(&mut state);
    state
}

fn message_started(mut state: AgentState) -> AgentState {
    state.partial = Some(Partial::default());
    state
}

enum Growth<'a> {
    Text(&'a str),
    Thinking(&'a str),
    ToolCall(&'a str, &'a str, &'a str),
}

fn block_grew(mut state: AgentState, index: u32, growth: Growth<'_>) -> AgentState {
    let Some(partial) = &mut state.partial else { return state };
    let index = index as usize;
    if index == partial.content.len() {
        partial.content.push_back_mut(new_block(&growth));
    }
    // A delta that skips a block or changes its kind is not from our loop: it changes nothing.
    grow(&mut partial.content, index, &growth);
    state
}

fn new_block(growth: &Growth<'_>) -> PartialBlock {
    match growth {
        Growth::Text(_) => PartialBlock::Text(GrowingText::default()),
        Growth::Thinking(_) => PartialBlock::Thinking(GrowingText::default()),
        Growth::ToolCall(id, name, _) => PartialBlock::ToolCall {
            id: (*id).into(),
            name: (*name).into(),
            arguments: GrowingText::default(),
        },
    }
}

fn grow(content: &mut VectorSync<PartialBlock>, index: usize, growth: &Growth<'_>) {
    match (content.get_mut(index), growth) {
        (Some(PartialBlock::Text(text)), Growth::Text(delta))
        | (Some(PartialBlock::Thinking(text)), Growth::Thinking(delta))
        | (Some(PartialBlock::ToolCall { arguments: text, .. }), Growth::ToolCall(_, _, delta)) => {
            text.push(delta);
        }
        _ => {}
    }
}

fn message_joined(mut state: AgentState, message: &Arc<Message>, source: Source) -> AgentState {
    state.messages.push(message.clone());
    if source == Source::Model {
        state.partial = None;
    }
    if let Message::Assistant(message) = &**message {
        state.usage.add(message.usage);
    }
    state
}

fn tool_started(mut state: AgentState, id: &Arc<str>) -> AgentState {
    Arc::make_mut(&mut state.pending_tool_call_ids).push(id.clone());
    state
}

fn tool_ended(mut state: AgentState, id: &Arc<str>) -> AgentState {
    Arc::make_mut(&mut state.pending_tool_call_ids).retain(|pending| pending != id);
    state
}

fn queue_changed(
    mut state: AgentState,
    queue: QueueKind,
    added: Option<&Arc<Queued>>,
    removed: &[MessageId],
) -> AgentState {
    let queue = match queue {
        QueueKind::Steering => &mut state.steering,
        QueueKind::FollowUp => &mut state.follow_up,
    };
    remove(queue, removed.iter());
    if let Some(queued) = added {
        Arc::make_mut(queue).push(queued.clone());
    }
    state
}

fn remove<'a>(
    queue: &mut Arc<Vec<Arc<Queued>>>,
    mut ids: impl Iterator<Item = &'a MessageId> + Clone,
) {
    if ids.clone().next().is_some() {
        let mut gone = ids.by_ref().collect::<Vec<_>>();
        gone.sort_unstable();
        Arc::make_mut(queue).retain(|queued| gone.binary_search(&&queued.message_id).is_err());
    }
}

fn diagnosed(mut state: AgentState, message: &str) -> AgentState {
    let diagnostics = Arc::make_mut(&mut state.diagnostics);
    if diagnostics.len() >= MAX_DIAGNOSTICS {
        diagnostics.remove(0);
    }
    diagnostics.push(message.into());
    state
}

fn run_ended(
    mut state: AgentState,
    run_id: Option<RunId>,
    reason: EndReason,
    error_message: Option<&String>,
    undelivered: &Undelivered,
) -> AgentState {
    let Some(run_id) = run_id else { return state };
    state.activity = Activity::default();
    state.last_run =
        Some(Arc::new(LastRun { run_id, reason, error_message: error_message.cloned() }));
    clear_turn(&mut state);
    // What the run hands back leaves the queues here; what was held meanwhile stays. (8.10)
    remove(&mut state.steering, undelivered.steering.iter().map(|queued| &queued.message_id));
    remove(&mut state.follow_up, undelivered.follow_up.iter().map(|queued| &queued.message_id));
    state
}

fn clear_turn(state: &mut AgentState) {
    state.partial = None;
    if !state.pending_tool_call_ids.is_empty() {
        state.pending_tool_call_ids = Arc::default();
    }
}
