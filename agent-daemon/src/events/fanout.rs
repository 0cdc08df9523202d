//! The newest events of one session, and everybody who reads them.
//!
//! Owns: the serialised events that can still be replayed (W4.3), one cursor per reader, and the
//! decision that a reader has fallen too far behind (W4.6).
//! Never: waits, writes, or keeps a queue per reader. A reader costs the agent a counter and a
//! wake-up; it takes the events itself, when it can send them.

use std::{
    collections::{HashMap, VecDeque},
    fmt,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
};

use agent_core::{Event, Snapshot};
use agent_protocol::{Control, ControlFrame, Replay, RpcError, codec::one_line};
use tokio::sync::Notify;

use crate::events::{
    entry::{Entry, Filter},
    policy::SlowReaderPolicy,
};

/// The events of one session, for everybody who reads them.
pub struct EventLog {
    session_id: Arc<str>,
    session_json: String,
    instance_id: Arc<str>,
    snapshot: Box<dyn Fn() -> Snapshot + Send + Sync>,
    policy: SlowReaderPolicy,
    log: Mutex<Entries>,
}

/// Where a new reader begins.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Start<'a> {
    /// Behind this number, if what follows it is still held.
    pub from_seq: Option<u64>,
    /// The daemon that `from_seq` was heard from.
    pub instance_id: Option<&'a str>,
    /// With a snapshot in any case.
    pub snapshot: bool,
}

/// What a new reader is told first.
#[derive(Debug)]
pub(crate) struct Opening {
    pub(crate) head_seq: u64,
    pub(crate) oldest_seq: u64,
    pub(crate) replay: Replay,
    /// The number before the first event that will be read.
    pub(crate) cut: u64,
    pub(crate) state: Option<Snapshot>,
}

/// What waits for one connection, in all sessions together.
#[derive(Debug, Default)]
pub(crate) struct Backlog {
    /// Bytes of events that were not taken yet.
    waiting: AtomicUsize,
    /// There may be something to take.
    pub(crate) wake: Notify,
}

impl Backlog {
    pub(crate) fn waiting(&self) -> usize {
        self.waiting.load(Ordering::Relaxed)
    }
}

/// Names a reader of one log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct ReaderId(u64);

/// What a reader took.
pub(crate) struct Portion {
    pub(crate) entries: Vec<Arc<Entry>>,
    /// The reader has passed everything up to this number.
    pub(crate) passed: u64,
    pub(crate) then: Next,
}

/// How it goes on after what was taken.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Next {
    /// There is more already.
    More,
    /// Nothing until the log grows.
    Wait,
    /// The backlog was dropped; see [`EventLog::rejoin`].
    Lagged,
    /// Nothing ever; this frame is the last.
    Ended(Arc<str>),
}

struct Entries {
    // Invariant: consecutive numbers, the last one being `head`.
    entries: VecDeque<Arc<Entry>>,
    head: u64,
    /// The newest event that emptied the transcript. What came before is kept for nobody but those
    /// who are reading it: it would fill memory, and a snapshot tells a newcomer more with less.
    beginning: u64,
    /// The weight of all entries.
    weight: usize,
    /// The one frame that is larger than all that may wait and passes whole (W4.6): its number and
    /// its weight, which is held against nobody.
    outsize: Option<(u64, usize)>,
    readers: HashMap<ReaderId, Reader>,
    next_reader: u64,
    last_word: Option<Arc<str>>,
}

struct Reader {
    filter: Filter,
    backlog: Arc<Backlog>,
    /// Everything up to this number was taken or was not wanted.
    cursor: u64,
    // Invariant: the burden of the wanted entries behind `cursor`, and this reader's share of
    // `backlog.waiting`; 0 while `lost`.
    waiting: usize,
    /// How much of it was there to be replayed from the start, and is not held against the reader.
    replaying: usize,
    /// The backlog was dropped.
    lost: bool,
}

