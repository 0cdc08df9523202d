//! The process between the daemon and a command.
//!
//! The daemon runs its own program once more for each command. That process starts the command,
//! collects whatever the command leaves behind, and ends all of it when the daemon says so or is no
//! longer there: the kernel closes a pipe's end however its owner died, and the supervisor waits
//! for that. It exists before the command does, so there is no moment at which a command is not
//! watched. The command can stop it; then the daemon does its work, or the guard.
//!
//! Owns: the command's processes, those that made groups and sessions of their own too.
//! Never: outlives them, holds anything of the daemon's but three pipes, or has the command's text
//! or the daemon's name in its command line, where `pkill -f` would find it.
//!
//! Standard input is the control pipe: a `Request` as one line of JSON, then `TERMINATE` for
//! each wish to end the command gently; its end means to kill. Standard output is the report pipe:
//! `started` or `failed REASON`, then `exited CODE` or `signalled NUMBER`, and its end when
//! nothing runs any more. Standard error is the command's output.

use std::{
    fmt::Display,
    io::{self, BufRead, Read, Write},
    ops::RangeInclusive,
    os::{fd::AsFd, unix::process::CommandExt},
    path::PathBuf,
    process::{Command, Stdio},
    sync::atomic::{AtomicBool, Ordering},
    time::{Duration, Instant},
};

use rustix::process::{Pid, Signal, WaitOptions, WaitStatus};
use serde::{Deserialize, Serialize};

use super::{guard, process_tree};
use crate::system::descriptors::set_limit;

/// The argument with which a program is asked to be a supervisor.
pub(super) const ARGUMENT: &str = "__supervise-command";

/// The byte that asks for a gentle end.
pub(super) const TERMINATE: u8 = b'T';

/// What is reported when the command runs.
pub(super) const STARTED: &str = "started";

/// Something that cannot be killed (it sleeps in the kernel, or belongs to another user) is given up
/// after so long.
pub(super) const GIVE_UP: Duration = Duration::from_secs(10);

/// What to run. Directory and environment are the supervisor's own.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Request {
    pub(super) shell: PathBuf,
    pub(super) command: String,
    /// How many it may have open, if not as many as we.
    pub(super) descriptors: Option<u64>,
}

static HOSTED: AtomicBool = AtomicBool::new(false);

/// Becomes a supervisor, or their guard, if that is what this process was started for, and does not
/// return then.
///
/// Each program that offers `bash` calls this first of all in its `main`, before there are threads.
/// One that does not can run commands all the same, but when it is killed they live on.
///
/// Whatever it becomes, no signal stays blocked that whoever started it had blocked: it would not hear
/// that it is to end, nor would any command.
pub fn run_if_asked() {
    HOSTED.store(true, Ordering::Relaxed);
    // Nothing can be wrong with an empty set.
    let _ = nix::sys::signal::SigSet::empty().thread_set_mask();
    let mut arguments = std::env::args_os().skip(1);
    match (arguments.next(), arguments.next()) {
        (Some(first), None) if first == ARGUMENT => std::process::exit(supervise()),
        (Some(first), None) if first == guard::ARGUMENT => std::process::exit(guard::guard()),
        _ => {}
    }
}

/// Whether this program can be run as a supervisor.
pub(super) fn is_hosted() -> bool {
    HOSTED.load(Ordering::Relaxed)
}

fn supervise() -> i32 {
    // A session of its own: no signal to the daemon's group or from its terminal comes here, and
    // the command has no terminal to ask for passwords.
    let _ = rustix::process::setsid();
    process_tree::collect_orphans();
    wake_when_orphaned();
    let _ = take_signals();
    let mut control = io::BufReader::new(io::stdin());
    let leader = match read_request(&mut control).and_then(|request| start(&request)) {
        Ok(leader) => leader,
        Err(error) => {
            report("failed", error);
            return 1;
        }
    };
    report(STARTED, "");
    // Only now: ending what has not been started would find nothing, and then it would start.
    std::thread::spawn(move || {
        let _last = LastResort(leader);
        obey(control, leader);
    });
    wait_for_all(leader);
    0
}

