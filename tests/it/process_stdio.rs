//! `agent-daemon --stdio` as its parent sees it: how it works and how it ends (W2).

use std::io::Write;

use expect_test::expect;
use rustix::process::Signal;
use serde_json::{Value, json};
use support::process::{Daemon, Home, Peer, binary, eventually, finished, story};

const PROMPT: &str =
    r#"{"jsonrpc":"2.0","id":1,"method":"prompt","params":{"input":"run echo hello"}}"#;
const SUBSCRIBE: &str = r#"{"jsonrpc":"2.0","id":0,"method":"subscribe"}"#;
const WAIT: &str = r#"{"jsonrpc":"2.0","id":2,"method":"waitForIdle"}"#;

/// The lines that come out when these bytes go in and end.
fn piped(home: &Home, input: &str) -> Vec<Value> {
    let mut file = tempfile::tempfile().unwrap();
    file.write_all(input.as_bytes()).unwrap();
    std::io::Seek::rewind(&mut file).unwrap();
    let output = finished(home.daemon_command(&["--stdio"]).stdin(file));
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{stderr}");
    let stdout = String::from_utf8(output.stdout).unwrap();
    stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn answer(lines: &[Value], id: u64) -> &Value {
    lines.iter().find(|line| line["id"] == id).unwrap_or_else(|| panic!("no answer to {id}"))
}

/// A daemon in the middle of a run whose tool started a child of its own, and its connection.
fn running(home: &Home, arguments: &[&str]) -> (Daemon, Peer) {
    let mut daemon = home.stdio_daemon(arguments);
    let mut peer = daemon.peer();
    peer.subscribe();
    peer.call("prompt", json!({ "input": "run sleep 1001 & sleep 1002" }));
    peer.frame("tool_start");
    home.await_count("sleep 1001", 1);
    home.await_count("sleep 1002", 1);
    (daemon, peer)
}

fn nothing_is_left(home: &Home) {
    home.await_count("sleep 1001", 0);
    home.await_count("sleep 1002", 0);
}

#[test]
fn a_pipe_of_a_prompt_and_a_wait_does_the_whole_job() {
    let home = Home::new();
    let lines = piped(&home, &format!("{SUBSCRIBE}\n{PROMPT}\n{WAIT}\n"));
    assert_eq!(answer(&lines, 1)["result"]["disposition"], "started");
    assert_eq!(answer(&lines, 2)["result"]["lastRun"]["reason"], "stop");
    let events = lines.iter().filter(|line| line["method"] == "event");
    let frames: Vec<Value> = events.map(|line| line["params"]["result"].clone()).collect();
    expect![[r#"run_start turn_start message_start text_delta tool_call_delta message_end tool_start(call_1) tool_end(call_1) message_end(call_1) turn_end turn_start message_start text_delta message_end turn_end run_end(stop)"#]]
        .assert_eq(&story(&frames));
    // W3.2: the wait's answer comes after the events that it speaks of.
    let end = lines.iter().position(|line| line["params"]["result"]["type"] == "run_end");
    let waited = lines.iter().position(|line| line["id"] == 2);
    assert!(end < waited, "{lines:#?}");
}

#[test]
fn a_last_line_counts_without_its_end() {
    let home = Home::new();
    let lines = piped(&home, &format!("{PROMPT}\r\n\n{WAIT}"));
    assert_eq!(answer(&lines, 2)["result"]["lastRun"]["reason"], "stop");
}

#[test]
fn lsp_headers_are_answered_with_lsp_headers() {
    let home = Home::new();
    let input = tempfile::NamedTempFile::new().unwrap();
    let health = r#"{"jsonrpc":"2.0","id":"é","method":"health"}"#;
    let message = format!("content-length: {}\r\n\r\n{health}", health.len());
    std::fs::write(input.path(), message).unwrap();
    let file = std::fs::File::open(input.path()).unwrap();
    let output = finished(home.daemon_command(&["--stdio"]).stdin(file));
    assert_eq!(output.status.code(), Some(0));
    let stdout = String::from_utf8(output.stdout).unwrap();
    let (head, body) = stdout.split_once("\r\n\r\n").unwrap();
    assert_eq!(head, format!("Content-Length: {}", body.len()));
    assert_eq!(serde_json::from_str::<Value>(body).unwrap()["id"], "é");
}

/// W1.4: nothing is left to read, which is the end of stdin; the parent is told why.
#[test]
fn what_cannot_be_read_from_stdin_is_its_end_and_stderr_says_why() {
    let home = Home::new();
    let cases = [
        ("Content-Length: 2\r\nHost: localhost\r\n\r\n{}", "header"),
        ("GET / HTTP/1.1\r\n\r\n", "begins neither a line of JSON nor a Content-Length header"),
    ];
    for (bytes, reason) in cases {
        let mut daemon = home.stdio_daemon(&["--log-level", "error"]);
        let mut peer = daemon.peer();
        peer.write(bytes.as_bytes());
        peer.closed();
        assert_eq!(daemon.exit().code(), Some(0));
        assert!(daemon.said().contains(reason), "{}", daemon.said());
    }
}

// W2.3
#[test]
fn the_end_of_stdin_in_mid_run_aborts_the_run_and_exits_0() {
    let home = Home::new();
    let (mut daemon, mut peer) = running(&home, &[]);
    peer.end();
    let frames = peer.until("run_end");
    assert_eq!(frames.last().unwrap()["reason"], "aborted");
    assert_eq!(peer.frame("server_shutdown")["sessionId"], "main");
    peer.closed();
    assert_eq!(daemon.exit().code(), Some(0));
    nothing_is_left(&home);
}

#[test]
fn the_end_of_stdin_waits_for_the_waits_in_flight() {
    let home = Home::new();
    let mut daemon = home.stdio_daemon(&[]);
    let mut peer = daemon.peer();
    peer.send("prompt", json!({ "input": "run sleep 0.5 and run echo done" }));
    let wait = peer.send("waitForIdle", json!({}));
    peer.end();
    assert_eq!(peer.answer(wait).unwrap()["lastRun"]["reason"], "stop");
    peer.closed();
    assert_eq!(daemon.exit().code(), Some(0));
}

// W2.2
#[test]
fn exit_says_whether_there_was_a_shutdown() {
    for (shutdown, status) in [(true, 0), (false, 1)] {
        let home = Home::new();
        let (mut daemon, mut peer) = running(&home, &[]);
        if shutdown {
            assert_eq!(peer.call("shutdown", json!({})), Value::Null);
            assert_eq!(peer.frame("run_end")["reason"], "aborted");
            assert_eq!(peer.refused("prompt", json!({ "input": "more" })), "1011 shuttingDown");
        }
        peer.notify("exit", json!({}));
        peer.closed();
        assert_eq!(daemon.exit().code(), Some(status));
        nothing_is_left(&home);
    }
}

// W2.3
#[test]
fn without_a_reader_of_stdout_the_daemon_ends_at_once_with_its_children() {
    let home = Home::new();
    let mut daemon = home.stdio_daemon(&[]);
    // No event is written while the tool is quiet: only looking for it shows that stdout is gone.
    let input = json!({ "input": "run sleep 1001 & exec sleep 1002" });
    let call = json!({ "jsonrpc": "2.0", "id": 1, "method": "prompt", "params": input });
    let mut stdin = daemon.child().stdin.take().unwrap();
    stdin.write_all(format!("{call}\n").as_bytes()).unwrap();
    home.await_count("sleep 1002", 1);
    drop(daemon.child().stdout.take());
    assert_eq!(daemon.exit().code(), Some(1));
    nothing_is_left(&home);
}

#[test]
fn without_its_parent_the_daemon_ends_with_its_children() {
    let home = Home::new();
    let mut parent = home.command("sleep").arg("1003").spawn().unwrap();
    let mut daemon = home.stdio_daemon(&[]);
    let mut peer = daemon.peer();
    let hello = json!({
        "protocolVersion": 1, "clientInfo": { "name": "test" }, "processId": parent.id(),
    });
    peer.call("initialize", hello);
    peer.call("prompt", json!({ "input": "run sleep 1001 & exec sleep 1002" }));
    home.await_count("sleep 1002", 1);
    parent.kill().unwrap();
    parent.wait().unwrap();
    // Its stdin stays open, as if a brother of the parent held it.
    assert_eq!(daemon.exit().code(), Some(1));
    nothing_is_left(&home);
    peer.closed();
}

// W2.4
#[test]
fn a_killed_daemon_leaves_no_child_of_a_tool() {
    let home = Home::new();
    let (mut daemon, mut peer) = running(&home, &[]);
    daemon.signal(Signal::KILL);
    daemon.exit();
    nothing_is_left(&home);
    peer.closed();
}

// W2.4
#[test]
fn terminated_or_interrupted_it_aborts_says_why_and_exits_0() {
    for signal in [Signal::TERM, Signal::INT] {
        let home = Home::new();
        let (mut daemon, mut peer) = running(&home, &[]);
        daemon.signal(signal);
        assert_eq!(peer.frame("run_end")["reason"], "aborted");
        let last = peer.frame("server_shutdown");
        assert!(last["reason"].as_str().unwrap().starts_with("SIG"), "{last}");
        peer.closed();
        assert_eq!(daemon.exit().code(), Some(0), "{}", daemon.said());
        nothing_is_left(&home);
    }
}

#[test]
fn a_signal_is_heard_that_whoever_started_the_daemon_had_blocked() {
    let home = Home::new();
    let mut starter = home.command("env");
    starter.arg("--block-signal=TERM").arg(binary("agent-daemon")).arg("--stdio");
    let mut daemon = Daemon::start(&mut starter);
    let mut peer = daemon.peer();
    peer.subscribe();
    peer.call("prompt", json!({ "input": "run grep SigBlk /proc/self/status" }));
    let result = peer.frame("tool_end");
    assert!(result.to_string().contains("SigBlk:\\t0000000000000000"), "{result}");
    daemon.signal(Signal::TERM);
    assert_eq!(daemon.exit().code(), Some(0), "{}", daemon.said());
}

#[test]
fn a_second_signal_ends_it_now() {
    let home = Home::new();
    home.configure("[limits]\nabort_grace_ms = 600000\n");
    let mut daemon = home.stdio_daemon(&[]);
    let mut peer = daemon.peer();
    peer.subscribe();
    // It ignores the polite way.
    let stubborn = "run trap '' TERM INT; while true; do sleep 1004; done";
    peer.call("prompt", json!({ "input": stubborn }));
    home.await_count("sleep 1004", 1);
    // Two that come too close are one to the system.
    let status = eventually("the daemon's end", || {
        daemon.signal(Signal::TERM);
        daemon.child().try_wait().unwrap()
    });
    // It did not settle the run first.
    assert_eq!(status.code(), Some(1));
    home.await_count("sleep 1004", 0);
    peer.closed();
}

// W2.5
#[test]
fn stdout_is_the_protocol_s_alone_whatever_is_logged() {
    let home = Home::new();
    let mut daemon = home.stdio_daemon(&["--log-level", "trace"]);
    let mut peer = daemon.peer();
    peer.subscribe();
    // A tool that writes to whatever it was given.
    let noisy = "run echo out; echo err >&2; for fd in /proc/self/fd/*; do readlink $fd; done";
    peer.call("prompt", json!({ "input": noisy }));
    peer.call("waitForIdle", json!({}));
    peer.write(b"nonsense\n");
    peer.call("health", json!({}));
    peer.end();
    // Every line was parsed by the peer, or it would have said so.
    peer.closed();
    assert_eq!(peer.strays.len(), 1);
    assert_eq!(daemon.exit().code(), Some(0));
    assert!(!daemon.said().is_empty());
}

#[test]
fn stdin_is_not_inherited_by_tools() {
    let home = Home::new();
    let lines = piped(&home, &format!("{}\n{WAIT}\n", PROMPT.replace("echo hello", "cat")));
    assert_eq!(answer(&lines, 2)["result"]["lastRun"]["reason"], "stop");
}

#[test]
fn a_parent_on_stdio_meets_those_who_come_over_a_socket() {
    let home = Home::new();
    let path = home.path("runtime/here.sock");
    let mut daemon = home.stdio_daemon(&["--listen", &format!("unix:{}", path.display())]);
    let mut parent = daemon.peer();
    parent.call("createSession", json!({ "sessionId": "shared" }));
    let mut other = eventually("the socket", || Peer::unix(&path).ok());
    assert_eq!(other.call("listSessions", json!({}))["sessions"][1]["sessionId"], "shared");
    parent.end();
    assert_eq!(daemon.exit().code(), Some(0));
    parent.closed();
    other.closed();
}
