//! TCP and WebSocket: holders of the token get in, and nobody else (wire protocol, 6).

use std::{
    io::{Read, Write},
    net::TcpStream,
    os::unix::fs::PermissionsExt,
};

use serde_json::{Value, json};
use support::process::{Daemon, Home, PATIENCE, Peer};

struct Net {
    daemon: Daemon,
    tcp: String,
    ws: String,
    token: String,
    home: Home,
}

impl Net {
    fn start() -> Self {
        let home = Home::new();
        let mut command = home.daemon_command(&["--log-level", "trace"]);
        command.args(["--listen", "tcp:127.0.0.1:0", "--listen", "ws:127.0.0.1:0"]);
        let mut daemon = Daemon::start(&mut command);
        let tcp = daemon.said_after("tcp:");
        let ws = daemon.said_after("ws:");
        let path = daemon.said_after("token is in ");
        let mode = std::fs::metadata(&path).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        let token = std::fs::read_to_string(path).unwrap().trim().to_owned();
        assert_eq!(token.len(), 64);
        Net { daemon, tcp, ws, token, home }
    }

    /// Says these bytes to a port and reads until it closes.
    fn shout(address: &str, bytes: &str) -> String {
        let mut stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.write_all(bytes.as_bytes()).unwrap();
        let mut answer = Vec::new();
        // A reset ends it as well as an end does; a time-out does not.
        if let Err(error) = stream.read_to_end(&mut answer) {
            assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset);
        }
        String::from_utf8_lossy(&answer).into_owned()
    }

    /// The status line that a WebSocket's opening request gets with these headers.
    fn upgrade(&self, headers: &str) -> String {
        let mut stream = TcpStream::connect(&self.ws).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let request = format!(
            "GET / HTTP/1.1\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
             Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n{headers}\r\n"
        );
        stream.write_all(request.as_bytes()).unwrap();
        let mut answer = [0; 12];
        match stream.read_exact(&mut answer) {
            Ok(()) => String::from_utf8_lossy(&answer).into_owned(),
            Err(_) => "closed".to_owned(),
        }
    }
}

#[test]
fn tcp_wants_the_token_before_anything_else() {
    let mut net = Net::start();
    let mut peer = Peer::tcp(&net.tcp).unwrap();
    for method in ["health", "prompt", "subscribe", "nonsense"] {
        assert_eq!(peer.refused(method, json!({})), "1010 unauthorized");
    }
    for token in [None, Some(""), Some("0"), Some(&net.token[..63]), Some(&"0".repeat(64))] {
        let mut peer = Peer::tcp(&net.tcp).unwrap();
        assert_eq!(peer.initialize(token).unwrap_err()["code"], 1010, "{token:?}");
    }
    let mut peer = Peer::tcp(&net.tcp).unwrap();
    peer.initialize(Some(&net.token)).unwrap();
    assert_eq!(peer.call("health", json!({}))["status"], "ok");
    assert_eq!(
        peer.refused(
            "initialize",
            json!({ "protocolVersion": 1, "clientInfo": { "name": "x" }, "token": net.token })
        ),
        "-32600 invalidRequest"
    );
    net.daemon.signal(rustix::process::Signal::TERM);
    assert_eq!(net.daemon.exit().code(), Some(0));
    // On trace, too.
    assert!(!net.daemon.said().contains(&net.token));
}

#[test]
fn a_web_page_s_requests_get_nowhere() {
    let net = Net::start();
    let call = r#"{"jsonrpc":"2.0","id":1,"method":"health"}"#;
    let post = format!(
        "POST / HTTP/1.1\r\nHost: {}\r\nContent-Type: text/plain\r\nContent-Length: {}\r\n\r\n{call}\n",
        net.tcp,
        call.len() + 1,
    );
    assert_eq!(Net::shout(&net.tcp, &post), "");
    // A method that begins like a header of ours.
    assert_eq!(Net::shout(&net.tcp, &post.replacen("POST", "CONNECT", 1)), "");
    let answer = Net::shout(&net.ws, &post.replace(&net.tcp, &net.ws));
    assert!(!answer.contains("jsonrpc") && !answer.contains(" 200 "), "{answer}");

    let own = format!("Host: {}\r\n", net.ws);
    assert_eq!(net.upgrade(&own), "HTTP/1.1 101");
    let port = net.ws.rsplit_once(':').unwrap().1;
    assert_eq!(net.upgrade(&format!("Host: localhost:{port}\r\n")), "HTTP/1.1 101");
    for headers in [
        format!("{own}Origin: https://evil.example\r\n"),
        format!("{own}Origin: http://localhost:3000\r\n"),
        format!("{own}Origin: null\r\n"),
        // What a name that was made to resolve to loopback sends.
        format!("Host: evil.example:{port}\r\n"),
        String::new(),
    ] {
        let answer = net.upgrade(&headers);
        assert!(answer != "HTTP/1.1 101" && !answer.contains(" 200"), "{headers}: {answer}");
    }
}

#[test]
fn all_transports_reach_the_same_sessions() {
    let net = Net::start();
    let mut command = net.home.daemon_command(&[
        "--listen",
        "tcp:127.0.0.1:0",
        "--listen",
        &format!("unix:{}", net.home.path("runtime/both.sock").display()),
    ]);
    let mut daemon = Daemon::start(&mut command);
    let mut tcp = Peer::tcp(&daemon.said_after("tcp:")).unwrap();
    let server = tcp.initialize(Some(&net.token)).unwrap();
    let mut transports: Vec<&Value> =
        server["capabilities"]["transports"].as_array().unwrap().iter().collect();
    transports.sort_by_key(|name| name.to_string());
    assert_eq!(json!(transports), json!(["tcp", "unix"]));
    let mut unix = Peer::unix(&net.home.path("runtime/both.sock")).unwrap();
    unix.subscribe();
    let prompt = tcp.call("prompt", json!({ "input": "hello" }));
    assert_eq!(unix.frame("run_start")["runId"], prompt["runId"]);
    unix.call("abort", json!({ "expectedRunId": prompt["runId"] }));
    assert_eq!(tcp.call("waitForIdle", json!({}))["lastRun"]["reason"], "aborted");
}
