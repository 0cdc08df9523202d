//! Private surroundings of one test.

use std::{
    ffi::OsStr,
    fs::{self, DirBuilder},
    os::unix::{ffi::OsStrExt, fs::DirBuilderExt},
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

use super::{Daemon, ModelServer, Peer, binary, daemon, eventually};

/// Marks every process that a test starts, however far down.
const MARK: &str = "AGENT_TEST_HOME";

/// A home directory with everything that belongs to a user, and the processes that were started in
/// it. When it goes, they must be gone.
pub struct Home {
    root: TempDir,
}

impl Default for Home {
    fn default() -> Self {
        Home::new()
    }
}

impl Home {
    /// An empty home.
    pub fn new() -> Self {
        // Not under TMPDIR: the path of a socket may have 107 bytes.
        let root = tempfile::Builder::new().prefix("agent-").tempdir_in("/tmp").unwrap();
        for name in ["config/agent-daemon", "state", "runtime", "cache", "home", "work"] {
            let path = root.path().join(name);
            DirBuilder::new().recursive(true).mode(0o700).create(path).unwrap();
        }
        Home { root }
    }

    /// A home whose daemons use a model server that the test plays.
    pub fn with_model(server: &ModelServer) -> Self {
        let home = Home::new();
        home.configure(&server.configuration());
        home
    }

    /// A path in this home.
    pub fn path(&self, name: impl AsRef<Path>) -> PathBuf {
        self.root.path().join(name)
    }

    /// The directory in which all is started.
    pub fn work(&self) -> PathBuf {
        self.path("work")
    }

    /// The default socket of a daemon of this home.
    pub fn socket(&self) -> PathBuf {
        self.path("runtime/agent-daemon/daemon.sock")
    }

    /// Writes the configuration that daemons read by default.
    pub fn configure(&self, text: &str) {
        fs::write(self.path("config/agent-daemon/config.toml"), text).unwrap();
    }

    /// A command that knows nothing of the user who runs the tests.
    pub fn command(&self, program: impl AsRef<OsStr>) -> Command {
        let mut command = Command::new(program);
        command.env_clear();
        for name in ["PATH", "LD_LIBRARY_PATH", "RUST_BACKTRACE", "CI"] {
            if let Some(value) = std::env::var_os(name) {
                command.env(name, value);
            }
        }
        command
            .env("HOME", self.path("home"))
            .env("XDG_CONFIG_HOME", self.path("config"))
            .env("XDG_STATE_HOME", self.path("state"))
            .env("XDG_DATA_HOME", self.path("state"))
            .env("XDG_CACHE_HOME", self.path("cache"))
            .env("XDG_RUNTIME_DIR", self.path("runtime"))
            .env("LC_ALL", "C.UTF-8")
            .env(MARK, self.root.path())
            .current_dir(self.work())
            .stdin(Stdio::null());
        command
    }

    /// `agent-daemon` with arguments.
    pub fn daemon_command(&self, arguments: &[&str]) -> Command {
        let mut command = self.command(binary("agent-daemon"));
        command.args(arguments);
        command
    }

    /// `agent-client` with arguments.
    pub fn client_command(&self, arguments: &[&str]) -> Command {
        let mut command = self.command(binary("agent-client"));
        command.args(arguments);
        command
    }

    /// Starts `agent-daemon --stdio`, and whatever else is asked for.
    pub fn stdio_daemon(&self, arguments: &[&str]) -> Daemon {
        let mut command = self.daemon_command(&["--stdio"]);
        Daemon::start(command.args(arguments))
    }

    /// Starts a daemon on the default socket, and waits until it listens.
    pub fn daemon(&self) -> Daemon {
        let mut daemon = Daemon::start(&mut self.daemon_command(&[]));
        let socket = self.socket();
        eventually("a daemon on the socket", || {
            daemon.must_be_alive();
            Peer::unix(&socket).ok()
        });
        daemon
    }

    /// A connection to the default socket, as soon as somebody listens there.
    pub fn connect(&self) -> Peer {
        let socket = self.socket();
        eventually("a daemon on the socket", || Peer::unix(&socket).ok())
    }

    /// Asks the daemon on the default socket to end, and waits until it has. For daemons that a
    /// client started.
    pub fn shut_down(&self) {
        let mut peer = self.connect();
        let pid = daemon::pid_of(&mut peer);
        peer.call("shutdown", serde_json::json!({ "scope": "daemon" }));
        peer.notify("exit", serde_json::json!({}));
        eventually("the daemon's end", || (!is_alive(pid)).then_some(()));
    }

    /// The processes of this home that are alive, each with its command line.
    pub fn processes(&self) -> Vec<(Pid, String)> {
        let mark = [MARK.as_bytes(), b"=", self.root.path().as_os_str().as_bytes(), b"\0"].concat();
        let mut processes = Vec::new();
        for entry in fs::read_dir("/proc").into_iter().flatten().flatten() {
            let number = entry.file_name().to_str().and_then(|name| name.parse().ok());
            let Some(pid) = number.and_then(Pid::from_raw) else { continue };
            let Ok(environment) = fs::read(entry.path().join("environ")) else { continue };
            let is_ours = environment.windows(mark.len()).any(|window| window == mark);
            if is_ours && is_alive(pid) {
                let command = fs::read(entry.path().join("cmdline")).unwrap_or_default();
                processes.push((pid, String::from_utf8_lossy(&command).replace('\0', " ")));
            }
        }
        processes
    }

    /// How many processes of this home have these words in their command line, shells with a
    /// script apart: what they run counts.
    pub fn count(&self, words: &str) -> usize {
        let counts = |(_, command): &(Pid, String)| command.trim_end() == words;
        self.processes().iter().filter(|process| counts(process)).count()
    }

    /// Waits until exactly so many processes have this command line.
    pub fn await_count(&self, words: &str, count: usize) {
        let what = format!("{count} of `{words}`");
        eventually(&what, || (self.count(words) == count).then_some(()));
    }
}

impl Drop for Home {
    fn drop(&mut self) {
        let mut left = self.processes();
        if std::thread::panicking() {
            kill(&left);
            return;
        }
        // What was killed a moment ago may not have noticed yet.
        for _ in 0..200 {
            if left.is_empty() {
                return;
            }
            std::thread::sleep(std::time::Duration::from_millis(10));
            left = self.processes();
        }
        kill(&left);
        panic!("these were left behind: {left:#?}");
    }
}

fn kill(processes: &[(Pid, String)]) {
    for (pid, _) in processes {
        // It may end by itself in between.
        let _ = kill_process(*pid, Signal::KILL);
    }
}

/// Whether a process runs; one that is dead and not yet waited for does not.
pub(super) fn is_alive(pid: Pid) -> bool {
    let stat = fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_nonzero()));
    // The name before the state is in parentheses, and may hold some itself.
    let state = stat.ok().and_then(|stat| stat.rsplit_once(") ")?.1.chars().next());
    state.is_some_and(|state| !matches!(state, 'Z' | 'X'))
}
