//! Real sockets, and clients that are not ours.

#![allow(clippy::unwrap_used)]

use std::{
    io::{Read, Write},
    net::SocketAddr,
    path::Path,
};

use agent_protocol::local::token::Token;
use futures_util::{SinkExt, StreamExt};
use jsonrpsee::RpcModule;
use serde_json::{Value, json};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpStream, UnixStream},
    task::JoinHandle,
};
use tokio_tungstenite::{WebSocketStream, client_async, tungstenite::Message};

use super::*;
use crate::{
    peer::{caller::Caller, server::ServerLimits},
    transport::{endpoint::Endpoint, socket::Rules},
};

/// Listens as `--listen` would.
async fn listen(endpoint: &str) -> Acceptor {
    endpoint.parse::<Endpoint>().unwrap().bind(&Rules::default()).await.unwrap()
}

fn server() -> (Arc<Server>, String) {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("token");
    let token = Token::at(&path).unwrap();
    let hex = std::fs::read_to_string(path).unwrap().trim().to_owned();
    let mut module = RpcModule::new(());
    module
        .register_method::<Result<Value, agent_protocol::RpcError>, _>(
            "initialize",
            |params, _, extensions| {
                let params: Value = params.parse().unwrap();
                let caller = extensions.get::<Arc<Caller>>().unwrap();
                caller.authorize(params["token"].as_str())?;
                Ok(json!(caller.transport().name))
            },
        )
        .unwrap();
    module
        .register_method("large", |params, _, _| "x".repeat(params.one::<usize>().unwrap()))
        .unwrap();
    let limits = ServerLimits { max_message_bytes: 1 << 20, ..ServerLimits::default() };
    (Server::new(module, limits, Some(token)), hex)
}

fn serve(acceptor: Acceptor, server: &Arc<Server>) -> JoinHandle<()> {
    tokio::spawn(acceptor.serve(server.clone()))
}

fn port_of(acceptor: &Acceptor) -> SocketAddr {
    acceptor.address().split_once(':').unwrap().1.parse().unwrap()
}

/// Says `lines` and reads to the end.
async fn ask<S: AsyncReadExt + AsyncWriteExt + Unpin>(mut stream: S, lines: &str) -> String {
    stream.write_all(lines.as_bytes()).await.unwrap();
    stream.shutdown().await.unwrap();
    let mut answer = String::new();
    // A connection that is closed on us may be reset.
    let _ = stream.read_to_string(&mut answer).await;
    answer
}

fn initialize(token: &str) -> String {
    json!({ "id": 1, "method": "initialize", "params": { "token": token } }).to_string()
}

#[tokio::test]
async fn a_unix_socket_needs_no_token() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("daemon.sock");
    let (server, _) = server();
    let acceptor = listen(&format!("unix:{}", path.display())).await;
    assert_eq!(acceptor.address(), format!("unix:{}", path.display()));
    let serving = serve(acceptor, &server);
    let stream = UnixStream::connect(&path).await.unwrap();
    let answer = ask(stream, r#"{"id":1,"method":"large","params":[3]}"#).await;
    assert_eq!(answer, "{\"jsonrpc\":\"2.0\",\"id\":1,\"result\":\"xxx\"}\n");
    server.stop();
    serving.await.unwrap();
    assert!(!Path::new(&path).exists());
}

