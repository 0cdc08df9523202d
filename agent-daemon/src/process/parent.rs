//! The parent process, which the daemon on stdio must not outlive.

use std::time::Duration;

use rustix::process::Pid;

/// How often to look where the system cannot tell.
const EVERY: Duration = Duration::from_secs(1);

/// Completes when the process is gone; at once if there is none of that number.
pub(crate) async fn gone(process: u32) {
    let Some(pid) = i32::try_from(process).ok().and_then(Pid::from_raw) else { return };
    #[cfg(target_os = "linux")]
    match ended(pid).await {
        Ok(()) | Err(rustix::io::Errno::SRCH) => return,
        // An old kernel, or one that does not let us.
        Err(error) => tracing::debug!(%error, "the parent is looked for every second"),
    }
    while is_there(pid) {
        tokio::time::sleep(EVERY).await;
    }
}

/// Completes when the kernel says that the process has ended.
///
/// A thread waits, since the runtime has no sound way to watch a foreign descriptor. It ends with
/// either process.
#[cfg(target_os = "linux")]
async fn ended(pid: Pid) -> rustix::io::Result<()> {
    use rustix::{
        event::{PollFd, PollFlags, poll},
        io::{Errno, retry_on_intr},
        process::{PidfdFlags, pidfd_open},
    };

    let process = pidfd_open(pid, PidfdFlags::empty())?;
    let (said, heard) = tokio::sync::oneshot::channel();
    let watch = move || {
        let ended = retry_on_intr(|| poll(&mut [PollFd::new(&process, PollFlags::IN)], None));
        // Nobody is left to hear it when the daemon has ended first.
        let _ = said.send(ended.map(drop));
    };
    let thread = std::thread::Builder::new().name("parent-watch".to_owned()).spawn(watch);
    thread.map_err(|_| Errno::AGAIN)?;
    heard.await.unwrap_or(Err(Errno::CANCELED))
}

fn is_there(pid: Pid) -> bool {
    // Another user's process is there, too.
    !matches!(rustix::process::test_kill_process(pid), Err(rustix::io::Errno::SRCH))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::{
        process::{Command, Stdio},
        time::Duration,
    };

    use super::*;

    #[tokio::test]
    async fn the_end_of_a_process_is_noticed() {
        let mut process = Command::new("cat").stdin(Stdio::piped()).spawn().unwrap();
        let pid = process.id();
        let watch = tokio::spawn(gone(pid));
        assert!(is_there(Pid::from_child(&process)));
        drop(process.stdin.take());
        tokio::task::spawn_blocking(move || process.wait()).await.unwrap().unwrap();
        tokio::time::timeout(Duration::from_secs(10), watch).await.unwrap().unwrap();
        // Nor is one waited for that has gone before.
        tokio::time::timeout(Duration::from_secs(10), gone(pid)).await.unwrap();
    }
}
