//! One subscription of one connection: a cursor into a session's events, and its frames.
//!
//! Owns: what `subscribed`, `lagged` and event frames say (W4).
//! Never: holds events. They stay in the session's log until they can be sent, so that a
//! subscription that nobody reads costs nothing but its cursor.

use std::sync::Arc;

use agent_core::AgentState;
use agent_protocol::{Control, MessagesWanted, RpcError, SubscribeParams, TAIL_MESSAGES};

use crate::events::{
    entry::{Entry, Filter, write_frame},
    fanout::{Backlog, EventLog, Next, Opening, ReaderId, Start},
};

/// The newest messages of a state, and `messagesFrom` where there are others.
pub(crate) fn with_newest_messages(mut state: AgentState, count: usize) -> AgentState {
    let total = state.messages.len();
    if count < total {
        let from = total - count;
        state.messages = state.messages.range(from, total).cloned().collect();
        state.messages_from = Some(from);
    }
    state
}

/// A client's subscription.
#[derive(Debug)]
pub(crate) struct Subscription {
    pub(crate) id: Arc<str>,
    pub(crate) log: Arc<EventLog>,
    reader: ReaderId,
    messages: MessagesWanted,
    /// The first frame, while it has not been taken.
    opening: Option<Opening>,
    /// The number that the client knows: the newest frame's, or the one that it began behind.
    previous: u64,
    /// Everything up to this number was taken or is not wanted.
    passed: u64,
    /// Where to stop, once the connection is ending.
    until: Option<u64>,
    ended: bool,
}

/// Frames that were taken from a subscription and are not text yet.
pub(crate) enum Chunk {
    Opening {
        log: Arc<EventLog>,
        lagged_from: Option<u64>,
        opening: Opening,
        messages: MessagesWanted,
    },
    Events {
        entries: Vec<Arc<Entry>>,
        merge: bool,
        previous: u64,
        last_word: Option<Arc<str>>,
    },
}

impl Subscription {
    pub(crate) fn new(
        id: Arc<str>,
        log: Arc<EventLog>,
        params: &SubscribeParams,
        backlog: Arc<Backlog>,
    ) -> Result<Self, RpcError> {
        let filter = Filter::new(params.include.as_deref(), params.exclude.as_deref())?;
        let start = Start {
            from_seq: params.from_seq,
            instance_id: params.instance_id.as_deref(),
            snapshot: params.snapshot.unwrap_or(false),
        };
        let (reader, opening) = log.attach(start, filter, backlog)?;
        Ok(Subscription {
            id,
            log,
            reader,
            messages: params.messages.unwrap_or_default(),
            previous: opening.cut,
            passed: opening.cut,
            opening: Some(opening),
            until: None,
            ended: false,
        })
    }

    /// Takes what can be sent next, about `max_bytes` of it.
    pub(crate) fn next(&mut self, max_bytes: usize, merge: bool) -> Option<Chunk> {
        if let Some(opening) = self.opening.take() {
            return Some(self.opened(opening, None));
        }
        if self.is_done() {
            return None;
        }
        let taken = self.log.take(self.reader, max_bytes);
        if taken.then == Next::Lagged {
            let lagged_from = Some(self.passed + 1);
            let opening = self.log.rejoin(self.reader);
            self.previous = opening.cut;
            self.passed = opening.cut;
            return Some(self.opened(opening, lagged_from));
        }
        self.passed = self.passed.max(taken.passed);
        let previous = self.previous;
        if let Some(last) = taken.entries.last() {
            self.previous = last.seq;
        }
        let last_word = match taken.then {
            Next::Ended(last_word) => Some(last_word),
            Next::More | Next::Wait | Next::Lagged => None,
        };
        self.ended = last_word.is_some();
        let is_something = !taken.entries.is_empty() || self.ended;
        let entries = taken.entries;
        is_something.then_some(Chunk::Events { entries, merge, previous, last_word })
    }

