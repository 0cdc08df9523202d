//! What one connection has to send, in two lanes.
//!
//! Owns: the answers, which are never dropped, and the subscriptions, whose events are taken from
//! the sessions' logs only when they can be written (W1.6, W4.6).
//! Never: lets an answer wait behind more than one batch of events, or grows without bound: with
//! too many answers unread the connection is not read from any more.

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError},
};

use agent_protocol::{
    EVENT, RpcError, SubscribeParams,
    codec::{Framing, websocket},
};
use tokio::sync::Notify;

use crate::events::{
    fanout::{Backlog, EventLog},
    policy::SlowReaderPolicy,
    subscription::{Chunk, Subscription},
};

/// A batch's memory after a large frame is given back.
const KEPT_BYTES: usize = 256 * 1024;

/// What one connection has to send.
#[derive(Debug)]
pub(crate) struct Outbox {
    policy: SlowReaderPolicy,
    /// The most subscriptions that may be open.
    max_subscriptions: usize,
    /// How the peer frames its messages, once it has sent one.
    framing: OnceLock<Framing>,
    answers: Mutex<Answers>,
    subscriptions: Mutex<Subscriptions>,
    backlog: Arc<Backlog>,
    /// There may be room for another call.
    room: Notify,
    /// Subscriptions moved on.
    moved: Notify,
}

#[derive(Debug, Default)]
struct Answers {
    queue: VecDeque<String>,
    /// Answers in the queue and in the batch that is being written,
    unwritten: usize,
    /// and their bytes.
    bytes: usize,
    /// Calls that will be answered later.
    waiting: usize,
    /// What the newest ping of a WebSocket carried; only that one needs an answer.
    ping: Option<Vec<u8>>,
}

#[derive(Debug, Default)]
struct Subscriptions {
    open: Vec<Subscription>,
    /// Whose turn it is.
    turn: usize,
    made: u64,
}

/// Encoded messages on their way out.
#[derive(Debug, Default)]
pub(crate) struct Outgoing {
    pub(crate) bytes: Vec<u8>,
    answers: usize,
    answer_bytes: usize,
}

impl Outbox {
    pub(crate) fn new(policy: SlowReaderPolicy, max_subscriptions: usize) -> Self {
        Outbox {
            policy,
            max_subscriptions,
            framing: OnceLock::new(),
            answers: Mutex::default(),
            subscriptions: Mutex::default(),
            backlog: Arc::default(),
            room: Notify::new(),
            moved: Notify::new(),
        }
    }

    /// Notes how the peer frames its messages; the first time counts.
    pub(crate) fn set_framing(&self, framing: Framing) {
        self.framing.get_or_init(|| framing);
    }

    /// Queues an answer to a call that did not wait.
    pub(crate) fn answer(&self, answer: String) {
        let mut answers = self.answers();
        answers.unwritten += 1;
        answers.bytes += answer.len();
        answers.queue.push_back(answer);
        self.backlog.wake.notify_one();
    }

    /// Answers a ping.
    pub(crate) fn pong(&self, payload: &[u8]) {
        self.answers().ping = Some(payload.to_owned());
        self.backlog.wake.notify_one();
    }

    /// Counts a call that will be answered later.
    pub(crate) fn expect_answer(&self) {
        self.answers().waiting += 1;
    }

    /// Queues the answer to a call that waited.
    pub(crate) fn answer_late(&self, answer: String) {
        self.answers().waiting -= 1;
        self.answer(answer);
    }

    /// How many calls wait.
    pub(crate) fn waiting(&self) -> usize {
        self.answers().waiting
    }

    /// Completes when another call may be read.
    pub(crate) async fn room(&self) {
        while !self.has_room() {
            self.room.notified().await;
        }
    }

    fn has_room(&self) -> bool {
        let answers = self.answers();
        answers.unwritten + answers.waiting < self.policy.calls
            && answers.bytes < self.policy.answer_bytes
    }

    /// Completes when there may be something to send.
    pub(crate) async fn wake(&self) {
        self.backlog.wake.notified().await;
    }

    pub(crate) fn subscribe(
        &self,
        log: &Arc<EventLog>,
        params: &SubscribeParams,
    ) -> Result<Arc<str>, RpcError> {
        let mut subscriptions = self.subscriptions();
        if subscriptions.open.len() >= self.max_subscriptions {
            let limit = self.max_subscriptions as u64;
            return Err(RpcError::TooManySubscriptions { limit });
        }
        let id: Arc<str> = format!("s{}", subscriptions.made + 1).into();
        let subscription =
            Subscription::new(id.clone(), log.clone(), params, self.backlog.clone())?;
        subscriptions.made += 1;
        subscriptions.open.push(subscription);
        self.backlog.wake.notify_one();
        Ok(id)
    }

