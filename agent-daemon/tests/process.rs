//! The program itself: its command line, its sockets, its life and its exit status.

#![allow(clippy::unwrap_used)]

use std::{
    io::{BufRead, BufReader, Read, Write},
    net::TcpStream,
    os::unix::net::UnixStream,
    path::{Path, PathBuf},
    process::{Child, ChildStdin, ChildStdout, Command, ExitStatus, Output, Stdio},
    time::{Duration, Instant},
};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use tempfile::TempDir;

/// Longer than anything takes; a test that waits so long has failed.
const PATIENCE: Duration = Duration::from_secs(30);

/// A user's own directory, so that no test sees another's files.
struct Home(TempDir);

impl Home {
    fn new() -> Self {
        Home(tempfile::tempdir().unwrap())
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_agent-daemon"));
        command
            .args(arguments)
            .env_clear()
            .env("PATH", "/usr/local/bin:/usr/bin:/bin")
            .env("HOME", self.0.path())
            .current_dir(self.0.path())
            .stdin(Stdio::null());
        command
    }

    /// Runs it to its end.
    fn run(&self, arguments: &[&str]) -> Output {
        self.command(arguments).output().unwrap()
    }

    fn start(&self, arguments: &[&str]) -> Daemon {
        let mut process = self
            .command(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let output = BufReader::new(process.stdout.take().unwrap());
        Daemon { input: process.stdin.take(), output: Some(output), process, last_id: 0 }
    }

    /// Starts it on a socket, waits until it listens, and tells where.
    fn listen_at(&self, arguments: &[&str]) -> (Daemon, String) {
        let mut daemon = self.start(arguments);
        let mut stderr = BufReader::new(daemon.process.stderr.take().unwrap());
        let mut line = String::new();
        while !line.contains("listening on") {
            line.clear();
            assert_ne!(stderr.read_line(&mut line).unwrap(), 0, "it ended");
        }
        // Read on, or the daemon's log would be dropped.
        std::thread::spawn(move || std::io::copy(&mut stderr, &mut std::io::sink()));
        (daemon, line.trim_end().rsplit(' ').next().unwrap().to_owned())
    }

    fn listen(&self, arguments: &[&str]) -> Daemon {
        self.listen_at(arguments).0
    }
}

/// A daemon's process, and its stdin and stdout.
struct Daemon {
    process: Child,
    input: Option<ChildStdin>,
    output: Option<BufReader<ChildStdout>>,
    last_id: u64,
}

impl Daemon {
    fn ask(&mut self, method: &str, params: Value) -> Value {
        self.last_id += 1;
        let input = self.input.as_mut().unwrap();
        ask(input, self.output.as_mut().unwrap(), self.last_id, method, params)
    }

