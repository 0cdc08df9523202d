//! A queue of messages that wait for a boundary.
//!
//! Owns: order, what a take takes, and the bounds of contract 8.10.
//! Never: knows when it is read; the run slot does.

use std::{collections::VecDeque, sync::Arc};

use crate::{Block, MessageId, QueueMode, Queued};

/// The most messages that a queue holds.
pub const MAX_QUEUED_MESSAGES: usize = 64;
/// The most bytes of content that a queue holds: 32 MiB.
pub const MAX_QUEUED_BYTES: usize = 32 << 20;

/// Messages in the order in which they were accepted. Both queues are one of these.
#[derive(Debug, Default)]
pub struct PendingQueue {
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
    pub fn push(&mut self, queued: Arc<Queued>) -> Result<usize, QueueFull> {
        let bytes = self.bytes + size_of_content(&queued);
        if self.messages.len() >= MAX_QUEUED_MESSAGES || bytes > MAX_QUEUED_BYTES {
            return Err(QueueFull);
        }
        self.bytes = bytes;
        self.messages.push_back(queued);
        Ok(self.messages.len() - 1)
    }

    /// Takes the oldest message, or all of them.
    pub fn take(&mut self, mode: QueueMode) -> Vec<Arc<Queued>> {
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
    pub fn remove(&mut self, id: &str) -> Option<Arc<Queued>> {
        let index = self.messages.iter().position(|queued| &*queued.message_id == id)?;
        let removed = self.messages.remove(index)?;
        self.bytes -= size_of_content(&removed);
        Some(removed)
    }

    /// Takes out everything.
    pub fn clear(&mut self) -> Vec<Arc<Queued>> {
        self.bytes = 0;
        std::mem::take(&mut self.messages).into()
    }

    /// Whether nothing waits.
    pub fn is_empty(&self) -> bool {
        self.messages.is_empty()
    }

    /// The ids of what waits, oldest first.
    pub fn ids(&self) -> impl Iterator<Item = &MessageId> {
        self.messages.iter().map(|queued| &queued.message_id)
    }
}

fn size_of_content(queued: &Queued) -> usize {
    queued.content.iter().map(Block::len).sum()
}
