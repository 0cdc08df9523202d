//! `agent-client` when what it depends on goes away: the connection, the daemon, whoever reads it;
//! and every way to reach a daemon (W7).

use std::{
    fs::{self, Permissions},
    io::{Read, Write},
    net::Shutdown,
    os::unix::{
        fs::PermissionsExt,
        net::{UnixListener, UnixStream},
    },
    path::Path,
    process::{Child, Output, Stdio},
    sync::mpsc::{Receiver, sync_channel},
};

use rustix::process::Signal;
use serde_json::Value;
use support::process::{Daemon, Home, ModelServer, PATIENCE, eventually, exit_of, finished};

fn begin(home: &Home, arguments: &[&str]) -> Child {
    let mut command = home.client_command(arguments);
    command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
}

fn client(home: &Home, arguments: &[&str]) -> (Option<i32>, String, String) {
    told(finished(&mut home.client_command(arguments)))
}

fn told(output: Output) -> (Option<i32>, String, String) {
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    (output.status.code(), text(output.stdout), text(output.stderr))
}

/// Stands between clients and a daemon. The first connection is cut when it has carried these words
/// to the client; those after it are left alone, and each is told.
fn cut_after(listener: UnixListener, daemon: &Path, words: &'static str) -> Receiver<()> {
    let daemon = daemon.to_owned();
    let (sender, connections) = sync_channel(16);
    std::thread::spawn(move || {
        for (number, client) in listener.incoming().enumerate() {
            let (client, daemon) = (client.unwrap(), UnixStream::connect(&daemon).unwrap());
            let up = (client.try_clone().unwrap(), daemon.try_clone().unwrap());
            std::thread::spawn(move || pass_on(up.0, up.1, None));
            let words = (number == 0).then_some(words);
            std::thread::spawn(move || pass_on(daemon, client, words));
            // The test may not care any more.
            let _ = sender.send(());
        }
    });
    connections
}

fn pass_on(mut from: UnixStream, mut to: UnixStream, cut_after: Option<&str>) {
    let mut passed = String::new();
    let mut bytes = [0; 4096];
    while let Ok(count @ 1..) = from.read(&mut bytes) {
        passed.push_str(&String::from_utf8_lossy(&bytes[..count]));
        if to.write_all(&bytes[..count]).is_err()
            || cut_after.is_some_and(|words| passed.contains(words))
        {
            break;
        }
    }
    // Both directions: whoever still waits for the other side is told.
    let _ = (from.shutdown(Shutdown::Both), to.shutdown(Shutdown::Both));
}

#[test]
fn a_prompt_whose_connection_breaks_goes_on_where_it_was() {
    let model = ModelServer::start();
    let home = Home::with_model(&model);
    let _daemon = home.daemon();
    let between = home.path("between.sock");
    let listener = UnixListener::bind(&between).unwrap();
    let connections = cut_after(listener, &home.socket(), "Once upon");
    let mut prompt = home.client_command(&["--socket", between.to_str().unwrap(), "prompt", "go"]);
    let prompt = std::thread::spawn(move || finished(&mut prompt));
    let mut call = model.call();
    call.begin();
    call.say("Once upon");
    (0..2).for_each(|_| connections.recv_timeout(PATIENCE).unwrap());
    call.say(" a time");
    call.say(".");
    call.end("stop");
    let (status, out, err) = told(prompt.join().unwrap());
    assert_eq!((status, out.as_str()), (Some(0), "Once upon a time.\n"), "{err}");
    assert!(err.contains("the connection is lost"), "{err}");
}

#[test]
fn a_prompt_whose_daemon_is_killed_says_so() {
    let model = ModelServer::start();
    let home = Home::with_model(&model);
    let mut daemon = home.daemon();
    let mut prompt = home.client_command(&["prompt", "go"]);
    let prompt = std::thread::spawn(move || finished(&mut prompt));
    let mut call = model.call();
    call.begin();
    call.say("Once upon");
    daemon.signal(Signal::KILL);
    daemon.exit();
    let (status, _, err) = told(prompt.join().unwrap());
    assert_eq!(status, Some(3), "{err}");
    assert!(err.contains("the daemon is gone, and run 1 with it"), "{err}");
}

#[test]
fn a_reader_who_has_seen_enough_ends_the_client_quietly() {
    let home = Home::new();
    let _daemon = home.daemon();
    assert_eq!(client(&home, &["prompt", "run seq 2000"]).0, Some(0));
    let mut messages = begin(&home, &["events", "--json", "--from", "0"]);
    let mut first = [0; 1];
    messages.stdout.take().unwrap().read_exact(&mut first).unwrap();
    assert_eq!(first, *b"{");
    // Its stdout is closed now; the next line finds out.
    assert_eq!(client(&home, &["prompt", "hello"]).0, Some(0));
    assert!(exit_of(&mut messages).success());
    let mut err = String::new();
    messages.stderr.take().unwrap().read_to_string(&mut err).unwrap();
    assert_eq!(err, "");
}

