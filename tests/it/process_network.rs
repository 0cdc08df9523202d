//! TCP and WebSocket: holders of the token get in, and nobody else (W6).

use std::{
    collections::VecDeque,
    io::{Read, Write},
    net::TcpStream,
    os::unix::fs::PermissionsExt,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use serde_json::{Value, json};
use support::process::{Daemon, Home, PATIENCE, Peer, binary};

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

// W6.3
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

// W6.3
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

/// Connections that say nothing.
fn silent(address: &str, count: usize) -> Vec<TcpStream> {
    (0..count).map(|_| TcpStream::connect(address).unwrap()).collect()
}

/// Says once what it takes to get in, and how long that took.
fn get_in(address: &str, token: &str) -> Duration {
    let start = Instant::now();
    let mut peer = Peer::tcp(address).unwrap();
    peer.initialize(Some(token)).unwrap();
    assert_eq!(peer.call("health", json!({}))["status"], "ok");
    start.elapsed()
}

/// Less than the time that a stranger has: nobody had to wait for one.
const SOON: Duration = Duration::from_secs(4);

#[test]
fn however_many_strangers_there_are_the_token_s_holder_gets_in() {
    let net = Net::start();
    let standing = silent(&net.tcp, 300);
    let over_ws = silent(&net.ws, 300);
    for _ in 0..5 {
        let time = get_in(&net.tcp, &net.token);
        assert!(time < SOON, "beside silent ones it took {time:?}");
    }
    // And more of them all the time, as fast as they can.
    let has_ended = Arc::new(AtomicBool::new(false));
    let flood = std::thread::spawn({
        let (has_ended, address) = (has_ended.clone(), net.tcp.clone());
        move || {
            let mut latest = VecDeque::new();
            while !has_ended.load(Ordering::Relaxed) {
                // The system's queue may be full for a moment.
                latest.extend(TcpStream::connect(&address));
                if latest.len() > 200 {
                    latest.pop_front();
                }
            }
        }
    });
    let times: Vec<_> = (0..10).map(|_| get_in(&net.tcp, &net.token)).collect();
    has_ended.store(true, Ordering::Relaxed);
    flood.join().unwrap();
    assert!(times.iter().all(|time| *time < SOON), "beside a flood it took {times:?}");
    drop((standing, over_ws));
}

#[test]
fn with_few_descriptors_strangers_leave_tools_and_sockets_what_they_need() {
    let home = Home::new();
    let mut limited = home.command("sh");
    limited.args(["-c", "ulimit -n 64; exec \"$0\" \"$@\""]).arg(binary("agent-daemon"));
    let socket = home.path("runtime/both.sock");
    limited.args(["--listen", "tcp:127.0.0.1:0", "--listen"]);
    limited.arg(format!("unix:{}", socket.display()));
    let mut daemon = Daemon::start(&mut limited);
    let address = daemon.said_after("tcp:");
    let token = std::fs::read_to_string(daemon.said_after("token is in ")).unwrap();
    let _standing = silent(&address, 100);
    let time = get_in(&address, token.trim());
    assert!(time < SOON, "it took {time:?}");
    let mut peers: Vec<_> = (0..10).map(|_| Peer::unix(&socket).unwrap()).collect();
    for peer in &mut peers {
        assert_eq!(peer.call("health", json!({}))["status"], "ok");
    }
    let peer = &mut peers[0];
    peer.subscribe();
    peer.call("prompt", json!({ "input": "run echo one and run echo two and run echo three" }));
    assert_eq!(peer.frame("run_end")["reason"], "stop");
    let state = peer.call("getState", json!({})).to_string();
    for output in ["one\\n", "two\\n", "three\\n"] {
        assert!(state.contains(output), "{output}: {state}");
    }
    assert!(!daemon.said().contains("cannot accept"), "{}", daemon.said());
}

#[test]
fn a_wrong_token_costs_the_connection_and_many_of_them_one_line_of_log() {
    let net = Net::start();
    for _ in 0..50 {
        let mut peer = Peer::tcp(&net.tcp).unwrap();
        assert_eq!(peer.initialize(Some(&"0".repeat(64))).unwrap_err()["code"], 1010);
        peer.closed();
    }
    // What comes behind it is not heard, and who only talks is not listened to for ever.
    let client = json!({ "name": "test" });
    let params = json!({ "protocolVersion": 1, "clientInfo": client, "token": "0".repeat(64) });
    let wrong = json!({ "id": 1, "method": "initialize", "params": params });
    let health = json!({ "id": 2, "method": "health" });
    let said = Net::shout(&net.tcp, &format!("{wrong}\n{health}\n"));
    assert!(said.contains("\"id\":1") && !said.contains("\"id\":2"), "{said}");
    let said = Net::shout(&net.tcp, &format!("{health}\n").repeat(1_000));
    assert!(said.matches("1010").count() < 100, "{said}");
    let said = net.daemon.said();
    let warnings = said.lines().filter(|line| line.contains("turned")).count();
    assert_eq!(warnings, 1, "{said}");
}