impl EventLog {
    /// A log that begins at the agent's present state.
    ///
    /// `snapshot` answers that state at once (C4.5). It is never called under a lock.
    pub fn new(
        session_id: &str,
        instance_id: Arc<str>,
        policy: SlowReaderPolicy,
        snapshot: impl Fn() -> Snapshot + Send + Sync + 'static,
    ) -> Self {
        let log = Entries {
            entries: VecDeque::new(),
            head: snapshot().seq,
            beginning: 0,
            weight: 0,
            outsize: None,
            readers: HashMap::new(),
            next_reader: 0,
            last_word: None,
        };
        EventLog {
            session_id: session_id.into(),
            session_json: one_line(serde_json::Value::from(session_id).to_string()),
            instance_id,
            snapshot: Box::new(snapshot),
            policy,
            log: Mutex::new(log),
        }
    }

    /// The session whose events these are.
    pub fn session_id(&self) -> &str {
        &self.session_id
    }

    /// The daemon's own id, so that numbers of an earlier one are not taken for ours.
    pub fn instance_id(&self) -> &str {
        &self.instance_id
    }

    /// The newest event that readers can have seen. The agent itself may be ahead.
    pub fn head(&self) -> u64 {
        self.lock().head
    }

    pub(crate) fn is_finished(&self) -> bool {
        self.lock().last_word.is_some()
    }

    /// How many read it.
    pub fn readers(&self) -> usize {
        self.lock().readers.len()
    }

    /// Adds the agent's next event. Never waits for a reader.
    pub fn append(&self, event: &Event) {
        let entry = Arc::new(Entry::new(&self.session_json, event));
        let mut log = self.lock();
        // The log may have been made while the listener that feeds it already listened.
        if entry.seq > log.head && log.last_word.is_none() {
            log.push(entry, &self.policy);
        }
    }

    /// Says the last thing to every reader, [`Control::SessionClosed`] or
    /// [`Control::ServerShutdown`]. What is appended afterwards is nobody's.
    pub fn finish(&self, last_word: Control) {
        let frame = self.control(last_word);
        let mut log = self.lock();
        log.last_word.get_or_insert_with(|| frame.into());
        log.readers.values().for_each(|reader| reader.backlog.wake.notify_one());
    }

    /// A frame without a number, as JSON text on one line.
    pub(crate) fn control(&self, control: Control) -> String {
        let frame = ControlFrame { session_id: self.session_id.to_string(), control };
        one_line(serde_json::to_string(&frame).expect("all types in a state have a JSON form"))
    }

    /// Adds a reader, at one point between two events (W4.2, W4.3).
    pub(crate) fn attach(
        &self,
        start: Start<'_>,
        filter: Filter,
        backlog: Arc<Backlog>,
    ) -> Result<(ReaderId, Opening), RpcError> {
        // The reader holds on to the log's head before the agent is asked, so that everything
        // after the snapshot is there.
        let (id, oldest_seq) = self.lock().add_reader(filter, backlog);
        let now = (self.snapshot)();
        let head_seq = now.seq.max(self.head());
        let is_ours = start.instance_id.is_none_or(|instance| instance == &*self.instance_id);
        let opening = |replay, cut, state| Opening { head_seq, oldest_seq, replay, cut, state };
        let opening = match start.from_seq {
            Some(seq) if is_ours && seq > head_seq => {
                self.detach(id);
                return Err(RpcError::SeqOutOfRange { oldest_seq, head_seq });
            }
            Some(seq) if is_ours && !start.snapshot && self.lock().rewind(id, seq) => {
                opening(Replay::Events, seq, None)
            }
            None if !start.snapshot => opening(Replay::None, now.seq, None),
            _ => Opening { head_seq: now.seq, ..opening(Replay::Snapshot, now.seq, Some(now)) },
        };
        self.lock().advance(id, opening.cut);
        Ok((id, opening))
    }

