//! Starting a daemon in the background.
//!
//! Owns: how it is detached, and how its start-up is waited for. Never: decides who wins when
//! several clients start one at once; the daemons do, by the socket, and we connect to the one
//! that is left.

use std::{
    ffi::OsString,
    fs::{DirBuilder, File, OpenOptions},
    io::{self, Read, Seek, SeekFrom},
    os::unix::fs::{DirBuilderExt, OpenOptionsExt},
    path::{Path, PathBuf},
    process::Stdio,
    sync::Arc,
    time::Duration,
};

use agent_client_library::{
    client::Client,
    connect::{ConnectError, Connector, Destination},
};
use agent_protocol::local::paths::Directories;
use tokio::{
    process::{Child, Command},
    time::{Instant, sleep},
};

use crate::exit::{DaemonStartError, Failure};

/// The hidden first argument that makes this program the daemon.
pub const DAEMON_ARGUMENT: &str = "__daemon";

/// How long a daemon may take to listen.
const PATIENCE: Duration = Duration::from_secs(20);
/// How much of its last words a daemon that fails is quoted with.
const QUOTED_BYTES: u64 = 2048;

/// Connects, and starts a daemon in the background where a Unix socket has none.
///
/// # Errors
/// There is none that lets us in, or it does not start.
pub async fn connect_or_start(connector: &Connector) -> Result<Arc<Client>, Failure> {
    match (connector.connect().await, connector.endpoint()) {
        (Err(ConnectError::NoDaemon { .. }), Destination::Unix(socket)) => {
            start(connector, socket).await
        }
        (connected, _) => Ok(connected?),
    }
}

/// Starts a daemon on a socket, and connects as soon as one listens there.
async fn start(connector: &Connector, socket: &Path) -> Result<Arc<Client>, Failure> {
    let mut log = Log::of(socket)?;
    let mut daemon = spawn(socket, &log).map_err(DaemonStartError::Spawn)?;
    let deadline = Instant::now() + PATIENCE;
    let mut pause = Duration::from_millis(2);
    loop {
        // It ends by itself when another was faster, and that one can be reached by now.
        let ended = tokio::select! {
            status = daemon.wait() => Some(status.map_err(DaemonStartError::Spawn)?),
            () = sleep(pause) => None,
        };
        match connector.connect().await {
            Err(ConnectError::NoDaemon { .. }) => {}
            connected => return Ok(connected?),
        }
        if let Some(status) = ended {
            let (said, log) = (log.last_words(), log.path());
            return Err(DaemonStartError::Ended { status, said, log }.into());
        }
        if Instant::now() > deadline {
            let socket = socket.display().to_string();
            return Err(DaemonStartError::Deaf { socket, log: log.path() }.into());
        }
        pause = (pause * 2).min(Duration::from_millis(100));
    }
}

// The daemon is this very program, so that one binary is enough to begin with. Its environment is
// ours, and so is the directory in which it begins: its default session works there. Nothing else of
// ours goes along: the lock or the pipe of whoever started us would be held for as long as it runs.
fn spawn(socket: &Path, log: &Log) -> io::Result<Child> {
    let mut listen = OsString::from("unix:");
    listen.push(socket);
    close_fds::set_fds_cloexec_threadsafe(3, &[]);
    Command::new(std::env::current_exe()?)
        .args([DAEMON_ARGUMENT.as_ref(), "--listen".as_ref(), listen.as_os_str()])
        .args(["--log-file".as_ref(), log.path.as_os_str()])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(log.file.try_clone()?)
        .kill_on_drop(false)
        .spawn()
}

/// What a daemon in the background says.
struct Log {
    path: PathBuf,
    file: File,
    /// Where it ended before this daemon.
    from: u64,
}

impl Log {
    /// The log of this socket's daemon, in the first place that can be written to.
    fn of(socket: &Path) -> Result<Self, DaemonStartError> {
        let mut refused = None;
        for path in Directories::of_user().log_files(socket) {
            match Log::open(path.clone()) {
                Ok(log) => return Ok(log),
                Err(problem) => refused = refused.or(Some((path, problem))),
            }
        }
        let nowhere = || (PathBuf::new(), io::ErrorKind::NotFound.into());
        let (path, problem) = refused.unwrap_or_else(nowhere);
        Err(DaemonStartError::Log { path: path.display().to_string(), problem })
    }

    fn open(path: PathBuf) -> io::Result<Self> {
        if let Some(directory) = path.parent() {
            DirBuilder::new().recursive(true).mode(0o700).create(directory)?;
        }
        let file =
            OpenOptions::new().create(true).append(true).read(true).mode(0o600).open(&path)?;
        let from = file.metadata()?.len();
        Ok(Log { path, file, from })
    }

    fn path(&self) -> String {
        self.path.display().to_string()
    }

    fn last_words(&mut self) -> String {
        let mut said = Vec::new();
        let end = self.file.metadata().map_or(self.from, |file| file.len());
        let from = self.from.max(end.saturating_sub(QUOTED_BYTES));
        let read = self.file.seek(SeekFrom::Start(from));
        if read.and_then(|_| self.file.read_to_end(&mut said)).is_err() || said.is_empty() {
            return "it said nothing".to_owned();
        }
        String::from_utf8_lossy(&said).trim_end().to_owned()
    }
}
