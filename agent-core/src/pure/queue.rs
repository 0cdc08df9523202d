//! A queue of messages that wait for a boundary.
//!
//! Owns: order, what a take takes, and the bounds of C8.10.
//! Never: knows when it is read; the run slot does.

use std::{collections::VecDeque, sync::Arc};

use crate::data::{config::QueueMode, event::Queued, message::Block};

/// The most messages that a queue holds.
pub const MAX_QUEUED_MESSAGES: usize = 64;
/// The most bytes of content that a queue holds: 32 MiB.
pub const MAX_QUEUED_BYTES: usize = 32 << 20;

/// Messages in the order in which they were accepted. Both queues are one of these.
#[derive(Debug, Default)]
pub(crate) struct PendingQueue {
    messages: VecDeque<Arc<Queued>>,
    // Invariant: the content bytes of `messages`, added up.
    bytes: usize,
}

/// The queue has no room for the message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "the queue is full: it holds at most {MAX_QUEUED_MESSAGES} messages and {MAX_QUEUED_BYTES} \
     bytes; wait for the run to take some, or clear it"
)]
pub struct QueueFull;

impl PendingQueue {
    /// Accepts a message and tells its position, counted from 0.
    ///
    /// # Errors
    /// [`QueueFull`]; the queue is unchanged.
    pub(crate) fn push(&mut self, queued: Arc<Queued>) -> Result<usize, QueueFull> {
        let bytes = self.bytes + size_of_content(&queued);
        if self.messages.len() >= MAX_QUEUED_MESSAGES || bytes > MAX_QUEUED_BYTES {
            return Err(QueueFull);
        }
        self.bytes = bytes;
        self.messages.push_back(queued);
        Ok(self.messages.len() - 1)
    }

    /// Takes the oldest message, or all of them.
    pub(crate) fn take(&mut self, mode: QueueMode) -> Vec<Arc<Queued>> {
        match mode {
            QueueMode::All => self.clear(),
            QueueMode::OneAtATime => {
                let oldest = self.messages.pop_front();
                self.bytes -= oldest.as_deref().map_or(0, size_of_content);
                oldest.into_iter().collect()
            }
        }
    }

    /// Takes out one message by its id.
    pub(crate) fn remove(&mut self, id: &str) -> Option<Arc<Queued>> {
        let index = self.messages.iter().position(|queued| &*queued.message_id == id)?;
        let removed = self.messages.remove(index)?;
        self.bytes -= size_of_content(&removed);
        Some(removed)
    }

    /// Takes out everything.
    pub(crate) fn clear(&mut self) -> Vec<Arc<Queued>> {
        self.bytes = 0;
        std::mem::take(&mut self.messages).into()
    }

    /// Whether nothing waits.
    pub(crate) fn is_empty(&self) -> bool {
        self.messages.is_empty()
    }
}

fn size_of_content(queued: &Queued) -> usize {
    queued.content.iter().map(Block::len).sum()
}

#[cfg(test)]
mod tests {
    use std::sync::LazyLock;

    use proptest::{collection::vec, prelude::*};

    use super::*;

    fn queued(id: usize, bytes: usize) -> Arc<Queued> {
        static LARGE: LazyLock<[Arc<str>; 2]> = LazyLock::new(|| {
            [MAX_QUEUED_BYTES / 2, MAX_QUEUED_BYTES].map(|bytes| "x".repeat(bytes).into())
        });
        let message_id = id.to_string().into();
        let large = LARGE.iter().find(|large| large.len() == bytes).cloned();
        let content = vec![Block::image("", large.unwrap_or_else(|| "x".repeat(bytes).into()))];
        Arc::new(Queued { message_id, content, origin: None })
    }

    #[derive(Clone, Copy, Debug)]
    enum Call {
        Push(usize),
        Take(QueueMode),
        Remove(usize),
        Clear,
    }

    fn call() -> impl Strategy<Value = Call> {
        prop_oneof![
            20 => prop_oneof![30 => 0..100_usize, 1 => Just(MAX_QUEUED_BYTES / 2), 1 => Just(MAX_QUEUED_BYTES)]
                .prop_map(Call::Push),
            2 => Just(Call::Take(QueueMode::OneAtATime)),
            1 => Just(Call::Take(QueueMode::All)),
            2 => (0..200_usize).prop_map(Call::Remove),
            1 => Just(Call::Clear),
        ]
    }

    proptest! {
        #![proptest_config(ProptestConfig {
            failure_persistence: None, cases: 64, ..ProptestConfig::default()
        })]

        // C8.3, C8.10
        #[test]
        fn a_queue_is_a_bounded_fifo(calls in vec(call(), 0..200)) {
            let (mut queue, mut paper) = (PendingQueue::default(), Vec::<(usize, usize)>::new());
            for (id, call) in calls.into_iter().enumerate() {
                let gone: Vec<usize> = match call {
                    Call::Push(bytes) => {
                        let held: usize = paper.iter().map(|(_, bytes)| bytes).sum();
                        let fits = paper.len() < 64 && held + bytes <= 32 << 20;
                        let pushed = queue.push(queued(id, bytes));
                        prop_assert_eq!(pushed, if fits { Ok(paper.len()) } else { Err(QueueFull) });
                        if fits {
                            paper.push((id, bytes));
                        }
                        continue;
                    }
                    Call::Take(QueueMode::OneAtATime) => paper.drain(..paper.len().min(1)).map(|(id, _)| id).collect(),
                    Call::Take(QueueMode::All) | Call::Clear => paper.drain(..).map(|(id, _)| id).collect(),
                    Call::Remove(id) => {
                        let index = paper.iter().position(|(other, _)| *other == id);
                        index.map(|index| paper.remove(index).0).into_iter().collect()
                    }
                };
                let left = match call {
                    Call::Take(mode) => queue.take(mode),
                    Call::Remove(id) => queue.remove(&id.to_string()).into_iter().collect(),
                    Call::Push(_) | Call::Clear => queue.clear(),
                };
                let left: Vec<usize> = left.iter().map(|queued| queued.message_id.parse().unwrap()).collect();
                prop_assert_eq!(left, gone);
                prop_assert_eq!(queue.is_empty(), paper.is_empty());
                let ids: Vec<String> = queue.messages.iter().map(|queued| queued.message_id.to_string()).collect();
                prop_assert_eq!(ids, paper.iter().map(|(id, _)| id.to_string()).collect::<Vec<_>>());
            }
        }
    }
}
