//! The transcript as one model may be sent it.
//!
//! Owns: what every provider refuses or misunderstands: thoughts of other models, ids and names of
//! foreign shape or used twice, arguments that are no object, empty messages, remains of unfinished
//! answers, pictures that a model cannot see. Pure.
//! Never: knows a wire format; changes the transcript. The same transcript always comes out the
//! same, and a longer one begins with what the shorter one gave, so that providers' caches hold.

use std::{
    borrow::Cow,
    collections::{HashMap, HashSet},
};

use agent_core::{AssistantMessage, Block, Message, StopReason, ToolCall, Transcript};
use serde_json::Value;

use super::pictures::Pictures;

/// One message, ready for a request.
#[derive(Debug, PartialEq)]
pub(super) enum Turn<'a> {
    User(Vec<Part<'a>>),
    Assistant(Vec<Said<'a>>),
    ToolResult { call_id: String, tool: String, content: Vec<Part<'a>>, is_error: bool },
}

/// A piece of what a model is told.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Part<'a> {
    Text(Cow<'a, str>),
    Image { mime_type: &'a str, data: &'a str },
}

/// A piece of what a model said.
#[derive(Debug, PartialEq)]
pub(super) enum Said<'a> {
    Text(&'a str),
    /// Only of the model itself, and only of answers that it finished.
    Thinking {
        thinking: &'a str,
        signature: Option<&'a str>,
    },
    /// `arguments` is always an object.
    Call {
        id: String,
        name: String,
        arguments: Cow<'a, Value>,
    },
}

/// Both OpenAI and Anthropic take ids and names of this length.
const LONGEST_ID: usize = 64;

/// What the model `PROVIDER/ID` may be sent, with pictures of at most so many bytes of base64.
pub(super) fn history<'a>(
    messages: &'a Transcript,
    model: &str,
    largest_picture: usize,
) -> Vec<Turn<'a>> {
    let mut ids = CallIds::default();
    let mut pictures = Pictures::of(messages, largest_picture);
    let mut turns = Vec::with_capacity(messages.len());
    for message in messages.iter() {
        match &**message {
            Message::User(user) => {
                let parts = parts(&user.content, &mut pictures);
                if !parts.is_empty() {
                    turns.push(Turn::User(parts));
                }
            }
            Message::Assistant(assistant) => {
                let said = said(assistant, model, &mut ids);
                if !said.is_empty() {
                    turns.push(Turn::Assistant(said));
                }
            }
            Message::ToolResult(result) => turns.push(Turn::ToolResult {
                call_id: ids.of_result(&result.tool_call_id),
                tool: allowed(&result.tool_name, "unknown"),
                content: parts(&result.content, &mut pictures),
                is_error: result.is_error,
            }),
        }
    }
    turns
}

fn parts<'a>(content: &'a [Block], pictures: &mut Pictures) -> Vec<Part<'a>> {
    content.iter().filter_map(|block| part(block, pictures)).collect()
}

fn part<'a>(block: &'a Block, pictures: &mut Pictures) -> Option<Part<'a>> {
    match block {
        Block::Text { text } if text.trim().is_empty() => None,
        Block::Text { text } => Some(Part::Text(text.into())),
        Block::Image { mime_type, data } => Some(match pictures.next(data) {
            Ok(()) => Part::Image { mime_type, data },
            Err(note) => Part::Text(note.into()),
        }),
        Block::Thinking { .. } | Block::ToolCall(_) => None,
    }
}

fn said<'a>(message: &'a AssistantMessage, model: &str, ids: &mut CallIds) -> Vec<Said<'a>> {
    // What an unfinished answer thought may lack its proof, and its calls never ran.
    let finished = !matches!(message.stop_reason, StopReason::Error | StopReason::Aborted);
    let own = finished && message.model == model;
    ids.begin_message();
    let mut said = Vec::with_capacity(message.content.len());
    for block in &message.content {
        match block {
            Block::Text { text } if !text.trim().is_empty() => said.push(Said::Text(text)),
            Block::Thinking { thinking, signature } if own => {
                said.push(Said::Thinking { thinking, signature: signature.as_deref() });
            }
            Block::ToolCall(call) if finished => said.push(Said::Call {
                id: ids.of_call(&call.id),
                name: allowed(&call.name, "unknown"),
                arguments: arguments(call),
            }),
            _ => {}
        }
    }
    // A thought alone is no answer, and some providers refuse one that nothing follows.
    if said.iter().all(|piece| matches!(piece, Said::Thinking { .. })) {
        said.clear();
    }
    said
}

fn arguments(call: &ToolCall) -> Cow<'_, Value> {
    if call.arguments.is_object() {
        Cow::Borrowed(&call.arguments)
    } else {
        Cow::Owned(Value::Object(serde_json::Map::new()))
    }
}

/// Only letters, digits, `_` and `-`, and not too many.
fn allowed(text: &str, otherwise: &str) -> String {
    let is_allowed = |c: &char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-');
    let replaced = text.chars().map(|c| if is_allowed(&c) { c } else { '_' });
    let allowed: String = replaced.take(LONGEST_ID).collect();
    if allowed.is_empty() { otherwise.to_owned() } else { allowed }
}

/// Gives each call of the request an id of its own; servers that count from `call_0` in every
/// message use the same one again and again.
#[derive(Default)]
struct CallIds {
    used: HashSet<String>,
    /// The last assistant message's calls: results come right after it.
    current: HashMap<String, String>,
}

impl CallIds {
    fn begin_message(&mut self) {
        self.current.clear();
    }

