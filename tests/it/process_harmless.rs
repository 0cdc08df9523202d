//! Whatever people, models, tools and files are called or say: no terminal obeys it.

use std::{
    fs,
    process::{Command, Output, Stdio},
};

use serde_json::{Value, json};
use support::process::{Daemon, Home, eventually, finished};

/// A colour, a title, a C1 control sequence, a reading direction, a deletion and two marks.
const HOSTILE: &str =
    "a\u{1b}[31mb\u{1b}]0;t\u{7}c\u{9b}32md\u{202e}e\u{2066}f\u{7f}g\u{200f}\u{61c}";

/// What the name is made of and what a terminal would obey or be turned around by.
fn is_harmful(letter: char) -> bool {
    let turns = "\u{61c}\u{200e}\u{200f}\u{202a}\u{202b}\u{202c}\u{202d}\u{202e}\u{2066}\u{2067}\u{2068}\u{2069}";
    (letter.is_control() && !matches!(letter, '\n' | '\t')) || turns.contains(letter)
}

#[track_caller]
fn is_harmless(text: &str, whose: &str) {
    let found: Vec<_> = text.matches(is_harmful).map(|found| format!("{found:?}")).collect();
    assert!(found.is_empty(), "{whose} wrote {found:?} in {text:?}");
}

/// Runs it and looks at both of its streams.
fn check(command: &mut Command) -> (Output, String, String) {
    let output = finished(command);
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
    let (out, err) = (text(&output.stdout), text(&output.stderr));
    is_harmless(&out, &format!("{command:?} on stdout"));
    is_harmless(&err, &format!("{command:?} on stderr"));
    (output, out, err)
}

#[test]
fn a_hostile_name_is_shown_by_neither_program() {
    let home = Home::new();
    let file = home.path(HOSTILE);
    fs::write(&file, "x = \"\u{9b}\"\n").unwrap();
    let file = file.to_str().unwrap();
    let unix = format!("unix:{file}/x.sock");
    for arguments in [
        &["--config", file][..],
        &["--config", &format!("{file}.none")],
        &["--stdio", "--cwd", file],
        &["--log-level", HOSTILE],
        &["--listen", HOSTILE],
        &["--listen", &unix],
        &["--token-file", file, "--listen", "tcp:127.0.0.1:0"],
        &[HOSTILE],
        &[&format!("--{HOSTILE}")],
    ] {
        let (output, _, err) = check(&mut home.daemon_command(arguments));
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {err}");
    }
    for model in [HOSTILE, &format!("{HOSTILE}/{HOSTILE}")] {
        let (output, _, err) = check(&mut home.daemon_command(&["--stdio", "--model", model]));
        assert_eq!(output.status.code(), Some(0), "{err}");
        assert!(err.contains("is not available"), "{err}");
    }
    let _daemon = home.daemon();
    for (arguments, status) in [
        (&["--no-start", "--socket", file, "state"][..], 3),
        (&["--no-start", "--socket", &format!("{file}.none"), "state"], 3),
        (&["--tcp", HOSTILE, "state"], 3),
        (&["--ws", HOSTILE, "state"], 3),
        (&["--ws", &format!("ws://{HOSTILE}"), "state"], 3),
        (&["--tcp", "127.0.0.1:1", "--token-file", file, "state"], 3),
        (&["--session", HOSTILE, "state"], 1),
        (&["--session", HOSTILE, "--json", "state"], 1),
        (&["call", HOSTILE], 1),
        (&["call", HOSTILE, "--json"], 1),
        (&["call", "health", HOSTILE], 2),
        (&["config", HOSTILE], 2),
        (&["config", &format!("{HOSTILE}=1")], 1),
        (&["config", &format!("model={HOSTILE}")], 1),
        (&["config", &format!("tools={HOSTILE}")], 1),
        (&["new", "one", "--cwd", &format!("{file}.none")], 1),
        (&["new", "one", "--model", HOSTILE], 1),
        (&["prompt", "--image", file, "x"], 2),
        (&["prompt", "--image", &format!("{file}.none"), "x"], 2),
        (&["wait-for-idle", "--timeout", HOSTILE], 2),
        (&["events", "--from", HOSTILE], 2),
        (&[HOSTILE], 2),
        (&[&format!("--{HOSTILE}")], 2),
    ] {
        let (output, _, err) = check(&mut home.client_command(arguments));
        assert_eq!(output.status.code(), Some(status), "{arguments:?}: {err}");
        assert!(!err.is_empty(), "{arguments:?}");
    }
}

