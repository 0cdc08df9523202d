//! `agent-daemon`'s command line: what it prints, logs and refuses (W8).

use std::fs;

use serde_json::Value;
use support::process::{Home, finished};

#[test]
fn what_cannot_work_is_said_before_anything_starts() {
    let home = Home::new();
    fs::write(home.work().join("typo.toml"), "modle = 'far/m'\n").unwrap();
    let cases: &[(&[&str], &[&str])] = &[
        (&["--stdio", "--config", "typo.toml"], &["typo.toml:1: `modle`: unknown field"]),
        (&["--stdio", "--config", "none.toml"], &["none.toml", "No such file"]),
        (&["--listen", "tcp:8.8.8.8:1"], &["--allow-remote"]),
        (&["--listen", "tcp:0.0.0.0:0"], &["--allow-remote"]),
        (&["--listen", "ws:[::]:0"], &["--allow-remote"]),
        (&["--fly"], &["--fly"]),
    ];
    for (arguments, parts) in cases {
        let output = finished(&mut home.daemon_command(arguments));
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {said}");
        assert!(parts.iter().all(|part| said.contains(part)), "{arguments:?}: {said}");
        assert!(output.stdout.is_empty(), "{arguments:?}");
    }
}

#[test]
fn the_log_can_be_json_and_never_goes_to_stdout() {
    let home = Home::new();
    let arguments = ["--stdio", "--log-format", "json", "--log-level", "debug"];
    let output = finished(&mut home.daemon_command(&arguments));
    assert!(output.status.success());
    assert!(output.stdout.is_empty());
    let log = String::from_utf8(output.stderr).unwrap();
    assert!(log.lines().count() > 1);
    for line in log.lines() {
        let entry: Value = serde_json::from_str(line).unwrap();
        assert!(entry["fields"]["message"].is_string(), "{line}");
    }
}

#[test]
fn the_schema_and_the_version_are_printed() {
    let home = Home::new();
    let printed = |argument| finished(&mut home.daemon_command(&[argument])).stdout;
    let schema: Value = serde_json::from_slice(&printed("schema")).unwrap();
    assert_eq!(schema["protocolVersion"], 1);
    let version = concat!("agent-daemon ", env!("CARGO_PKG_VERSION"), "\n");
    assert_eq!(String::from_utf8(printed("--version")).unwrap(), version);
}
