//! How a command ends.
//!
//! Owns: the exit statuses, which scripts branch on. Append, never renumber.

use std::{io, process::ExitStatus};

use agent_client_library::{client::CallError, connect::ConnectError, mirror::MirrorError};
use agent_core::{EndReason, LastRun};
use agent_protocol::RpcError;

/// A command's exit status.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Exit {
    /// It did what it should; the run ended as `stop`.
    Done = 0,
    /// The daemon answered with an error that has no status of its own.
    Refused = 1,
    /// The command line makes no sense.
    Usage = 2,
    /// There is no daemon to talk to.
    NoConnection = 3,
    /// The run ended as `error`.
    RunFailed = 10,
    /// The run ended as `aborted`.
    RunAborted = 11,
    /// The run ended as `max_turns`, `length` or `stopped_by_hook`.
    RunLimited = 12,
    /// A run is active.
    Busy = 13,
    /// No run is active.
    NotRunning = 14,
    /// The time is over.
    TimedOut = 124,
}

/// Why a command did not do what it should.
#[derive(Debug, thiserror::Error)]
pub enum Failure {
    /// The command line makes no sense.
    #[error("{0}")]
    Usage(String),
    /// There is no daemon to talk to.
    #[error(transparent)]
    Connect(#[from] ConnectError),
    /// The daemon could not be started.
    #[error(transparent)]
    Start(#[from] DaemonStartError),
    /// The daemon refused.
    #[error(transparent)]
    Call(#[from] CallError),
    /// The session cannot be followed any more.
    #[error(transparent)]
    Mirror(#[from] MirrorError),
    /// What was waited for cannot come any more.
    #[error("{0}")]
    Lost(String),
    /// The daemon was there, and is not any more.
    #[error("{0}; the next command starts a new one")]
    Gone(String),
    /// The output cannot be written.
    #[error("cannot write: {0}")]
    Output(#[from] io::Error),
}

/// Why there is still no daemon.
#[derive(Debug, thiserror::Error)]
pub enum DaemonStartError {
    /// There is nowhere for what it says.
    #[error("cannot start a daemon: {path}: {problem}")]
    Log {
        /// The log.
        path: String,
        /// What the system says.
        problem: io::Error,
    },
    /// It could not be run.
    #[error("cannot start a daemon: {0}")]
    Spawn(io::Error),
    /// It ended at once.
    #[error("the daemon did not start ({status}):\n{said}\nIts log is {log}")]
    Ended {
        /// How.
        status: ExitStatus,
        /// Its last words.
        said: String,
        /// Where to read more.
        log: String,
    },
    /// It runs, and nobody can connect.
    #[error("the daemon was started and does not listen on {socket}; its log is {log}")]
    Deaf {
        /// The socket.
        socket: String,
        /// Where to read more.
        log: String,
    },
}

impl Exit {
    /// How a command ends that waited for a run.
    pub fn of_run(reason: EndReason) -> Self {
        match reason {
            EndReason::Stop => Exit::Done,
            EndReason::Error => Exit::RunFailed,
            EndReason::Aborted => Exit::RunAborted,
            EndReason::MaxTurns | EndReason::Length | EndReason::StoppedByHook => Exit::RunLimited,
        }
    }

    /// How a command ends that waited for whatever run there was.
    pub fn of_last_run(last_run: Option<&LastRun>) -> Self {
        last_run.map_or(Exit::Done, |last_run| Exit::of_run(last_run.reason))
    }
}

impl Failure {
    /// The status that goes with it.
    pub fn exit(&self) -> Exit {
        match self {
            Failure::Usage(_) => Exit::Usage,
            Failure::Connect(_)
            | Failure::Start(_)
            | Failure::Gone(_)
            | Failure::Mirror(MirrorError::Connect(_)) => Exit::NoConnection,
            Failure::Call(error) | Failure::Mirror(MirrorError::Call(error)) => of_call(error),
            Failure::Output(error) if error.kind() == io::ErrorKind::BrokenPipe => Exit::Done,
            Failure::Mirror(MirrorError::Frame(_)) | Failure::Lost(_) | Failure::Output(_) => {
                Exit::Refused
            }
        }
    }

    /// Whether there is anything to say: whoever closed our stdout has seen enough.
    pub fn is_quiet(&self) -> bool {
        matches!(self, Failure::Output(error) if error.kind() == io::ErrorKind::BrokenPipe)
    }

    /// Whether the daemon has no use for the model that is meant.
    pub fn is_about_model(&self) -> bool {
        let (Failure::Call(error) | Failure::Mirror(MirrorError::Call(error))) = self else {
            return false;
        };
        matches!(error.reason(), Some(RpcError::ModelUnavailable { .. }))
    }

    /// The daemon's error object, where there is one.
    pub fn object(&self) -> Option<&jsonrpsee::types::ErrorObjectOwned> {
        match self {
            Failure::Call(CallError::Refused(object))
            | Failure::Mirror(MirrorError::Call(CallError::Refused(object))) => Some(object),
            _ => None,
        }
    }
}

fn of_call(error: &CallError) -> Exit {
    match (error, error.reason()) {
        (CallError::Lost(_), _) => Exit::NoConnection,
        (_, Some(RpcError::Busy { .. })) => Exit::Busy,
        (_, Some(RpcError::NotRunning)) => Exit::NotRunning,
        _ => Exit::Refused,
    }
}

#[cfg(test)]
mod tests {
    use agent_core::RunId;
    use jsonrpsee::types::ErrorObjectOwned;

    use super::*;

    #[test]
    fn errors_have_the_statuses_that_scripts_know() {
        let refused = |error: RpcError| CallError::Refused(ErrorObjectOwned::from(error));
        for (error, status) in [
            (refused(RpcError::Busy { run_id: RunId(1) }), 13),
            (refused(RpcError::NotRunning), 14),
            (refused(RpcError::WrongRun { expected: RunId(1), actual: None }), 1),
            (refused(RpcError::MethodNotFound { method: "x".to_owned() }), 1),
            (CallError::Lost("x".to_owned()), 3),
        ] {
            assert_eq!(Failure::from(error).exit() as u8, status);
        }
        assert_eq!(Failure::Usage(String::new()).exit() as u8, 2);
        assert_eq!(Failure::Connect(ConnectError::ChildEnded).exit() as u8, 3);
    }

    #[test]
    fn runs_have_the_statuses_that_scripts_know() {
        for (reason, status) in [
            (EndReason::Stop, 0),
            (EndReason::Error, 10),
            (EndReason::Aborted, 11),
            (EndReason::MaxTurns, 12),
            (EndReason::Length, 12),
            (EndReason::StoppedByHook, 12),
        ] {
            assert_eq!(Exit::of_run(reason) as u8, status);
        }
        assert_eq!(Exit::of_last_run(None) as u8, 0);
    }
}
