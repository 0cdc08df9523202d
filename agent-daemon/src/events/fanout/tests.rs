//! The log alone, with a reader or two.

#![allow(clippy::unwrap_used)]

use agent_core::{AgentState, Config, EventKind, RunId, reduce};
use agent_protocol::{EventFrame, Frame, SubscribeParams};
use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use crate::events::subscription::Subscription;

/// An agent reduced to what a log needs of it.
pub(crate) struct Feed {
    pub(crate) now: Arc<Mutex<Snapshot>>,
    pub(crate) log: Arc<EventLog>,
}

impl Feed {
    pub(crate) fn new(policy: SlowReaderPolicy) -> Self {
        let config: Config = serde_json::from_value(serde_json::json!({
            "model": "m", "thinkingLevel": "off", "systemPrompt": "", "tools": [],
            "steeringMode": "all", "followUpMode": "all", "whenIdle": "reject", "maxTurns": 0,
            "toolExecution": "parallel",
        }))
        .unwrap();
        let state = AgentState::new(config, Default::default());
        let now = Arc::new(Mutex::new(Snapshot { seq: 0, state }));
        let seen = now.clone();
        let snapshot = move || seen.lock().unwrap().clone();
        Feed { now, log: Arc::new(EventLog::new("main", "i1".into(), policy, snapshot)) }
    }

    pub(crate) fn publish(&self, kind: EventKind) {
        let event = self.reduce(kind);
        self.log.append(&event);
    }

    /// Makes it true, and leaves it to the caller to deliver it.
    fn reduce(&self, kind: EventKind) -> Event {
        let mut now = self.now.lock().unwrap();
        let event = Event { seq: now.seq + 1, run_id: Some(RunId(1)), kind };
        let state = reduce(now.state.clone(), &event);
        *now = Snapshot { seq: event.seq, state };
        event
    }

    fn state(&self) -> AgentState {
        self.now.lock().unwrap().state.clone()
    }

    pub(crate) fn say(&self, delta: &str) {
        self.publish(EventKind::TextDelta { content_index: 0, delta: delta.to_owned() });
    }

    pub(crate) fn begin(&self) {
        self.publish(EventKind::RunStart { messages: vec![] });
        self.publish(EventKind::MessageStart { role: agent_core::Role::Assistant });
    }
}

/// A client that keeps what it is sent and checks that no number is missing.
struct Client {
    subscription: Subscription,
    backlog: Arc<Backlog>,
    seq: u64,
    state: Option<AgentState>,
    frames: Vec<String>,
}

impl Client {
    fn subscribe(feed: &Feed, params: Value) -> Result<Self, RpcError> {
        let backlog = Arc::new(Backlog::default());
        let params: SubscribeParams = serde_json::from_value(params).unwrap();
        let subscription =
            Subscription::new("s1".into(), feed.log.clone(), &params, backlog.clone())?;
        Ok(Client { subscription, backlog, seq: 0, state: None, frames: Vec::new() })
    }

    /// Goes on where another client stopped, in a new connection.
    fn resume(self, feed: &Feed) -> Self {
        let Client { seq, state, subscription, .. } = self;
        drop(subscription);
        let params = json!({ "fromSeq": seq, "instanceId": "i1" });
        Client { seq, state, ..Client::subscribe(feed, params).unwrap() }
    }

    /// Takes some, and answers whether there was anything.
    fn take(&mut self, max_bytes: usize, merge: bool) -> bool {
        let Some(piece) = self.subscription.next(max_bytes, merge) else { return false };
        let mut frames = Vec::new();
        piece.write(|frame| frames.push(frame.to_owned()));
        frames.iter().for_each(|frame| self.hear(frame));
        true
    }

    fn take_all(&mut self) -> &[String] {
        let before = self.frames.len();
        while self.take(1000, false) {}
        &self.frames[before..]
    }

