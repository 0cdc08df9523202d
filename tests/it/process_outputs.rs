//! Where long outputs are, and when they go (W9).

use std::{fs, os::unix::fs::MetadataExt, path::PathBuf};

use rustix::process::Signal;
use serde_json::{Value, json};
use support::process::{Home, Peer, eventually};

/// The directories of the daemons of a home.
fn daemons(home: &Home) -> Vec<PathBuf> {
    let entries = fs::read_dir(home.path("cache/agent-daemon/output")).into_iter().flatten();
    entries.map(|entry| entry.unwrap().path()).filter(|path| path.is_dir()).collect()
}

/// Has a session run a command that says much; the file with all of it.
fn long_output(peer: &mut Peer, session: &str) -> PathBuf {
    let input = json!({ "sessionId": session, "input": "run seq 3000" });
    peer.call("prompt", input);
    peer.call("waitForIdle", json!({ "sessionId": session }));
    let messages = peer.call("getMessages", json!({ "sessionId": session }));
    let results = messages["messages"].as_array().unwrap();
    let result = results.iter().find(|message| message["role"] == "toolResult").unwrap();
    assert!(result["content"].to_string().contains("The whole output is in"), "{result}");
    let Value::String(path) = &result["details"]["fullOutputPath"] else { panic!("{result}") };
    assert_eq!(fs::read_to_string(path).unwrap().lines().count(), 3_000);
    path.into()
}

#[test]
fn they_are_in_the_cache_and_go_with_their_session_and_their_daemon() {
    let home = Home::new();
    let mut daemon = home.daemon();
    let mut peer = home.connect();
    let main = long_output(&mut peer, "main");
    peer.call("createSession", json!({ "sessionId": "other", "cwd": home.work() }));
    let other = long_output(&mut peer, "other");
    assert!(main.starts_with(home.path("cache/agent-daemon/output")), "{}", main.display());
    assert_ne!(main.parent(), other.parent());
    for place in [&home.path("cache/agent-daemon/output"), main.parent().unwrap()] {
        assert_eq!(fs::metadata(place).unwrap().mode() & 0o777, 0o700);
    }
    peer.call("closeSession", json!({ "sessionId": "other" }));
    assert!(main.exists() && !other.parent().unwrap().exists());
    daemon.signal(Signal::TERM);
    daemon.exit();
    assert_eq!(fs::read_dir(home.path("cache/agent-daemon/output")).unwrap().count(), 0);
}

#[test]
fn what_a_killed_daemon_left_goes_when_the_next_one_begins() {
    let home = Home::new();
    let mut daemon = home.daemon();
    let left = long_output(&mut home.connect(), "main");
    daemon.signal(Signal::KILL);
    daemon.exit();
    assert!(left.exists());
    // One that lives keeps its own, whoever begins beside it.
    let living = home.daemon();
    let kept = long_output(&mut home.connect(), "main");
    eventually("the end of what was left", || (!left.exists()).then_some(()));
    let mut beside = home.stdio_daemon(&[]);
    // It lives as long as its input.
    let mut its_input = beside.peer();
    long_output(&mut its_input, "main");
    assert_eq!(daemons(&home).len(), 2);
    assert!(kept.exists());
    drop(living);
}