#[test]
fn refusals_have_a_text_for_people_and_an_object_for_programs() {
    let home = Home::new();
    let _daemon = home.daemon();
    let (status, out, err) = client(&home, &["steer", "x"]);
    assert_eq!((status, out.as_str()), (Some(14), ""));
    assert!(err.starts_with("agent-client: no run is active"), "{err}");
    let (status, out, err) = client(&home, &["--json", "steer", "x"]);
    assert_eq!((status, out.as_str()), (Some(14), ""));
    let object: Value = serde_json::from_str(&err).unwrap();
    assert_eq!(object["code"], 1002);
    assert_eq!(object["data"]["kind"], "notRunning");
    let (status, _, err) = client(&home, &["call", "getstate"]);
    assert_eq!(status, Some(1));
    assert!(err.contains("getSchema"), "{err}");
}

#[test]
fn the_answer_and_nothing_else_is_on_stdout() {
    let model = ModelServer::start();
    let home = Home::with_model(&model);
    let _daemon = home.daemon();
    let mut prompt = home.client_command(&["prompt", "-"]);
    prompt.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut prompt = prompt.spawn().unwrap();
    prompt.stdin.take().unwrap().write_all("what is in ‘a’?\n".as_bytes()).unwrap();
    std::fs::write(home.work().join("a"), "content\n").unwrap();
    let mut call = model.call();
    assert_eq!(call.transcript(), ["user: what is in ‘a’?"]);
    call.begin();
    call.say("I will look.");
    call.call_tool(0, "c1", "read", serde_json::json!({ "path": "a" }));
    call.end("tool_calls");
    model.call().answer("It is \u{1b}[31mred\u{1b}[0m.");
    let (status, out, err) = told(prompt.wait_with_output().unwrap());
    assert_eq!(status, Some(0));
    assert_eq!(out, "I will look.\nIt is ␛[31mred␛[0m.\n");
    assert_eq!(err, "● read a\n  content\n");
}

#[test]
fn a_daemon_can_be_reached_by_every_transport() {
    let home = Home::new();
    let socket = home.path("runtime/other.sock");
    let mut command = home.daemon_command(&["--listen", "tcp:127.0.0.1:0", "--listen"]);
    command.args(["ws:127.0.0.1:0", "--listen", &format!("unix:{}", socket.display())]);
    let mut daemon = Daemon::start(&mut command);
    let tcp = daemon.said_after("tcp:");
    let ws = format!("ws://{}", daemon.said_after("ws:"));
    eventually("the socket", || socket.exists().then_some(()));
    let command = format!("{} --stdio", support::process::binary("agent-daemon").display());
    let words = "prompt run echo hello";
    for place in [
        ["--tcp", &tcp],
        ["--ws", &ws],
        ["--socket", socket.to_str().unwrap()],
        ["--stdio", &command],
    ] {
        let mut arguments = place.to_vec();
        arguments.extend(words.splitn(2, ' '));
        let (status, out, err) = client(&home, &arguments);
        assert_eq!(status, Some(0), "{place:?}: {err}");
        assert!(out.contains("printed: “hello”"), "{place:?}: {out}");
    }
    let other = home.path("other-token");
    fs::write(&other, "0".repeat(64)).unwrap();
    let state = ["--tcp", &tcp, "--token-file", other.to_str().unwrap(), "state"];
    for (mode, because) in [(0o644, "chmod 600"), (0o600, "not authorised")] {
        fs::set_permissions(&other, Permissions::from_mode(mode)).unwrap();
        let (status, _, err) = client(&home, &state);
        assert_eq!(status, Some(3));
        assert!(err.contains(because), "{err}");
    }
}

#[test]
fn the_session_without_a_name_is_that_of_the_directory() {
    let home = Home::new();
    let _daemon = home.daemon();
    let projects = ["one", "two"].map(|name| home.work().join(name));
    for project in &projects {
        std::fs::create_dir(project).unwrap();
        let mut prompt = home.client_command(&["prompt", "list"]);
        assert!(finished(prompt.current_dir(project)).status.success());
    }
    let (_, out, _) = client(&home, &["sessions", "--json"]);
    let sessions: Value = serde_json::from_str(&out).unwrap();
    let told: Vec<_> = sessions["sessions"]
        .as_array()
        .unwrap()
        .iter()
        .map(|session| (session["cwd"].as_str().unwrap().to_owned(), session["messages"] == 4))
        .collect();
    let place = |path: &Path| path.canonicalize().unwrap().to_str().unwrap().to_owned();
    let expected =
        [(place(&home.work()), false), (place(&projects[0]), true), (place(&projects[1]), true)];
    assert_eq!(told, expected);
}
