//! How long an answer is waited for.
//!
//! Owns: what counts as silence. Bytes that say nothing, such as comments, pings and events without
//! text, show that a server is at work; that is worth waiting for, but not for ever.

use std::time::Duration;

use tokio::time::Instant;

/// The wait for one answer.
#[derive(Debug)]
pub(super) struct Patience {
    /// How long nothing at all may arrive.
    idle: Duration,
    /// When the model last said something, or began to.
    said: Instant,
    /// When the answer was whole.
    whole: Option<Instant>,
}

/// How many times the idle limit a server may be at work without a word of its model.
const MOST_EXTENSION: u32 = 10;

/// How long usage may follow a whole answer, and an error page its head. Some servers keep the
/// connection open after it.
pub(super) const AFTERMATH: Duration = Duration::from_secs(5);

impl Patience {
    pub(super) fn new(idle: Duration) -> Self {
        Patience { idle, said: Instant::now(), whole: None }
    }

    /// The model said something.
    pub(super) fn said(&mut self) {
        self.said = Instant::now();
    }

    /// The answer is whole: only its aftermath may follow.
    pub(super) fn is_whole(&mut self) {
        self.whole.get_or_insert_with(Instant::now);
    }

    /// How long to wait for the next bytes; zero when the patience is over.
    pub(super) fn limit(&self) -> Duration {
        let (since, most) = match self.whole {
            Some(whole) => (whole, self.idle.min(AFTERMATH)),
            None => (self.said, self.longest()),
        };
        most.saturating_sub(since.elapsed()).min(self.idle)
    }

    /// How long a model may take to say something.
    pub(super) fn longest(&self) -> Duration {
        self.idle.saturating_mul(MOST_EXTENSION)
    }
}