    fn opened(&self, opening: Opening, lagged_from: Option<u64>) -> Chunk {
        Chunk::Opening { log: self.log.clone(), lagged_from, opening, messages: self.messages }
    }

    /// Whether everything up to a number was taken, so that it is sent before what is put out now.
    pub(crate) fn has_passed(&self, seq: u64) -> bool {
        self.opening.is_none() && (self.ended || self.passed >= seq)
    }

    /// Sends what there is now, and then nothing more.
    pub(crate) fn end_at_head(&mut self) {
        self.until = Some(self.log.head());
    }

    /// Whether nothing will ever come again.
    pub(crate) fn has_ended(&self) -> bool {
        self.ended
    }

    /// Whether nothing more is to be sent. What the session says last is sent in any case.
    fn is_done(&self) -> bool {
        let is_at_its_end = self.until.is_some_and(|until| self.passed >= until);
        self.ended || (is_at_its_end && !self.log.is_finished())
    }
}

impl Drop for Subscription {
    fn drop(&mut self) {
        self.log.detach(self.reader);
    }
}

impl Chunk {
    /// Writes the frames, each by one call of `put`.
    pub(crate) fn write(self, mut put: impl FnMut(&str)) {
        match self {
            Chunk::Opening { log, lagged_from, opening, messages } => {
                if let Some(from_seq) = lagged_from {
                    put(&log.control(Control::Lagged { from_seq, to_seq: opening.cut }));
                }
                let state = opening.state.map(|snapshot| match messages {
                    MessagesWanted::All => snapshot.state,
                    MessagesWanted::Tail => with_newest_messages(snapshot.state, TAIL_MESSAGES),
                    MessagesWanted::None => with_newest_messages(snapshot.state, 0),
                });
                put(&log.control(Control::Subscribed {
                    instance_id: log.instance_id().to_owned(),
                    head_seq: opening.head_seq,
                    oldest_seq: opening.oldest_seq,
                    replay: opening.replay,
                    state,
                }));
            }
            Chunk::Events { entries, merge, mut previous, last_word } => {
                let (mut rest, mut frame) = (&entries[..], String::new());
                while !rest.is_empty() {
                    frame.clear();
                    let taken = write_frame(rest, merge, previous, &mut frame);
                    put(&frame);
                    previous = rest[taken - 1].seq;
                    rest = &rest[taken..];
                }
                if let Some(last_word) = last_word {
                    put(&last_word);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use serde_json::json;

    use super::*;
    use crate::events::{fanout::tests::Feed, policy::SlowReaderPolicy};

    #[test]
    fn a_state_with_fewer_messages_says_where_they_begin() {
        let feed = Feed::new(SlowReaderPolicy::default());
        for id in 0..60 {
            let end = json!({
                "type": "message_end", "source": "steering",
                "message": { "role": "user", "id": id.to_string(), "content": [], "timestamp": 0 },
            });
            if id == 0 {
                feed.begin();
            }
            feed.publish(serde_json::from_value(end).unwrap());
        }
        let frame = |messages: &str| {
            let params = serde_json::from_value(json!({ "snapshot": true, "messages": messages }));
            let mut subscription =
                Subscription::new("s1".into(), feed.log.clone(), &params.unwrap(), Arc::default())
                    .unwrap();
            let mut frames = Vec::new();
            subscription.next(1, false).unwrap().write(|frame| frames.push(frame.to_owned()));
            let state =
                serde_json::from_str::<serde_json::Value>(&frames[0]).unwrap()["state"].take();
            let ids: Vec<_> = state["messages"].as_array().unwrap().iter().collect();
            let first = ids.first().map(|message| message["id"].clone());
            (ids.len(), first, state.get("messagesFrom").cloned())
        };
        assert_eq!(frame("all"), (60, Some(json!("0")), None));
        assert_eq!(frame("tail"), (50, Some(json!("10")), Some(json!(10))));
        assert_eq!(frame("none"), (0, None, Some(json!(60))));
    }
}
