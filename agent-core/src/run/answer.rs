//! An answer that is being streamed, as the loop gathers it.
//!
//! Owns: dense content indices, unique call ids, how pieces become a message's blocks, and how many
//! of them are taken.
//! Never: decides what arguments mean; [`repair`] does.

use std::collections::{HashMap, HashSet};

use serde_json::Value;

use crate::{
    data::{
        event::EventKind,
        message::{Block, ToolCall},
    },
    pure::repair,
    seam::model::ModelEvent,
};

/// More blocks than this in one answer are a runaway.
const MAX_BLOCKS: usize = 10_000;

/// The blocks so far.
#[derive(Debug)]
pub(crate) struct Answer {
    blocks: Vec<GrowingBlock>,
    /// Where the newest block of each of the model's numbers is.
    places: HashMap<u32, usize>,
    call_ids: HashSet<String>,
    /// How many bytes all blocks hold, and may hold.
    size: usize,
    max_size: usize,
}

/// The answer is longer than is taken.
#[derive(Debug, PartialEq, thiserror::Error)]
pub(crate) enum TooLong {
    #[error("its answer is longer than {0} bytes (max_answer_bytes)")]
    Bytes(usize),
    #[error("its answer has more than {MAX_BLOCKS} blocks")]
    Blocks,
}

#[derive(Debug)]
struct GrowingBlock {
    block: Block,
    /// JSON text of a call's arguments so far.
    arguments: String,
}

#[derive(Clone, Copy, PartialEq)]
enum BlockKind {
    Text,
    Thinking,
    ToolCall,
}

impl Answer {
    /// An answer that may hold this many bytes.
    pub(crate) fn new(max_size: usize) -> Self {
        Answer {
            blocks: Vec::new(),
            places: HashMap::new(),
            call_ids: HashSet::new(),
            size: 0,
            max_size,
        }
    }

    /// Takes a piece in and tells the event to publish; none when nothing is new. Of a piece that
    /// is too long the beginning is taken, if it is one of text.
    pub(crate) fn take(&mut self, event: ModelEvent) -> (Option<EventKind>, Result<(), TooLong>) {
        let room = self.max_size - self.size;
        let (grows, opens) = self.growth(&event);
        if opens && self.blocks.len() == MAX_BLOCKS {
            return (None, Err(TooLong::Blocks));
        }
        self.size += grows.min(room);
        if grows <= room {
            return (self.add(event), Ok(()));
        }
        let kept = beginning(event, room).and_then(|event| self.add(event));
        (kept, Err(TooLong::Bytes(self.max_size)))
    }

    /// How many bytes a piece adds, and whether it begins a block.
    fn growth(&self, event: &ModelEvent) -> (usize, bool) {
        match event {
            ModelEvent::Text { index, delta } => {
                (delta.len(), self.position(*index, BlockKind::Text).is_none())
            }
            ModelEvent::Thinking { index, delta } => {
                (delta.len(), self.position(*index, BlockKind::Thinking).is_none())
            }
            ModelEvent::ThinkingSignature { index, signature } => {
                let place = self.position(*index, BlockKind::Thinking);
                let old = place.map_or(0, |place| self.signature_len(place));
                (signature.len().saturating_sub(old), place.is_none())
            }
            ModelEvent::ToolCall { index, id, name, delta } => {
                match self.position(*index, BlockKind::ToolCall) {
                    Some(_) => (delta.len(), false),
                    None => (id.len() + name.len() + delta.len(), true),
                }
            }
        }
    }

    fn signature_len(&self, place: usize) -> usize {
        match &self.blocks[place].block {
            Block::Thinking { signature: Some(signature), .. } => signature.len(),
            _ => 0,
        }
    }

    /// Whether there is neither text nor a call: nothing that anybody could do something with.
    pub(crate) fn says_nothing(&self) -> bool {
        self.blocks.iter().all(|streamed| match &streamed.block {
            Block::Text { text } => text.trim().is_empty(),
            Block::Thinking { .. } => true,
            Block::Image { .. } | Block::ToolCall(_) => false,
        })
    }

