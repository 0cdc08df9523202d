//! Whole connections over in-memory pipes, with a method table of the tests' own.

#![allow(clippy::unwrap_used)]

use std::sync::Mutex;

use agent_core::reduce;
use agent_protocol::{
    Control, Frame, SubscribeParams,
    codec::{Framing, StreamDecoder},
    local::token::Token,
};
use jsonrpsee::{RpcModule, types::ErrorObjectOwned};
use proptest::prelude::*;
use serde_json::{Value, json};
use tokio::{
    io::{AsyncBufReadExt, BufReader, DuplexStream, ReadHalf, WriteHalf, duplex, split},
    sync::Notify,
    task::JoinHandle,
};

use super::*;
use crate::{
    events::{fanout::tests::Feed, policy::SlowReaderPolicy},
    methods::params::parse,
    peer::server::ServerLimits,
    transport::{tcp::TCP, unix::UNIX},
};

/// What the methods of these tests share.
struct Context {
    calls: Mutex<Vec<String>>,
    gate: Notify,
    feed: Feed,
}

fn methods(context: Arc<Context>) -> RpcModule<Context> {
    type Result = std::result::Result<Value, ErrorObjectOwned>;
    let mut module = RpcModule::from_arc(context);
    module
        .register_method::<Result, _>("echo", |params, context, _| {
            let text = params.as_str().unwrap_or("null").to_owned();
            context.calls.lock().unwrap().push(text.clone());
            Ok(serde_json::from_str(&text).unwrap())
        })
        .unwrap();
    module
        .register_method::<Result, _>("large", |params, _, _| {
            Ok("x".repeat(params.one::<usize>()?).into())
        })
        .unwrap();
    module.register_method::<Result, _>("panic", |_, _, _| panic!("on purpose")).unwrap();
    module
        .register_method::<Result, _>("initialize", |params, _, extensions| {
            let caller = extensions.get::<Arc<Caller>>().unwrap();
            let params: Value = params.parse()?;
            caller.authorize(params["token"].as_str())?;
            caller.initialize("tests")?;
            Ok(json!(caller.client()))
        })
        .unwrap();
    module
        .register_method::<Result, _>("subscribe", |params, context, extensions| {
            let caller = extensions.get::<Arc<Caller>>().unwrap();
            let params: SubscribeParams = parse(params.as_str())?;
            Ok(json!(caller.subscribe(&context.feed.log, &params)?))
        })
        .unwrap();
    module
        .register_method::<Result, _>("unsubscribe", |params, _, extensions| {
            let caller = extensions.get::<Arc<Caller>>().unwrap();
            Ok(caller.unsubscribe(&params.one::<String>()?).into())
        })
        .unwrap();
    module
        .register_async_method::<Result, _, _>(
            "waitForIdle",
            |params, context, extensions| async move {
                let caller = extensions.get::<Arc<Caller>>().unwrap().clone();
                let wish = params.as_str().unwrap_or_default();
                if wish.contains("panic") {
                    panic!("on purpose");
                }
                if !wish.contains("now") {
                    context.gate.notified().await;
                }
                let seq = context.feed.now.lock().unwrap().seq;
                caller.events_sent(&context.feed.log, seq).await;
                Ok(json!({ "seq": seq }))
            },
        )
        .unwrap();
    module
        .register_async_method::<Result, _, _>("shutdown", |_, context, extensions| async move {
            extensions.get::<Arc<Caller>>().unwrap().note_shutdown();
            context.gate.notified().await;
            Ok(Value::Null)
        })
        .unwrap();
    module
}

/// A client and the server that it speaks to.
struct Peer {
    writer: WriteHalf<DuplexStream>,
    reader: BufReader<ReadHalf<DuplexStream>>,
    server: Arc<Server>,
    context: Arc<Context>,
    serving: JoinHandle<Ending>,
}

/// What a test wants to be otherwise.
struct Setup {
    transport: &'static Transport,
    limits: ServerLimits,
    log: SlowReaderPolicy,
    pipe_bytes: usize,
}

