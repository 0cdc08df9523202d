//! How a daemon begins and ends: whoever leaves, hangs or started it (W2).

use std::{
    fs::{self, Permissions},
    io::{BufRead, BufReader, Write},
    os::unix::{fs::PermissionsExt, net::UnixStream},
    path::{Path, PathBuf},
    process::Command,
    time::{Duration, Instant},
};

use rustix::process::Pid;
use serde_json::json;
use support::process::{Daemon, Home, Peer, binary, eventually, finished, needed, program};

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
    // Not a peer, whose reading thread would keep the connection.
    let mut caller = UnixStream::connect(home.socket()).unwrap();
    let call =
        json!({ "jsonrpc": "2.0", "id": 1, "method": "shutdown", "params": { "scope": "daemon" } });
    let health = json!({ "jsonrpc": "2.0", "id": 2, "method": "health" });
    writeln!(caller, "{call}\n{health}").unwrap();
    // Only once it was accepted.
    let mut answer = String::new();
    BufReader::new(caller).read_line(&mut answer).unwrap();
    assert!(answer.contains("shuttingDown"), "{answer}");
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
    let mut daemon = Daemon::start(command.args(["--listen", "ws:127.0.0.1:0"]));
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
    assert!(text.contains("`agent-client shutdown` ends it"), "{text}");
    home.shut_down();
}

/// What `/proc` says of a process: its directory, where we may look, and its session.
fn place_of(pid: Pid) -> (Option<PathBuf>, i32) {
    let process = Path::new("/proc").join(pid.as_raw_nonzero().to_string());
    let stat = fs::read_to_string(process.join("stat")).unwrap();
    let session = stat.rsplit_once(") ").unwrap().1.split(' ').nth(3).unwrap();
    (fs::read_link(process.join("cwd")).ok(), session.parse().unwrap())
}

#[test]
fn a_daemon_that_a_client_starts_keeps_nothing_of_its_starter() {
    let home = Home::new();
    home.configure("model = \"offline/demo\"\n");
    fs::rename(home.path("config/agent-daemon/config.toml"), home.work().join("own.toml")).unwrap();
    let lock = home.path("lock");
    let mut starter = home.command("sh");
    // The pipe of `finished` is the shell's descriptor 8 as well, and would never end.
    starter.args(["-c", "exec 8>&1 9>>\"$1\"; flock 9 && \"$0\" call health"]);
    starter.arg(binary("agent-client")).arg(&lock).env("AGENT_DAEMON_CONFIG", "own.toml");
    let (status, text) = said(&mut starter);
    assert_eq!(status, Some(0), "{text}");
    let file = fs::File::open(&lock).unwrap();
    assert!(file.try_lock().is_ok(), "the starter's lock is still held");

    let mut peer = home.connect();
    let pid = peer.initialize(None).unwrap()["serverInfo"]["pid"].as_i64().unwrap();
    let (directory, session) = place_of(Pid::from_raw(pid as i32).unwrap());
    assert!(directory.is_none_or(|directory| directory == Path::new("/")));
    assert_eq!(i64::from(session), pid);
    // Its default session is where it was started all the same.
    let work = home.work().canonicalize().unwrap();
    assert_eq!(peer.call("listSessions", json!({}))["sessions"][0]["cwd"], work.to_str().unwrap());
    home.shut_down();
}

#[test]
fn commands_do_not_get_what_the_daemon_was_started_with() {
    let home = Home::new();
    let precious = home.path("precious");
    let mut starter = home.command("sh");
    starter.args(["-c", "exec 9>>\"$1\"; exec \"$0\" --stdio"]);
    let mut daemon = Daemon::start(starter.arg(binary("agent-daemon")).arg(&precious));
    let mut peer = daemon.peer();
    peer.subscribe();
    peer.call("prompt", json!({ "input": "run ls -l /proc/self/fd /proc/$PPID/fd" }));
    let end = peer.frame("tool_end").to_string();
    assert!(end.contains("/proc/self/fd"), "{end}");
    assert!(!end.contains("precious"), "{end}");
}

#[test]
fn a_daemon_is_started_from_a_directory_that_is_gone() {
    let home = Home::new();
    let mut starter = home.command("sh");
    starter.args(["-c", "mkdir gone && cd gone && rmdir ../gone && \"$0\" call health"]);
    let (status, text) = said(starter.arg(binary("agent-client")));
    assert_eq!(status, Some(0), "{text}");
    home.shut_down();
}

/// A user of whom the machine knows nothing, with copies of the programs.
struct Stranger<'a> {
    home: &'a Home,
    setpriv: PathBuf,
    user: String,
}

impl<'a> Stranger<'a> {
    /// None where nobody else can be played.
    fn new(home: &'a Home) -> Option<Self> {
        let can_switch = match rustix::process::geteuid().is_root() {
            true => program("setpriv"),
            false => Err("only root can become somebody else".to_owned()),
        };
        let setpriv = needed("another user", can_switch)?;
        let user = (3_000_000_000 + u64::from(std::process::id())).to_string();
        let stranger = Stranger { home, setpriv, user };
        fs::create_dir_all(stranger.long_home()).unwrap();
        for name in ["agent-daemon", "agent-client"] {
            fs::copy(binary(name), home.path("place").join(name)).unwrap();
        }
        fs::set_permissions(home.path(""), Permissions::from_mode(0o711)).unwrap();
        let mut chown = home.command("chown");
        let owned = finished(chown.args(["-R", &stranger.user]).arg(home.path("place")));
        assert!(owned.status.success());
        Some(stranger)
    }