    fn hear(&mut self, text: &str) {
        assert!(!text.contains(['\n', '\u{2028}', '\u{2029}']), "{text:?}");
        self.frames.push(story(text));
        match Frame::from_json(text).unwrap() {
            Frame::Event(EventFrame { prev_seq, event, session_id }) => {
                assert_eq!(session_id, "main");
                assert_eq!(prev_seq.unwrap_or(event.seq - 1), self.seq, "{text}");
                self.seq = event.seq;
                self.state = self.state.take().map(|state| reduce(state, &event));
            }
            Frame::Control(frame) => match frame.control {
                Control::Subscribed { head_seq, replay, state, .. } => {
                    if replay != Replay::Events {
                        self.seq = head_seq;
                        self.state = state;
                    }
                }
                Control::Lagged { from_seq, to_seq } => {
                    assert!(from_seq > self.seq && from_seq <= to_seq, "{text}");
                }
                Control::SessionClosed {} | Control::ServerShutdown { .. } => {}
            },
        }
    }
}

/// A frame in a few words.
fn story(frame: &str) -> String {
    let frame: Value = serde_json::from_str(frame).unwrap();
    let words = ["prevSeq", "seq", "replay", "headSeq", "oldestSeq", "fromSeq", "toSeq"];
    let words = words.iter().filter_map(|name| match name {
        &"prevSeq" => frame.get(name).map(|number| format!(" {number}<")),
        _ => frame.get(name).map(|value| format!(" {value}").replace('"', "")),
    });
    let words: String = words.collect();
    format!("{}{}", frame["type"].as_str().unwrap(), words.replace("< ", "<"))
}

fn small() -> SlowReaderPolicy {
    SlowReaderPolicy {
        replay_events: 5,
        replay_bytes: 10_000,
        backlog_bytes: 4_000,
        ..SlowReaderPolicy::default()
    }
}

#[test]
fn a_subscription_begins_where_it_was_asked_to() {
    let feed = Feed::new(small());
    feed.begin();
    for delta in ["a", "b", "c", "d", "e", "f"] {
        feed.say(delta);
    }
    // Held are 4 to 8.
    let rows: &[(Value, &[&str])] = &[
        (json!({}), &["subscribed none 8 4", "text_delta 9"]),
        (json!({ "snapshot": true }), &["subscribed snapshot 8 4", "text_delta 9"]),
        (
            json!({ "fromSeq": 6 }),
            &["subscribed events 8 4", "text_delta 7", "text_delta 8", "text_delta 9"],
        ),
        (json!({ "fromSeq": 8, "instanceId": "i1" }), &["subscribed events 8 4", "text_delta 9"]),
        (
            json!({ "fromSeq": 3 }),
            &[
                "subscribed events 8 4",
                "text_delta 4",
                "text_delta 5",
                "text_delta 6",
                "text_delta 7",
                "text_delta 8",
                "text_delta 9",
            ],
        ),
        (json!({ "fromSeq": 2 }), &["subscribed snapshot 8 4", "text_delta 9"]),
        (json!({ "fromSeq": 0 }), &["subscribed snapshot 8 4", "text_delta 9"]),
        (json!({ "fromSeq": 6, "snapshot": true }), &["subscribed snapshot 8 4", "text_delta 9"]),
        (json!({ "fromSeq": 6, "instanceId": "i0" }), &["subscribed snapshot 8 4", "text_delta 9"]),
        (
            json!({ "fromSeq": 99, "instanceId": "i0" }),
            &["subscribed snapshot 8 4", "text_delta 9"],
        ),
    ];
    let mut clients: Vec<_> =
        rows.iter().map(|(params, _)| Client::subscribe(&feed, params.clone()).unwrap()).collect();
    for (client, (params, _)) in clients.iter_mut().zip(rows) {
        client.seq = params["fromSeq"].as_u64().unwrap_or_default();
    }
    feed.say("g");
    for (client, (params, expected)) in clients.iter_mut().zip(rows) {
        assert_eq!(client.take_all(), *expected, "{params}");
    }
    for seq in [10, u64::MAX] {
        let error = Client::subscribe(&feed, json!({ "fromSeq": seq })).err();
        assert_eq!(error, Some(RpcError::SeqOutOfRange { oldest_seq: 5, head_seq: 9 }));
    }
    assert_eq!(feed.log.readers(), rows.len());
}

