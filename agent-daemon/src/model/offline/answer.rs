//! What the offline model answers to a transcript. Pure.

use std::collections::HashMap;

use agent_core::{AssistantMessage, Message, ModelRequest, ToolCall, ToolResultMessage, text_of};
use serde_json::Value;

use super::wishes::{Wish, wishes};

/// Words, then calls.
#[derive(Debug)]
pub(super) struct Answer {
    pub(super) text: String,
    pub(super) calls: Vec<ToolCall>,
}

/// How much of a person's or a tool's words is repeated.
const QUOTED: usize = 80;

const ABILITIES: &str = "I can `read PATH`, `list DIR`, `run COMMAND`, `write PATH: TEXT` and \
                         `edit PATH: OLD => NEW`, several at once when joined by `and`.";

/// Answers everything that came after the last answer.
pub(super) fn answer(request: &ModelRequest, advice: &str) -> Answer {
    let messages: Vec<&Message> = request.messages.iter().map(|message| &**message).collect();
    let last = messages.iter().rposition(|message| matches!(message, Message::Assistant(_)));
    let last_answer = last.and_then(|index| match messages[index] {
        Message::Assistant(assistant) => Some(assistant),
        _ => None,
    });
    let mut paragraphs = Vec::new();
    if last.is_none() {
        paragraphs.push(format!("This is the built-in offline demo, not a real model. {advice}"));
    }
    let mut sentences = Vec::new();
    let mut asked = Vec::new();
    for message in &messages[last.map_or(0, |index| index + 1)..] {
        match message {
            Message::ToolResult(result) => sentences.push(told(result, last_answer)),
            Message::User(_) => asked.push(message.text()),
            Message::Assistant(_) => {}
        }
    }
    let beside_results = !sentences.is_empty();
    let mut numbers = calls_so_far(&messages)..;
    let mut calls = Vec::new();
    for text in &asked {
        let mut reply = reply(text, request);
        if beside_results || asked.len() > 1 {
            reply.text = format!("Now to “{}”: {}", quoted(text), reply.text);
        }
        sentences.push(reply.text);
        calls.extend(reply.wishes.into_iter().zip(&mut numbers).map(|(wish, number)| ToolCall {
            id: format!("call_{}", number + 1),
            name: wish.tool().to_owned(),
            arguments: wish.arguments(),
        }));
    }
    if sentences.is_empty() {
        sentences.push(format!("There is nothing new to answer. {ABILITIES}"));
    }
    paragraphs.push(sentences.join(" "));
    Answer { text: paragraphs.join("\n\n"), calls }
}

/// So that each call of a transcript has a number of its own.
fn calls_so_far(messages: &[&Message]) -> usize {
    let calls = |message: &&Message| match message {
        Message::Assistant(assistant) => assistant.tool_calls().count(),
        _ => 0,
    };
    messages.iter().map(calls).sum()
}

struct Reply {
    text: String,
    wishes: Vec<Wish>,
}

/// What to say and do about one message of a person.
fn reply(text: &str, request: &ModelRequest) -> Reply {
    let understood = wishes(text);
    if understood.is_empty() {
        let text = format!("I do not understand “{}”. {ABILITIES}", quoted(text));
        return Reply { text, wishes: Vec::new() };
    }
    let available = |wish: &Wish| request.tools.iter().any(|tool| tool.name == wish.tool());
    let (wishes, refused): (Vec<_>, Vec<_>) = understood.into_iter().partition(available);
    let mut sentences = Vec::new();
    if !wishes.is_empty() {
        let words: Vec<_> = wishes.iter().map(Wish::words).collect();
        sentences.push(format!("I will {}.", listed(&words)));
    }
    for wish in refused {
        let (words, tool) = (wish.words(), wish.tool());
        sentences.push(format!("I cannot {words}: the tool `{tool}` is not available here."));
    }
    Reply { text: sentences.join(" "), wishes }
}

/// One result in words.
fn told(result: &ToolResultMessage, asked_in: Option<&AssistantMessage>) -> String {
    let calls: HashMap<&str, &ToolCall> = asked_in
        .into_iter()
        .flat_map(AssistantMessage::tool_calls)
        .map(|call| (call.id.as_str(), call))
        .collect();
    let argument = |name: &str| -> Option<&str> {
        calls.get(result.tool_call_id.as_str())?.arguments.get(name).and_then(Value::as_str)
    };
    let subject = match (argument("path"), argument("command")) {
        (Some(path), _) => path.to_owned(),
        (None, Some(command)) => format!("`{}`", quoted(command)),
        (None, None) => format!("The tool {}", result.tool_name),
    };
    let text = text_of(&result.content);
    let first = text.lines().find(|line| !line.trim().is_empty()).map(quoted);
    let lines = text.lines().count();
    let Some(first) = first else {
        return match result.tool_name.as_str() {
            "read" if !result.is_error => format!("{subject} is empty."),
            _ if result.is_error => format!("{subject} failed."),
            _ => format!("{subject} printed nothing."),
        };
    };
    match (result.is_error, result.tool_name.as_str()) {
        (true, _) => format!("{subject} failed: “{first}”."),
        (false, "read") if lines == 1 => format!("{subject} has one line: “{first}”."),
        (false, "read") => format!("{subject} has {lines} lines and begins: “{first}”."),
        (false, "bash") if lines == 1 => format!("{subject} printed: “{first}”."),
        (false, "bash") => format!("{subject} printed {lines} lines, the first: “{first}”."),
        (false, _) => format!("{subject}: {first}."),
    }
}

/// The start of a text, on one line.
fn quoted(text: &str) -> String {
    let line = text.split_whitespace().collect::<Vec<_>>().join(" ");
    super::super::foreign_text::cut(&line, QUOTED)
}

/// `a`, `a and b`, `a, b and c`.
fn listed(words: &[String]) -> String {
    match words {
        [] => String::new(),
        [one] => one.clone(),
        [head @ .., last] => format!("{} and {last}", head.join(", ")),
    }
}
