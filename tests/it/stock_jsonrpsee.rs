//! jsonrpsee's own client, over its own WebSocket and over the Unix socket.

use std::{io, path::Path, time::Duration};

use expect_test::expect;
use jsonrpsee::{
    core::{
        client::{
            Client, ClientBuilder, ClientT, Error, ReceivedMessage, Subscription,
            SubscriptionClientT, TransportReceiverT, TransportSenderT,
        },
        params::ObjectParams,
    },
    ws_client::WsClientBuilder,
};
use serde_json::{Value, json};
use support::process::{Daemon, Home, PATIENCE, story};
use tokio::{
    io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines},
    net::{UnixStream, unix},
    time::timeout,
};

struct Sender(unix::OwnedWriteHalf);

impl TransportSenderT for Sender {
    type Error = io::Error;

    async fn send(&mut self, message: String) -> io::Result<()> {
        self.0.write_all(format!("{message}\n").as_bytes()).await
    }
}

struct Receiver(Lines<BufReader<unix::OwnedReadHalf>>);

impl TransportReceiverT for Receiver {
    type Error = io::Error;

    async fn receive(&mut self) -> io::Result<ReceivedMessage> {
        let line = self.0.next_line().await?.ok_or(io::ErrorKind::UnexpectedEof)?;
        Ok(ReceivedMessage::Text(line))
    }
}

async fn over_unix(socket: &Path) -> Client {
    let (reader, writer) = UnixStream::connect(socket).await.unwrap().into_split();
    let receiver = Receiver(BufReader::new(reader).lines());
    ClientBuilder::default().build_with_tokio(Sender(writer), receiver)
}

fn object(params: Value) -> ObjectParams {
    let mut object = ObjectParams::new();
    for (name, value) in params.as_object().unwrap() {
        object.insert(name, value).unwrap();
    }
    object
}

async fn call(client: &impl ClientT, method: &str, params: Value) -> Result<Value, Error> {
    timeout(PATIENCE, client.request(method, object(params))).await.expect("an answer in time")
}

async fn refused(client: &impl ClientT, method: &str, params: Value) -> String {
    match call(client, method, params).await {
        Err(Error::Call(error)) => {
            let data: Value = serde_json::from_str(error.data().unwrap().get()).unwrap();
            format!("{} {}", error.code(), data["kind"].as_str().unwrap())
        }
        other => format!("{other:?}"),
    }
}

/// The same story as the scripts tell, up to the end of the daemon.
async fn check<C: ClientT + SubscriptionClientT>(
    client: C,
    token: Option<&str>,
    mut daemon: Daemon,
) {
    let hello =
        json!({ "protocolVersion": 1, "clientInfo": { "name": "jsonrpsee" }, "token": token });
    let server = call(&client, "initialize", hello).await.unwrap();
    assert_eq!(server["serverInfo"]["name"], "agent-daemon");

    let mut subscription: Subscription<Value> =
        client.subscribe("subscribe", ObjectParams::new(), "unsubscribe").await.unwrap();
    let prompt = call(&client, "prompt", json!({ "input": "run echo hello" })).await.unwrap();
    assert_eq!(prompt["disposition"], "started");
    assert_eq!(refused(&client, "prompt", json!({ "input": "again" })).await, "1001 busy");
    assert_eq!(refused(&client, "nonsense", json!({})).await, "-32601 methodNotFound");

    let mut frames = Vec::new();
    while frames.last().is_none_or(|frame: &Value| frame["type"] != "run_end") {
        let frame = timeout(PATIENCE, subscription.next()).await.expect("events in time");
        frames.push(frame.expect("the subscription goes on").unwrap());
    }
    expect![[r#"run_start turn_start message_start text_delta tool_call_delta message_end tool_start(call_1) tool_end(call_1) message_end(call_1) turn_end turn_start message_start text_delta message_end turn_end run_end(stop)"#]]
        .assert_eq(&story(&frames));
    let mut before = frames[0]["headSeq"].clone();
    for frame in &frames[1..] {
        let seq = frame["seq"].as_u64().unwrap();
        assert!(json!(seq - 1) == before || frame["prevSeq"] == before, "{frame} after {before}");
        before = seq.into();
    }

    let idle = call(&client, "waitForIdle", json!({})).await.unwrap();
    assert_eq!(idle["status"], "idle");
    assert_eq!(idle["seq"], before);
    let state = call(&client, "getState", json!({})).await.unwrap();
    assert_eq!(state["seq"], before);
    assert_eq!(state["state"]["messages"].as_array().unwrap().len(), 4);

    timeout(PATIENCE, subscription.unsubscribe()).await.expect("an answer in time").unwrap();
    call(&client, "reset", json!({})).await.unwrap();
    let shutdown = call(&client, "shutdown", json!({ "scope": "daemon" })).await.unwrap();
    assert_eq!(shutdown, Value::Null);
    client.notification("exit", ObjectParams::new()).await.unwrap();
    let status = tokio::task::spawn_blocking(move || daemon.exit()).await.unwrap();
    assert_eq!(status.code(), Some(0));
}

#[tokio::test]
async fn jsonrpsee_over_its_websocket() {
    let home = Home::new();
    let mut daemon = Daemon::start(&mut home.daemon_command(&["--listen", "ws:127.0.0.1:0"]));
    let address = daemon.said_after("ws:");
    let token = std::fs::read_to_string(daemon.said_after("token is in ")).unwrap();
    let client = WsClientBuilder::default()
        .request_timeout(Duration::MAX)
        .build(format!("ws://{address}"))
        .await
        .unwrap();
    check(client, Some(token.trim()), daemon).await;
}

// W4.1
#[tokio::test]
async fn jsonrpsee_over_the_unix_socket() {
    let home = Home::new();
    let daemon = home.daemon();
    check(over_unix(&home.socket()).await, None, daemon).await;
}
