//! What stands by when a command stops its supervisor.
//!
//! A command can stop its parent, over and over, and so on up to the daemon. While the daemon lives
//! it then does the supervisor's work itself. For its own death it has a guard: one more process of
//! its program, that no command descends from. The kernel closes the pipe between the two however
//! the daemon ends, and the guard then kills what the supervisors have left.
//!
//! Owns: the list of the supervisors, the guard that is told of each, and whatever comes to the
//! daemon from a supervisor that was killed.
//! Never: waits for the guard, which a command could stop too.
//!
//! The guard's standard input has a line for each change of the list: `+PID` or `-PID`.

use std::{
    collections::{HashMap, HashSet},
    io::{self, BufRead, Write},
    process::{self, Command, Stdio},
    sync::{Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use rustix::process::{Pid, Signal};
use tokio::process::Child;

use super::{
    process_tree::{self, ProcessSnapshot},
    processes::LOOK,
    supervisor::{own_program, take_signals, wake_when_orphaned},
};

/// The argument with which a program is asked to be a guard.
pub(super) const ARGUMENT: &str = "__guard-commands";

/// Something that cannot be killed is given up after so long. Longer than a supervisor takes: what
/// has to be killed here may be a crowd, on a machine that is kept busy by it.
const GIVE_UP: Duration = Duration::from_secs(60);

static LIST: Mutex<Option<List>> = Mutex::new(None);

/// The daemon's side.
#[derive(Default)]
struct List {
    supervisors: HashSet<Pid>,
    guard: Option<process::Child>,
}

/// A supervisor's place on the list, until this is dropped.
pub(super) struct Listed(Pid);

impl Listed {
    /// Starts a supervisor and puts it on the list.
    ///
    /// # Errors
    /// It could not be started.
    pub(super) fn start(start: impl FnOnce() -> io::Result<Child>) -> io::Result<(Child, Listed)> {
        // Under the lock, since a child of ours that is not on the list is taken for an orphan.
        let mut list = list();
        let list = list.get_or_insert_with(List::new);
        let supervisor = start()?;
        let pid = id_of(&supervisor);
        list.supervisors.insert(pid);
        list.tell(&format!("+{pid}\n"));
        Ok((supervisor, Listed(pid)))
    }

    pub(super) fn pid(&self) -> Pid {
        self.0
    }
}

impl Drop for Listed {
    fn drop(&mut self) {
        if let Some(list) = &mut *list() {
            list.supervisors.remove(&self.0);
            list.tell(&format!("-{}\n", self.0));
        }
    }
}

/// Kills what came to us from supervisors that were killed. `false` if there was nothing.
pub(super) fn kill_orphans(now: &ProcessSnapshot) -> bool {
    let list = list();
    let Some(List { supervisors, guard }) = &*list else { return false };
    let guard = guard.as_ref().map(Pid::from_child);
    let ours = |child| supervisors.contains(&child) || guard == Some(child);
    now.kill_adopted(ours)
}

fn list() -> MutexGuard<'static, Option<List>> {
    LIST.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The number of a child that was not waited for.
pub(super) fn id_of(child: &Child) -> Pid {
    let id = child.id().and_then(|id| Pid::from_raw(i32::try_from(id).ok()?));
    id.expect("a child that was not waited for has an id")
}

impl List {
    fn new() -> Self {
        // What a killed supervisor watched comes to us then, whatever session it made.
        process_tree::collect_orphans();
        List::default()
    }

    /// Tells the guard of a change; a new one, told everything, if there is none that listens.
    fn tell(&mut self, change: &str) {
        // Elsewhere a guard could find nothing.
        if cfg!(not(target_os = "linux")) || self.say(change).is_ok() {
            return;
        }
        if let Some(mut deaf) = self.guard.take() {
            let _ = deaf.kill().and_then(|()| deaf.wait());
        }
        let everything: String = self.supervisors.iter().map(|pid| format!("+{pid}\n")).collect();
        let guard = start().map(|guard| self.guard = Some(guard));
        if let Err(error) = guard.and_then(|()| self.say(&everything)) {
            tracing::warn!("commands have no guard, should the daemon be killed: {error}");
        }
    }

    /// Without waiting: a guard that is stopped reads nothing.
    fn say(&mut self, words: &str) -> io::Result<()> {
        let pipe = self.guard.as_mut().and_then(|guard| guard.stdin.as_mut());
        pipe.ok_or(io::ErrorKind::NotConnected)?.write_all(words.as_bytes())
    }
}

fn start() -> io::Result<process::Child> {
    use std::os::unix::process::CommandExt;
    let mut program = Command::new(own_program()?);
    // Neither our secrets nor our directory: it needs nothing.
    program.arg0("guard").arg(ARGUMENT).env_clear().current_dir("/");
    program.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
    let guard = program.spawn()?;
    let pipe = guard.stdin.as_ref().expect("it is piped");
    rustix::fs::fcntl_setfl(pipe, rustix::fs::OFlags::NONBLOCK)?;
    Ok(guard)
}

/// The guard's side: hears of supervisors until the daemon has ended, then ends what is left.
pub(super) fn guard() -> i32 {
    let _ = rustix::process::setsid();
    wake_when_orphaned();
    let _ = take_signals();
    let mut supervisors = HashMap::new();
    for line in io::stdin().lock().lines().map_while(Result::ok) {
        let number = |digits: &str| Pid::from_raw(digits.parse().ok()?);
        if let Some(pid) = line.strip_prefix('+').and_then(number) {
            supervisors.insert(pid, SeenProcess::Something);
        } else if let Some(pid) = line.strip_prefix('-').and_then(number) {
            supervisors.remove(&pid);
        }
    }
    let begin = Instant::now();
    while !supervisors.is_empty() && begin.elapsed() < GIVE_UP {
        // One for all of them: there can be many, and each takes a while.
        let now = ProcessSnapshot::take();
        supervisors.retain(|supervisor, seen| kill_all(&now, *supervisor, seen));
        std::thread::sleep(LOOK);
    }
    0
}

/// What a supervisor watched when it was last looked at.
enum SeenProcess {
    Something,
    Nothing,
}

/// Kills what a supervisor watches, and the supervisor last: as long as it is there, even stopped,
/// all of it descends from it. `false` if there was nothing.
fn kill_all(now: &ProcessSnapshot, supervisor: Pid, seen: &mut SeenProcess) -> bool {
    if now.signal_descendants(supervisor, Signal::KILL) {
        *seen = SeenProcess::Something;
        return true;
    }
    // Only the second time, since a snapshot does not show what lost its parent while it was taken.
    if let SeenProcess::Something = std::mem::replace(seen, SeenProcess::Nothing) {
        return true;
    }
    // One that has only just begun does not lead its session yet, and will start its command.
    now.kill_session(supervisor) || now.lives(supervisor)
}