#[test]
fn the_agent_may_be_ahead_of_the_log() {
    let feed = Feed::new(small());
    let events = [
        feed.reduce(EventKind::RunStart { messages: vec![] }),
        feed.reduce(EventKind::TurnStart { turn: 1 }),
    ];
    let mut now = Client::subscribe(&feed, json!({})).unwrap();
    let mut from_start = Client::subscribe(&feed, json!({ "fromSeq": 0 })).unwrap();
    let mut from_middle = Client::subscribe(&feed, json!({ "fromSeq": 1 })).unwrap();
    from_middle.seq = 1;
    let mut from_head = Client::subscribe(&feed, json!({ "fromSeq": 2 })).unwrap();
    from_head.seq = 2;
    assert!(Client::subscribe(&feed, json!({ "fromSeq": 3 })).is_err());
    events.iter().for_each(|event| feed.log.append(event));
    feed.say("x");
    assert_eq!(now.take_all(), ["subscribed none 2 1", "text_delta 3"]);
    let all = ["subscribed events 2 1", "run_start 1", "turn_start 2", "text_delta 3"];
    assert_eq!(from_start.take_all(), all);
    assert_eq!(from_middle.take_all(), ["subscribed events 2 1", "turn_start 2", "text_delta 3"]);
    assert_eq!(from_head.take_all(), ["subscribed events 2 1", "text_delta 3"]);
}

// W4.4
#[test]
fn what_is_filtered_out_is_named_by_the_number_before() {
    let feed = Feed::new(SlowReaderPolicy::default());
    let filter = json!({ "include": ["turn_start", "text_delta"], "exclude": ["text_delta"] });
    let mut client = Client::subscribe(&feed, filter).unwrap();
    feed.begin();
    feed.say("x");
    feed.publish(EventKind::TurnStart { turn: 1 });
    feed.publish(EventKind::TurnStart { turn: 2 });
    feed.say("x");
    let expected = ["subscribed none 0 1", "turn_start 0<4", "turn_start 5"];
    assert_eq!(client.take_all(), expected);
    assert!(client.subscription.has_passed(6));
    feed.log.finish(Control::SessionClosed {});
    assert_eq!(client.take_all(), ["session_closed"]);
}

#[test]
fn a_reader_that_falls_behind_is_told_once_and_gets_the_state() {
    let feed = Feed::new(small());
    let mut slow = Client::subscribe(&feed, json!({ "messages": "none" })).unwrap();
    let mut fast = Client::subscribe(&feed, json!({})).unwrap();
    slow.take_all();
    feed.begin();
    for _ in 0..100 {
        feed.say("abc");
        fast.take_all();
    }
    assert_eq!(slow.backlog.waiting(), 0);
    assert_eq!(slow.take_all(), ["lagged 1 102", "subscribed snapshot 102 98"]);
    assert_eq!(slow.state, Some(feed.state()));
    feed.say("x");
    assert_eq!(slow.take_all(), ["text_delta 103"]);
    assert_eq!((fast.frames.len(), fast.take_all().len()), (103, 1));
}

#[test]
fn a_frame_larger_than_all_that_may_wait_passes_whole() {
    let feed = Feed::new(small());
    let mut client = Client::subscribe(&feed, json!({})).unwrap();
    client.take_all();
    feed.say(&"x".repeat(100_000));
    assert_eq!(client.take_all(), ["text_delta 1"]);
    // What is said around it does not count against it.
    feed.say("x");
    feed.say(&"x".repeat(100_000));
    feed.say("x");
    assert_eq!(client.take_all(), ["text_delta 2", "text_delta 3", "text_delta 4"]);
    // One may; two may not.
    feed.say(&"x".repeat(100_000));
    feed.say(&"x".repeat(100_000));
    assert_eq!(client.take_all(), ["lagged 5 6", "subscribed snapshot 6 6"]);
    assert_eq!(client.backlog.waiting(), 0);
}

