//! A running command, as the tool sees it.
//!
//! Owns: starting it and ending it with all its processes. With a [`supervisor`] that is every
//! descendant; a program that cannot host one (a test, say) has to do with the command's group.
//! Never: lets a command live on when this is dropped, at whatever moment.

use std::{
    io,
    os::fd::OwnedFd,
    path::{Path, PathBuf},
    process::{ExitStatus, Stdio},
    time::Duration,
};

use rustix::process::{Pid, Signal};
use tokio::{
    io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines},
    net::unix::pipe,
    process::{Child, ChildStdin, ChildStdout, Command},
};

use super::{
    process_tree,
    supervisor::{self, Request},
};
use crate::descriptors::limit_before;

/// How often a group without a supervisor is looked at, to see whether it is empty.
const LOOK: Duration = Duration::from_millis(10);

/// How often a supervisor that is to say that it has started is woken.
const WAKE: Duration = Duration::from_millis(50);

/// What to run and where.
pub(super) struct Launch<'a> {
    pub(super) command: &'a str,
    pub(super) directory: &'a Path,
    /// Environment variables that the command must not see.
    pub(super) hidden: Vec<std::ffi::OsString>,
}

/// How a command ended.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Ending {
    /// With an exit code.
    Exited(i32),
    /// By a signal.
    Signalled(i32),
    /// Nobody knows: something killed the supervisor.
    Lost,
}

/// What can happen to the processes of a command.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Change {
    /// The command itself has ended; what it started may still run.
    Ended(Ending),
    /// Nothing runs any more. Always the last change.
    Gone,
}

/// The processes of a command.
pub(super) enum Processes {
    Supervised(Supervised),
    Grouped(Grouped),
}

impl Processes {
    /// Starts a command; also gives its output, standard output and error in one.
    ///
    /// # Errors
    /// It could not be started.
    pub(super) async fn start(launch: Launch<'_>) -> io::Result<(Self, pipe::Receiver)> {
        let (reader, writer) = io::pipe()?;
        let output = pipe::Receiver::from_owned_fd(OwnedFd::from(reader))?;
        let processes = match supervisor::is_hosted() {
            true => Processes::Supervised(Supervised::start(launch, writer).await?),
            false => Processes::Grouped(Grouped::start(launch, writer)?),
        };
        Ok((processes, output))
    }

    /// Waits for the next change. Safe to drop and call again.
    pub(super) async fn change(&mut self) -> Change {
        match self {
            Processes::Supervised(supervised) => supervised.change().await,
            Processes::Grouped(grouped) => grouped.change().await,
        }
    }

    /// Asks all of them to end.
    pub(super) async fn terminate(&mut self) {
        match self {
            Processes::Supervised(supervised) => supervised.terminate().await,
            Processes::Grouped(grouped) => grouped.signal(Signal::TERM),
        }
    }

    /// Ends all of them.
    pub(super) fn kill(&mut self) {
        match self {
            Processes::Supervised(supervised) => supervised.kill(),
            Processes::Grouped(grouped) => grouped.signal(Signal::KILL),
        }
    }
}

/// A command behind a supervisor. Dropping it closes the control pipe, which kills.
pub(super) struct Supervised {
    supervisor: Child,
    /// The supervisor's session, in which the command is.
    session: Pid,
    control: Option<ChildStdin>,
    report: Lines<BufReader<ChildStdout>>,
    ended: bool,
    gone: bool,
}

impl Supervised {
    async fn start(launch: Launch<'_>, output: io::PipeWriter) -> io::Result<Self> {
        let mut program = Command::new(own_program()?);
        program
            .arg0("supervisor")
            .arg(supervisor::ARGUMENT)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(output);
        let mut supervisor = prepared(program, &launch).spawn()?;
        let session = id_of(&supervisor);
        let mut control = supervisor.stdin.take().expect("it is piped");
        let report = supervisor.stdout.take().expect("it is piped");
        let request = Request {
            shell: shell(),
            command: launch.command.to_owned(),
            descriptors: limit_before(),
        };
        let mut line = serde_json::to_vec(&request)?;
        line.push(b'\n');
        // If it is not there to read this, the report tells better what is wrong.
        let _ = control.write_all(&line).await;
        let report = BufReader::new(report).lines();
        let control = Some(control);
        let mut started =
            Supervised { supervisor, session, control, report, ended: false, gone: false };
        let line = loop {
            match tokio::time::timeout(WAKE, started.report.next_line()).await {
                Ok(line) => break line?.unwrap_or_default(),
                // A command can be so quick to stop it that it never says so.
                Err(_) => started.wake(),
            }
        };
        if line == supervisor::STARTED {
            return Ok(started);
        }
        match line.strip_prefix("failed ") {
            Some(reason) => Err(io::Error::other(reason.to_owned())),
            // A command can be so quick to kill it that it never says so.
            None => Ok(started),
        }
    }

