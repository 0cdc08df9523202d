//! What the processes of a command have been doing.
//!
//! Owns: reading from `/proc` how much they have computed, and which of them stand still.
//! Never: is asked often. Each look reads the state of all processes of the machine.

use rustix::process::Pid;

/// What the processes of a command have come to.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct CommandActivity {
    /// Processor time, in clock ticks, with that of children that have ended.
    pub(super) ticks: u64,
    /// Nanoseconds on a processor of those that live, and their numbers: one that works a little now
    /// and then, or starts what ends soon, may not come to a whole tick for minutes. None where the
    /// kernel does not count them.
    pub(super) fine: Vec<(i32, u64)>,
    /// The name of one that waits for a terminal: it is stopped because it may not have the one that
    /// it wants, or has taken its output for one.
    pub(super) wants_terminal: Option<String>,
    /// The name of one that is stopped, for whatever reason.
    pub(super) stopped: Option<String>,
}

/// Looks at what descends from `root`, and at its group; none where there is no `/proc`.
pub(super) fn look(root: Pid) -> Option<CommandActivity> {
    let root = root.as_raw_nonzero().get();
    let mut all = Vec::new();
    for entry in std::fs::read_dir("/proc").ok()?.flatten() {
        let pid = entry.file_name().to_str().and_then(|name| name.parse::<i32>().ok());
        let stat = pid.and_then(|pid| std::fs::read(format!("/proc/{pid}/stat")).ok());
        all.extend(stat.and_then(|stat| parse(&stat)));
    }
    (!all.is_empty()).then(|| gather(root, &all, reads_its_output, nanoseconds))
}

/// How long the threads of a process have been on a processor.
fn nanoseconds(pid: i32) -> u64 {
    let threads = std::fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    let of_thread = |thread: std::fs::DirEntry| {
        let text = std::fs::read_to_string(thread.path().join("schedstat")).ok()?;
        text.split_ascii_whitespace().next()?.parse::<u64>().ok()
    };
    threads.filter_map(of_thread).sum()
}

/// Whether a process would read from the pipe that its errors go to. An editor without a terminal on
/// its input tries this as the last place where it may have one, and then waits for ever: the pipe
/// can only be written to.
fn reads_its_output(pid: i32) -> bool {
    let target = |number| std::fs::read_link(format!("/proc/{pid}/fd/{number}")).ok();
    let flags = || {
        let text = std::fs::read_to_string(format!("/proc/{pid}/fdinfo/0")).ok()?;
        let flags = text.lines().find_map(|line| line.strip_prefix("flags:"))?;
        u32::from_str_radix(flags.trim(), 8).ok()
    };
    let is_pipe = |place: &std::path::PathBuf| place.to_string_lossy().starts_with("pipe:");
    let write_only = rustix::fs::OFlags::WRONLY.bits();
    let access = rustix::fs::OFlags::RWMODE.bits();
    target(0).filter(is_pipe).is_some_and(|input| target(2) == Some(input))
        && flags().is_some_and(|flags| flags & access == write_only)
}

fn gather(
    root: i32,
    all: &[Process],
    reads_its_output: impl Fn(i32) -> bool,
    nanoseconds: impl Fn(i32) -> u64,
) -> CommandActivity {
    let mut activity = CommandActivity::default();
    let is_first = |process: &&Process| process.pid == root || process.group == root;
    let mut open: Vec<&Process> = all.iter().filter(is_first).collect();
    let mut seen: Vec<i32> = open.iter().map(|process| process.pid).collect();
    while let Some(process) = open.pop() {
        activity.ticks += process.ticks;
        // A supervisor is woken by us, which is no work of the command's.
        if process.pid != root {
            activity.fine.push((process.pid, nanoseconds(process.pid)));
        }
        // The root may be a supervisor, which the command can stop, but which is no part of it.
        if process.state == b'T' && process.pid != root {
            activity.stopped.get_or_insert_with(|| process.name.clone());
            if process.terminal != 0 && process.foreground != process.group {
                activity.wants_terminal.get_or_insert_with(|| process.name.clone());
            }
        }
        if process.state == b'S' && process.pid != root && reads_its_output(process.pid) {
            activity.wants_terminal.get_or_insert_with(|| process.name.clone());
        }
        for child in all.iter().filter(|child| child.parent == process.pid) {
            if !seen.contains(&child.pid) {
                seen.push(child.pid);
                open.push(child);
            }
        }
    }
    // `/proc` promises no order.
    activity.fine.sort_unstable();
    activity
}

