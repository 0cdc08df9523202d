//! An answer that is being streamed, as the loop gathers it.
//!
//! Owns: dense content indices, unique call ids, and how pieces become a message's blocks.
//! Never: decides what arguments mean; [`repair`] does.

use std::collections::HashSet;

use serde_json::Value;

use crate::{Block, EventKind, ModelEvent, ToolCall, repair};

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

/// The object that the text stands for; without one the text that it is. What is read with a slip
/// mended is kept as it was read: the text would go back to a provider as an empty object.
fn parse_arguments(text: String) -> Value {
    repair::object_in(&text).unwrap_or(Value::String(text))
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

#[cfg(test)]
mod tests {
    use proptest::{collection::vec, prelude::*};

    use super::*;
    use crate::{
        AgentState, Config, Event, Partial, QueueMode, Role, RunId, ThinkingLevel, ToolExecution,
        Transcript, WhenIdle, reduce,
    };

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
        let config = Config {
            model: String::new(),
            thinking_level: ThinkingLevel::Off,
            system_prompt: "".into(),
            tools: Vec::new(),
            steering_mode: QueueMode::All,
            follow_up_mode: QueueMode::All,
            when_idle: WhenIdle::Hold,
            max_turns: 0,
            tool_execution: ToolExecution::Parallel,
        };
        let mut state = AgentState::new(config, Transcript::default());
        state.activity = crate::Activity::Running { active_run_id: RunId(1) };
        state
    }

    /// What the state shows of a block, which knows no signatures and no parsed arguments.
    fn shown(block: &Block) -> (Kind, String, String) {
        match block {
            Block::Text { text } => (Kind::Text, String::new(), text.clone()),
            Block::Thinking { thinking, .. } => (Kind::Thinking, String::new(), thinking.clone()),
            Block::ToolCall(call) => {
                let arguments = match &call.arguments {
                    Value::String(text) => text.clone(),
                    Value::Object(fields) if fields.is_empty() => "{}".to_owned(),
                    other => other.to_string(),
                };
                (Kind::ToolCall, format!("{} {}", call.id, call.name), arguments)
            }
            Block::Image { .. } => unreachable!("no model event makes an image"),
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        // 4.4, 3.2
        #[test]
        fn what_the_loop_gathers_is_what_the_reducer_shows(events in vec(event(), 0..40)) {
            let (mut answer, mut state) = (Answer::default(), running());
            let kinds = events.into_iter().filter_map(|event| answer.take(event));
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

    // 5.7, 7.3
    #[test]
    fn a_message_that_did_not_finish_has_no_calls() {
        let mut answer = Answer::default();
        for event in [
            ModelEvent::Text { index: 0, delta: "let me".into() },
            ModelEvent::ToolCall { index: 1, id: "a".into(), name: "t".into(), delta: "{".into() },
        ] {
            answer.take(event);
        }
        assert_eq!(answer.finish_without_calls(), [Block::text("let me")]);
    }

    // 11.2
    #[test]
    fn ten_thousand_calls_with_one_id_are_told_apart_in_no_time() {
        let mut answer = Answer::default();
        for index in 0..10_000 {
            let (id, name, delta) = (String::new(), "t".to_owned(), String::new());
            answer.take(ModelEvent::ToolCall { index, id, name, delta });
        }
        assert_eq!(answer.call_ids.len(), 10_000);
    }

    // 11.1
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
