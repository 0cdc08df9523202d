//! The Unix socket: many clients, one agent; start-up races; who gets in (W1 and W6).

use std::{
    fs::{self, OpenOptions, Permissions},
    io::Write,
    os::unix::{fs::FileTypeExt, fs::PermissionsExt, net::UnixListener},
    path::Path,
};

use expect_test::expect;
use serde_json::{Value, json};
use support::process::{
    Daemon, Home, ModelServer, Peer, binary, eventually, finished, needed, program, story,
};

/// Lets a `cat` of this pipe print a word and end.
fn release(home: &Home, pipe: &str, word: &str) {
    let mut pipe = OpenOptions::new().write(true).open(home.work().join(pipe)).unwrap();
    pipe.write_all(word.as_bytes()).unwrap();
}

fn make_pipes(home: &Home, names: &[&str]) {
    assert!(finished(home.command("mkfifo").args(names)).status.success());
}

/// Two tools that finish out of order, two steering messages meanwhile from another client, and a
/// second run that sees all of the first.
#[test]
fn two_clients_steer_one_run_while_its_tools_finish_out_of_order() {
    let model = ModelServer::start();
    let home = Home::with_model(&model);
    make_pipes(&home, &["a", "b"]);
    let mut daemon = home.daemon();
    let (mut first, mut second) = (home.connect(), home.connect());
    first.subscribe();
    second.subscribe();
    first.call("setConfig", json!({ "steeringMode": "all" }));
    first.frame("config_changed");
    second.frame("config_changed");

    first.call("prompt", json!({ "input": "Fix it." }));
    let mut call = model.call();
    call.begin();
    call.say("Both at once.");
    call.call_tool(0, "a", "bash", json!({ "command": "cat a" }));
    call.call_tool(1, "b", "bash", json!({ "command": "cat b" }));
    call.end("tool_calls");
    let mut seen = second.until("tool_start");
    seen.extend(second.until("tool_start"));

    release(&home, "b", "B is done");
    seen.extend(second.until("tool_end"));
    second.call("steer", json!({ "input": "Check the tests first." }));
    second.call("steer", json!({ "input": "Then update the notes." }));
    release(&home, "a", "A is done");

    let call = model.call();
    expect![[r#"
        [
            "user: Fix it.",
            "assistant: Both at once. [2 calls]",
            "tool: A is done",
            "tool: B is done",
            "user: Check the tests first.\nThen update the notes.",
        ]
    "#]]
    .assert_debug_eq(&call.transcript());
    call.answer("I will.");
    seen.extend(second.until("run_end"));
    expect![[r#"run_start turn_start message_start text_delta tool_call_delta message_end tool_start(a) tool_start(b) tool_end(b) queue_update(+steering) queue_update(+steering) tool_end(a) message_end(a) message_end(b) turn_end turn_start queue_update(-steering) message_end(steering) queue_update(-steering) message_end(steering) message_start text_delta message_end turn_end run_end(stop)"#]]
        .assert_eq(&story(&seen));

    second.call("prompt", json!({ "input": "What did you do?" }));
    let call = model.call();
    assert_eq!(call.transcript().len(), 7);
    assert_eq!(call.transcript()[5..], ["assistant: I will.", "user: What did you do?"]);
    call.answer("All of it.");
    first.call("waitForIdle", json!({}));
    second.call("waitForIdle", json!({}));
    let events = |peer: &Peer| -> Vec<Value> {
        peer.frames.iter().filter(|frame| frame["seq"].is_u64()).cloned().collect()
    };
    assert_eq!(events(&first), events(&second));
    daemon.signal(rustix::process::Signal::TERM);
    assert_eq!(daemon.exit().code(), Some(0));
}

/// They would use up 256 descriptors. What a tool starts gets no more than we were given.
#[test]
fn many_connections_leave_tools_what_they_need() {
    let home = Home::new();
    let mut limited = home.command("sh");
    limited.args(["-c", "ulimit -Sn 256; exec \"$0\""]).arg(binary("agent-daemon"));
    let mut daemon = Daemon::start(&mut limited);
    let mut peers: Vec<Peer> = (0..300).map(|_| home.connect()).collect();
    for peer in &mut peers {
        assert_eq!(peer.call("health", json!({}))["status"], "ok");
    }
    let mut peer = peers.pop().unwrap();
    peer.subscribe();
    peer.call("prompt", json!({ "input": "run ulimit -Sn" }));
    let end = peer.frame("tool_end");
    assert_eq!(end["result"]["content"][0]["text"], "256\n", "{end}");
    drop(peers);
    daemon.signal(rustix::process::Signal::TERM);
    assert_eq!(daemon.exit().code(), Some(0));
}

// W2.3
#[test]
fn a_client_that_leaves_takes_nothing_with_it() {
    let model = ModelServer::start();
    let home = Home::with_model(&model);
    let _daemon = home.daemon();
    let mut leaver = home.connect();
    leaver.subscribe();
    leaver.call("prompt", json!({ "input": "Count." }));
    let mut call = model.call();
    call.begin();
    call.say("one");
    leaver.frame("text_delta");
    drop(leaver);
    call.say(" two");
    call.end("stop");
    let mut other = home.connect();
    let idle = other.call("waitForIdle", json!({}));
    assert_eq!(idle["lastRun"]["reason"], "stop");
    let state = other.call("getState", json!({}));
    assert_eq!(state["state"]["messages"][1]["content"][0]["text"], "one two");
}

#[test]
fn exit_on_a_socket_ends_the_connection_and_not_the_daemon() {
    let home = Home::new();
    let _daemon = home.daemon();
    let mut peer = home.connect();
    assert!(peer.refused("shutdown", json!({})).starts_with("-32602"));
    peer.notify("exit", json!({}));
    peer.closed();
    assert_eq!(home.connect().call("health", json!({}))["status"], "ok");
}

// W2.4
#[test]
fn a_shutdown_is_told_to_every_subscriber() {
    let home = Home::new();
    let mut daemon = home.daemon();
    let (mut first, mut second) = (home.connect(), home.connect());
    second.subscribe();
    second.call("prompt", json!({ "input": "run sleep 1009" }));
    home.await_count("sleep 1009", 1);
    first.call("shutdown", json!({ "scope": "daemon" }));
    first.notify("exit", json!({}));
    assert_eq!(second.frame("run_end")["reason"], "aborted");
    assert!(second.frame("server_shutdown")["reason"].is_string());
    second.closed();
    assert_eq!(daemon.exit().code(), Some(0));
    home.await_count("sleep 1009", 0);
}

// W6.1
#[test]
fn the_socket_is_0600_in_a_directory_of_0700_and_goes_with_the_daemon() {
    let home = Home::new();
    let mut daemon = home.daemon();
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(&home.socket()), 0o600);
    assert_eq!(mode(home.socket().parent().unwrap()), 0o700);
    let mut peer = home.connect();
    assert_eq!(peer.call("shutdown", json!({ "scope": "daemon" })), Value::Null);
    peer.notify("exit", json!({}));
    assert_eq!(daemon.exit().code(), Some(0));
    assert!(!home.socket().exists());
}

// W6.1
#[test]
fn of_five_daemons_started_at_once_one_serves_and_the_others_name_it() {
    let home = Home::new();
    let mut daemons: Vec<Daemon> =
        (0..5).map(|_| Daemon::start(&mut home.daemon_command(&[]))).collect();
    let mut peer = home.connect();
    let pid = peer.initialize(None).unwrap()["serverInfo"]["pid"].clone();
    let is_serving = |daemon: &Daemon| json!(daemon.pid().as_raw_nonzero().get()) == pid;
    for daemon in daemons.iter_mut().filter(|daemon| !is_serving(daemon)) {
        assert!(!daemon.exit().success());
        eventually("its last words", || daemon.said().contains(&pid.to_string()).then_some(()));
    }
    assert_eq!(peer.call("health", json!({}))["status"], "ok");
    let serving = daemons.iter_mut().find(|daemon| is_serving(daemon)).unwrap();
    serving.signal(rustix::process::Signal::INT);
    assert_eq!(serving.exit().code(), Some(0));
}

#[test]
fn a_socket_that_nobody_answers_is_replaced() {
    let home = Home::new();
    let mut killed = home.daemon();
    killed.signal(rustix::process::Signal::KILL);
    killed.exit();
    assert!(home.socket().exists());
    let _daemon = home.daemon();
    assert_eq!(home.connect().call("health", json!({}))["status"], "ok");
}

#[test]
fn what_is_no_stale_socket_is_left_alone() {
    let home = Home::new();
    let private = home.socket().parent().unwrap().to_owned();
    fs::create_dir(&private).unwrap();
    fs::set_permissions(&private, Permissions::from_mode(0o700)).unwrap();
    let (file, directory, other) =
        (private.join("file"), private.join("directory"), private.join("other.sock"));
    fs::write(&file, "precious").unwrap();
    fs::create_dir(&directory).unwrap();
    let listener = UnixListener::bind(&other).unwrap();
    for path in [&file, &directory, &other] {
        let listen = format!("unix:{}", path.display());
        let output = finished(&mut home.daemon_command(&["--listen", &listen]));
        assert!(!output.status.success(), "{listen}");
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(said.contains(path.to_str().unwrap()), "{said}");
        assert!(output.stdout.is_empty());
    }
    assert_eq!(fs::read_dir(&private).unwrap().count(), 3, "no lock is left");
    assert_eq!(fs::read_to_string(&file).unwrap(), "precious");
    assert!(directory.is_dir());
    assert!(fs::symlink_metadata(&other).unwrap().file_type().is_socket());
    drop(listener);
}

/// Root may pass through any mode, so that only the check of the peer's user is left to stop it.
// W6.1
#[test]
fn another_user_is_turned_away() {
    let can_switch = match rustix::process::geteuid().is_root() {
        true => program("setpriv"),
        false => Err("only root can become somebody else".to_owned()),
    };
    let Some(setpriv) = needed("another user", can_switch) else { return };
    let home = Home::new();
    let nobody = "65534";
    // Somewhere that the other user can reach.
    let place = home.path("nobody");
    let programs = place.join("programs");
    fs::create_dir_all(&programs).unwrap();
    for name in ["agent-daemon", "agent-client"] {
        fs::copy(binary(name), programs.join(name)).unwrap();
    }
    fs::set_permissions(home.path(""), Permissions::from_mode(0o711)).unwrap();
    assert!(finished(home.command("chown").args(["-R", nobody]).arg(&place)).status.success());
    let socket = place.join("run/daemon.sock");
    let mut command = home.command(&setpriv);
    command
        .args(["--reuid", nobody, "--regid", nobody, "--clear-groups"])
        .arg(programs.join("agent-daemon"))
        .args(["--listen", &format!("unix:{}", socket.display())])
        .current_dir(&place);
    for name in ["HOME", "XDG_CONFIG_HOME", "XDG_STATE_HOME", "XDG_RUNTIME_DIR", "XDG_CACHE_HOME"] {
        command.env(name, &place);
    }
    let _daemon = Daemon::start(&mut command);
    let mut peer = eventually("the socket", || Peer::unix(&socket).ok());
    // It may be closed before we have said anything.
    peer.closed();
    assert_eq!(peer.text, "");

    // The same user gets in; so it was not for another reason.
    let mut command = home.command(setpriv);
    command.args(["--reuid", nobody, "--regid", nobody, "--clear-groups"]);
    command.arg(programs.join("agent-client")).current_dir("/");
    command.args(["--no-start", "--socket", socket.to_str().unwrap(), "call", "health"]);
    let output = finished(&mut command);
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(said.contains("\"ok\""), "{said}{}", String::from_utf8_lossy(&output.stderr));
}
