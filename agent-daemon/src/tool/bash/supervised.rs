//! A command behind a supervisor, as the daemon sees it.
//!
//! Owns: the pipes to the supervisor, and its work where the command has stopped or killed it.
//! Never: waits for a supervisor that is stopped.

use std::{
    io,
    process::Stdio,
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

use rustix::process::{Pid, Signal, kill_process};
use tokio::{
    io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines},
    process::{Child, ChildStdin, ChildStdout, Command},
    time::timeout,
};

use super::{
    guard::{self, Listed},
    process_tree::{self, ProcessSnapshot},
    processes::{CommandEnding, LOOK, Launch, ProcessChange, prepared, shell},
    supervisor::{self, GIVE_UP, Request},
};
use crate::system::descriptors::limit_before;

/// How soon a supervisor that is to say that it has started is looked at.
const LATE: Duration = Duration::from_millis(50);

/// How often a supervisor is looked at, since nothing else would wake it if its command stopped it
/// and ended.
const WAKE: Duration = Duration::from_secs(1);

/// How long a supervisor that is not stopped has to kill everything before we do it.
const HEAD_START: Duration = Duration::from_millis(200);

/// How long a supervisor with nothing to watch may take to end.
const LAST_WORDS: Duration = Duration::from_millis(500);

/// A command behind a supervisor. Dropping it kills.
pub(super) struct Supervised {
    supervisor: Child,
    /// The supervisor, whose session the command is in.
    listed: Arc<Listed>,
    control: Option<ChildStdin>,
    report: Lines<BufReader<ChildStdout>>,
    ended: bool,
    gone: bool,
    /// Whether a thread sees to the end.
    ending: bool,
}

impl Supervised {
    pub(super) async fn start(mut launch: Launch<'_>, output: io::PipeWriter) -> io::Result<Self> {
        let mut program = Command::new(supervisor::own_program()?);
        program
            .arg0("supervisor")
            .arg(supervisor::ARGUMENT)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(output);
        let mut program = prepared(program, &launch);
        let (mut supervisor, listed) = Listed::start(|| program.spawn())?;
        let control = supervisor.stdin.take().expect("it is piped");
        let report = supervisor.stdout.take().expect("it is piped");
        let mut started = Supervised {
            supervisor,
            listed: Arc::new(listed),
            control: Some(control),
            report: BufReader::new(report).lines(),
            ended: false,
            gone: false,
            ending: false,
        };
        // Before it is told what to run, so that this begins nowhere.
        drop(launch.vanishing.take());
        started.request(&launch).await?;
        let line = started.first_line().await?;
        match line.strip_prefix("failed ") {
            Some(reason) => Err(io::Error::other(reason.to_owned())),
            // It has started, or a command was so quick to kill it that it never said so.
            None => Ok(started),
        }
    }

    async fn request(&mut self, launch: &Launch<'_>) -> io::Result<()> {
        let request = Request {
            shell: shell(),
            command: launch.command.to_owned(),
            descriptors: limit_before(),
        };
        let mut line = serde_json::to_vec(&request)?;
        line.push(b'\n');
        if let Some(control) = &mut self.control {
            // If it is not there to read this, the report tells better what is wrong.
            let _ = control.write_all(&line).await;
        }
        Ok(())
    }

    async fn first_line(&mut self) -> io::Result<String> {
        loop {
            match timeout(LATE, self.report.next_line()).await {
                Ok(line) => return Ok(line?.unwrap_or_default()),
                // Who but its command stops it? That can be so quick that it does not say first
                // that it has started.
                Err(_) if process_tree::is_stopped(self.listed.pid()) => return Ok(String::new()),
                Err(_) => self.wake(),
            }
        }
    }

    /// The supervisor, from which all of them descend.
    pub(super) fn root(&self) -> Pid {
        self.listed.pid()
    }