#[test]
fn a_log_is_bounded_whoever_reads_it() {
    let policy = SlowReaderPolicy {
        replay_events: 50,
        replay_bytes: 10_000,
        backlog_bytes: 10_000,
        ..SlowReaderPolicy::default()
    };
    let feed = Feed::new(policy);
    let never = Client::subscribe(&feed, json!({ "include": ["run_start"] })).unwrap();
    let _all = Client::subscribe(&feed, json!({})).unwrap();
    feed.begin();
    for _ in 0..10_000 {
        feed.say("abc");
        let log = feed.log.lock();
        assert!(log.weight <= 20_000 + 200, "{} bytes are held", log.weight);
        assert_eq!(log.weight, log.entries.iter().map(|entry| entry.weight()).sum::<usize>());
    }
    assert_eq!(never.backlog.waiting(), 0);
    assert!(feed.log.lock().entries.len() <= 50);
}

#[test]
fn what_came_before_a_reset_is_kept_for_nobody_but_those_who_are_reading_it() {
    let feed = Feed::new(SlowReaderPolicy::default());
    feed.begin();
    feed.say("a");
    let mut reading = Client::subscribe(&feed, json!({ "fromSeq": 0 })).unwrap();
    feed.publish(EventKind::Reset {});
    let all =
        ["subscribed events 3 1", "run_start 1", "message_start 2", "text_delta 3", "reset 4"];
    assert_eq!(reading.take_all(), all);
    assert_eq!(feed.log.lock().entries.len(), 1, "a screen needs the reset itself");
    let mut late = Client::subscribe(&feed, json!({ "fromSeq": 2 })).unwrap();
    assert_eq!(late.take_all(), ["subscribed snapshot 4 4"]);
    let mut just_before = Client::subscribe(&feed, json!({ "fromSeq": 3 })).unwrap();
    just_before.seq = 3;
    assert_eq!(just_before.take_all(), ["subscribed events 4 4", "reset 4"]);
    let log = feed.log.lock();
    assert_eq!(log.weight, log.entries.iter().map(|entry| entry.weight()).sum::<usize>());
}

#[test]
fn a_replay_of_all_that_is_held_is_not_held_against_the_reader() {
    let policy = SlowReaderPolicy {
        replay_events: 1000,
        replay_bytes: 10_000,
        backlog_bytes: 10_000,
        ..SlowReaderPolicy::default()
    };
    let feed = Feed::new(policy);
    for _ in 0..1000 {
        feed.say("abc");
    }
    let oldest = feed.log.lock().oldest();
    let mut client = Client::subscribe(&feed, json!({ "fromSeq": oldest - 1 })).unwrap();
    client.seq = oldest - 1;
    for _ in 0..20 {
        feed.say("abc");
    }
    let frames = client.take_all();
    assert_eq!(frames.last().unwrap(), "text_delta 1020");
    assert_eq!(frames.len() as u64, 1 + 1020 - oldest + 1);
    assert_eq!(client.backlog.waiting(), 0);
}

#[derive(Clone, Debug)]
enum Step {
    Publish(EventKind),
    Deliver(usize),
    Take(usize, usize, bool),
    Resume(usize),
    Attach(bool),
}