    /// Whether there is a thought.
    pub(crate) fn thinks(&self) -> bool {
        self.blocks.iter().any(|streamed| matches!(streamed.block, Block::Thinking { .. }))
    }

    fn add(&mut self, event: ModelEvent) -> Option<EventKind> {
        match event {
            ModelEvent::Text { index, delta } => {
                let (content_index, streamed) = self.grow(index, BlockKind::Text, &delta)?;
                if let Block::Text { text } = &mut streamed.block {
                    text.push_str(&delta);
                }
                Some(EventKind::TextDelta { content_index, delta })
            }
            ModelEvent::Thinking { index, delta } => {
                let (content_index, streamed) = self.grow(index, BlockKind::Thinking, &delta)?;
                if let Block::Thinking { thinking, .. } = &mut streamed.block {
                    thinking.push_str(&delta);
                }
                Some(EventKind::ThinkingDelta { content_index, delta })
            }
            ModelEvent::ThinkingSignature { index, signature } => self.sign(index, signature),
            ModelEvent::ToolCall { index, id, name, delta } => {
                self.call_grew(index, &id, &name, delta)
            }
        }
    }

    fn grow(
        &mut self,
        index: u32,
        kind: BlockKind,
        delta: &str,
    ) -> Option<(u32, &mut GrowingBlock)> {
        (!delta.is_empty()).then(|| self.block(index, kind))
    }

    /// The signature is no event of its own; a block that only it opens is announced by an empty
    /// delta, so that `contentIndex` stays the index of the block.
    fn sign(&mut self, index: u32, new: String) -> Option<EventKind> {
        let before = self.blocks.len();
        let (content_index, streamed) = self.block(index, BlockKind::Thinking);
        if let Block::Thinking { signature, .. } = &mut streamed.block {
            *signature = Some(new);
        }
        (self.blocks.len() > before)
            .then(|| EventKind::ThinkingDelta { content_index, delta: String::new() })
    }

    fn call_grew(&mut self, index: u32, id: &str, name: &str, delta: String) -> Option<EventKind> {
        let position = match self.position(index, BlockKind::ToolCall) {
            // Pieces with nothing in them could be sent for ever.
            Some(_) if delta.is_empty() => return None,
            Some(position) => position,
            None => {
                let (id, name) = (self.unique_id(id), name.to_owned());
                self.open(index, Block::ToolCall(ToolCall { id, name, arguments: Value::Null }))
            }
        };
        let (content_index, streamed) = (position as u32, &mut self.blocks[position]);
        streamed.arguments.push_str(&delta);
        let (tool_call_id, tool_name) = match &streamed.block {
            Block::ToolCall(call) => (call.id.clone(), call.name.clone()),
            _ => (id.to_owned(), name.to_owned()),
        };
        Some(EventKind::ToolCallDelta { content_index, tool_call_id, tool_name, delta })
    }

    fn block(&mut self, index: u32, kind: BlockKind) -> (u32, &mut GrowingBlock) {
        let position = self.position(index, kind);
        let position = position.unwrap_or_else(|| self.open(index, empty(kind)));
        (position as u32, &mut self.blocks[position])
    }

    /// Where the block of that number is; a number that is reused for another kind is a new block.
    fn position(&self, index: u32, kind: BlockKind) -> Option<usize> {
        let position = *self.places.get(&index)?;
        (kind_of(&self.blocks[position].block) == kind).then_some(position)
    }

