//! Characters that a server cut in two.
//!
//! One that counts in UTF-16 sends an emoji as `"\ud83d"` in one event and `"\ude00"` in the next;
//! one that counts in bytes cuts it anywhere. Neither part is text by itself, so each is kept as a
//! mark, a character of the last private-use plane that nobody else uses, until the other is there.
//!
//! Owns: the marks, and making characters of them again. Pure.
//! Never: lets a mark out; a part whose other never comes is U+FFFD.

use agent_core::ModelEvent;

/// The mark of half a character, a surrogate of UTF-16.
pub(super) fn half(unit: u16) -> char {
    mark(HALVES + u32::from(unit) - 0xD800)
}

/// The mark of a byte that is no character by itself.
fn byte(byte: u8) -> char {
    mark(BYTES + u32::from(byte))
}

fn mark(code: u32) -> char {
    char::from_u32(code).expect("all of the last plane are characters")
}

const BYTES: u32 = 0x0010_F700;
const HALVES: u32 = 0x0010_F800;

/// The first byte of every mark in UTF-8, and of hardly anything else.
const FIRST_BYTE: u8 = 0xF4;

/// The text of some bytes, with marks for what is not UTF-8.
pub(super) fn text_of(bytes: Vec<u8>) -> String {
    String::from_utf8(bytes).unwrap_or_else(|error| {
        let mut text = String::with_capacity(error.as_bytes().len() + 16);
        for chunk in error.as_bytes().utf8_chunks() {
            text.push_str(chunk.valid());
            text.extend(chunk.invalid().iter().copied().map(byte));
        }
        text
    })
}

/// A text that nothing follows, without marks.
pub(super) fn whole(mut text: String) -> String {
    if has_marks(&text) {
        let waiting = join(&mut text);
        text.extend(waiting.chars().map(|_| char::REPLACEMENT_CHARACTER));
    }
    text
}

fn has_marks(text: &str) -> bool {
    memchr::memchr(FIRST_BYTE, text.as_bytes()).is_some()
}

/// One part of a character.
#[derive(Clone, Copy)]
enum Part {
    Half(u16),
    Byte(u8),
}

fn part(character: char) -> Option<Part> {
    match u32::from(character) {
        code @ HALVES.. => Some(Part::Half((code - HALVES) as u16 + 0xD800)),
        code if code >= BYTES + 0x80 => Some(Part::Byte((code - BYTES) as u8)),
        _ => None,
    }
}

/// Makes characters of a text's marks; what may become one with what follows is cut off and
/// returned.
fn join(text: &mut String) -> String {
    let mut joined = String::with_capacity(text.len());
    let mut parts = Vec::new();
    for character in text.chars() {
        match part(character) {
            Some(part) => parts.push(part),
            None => {
                let waiting = join_parts(&parts, &mut joined);
                joined.extend(parts[parts.len() - waiting..].iter().map(|_| '\u{fffd}'));
                parts.clear();
                joined.push(character);
            }
        }
    }
    let waiting = join_parts(&parts, &mut joined);
    *text = joined;
    let rest = parts[parts.len() - waiting..].iter().map(|part| match part {
        Part::Half(unit) => half(*unit),
        Part::Byte(value) => byte(*value),
    });
    rest.collect()
}

/// Appends the characters of neighbouring parts. How many of the last parts are the beginning of
/// one.
fn join_parts(parts: &[Part], joined: &mut String) -> usize {
    let mut rest = parts;
    while let Some(first) = rest.first() {
        rest = match first {
            Part::Half(unit) => match (*unit < 0xDC00, rest.get(1)) {
                (true, None) => return 1,
                (true, Some(Part::Half(second))) if *second >= 0xDC00 => {
                    joined.extend(char::decode_utf16([*unit, *second]).flatten());
                    &rest[2..]
                }
                _ => {
                    joined.push(char::REPLACEMENT_CHARACTER);
                    &rest[1..]
                }
            },
            Part::Byte(_) => {
                let bytes = rest.iter().map_while(|part| match part {
                    Part::Byte(byte) => Some(*byte),
                    Part::Half(_) => None,
                });
                let bytes: Vec<u8> = bytes.collect();
                let kept = join_bytes(&bytes, joined);
                if kept > 0 && bytes.len() == rest.len() {
                    return kept;
                }
                joined.extend(std::iter::repeat_n('\u{fffd}', kept.min(1)));
                &rest[bytes.len()..]
            }
        };
    }
    0
}

/// The same for bytes.
fn join_bytes(bytes: &[u8], joined: &mut String) -> usize {
    for chunk in bytes.utf8_chunks() {
        joined.push_str(chunk.valid());
        let is_last = chunk.invalid().as_ptr_range().end == bytes.as_ptr_range().end;
        match std::str::from_utf8(chunk.invalid()) {
            Err(error) if is_last && error.error_len().is_none() => return chunk.invalid().len(),
            Err(_) => joined.push(char::REPLACEMENT_CHARACTER),
            Ok(_) => {}
        }
    }
    0
}

/// Puts the characters of an answer together, delta by delta.
#[derive(Debug, Default)]
pub(super) struct Joiner {
    /// What waits for its other half: a delta of marks alone for each block.
    waiting: Vec<ModelEvent>,
}

/// More blocks that wait at one time than this are no mishap.
const MOST_WAITING: usize = 64;

