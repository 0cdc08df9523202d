//! Watching one command from its start to the end of all its processes.
//!
//! Owns: its limits, the abort, how long each gentler step may take, progress updates.
//! Never: waits for something that the command left behind, be it a process that holds on to the
//! output or one that cannot be killed.

use std::time::Duration;

use agent_core::{ToolContext, ToolOutput};
use tokio::{io::AsyncReadExt, net::unix::pipe, time::Instant};

use super::{
    activity,
    output::{Finished, Output},
    processes::{CommandEnding, ProcessChange, Processes},
    stall::{Stall, Standstill},
};

/// How long a command has, after being asked to end, before it is killed. Well within the grace
/// period of an abort.
const TERM_TIME: Duration = Duration::from_millis(500);

/// How long what a command left running has before it is asked to end: enough for a process
/// substitution to say its last words.
const LINGER_TIME: Duration = Duration::from_millis(250);

/// How long what was killed has to disappear. Far longer than it takes, but for a crowd that keeps
/// the machine busy; well within the grace period of an abort, too.
const KILL_TIME: Duration = Duration::from_secs(3);

/// How long the output may stay open when nothing runs any more.
const DRAIN_TIME: Duration = Duration::from_millis(100);

/// At most ten updates a second.
const UPDATE_INTERVAL: Duration = Duration::from_millis(100);

const CHUNK: usize = 64 * 1024;

/// What a pipe holds at most, unless root enlarged it.
const PIPE: usize = 1024 * 1024;

/// Why a command was ended.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Cause {
    Aborted,
    /// After so long.
    TimedOut(Duration),
    StoodStill(Standstill),
}

/// How long a command may take.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Patience {
    /// So long, whatever it does.
    Until(Duration),
    /// As long as it says or does something within such a time.
    WhileBusy(Duration),
    /// For ever.
    Endless,
}

/// A command that ran.
pub(super) struct Ran {
    pub(super) output: Finished,
    /// How it ended; none if it cannot be killed.
    pub(super) ending: Option<CommandEnding>,
    /// Why we ended it, if we did.
    pub(super) cause: Option<Cause>,
    /// Whether it left something running that had to be ended.
    pub(super) left_running: bool,
    /// Whether something could not be ended.
    pub(super) still_running: bool,
    pub(super) duration: Duration,
}

/// How far the end has come.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Step {
    Running,
    /// The command has ended, but not all that it started.
    Lingering,
    /// Everything was asked to end.
    Terminating,
    /// Everything was killed.
    Killing,
    /// Nothing runs any more.
    Gone,
}

struct Watch<'a> {
    processes: Processes,
    output: Output,
    context: &'a ToolContext,
    step: Step,
    /// When the step has taken long enough; none while running.
    step_ends: Option<Instant>,
    ending: Option<CommandEnding>,
    cause: Option<Cause>,
    /// An interruption comes once; the signal that brought it goes on being true.
    interrupted: bool,
    left_running: bool,
    updates: Updates,
    stall: Stall,
}

/// Waits for a command and all its processes.
pub(super) async fn watch(
    processes: Processes,
    mut pipe: pipe::Receiver,
    output: Output,
    patience: Patience,
    context: &ToolContext,
) -> Ran {
    let begin = Instant::now();
    let (time_out, stall) = match patience {
        Patience::Until(limit) => (Some((begin + limit, limit)), None),
        Patience::WhileBusy(limit) => (None, Some(limit)),
        Patience::Endless => (None, None),
    };
    let mut watch = Watch {
        processes,
        output,
        context,
        step: Step::Running,
        step_ends: None,
        ending: None,
        cause: None,
        interrupted: false,
        left_running: false,
        updates: Updates { next: begin, waiting: false },
        stall: Stall::new(stall),
    };
    let mut chunk = vec![0; CHUNK];
    let mut open = true;
    while watch.step != Step::Gone || open {
        let may_interrupt = !watch.interrupted && watch.step != Step::Gone;
        tokio::select! {
            biased;
            () = context.signal.cancelled(), if may_interrupt => {
                watch.interrupt(Cause::Aborted).await;
            }
            limit = over(time_out), if may_interrupt && watch.ending.is_none() => {
                watch.interrupt(Cause::TimedOut(limit)).await;
            }
            () = until(watch.step_ends) => {
                if !watch.next_step().await {
                    watch.drain(&pipe, &mut chunk).await;
                    break;
                }
            }
            change = watch.processes.change(), if watch.step != Step::Gone => watch.changed(change),
            () = until(watch.updates.due()) => watch.update(),
            read = pipe.read(&mut chunk), if open => match read {
                Ok(count) if count > 0 => watch.said(&chunk[..count]).await,
                _ => open = false,
            },
            // Last: what has been said counts.
            () = until(Some(watch.stall.due())), if may_interrupt && watch.ending.is_none() => {
                watch.look(&pipe, &mut chunk).await;
            }
        }
    }
    let still_running = watch.step != Step::Gone;
    Ran {
        output: watch.output.finish().await,
        ending: watch.ending,
        cause: watch.cause,
        left_running: watch.left_running,
        still_running,
        duration: begin.elapsed(),
    }
}

