//! An answer that is being streamed, as the loop gathers it.
//!
//! Owns: dense content indices, unique call ids, and how pieces become a message's blocks.
//! Never: repairs arguments that are not JSON into something that runs.

use std::collections::HashSet;

use serde_json::Value;

use crate::{Block, EventKind, ModelEvent, ToolCall};

/// How deep the arguments of a call may nest: what reads our events stops at 128 levels.
const MAX_DEPTH: usize = 64;

/// The blocks so far.
#[derive(Debug, Default)]
pub(crate) struct Answer {
    blocks: Vec<Streamed>,
    call_ids: HashSet<String>,
}

#[derive(Debug)]
struct Streamed {
    /// The model's own number for the block.
    index: u32,
    block: Block,
    /// JSON text of a call's arguments so far.
    arguments: String,
}

#[derive(Clone, Copy, PartialEq)]
enum Kind {
    Text,
    Thinking,
    ToolCall,
}

impl Answer {
    /// Takes a piece in and tells the event to publish; none when nothing is new.
    pub(crate) fn take(&mut self, event: ModelEvent) -> Option<EventKind> {
        match event {
            ModelEvent::Text { index, delta } => {
                let (content_index, streamed) = self.grow(index, Kind::Text, &delta)?;
                if let Block::Text { text } = &mut streamed.block {
                    text.push_str(&delta);
                }
                Some(EventKind::TextDelta { content_index, delta })
            }
            ModelEvent::Thinking { index, delta } => {
                let (content_index, streamed) = self.grow(index, Kind::Thinking, &delta)?;
                if let Block::Thinking { thinking, .. } = &mut streamed.block {
                    thinking.push_str(&delta);
                }
                Some(EventKind::ThinkingDelta { content_index, delta })
            }
            ModelEvent::ThinkingSignature { index, signature } => self.sign(index, signature),
            ModelEvent::ToolCall { index, id, name, delta } => {
                Some(self.call_grew(index, &id, &name, delta))
            }
        }
    }

    fn grow(&mut self, index: u32, kind: Kind, delta: &str) -> Option<(u32, &mut Streamed)> {
        (!delta.is_empty()).then(|| self.block(index, kind))
    }

    /// The signature is no event of its own; a block that only it opens is announced by an empty
    /// delta, so that `contentIndex` stays the index of the block.
    fn sign(&mut self, index: u32, new: String) -> Option<EventKind> {
        let before = self.blocks.len();
        let (content_index, streamed) = self.block(index, Kind::Thinking);
        if let Block::Thinking { signature, .. } = &mut streamed.block {
            *signature = Some(new);
        }
        (self.blocks.len() > before)
            .then(|| EventKind::ThinkingDelta { content_index, delta: String::new() })
    }

    fn call_grew(&mut self, index: u32, id: &str, name: &str, delta: String) -> EventKind {
        let position = self.position(index, Kind::ToolCall).unwrap_or_else(|| {
            let (id, name) = (self.unique_id(id), name.to_owned());
            self.open(index, Block::ToolCall(ToolCall { id, name, arguments: Value::Null }))
        });
        let (content_index, streamed) = (position as u32, &mut self.blocks[position]);
        streamed.arguments.push_str(&delta);
        let (tool_call_id, tool_name) = match &streamed.block {
            Block::ToolCall(call) => (call.id.clone(), call.name.clone()),
            _ => (id.to_owned(), name.to_owned()),
        };
        EventKind::ToolCallDelta { content_index, tool_call_id, tool_name, delta }
    }

    fn block(&mut self, index: u32, kind: Kind) -> (u32, &mut Streamed) {
        let position = self.position(index, kind);
        let position = position.unwrap_or_else(|| self.open(index, empty(kind)));
        (position as u32, &mut self.blocks[position])
    }

    /// Where the block of that number is; a number that is reused for another kind is a new block.
    fn position(&self, index: u32, kind: Kind) -> Option<usize> {
        let position = self.blocks.iter().rposition(|streamed| streamed.index == index)?;
        (kind_of(&self.blocks[position].block) == kind).then_some(position)
    }

    fn open(&mut self, index: u32, block: Block) -> usize {
        self.blocks.push(Streamed { index, block, arguments: String::new() });
        self.blocks.len() - 1
    }

    /// Some servers give each call of a message the same id, or none: results could not be paired.
    fn unique_id(&mut self, id: &str) -> String {
        let stem = if id.is_empty() { "call" } else { id };
        let mut unique = id.to_owned();
        // The count of calls is almost always free; a flood of calls must not cost its square.
        let mut number = self.call_ids.len().max(1);
        while unique.is_empty() || self.call_ids.contains(&unique) {
            unique = format!("{stem}_{number}");
            number += 1;
        }
        self.call_ids.insert(unique.clone());
        unique
    }

    /// The message's content, calls included.
    pub(crate) fn finish(self) -> Vec<Block> {
        self.blocks
            .into_iter()
            .map(|streamed| match streamed.block {
                Block::ToolCall(call) => {
                    let arguments = parse_arguments(streamed.arguments);
                    Block::ToolCall(ToolCall { arguments, ..call })
                }
                block => block,
            })
            .collect()
    }

    /// The content of a message that did not finish: its calls never ran and would stay without
    /// results, and a half-made thought has no valid signature. (5.7, 7.3)
    pub(crate) fn finish_without_calls(self) -> Vec<Block> {
        let mut content = self.finish();
        content.retain(|block| !matches!(block, Block::ToolCall(_)));
        content
    }
}

fn empty(kind: Kind) -> Block {
    match kind {
        Kind::Thinking => Block::Thinking { thinking: String::new(), signature: None },
        Kind::Text | Kind::ToolCall => Block::text(""),
    }
}

fn kind_of(block: &Block) -> Kind {
    match block {
        Block::Text { .. } | Block::Image { .. } => Kind::Text,
        Block::Thinking { .. } => Kind::Thinking,
        Block::ToolCall(_) => Kind::ToolCall,
    }
}

/// A JSON object as such; anything else as the text that it is.
fn parse_arguments(text: String) -> Value {
    if text.trim().is_empty() {
        return Value::Object(serde_json::Map::new());
    }
    match serde_json::from_str::<Value>(&text) {
        Ok(value) if value.is_object() && depth(&value) <= MAX_DEPTH => value,
        _ => Value::String(text),
    }
}

/// How deep a value nests; 1 for a scalar.
pub(crate) fn depth(value: &Value) -> usize {
    let mut deepest = 0;
    let mut open = vec![(value, 1)];
    while let Some((value, level)) = open.pop() {
        deepest = deepest.max(level);
        match value {
            Value::Array(items) => open.extend(items.iter().map(|item| (item, level + 1))),
            Value::Object(fields) => open.extend(fields.values().map(|field| (field, level + 1))),
            _ => {}
        }
    }
    deepest
}
