//! What happened, as text in the contract's words.

use std::sync::Arc;

use agent_core::{
    Agent, Block, Event, EventKind, Message, QueueKind, Source, Subscription, text_of,
};
use tokio::sync::watch;

use crate::PATIENCE;

/// The events that one listener has seen, in the order in which it saw them.
#[derive(Clone)]
pub struct Timeline {
    events: Arc<watch::Sender<Vec<Arc<Event>>>>,
    /// The listener's place.
    pub subscription: Subscription,
}

impl Timeline {
    /// Listens to an agent from now on.
    pub fn of(agent: &Agent) -> Self {
        let events = Arc::new(watch::Sender::new(Vec::new()));
        let seen = events.clone();
        let subscription = agent.subscribe(move |event, _| {
            seen.send_modify(|events: &mut Vec<_>| events.push(event));
            async { Ok(()) }
        });
        Timeline { events, subscription }
    }

    /// The events so far.
    pub fn events(&self) -> Vec<Arc<Event>> {
        self.events.borrow().clone()
    }

    /// Waits until an event has been seen whose word begins so.
    pub async fn reached(&self, beginning: &str) {
        let mut changes = self.events.subscribe();
        let is_there = |events: &Vec<Arc<Event>>| {
            events.iter().rev().any(|event| word(event).starts_with(beginning))
        };
        let reached = tokio::time::timeout(PATIENCE, changes.wait_for(is_there)).await;
        assert!(reached.is_ok(), "{beginning} does not come after {}", self.story());
    }

    /// Every event as a word, such as `turn_end(1 stop)`.
    pub fn story(&self) -> String {
        let words: Vec<String> = self.events().iter().map(|event| word(event)).collect();
        words.join(" ")
    }

    /// Only the events whose words begin with one of these.
    pub fn only(&self, beginnings: &[&str]) -> String {
        let words = self.events().iter().map(|event| word(event)).collect::<Vec<_>>();
        let kept = words.iter().filter(|word| beginnings.iter().any(|b| word.starts_with(b)));
        kept.cloned().collect::<Vec<_>>().join(" ")
    }

    /// Where runs start and end: `start1 → end1`.
    pub fn runs(&self) -> String {
        let mut runs = Vec::new();
        for event in self.events() {
            match (&event.kind, event.run_id) {
                (EventKind::RunStart { .. }, Some(id)) => runs.push(format!("start{id}")),
                (EventKind::RunEnd { .. }, Some(id)) => runs.push(format!("end{id}")),
                _ => {}
            }
        }
        runs.join(" → ")
    }
}

/// One event as a word.
pub fn word(event: &Event) -> String {
    let run = event.run_id.map_or("-".into(), |id| id.to_string());
    match &event.kind {
        EventKind::RunStart { .. } => format!("run_start({run})"),
        EventKind::TurnStart { turn } => format!("turn_start({turn})"),
        EventKind::MessageStart { .. } => "message_start".into(),
        EventKind::TextDelta { .. } => "text_delta".into(),
        EventKind::ThinkingDelta { .. } => "thinking_delta".into(),
        EventKind::ToolCallDelta { tool_call_id, .. } => format!("tool_call_delta({tool_call_id})"),
        EventKind::MessageEnd { message, source } => {
            format!("message_end({})", joined(message, *source))
        }
        EventKind::ToolStart { tool_call_id, .. } => format!("tool_start({tool_call_id})"),
        EventKind::ToolUpdate { tool_call_id, .. } => format!("tool_update({tool_call_id})"),
        EventKind::ToolEnd { tool_call_id, is_error, .. } => {
            format!("tool_end({tool_call_id}{})", if *is_error { " error" } else { "" })
        }
        EventKind::ToolSkipped { tool_call_id, .. } => format!("tool_skipped({tool_call_id})"),
        EventKind::QueueUpdate { queue, added, removed } => {
            let queue = match queue {
                QueueKind::Steering => "steering",
                QueueKind::FollowUp => "followUp",
            };
            let added = added.iter().map(|queued| format!(" +{}", text_of(&queued.content)));
            let removed = removed.iter().map(|id| format!(" -{id}"));
            format!("queue_update({queue}{})", added.chain(removed).collect::<String>())
        }
        EventKind::Retry { attempt, .. } => format!("retry({attempt})"),
        EventKind::TurnEnd { turn, stop_reason, .. } => {
            format!("turn_end({turn} {})", name(stop_reason))
        }
        EventKind::Diagnostic { .. } => "diagnostic".into(),
        EventKind::ConfigChanged { .. } => "config_changed".into(),
        EventKind::Reset {} => "reset".into(),
        EventKind::RunEnd { reason, .. } => format!("run_end({run} {})", name(reason)),
    }
}

fn joined(message: &Message, source: Source) -> String {
    match message {
        Message::ToolResult(result) => format!("tool {}", result.tool_call_id),
        Message::User(_) => format!("{} {}", name(&source), message.text()),
        Message::Assistant(_) => name(&source),
    }
}

/// How the wire spells it.
fn name(value: &impl serde::Serialize) -> String {
    serde_json::to_value(value).unwrap().as_str().unwrap().to_owned()
}

/// A transcript as text: `user "go" | assistant[stop] "one"`.
pub fn transcript_story<'a>(messages: impl IntoIterator<Item = &'a Arc<Message>>) -> String {
    let messages = messages.into_iter().map(|message| match &**message {
        Message::User(_) => format!("user {:?}", message.text()),
        Message::Assistant(answer) => {
            let calls: String = answer.tool_calls().map(|call| format!(" +{}", call.id)).collect();
            let thoughts = answer.content.iter().filter(|b| matches!(b, Block::Thinking { .. }));
            let thoughts = " *".repeat(thoughts.count());
            let stop_reason = name(&answer.stop_reason);
            format!("assistant[{stop_reason}]{thoughts} {:?}{calls}", message.text())
        }
        Message::ToolResult(result) => {
            let error = if result.is_error { "!" } else { "" };
            format!("result{error} {} {:?}", result.tool_call_id, message.text())
        }
    });
    messages.collect::<Vec<_>>().join(" | ")
}