impl Default for Setup {
    fn default() -> Self {
        Setup {
            transport: &UNIX,
            limits: ServerLimits { max_message_bytes: 1000, ..ServerLimits::default() },
            log: SlowReaderPolicy::default(),
            pipe_bytes: 64 * 1024,
        }
    }
}

impl Peer {
    fn new(setup: Setup) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("token");
        std::fs::write(&path, "0a".repeat(32)).unwrap();
        std::process::Command::new("chmod").arg("600").arg(&path).status().unwrap();
        let token = Token::at(&path).unwrap();
        let feed = Feed::new(setup.log);
        let context = Arc::new(Context { calls: Mutex::default(), gate: Notify::new(), feed });
        let server = Server::new(methods(context.clone()), setup.limits, Some(token));
        let (ours, theirs) = duplex(setup.pipe_bytes);
        let (reader, writer) = split(theirs);
        let serving = tokio::spawn(serve_bytes(server.clone(), reader, writer, setup.transport));
        let (reader, writer) = split(ours);
        Peer { writer, reader: BufReader::new(reader), server, context, serving }
    }

    async fn send(&mut self, text: &str) {
        self.writer.write_all(text.as_bytes()).await.unwrap();
        self.writer.write_all(b"\n").await.unwrap();
    }

    async fn call(&mut self, id: usize, method: &str, params: Value) {
        let call = json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params });
        self.send(&call.to_string()).await;
    }

    /// The next line.
    async fn line(&mut self) -> String {
        let mut line = String::new();
        self.reader.read_line(&mut line).await.unwrap();
        line.trim_end_matches('\n').to_owned()
    }

    async fn json(&mut self) -> Value {
        let line = self.line().await;
        serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error}: {line:?}"))
    }

    /// Everything up to the end, a line's story each, and why it ended.
    async fn rest(mut self) -> (Vec<String>, Ending) {
        self.writer.shutdown().await.unwrap();
        self.drain().await
    }

    async fn drain(mut self) -> (Vec<String>, Ending) {
        let mut lines = Vec::new();
        loop {
            let line = self.line().await;
            if line.is_empty() {
                return (lines, self.serving.await.unwrap());
            }
            lines.push(story(&serde_json::from_str(&line).unwrap()));
        }
    }
}

/// `id result`, `id code`, or `subscription type seq`.
fn story(message: &Value) -> String {
    if message["method"] == "event" {
        let frame = &message["params"]["result"];
        let numbers = ["prevSeq", "seq", "headSeq", "fromSeq", "toSeq"];
        let numbers = numbers.iter().filter_map(|name| frame.get(name).map(Value::to_string));
        let numbers: Vec<_> = numbers.collect();
        let (subscription, kind) = (&message["params"]["subscription"], &frame["type"]);
        let (subscription, kind) = (subscription.as_str().unwrap(), kind.as_str().unwrap());
        return format!("{subscription} {kind} {}", numbers.join(" "));
    }
    assert_eq!(message["jsonrpc"], "2.0", "{message}");
    match message.get("error") {
        Some(error) => {
            assert!(error["data"]["kind"].is_string(), "{message}");
            format!("{} {}", message["id"], error["code"])
        }
        None => format!("{} {}", message["id"], message["result"]),
    }
}

async fn check(input: &[u8], expected: &[&str]) {
    let mut peer = Peer::new(Setup::default());
    peer.writer.write_all(input).await.unwrap();
    let (lines, _) = peer.rest().await;
    assert_eq!(lines, expected, "{:?}", String::from_utf8_lossy(input));
}