#[tokio::test]
async fn over_tcp_only_the_token_opens() {
    let (server, token) = server();
    let acceptor = listen("tcp:127.0.0.1:0").await;
    let address = port_of(&acceptor);
    let serving = serve(acceptor, &server);
    let connect = || async { TcpStream::connect(address).await.unwrap() };
    let answer = ask(connect().await, &initialize(&token)).await;
    assert_eq!(answer, "{\"jsonrpc\":\"2.0\",\"id\":1,\"result\":\"tcp\"}\n");
    let answer = ask(connect().await, &initialize(&"0".repeat(64))).await;
    assert!(answer.contains("1010") && !answer.contains(&token), "{answer}");
    let answer = ask(connect().await, r#"{"id":1,"method":"large","params":[3]}"#).await;
    assert!(answer.contains("1010"), "{answer}");
    // A message that nobody asked a stranger for is not stored.
    let large = format!("{}\n{}", "1".repeat(100_000), initialize(&token));
    let answer = ask(connect().await, &large).await;
    assert!(answer.contains("-32007") && answer.contains("\"tcp\""), "{answer}");
    // What a web page can make a browser send.
    for request in ["POST / HTTP/1.1\r\nHost: x\r\n\r\n{}", "GET / HTTP/1.1\r\n\r\n"] {
        assert_eq!(ask(connect().await, request).await, "");
    }
    server.stop();
    serving.await.unwrap();
    assert_eq!(server.connections(), 0);
}

#[tokio::test]
async fn addresses_that_others_can_reach_are_refused() {
    for endpoint in ["tcp:0.0.0.0:0", "ws:0.0.0.0:0"] {
        let endpoint: Endpoint = endpoint.parse().unwrap();
        let error = endpoint.bind(&Rules::default()).await.unwrap_err();
        assert!(error.to_string().contains("--allow-remote"), "{error}");
        let rules = Rules { allow_remote: true, ..Rules::default() };
        assert!(endpoint.bind(&rules).await.is_ok());
    }
}

async fn web_socket(address: SocketAddr) -> WebSocketStream<TcpStream> {
    let stream = TcpStream::connect(address).await.unwrap();
    client_async(format!("ws://{address}/"), stream).await.unwrap().0
}

async fn next(client: &mut WebSocketStream<TcpStream>) -> Value {
    match client.next().await.unwrap().unwrap() {
        Message::Text(text) => serde_json::from_str(&text).unwrap(),
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn a_web_socket_carries_one_message_per_text_frame() {
    let (server, token) = server();
    let acceptor = listen("ws:127.0.0.1:0").await;
    let address = port_of(&acceptor);
    let serving = serve(acceptor, &server);
    let mut client = web_socket(address).await;
    client.send(Message::text(r#"{"id":1,"method":"large"}"#)).await.unwrap();
    assert_eq!(next(&mut client).await["error"]["code"], 1010);
    // Line ends are as good as blanks here.
    client.send(Message::text(initialize(&token).replace(',', ",\n"))).await.unwrap();
    assert_eq!(next(&mut client).await["result"], "ws");
    for (message, code) in [
        (Message::text("[1]"), -32005),
        (Message::text("{"), -32700),
        (Message::binary(b"{}".as_slice()), -32700),
        (Message::text("1".repeat((1 << 20) + 1)), -32007),
    ] {
        client.send(message).await.unwrap();
        assert_eq!(next(&mut client).await["error"]["code"], code);
    }
    client.send(Message::Ping(b"there?".as_slice().into())).await.unwrap();
    assert_eq!(client.next().await.unwrap().unwrap(), Message::Pong(b"there?".as_slice().into()));
    let large = json!({ "id": 2, "method": "large", "params": [3 << 20] });
    client.send(Message::text(large.to_string())).await.unwrap();
    assert_eq!(next(&mut client).await["result"].as_str().unwrap().len(), 3 << 20);
    client.close(None).await.unwrap();
    while client.next().await.is_some_and(|message| message.is_ok()) {}
    server.stop();
    serving.await.unwrap();
    assert_eq!(server.connections(), 0);
}

#[tokio::test]
async fn a_web_page_does_not_get_in() {
    let (server, _) = server();
    let acceptor = listen("ws:127.0.0.1:0").await;
    let address = port_of(&acceptor);
    let _serving = serve(acceptor, &server);
    let answer = tokio::task::spawn_blocking(move || {
        let mut stream = std::net::TcpStream::connect(address).unwrap();
        let request = "GET / HTTP/1.1\r\nHost: localhost\r\nOrigin: http://evil.example\r\n\
                       Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n\
                       Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n";
        stream.write_all(request.as_bytes()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    });
    let answer = answer.await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 403"), "{answer}");
}

#[tokio::test]
async fn who_is_too_many_waits_and_is_served_later() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("daemon.sock");
    let limits = ServerLimits { connections: 2, ..ServerLimits::default() };
    let server = Server::new(RpcModule::new(()), limits, None);
    let serving = serve(listen(&format!("unix:{}", path.display())).await, &server);
    let mut first = UnixStream::connect(&path).await.unwrap();
    let mut second = UnixStream::connect(&path).await.unwrap();
    for stream in [&mut first, &mut second] {
        stream.write_all(b"{}\n").await.unwrap();
        stream.read_u8().await.unwrap();
    }
    let third = tokio::spawn(ask(UnixStream::connect(&path).await.unwrap(), "{}"));
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
    assert!(!third.is_finished());
    assert_eq!(server.connections(), 2);
    drop(first);
    assert!(third.await.unwrap().contains("-32600"));
    server.stop();
    serving.await.unwrap();
}

#[tokio::test]
async fn strangers_have_a_room_of_their_own_and_take_no_places() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("token");
    let token = Token::at(&path).unwrap();
    let mut module = RpcModule::new(());
    module
        .register_method::<Result<(), agent_protocol::RpcError>, _>(
            "initialize",
            |params, _, extensions| {
                let params: Value = params.parse().unwrap();
                extensions.get::<Arc<Caller>>().unwrap().authorize(params["token"].as_str())
            },
        )
        .unwrap();
    let limits = ServerLimits { connections: 2, strangers: 4, ..ServerLimits::default() };
    let server = Server::new(module, limits, Some(token));
    let hex = std::fs::read_to_string(path).unwrap();
    let tcp = listen("tcp:127.0.0.1:0").await;
    let ws = listen("ws:127.0.0.1:0").await;
    let addresses = [port_of(&tcp), port_of(&ws)];
    let serving = [serve(tcp, &server), serve(ws, &server)];
    let mut silent = Vec::new();
    for _ in 0..40 {
        silent.push(TcpStream::connect(addresses[0]).await.unwrap());
    }
    // Those who had to leave are told so.
    for stream in &mut silent[..36] {
        assert!(matches!(stream.read(&mut [0; 1]).await, Ok(0) | Err(_)));
    }
    let mut holders = Vec::new();
    for _ in 0..2 {
        let mut holder = TcpStream::connect(addresses[0]).await.unwrap();
        holder.write_all((initialize(hex.trim()) + "\n").as_bytes()).await.unwrap();
        let mut answer = [0; 64];
        let length = holder.read(&mut answer).await.unwrap();
        assert!(answer[..length].ends_with(b"\"result\":null}\n"), "{answer:?}");
        holders.push(holder);
    }
    // A WebSocket's handshake is a stranger's, too, and another's silence does not hold it up.
    let _silent = TcpStream::connect(addresses[1]).await.unwrap();
    holders.pop();
    let mut client = web_socket(addresses[1]).await;
    client.send(Message::text(initialize(hex.trim()))).await.unwrap();
    assert_eq!(next(&mut client).await["result"], Value::Null);
    server.stop();
    for serving in serving {
        serving.await.unwrap();
    }
}
