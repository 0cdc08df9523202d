//! The line about the session that stands above the input. Pure.
//!
//! Owns: which tools it names: those that are at work, by the state alone, so that whoever comes in
//! the middle or has missed something is told the same.

use agent_core::{AgentState, Block, Message, RunId};
use agent_protocol::harmless::one_line;

use crate::render::summary;

/// What is known of a session beside its state.
pub struct Status<'a> {
    /// Its id.
    pub session: &'a str,
    /// Whether the daemon can be reached.
    pub is_connected: bool,
    /// The run that the user has told to end.
    pub aborting: Option<RunId>,
}

impl Status<'_> {
    /// The line.
    pub fn line(&self, state: Option<&AgentState>) -> String {
        let session = one_line(self.session);
        let queued = state.map_or(0, |state| state.steering.len() + state.follow_up.len());
        let queued = if queued == 0 { String::new() } else { format!(" · {queued} queued") };
        format!(" {session}{queued} · {} ", self.doing(state))
    }

    fn doing(&self, state: Option<&AgentState>) -> String {
        let active = state.and_then(|state| Some((state, state.active_run()?)));
        match (self.is_connected, active) {
            (false, _) => "not connected".to_owned(),
            (true, None) => "idle".to_owned(),
            (true, Some((_, run_id))) if self.aborting == Some(run_id) => {
                format!("run {run_id} is being aborted")
            }
            (true, Some((state, run_id))) => format!("run {run_id}{}", tools(state)),
        }
    }
}

/// The tool at work that began last, and how many others are.
fn tools(state: &AgentState) -> String {
    let at_work = &state.pending_tool_call_ids;
    let Some(newest) = at_work.last() else { return String::new() };
    let others = match at_work.len() - 1 {
        0 => String::new(),
        others => format!(", and {others} more"),
    };
    format!(": {}{others}", call(state, newest).unwrap_or_else(|| "a tool".to_owned()))
}

/// What was called by this id. The call is in the newest answer, before its batch's results.
fn call(state: &AgentState, id: &str) -> Option<String> {
    let calls = state.messages.iter().rev().find_map(|message| match &**message {
        Message::Assistant(answer) => Some(&answer.content),
        _ => None,
    });
    calls?.iter().find_map(|block| match block {
        Block::ToolCall(call) if call.id == id => Some(summary::call(&call.name, &call.arguments)),
        _ => None,
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use serde_json::{Value, json};

    use super::*;

    /// A run whose newest answer calls three tools, of which these are at work.
    fn state(at_work: &[&str], messages: Value) -> AgentState {
        let state = json!({
            "status": "running", "activeRunId": 7, "messages": messages, "partial": null,
            "pendingToolCallIds": at_work, "steering": [], "followUp": [], "lastRun": null,
            "diagnostics": [], "usage": {},
            "config": {
                "model": "a/b", "thinkingLevel": "off", "systemPrompt": "", "tools": [],
                "steeringMode": "all", "followUpMode": "all", "whenIdle": "reject", "maxTurns": 0,
                "toolExecution": "parallel",
            },
        });
        serde_json::from_value(state).unwrap()
    }

    fn answer(commands: &[&str]) -> Value {
        let call = |(number, command): (usize, &&str)| {
            json!({
                "type": "toolCall", "id": format!("c{number}"), "name": "bash",
                "arguments": { "command": command },
            })
        };
        let content: Vec<_> = commands.iter().enumerate().map(call).collect();
        json!({
            "role": "assistant", "id": "m1", "content": content, "model": "a/b", "usage": {},
            "stopReason": "toolUse", "timestamp": 0,
        })
    }

    #[test]
    fn the_tools_that_are_at_work_are_named() {
        let messages = json!([answer(&["old"]), answer(&["one", "two", "three"])]);
        for (at_work, expected) in [
            (&["c0", "c1", "c2"][..], " s · run 7: bash three, and 2 more "),
            (&["c0", "c1"], " s · run 7: bash two, and 1 more "),
            (&["c0"], " s · run 7: bash one "),
            (&[], " s · run 7 "),
        ] {
            let status = Status { session: "s", is_connected: true, aborting: None };
            assert_eq!(status.line(Some(&state(at_work, messages.clone()))), expected);
        }
    }

    #[test]
    fn what_matters_more_than_a_tool_is_said_in_its_place() {
        let state = state(&["c9"], json!([]));
        let status = |is_connected, aborting| {
            Status { session: "s", is_connected, aborting }.line(Some(&state))
        };
        assert_eq!(status(true, None), " s · run 7: a tool ");
        assert_eq!(status(true, Some(RunId(7))), " s · run 7 is being aborted ");
        assert_eq!(status(true, Some(RunId(6))), " s · run 7: a tool ");
        assert_eq!(status(false, None), " s · not connected ");
        let nothing = Status { session: "s", is_connected: true, aborting: None }.line(None);
        assert_eq!(nothing, " s · idle ");
    }
}