// W1.4
#[tokio::test]
async fn each_row_of_section_1_is_answered_as_it_says() {
    let rows: &[(&str, &[&str])] = &[
        (r#"{"id":1,"method":"echo","params":{"a":[1]}}"#, &[r#"1 {"a":[1]}"#]),
        (r#"{"id":"\u0041","method":"echo"}"#, &["\"A\" null"]),
        (r#"{"id":-1.5,"method":"echo"}"#, &["-1.5 null"]),
        (r#"{"id":null,"method":"echo","params":null}"#, &["null null"]),
        (r#"{"method":"echo"}"#, &[]),
        (r#"{"method":"nothing"}"#, &[]),
        (r#"{"method":"initialized","params":{}}"#, &[]),
        (r#"{"method":"initialize","params":{}}"#, &[]),
        (r#"{"method":"subscribe"}"#, &[]),
        (r#"{"method":"waitForIdle"}"#, &[]),
        (r#"{"id":1,"method":"nothing"}"#, &["1 -32601"]),
        (r#"{"id":1,"result":{}}"#, &[]),
        ("null", &["null -32600"]),
        ("42", &["null -32600"]),
        ("\"x\"", &["null -32600"]),
        ("[]", &["null -32600"]),
        (r#"{"id":9}"#, &["9 -32600"]),
        (r#"[{"id":1,"method":"echo"},{"id":2,"method":"echo"}]"#, &["null -32005"]),
        ("{\"id\":1", &["null -32700"]),
        ("{]", &["null -32700"]),
        (r#"{"id":1,"method":"panic"}"#, &["1 -32603"]),
        (r#"{"id":1,"method":"waitForIdle","params":{"x":"panic"}}"#, &["1 -32603"]),
        (r#"{"id":1,"method":"waitForIdle","params":{"x":"now"}}"#, &[r#"1 {"seq":0}"#]),
    ];
    let after = r#"{"id":"after","method":"echo"}"#;
    for (row, expected) in rows {
        let expected = [expected, ["\"after\" null"].as_slice()].concat();
        check(format!("{row}\n{after}\n").as_bytes(), &expected).await;
        check(format!("\n {row}\r\n\n{after}").as_bytes(), &expected).await;
    }
    let deep =
        format!(r#"{{"id":1,"method":"echo","params":{}1{}}}"#, "[".repeat(128), "]".repeat(128));
    check(format!("{deep}\n{after}").as_bytes(), &["null -32700", "\"after\" null"]).await;
    let large = format!(r#"{{"id":1,"method":"echo","params":["{}"]}}"#, "x".repeat(1000));
    check(format!("{large}\n{after}").as_bytes(), &["null -32007", "\"after\" null"]).await;
    check(&[b"{\"id\":\"\xff\"}\n", after.as_bytes()].concat(), &["null -32700", "\"after\" null"])
        .await;
}

// W1.1
#[tokio::test]
async fn what_some_reader_takes_for_a_line_end_is_escaped() {
    let mut peer = Peer::new(Setup::default());
    peer.send("{\"id\":\"\u{2028}\",\"method\":\"echo\",\"params\":[\"\u{2029}\"]}").await;
    let expected = r#"{"jsonrpc":"2.0","id":"\u2028","result":["\u2029"]}"#;
    assert_eq!(peer.line().await, expected);
}

#[tokio::test]
async fn what_cannot_be_told_apart_ends_the_connection_after_what_came_before() {
    for (input, expected) in [
        ("GET / HTTP/1.1\r\n\r\n", ""),
        ("CONNECT x:1 HTTP/1.1\r\n\r\n", ""),
        ("Content-Length: x\r\n\r\n{}", ""),
        (
            "Content-Length: 26\r\n\r\n{\"id\":1,\"method\":\"echo\"}\r\nHost: x\r\n",
            "Content-Length: 38\r\n\r\n{\"jsonrpc\":\"2.0\",\"id\":1,\"result\":null}",
        ),
    ] {
        let mut peer = Peer::new(Setup::default());
        peer.writer.write_all(input.as_bytes()).await.unwrap();
        let mut output = String::new();
        peer.reader.read_to_string(&mut output).await.unwrap();
        assert_eq!(output, expected);
        assert!(matches!(peer.serving.await.unwrap(), Ending::Unreadable(_)));
    }
}

// W1.5
#[tokio::test]
async fn ten_thousand_pipelined_calls_are_answered_in_order() {
    const CALLS: usize = 10_000;
    for (framing, chunk) in [
        (Framing::Lines, 7),
        (Framing::Lines, 100_000),
        (Framing::Headers, 13),
        (Framing::Headers, 4096),
    ] {
        let peer = Peer::new(Setup::default());
        let Peer { mut writer, mut reader, context, .. } = peer;
        let mut bytes = Vec::new();
        for call in 0..CALLS {
            let call = format!(r#"{{"id":{call},"method":"echo","params":[{call}]}}"#);
            framing.encode(&[&call], &mut bytes);
        }
        let writing = tokio::spawn(async move {
            for piece in bytes.chunks(chunk) {
                writer.write_all(piece).await.unwrap();
            }
            writer
        });
        let mut decoder = StreamDecoder::new(1000);
        let mut answered = 0;
        while answered < CALLS {
            assert_ne!(reader.read_buf(decoder.room()).await.unwrap(), 0);
            while let Some(frame) = decoder.next() {
                let expected =
                    format!(r#"{{"jsonrpc":"2.0","id":{answered},"result":[{answered}]}}"#);
                assert_eq!(frame, Ok(agent_protocol::codec::RawMessage::Text(&expected)));
                answered += 1;
            }
        }
        writing.await.unwrap();
        let calls = context.calls.lock().unwrap();
        assert!(calls.iter().enumerate().all(|(index, call)| *call == format!("[{index}]")));
    }
}

#[tokio::test]
async fn a_waiting_call_holds_nothing_up_and_is_answered_when_its_time_comes() {
    let mut peer = Peer::new(Setup::default());
    peer.call(1, "waitForIdle", json!({})).await;
    peer.call(2, "echo", json!([])).await;
    assert_eq!(story(&peer.json().await), "2 []");
    peer.context.gate.notify_one();
    assert_eq!(story(&peer.json().await), r#"1 {"seq":0}"#);
}

// W1.7
#[tokio::test]
async fn a_waiting_call_can_be_cancelled_once() {
    let mut peer = Peer::new(Setup::default());
    for id in [1, 2] {
        peer.call(id, "waitForIdle", json!({})).await;
    }
    for _ in 0..2 {
        peer.send(r#"{"method":"$/cancelRequest","params":{"id":1}}"#).await;
        peer.send(r#"{"method":"$/cancelRequest","params":{"id":"2"}}"#).await;
    }
    assert_eq!(story(&peer.json().await), "1 -32800");
    peer.context.gate.notify_one();
    assert_eq!(story(&peer.json().await), r#"2 {"seq":0}"#);
    peer.call(3, "echo", json!([])).await;
    assert_eq!(story(&peer.json().await), "3 []");
}

// W1.6
#[tokio::test]
async fn thirty_two_calls_may_wait() {
    let mut peer = Peer::new(Setup::default());
    for id in 0..34 {
        peer.call(id, "waitForIdle", json!({})).await;
    }
    assert_eq!(story(&peer.json().await), "32 -32006");
    assert_eq!(story(&peer.json().await), "33 -32006");
    peer.context.gate.notify_one();
    assert_eq!(story(&peer.json().await), r#"0 {"seq":0}"#);
    peer.call(34, "waitForIdle", json!({})).await;
    peer.call(35, "waitForIdle", json!({})).await;
    assert_eq!(story(&peer.json().await), "35 -32006");
}

#[tokio::test]
async fn what_is_in_flight_at_the_end_of_the_input_is_answered() {
    let mut peer = Peer::new(Setup::default());
    peer.call(1, "waitForIdle", json!({})).await;
    peer.writer.write_all(br#"{"id":2,"method":"echo"}"#).await.unwrap();
    peer.writer.shutdown().await.unwrap();
    assert_eq!(story(&peer.json().await), "2 null");
    peer.context.gate.notify_one();
    let (lines, ending) = peer.drain().await;
    assert_eq!(lines, [r#"1 {"seq":0}"#]);
    assert!(matches!(ending, Ending::EndOfInput));
}

#[tokio::test]
async fn exit_ends_the_connection_and_says_whether_a_shutdown_came_before() {
    let mut peer = Peer::new(Setup::default());
    peer.call(1, "waitForIdle", json!({})).await;
    peer.send(r#"{"method":"exit"}"#).await;
    peer.call(2, "echo", json!([])).await;
    let (lines, ending) = peer.drain().await;
    assert_eq!(lines, [""; 0]);
    assert!(matches!(ending, Ending::Exit { after_shutdown: false }));

    let mut peer = Peer::new(Setup::default());
    peer.call(1, "shutdown", json!({})).await;
    peer.send(r#"{"method":"exit"}"#).await;
    peer.context.gate.notify_one();
    let (lines, ending) = peer.drain().await;
    assert_eq!(lines, ["1 null"]);
    assert!(matches!(ending, Ending::Exit { after_shutdown: true }));
}

#[tokio::test]
async fn without_the_token_only_initialize_is_heard() {
    {
        let mut peer = Peer::new(Setup { transport: &TCP, ..Setup::default() });
        for method in ["echo", "nothing", "subscribe", "waitForIdle"] {
            peer.call(1, method, json!({})).await;
            assert_eq!(story(&peer.json().await), "1 1010");
        }
        peer.send(r#"{"method":"echo"}"#).await;
        peer.call(3, "initialize", json!({ "token": "0a".repeat(32) })).await;
        assert_eq!(story(&peer.json().await), "3 \"tests\"");
        peer.call(4, "echo", json!([])).await;
        assert_eq!(story(&peer.json().await), "4 []");
        peer.call(5, "initialize", json!({ "token": "0a".repeat(32) })).await;
        assert_eq!(story(&peer.json().await), "5 -32600");
        assert_eq!(*peer.context.calls.lock().unwrap(), ["[]"]);
    }
}

#[tokio::test(start_paused = true)]
async fn a_wrong_token_is_answered_and_ends_the_connection() {
    for token in [json!(null), json!("0a"), json!("0b".repeat(32))] {
        let mut peer = Peer::new(Setup { transport: &TCP, ..Setup::default() });
        peer.call(1, "initialize", json!({ "token": token })).await;
        peer.call(2, "initialize", json!({ "token": "0a".repeat(32) })).await;
        let (lines, ending) = peer.drain().await;
        assert_eq!(lines, ["1 1010"]);
        assert!(matches!(ending, Ending::Unauthorized));
    }
}

#[tokio::test(start_paused = true)]
async fn a_stranger_is_not_listened_to_for_ever() {
    let mut peer = Peer::new(Setup { transport: &TCP, ..Setup::default() });
    for id in 0..40 {
        peer.call(id, "echo", json!({})).await;
    }
    let (lines, ending) = peer.drain().await;
    assert_eq!(lines.len(), 33);
    assert!(matches!(ending, Ending::Unauthorized));
}

#[tokio::test(start_paused = true)]
async fn a_peer_that_does_not_show_the_token_is_not_waited_for() {
    let mut peer = Peer::new(Setup { transport: &TCP, ..Setup::default() });
    peer.call(1, "echo", json!({})).await;
    let (lines, ending) = peer.drain().await;
    assert_eq!(lines, ["1 1010"]);
    assert!(matches!(ending, Ending::Unauthorized));
}

#[tokio::test]
async fn a_flood_that_nobody_reads_is_not_read_and_loses_nothing() {
    let mut peer = Peer::new(Setup { pipe_bytes: 1024, ..Setup::default() });
    let flood: String =
        (0..2000).map(|id| format!("{{\"id\":{id},\"method\":\"echo\"}}\n")).collect();
    let context = peer.context.clone();
    let mut writer = peer.writer;
    let writing = tokio::spawn(async move {
        writer.write_all(flood.as_bytes()).await.unwrap();
        writer
    });
    // Everything that can happen without a reader has happened when nothing happens any more.
    let mut before = usize::MAX;
    loop {
        for _ in 0..100 {
            tokio::task::yield_now().await;
        }
        let now = context.calls.lock().unwrap().len();
        if now == before {
            break;
        }
        before = now;
    }
    assert!((256..300).contains(&before), "{before} calls were carried out");
    for id in 0..2000 {
        let mut line = String::new();
        peer.reader.read_line(&mut line).await.unwrap();
        assert_eq!(line, format!("{{\"jsonrpc\":\"2.0\",\"id\":{id},\"result\":null}}\n"));
    }
    writing.await.unwrap();
}

// W1.6
#[tokio::test]
async fn unread_answers_are_bounded_in_bytes() {
    let mut peer = Peer::new(Setup { pipe_bytes: 1024, ..Setup::default() });
    for id in 0..20 {
        peer.call(id, "large", json!([1 << 20])).await;
    }
    peer.call(20, "echo", json!([])).await;
    for _ in 0..1000 {
        tokio::task::yield_now().await;
    }
    assert!(peer.context.calls.lock().unwrap().is_empty());
    for id in 0..20 {
        assert_eq!(peer.json().await["id"], id);
    }
    assert_eq!(story(&peer.json().await), "20 []");
}

#[tokio::test(start_paused = true)]
async fn a_peer_that_reads_nothing_for_a_minute_is_let_go() {
    let mut peer = Peer::new(Setup { pipe_bytes: 1024, ..Setup::default() });
    peer.call(1, "large", json!([1 << 20])).await;
    // A little now and then keeps the connection.
    let mut little = [0; 512];
    for _ in 0..10 {
        tokio::time::sleep(Duration::from_secs(59)).await;
        peer.reader.get_mut().read_exact(&mut little).await.unwrap();
        assert!(!peer.serving.is_finished());
    }
    let started = tokio::time::Instant::now();
    let ending = peer.serving.await.unwrap();
    assert!(matches!(ending, Ending::PeerGone(error) if error.kind() == io::ErrorKind::TimedOut));
    assert!(started.elapsed() <= Duration::from_secs(61));
}

#[tokio::test]
async fn a_subscription_s_id_comes_before_its_first_frame_and_the_events_after_it() {
    let mut peer = Peer::new(Setup::default());
    peer.context.feed.begin();
    peer.call(1, "subscribe", json!({ "snapshot": true })).await;
    assert_eq!(story(&peer.json().await), "1 \"s1\"");
    let opened = peer.json().await;
    assert_eq!(story(&opened), "s1 subscribed 2");
    let frame = &opened["params"]["result"];
    assert_eq!(frame["replay"], "snapshot");
    assert_eq!(frame["state"]["activeRunId"], 1);
    peer.context.feed.say("a");
    peer.context.feed.say("b");
    assert_eq!(story(&peer.json().await), "s1 text_delta 3");
    assert_eq!(story(&peer.json().await), "s1 text_delta 4");
    peer.call(2, "unsubscribe", json!(["s2"])).await;
    peer.call(3, "unsubscribe", json!(["s1"])).await;
    assert_eq!(story(&peer.json().await), "2 false");
    assert_eq!(story(&peer.json().await), "3 true");
    assert_eq!(peer.context.feed.log.readers(), 0);
}

#[tokio::test]
async fn waiting_is_answered_after_the_events_that_it_speaks_of() {
    let mut peer = Peer::new(Setup { pipe_bytes: 256, ..Setup::default() });
    peer.context.feed.begin();
    peer.call(1, "subscribe", json!({})).await;
    peer.call(2, "subscribe", json!({ "include": ["text_delta"] })).await;
    for _ in 0..4 {
        peer.json().await;
    }
    for _ in 0..2000 {
        peer.context.feed.say("abc");
    }
    peer.call(3, "waitForIdle", json!({ "x": "now" })).await;
    let mut newest = [0; 2];
    loop {
        let message = peer.json().await;
        if message["id"] == 3 {
            assert_eq!(message["result"]["seq"], 2002);
            break;
        }
        let subscription = usize::from(message["params"]["subscription"] == "s2");
        newest[subscription] = message["params"]["result"]["seq"].as_u64().unwrap();
    }
    assert_eq!(newest, [2002, 2002]);
}

#[tokio::test]
async fn an_answer_overtakes_the_events_that_wait() {
    let mut peer = Peer::new(Setup { pipe_bytes: 1024, ..Setup::default() });
    peer.context.feed.begin();
    peer.call(1, "subscribe", json!({})).await;
    assert_eq!(story(&peer.json().await), "1 \"s1\"");
    for _ in 0..4000 {
        peer.context.feed.say("abc");
    }
    tokio::task::yield_now().await;
    peer.call(2, "echo", json!([])).await;
    let mut read = 0;
    while peer.json().await.get("id").is_none() {
        read += 1;
    }
    assert!(read < 1500, "{read} of 4000 events came before the answer");
}

// W4.6
#[tokio::test]
async fn a_reader_that_falls_too_far_behind_is_told_and_begins_again() {
    let log = SlowReaderPolicy {
        replay_events: 10,
        replay_bytes: 10_000,
        backlog_bytes: 100_000,
        ..SlowReaderPolicy::default()
    };
    let mut peer = Peer::new(Setup { pipe_bytes: 256, log, ..Setup::default() });
    peer.context.feed.begin();
    peer.call(1, "subscribe", json!({ "messages": "none" })).await;
    assert_eq!(story(&peer.json().await), "1 \"s1\"");
    assert_eq!(story(&peer.json().await), "s1 subscribed 2");
    for round in 0..40 {
        for _ in 0..100 {
            peer.context.feed.say(&format!("{round} "));
        }
        tokio::task::yield_now().await;
    }
    let mut state = None;
    let mut seq = 2;
    while seq < 4002 || state.is_none() {
        let frame = peer.json().await["params"]["result"].take();
        match Frame::from_json(&frame.to_string()).unwrap() {
            Frame::Event(frame) => {
                assert_eq!(frame.event.seq, frame.prev_seq.unwrap_or(seq) + 1);
                seq = frame.event.seq;
                state = state.map(|state| reduce(state, &frame.event));
            }
            Frame::Control(frame) => match frame.control {
                Control::Lagged { from_seq, to_seq } => {
                    assert_eq!(from_seq, seq + 1);
                    seq = to_seq;
                }
                Control::Subscribed { head_seq, state: Some(now), .. } => {
                    assert_eq!(head_seq, seq);
                    state = Some(now);
                }
                other => panic!("{other:?}"),
            },
        }
    }
    let now = peer.context.feed.now.lock().unwrap().state.clone();
    assert!(state == Some(now), "the client holds another state");
}

// W4.4
#[tokio::test]
async fn above_a_mark_neighbouring_deltas_are_merged() {
    let mut limits = Setup::default().limits;
    limits.slow_readers.merge_bytes = 10_000;
    let mut peer = Peer::new(Setup { pipe_bytes: 256, limits, ..Setup::default() });
    peer.context.feed.begin();
    peer.call(1, "subscribe", json!({ "snapshot": true })).await;
    assert_eq!(story(&peer.json().await), "1 \"s1\"");
    for _ in 0..4000 {
        peer.context.feed.say("abc");
    }
    let (mut state, mut seq, mut frames) = (None, 2, 0);
    while seq < 4002 {
        let frame = peer.json().await["params"]["result"].take();
        match Frame::from_json(&frame.to_string()).unwrap() {
            Frame::Event(frame) => {
                assert_eq!(frame.prev_seq.unwrap_or(frame.event.seq - 1), seq);
                seq = frame.event.seq;
                state = state.map(|state| reduce(state, &frame.event));
            }
            Frame::Control(frame) => match frame.control {
                Control::Subscribed { state: now, .. } => state = now,
                other => panic!("{other:?}"),
            },
        }
        frames += 1;
    }
    assert!(frames < 400, "{frames} frames");
    let now = peer.context.feed.now.lock().unwrap().state.clone();
    assert!(state == Some(now), "the client holds another state");
}

#[tokio::test]
async fn the_last_word_of_a_session_reaches_every_subscription() {
    let mut peer = Peer::new(Setup::default());
    peer.call(1, "subscribe", json!({ "include": ["run_end"] })).await;
    peer.call(2, "subscribe", json!({})).await;
    for _ in 0..4 {
        peer.json().await;
    }
    peer.context.feed.begin();
    peer.context.feed.log.finish(Control::ServerShutdown { reason: "tests".to_owned() });
    peer.server.stop();
    let (mut lines, ending) = peer.drain().await;
    lines.sort();
    let expected =
        ["s1 server_shutdown ", "s2 message_start 2", "s2 run_start 1", "s2 server_shutdown "];
    assert_eq!(lines, expected);
    assert!(matches!(ending, Ending::Stopped));
}

#[tokio::test]
async fn a_connection_takes_its_subscriptions_and_waiting_calls_with_it() {
    let mut peer = Peer::new(Setup::default());
    peer.call(1, "subscribe", json!({})).await;
    peer.call(2, "waitForIdle", json!({})).await;
    assert_eq!(story(&peer.json().await), "1 \"s1\"");
    assert_eq!((peer.context.feed.log.readers(), peer.server.connections()), (1, 1));
    let Peer { writer, reader, serving, server, context, .. } = peer;
    drop((writer, reader));
    context.feed.say("x");
    assert!(matches!(serving.await.unwrap(), Ending::PeerGone(_)));
    assert_eq!((context.feed.log.readers(), server.connections()), (0, 0));
}

#[tokio::test]
async fn thirty_two_subscriptions_are_enough() {
    let mut peer = Peer::new(Setup::default());
    for id in 0..33 {
        peer.call(id, "subscribe", json!({})).await;
    }
    let mut refused = Vec::new();
    for _ in 0..65 {
        let message = peer.json().await;
        if message.get("error").is_some() {
            refused.push(story(&message));
        }
    }
    assert_eq!(refused, ["32 -32006"]);
}

/// What a client might send, and what it should not.
fn input() -> impl Strategy<Value = Vec<u8>> {
    let calls = [
        r#"{"id":1,"method":"echo","params":[1]}"#,
        r#"{"id":2,"method":"waitForIdle","params":{"x":"now"}}"#,
        r#"{"id":3,"method":"waitForIdle"}"#,
        r#"{"id":4,"method":"subscribe","params":{"snapshot":true,"include":["run_end"]}}"#,
        r#"{"id":5,"method":"subscribe","params":{"fromSeq":0}}"#,
        r#"{"id":6,"method":"unsubscribe","params":["s1"]}"#,
        r#"{"id":7,"method":"panic"}"#,
        r#"{"method":"$/cancelRequest","params":{"id":3}}"#,
        r#"{"id":8,"method":"initialize","params":{}}"#,
        r#"[{"id":9}]"#,
        "{\"id\":\"\u{2028}\",\"method\":\"echo\",\"params\":{\"a\":\n1}}",
        "Content-Length: 24\r\n\r\n{\"id\":1,\"method\":\"echo\"}",
    ];
    let call =
        proptest::sample::select(calls.map(|call| format!("{call}\n").into_bytes()).to_vec());
    let noise = proptest::collection::vec(any::<u8>(), 0..20);
    let changed = (call.clone(), any::<proptest::sample::Index>(), any::<u8>()).prop_map(
        |(mut call, at, byte)| {
            let at = at.index(call.len());
            call[at] = byte;
            call
        },
    );
    let piece = prop_oneof![8 => call, 1 => noise, 3 => changed];
    proptest::collection::vec(piece, 0..40).prop_map(|pieces| pieces.concat())
}

proptest! {
    /// Whatever is sent, the connection ends when the input does, every line that it wrote is one
    /// JSON text, and nothing of it is left behind.
    #[test]
    fn no_input_hangs_a_connection_or_breaks_its_output(bytes in input(), chunk in 1_usize..200) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let peer = Peer::new(Setup { pipe_bytes: 200, ..Setup::default() });
            let Peer { mut writer, mut reader, server, context, serving } = peer;
            for _ in 0..40 {
                context.feed.say("x");
            }
            let sent = bytes.clone();
            let writing = tokio::spawn(async move {
                for piece in sent.chunks(chunk) {
                    // A connection that cannot be read any more is closed.
                    let _ = writer.write_all(piece).await;
                }
                let _ = writer.shutdown().await;
            });
            let opening = context.clone();
            let gate = tokio::spawn(async move {
                loop {
                    opening.gate.notify_waiters();
                    tokio::task::yield_now().await;
                }
            });
            let mut output = Vec::new();
            reader.read_to_end(&mut output).await.unwrap();
            writing.await.unwrap();
            serving.await.unwrap();
            gate.abort();
            let is_headers = output.starts_with(b"Content-Length");
            for line in output.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()) {
                assert!(is_headers || serde_json::from_slice::<Value>(line).is_ok());
            }
            assert_eq!(server.connections(), 0);
            assert_eq!(context.feed.log.readers(), 0);
        });
    }
}