    fn long_home(&self) -> PathBuf {
        self.home.path("place").join("h".repeat(150))
    }

    /// Where the socket is, for want of anything better.
    fn last_resort(&self) -> PathBuf {
        Path::new("/tmp").join(format!("agent-daemon-{}", self.user))
    }

    fn client(&self, arguments: &[&str]) -> Command {
        let mut command = self.home.command(&self.setpriv);
        command.args(["--reuid", &self.user, "--regid", &self.user, "--clear-groups"]);
        command.arg(self.home.path("place/agent-client")).args(arguments);
        for name in ["CONFIG_HOME", "STATE_HOME", "DATA_HOME", "CACHE_HOME", "RUNTIME_DIR"] {
            command.env_remove(format!("XDG_{name}"));
        }
        command.env("HOME", self.long_home()).current_dir("/");
        command
    }
}

impl Drop for Stranger<'_> {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(self.last_resort());
    }
}

// W6.2
#[test]
fn without_a_runtime_directory_and_below_a_long_home_all_find_one_daemon() {
    let home = Home::new();
    let Some(stranger) = Stranger::new(&home) else { return };
    let (status, text) = said(&mut stranger.client(&["call", "health"]));
    assert_eq!(status, Some(0), "{text}");
    let directory = stranger.last_resort();
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!((mode(&directory), mode(&directory.join("daemon.sock"))), (0o700, 0o600));
    let log = stranger.long_home().join(".local/state/agent-daemon/daemon.log");
    assert!(fs::read_to_string(log).unwrap().contains("listening on unix:/tmp/agent-daemon-"));
    // One that is too long, another user's, gone.
    let long = home.path("place").join("h".repeat(150));
    for variable in [long, "/".into(), "/nowhere".into()] {
        let mut client = stranger.client(&["--no-start", "call", "health"]);
        let (status, text) = said(client.env("XDG_RUNTIME_DIR", &variable));
        assert_eq!(status, Some(0), "{variable:?}: {text}");
    }
    assert_eq!(said(&mut stranger.client(&["shutdown"])).0, Some(0));

    fs::set_permissions(&directory, Permissions::from_mode(0o755)).unwrap();
    let (status, text) = said(&mut stranger.client(&["call", "health"]));
    assert_eq!(status, Some(3), "{text}");
    assert!(text.contains("its mode is 755, not 700"), "{text}");
}

#[test]
fn a_socket_path_that_is_too_long_is_told_with_the_limit() {
    let home = Home::new();
    let socket = home.path("s".repeat(110)).display().to_string();
    let listen = format!("unix:{socket}");
    for command in [
        &mut home.client_command(&["--socket", &socket, "call", "health"]),
        &mut home.daemon_command(&["--listen", &listen]),
    ] {
        let (status, text) = said(command);
        assert_eq!(status, Some(2), "{text}");
        assert!(text.contains("at most 107 bytes") && text.contains(&socket), "{text}");
    }
}

#[test]
fn each_socket_s_daemon_has_a_log_with_the_state() {
    let home = Home::new();
    let other = home.path("other.sock").display().to_string();
    for socket in [&home.socket().display().to_string(), &other] {
        let (status, text) =
            said(&mut home.client_command(&["--socket", socket, "call", "health"]));
        assert_eq!(status, Some(0), "{text}");
    }
    let logs = home.path("state/agent-daemon");
    let second = format!("daemon-{}.log", other.trim_start_matches('/').replace('/', "%"));
    for (name, socket) in [("daemon.log", home.socket()), (&second, other.clone().into())] {
        let path = logs.join(name);
        let text = fs::read_to_string(&path).unwrap();
        assert!(text.contains(&format!("listening on unix:{}", socket.display())), "{text}");
        assert_eq!(text.matches("listening on").count(), 1, "{text}");
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    }
    assert_eq!(said(&mut home.client_command(&["--socket", &other, "shutdown"])).0, Some(0));
    home.shut_down();
}

#[test]
fn a_log_makes_room_for_a_new_one_while_the_daemon_runs() {
    let home = Home::new();
    assert_eq!(said(&mut home.client_command(&["call", "health"])).0, Some(0));
    let log = home.path("state/agent-daemon/daemon.log");
    fs::OpenOptions::new().write(true).open(&log).unwrap().set_len(9 << 20).unwrap();
    assert_eq!(said(&mut home.client_command(&["call", "health"])).0, Some(0));
    eventually("a line in the new log", || {
        let text = fs::read_to_string(&log).ok().filter(|text| text.len() < 1 << 20)?;
        text.contains("client introduced itself").then_some(())
    });
    assert!(fs::metadata(log.with_extension("log.old")).unwrap().len() >= 9 << 20);
    home.shut_down();
}

/// The state's place cannot be made, since a file is in the way.
#[test]
fn a_daemon_without_a_place_for_its_state_has_its_log_beside_the_socket() {
    let home = Home::new();
    fs::remove_dir(home.path("state")).unwrap();
    fs::write(home.path("state"), "").unwrap();
    let (status, text) = said(&mut home.client_command(&["call", "health"]));
    assert_eq!(status, Some(0), "{text}");
    assert!(home.socket().with_file_name("daemon.log").exists());
    home.shut_down();
}
