//! `reduce(state, event) -> state`: the one place where events become state.
//!
//! Owns: what each event means. Pure and total: no clock, no I/O, no panic, whatever the events.
//! The agent and its clients fold the same function, so they cannot disagree (C4.4).

use std::sync::Arc;

use rpds::VectorSync;

use crate::data::{
    event::{EndReason, Event, EventKind, QueueKind, Queued, RunId, Source, Undelivered},
    message::{Message, MessageId},
    state::{Activity, AgentState, LastRun, Partial, PartialBlock},
    transcript::{GrowingText, Transcript},
};

/// How many diagnostics a state keeps.
const MAX_DIAGNOSTICS: usize = 64;

/// The state after an event.
///
/// Costs the same whatever the state's size, also while other copies of it exist.
pub fn reduce(state: AgentState, event: &Event) -> AgentState {
    match &event.kind {
        EventKind::RunStart { messages } => run_started(state, event.run_id, messages),
        // Run 1 may still be reporting after run 2 began; its news is old. (C4.2)
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
        // What had begun of the answer was empty.
        EventKind::Retry { .. } => AgentState { partial: None, ..state },
        // Nothing that a screen keeps.
        EventKind::TurnStart { .. }
        | EventKind::ToolUpdate { .. }
        | EventKind::ToolSkipped { .. }
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
    // What the run hands back leaves the queues here; what was held meanwhile stays. (C8.10)
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

#[cfg(test)]
mod tests {
    use proptest::{collection::vec, prelude::*};

    use super::*;
    use crate::{Block, Config, Role, StopReason, ToolOutput, Usage, UserMessage};

    fn state() -> AgentState {
        let config = Config { model: "acme/one".into(), ..Config::default() };
        AgentState::new(config, Transcript::default())
    }

    fn message(id: u8) -> Arc<Message> {
        let (id, content) = (id.to_string().into(), vec![Block::text("x")]);
        Arc::new(Message::User(UserMessage { id, content, timestamp: 0, origin: None }))
    }

    /// Any event at all, in any order: also those that no agent would publish.
    fn event() -> impl Strategy<Value = Event> {
        let id = || 0..4_u8;
        let queue = || prop_oneof![Just(QueueKind::Steering), Just(QueueKind::FollowUp)];
        let queued = |id: u8| {
            let content = vec![Block::text("x")];
            Arc::new(Queued { message_id: id.to_string().into(), content, origin: None })
        };
        let call = |id: u8| -> Arc<str> { id.to_string().into() };
        let delta = || "[a-c]{0,2}";
        let index = || 0..4_u32;
        let kind = prop_oneof![
            id().prop_map(|id| EventKind::RunStart { messages: vec![message(id)] }),
            Just(EventKind::MessageStart { role: Role::Assistant }),
            (index(), delta())
                .prop_map(|(content_index, delta)| EventKind::TextDelta { content_index, delta }),
            (index(), delta()).prop_map(|(content_index, delta)| EventKind::ThinkingDelta {
                content_index,
                delta
            }),
            (index(), delta()).prop_map(|(content_index, delta)| EventKind::ToolCallDelta {
                content_index,
                tool_call_id: "a".into(),
                tool_name: "t".into(),
                delta
            }),
            (id(), any::<bool>()).prop_map(|(id, model)| EventKind::MessageEnd {
                message: message(id),
                source: if model { Source::Model } else { Source::Tool },
            }),
            id().prop_map(move |id| EventKind::ToolStart {
                tool_call_id: call(id),
                tool_name: "t".into(),
                args: serde_json::Value::Null,
            }),
            id().prop_map(move |id| EventKind::ToolEnd {
                tool_call_id: call(id),
                result: ToolOutput::text("x"),
                is_error: false,
            }),
            (queue(), id()).prop_map(move |(queue, id)| EventKind::QueueUpdate {
                queue,
                added: Some(queued(id)),
                removed: Vec::new(),
            }),
            (queue(), id()).prop_map(move |(queue, id)| EventKind::QueueUpdate {
                queue,
                added: None,
                removed: vec![id.to_string().into()],
            }),
            Just(EventKind::Diagnostic { message: "x".into() }),
            Just(EventKind::Reset {}),
            Just(EventKind::Retry { attempt: 1, delay_ms: 1, error: "x".into() }),
            Just(EventKind::TurnEnd {
                turn: 1,
                stop_reason: StopReason::Stop,
                usage: Usage::default()
            }),
            id().prop_map(move |id| EventKind::RunEnd {
                reason: EndReason::Stop,
                error_message: None,
                undelivered: Undelivered { steering: vec![queued(id)], follow_up: Vec::new() },
                usage: Usage::default(),
            }),
        ];
        (proptest::option::weighted(0.8, 1..3_u64), kind).prop_map(|(run, kind)| Event {
            seq: 1,
            run_id: run.map(RunId),
            kind,
        })
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, cases: 64, ..ProptestConfig::default() })]

        // C4.1, C4.2, C4.3, C4.4
        #[test]
        fn reduce_is_total_pure_and_folds_the_same_over_the_wire(events in vec(event(), 0..60)) {
            let (mut state, mut read) = (state(), state());
            for event in &events {
                let (before, kept) = (state.clone(), state.clone());
                state = reduce(state, event);
                prop_assert_eq!(&reduce(before.clone(), event), &state, "the same again");
                prop_assert_eq!(&before, &kept, "a copy does not change");
                let is_start = matches!(event.kind, EventKind::RunStart { .. });
                if !is_start && event.run_id.is_some() && event.run_id != before.active_run() {
                    prop_assert_eq!(&state, &before, "the news of another run");
                }
                if is_start && event.run_id.is_some() {
                    prop_assert_eq!(state.active_run(), event.run_id);
                }
                prop_assert!(state.diagnostics.len() <= MAX_DIAGNOSTICS);
                // Snapshot and event as a client reads them.
                let text = serde_json::to_string(&read).unwrap();
                let event = serde_json::to_string(event).unwrap();
                read = serde_json::from_str(&text).unwrap();
                read = reduce(read, &serde_json::from_str(&event).unwrap());
                prop_assert_eq!(&read, &state);
            }
        }
    }
}