impl Joiner {
    /// Takes an event and appends it without marks.
    pub(super) fn join(&mut self, mut event: ModelEvent, events: &mut Vec<ModelEvent>) {
        let waiting = self.waiting.iter().position(|waiting| is_of(waiting, &event));
        match &mut event {
            ModelEvent::ThinkingSignature { signature, .. } => {
                *signature = whole(std::mem::take(signature));
            }
            ModelEvent::ToolCall { id, name, .. } => {
                for text in [id, name] {
                    *text = whole(std::mem::take(text));
                }
            }
            ModelEvent::Text { .. } | ModelEvent::Thinking { .. } => {}
        }
        let Some(delta) = delta_of(&mut event).filter(|delta| !delta.is_empty()) else {
            return events.push(event);
        };
        if waiting.is_none() && !has_marks(delta) {
            return events.push(event);
        }
        if let Some(place) = waiting {
            let mut before = self.waiting.swap_remove(place);
            delta.insert_str(0, delta_of(&mut before).map_or("", |marks| marks));
        }
        let rest = join(delta);
        if !rest.is_empty() {
            self.wait(with_delta(event.clone(), rest), events);
        }
        // A call is told of, also when its arguments begin with half a character.
        if delta_of(&mut event).is_some_and(|delta| !delta.is_empty())
            || matches!(event, ModelEvent::ToolCall { .. })
        {
            events.push(event);
        }
    }

    fn wait(&mut self, event: ModelEvent, events: &mut Vec<ModelEvent>) {
        if self.waiting.len() == MOST_WAITING {
            events.push(lost(self.waiting.swap_remove(0)));
        }
        self.waiting.push(event);
    }

    /// Nothing more comes.
    pub(super) fn finish(&mut self, events: &mut Vec<ModelEvent>) {
        events.extend(self.waiting.drain(..).map(lost));
    }
}

fn lost(mut event: ModelEvent) -> ModelEvent {
    if let Some(delta) = delta_of(&mut event) {
        *delta = char::REPLACEMENT_CHARACTER.to_string();
    }
    event
}

fn with_delta(mut event: ModelEvent, text: String) -> ModelEvent {
    if let Some(delta) = delta_of(&mut event) {
        *delta = text;
    }
    event
}

fn is_of(waiting: &ModelEvent, event: &ModelEvent) -> bool {
    match (waiting, event) {
        (ModelEvent::Text { index, .. }, ModelEvent::Text { index: other, .. })
        | (ModelEvent::Thinking { index, .. }, ModelEvent::Thinking { index: other, .. })
        | (ModelEvent::ToolCall { index, .. }, ModelEvent::ToolCall { index: other, .. }) => {
            index == other
        }
        _ => false,
    }
}

fn delta_of(event: &mut ModelEvent) -> Option<&mut String> {
    match event {
        ModelEvent::Text { delta, .. }
        | ModelEvent::Thinking { delta, .. }
        | ModelEvent::ToolCall { delta, .. } => Some(delta),
        ModelEvent::ThinkingSignature { .. } => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(index: u32, delta: &str) -> ModelEvent {
        ModelEvent::Text { index, delta: delta.to_owned() }
    }

    #[test]
    fn bytes_that_are_not_utf_8_are_replaced_unless_they_are_one_character_together() {
        for (bytes, expected) in [
            (&b"a\xffb"[..], "a\u{fffd}b"),
            (b"a\xf0\x9f", "a\u{fffd}\u{fffd}"),
            (b"\x98\x80b", "\u{fffd}\u{fffd}b"),
            ("né 😀".as_bytes(), "né 😀"),
        ] {
            assert_eq!(whole(text_of(bytes.to_vec())), expected, "{bytes:?}");
        }
    }

    #[test]
    fn an_emoji_cut_at_any_byte_is_whole_again() {
        let bytes = "né 👩‍💻 世".as_bytes();
        for cut in 0..=bytes.len() {
            let (mut joiner, mut events) = (Joiner::default(), Vec::new());
            for piece in [&bytes[..cut], &bytes[cut..]] {
                joiner.join(text(0, &text_of(piece.to_vec())), &mut events);
            }
            joiner.finish(&mut events);
            let deltas = events.iter_mut().filter_map(delta_of).map(|delta| delta.clone());
            assert_eq!(deltas.collect::<String>(), "né 👩‍💻 世", "cut at {cut}");
        }
    }

    #[test]
    fn halves_find_each_other_within_their_block() {
        let (first, second) = (half(0xD83D), half(0xDE00));
        let (mut joiner, mut events) = (Joiner::default(), Vec::new());
        let thought = |delta: String| ModelEvent::Thinking { index: 0, delta };
        for event in [
            text(0, &format!("a{first}")),
            thought(format!("{first}")),
            text(1, &format!("{second}b")),
            thought(format!("{second}!")),
            text(0, ""),
            text(0, &format!("{second}c{first}")),
        ] {
            joiner.join(event, &mut events);
        }
        joiner.finish(&mut events);
        assert_eq!(
            events,
            [
                text(0, "a"),
                text(1, "\u{fffd}b"),
                thought("😀!".to_owned()),
                text(0, ""),
                text(0, "😀c"),
                text(0, "\u{fffd}"),
            ]
        );
    }

    #[test]
    fn a_flood_of_halves_does_not_wait_for_ever() {
        let (mut joiner, mut events) = (Joiner::default(), Vec::new());
        for index in 0..1000 {
            joiner.join(text(index, &half(0xD83D).to_string()), &mut events);
        }
        assert_eq!(events.len(), 1000 - MOST_WAITING);
    }
}
