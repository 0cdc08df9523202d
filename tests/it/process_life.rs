//! How a daemon begins and ends: whoever leaves, hangs or started it (wire protocol, 2).

use std::{
    io::Write,
    os::unix::net::UnixStream,
    process::Command,
    time::{Duration, Instant},
};

use serde_json::json;
use support::process::{Home, Peer, binary, finished};

/// A command that takes half a second to end, since it has to be killed.
const STUBBORN: &str = "run trap '' TERM; sleep 1201";

fn begin_stubborn(home: &Home) {
    home.connect().call("prompt", json!({ "input": STUBBORN }));
    home.await_count("sleep 1201", 1);
}

fn said(command: &mut Command) -> (Option<i32>, String) {
    let output = finished(command);
    let text = [output.stdout, output.stderr].concat();
    (output.status.code(), String::from_utf8(text).unwrap())
}

#[test]
fn an_accepted_shutdown_completes_though_its_caller_leaves() {
    let home = Home::new();
    let mut daemon = home.daemon();
    begin_stubborn(&home);
    let mut caller = home.connect();
    caller.send("shutdown", json!({ "scope": "daemon" }));
    // Only once it was accepted.
    assert_eq!(caller.call("health", json!({}))["status"], "shuttingDown");
    drop(caller);
    assert_eq!(daemon.exit().code(), Some(0));
    home.await_count("sleep 1201", 0);
    assert!(!home.socket().exists());
}

#[test]
fn an_accepted_shutdown_completes_though_the_call_is_cancelled_and_its_caller_stays() {
    let home = Home::new();
    let mut daemon = home.daemon();
    begin_stubborn(&home);
    let mut caller = home.connect();
    let id = caller.send("shutdown", json!({ "scope": "daemon" }));
    caller.notify("$/cancelRequest", json!({ "id": id }));
    assert_eq!(caller.answer(id).unwrap_err()["code"], -32800);
    assert_eq!(daemon.exit().code(), Some(0));
    caller.closed();
}

#[test]
fn a_call_behind_a_shutdown_is_refused() {
    let home = Home::new();
    let mut daemon = home.daemon();
    let mut caller = home.connect();
    let call = |id, method, params| {
        format!("{}\n", json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params }))
    };
    let both = call(71, "shutdown", json!({ "scope": "daemon" }))
        + &call(72, "prompt", json!({ "input": "run echo late" }));
    caller.write(both.as_bytes());
    assert_eq!(caller.answer(72).unwrap_err()["code"], 1011);
    caller.answer(71).unwrap();
    assert_eq!(daemon.exit().code(), Some(0));
}

#[test]
fn a_command_of_the_model_s_own_can_end_the_daemon() {
    let home = Home::new();
    let mut daemon = home.daemon();
    let client = binary("agent-client").display().to_string();
    let mut peer = home.connect();
    peer.call("prompt", json!({ "input": format!("run {client} shutdown") }));
    assert_eq!(daemon.exit().code(), Some(0));
    assert!(!home.socket().exists());
}

/// A client that asks for more than its socket holds, and reads none of it.
fn hanging(home: &Home) -> UnixStream {
    let mut socket = UnixStream::connect(home.socket()).unwrap();
    let mut peer = home.connect();
    peer.call("setConfig", json!({ "systemPrompt": "x".repeat(900_000) }));
    let call = json!({ "jsonrpc": "2.0", "id": 1, "method": "getState" });
    let subscribe = json!({ "jsonrpc": "2.0", "id": 2, "method": "subscribe" });
    let wait = json!({ "jsonrpc": "2.0", "id": 3, "method": "waitForIdle" });
    writeln!(socket, "{call}\n{call}\n{subscribe}\n{wait}").unwrap();
    socket
}

#[test]
fn shutdown_returns_when_the_process_is_gone_and_a_client_that_hangs_costs_little() {
    let home = Home::new();
    let mut daemon = home.daemon();
    let _hanging = hanging(&home);
    let begin = Instant::now();
    let (status, said) = said(&mut home.client_command(&["shutdown"]));
    let took = begin.elapsed();
    let has_ended = daemon.child().try_wait().unwrap();
    assert_eq!(status, Some(0), "{said}");
    assert!(said.contains("has ended"), "{said}");
    assert!(has_ended.is_some_and(|status| status.success()), "{has_ended:?} after {took:?}");
    // Two seconds, and what a crowded machine takes.
    assert!(took < Duration::from_secs(6), "it took {took:?}");
}