    fn of_call(&mut self, id: &str) -> String {
        let wanted = allowed(id, "call");
        let mut unique = wanted.clone();
        let mut count = 1;
        while self.used.contains(&unique) {
            count += 1;
            let suffix = format!("_{count}");
            let kept = wanted.len().min(LONGEST_ID - suffix.len());
            unique = format!("{}{suffix}", &wanted[..kept]);
        }
        self.used.insert(unique.clone());
        self.current.insert(id.to_owned(), unique.clone());
        unique
    }

    fn of_result(&self, id: &str) -> String {
        self.current.get(id).cloned().unwrap_or_else(|| allowed(id, "call"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::pictures::{TOO_LARGE, UNSEEN};
    use crate::model::test_transcripts::{assistant, call, image, result, text, thinking, user};

    /// One line per turn.
    fn story(transcript: &Transcript, model: &str, largest_picture: usize) -> String {
        let mut story = String::new();
        for turn in history(transcript, model, largest_picture) {
            story += &match turn {
                Turn::User(parts) => format!("user {}\n", shown(&parts)),
                Turn::Assistant(said) => format!("assistant {said:?}\n"),
                Turn::ToolResult { call_id, tool, content, is_error } => {
                    format!("result {call_id} {tool} {} {is_error}\n", shown(&content))
                }
            };
        }
        story
    }

    fn shown(parts: &[Part<'_>]) -> String {
        let part = |part: &Part<'_>| match part {
            Part::Text(text) => text.to_string(),
            Part::Image { mime_type, data } => format!("<{mime_type} {data}>"),
        };
        parts.iter().map(part).collect::<Vec<_>>().join(" | ")
    }

    fn transcript(messages: impl IntoIterator<Item = Message>) -> Transcript {
        messages.into_iter().map(std::sync::Arc::new).collect()
    }

    #[test]
    fn own_thoughts_are_kept_and_those_of_others_dropped() {
        let transcript = transcript([
            user([text("hi")]),
            assistant("a/x", StopReason::Stop, [thinking("hm", Some("sig")), text("hello")]),
        ]);
        assert_eq!(
            story(&transcript, "a/x", 0),
            "user hi\nassistant [Thinking { thinking: \"hm\", signature: Some(\"sig\") }, Text(\"hello\")]\n"
        );
        assert_eq!(story(&transcript, "b/x", 0), "user hi\nassistant [Text(\"hello\")]\n");
    }

    #[test]
    fn of_unfinished_answers_only_the_text_is_kept() {
        for stop_reason in [StopReason::Error, StopReason::Aborted] {
            let transcript = transcript([
                assistant("a/x", stop_reason, [thinking("hm", None), text("hel")]),
                assistant("a/x", stop_reason, [thinking("hm", None)]),
                assistant("a/x", stop_reason, []),
                assistant("a/x", StopReason::Stop, [text(" \n")]),
                assistant("a/x", StopReason::Length, [thinking("hm", Some("sig"))]),
                user([text("")]),
            ]);
            assert_eq!(story(&transcript, "a/x", 0), "assistant [Text(\"hel\")]\n");
        }
    }

    #[test]
    fn ids_fit_every_provider_and_stay_paired() {
        let long = "x".repeat(80);
        let transcript = transcript([
            assistant(
                "a/x",
                StopReason::ToolUse,
                [call("call|1:a", "b.c", "{}"), call(&long, "", "{}")],
            ),
            result("call|1:a", "b.c", [text("1")]),
            result(&long, "", [text("2")]),
            assistant(
                "a/x",
                StopReason::ToolUse,
                [call("call|1:a", "b", "{}"), call(&long, "b", "{}")],
            ),
            result("call|1:a", "b", [text("3")]),
            result(&long, "b", [text("4")]),
        ]);
        let (x64, x62) = ("x".repeat(64), "x".repeat(62));
        let results: Vec<_> = story(&transcript, "a/x", 0)
            .lines()
            .filter(|line| line.starts_with("result"))
            .map(str::to_owned)
            .collect();
        let expected = [
            "result call_1_a b_c 1 false".to_owned(),
            format!("result {x64} unknown 2 false"),
            "result call_1_a_2 b 3 false".to_owned(),
            format!("result {x62}_2 b 4 false"),
        ];
        assert_eq!(results, expected);
        let mut ids = HashSet::new();
        for turn in history(&transcript, "a/x", 0) {
            if let Turn::Assistant(said) = turn {
                for piece in said {
                    if let Said::Call { id, name, .. } = piece {
                        assert!(ids.insert(id.clone()), "{id} twice");
                        assert!(id.len() <= 64 && !name.contains('.') && !name.is_empty());
                    }
                }
            }
        }
        assert_eq!(ids.len(), 4);
    }

    #[test]
    fn arguments_that_are_no_object_become_an_empty_one() {
        for broken in ["\"{\\\"comm\"", "[1]", "null"] {
            let transcript =
                transcript([assistant("a/x", StopReason::Length, [call("1", "bash", broken)])]);
            let turns = history(&transcript, "a/x", 0);
            let Turn::Assistant(said) = &turns[0] else { panic!("{turns:?}") };
            let Said::Call { arguments, .. } = &said[0] else { panic!("{said:?}") };
            assert_eq!(arguments.to_string(), "{}");
        }
    }

    #[test]
    fn pictures_are_sent_or_named() {
        let transcript = transcript([user([text("see"), image()]), result("1", "read", [image()])]);
        assert_eq!(
            story(&transcript, "a/x", 4),
            "user see | <image/png aW1n>\nresult 1 read <image/png aW1n> false\n"
        );
        assert_eq!(
            story(&transcript, "a/x", 0),
            format!("user see | {UNSEEN}\nresult 1 read {UNSEEN} false\n")
        );
        assert_eq!(
            story(&transcript, "a/x", 3),
            format!("user see | {TOO_LARGE}\nresult 1 read {TOO_LARGE} false\n")
        );
    }
}
