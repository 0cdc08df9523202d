//! `agent-client` as a person uses it: Ctrl-C, two terminals, exit statuses (W7).

use std::{
    process::{Child, Stdio},
    time::Duration,
};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use support::process::{Daemon, Home, ModelServer, Peer, binary, eventually, exit_of, finished};

/// Starts a client and leaves it alone.
fn begin(home: &Home, arguments: &[&str]) -> Child {
    let mut command = home.client_command(arguments);
    command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
}

fn interrupt(client: &Child) {
    kill_process(Pid::from_child(client), Signal::INT).unwrap();
}

/// Status and output of a client that ends by itself.
fn client(home: &Home, arguments: &[&str]) -> (Option<i32>, String, String) {
    let output = finished(&mut home.client_command(arguments));
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    (output.status.code(), text(output.stdout), text(output.stderr))
}

#[test]
fn the_first_prompt_on_a_fresh_machine_starts_a_daemon_and_works_with_real_tools() {
    let home = Home::new();
    std::fs::write(home.work().join("README.md"), "# A title\n").unwrap();
    let (status, out, err) = client(&home, &["prompt", "read README.md and run ls"]);
    assert_eq!(status, Some(0), "{err}");
    for words in ["offline demo", "README.md", "# A title", "ls"] {
        assert!(format!("{out}{err}").contains(words), "{words}:\n{out}\n{err}");
    }
    let (status, out, _) = client(&home, &["state", "--json"]);
    assert_eq!(status, Some(0));
    let state: Value = serde_json::from_str(out.trim()).unwrap();
    assert_eq!(state["state"]["messages"].as_array().unwrap().len(), 5);
    home.shut_down();
}

#[test]
fn ctrl_c_while_the_model_speaks_closes_its_connection_at_once() {
    let model = ModelServer::start();
    let home = Home::with_model(&model);
    let _daemon = home.daemon();
    let mut prompt = begin(&home, &["prompt", "Tell me a story."]);
    let mut call = model.call();
    call.begin();
    call.say("Once upon");
    await_partial(&mut home.connect(), "Once upon");
    interrupt(&prompt);
    let time = call.closed();
    assert!(time < Duration::from_secs(2), "it took {time:?}");
    assert_eq!(exit_of(&mut prompt).code(), Some(11));

    let mut next = begin(&home, &["prompt", "Go on."]);
    let call = model.call();
    assert_eq!(
        call.transcript(),
        ["user: Tell me a story.", "assistant: Once upon", "user: Go on."]
    );
    call.answer("a time.");
    assert_eq!(exit_of(&mut next).code(), Some(0));
}

/// Waits until a session has this much of an answer; which one is the client's to know.
fn await_partial(peer: &mut Peer, text: &str) {
    eventually("some of the answer", || {
        let sessions = peer.call("listSessions", json!({}));
        sessions["sessions"].as_array().unwrap().iter().find_map(|session| {
            let state = peer.call("getState", json!({ "sessionId": session["sessionId"] }));
            (state["state"]["partial"]["content"][0]["text"] == text).then_some(())
        })
    });
}

#[test]
fn ctrl_c_while_a_command_runs_kills_it_and_the_next_prompt_works() {
    let home = Home::new();
    let _daemon = home.daemon();
    let mut prompt = begin(&home, &["prompt", "run sleep 1005 & sleep 1006"]);
    home.await_count("sleep 1005", 1);
    home.await_count("sleep 1006", 1);
    interrupt(&prompt);
    assert_eq!(exit_of(&mut prompt).code(), Some(11));
    home.await_count("sleep 1005", 0);
    home.await_count("sleep 1006", 0);
    let (status, out, err) = client(&home, &["prompt", "run echo still here"]);
    assert_eq!(status, Some(0), "{err}");
    assert!(out.contains("still here"), "{out}");
}

#[test]
fn ctrl_c_twice_leaves_though_the_daemon_says_nothing() {
    let home = Home::new();
    let daemon = home.daemon();
    let mut prompt = begin(&home, &["prompt", "run sleep 1007"]);
    home.await_count("sleep 1007", 1);
    daemon.signal(Signal::STOP);
    // Two that come too close are one to the system.
    let status = eventually("the client's end", || {
        interrupt(&prompt);
        prompt.try_wait().unwrap()
    });
    assert_eq!(status.code(), Some(11));
    daemon.signal(Signal::CONT);
    home.await_count("sleep 1007", 0);
}

#[test]
fn an_abort_from_a_second_terminal_is_exit_status_11_in_the_first() {
    let home = Home::new();
    let _daemon = home.daemon();
    let mut prompt = begin(&home, &["prompt", "run sleep 1008"]);
    home.await_count("sleep 1008", 1);
    assert_eq!(client(&home, &["abort"]).0, Some(0));
    assert_eq!(exit_of(&mut prompt).code(), Some(11));
    home.await_count("sleep 1008", 0);
}

