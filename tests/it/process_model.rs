//! A real model server, real tools, a real daemon: where `AGENT_TEST_MODEL_URL` names a server of
//! `tests/real-model`.

use std::sync::{Mutex, PoisonError};

use serde_json::json;
use support::process::{Home, Peer, needed, story};

/// The server has one core; together they would take longer than one after another.
static TURN: Mutex<()> = Mutex::new(());

/// The prompt that makes the model call a tool; the whole loop, through one provider's API.
fn check(api: &str, base_path: &str) {
    let url = std::env::var("AGENT_TEST_MODEL_URL");
    let url = url.map_err(|_| "AGENT_TEST_MODEL_URL names no server".to_owned());
    let Some(url) = needed(api, url) else { return };
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let home = Home::new();
    home.configure(&format!(
        "model = \"real/local\"\n[providers.real]\napi = \"{api}\"\n\
         base_url = \"{url}{base_path}\"\nmodels = [{{ id = \"local\", max_output_tokens = 200 }}]\n"
    ));
    let mut daemon = home.stdio_daemon(&[]);
    let mut peer: Peer = daemon.peer();
    peer.subscribe();
    peer.call("prompt", json!({ "input": "Use bash to run `echo hello > out.txt`" }));
    let end = peer.frame("run_end");
    assert_eq!(end["reason"], "stop", "{end}");
    let call = peer.frames.iter().find(|frame| frame["type"] == "tool_start");
    let call = call.unwrap_or_else(|| panic!("no tool was called:\n{}", peer.text));
    let written = std::fs::read_to_string(home.work().join("out.txt")).unwrap_or_default();
    assert_eq!(written, "hello\n", "{call}");
    let story = story(&peer.frames);
    assert!(story.starts_with("run_start turn_start message_start "), "{story}");
    assert!(story.contains(" tool_call_delta message_end tool_start"), "{story}");
    assert!(
        story.ends_with(" message_start text_delta message_end turn_end run_end(stop)"),
        "{story}"
    );
    // Streamed, and not in one piece.
    let pieces = peer.frames.iter().filter(|frame| frame["type"] == "text_delta").count();
    assert!(pieces > 1, "{pieces} pieces");
    assert!(end["usage"]["output"].as_u64().is_some_and(|tokens| tokens > 0), "{end}");
    peer.end();
    peer.closed();
    assert_eq!(daemon.exit().code(), Some(0));
}

#[test]
fn a_real_answer_through_openai_completions() {
    check("openai-completions", "/v1");
}

#[test]
fn a_real_answer_through_anthropic_messages() {
    check("anthropic-messages", "");
}

#[test]
fn a_real_answer_through_openai_responses() {
    check("openai-responses", "/v1");
}