    pub(crate) fn unsubscribe(&self, id: &str) -> bool {
        let mut subscriptions = self.subscriptions();
        let index = subscriptions.open.iter().position(|subscription| *subscription.id == *id);
        let removed = index.map(|index| subscriptions.open.remove(index));
        drop(subscriptions);
        self.moved.notify_waiters();
        removed.is_some()
    }

    /// Completes when all subscriptions to a session have been sent everything up to a number.
    pub(crate) async fn events_sent(&self, log: &Arc<EventLog>, seq: u64) {
        loop {
            let mut moved = std::pin::pin!(self.moved.notified());
            moved.as_mut().enable();
            let are_behind = self.subscriptions().open.iter().any(|subscription| {
                Arc::ptr_eq(&subscription.log, log) && !subscription.has_passed(seq)
            });
            if !are_behind {
                return;
            }
            moved.await;
        }
    }

    /// Fills a batch: answers first, then events, each subscription in its turn.
    pub(crate) fn fill(&self, batch: &mut Outgoing) {
        // Until the peer has spoken there is nothing to answer.
        let Some(framing) = self.framing.get().copied() else { return };
        self.take_answers(framing, batch);
        let (answers_end, mut envelope) = (batch.bytes.len(), String::new());
        while batch.bytes.len() - answers_end < self.policy.batch_bytes {
            let Some((id, chunk)) = self.take_chunk() else { break };
            envelope.clear();
            // jsonrpsee's shape of a subscription's notification (W4.1).
            envelope.push_str(r#"{"jsonrpc":"2.0","method":""#);
            envelope.push_str(EVENT);
            envelope.push_str(r#"","params":{"subscription":""#);
            envelope.push_str(&id);
            envelope.push_str(r#"","result":"#);
            // Written here, outside any lock: a snapshot takes its time.
            chunk.write(|frame| framing.encode(&[&envelope, frame, "}}"], &mut batch.bytes));
        }
        self.moved.notify_waiters();
    }

    fn take_answers(&self, framing: Framing, batch: &mut Outgoing) {
        let mut answers = self.answers();
        if let Some(payload) = answers.ping.take() {
            websocket::pong(&payload, &mut batch.bytes);
        }
        while batch.bytes.len() < self.policy.batch_bytes
            && let Some(answer) = answers.queue.pop_front()
        {
            framing.encode(&[&answer], &mut batch.bytes);
            batch.answers += 1;
            batch.answer_bytes += answer.len();
        }
    }

    fn take_chunk(&self) -> Option<(Arc<str>, Chunk)> {
        let policy = &self.policy;
        let merge = self.backlog.waiting() > policy.merge_bytes;
        let max_bytes = if merge { policy.merged_turn_bytes } else { policy.turn_bytes };
        let mut subscriptions = self.subscriptions();
        for _ in 0..subscriptions.open.len() {
            let turn = subscriptions.turn % subscriptions.open.len();
            let subscription = &mut subscriptions.open[turn];
            let chunk = subscription.next(max_bytes, merge);
            let id = subscription.id.clone();
            let has_ended = subscription.has_ended();
            subscriptions.turn = turn + 1;
            if has_ended {
                subscriptions.open.remove(turn);
                subscriptions.turn = turn;
            }
            if let Some(chunk) = chunk {
                return Some((id, chunk));
            }
        }
        None
    }

    /// Notes that a batch was written, which makes room for other calls.
    pub(crate) fn written(&self, batch: &mut Outgoing) {
        let mut answers = self.answers();
        answers.unwritten -= batch.answers;
        answers.bytes -= batch.answer_bytes;
        drop(answers);
        if batch.bytes.capacity() > KEPT_BYTES {
            batch.bytes = Vec::new();
        }
        batch.bytes.clear();
        (batch.answers, batch.answer_bytes) = (0, 0);
        self.room.notify_one();
    }

    /// From now on only what is there already is sent.
    pub(crate) fn end_at_head(&self) {
        self.subscriptions().open.iter_mut().for_each(Subscription::end_at_head);
        self.backlog.wake.notify_one();
    }

    /// Ends all subscriptions.
    pub(crate) fn close(&self) {
        self.subscriptions().open.clear();
    }

    fn answers(&self) -> MutexGuard<'_, Answers> {
        self.answers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn subscriptions(&self) -> MutexGuard<'_, Subscriptions> {
        self.subscriptions.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