    /// Adds a reader again that fell behind, at the agent's present state.
    pub(crate) fn rejoin(&self, id: ReaderId) -> Opening {
        let oldest_seq = self.lock().find_again(id);
        let now = (self.snapshot)();
        self.lock().advance(id, now.seq);
        Opening {
            head_seq: now.seq,
            oldest_seq,
            replay: Replay::Snapshot,
            cut: now.seq,
            state: Some(now),
        }
    }

    /// Removes a reader.
    pub(crate) fn detach(&self, id: ReaderId) {
        let mut log = self.lock();
        if let Some(mut reader) = log.readers.remove(&id) {
            reader.set_waiting(0);
        }
        log.trim(&self.policy);
    }

    /// Takes what a reader has not had yet, about `max_bytes` of it.
    pub(crate) fn take(&self, id: ReaderId, max_bytes: usize) -> Portion {
        let mut log = self.lock();
        let taken = log.take(id, max_bytes);
        log.trim(&self.policy);
        taken
    }

    fn lock(&self) -> MutexGuard<'_, Entries> {
        // A panic under the lock leaves at worst a counter wrong; the session goes on.
        self.log.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for EventLog {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("EventLog").field("session_id", &self.session_id).finish_non_exhaustive()
    }
}

impl Entries {
    fn oldest(&self) -> u64 {
        self.head + 1 - self.entries.len() as u64
    }

    /// The entries behind a number, oldest first.
    fn after(&self, seq: u64) -> impl Iterator<Item = &Arc<Entry>> {
        let held = (seq + 1).saturating_sub(self.oldest());
        self.entries.iter().skip(held as usize)
    }

    fn push(&mut self, entry: Arc<Entry>, policy: &SlowReaderPolicy) {
        if entry.seq != self.head + 1 {
            // A gap would make every replay across it wrong.
            self.weight = 0;
            self.outsize = None;
            self.entries.clear();
            self.readers.values_mut().for_each(Reader::lose);
        }
        self.head = entry.seq;
        if entry.begins_anew {
            self.beginning = entry.seq;
        }
        self.weight += entry.weight();
        if entry.weight() > policy.backlog_bytes && !self.outsize_waits() {
            self.outsize = Some((entry.seq, entry.weight()));
        }
        let burden = self.burden(&entry);
        for reader in self.readers.values_mut() {
            if reader.lost || reader.cursor >= entry.seq {
                continue;
            }
            if reader.filter.admits(&entry) {
                reader.count(burden, policy.backlog_bytes);
            }
            reader.backlog.wake.notify_one();
        }
        self.entries.push_back(entry);
        self.trim(policy);
    }

    /// Whether there is an outsize frame that someone has not taken.
    fn outsize_waits(&self) -> bool {
        let waits = |seq| self.readers.values().any(|reader| !reader.lost && reader.cursor < seq);
        self.outsize.is_some_and(|(seq, _)| waits(seq))
    }

    /// What an entry counts for as long as a reader has not taken it.
    fn burden(&self, entry: &Entry) -> usize {
        match self.outsize {
            Some((seq, _)) if seq == entry.seq => 0,
            _ => entry.weight(),
        }
    }

    /// Drops the oldest entries that are over the bounds and that nobody needs.
    fn trim(&mut self, policy: &SlowReaderPolicy) {
        while self.entries.len() > 1
            && (self.entries.len() > policy.replay_events
                || self.weight > policy.replay_bytes
                || self.entries[0].seq < self.beginning)
        {
            // A reader whose filter lets little through may hold on to much that it will skip.
            let outsize = self.outsize.map_or(0, |(_, weight)| weight);
            let too_much = self.weight - outsize > policy.replay_bytes + policy.backlog_bytes;
            let front = self.entries[0].clone();
            let mut is_needed = false;
            for reader in self.readers.values_mut() {
                if reader.lost || reader.cursor >= front.seq {
                    continue;
                }
                match reader.filter.admits(&front) {
                    true if too_much => reader.lose(),
                    true => is_needed = true,
                    false => reader.cursor = front.seq,
                }
            }
            if is_needed {
                return;
            }
            self.weight -= front.weight();
            self.outsize = self.outsize.filter(|(seq, _)| *seq != front.seq);
            self.entries.pop_front();
        }
    }

