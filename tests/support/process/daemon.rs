//! One daemon as a child process.

use std::{
    io::{BufRead, BufReader, Read},
    process::{Child, ChildStderr, Command, ExitStatus, Output, Stdio},
    sync::{Arc, Mutex},
    thread::JoinHandle,
    time::Instant,
};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::json;

use super::{PATIENCE, Peer, eventually};

/// A running `agent-daemon`. Dropped, it is killed.
pub struct Daemon {
    child: Child,
    said: Arc<Mutex<String>>,
    listener: JoinHandle<()>,
}

impl Daemon {
    /// Starts it, with pipes in place of stdin, stdout and stderr.
    pub fn start(command: &mut Command) -> Self {
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let said = Arc::new(Mutex::new(String::new()));
        let stderr = child.stderr.take().unwrap();
        let listener = std::thread::spawn({
            let said = said.clone();
            move || listen(stderr, &said)
        });
        Daemon { child, said, listener }
    }

    /// The protocol over its stdin and stdout, in lines. Only once.
    pub fn peer(&mut self) -> Peer {
        let stdout = self.child.stdout.take().unwrap();
        Peer::over(stdout, Box::new(self.child.stdin.take().unwrap()))
    }

    /// The child, for its pipes.
    pub fn child(&mut self) -> &mut Child {
        &mut self.child
    }

    /// Its process.
    pub fn pid(&self) -> Pid {
        Pid::from_child(&self.child)
    }

    /// Sends it a signal.
    pub fn signal(&self, signal: Signal) {
        kill_process(self.pid(), signal).unwrap();
    }

    /// Waits until it ends, and everything that it said is there.
    pub fn exit(&mut self) -> ExitStatus {
        let status = exit_of(&mut self.child);
        eventually("the end of stderr", || self.listener.is_finished().then_some(status))
    }

    /// What it has said on stderr so far.
    pub fn said(&self) -> String {
        self.said.lock().unwrap().clone()
    }

    /// What follows these words on stderr, up to a blank, as soon as it is there.
    ///
    /// # Panics
    /// The daemon ends without having said it.
    pub fn said_after(&mut self, words: &str) -> String {
        eventually(words, || {
            self.must_be_alive();
            let said = self.said();
            // Only of whole lines.
            let whole = &said[..said.rfind('\n')?];
            let rest = whole.split_once(words)?.1;
            Some(rest.split_whitespace().next().unwrap_or_default().to_owned())
        })
    }
}

impl Daemon {
    /// Spares the test a long wait.
    pub(super) fn must_be_alive(&mut self) {
        if let Some(status) = self.child.try_wait().unwrap() {
            panic!("the daemon has ended: {status}");
        }
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        if std::thread::panicking() {
            eprintln!("the daemon said:\n{}", self.said());
        }
    }
}

fn listen(stderr: ChildStderr, said: &Mutex<String>) {
    let mut stderr = BufReader::new(stderr);
    let mut line = Vec::new();
    while stderr.read_until(b'\n', &mut line).is_ok_and(|read| read > 0) {
        said.lock().unwrap().push_str(&String::from_utf8_lossy(&line));
        line.clear();
    }
}

/// Waits until a child ends.
///
/// # Panics
/// It takes too long; the child is killed.
pub fn exit_of(child: &mut Child) -> ExitStatus {
    let start = Instant::now();
    loop {
        if let Some(status) = child.try_wait().unwrap() {
            return status;
        }
        if start.elapsed() > PATIENCE {
            child.kill().unwrap();
            panic!("the process does not end");
        }
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
}

/// Runs a command to its end.
///
/// # Panics
/// It takes too long; it is killed.
pub fn finished(command: &mut Command) -> Output {
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let stdout = read_aside(child.stdout.take().unwrap());
    let stderr = read_aside(child.stderr.take().unwrap());
    let status = exit_of(&mut child);
    Output { status, stdout: stdout.join().unwrap(), stderr: stderr.join().unwrap() }
}

fn read_aside(mut pipe: impl Read + Send + 'static) -> std::thread::JoinHandle<Vec<u8>> {
    std::thread::spawn(move || {
        let mut bytes = Vec::new();
        // Cut off by a kill, what was read counts.
        let _ = pipe.read_to_end(&mut bytes);
        bytes
    })
}

/// The process of the daemon at the other end.
pub(super) fn pid_of(peer: &mut Peer) -> Pid {
    let params = json!({ "protocolVersion": 1, "clientInfo": { "name": "test" } });
    let server = peer.call("initialize", params);
    let pid = server["serverInfo"]["pid"].as_i64().and_then(|pid| i32::try_from(pid).ok());
    pid.and_then(Pid::from_raw).expect("serverInfo.pid")
}