    fn tell(&mut self, method: &str) {
        let input = self.input.as_mut().unwrap();
        writeln!(input, "{}", json!({ "jsonrpc": "2.0", "method": method })).unwrap();
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.process), signal).unwrap();
    }

    fn end(&mut self) -> ExitStatus {
        let begin = Instant::now();
        while begin.elapsed() < PATIENCE {
            if let Some(status) = self.process.try_wait().unwrap() {
                return status;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        panic!("it does not end");
    }

    /// The next frame of that type.
    fn frame_of(&mut self, kind: &str) -> Value {
        let output = self.output.as_mut().unwrap();
        loop {
            let message = read(output).unwrap_or_else(|| panic!("closed before {kind}"));
            if message["params"]["result"]["type"] == kind {
                return message["params"]["result"].clone();
            }
        }
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn read(output: &mut impl BufRead) -> Option<Value> {
    let mut line = String::new();
    output.read_line(&mut line).unwrap();
    (!line.is_empty()).then(|| serde_json::from_str(&line).unwrap())
}

fn ask(
    input: &mut impl Write,
    output: &mut impl BufRead,
    id: u64,
    method: &str,
    params: Value,
) -> Value {
    let call = json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params });
    writeln!(input, "{call}").unwrap();
    loop {
        let mut message = read(output).unwrap_or_else(|| panic!("closed before {method}"));
        if message["id"] == id {
            assert!(message["error"].is_null(), "{method}: {message}");
            return message["result"].take();
        }
    }
}

/// A client on the socket.
fn connect(path: &Path) -> (UnixStream, BufReader<UnixStream>) {
    let stream = UnixStream::connect(path).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    (stream.try_clone().unwrap(), BufReader::new(stream))
}

/// Starts a command in the daemon that would outlive the test, and tells its process.
fn start_sleeping(daemon: &mut Daemon, home: &Home) -> Pid {
    let file = home.path("pid");
    daemon.ask("prompt", json!({ "input": "run echo $$ > pid; exec sleep 1000" }));
    let begin = Instant::now();
    loop {
        let text = std::fs::read_to_string(&file).unwrap_or_default();
        if let Ok(pid) = text.trim().parse() {
            return Pid::from_raw(pid).unwrap();
        }
        assert!(begin.elapsed() < PATIENCE, "the command does not start");
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn assert_gone(pid: Pid) {
    let begin = Instant::now();
    while rustix::process::test_kill_process(pid).is_ok() {
        assert!(begin.elapsed() < PATIENCE, "the command is still there");
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn two_lines_on_stdin_are_a_whole_job() {
    let home = Home::new();
    std::fs::write(home.path("README.md"), "the readme").unwrap();
    let mut daemon = home.start(&["--stdio"]);
    let job = concat!(
        r#"{"jsonrpc":"2.0","id":1,"method":"prompt","params":{"input":"read README.md and run echo hello"}}"#,
        "\n",
        r#"{"jsonrpc":"2.0","id":2,"method":"waitForIdle"}"#,
    );
    daemon.input.take().unwrap().write_all(job.as_bytes()).unwrap();
    let mut said = String::new();
    daemon.output.as_mut().unwrap().read_to_string(&mut said).unwrap();
    assert!(daemon.end().success());
    let answers: Vec<Value> =
        said.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(answers.len(), 2, "{said}");
    assert_eq!(answers[1]["result"]["lastRun"]["reason"], "stop");
}

#[test]
fn headers_are_answered_with_headers() {
    let home = Home::new();
    let mut daemon = home.start(&["--stdio"]);
    let call = r#"{"jsonrpc":"2.0","id":1,"method":"health"}"#;
    let input = daemon.input.as_mut().unwrap();
    write!(input, "Content-Length: {}\r\n\r\n{call}", call.len()).unwrap();
    let output = daemon.output.as_mut().unwrap();
    let mut header = String::new();
    output.read_line(&mut header).unwrap();
    let length: usize =
        header.strip_prefix("Content-Length: ").unwrap().trim_end().parse().unwrap();
    let mut rest = vec![0; 2 + length];
    output.read_exact(&mut rest).unwrap();
    let answer: Value = serde_json::from_slice(&rest[2..]).unwrap();
    assert_eq!(answer["result"]["status"], "ok");
}

/// 1.4: nothing is left to read, which is the end of stdin; the parent is told why.
#[test]
fn what_cannot_be_read_from_stdin_is_its_end_and_stderr_says_why() {
    let home = Home::new();
    let file = home.path("input");
    std::fs::write(&file, "GET / HTTP/1.1\r\n\r\n").unwrap();
    let mut command = home.command(&["--stdio", "--log-level", "error"]);
    let output = command.stdin(std::fs::File::open(file).unwrap()).output().unwrap();
    assert_eq!(output.status.code(), Some(0));
    assert!(output.stdout.is_empty());
    let log = String::from_utf8(output.stderr).unwrap();
    assert!(log.contains("begins neither a line of JSON nor a Content-Length header"), "{log}");
}

#[test]
fn exit_is_0_after_a_shutdown_and_else_1() {
    let home = Home::new();
    let mut daemon = home.start(&["--stdio"]);
    assert_eq!(daemon.ask("shutdown", json!({})), Value::Null);
    daemon.tell("exit");
    assert_eq!(daemon.end().code(), Some(0));
    let mut daemon = home.start(&["--stdio"]);
    daemon.tell("exit");
    assert_eq!(daemon.end().code(), Some(1));
}

#[test]
fn the_end_of_stdin_aborts_the_run_and_its_command() {
    let home = Home::new();
    let mut daemon = home.start(&["--stdio"]);
    daemon.ask("subscribe", json!({}));
    let command = start_sleeping(&mut daemon, &home);
    drop(daemon.input.take());
    assert_eq!(daemon.frame_of("run_end")["reason"], "aborted");
    daemon.frame_of("server_shutdown");
    assert!(daemon.end().success());
    assert_gone(command);
}

#[test]
fn stdout_gone_ends_everything() {
    let home = Home::new();
    let mut daemon = home.start(&["--stdio"]);
    let command = start_sleeping(&mut daemon, &home);
    drop(daemon.output.take());
    assert_eq!(daemon.end().code(), Some(1));
    assert_gone(command);
}

#[test]
fn the_process_that_initialize_names_is_not_outlived() {
    let home = Home::new();
    let mut daemon = home.start(&["--stdio"]);
    let mut parent = Command::new("cat").stdin(Stdio::piped()).spawn().unwrap();
    let params = json!({
        "protocolVersion": 1, "clientInfo": { "name": "test" }, "processId": parent.id(),
    });
    daemon.ask("initialize", params);
    let command = start_sleeping(&mut daemon, &home);
    parent.kill().unwrap();
    parent.wait().unwrap();
    assert_eq!(daemon.end().code(), Some(1));
    assert_gone(command);
}

#[test]
fn a_signal_is_a_shutdown() {
    for signal in [Signal::TERM, Signal::INT] {
        let home = Home::new();
        let mut daemon = home.start(&["--stdio"]);
        daemon.ask("subscribe", json!({}));
        let command = start_sleeping(&mut daemon, &home);
        daemon.signal(signal);
        assert_eq!(daemon.frame_of("run_end")["reason"], "aborted");
        let last = daemon.frame_of("server_shutdown");
        assert!(last["reason"].as_str().unwrap().starts_with("SIG"), "{last}");
        assert_eq!(daemon.end().code(), Some(0));
        assert_gone(command);
    }
}

#[test]
fn everybody_on_the_socket_meets_in_the_same_session() {
    let home = Home::new();
    let mut daemon = home.listen(&[]);
    let socket = home.path(".local/state/agent-daemon/daemon.sock");
    let (mut input, mut output) = connect(&socket);
    ask(&mut input, &mut output, 1, "prompt", json!({ "input": "run echo hi" }));
    let (mut other_input, mut other_output) = connect(&socket);
    ask(&mut other_input, &mut other_output, 1, "waitForIdle", json!({}));
    let messages = ask(&mut other_input, &mut other_output, 2, "getMessages", json!({}));
    assert_eq!(messages["messages"][0]["content"][0]["text"], "run echo hi");

    let second = home.run(&[]);
    let said = String::from_utf8(second.stderr).unwrap();
    assert!(!second.status.success());
    assert!(said.contains(&format!("process {}", daemon.process.id())), "{said}");

    ask(&mut input, &mut output, 2, "shutdown", json!({ "scope": "daemon" }));
    writeln!(input, r#"{{"jsonrpc":"2.0","method":"exit"}}"#).unwrap();
    assert_eq!(daemon.end().code(), Some(0));
    assert!(!socket.exists());
}

#[test]
fn a_client_that_shut_the_daemon_down_may_also_just_go() {
    let home = Home::new();
    let mut daemon = home.listen(&["--listen", "unix:here.sock"]);
    let (mut input, mut output) = connect(&home.path("here.sock"));
    ask(&mut input, &mut output, 1, "shutdown", json!({ "scope": "daemon" }));
    drop((input, output));
    assert_eq!(daemon.end().code(), Some(0));
}

#[test]
fn stdio_and_sockets_reach_the_same_sessions() {
    let home = Home::new();
    let mut daemon = home.listen(&["--stdio", "--listen", "unix:here.sock"]);
    daemon.ask("createSession", json!({ "sessionId": "shared" }));
    let (mut input, mut output) = connect(&home.path("here.sock"));
    let sessions = ask(&mut input, &mut output, 1, "listSessions", json!({}));
    assert_eq!(sessions["sessions"][1]["sessionId"], "shared");
    drop(daemon.input.take());
    assert_eq!(daemon.end().code(), Some(0));
    assert_eq!(output.read_to_string(&mut String::new()).unwrap(), 0, "closed");
}

#[test]
fn over_tcp_nobody_is_heard_without_the_token() {
    let home = Home::new();
    let (_daemon, address) = home.listen_at(&["--listen", "tcp:127.0.0.1:0"]);
    let address = address.strip_prefix("tcp:").unwrap();
    let file = home.path(".local/state/agent-daemon/token");
    let mode = std::os::unix::fs::MetadataExt::mode(&std::fs::metadata(&file).unwrap());
    assert_eq!(mode & 0o777, 0o600);
    let token = std::fs::read_to_string(file).unwrap();
    let mut input = TcpStream::connect(address).unwrap();
    input.set_read_timeout(Some(PATIENCE)).unwrap();
    let mut output = BufReader::new(input.try_clone().unwrap());
    for (method, params) in [
        ("health", json!({})),
        ("initialize", json!({ "protocolVersion": 1, "clientInfo": { "name": "t" } })),
    ] {
        let call = json!({ "jsonrpc": "2.0", "id": 1, "method": method, "params": params });
        writeln!(input, "{call}").unwrap();
        assert_eq!(read(&mut output).unwrap()["error"]["code"], 1010, "{method}");
    }
    let params = json!({
        "protocolVersion": 1, "clientInfo": { "name": "t" }, "token": token.trim(),
    });
    ask(&mut input, &mut output, 2, "initialize", params);
    assert_eq!(ask(&mut input, &mut output, 3, "health", json!({}))["connections"], 1);
}

#[test]
fn what_cannot_work_is_said_before_anything_starts() {
    let home = Home::new();
    std::fs::write(
        home.path("key.toml"),
        "model = 'far/m'\n[providers.far]\napi = 'openai-completions'\n\
         base_url = 'http://127.0.0.1:9/v1'\napi_key_env = 'FAR_KEY'\n",
    )
    .unwrap();
    std::fs::write(home.path("typo.toml"), "modle = 'far/m'\n").unwrap();
    let cases: &[(&[&str], &[&str])] = &[
        (&["--stdio", "--model", "nowhere/x"], &["nowhere/x", "[providers.nowhere]", "--model"]),
        (&["--stdio", "--config", "key.toml"], &["far/m", "FAR_KEY", "not set"]),
        (&["--stdio", "--config", "typo.toml"], &["typo.toml:1: `modle`: unknown field"]),
        (&["--stdio", "--config", "none.toml"], &["none.toml", "No such file"]),
        (&["--listen", "tcp:8.8.8.8:1"], &["--allow-remote"]),
        (&["--fly"], &["--fly"]),
    ];
    for (arguments, parts) in cases {
        let output = home.run(arguments);
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {said}");
        assert!(parts.iter().all(|part| said.contains(part)), "{arguments:?}: {said}");
        assert!(output.stdout.is_empty(), "{arguments:?}");
    }
}

#[test]
fn the_log_can_be_json_and_never_goes_to_stdout() {
    let home = Home::new();
    let output = home.run(&["--stdio", "--log-format", "json", "--log-level", "debug"]);
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
    let schema: Value = serde_json::from_slice(&home.run(&["schema"]).stdout).unwrap();
    assert_eq!(schema["protocolVersion"], 1);
    let version = String::from_utf8(home.run(&["--version"]).stdout).unwrap();
    assert_eq!(version, format!("agent-daemon {}\n", env!("CARGO_PKG_VERSION")));
}