#[derive(Clone, Debug, PartialEq)]
struct Process {
    pid: i32,
    name: String,
    state: u8,
    parent: i32,
    group: i32,
    /// The number of its terminal, or 0.
    terminal: i32,
    /// The group that has that terminal.
    foreground: i32,
    ticks: u64,
}

/// `PID (NAME) STATE PARENT GROUP SESSION TERMINAL FOREGROUND …`, the eleventh to the fourteenth
/// after the name being processor times. A name can hold anything, parentheses too.
fn parse(stat: &[u8]) -> Option<Process> {
    let (begin, end) = (memchr::memchr(b'(', stat)?, memchr::memrchr(b')', stat)?);
    let pid = std::str::from_utf8(&stat[..begin]).ok()?.trim().parse().ok()?;
    let fields = std::str::from_utf8(&stat[end + 1..]).ok()?;
    let fields: Vec<&str> = fields.split_ascii_whitespace().collect();
    let number = |at: usize| fields.get(at)?.parse::<i64>().ok();
    let id = |at: usize| i32::try_from(number(at)?).ok();
    let mut ticks = 0;
    for at in 11..=14 {
        ticks += u64::try_from(number(at)?).unwrap_or(0);
    }
    Some(Process {
        pid,
        name: String::from_utf8_lossy(stat.get(begin + 1..end)?).into_owned(),
        state: *fields.first()?.as_bytes().first()?,
        parent: id(1)?,
        group: id(2)?,
        terminal: id(4)?,
        foreground: id(5)?,
        ticks,
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    fn process(line: &str) -> Process {
        parse(line.as_bytes()).unwrap_or_else(|| panic!("{line}"))
    }

    #[test]
    fn a_stat_line_is_understood() {
        let line = "12 (a) (b) T 7 11 5 34816 10 4194560 1 2 3 4 100 20 3 -4 20 0 1 0 99";
        assert_eq!(
            process(line),
            Process {
                pid: 12,
                name: "a) (b".into(),
                state: b'T',
                parent: 7,
                group: 11,
                terminal: 34816,
                foreground: 10,
                ticks: 123,
            }
        );
        for line in ["", "12 (sleep", "12 (sleep) S 1 2", "x (sleep) S 1 2 3 4 5 6 7 8 9 0 1 2 3 4"]
        {
            assert_eq!(parse(line.as_bytes()), None, "{line}");
        }
    }

    #[test]
    fn descendants_count_and_strangers_do_not() {
        let all = [
            // The root, its child in a group of its own, and a grandchild that wants a terminal.
            process("5 (supervisor) T 1 5 5 0 -1 0 0 0 0 0 1 1 0 0"),
            process("6 (bash) S 5 6 5 0 -1 0 0 0 0 0 10 0 100 0"),
            process("7 (vi) T 6 7 7 34816 6 0 0 0 0 0 1000 0 0 0"),
            // One of the root's group whose parent is gone, and a stranger.
            process("8 (left) S 1 5 5 0 -1 0 0 0 0 0 10000 0 0 0"),
            process("9 (vim) T 1 9 9 34816 6 0 0 0 0 0 100000 0 0 0"),
        ];
        let none = |_| 0;
        let activity = gather(5, &all, |_| false, |pid| u64::from(pid == 6) * 17);
        let vi = Some("vi".to_owned());
        let fine = vec![(6, 17), (7, 0), (8, 0)];
        let expected = CommandActivity {
            ticks: 11_112,
            fine,
            wants_terminal: vi.clone(),
            stopped: vi.clone(),
        };
        assert_eq!(activity, expected);
        // In the foreground it was stopped by someone, and does not want the terminal.
        let foreground = process("7 (vi) T 5 7 7 34816 7 0 0 0 0 0 0 0 0 0");
        assert_eq!(gather(5, &[foreground], |_| false, none).wants_terminal, None);
        let bash = gather(5, &all[..2], |pid| pid == 6, none).wants_terminal;
        assert_eq!(bash.as_deref(), Some("bash"));
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn what_computes_is_seen_to() {
        let own = rustix::process::getpid();
        let before = look(own).unwrap().ticks;
        let begin = std::time::Instant::now();
        while look(own).unwrap().ticks == before {
            assert!(begin.elapsed() < std::time::Duration::from_secs(20), "no time goes by");
        }
    }
}