    /// Waits for the next change. Safe to drop and call again.
    pub(super) async fn change(&mut self) -> ProcessChange {
        if !self.ended {
            let ending = ending(&self.last_line().await);
            if ending == CommandEnding::Lost {
                // Its work is ours then. At once: that is no time to linger in.
                self.clear().await;
            }
            self.ended = true;
            return ProcessChange::Ended(ending);
        }
        // It ends when nothing is left, or when it had to give up, or when someone kills it.
        let well = loop {
            match timeout(WAKE, self.supervisor.wait()).await {
                Ok(status) => break status.is_ok_and(|status| status.success()),
                Err(_) => self.wake_if_stopped(),
            }
        };
        if !well {
            self.clear().await;
        }
        self.gone = true;
        ProcessChange::Gone
    }

    /// Kills what a dead supervisor has left, until nothing is.
    async fn clear(&self) {
        while kill_rest(self.listed.pid()) {
            tokio::time::sleep(LOOK).await;
        }
    }

    /// What it says when the command has ended; nothing if it was killed.
    async fn last_line(&mut self) -> String {
        loop {
            match timeout(WAKE, self.report.next_line()).await {
                // Said late, or what was not waited for.
                Ok(Ok(Some(line))) if line == supervisor::STARTED => {}
                Ok(line) => return line.ok().flatten().unwrap_or_default(),
                Err(_) => self.wake_if_stopped(),
            }
        }
    }

    /// Asks everything to end.
    pub(super) async fn terminate(&mut self) {
        let supervisor = self.listed.pid();
        if process_tree::is_stopped(supervisor) {
            // Woken, it might be stopped again before it hears anything.
            process_tree::signal_descendants(supervisor, Signal::TERM);
        } else if let Some(control) = &mut self.control {
            let _ = control.write_all(&[supervisor::TERMINATE]).await;
        }
    }

    /// Ends everything, without waiting for it.
    pub(super) fn kill(&mut self) {
        self.wake();
        self.control = None;
        if self.gone || self.ending {
            return;
        }
        // A thread, since there may be no runtime any more when this is dropped. If there can be
        // none, the supervisor may still do it, and the guard later.
        let listed = self.listed.clone();
        let thread = thread::Builder::new().name("end of a command".to_owned());
        self.ending = thread.spawn(move || see_to_the_end(&listed)).is_ok();
    }

    fn wake_if_stopped(&self) {
        if process_tree::is_stopped(self.listed.pid()) {
            self.wake();
        }
    }

    /// A command can stop its supervisor, which then would not hear what it is told.
    fn wake(&self) {
        if self.supervisor.id().is_some() {
            let _ = kill_process(self.listed.pid(), Signal::CONT);
        }
    }
}

impl Drop for Supervised {
    fn drop(&mut self) {
        self.kill();
    }
}

fn ending(line: &str) -> CommandEnding {
    let number = |text: &str| text.parse().ok();
    let exited = line.strip_prefix("exited ").and_then(number).map(CommandEnding::Exited);
    let signalled = line.strip_prefix("signalled ").and_then(number).map(CommandEnding::Signalled);
    exited.or(signalled).unwrap_or(CommandEnding::Lost)
}

/// Does a supervisor's work, if that is stopped or dead: kills until nothing is left. The
/// supervisor comes last, since as long as it is there all of it descends from it.
fn see_to_the_end(listed: &Listed) {
    let supervisor = listed.pid();
    let begin = Instant::now();
    let mut last_found = begin;
    while begin.elapsed() < GIVE_UP {
        thread::sleep(LOOK);
        if !process_tree::is_our_child(supervisor) {
            if !kill_rest(supervisor) {
                return;
            }
        } else if begin.elapsed() < HEAD_START && !process_tree::is_stopped(supervisor) {
            // It does it itself.
            last_found = Instant::now();
        } else if process_tree::signal_descendants(supervisor, Signal::KILL) {
            last_found = Instant::now();
        } else if last_found.elapsed() < LAST_WORDS {
            // Nothing is left that could stop it again.
            let _ = kill_process(supervisor, Signal::CONT);
        } else {
            let _ = kill_process(supervisor, Signal::KILL);
        }
    }
}

/// Kills what a dead supervisor has left. `false` if there was nothing.
fn kill_rest(supervisor: Pid) -> bool {
    let now = ProcessSnapshot::take();
    // Both, and not the second only if the first found nothing.
    now.kill_session(supervisor) | guard::kill_orphans(&now)
}