#[test]
fn a_hostile_directory_shows_in_no_list_and_no_log() {
    let home = Home::new();
    let place = home.work().join(format!("two\n2026-01-01T00:00:00Z ERROR forged: {HOSTILE}"));
    fs::create_dir(&place).unwrap();
    for format in ["text", "json"] {
        let mut command = home.daemon_command(&["--log-format", format, "--log-level", "trace"]);
        let mut daemon = Daemon::start(&mut command);
        let mut peer = home.connect();
        let cwd = place.to_str().unwrap();
        peer.call("createSession", json!({ "sessionId": "one", "cwd": cwd }));
        peer.call(
            "initialize",
            json!({ "protocolVersion": 1, "clientInfo": { "name": HOSTILE, "version": HOSTILE } }),
        );
        peer.refused("getState", json!({ "sessionId": format!("{HOSTILE}?") }));
        peer.refused(HOSTILE, json!({}));
        let (_, out, _) = check(&mut home.client_command(&["sessions"]));
        assert!(out.contains("forged"), "{out}");
        check(home.client_command(&["state"]).current_dir(&place));
        let (_, out, _) = check(&mut home.client_command(&["sessions", "--json"]));
        // What is escaped is the same all the same.
        assert!(out.contains("\\u009b"), "{out}");
        let sessions: Value = serde_json::from_str(&out).unwrap();
        assert!(sessions.to_string().contains(&json!(cwd).to_string()), "{out}");
        check(&mut home.client_command(&["--session", "one", "close"]));
        drop(peer);
        check(&mut home.client_command(&["shutdown"]));
        assert!(daemon.exit().success());
        let log = daemon.said();
        assert!(log.contains("session created") && log.contains("forged"), "{log}");
        is_harmless(&log, "the log");
        for line in log.lines() {
            assert!(!line.starts_with("2026-01-01"), "a line was forged: {line}");
        }
    }
}

#[test]
fn what_a_run_brings_is_shown_and_not_obeyed() {
    let home = Home::new();
    let _daemon = home.daemon();
    fs::write(home.work().join("hostile"), format!("{HOSTILE}\n")).unwrap();
    // The one shows a result as it is, the other an error that quotes a name.
    let prompt = format!("read hostile and read {HOSTILE}");
    let (output, out, err) = check(&mut home.client_command(&["prompt", &prompt]));
    assert!(output.status.success(), "{err}");
    assert!(format!("{out}{err}").contains("<U+009B>"), "{out}{err}");
    let (_, json, _) = check(&mut home.client_command(&["--json", "prompt", &prompt]));
    let lines: Vec<Value> = json.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let text = format!("{HOSTILE}\n");
    assert!(lines.iter().any(|line| line["result"]["content"][0]["text"] == text), "{json}");
    for arguments in [&["messages"][..], &["messages", "--json"], &["state", "--json"]] {
        let (_, out, _) = check(&mut home.client_command(arguments));
        assert!(out.contains('g'), "{out}");
    }
    // Whoever follows sees the same.
    let mut follow = home.client_command(&["events", "--from", "0"]);
    let mut follow = follow.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    eventually("the events", || {
        let mut peer = home.connect();
        peer.call("shutdown", json!({ "scope": "daemon" }));
        drop(peer);
        Some(())
    });
    support::process::exit_of(&mut follow);
    let output = follow.wait_with_output().unwrap();
    let shown = [output.stdout, output.stderr].concat();
    is_harmless(&String::from_utf8(shown).unwrap(), "events");
}
