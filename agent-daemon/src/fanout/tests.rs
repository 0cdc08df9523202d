//! The log alone, with a reader or two.

#![allow(clippy::unwrap_used)]

use agent_core::{AgentState, Config, EventKind, RunId, reduce};

use super::*;

/// An agent reduced to what a log needs of it.
pub(crate) struct Feed {
    pub(crate) now: Arc<Mutex<Snapshot>>,
    pub(crate) log: Arc<EventLog>,
}

impl Feed {
    pub(crate) fn new(limits: LogLimits) -> Self {
        let config: Config = serde_json::from_value(serde_json::json!({
            "model": "m", "thinkingLevel": "off", "systemPrompt": "", "tools": [],
            "steeringMode": "all", "followUpMode": "all", "whenIdle": "reject", "maxTurns": 0,
            "toolExecution": "parallel",
        }))
        .unwrap();
        let state = AgentState::new(config, Default::default());
        let now = Arc::new(Mutex::new(Snapshot { seq: 0, state }));
        let seen = now.clone();
        let snapshot = move || seen.lock().unwrap().clone();
        Feed { now, log: Arc::new(EventLog::new("main", "i1".into(), limits, snapshot)) }
    }

    pub(crate) fn publish(&self, kind: EventKind) {
        let event = {
            let mut now = self.now.lock().unwrap();
            let event = Event { seq: now.seq + 1, run_id: Some(RunId(1)), kind };
            let state = reduce(now.state.clone(), &event);
            *now = Snapshot { seq: event.seq, state };
            event
        };
        self.log.append(&event);
    }

    pub(crate) fn say(&self, delta: &str) {
        self.publish(EventKind::TextDelta { content_index: 0, delta: delta.to_owned() });
    }

    pub(crate) fn begin(&self) {
        self.publish(EventKind::RunStart { messages: vec![] });
        self.publish(EventKind::MessageStart { role: agent_core::Role::Assistant });
    }
}
