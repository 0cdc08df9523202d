//! `shutdown`: asks the daemon to end, and waits until it has.
//!
//! Owns: how its end is noticed. Never: says that a daemon has ended which has not, or waits without
//! a limit for one that hangs.

use std::{sync::Arc, time::Duration};

use agent_client_library::{
    client::{CallError, Client},
    connect::{ConnectError, Connector, Destination},
};
use agent_protocol::{Method, Shutdown, ShutdownParams, ShutdownScope};
use rustix::process::Pid;
use serde_json::value::RawValue;
use tokio::time::{sleep, timeout};

use crate::{
    context::Context,
    exit::{Exit, Failure},
    output::{line, remark},
};

/// How long a daemon may take. It gives itself 10 s.
const PATIENCE: Duration = Duration::from_secs(20);
/// How often an address is tried that is still answered.
const EVERY: Duration = Duration::from_millis(20);

pub(super) async fn shutdown(context: &Context) -> Result<Exit, Failure> {
    let client = match context.connector.connect().await {
        Err(error) if error.is_absence() => {
            remark("no daemon is running");
            return Ok(Exit::Done);
        }
        client => client?,
    };
    let pid = client.server().server_info.pid;
    let ended = timeout(PATIENCE, end(&context.connector, client)).await;
    let answer = ended.map_err(|_| still_there(pid, &context.connector.endpoint().address()))??;
    if context.json {
        line(answer.get())?;
    }
    remark(&format!("daemon {pid} has ended"));
    Ok(Exit::Done)
}

/// Gives the daemon's answer when the daemon is gone. The end of a command of `--stdio` is waited
/// for by whoever started it.
async fn end(connector: &Connector, client: Arc<Client>) -> Result<Box<RawValue>, Failure> {
    // Before it is asked, while the number cannot be another's.
    let process = client.process().and_then(Process::open);
    let instance = client.server().instance_id.clone();
    let scope = Some(ShutdownScope::Daemon);
    let params = ShutdownParams { scope, ..ShutdownParams::default() };
    let answer = match client.call_json(Shutdown::NAME, &params).await {
        // Somebody else may have ended it meanwhile.
        Err(CallError::Lost(_)) => RawValue::NULL.to_owned(),
        answer => answer?,
    };
    // It waits for us to go.
    drop(client);
    match (connector.endpoint(), process) {
        (Destination::Stdio(_), _) => {}
        (_, Some(process)) => process.ended().await,
        (_, None) => deserted(connector, &instance).await,
    }
    Ok(answer)
}

/// Completes when the daemon does not answer at its address any more.
async fn deserted(connector: &Connector, instance: &str) {
    loop {
        match connector.connect().await {
            Err(ConnectError::NoDaemon { .. } | ConnectError::Unreachable { .. }) => return,
            Ok(client) if client.server().instance_id != instance => return,
            Ok(_) | Err(_) => sleep(EVERY).await,
        }
    }
}

fn still_there(pid: u32, address: &str) -> Failure {
    Failure::Lost(format!(
        "daemon {pid} at {address} was asked to end and has not within {} s; `kill -9 {pid}` where it \
         runs ends it at once",
        PATIENCE.as_secs()
    ))
}

/// A process that stays the same when its number becomes another's.
struct Process {
    #[cfg(target_os = "linux")]
    handle: rustix::fd::OwnedFd,
}

#[cfg(target_os = "linux")]
impl Process {
    /// None where the kernel is too old, or there is no such process.
    fn open(pid: u32) -> Option<Self> {
        use rustix::process::{PidfdFlags, pidfd_open};
        let pid = Pid::from_raw(pid.try_into().ok()?)?;
        Some(Process { handle: pidfd_open(pid, PidfdFlags::empty()).ok()? })
    }

    /// Completes when it has ended, or has had more time than anybody waits.
    async fn ended(self) {
        use rustix::{
            event::{PollFd, PollFlags, Timespec, poll},
            io::retry_on_intr,
        };
        // A thread of its own, which ends with the wait or soon after it.
        let wait = tokio::task::spawn_blocking(move || {
            let limit = Timespec { tv_sec: PATIENCE.as_secs() as i64, tv_nsec: 0 };
            retry_on_intr(|| poll(&mut [PollFd::new(&self.handle, PollFlags::IN)], Some(&limit)))
        });
        if !matches!(wait.await, Ok(Ok(1))) {
            std::future::pending().await
        }
    }
}

#[cfg(not(target_os = "linux"))]
impl Process {
    fn open(_: u32) -> Option<Self> {
        None
    }

    async fn ended(self) {}
}