    async fn change(&mut self) -> Change {
        if self.ended {
            // The supervisor ends when nothing is left, or when it had to give up, or when someone
            // kills it; its work is ours then.
            let _ = self.supervisor.wait().await;
            while process_tree::kill_session(self.session) {
                tokio::time::sleep(LOOK).await;
            }
            self.gone = true;
            return Change::Gone;
        }
        let line = self.report.next_line().await.ok().flatten().unwrap_or_default();
        self.ended = true;
        let number = |text: &str| text.parse().ok();
        let exited = line.strip_prefix("exited ").and_then(number).map(Ending::Exited);
        let signalled = line.strip_prefix("signalled ").and_then(number).map(Ending::Signalled);
        Change::Ended(exited.or(signalled).unwrap_or(Ending::Lost))
    }

    async fn terminate(&mut self) {
        self.wake();
        if let Some(control) = &mut self.control {
            let _ = control.write_all(&[supervisor::TERMINATE]).await;
        }
    }

    fn kill(&mut self) {
        self.wake();
        self.control = None;
    }

    /// A command can stop its supervisor, which then would not hear what it is told.
    fn wake(&self) {
        if self.supervisor.id().is_some() {
            let _ = rustix::process::kill_process(self.session, Signal::CONT);
        }
    }
}

impl Drop for Supervised {
    fn drop(&mut self) {
        self.wake();
        // If the supervisor lives, it does more: the control pipe is closed by this drop.
        if !self.gone && !matches!(self.supervisor.try_wait(), Ok(None)) {
            process_tree::kill_session(self.session);
        }
    }
}

/// A command without a supervisor.
pub(super) struct Grouped {
    leader: Child,
    group: Pid,
    ended: bool,
    gone: bool,
}

impl Grouped {
    fn start(launch: Launch<'_>, output: io::PipeWriter) -> io::Result<Self> {
        let mut program = Command::new(shell());
        program
            .arg("-c")
            .arg(launch.command)
            .stdin(Stdio::null())
            .stdout(output.try_clone()?)
            .stderr(output)
            .process_group(0);
        let leader = prepared(program, &launch).spawn()?;
        let group = id_of(&leader);
        Ok(Grouped { leader, group, ended: false, gone: false })
    }

    async fn change(&mut self) -> Change {
        if !self.ended {
            let status = self.leader.wait().await;
            self.ended = true;
            return Change::Ended(status.map_or(Ending::Lost, ending));
        }
        while process_tree::lives(self.group) {
            tokio::time::sleep(LOOK).await;
        }
        self.gone = true;
        Change::Gone
    }

    fn signal(&self, signal: Signal) {
        if !self.gone {
            let _ = rustix::process::kill_process_group(self.group, signal);
        }
    }
}

impl Drop for Grouped {
    fn drop(&mut self) {
        self.signal(Signal::KILL);
    }
}

fn prepared(mut program: Command, launch: &Launch<'_>) -> Command {
    program.current_dir(launch.directory);
    // Git would open an editor, without a terminal, and wait for it for ever. This one accepts what
    // git proposes at once.
    program.env("GIT_EDITOR", "true");
    for variable in &launch.hidden {
        program.env_remove(variable);
    }
    program
}

fn id_of(child: &Child) -> Pid {
    let id = child.id().and_then(|id| Pid::from_raw(i32::try_from(id).ok()?));
    id.expect("a child that was not waited for has an id")
}

fn ending(status: ExitStatus) -> Ending {
    use std::os::unix::process::ExitStatusExt;
    match (status.code(), status.signal()) {
        (Some(code), _) => Ending::Exited(code),
        (_, Some(signal)) => Ending::Signalled(signal),
        _ => Ending::Lost,
    }
}

/// The program that runs now, also if its file was replaced since.
fn own_program() -> io::Result<PathBuf> {
    if cfg!(target_os = "linux") {
        return Ok("/proc/self/exe".into());
    }
    std::env::current_exe()
}

/// `bash` if there is one, else the `sh` that every system has.
fn shell() -> PathBuf {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let mut found = std::env::split_paths(&path).map(|directory| directory.join("bash"));
    let runs = |shell: &PathBuf| {
        shell.is_absolute() && rustix::fs::access(shell, rustix::fs::Access::EXEC_OK).is_ok()
    };
    found.find(runs).unwrap_or_else(|| "/bin/sh".into())
}