#[test]
fn a_caller_that_hangs_behind_its_shutdown_costs_little() {
    let home = Home::new();
    let mut daemon = home.daemon();
    let mut socket = hanging(&home);
    let call =
        json!({ "jsonrpc": "2.0", "id": 4, "method": "shutdown", "params": { "scope": "daemon" } });
    writeln!(socket, "{call}").unwrap();
    let begin = Instant::now();
    assert_eq!(daemon.exit().code(), Some(0));
    assert!(begin.elapsed() < Duration::from_secs(6), "it took {:?}", begin.elapsed());
}

#[test]
fn shutdown_over_tcp_returns_when_nobody_listens_any_more() {
    let home = Home::new();
    let mut command = home.daemon_command(&["--listen", "tcp:127.0.0.1:0"]);
    let mut daemon = support::process::Daemon::start(command.args(["--listen", "ws:127.0.0.1:0"]));
    let (tcp, ws) = (daemon.said_after("tcp:"), daemon.said_after("ws:"));
    let (status, said) = said(&mut home.client_command(&["--tcp", &tcp, "shutdown"]));
    assert_eq!(status, Some(0), "{said}");
    for address in [tcp, ws] {
        assert!(Peer::tcp(&address).is_err(), "{address} answers");
    }
    assert_eq!(daemon.exit().code(), Some(0));
}

#[test]
fn a_daemon_whose_model_cannot_be_used_starts_and_refuses_prompts() {
    let home = Home::new();
    home.configure("model = \"openai/gpt-5\"\n");
    let mut daemon = home.stdio_daemon(&[]);
    let mut peer = daemon.peer();
    let list = peer.call("listModels", json!({}));
    assert_eq!(
        (&list["current"], &list["models"][0]["id"]),
        (&json!("openai/gpt-5"), &list["current"])
    );
    let reason = list["models"][0]["reason"].as_str().unwrap();
    assert!(reason.contains("OPENAI_API_KEY"), "{reason}");
    assert!(daemon.said().contains("openai/gpt-5"), "{}", daemon.said());

    let refused = "1012 modelUnavailable";
    let input = json!({ "input": "run echo hello" });
    assert_eq!(peer.refused("prompt", input.clone()), refused);
    assert_eq!(peer.refused("continue", json!({})), refused);
    for method in ["steer", "followUp"] {
        let prompt = json!({ "input": "x", "whenIdle": "prompt" });
        assert_eq!(peer.refused(method, prompt), refused, "{method}");
        assert_eq!(peer.refused(method, json!({ "input": "x" })), "1002 notRunning", "{method}");
    }
    assert_eq!(peer.refused("setConfig", json!({ "model": "openai/gpt-5" })), refused);
    peer.call("createSession", json!({ "sessionId": "without" }));
    let there = json!({ "input": "x", "sessionId": "without" });
    assert_eq!(peer.refused("prompt", there), refused);
    peer.call("createSession", json!({ "sessionId": "with", "model": "offline/demo" }));
    peer.call("prompt", json!({ "input": "run echo hello", "sessionId": "with" }));

    // With another model it works, and what was held meanwhile goes first.
    peer.call("steer", json!({ "input": "run echo held", "whenIdle": "hold" }));
    peer.subscribe();
    peer.call("setConfig", json!({ "model": "offline/demo" }));
    peer.call("prompt", input);
    assert_eq!(peer.frame("run_end")["reason"], "stop");
    assert_eq!(peer.call("listModels", json!({}))["models"][0]["id"], "offline/demo");
}

#[test]
fn a_client_says_why_the_model_of_the_daemon_that_it_started_cannot_be_used() {
    let home = Home::new();
    home.configure("model = \"openai/gpt-5\"\n");
    let (status, text) = said(&mut home.client_command(&["prompt", "hello"]));
    assert_eq!(status, Some(1), "{text}");
    assert!(text.contains("openai/gpt-5") && text.contains("OPENAI_API_KEY"), "{text}");
    home.shut_down();
}
