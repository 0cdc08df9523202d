//! What becomes of readers that are slower than the agent.
//!
//! Owns: every number of it. Never: decides; the log, the outbox and the connection do.

use std::time::Duration;

/// What becomes of readers that are slower than the agent, from the first byte that waits to the end
/// of the connection. The defaults are the protocol's; tests make small ones.
///
/// An answer is never dropped: with too many of them unread, no more calls are read. Events wait in
/// their session's log. As more of them wait, more is taken at a time, then neighbouring deltas are
/// merged, then the backlog is dropped and the reader begins anew at the agent's present state
/// (`lagged`). A peer that reads nothing at all loses its connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SlowReaderPolicy {
    /// The newest events that a session keeps to be replayed, by number (W4.3),
    pub replay_events: usize,
    /// and by their bytes.
    pub replay_bytes: usize,
    /// Calls of one connection that wait or whose answers are not written, before no more are read
    /// (W1.6),
    pub calls: usize,
    /// and bytes of answers that are not written.
    pub answer_bytes: usize,
    /// Bytes of events that go out together, so that an answer never waits for more.
    pub batch_bytes: usize,
    /// Bytes of them that one subscription may take before it is another's turn,
    pub turn_bytes: usize,
    /// and while deltas are merged: what is taken shrinks then, so it may be more.
    pub merged_turn_bytes: usize,
    /// Bytes of events that may wait for one connection before deltas are merged (W4.6),
    pub merge_bytes: usize,
    /// and before its backlog is dropped. One event that is larger than this passes whole.
    pub backlog_bytes: usize,
    /// How long a peer may take nothing of what waits for it before its connection ends,
    pub stall: Duration,
    /// and once the daemon is about to end.
    pub last_stall: Duration,
}

impl Default for SlowReaderPolicy {
    fn default() -> Self {
        SlowReaderPolicy {
            replay_events: 4096,
            replay_bytes: 8 << 20,
            calls: 256,
            answer_bytes: 8 << 20,
            batch_bytes: 64 << 10,
            turn_bytes: 16 << 10,
            merged_turn_bytes: 256 << 10,
            merge_bytes: 1 << 20,
            backlog_bytes: 8 << 20,
            stall: Duration::from_secs(60),
            last_stall: Duration::from_secs(1),
        }
    }
}