/// The end of the thread that obeys, were it by a panic, is the end of the process.
struct LastResort(Pid);

impl Drop for LastResort {
    fn drop(&mut self) {
        let _ = rustix::process::kill_process_group(self.0, Signal::KILL);
        std::process::exit(1);
    }
}

/// The program that runs now, also if its file was replaced since.
pub(super) fn own_program() -> io::Result<PathBuf> {
    if cfg!(target_os = "linux") {
        return Ok("/proc/self/exe".into());
    }
    std::env::current_exe()
}

/// Should the command have stopped us, we must still see it when the daemon is killed.
pub(super) fn wake_when_orphaned() {
    #[cfg(target_os = "linux")]
    let _ = rustix::process::set_parent_process_death_signal(Some(Signal::CONT));
}

/// Takes every signal that can be taken, and does nothing. A service's stop sends some to every
/// process; the daemon then tells us what to do. They are caught, not ignored, since a command would
/// inherit that; so it does not inherit what whoever started the daemon has ignored either.
pub(super) fn take_signals() -> io::Result<()> {
    use tokio::signal::unix::{SignalKind, signal};
    let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build()?;
    let _inside = runtime.enter();
    for kind in STANDARD_SIGNALS {
        // The handler stays when its stream goes. Those that are only for the system are refused.
        drop(signal(SignalKind::from_raw(kind)));
    }
    Ok(())
}

/// All but those for real-time programs.
const STANDARD_SIGNALS: RangeInclusive<i32> = 1..=31;

fn read_request(control: &mut impl BufRead) -> io::Result<Request> {
    let mut line = Vec::new();
    control.read_until(b'\n', &mut line)?;
    // Cut short if the daemon died while it wrote, and then not JSON.
    serde_json::from_slice(&line).map_err(io::Error::other)
}

/// Starts the command in a group of its own, so that it can signal its group without hitting us.
fn start(request: &Request) -> io::Result<Pid> {
    if let Some(descriptors) = request.descriptors {
        set_limit(descriptors);
    }
    let output = io::stderr().as_fd().try_clone_to_owned()?;
    let child = Command::new(&request.shell)
        .arg("-c")
        .arg(&request.command)
        .stdin(Stdio::null())
        .stdout(output)
        .process_group(0)
        .spawn()?;
    Ok(Pid::from_child(&child))
}

/// Does what the control pipe says, to its end.
fn obey(mut control: impl Read, leader: Pid) {
    let mut byte = [0];
    while let Ok(1) = control.read(&mut byte) {
        if byte[0] == TERMINATE {
            signal_all(leader, Signal::TERM);
        }
    }
    let begin = Instant::now();
    while begin.elapsed() < GIVE_UP {
        signal_all(leader, Signal::KILL);
        // The other thread ends the process as soon as nothing is left.
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn signal_all(leader: Pid, signal: Signal) {
    let found = process_tree::signal_descendants(rustix::process::getpid(), signal);
    if !found && cfg!(not(target_os = "linux")) {
        let _ = rustix::process::kill_process_group(leader, signal);
    }
}

/// Waits until no descendant is left, and reports the leader's end when it comes.
fn wait_for_all(leader: Pid) {
    loop {
        match rustix::process::wait(WaitOptions::empty()) {
            Ok(Some((pid, status))) if pid == leader => report_end(status),
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(_) => return,
        }
    }
}

fn report_end(status: WaitStatus) {
    if let Some(code) = status.exit_status() {
        report("exited", code);
    } else if let Some(signal) = status.terminating_signal() {
        report("signalled", signal);
    }
}

fn report(what: &str, value: impl Display) {
    // Nobody listens if the daemon is gone; then the control pipe says so too.
    let line = format!("{what} {value}");
    let _ = writeln!(io::stdout(), "{}", line.trim_end()).and_then(|()| io::stdout().flush());
}
