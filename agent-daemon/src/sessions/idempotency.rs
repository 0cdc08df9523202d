//! Calls that were repeated, recognised by the client's own id for the message (W3.3).
//!
//! Owns: what the last calls of one session were and what they were answered.
//! Never: keeps content, only its digest; a message may have 21 MiB, and 1,024 are remembered.

use std::{
    collections::{HashMap, VecDeque},
    hash::{BuildHasher, Hasher, RandomState},
    sync::Arc,
};

use agent_core::{Block, MessageId};
use agent_protocol::RpcError;

/// How many calls are remembered.
pub(super) const REMEMBERED: usize = 1_024;

/// The remembered calls of one session, and their answers.
#[derive(Debug)]
pub(super) struct Idempotency<A> {
    calls: HashMap<Arc<str>, PastCall<A>>,
    // Invariant: the keys of `calls`, oldest first.
    order: VecDeque<Arc<str>>,
    hashers: [RandomState; 2],
}

#[derive(Debug)]
struct PastCall<A> {
    method: &'static str,
    digest: u128,
    message_id: MessageId,
    answer: A,
}

/// The id stands for something else.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Conflict {
    /// What it stands for.
    pub message_id: MessageId,
}

impl From<Conflict> for RpcError {
    fn from(conflict: Conflict) -> Self {
        RpcError::IdempotencyConflict { message_id: conflict.message_id.to_string() }
    }
}

impl<A> Default for Idempotency<A> {
    fn default() -> Self {
        let hashers = [RandomState::new(), RandomState::new()];
        Idempotency { calls: HashMap::new(), order: VecDeque::new(), hashers }
    }
}

impl<A: Clone> Idempotency<A> {
    /// Answers a call that was made before as it was answered then; makes any other, and remembers
    /// its answer unless it was refused.
    ///
    /// # Errors
    /// What the call was refused with, or the [`Conflict`] of its id.
    pub(super) fn once<E: From<Conflict>>(
        &mut self,
        id: Option<&str>,
        method: &'static str,
        content: &[Block],
        call: impl FnOnce() -> Result<(MessageId, A), E>,
    ) -> Result<A, E> {
        let Some(id) = id else { return call().map(|(_, answer)| answer) };
        let digest = self.digest(content);
        if let Some(known) = self.calls.get(id) {
            if (known.method, known.digest) == (method, digest) {
                return Ok(known.answer.clone());
            }
            return Err(Conflict { message_id: known.message_id.clone() }.into());
        }
        let (message_id, answer) = call()?;
        self.remember(id.into(), PastCall { method, digest, message_id, answer: answer.clone() });
        Ok(answer)
    }

    fn remember(&mut self, id: Arc<str>, call: PastCall<A>) {
        if self.order.len() == REMEMBERED
            && let Some(oldest) = self.order.pop_front()
        {
            self.calls.remove(&oldest);
        }
        self.order.push_back(id.clone());
        self.calls.insert(id, call);
    }

    /// 128 bits under keys that no client knows: equal digests mean equal content.
    fn digest(&self, content: &[Block]) -> u128 {
        let [high, low] = self.hashers.each_ref().map(|keys| {
            let mut hasher = keys.build_hasher();
            content.iter().for_each(|block| feed(&mut hasher, block));
            u128::from(hasher.finish())
        });
        high << 64 | low
    }
}

/// Lengths go first, so that two blocks never read like one.
fn feed(hasher: &mut impl Hasher, block: &Block) {
    let mut text = |text: &str| {
        hasher.write_usize(text.len());
        hasher.write(text.as_bytes());
    };
    match block {
        Block::Text { text: said } => text(said),
        Block::Image { mime_type, data } => [mime_type, &**data].into_iter().for_each(text),
        // Users say text and images only.
        Block::Thinking { thinking, .. } => text(thinking),
        Block::ToolCall(call) => text(&call.id),
    }
    hasher.write_u8(match block {
        Block::Text { .. } => 0,
        Block::Image { .. } => 1,
        Block::Thinking { .. } | Block::ToolCall(_) => 2,
    });
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    /// Refusals of the calls in these tests.
    #[derive(Debug, PartialEq)]
    enum Refused {
        Busy,
        Conflict(MessageId),
    }

    impl From<Conflict> for Refused {
        fn from(conflict: Conflict) -> Self {
            Refused::Conflict(conflict.message_id)
        }
    }

    /// Makes a call that is answered with a number nobody had before.
    fn call(
        calls: &mut Idempotency<u64>,
        next: &mut u64,
        id: Option<&str>,
        method: &'static str,
        content: &[Block],
    ) -> Result<u64, Refused> {
        calls.once(id, method, content, || {
            *next += 1;
            Ok((format!("m{next}").into(), *next))
        })
    }

    #[test]
    fn a_repeated_call_is_answered_as_before_and_does_nothing() {
        let (mut calls, mut next, text) = (Idempotency::default(), 0, [Block::text("x")]);
        for _ in 0..3 {
            assert_eq!(call(&mut calls, &mut next, Some("a"), "prompt", &text), Ok(1));
        }
        assert_eq!(call(&mut calls, &mut next, Some("b"), "prompt", &text), Ok(2));
        assert_eq!(call(&mut calls, &mut next, None, "prompt", &text), Ok(3));
        assert_eq!(call(&mut calls, &mut next, None, "prompt", &text), Ok(4));
    }

    #[test]
    fn other_content_or_another_method_is_a_conflict_that_names_the_message() {
        let (mut calls, mut next) = (Idempotency::default(), 0);
        let conflict = Err(Refused::Conflict("m1".into()));
        let said = [Block::text("ab"), Block::image("image/png", "QUJD")];
        assert_eq!(call(&mut calls, &mut next, Some("a"), "steer", &said), Ok(1));
        assert_eq!(call(&mut calls, &mut next, Some("a"), "followUp", &said), conflict);
        let others: &[&[Block]] = &[
            &[],
            &[Block::text("a"), Block::text("b"), Block::image("image/png", "QUJD")],
            &[Block::image("image/png", "QUJD"), Block::text("ab")],
            &[Block::text("ab"), Block::image("image/jpg", "QUJD")],
            &[Block::text("ab"), Block::text("image/png"), Block::text("QUJD")],
        ];
        for other in others {
            assert_eq!(call(&mut calls, &mut next, Some("a"), "steer", other), conflict);
        }
    }

    #[test]
    fn a_refusal_is_not_remembered() {
        let mut calls = Idempotency::<u64>::default();
        let refused = calls.once(Some("a"), "prompt", &[], || Err(Refused::Busy));
        assert_eq!(refused, Err(Refused::Busy));
        assert_eq!(call(&mut calls, &mut 0, Some("a"), "prompt", &[]), Ok(1));
    }

    #[test]
    fn the_last_1024_are_remembered_and_no_more() {
        let (mut calls, mut next) = (Idempotency::default(), 0);
        for id in 0..=REMEMBERED {
            call(&mut calls, &mut next, Some(&id.to_string()), "prompt", &[]).unwrap();
        }
        assert_eq!(call(&mut calls, &mut next, Some("1"), "prompt", &[]), Ok(2), "remembered");
        assert_eq!(call(&mut calls, &mut next, Some("0"), "prompt", &[]), Ok(1026), "forgotten");
        assert_eq!(calls.calls.len(), REMEMBERED);
    }
}