    fn add_reader(&mut self, filter: Filter, backlog: Arc<Backlog>) -> (ReaderId, u64) {
        let id = ReaderId(self.next_reader);
        self.next_reader += 1;
        let cursor = self.head;
        let reader = Reader { filter, backlog, cursor, waiting: 0, replaying: 0, lost: false };
        self.readers.insert(id, reader);
        (id, self.oldest())
    }

    fn find_again(&mut self, id: ReaderId) -> u64 {
        let head = self.head;
        if let Some(reader) = self.readers.get_mut(&id) {
            reader.lost = false;
            reader.cursor = head;
        }
        self.oldest()
    }

    /// Moves a new reader back, if what follows is still held.
    fn rewind(&mut self, id: ReaderId, seq: u64) -> bool {
        let is_held = seq + 1 >= self.oldest();
        if is_held && seq < self.head {
            self.place(id, seq);
            self.readers.entry(id).and_modify(|reader| reader.replaying = reader.waiting);
        }
        is_held
    }

    /// Moves a reader forward; also to a number that the log does not have yet.
    fn advance(&mut self, id: ReaderId, seq: u64) {
        if self.readers.get(&id).is_some_and(|reader| !reader.lost && reader.cursor < seq) {
            self.place(id, seq);
        }
    }

    fn place(&mut self, id: ReaderId, seq: u64) {
        let Some(filter) = self.readers.get(&id).map(|reader| reader.filter) else { return };
        let wanted = self.after(seq).filter(|entry| filter.admits(entry));
        let waiting = wanted.map(|entry| self.burden(entry)).sum();
        if let Some(reader) = self.readers.get_mut(&id) {
            reader.cursor = seq;
            reader.set_waiting(waiting);
        }
    }

    fn take(&mut self, id: ReaderId, max_bytes: usize) -> Portion {
        let nothing = |passed, then| Portion { entries: Vec::new(), passed, then };
        let Some(reader) = self.readers.get(&id) else { return nothing(u64::MAX, Next::Wait) };
        if reader.lost {
            return nothing(reader.cursor, Next::Lagged);
        }
        let (filter, mut cursor) = (reader.filter, reader.cursor);
        let (mut bytes, mut burden) = (0, 0);
        let mut entries = Vec::new();
        for entry in self.after(cursor) {
            if bytes >= max_bytes {
                break;
            }
            if filter.admits(entry) {
                bytes += entry.weight();
                burden += self.burden(entry);
                entries.push(entry.clone());
            }
            cursor = entry.seq;
        }
        let then = match &self.last_word {
            _ if cursor < self.head => Next::More,
            Some(last_word) => Next::Ended(last_word.clone()),
            None => Next::Wait,
        };
        if let Some(reader) = self.readers.get_mut(&id) {
            reader.cursor = cursor;
            reader.set_waiting(reader.waiting - burden);
        }
        Portion { entries, passed: cursor, then }
    }
}

impl Reader {
    /// Counts a wanted entry, unless that is too much.
    fn count(&mut self, burden: usize, max_waiting: usize) {
        if self.backlog.waiting() + burden > max_waiting + self.replaying {
            return self.lose();
        }
        self.set_waiting(self.waiting + burden);
    }

    fn lose(&mut self) {
        self.lost = true;
        self.set_waiting(0);
        self.backlog.wake.notify_one();
    }

    fn set_waiting(&mut self, waiting: usize) {
        let total = &self.backlog.waiting;
        if waiting >= self.waiting {
            total.fetch_add(waiting - self.waiting, Ordering::Relaxed);
        } else {
            total.fetch_sub(self.waiting - waiting, Ordering::Relaxed);
        }
        self.waiting = waiting;
        self.replaying = self.replaying.min(waiting);
    }
}

#[cfg(test)]
pub(crate) mod tests;
