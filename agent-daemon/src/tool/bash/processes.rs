//! A running command, as the tool sees it.
//!
//! Owns: starting it and ending it with all its processes. With a supervisor that is every descendant; a program that cannot host one (a test, say) has to do with the command's group.
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
    net::unix::pipe,
    process::{Child, Command},
};

use super::{guard::id_of, process_tree, supervised::Supervised, supervisor};

/// How often what was killed is looked for again.
pub(super) const LOOK: Duration = Duration::from_millis(10);

/// What to run and where.
pub(super) struct Launch<'a> {
    pub(super) command: &'a str,
    pub(super) directory: &'a Path,
    /// What is removed before the command begins, with the directory in it: the command then runs in
    /// none, and relative paths lead nowhere.
    pub(super) vanishing: Option<tempfile::TempDir>,
    /// Environment variables that the command must not see,
    pub(super) hidden: Vec<std::ffi::OsString>,
    /// and those that it sees as they are here.
    pub(super) variables: Vec<(String, std::ffi::OsString)>,
}

/// How a command ended.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum CommandEnding {
    /// With an exit code.
    Exited(i32),
    /// By a signal.
    Signalled(i32),
    /// Nobody knows: something killed the supervisor.
    Lost,
}

/// What can happen to the processes of a command.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum ProcessChange {
    /// The command itself has ended; what it started may still run.
    Ended(CommandEnding),
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
    pub(super) async fn change(&mut self) -> ProcessChange {
        match self {
            Processes::Supervised(supervised) => supervised.change().await,
            Processes::Grouped(grouped) => grouped.change().await,
        }
    }

    /// The process from which all of them descend, if they have not left it.
    pub(super) fn root(&self) -> Pid {
        match self {
            Processes::Supervised(supervised) => supervised.root(),
            Processes::Grouped(grouped) => grouped.group,
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
        // Only a supervisor waits for this before the command begins.
        drop(launch.vanishing);
        let group = id_of(&leader);
        Ok(Grouped { leader, group, ended: false, gone: false })
    }

    async fn change(&mut self) -> ProcessChange {
        if !self.ended {
            let status = self.leader.wait().await;
            self.ended = true;
            return ProcessChange::Ended(status.map_or(CommandEnding::Lost, ending));
        }
        while process_tree::lives(self.group) {
            tokio::time::sleep(LOOK).await;
        }
        self.gone = true;
        ProcessChange::Gone
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

pub(super) fn prepared(mut program: Command, launch: &Launch<'_>) -> Command {
    program.current_dir(launch.directory);
    for variable in &launch.hidden {
        program.env_remove(variable);
    }
    program.envs(launch.variables.iter().map(|(name, value)| (name, value)));
    program
}

fn ending(status: ExitStatus) -> CommandEnding {
    use std::os::unix::process::ExitStatusExt;
    match (status.code(), status.signal()) {
        (Some(code), _) => CommandEnding::Exited(code),
        (_, Some(signal)) => CommandEnding::Signalled(signal),
        _ => CommandEnding::Lost,
    }
}

/// `bash` if there is one, else the `sh` that every system has.
pub(super) fn shell() -> PathBuf {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let mut found = std::env::split_paths(&path).map(|directory| directory.join("bash"));
    let runs = |shell: &PathBuf| {
        shell.is_absolute() && rustix::fs::access(shell, rustix::fs::Access::EXEC_OK).is_ok()
    };
    found.find(runs).unwrap_or_else(|| "/bin/sh".into())
}
