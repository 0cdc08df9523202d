//! Sequences that are cheap to extend and free to copy.
//!
//! Owns: the transcript and streamed text as persistent structures, so that a snapshot costs the
//! same whatever the length (C4.5). Never: changes what a copy holds.

use std::{fmt, sync::Arc};

use rpds::VectorSync;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::data::message::Message;

/// The messages that the next model request will see.
///
/// Cloning is O(1), pushing O(log n); copies never see each other's changes.
#[derive(Clone, Default, PartialEq)]
pub struct Transcript {
    messages: VectorSync<Arc<Message>>,
}

impl Transcript {
    /// How many messages there are.
    pub fn len(&self) -> usize {
        self.messages.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.messages.is_empty()
    }

    /// The newest message.
    pub fn last(&self) -> Option<&Arc<Message>> {
        self.messages.last()
    }

    /// The message at an index that counts from 0.
    pub fn get(&self, index: usize) -> Option<&Arc<Message>> {
        self.messages.get(index)
    }

    /// All messages, oldest first.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = &Arc<Message>> + ExactSizeIterator {
        self.messages.iter()
    }

    /// The messages from an index on; O(result · log n).
    pub fn range(&self, from: usize, to: usize) -> impl Iterator<Item = &Arc<Message>> {
        (from..to.min(self.len())).filter_map(|index| self.get(index))
    }

    /// Appends a message.
    pub fn push(&mut self, message: Arc<Message>) {
        self.messages.push_back_mut(message);
    }
}

impl Extend<Arc<Message>> for Transcript {
    fn extend<I: IntoIterator<Item = Arc<Message>>>(&mut self, messages: I) {
        for message in messages {
            self.push(message);
        }
    }
}

impl FromIterator<Arc<Message>> for Transcript {
    fn from_iter<I: IntoIterator<Item = Arc<Message>>>(messages: I) -> Self {
        let mut transcript = Transcript::default();
        transcript.extend(messages);
        transcript
    }
}

impl fmt::Debug for Transcript {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_list().entries(self.iter()).finish()
    }
}

impl Serialize for Transcript {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.iter())
    }
}

impl<'de> Deserialize<'de> for Transcript {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Ok(Vec::<Arc<Message>>::deserialize(deserializer)?.into_iter().collect())
    }
}

/// Text that arrives in pieces.
///
/// Cloning is O(1) and appending costs what is appended, however long the text is. Two texts are
/// equal when they read the same, whatever the pieces: a client that was sent merged deltas holds
/// other pieces than the agent.
#[derive(Clone, Default)]
pub struct GrowingText {
    pieces: VectorSync<Arc<str>>,
    len: usize,
}

impl GrowingText {
    /// The length in bytes.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Appends a piece.
    pub fn push(&mut self, piece: &str) {
        if !piece.is_empty() {
            self.len += piece.len();
            self.pieces.push_back_mut(piece.into());
        }
    }

    fn bytes(&self) -> impl Iterator<Item = u8> + '_ {
        self.pieces.iter().flat_map(|piece| piece.bytes())
    }
}

impl From<&str> for GrowingText {
    fn from(text: &str) -> Self {
        let mut growing = GrowingText::default();
        growing.push(text);
        growing
    }
}

impl PartialEq for GrowingText {
    fn eq(&self, other: &Self) -> bool {
        self.len == other.len && self.bytes().eq(other.bytes())
    }
}

impl fmt::Display for GrowingText {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.pieces.iter().try_for_each(|piece| out.write_str(piece))
    }
}

impl fmt::Debug for GrowingText {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{:?}", self.to_string())
    }
}

impl Serialize for GrowingText {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for GrowingText {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Ok(String::deserialize(deserializer)?.as_str().into())
    }
}

#[cfg(test)]
mod tests {
    use proptest::{collection::vec, prelude::*};

    use super::*;

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        // C4.5
        #[test]
        fn growing_text_reads_like_its_pieces_and_copies_never_change(pieces in vec(".{0,4}", 0..20)) {
            let (mut text, mut copies) = (GrowingText::default(), Vec::new());
            for (index, piece) in pieces.iter().enumerate() {
                copies.push((text.clone(), pieces[..index].concat()));
                text.push(piece);
            }
            let whole = pieces.concat();
            prop_assert_eq!(text.to_string(), &*whole);
            prop_assert_eq!((text.len(), text.is_empty()), (whole.len(), whole.is_empty()));
            // Equal to any text that reads the same, whatever its pieces; and over the wire.
            prop_assert_eq!(&text, &GrowingText::from(&*whole));
            let json = serde_json::to_string(&text).unwrap();
            prop_assert_eq!(&json, &serde_json::to_string(&whole).unwrap());
            prop_assert_eq!(&serde_json::from_str::<GrowingText>(&json).unwrap(), &text);
            prop_assert_ne!(&text, &GrowingText::from(&*format!("{whole}x")));
            for (copy, read) in copies {
                prop_assert_eq!(copy.to_string(), read);
            }
        }
    }
}