#[test]
fn every_transport_leads_to_a_daemon() {
    let home = Home::new();
    let mut command = home.daemon_command(&["--listen", "tcp:127.0.0.1:0"]);
    let mut daemon = Daemon::start(command.args(["--listen", "ws:127.0.0.1:0"]));
    let (tcp, ws) = (daemon.said_after("tcp:"), format!("ws://{}", daemon.said_after("ws:")));
    let stdio = format!("{} --stdio", binary("agent-daemon").display());
    for to in [["--tcp", &tcp], ["--ws", &ws], ["--stdio", &stdio]] {
        let (status, out, err) = client(&home, &[&to[..], &["prompt", "run echo hello"]].concat());
        assert_eq!(status, Some(0), "{to:?}: {err}");
        assert!(out.contains("hello"), "{to:?}: {out}");
    }
    let other = home.path("other-token");
    std::fs::write(&other, "0".repeat(64)).unwrap();
    let token = ["--token-file", other.to_str().unwrap()];
    let (status, _, err) = client(&home, &[&["--tcp", &tcp], &token[..], &["state"]].concat());
    assert_eq!(status, Some(3), "{err}");
}

#[test]
fn a_second_terminal_steers_follows_up_and_waits() {
    let home = Home::new();
    let _daemon = home.daemon();
    let mut prompt = begin(&home, &["prompt", "run mkfifo gate; cat gate"]);
    home.await_count("cat gate", 1);
    assert_eq!(client(&home, &["prompt", "me, too"]).0, Some(13));
    assert_eq!(client(&home, &["steer", "run echo steered"]).0, Some(0));
    assert_eq!(client(&home, &["follow-up", "run echo followed"]).0, Some(0));
    assert_eq!(client(&home, &["wait-for-idle", "--timeout", "0.1"]).0, Some(124));
    let mut waiting = begin(&home, &["wait-for-idle"]);
    std::fs::write(home.work().join("gate"), "open\n").unwrap();
    assert_eq!(exit_of(&mut prompt).code(), Some(0));
    assert_eq!(exit_of(&mut waiting).code(), Some(0));
    let (_, out, _) = client(&home, &["messages"]);
    let place = |word| out.find(word).unwrap_or_else(|| panic!("no {word} in {out}"));
    assert!(place("open") < place("steered") && place("steered") < place("followed"));
    assert_eq!(client(&home, &["steer", "too late"]).0, Some(14));
    assert_eq!(client(&home, &["abort"]).0, Some(0));
}

#[test]
fn json_is_the_run_s_events_from_its_start_to_its_end() {
    let home = Home::new();
    let _daemon = home.daemon();
    let (status, out, _) = client(&home, &["--json", "prompt", "run echo hello"]);
    assert_eq!(status, Some(0));
    let lines: Vec<Value> = out.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(lines.first().unwrap()["type"], "run_start");
    assert_eq!(lines.last().unwrap()["type"], "run_end");
}

#[test]
fn five_first_prompts_at_once_make_one_daemon() {
    let home = Home::new();
    let mut clients: Vec<Child> = (0..5).map(|_| begin(&home, &["models"])).collect();
    for client in &mut clients {
        assert_eq!(exit_of(client).code(), Some(0));
    }
    support::process::eventually("the losers' end", || (home.processes().len() == 1).then_some(()));
    home.shut_down();
}

#[test]
fn a_daemon_that_cannot_start_or_is_not_to_be_started_is_exit_status_3() {
    let home = Home::new();
    assert_eq!(client(&home, &["--no-start", "state"]).0, Some(3));
    home.configure("modle = \"offline/demo\"\n");
    let (status, _, err) = client(&home, &["models"]);
    assert_eq!(status, Some(3), "{err}");
    assert!(err.contains("modle"), "{err}");
}

#[test]
fn a_model_that_fails_is_told_and_is_exit_status_10() {
    let home = Home::new();
    // Nobody listens there, and nobody will: the port is reserved.
    home.configure(
        "model = \"dead/m\"\n[retry]\nmax_retries = 0\n[providers.dead]\n\
         api = \"openai-completions\"\nbase_url = \"http://127.0.0.1:1/v1\"\n\
         models = [{ id = \"m\" }]\n",
    );
    let _daemon = home.daemon();
    let (status, out, err) = client(&home, &["prompt", "hello"]);
    assert_eq!(status, Some(10));
    assert!(format!("{out}{err}").contains("127.0.0.1:1"), "{out}{err}");
}