impl Watch<'_> {
    /// Ends the command before its time. What only lingers is already over and is killed.
    async fn interrupt(&mut self, cause: Cause) {
        self.interrupted = true;
        if self.ending.is_some() {
            self.left_running = true;
            return self.kill();
        }
        self.cause = Some(cause);
        self.terminate().await;
    }

    /// Looks whether the command gets anywhere, and ends it if not.
    async fn look(&mut self, pipe: &pipe::Receiver, chunk: &mut [u8]) {
        let root = self.processes.root();
        // It reads many files.
        let activity = tokio::task::spawn_blocking(move || activity::look(root)).await;
        self.drain(pipe, chunk).await;
        if let Some(standstill) = self.stall.looked(activity.ok().flatten()) {
            self.interrupt(Cause::StoodStill(standstill)).await;
        }
    }

    async fn terminate(&mut self) {
        self.processes.terminate().await;
        self.enter(Step::Terminating, TERM_TIME);
    }

    fn kill(&mut self) {
        self.processes.kill();
        self.enter(Step::Killing, KILL_TIME);
    }

    fn enter(&mut self, step: Step, time: Duration) {
        self.step = step;
        self.step_ends = Some(Instant::now() + time);
    }

    /// The step has taken long enough. False if there is no further one.
    async fn next_step(&mut self) -> bool {
        match self.step {
            Step::Running | Step::Lingering => {
                self.left_running = true;
                self.terminate().await;
            }
            Step::Terminating => self.kill(),
            Step::Killing | Step::Gone => return false,
        }
        true
    }

    fn changed(&mut self, change: ProcessChange) {
        match change {
            ProcessChange::Ended(ending) => {
                self.ending = Some(ending);
                if self.step == Step::Running {
                    self.enter(Step::Lingering, LINGER_TIME);
                }
            }
            ProcessChange::Gone => self.enter(Step::Gone, DRAIN_TIME),
        }
    }

    /// Takes what is in the pipe by now. Not more: something may have got away and still write.
    async fn drain(&mut self, pipe: &pipe::Receiver, chunk: &mut [u8]) {
        for _ in 0..PIPE.div_ceil(CHUNK) {
            match pipe.try_read(chunk) {
                Ok(count) if count > 0 => self.said(&chunk[..count]).await,
                _ => return,
            }
        }
    }

    async fn said(&mut self, bytes: &[u8]) {
        self.output.feed(bytes).await;
        self.updates.waiting = true;
        self.stall.heard();
    }

    fn update(&mut self) {
        self.updates = Updates { next: Instant::now() + UPDATE_INTERVAL, waiting: false };
        self.context.update(ToolOutput::text(self.output.progress()));
    }
}

/// When to show progress.
struct Updates {
    next: Instant,
    waiting: bool,
}

impl Updates {
    fn due(&self) -> Option<Instant> {
        self.waiting.then_some(self.next)
    }
}

/// Waits until a time limit is over, and says which; for ever if there is none.
async fn over(limit: Option<(Instant, Duration)>) -> Duration {
    until(limit.map(|(end, _)| end)).await;
    limit.map_or(Duration::MAX, |(_, limit)| limit)
}

/// Waits until then; for ever if there is no such time.
async fn until(time: Option<Instant>) {
    match time {
        Some(time) => tokio::time::sleep_until(time).await,
        None => std::future::pending().await,
    }
}