    fn open(&mut self, index: u32, block: Block) -> usize {
        self.places.insert(index, self.blocks.len());
        self.blocks.push(GrowingBlock { block, arguments: String::new() });
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
    /// results, and a half-made thought has no valid signature. (C5.7, C7.3)
    pub(crate) fn finish_without_calls(self) -> Vec<Block> {
        let mut content = self.finish();
        content.retain(|block| !matches!(block, Block::ToolCall(_)));
        content
    }
}

/// As much of a text or thought as fits; the half of anything else is of no use.
fn beginning(mut event: ModelEvent, room: usize) -> Option<ModelEvent> {
    match &mut event {
        ModelEvent::Text { delta, .. } | ModelEvent::Thinking { delta, .. } => {
            let end = (0..=room).rev().find(|end| delta.is_char_boundary(*end)).unwrap_or(0);
            delta.truncate(end);
            Some(event)
        }
        ModelEvent::ThinkingSignature { .. } | ModelEvent::ToolCall { .. } => None,
    }
}

fn empty(kind: BlockKind) -> Block {
    match kind {
        BlockKind::Thinking => Block::Thinking { thinking: String::new(), signature: None },
        BlockKind::Text | BlockKind::ToolCall => Block::text(""),
    }
}

fn kind_of(block: &Block) -> BlockKind {
    match block {
        Block::Text { .. } | Block::Image { .. } => BlockKind::Text,
        Block::Thinking { .. } => BlockKind::Thinking,
        Block::ToolCall(_) => BlockKind::ToolCall,
    }
}

/// The object that the text stands for; without one the text that it is. What is read with a slip
/// mended is kept as it was read: the text would go back to a provider as an empty object.
fn parse_arguments(text: String) -> Value {
    repair::object_in(&text).unwrap_or(Value::String(text))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use proptest::{collection::vec, prelude::*};

    use super::*;
    use crate::{AgentState, Config, Event, Partial, Role, RunId, Transcript, reduce};

    fn event() -> impl Strategy<Value = ModelEvent> {
        let (index, delta) = (|| 0..4_u32, || "[a{}\\[]{0,3}");
        prop_oneof![
            (index(), delta()).prop_map(|(index, delta)| ModelEvent::Text { index, delta }),
            (index(), delta()).prop_map(|(index, delta)| ModelEvent::Thinking { index, delta }),
            (index(), "s{0,2}")
                .prop_map(|(index, signature)| ModelEvent::ThinkingSignature { index, signature }),
            (index(), "[ab]?(_1)?", "[tu]", delta()).prop_map(|(index, id, name, delta)| {
                ModelEvent::ToolCall { index, id, name, delta }
            }),
        ]
    }

    fn running() -> AgentState {
        let mut state = AgentState::new(Config::default(), Transcript::default());
        state.activity = crate::Activity::Running { active_run_id: RunId(1) };
        state
    }

    /// What the state shows of a block, which knows no signatures and no parsed arguments.
    fn shown(block: &Block) -> (BlockKind, String, String) {
        match block {
            Block::Text { text } => (BlockKind::Text, String::new(), text.clone()),
            Block::Thinking { thinking, .. } => {
                (BlockKind::Thinking, String::new(), thinking.clone())
            }
            Block::ToolCall(call) => {
                let arguments = match &call.arguments {
                    Value::String(text) => text.clone(),
                    Value::Object(fields) if fields.is_empty() => "{}".to_owned(),
                    other => other.to_string(),
                };
                (BlockKind::ToolCall, format!("{} {}", call.id, call.name), arguments)
            }
            Block::Image { .. } => unreachable!("no model event makes an image"),
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        // C4.4, C3.2
        #[test]
        fn what_the_loop_gathers_is_what_the_reducer_shows(events in vec(event(), 0..40)) {
            let (mut answer, mut state) = (Answer::new(1 << 20), running());
            let kinds = events.into_iter().filter_map(|event| answer.take(event).0);
            let start = EventKind::MessageStart { role: Role::Assistant };
            for kind in [start].into_iter().chain(kinds) {
                state = reduce(state, &Event { seq: 1, run_id: Some(RunId(1)), kind });
            }
            let gathered = answer.finish();
            let Some(Partial { content }) = state.partial else { unreachable!("it has begun") };
            prop_assert_eq!(gathered.len(), content.len());
            let wire = serde_json::to_value(Partial { content }).unwrap();
            let partial: Vec<Block> = serde_json::from_value(wire["content"].clone()).unwrap();
            let mut ids = Vec::new();
            for (gathered, partial) in gathered.iter().zip(&partial) {
                let (kind, name, text) = shown(gathered);
                let (partial_kind, partial_name, partial_text) = shown(partial);
                prop_assert!(kind == partial_kind);
                prop_assert_eq!(name, partial_name);
                if let Block::ToolCall(call) = gathered {
                    prop_assert!(!call.id.is_empty() && !ids.contains(&call.id), "{:?}", call.id);
                    ids.push(call.id.clone());
                    match serde_json::from_str::<Value>(&partial_text) {
                        Ok(value) if value.is_object() => prop_assert_eq!(&call.arguments, &value),
                        _ if partial_text.trim().is_empty() => prop_assert_eq!(text, "{}"),
                        _ => prop_assert_eq!(&call.arguments, &Value::String(partial_text)),
                    }
                } else {
                    prop_assert_eq!(text, partial_text);
                }
            }
        }
    }

    // C5.7, C7.3
    #[test]
    fn a_message_that_did_not_finish_has_no_calls() {
        let mut answer = Answer::new(100);
        for event in [text("let me"), call(1, "a", "{")] {
            answer.take(event).1.unwrap();
        }
        assert_eq!(answer.finish_without_calls(), [Block::text("let me")]);
    }

    // C11.2
    #[test]
    fn ten_thousand_calls_with_one_id_are_told_apart_in_no_time_and_more_are_refused() {
        let mut answer = Answer::new(1 << 20);
        for index in 0..10_000 {
            answer.take(call(index, "", "")).1.unwrap();
        }
        assert_eq!(answer.call_ids.len(), 10_000);
        assert_eq!(answer.take(call(10_000, "", "")), (None, Err(TooLong::Blocks)));
        assert!(answer.take(call(9_999, "", "{}")).0.is_some(), "but one that has begun goes on");
    }

    fn text(delta: &str) -> ModelEvent {
        ModelEvent::Text { index: 0, delta: delta.to_owned() }
    }

    fn call(index: u32, id: &str, delta: &str) -> ModelEvent {
        let (id, name, delta) = (id.to_owned(), "t".to_owned(), delta.to_owned());
        ModelEvent::ToolCall { index, id, name, delta }
    }

    // C5.7
    #[test]
    fn everything_that_an_answer_holds_counts() {
        let thought = |delta: &str| ModelEvent::Thinking { index: 1, delta: delta.to_owned() };
        let signed =
            |proof: &str| ModelEvent::ThinkingSignature { index: 1, signature: proof.to_owned() };
        // What comes last, and what is left of it in ten bytes, seven of which are taken.
        for (last, kept) in [
            (text("né à"), r#"Text { text: "1234567né" }"#),
            (text("12345"), r#"Text { text: "1234567123" }"#),
            (text("123"), "fits"),
            (thought("12345"), r#"Thinking { thinking: "123", signature: None }"#),
            (signed("1234"), r#"Text { text: "1234567" }"#),
            (signed("123"), "fits"),
            (call(1, "abc", ""), r#"Text { text: "1234567" }"#),
            (call(1, "a", "{}"), r#"Text { text: "1234567" }"#),
            (call(1, "a", "1"), "fits"),
        ] {
            let mut answer = Answer::new(10);
            answer.take(text("1234567")).1.unwrap();
            let story = match answer.take(last.clone()).1 {
                Ok(()) => "fits".to_owned(),
                Err(too_long) => {
                    assert_eq!(too_long, TooLong::Bytes(10));
                    format!("{:?}", answer.finish_without_calls().pop().unwrap())
                }
            };
            assert_eq!(story, kept, "{last:?}");
        }
        // Only the last proof of a thought is kept, and only it counts.
        let mut answer = Answer::new(10);
        for proof in ["12345678", "123456789", "1234567890", "1"] {
            answer.take(signed(proof)).1.unwrap();
        }
    }

    // C11.1
    #[test]
    fn arguments_are_an_object_or_the_text_that_they_are() {
        let nested =
            |levels: usize| format!("{}1{}", r#"{"x":"#.repeat(levels), "}".repeat(levels));
        let object = |text: &str| parse_arguments(text.to_owned()).is_object();
        assert!(object("") && object(" \n") && object("{}") && object(&nested(63)));
        assert!(object("{\"a\":\"\n\"}") && object("\"{}\"") && object("null"));
        for text in ["{", "[]", "1", "\"x\"", "{} {}", "\u{feff}{}", &nested(64), &nested(100_000)]
        {
            assert_eq!(parse_arguments(text.to_owned()), Value::String(text.to_owned()));
        }
    }
}