fn kind() -> impl Strategy<Value = EventKind> {
    let delta = "[a\"\\\\\n\u{2028}é]{0,8}";
    let text = (0..2_u32, delta)
        .prop_map(|(content_index, delta)| EventKind::TextDelta { content_index, delta });
    let thinking = (0..2_u32, delta)
        .prop_map(|(content_index, delta)| EventKind::ThinkingDelta { content_index, delta });
    let call = (0..2_u32, delta).prop_map(|(content_index, delta)| EventKind::ToolCallDelta {
        content_index,
        tool_call_id: format!("c{content_index}"),
        tool_name: "bash".to_owned(),
        delta,
    });
    let others = proptest::sample::select(vec![
        EventKind::RunStart { messages: vec![] },
        EventKind::MessageStart { role: agent_core::Role::Assistant },
        EventKind::TurnStart { turn: 1 },
        EventKind::Diagnostic { message: "x".repeat(300) },
        EventKind::Reset {},
    ]);
    prop_oneof![6 => text, 1 => thinking, 1 => call, 1 => others]
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        12 => kind().prop_map(Step::Publish),
        6 => (1..6_usize).prop_map(Step::Deliver),
        4 => (0..4_usize, 1..2000_usize, any::<bool>())
            .prop_map(|(client, bytes, merge)| Step::Take(client, bytes, merge)),
        1 => (0..4_usize).prop_map(Step::Resume),
        1 => any::<bool>().prop_map(Step::Attach),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Contract 4.4, over the wire: whenever a client attaches, however slowly it reads, whether
    /// deltas are merged, and however often its connection is cut, it ends with the agent's state.
    #[test]
    fn every_client_ends_with_the_agent_s_state(
        steps in proptest::collection::vec(step(), 1..200),
        events in 1..40_usize,
        backlog in 200..5000_usize,
    ) {
        let policy = SlowReaderPolicy { replay_events: events, replay_bytes: 3000, backlog_bytes: backlog, ..SlowReaderPolicy::default() };
        let feed = Feed::new(policy);
        feed.begin();
        let mut clients = vec![Client::subscribe(&feed, json!({ "snapshot": true })).unwrap()];
        let mut undelivered = VecDeque::new();
        for step in steps {
            match step {
                Step::Publish(kind) => undelivered.push_back(feed.reduce(kind)),
                Step::Deliver(count) => {
                    let count = count.min(undelivered.len());
                    undelivered.drain(..count).for_each(|event| feed.log.append(&event));
                }
                Step::Take(client, bytes, merge) => {
                    if let Some(client) = clients.get_mut(client) {
                        client.take(bytes, merge);
                    }
                }
                // A client that knows no state cannot resume.
                Step::Resume(client) => {
                    if clients.get(client).is_some_and(|client| client.state.is_some()) {
                        let resumed = clients.remove(client).resume(&feed);
                        clients.push(resumed);
                    }
                }
                Step::Attach(snapshot) if clients.len() < 4 => {
                    let params = json!({ "snapshot": snapshot });
                    clients.push(Client::subscribe(&feed, params).unwrap());
                }
                Step::Attach(_) => {}
            }
        }
        undelivered.into_iter().for_each(|event| feed.log.append(&event));
        for client in &mut clients {
            client.take_all();
            prop_assert_eq!(client.seq, feed.log.head());
            prop_assert_eq!(client.backlog.waiting(), 0);
            if let Some(state) = &client.state {
                prop_assert!(*state == feed.state(), "{:#?}", client.frames);
            }
        }
        let backlogs: Vec<_> = clients.iter().map(|client| client.backlog.clone()).collect();
        drop(clients);
        prop_assert!(backlogs.iter().all(|backlog| backlog.waiting() == 0));
        prop_assert_eq!(feed.log.readers(), 0);
    }

    /// Merging says the same in fewer frames.
    #[test]
    fn merged_frames_fold_to_the_same_state(
        kinds in proptest::collection::vec(kind(), 1..100),
        bytes in 1..4000_usize,
    ) {
        let feed = Feed::new(SlowReaderPolicy::default());
        feed.begin();
        let [mut whole, mut merged] =
            [(); 2].map(|()| Client::subscribe(&feed, json!({ "snapshot": true })).unwrap());
        kinds.into_iter().for_each(|kind| feed.publish(kind));
        whole.take_all();
        while merged.take(bytes, true) {}
        prop_assert!(merged.frames.len() <= whole.frames.len());
        prop_assert!(merged.state == whole.state);
        prop_assert!(merged.state == Some(feed.state()));
    }
}
