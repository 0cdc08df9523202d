//! All the processes that descend from one.
//!
//! Owns: finding them and sending them a signal. Never: signals anything that is not a descendant.

use rustix::process::{Pid, Signal, kill_process, kill_process_group};

/// A process that descends from another.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Descendant {
    pid: Pid,
    group: Pid,
}

/// Sends a signal to everything that descends from `root`, which is a session's leader and collects
/// its orphans. `false` if there was nothing.
///
/// One call can miss what is forked meanwhile, though not in a group that gets the signal: the
/// kernel lets no fork slip out of a signal to a group. Whoever wants all of them gone calls again.
pub(super) fn signal_descendants(root: Pid, signal: Signal) -> bool {
    let descendants = descendants(root);
    let mut groups: Vec<Pid> = descendants.iter().map(|process| process.group).collect();
    groups.sort_by_key(|group| group.as_raw_nonzero());
    groups.dedup();
    for group in groups {
        // A group in here has only descendants, but for the root's own: groups do not reach across
        // sessions. Something that refuses (a set-user-id program) has to be left.
        if group != root {
            let _ = kill_process_group(group, signal);
        }
    }
    for process in descendants.iter().filter(|process| process.group == root) {
        let _ = kill_process(process.pid, signal);
    }
    !descendants.is_empty()
}

/// Kills what lives in a session; `false` if nothing does. The session's number stays taken as long
/// as anything is in it, so this cannot hit a stranger.
#[cfg(target_os = "linux")]
pub(super) fn kill_session(session: Pid) -> bool {
    let members = all_processes().filter(|(stat, _)| stat.session == Some(session) && stat.lives());
    let mut found = false;
    for (_, pid) in members {
        found = true;
        let _ = kill_process(pid, Signal::KILL);
    }
    found
}

/// Elsewhere sessions cannot be looked into.
#[cfg(not(target_os = "linux"))]
pub(super) fn kill_session(_session: Pid) -> bool {
    false
}

/// Whether anything in a group lives.
#[cfg(target_os = "linux")]
pub(super) fn lives(group: Pid) -> bool {
    // Asking the kernel would count those that have ended and that nobody collects.
    all_processes().any(|(stat, _)| stat.group == Some(group) && stat.lives())
}

/// Whether there is anything in a group.
#[cfg(not(target_os = "linux"))]
pub(super) fn lives(group: Pid) -> bool {
    rustix::process::test_kill_process_group(group).is_ok()
}

#[cfg(target_os = "linux")]
fn all_processes() -> impl Iterator<Item = (Stat, Pid)> {
    std::fs::read_dir("/proc").into_iter().flatten().filter_map(|entry| {
        let pid = Pid::from_raw(entry.ok()?.file_name().to_str()?.parse().ok()?)?;
        let stat = std::fs::read(format!("/proc/{pid}/stat")).ok()?;
        Some((parse_stat(&stat)?, pid))
    })
}

/// Living processes only: one that has ended and waits to be collected counts no more.
#[cfg(target_os = "linux")]
fn descendants(root: Pid) -> Vec<Descendant> {
    let all: Vec<(Stat, Pid)> = all_processes().collect();
    let mut found = Vec::new();
    let mut parents = vec![root];
    while let Some(parent) = parents.pop() {
        for (stat, pid) in all.iter().filter(|(stat, _)| stat.parent == Some(parent)) {
            parents.push(*pid);
            if let Some(group) = stat.group.filter(|_| stat.lives()) {
                found.push(Descendant { pid: *pid, group });
            }
        }
    }
    found
}

/// Elsewhere the supervisor knows only the group of the command itself.
#[cfg(not(target_os = "linux"))]
fn descendants(_root: Pid) -> Vec<Descendant> {
    Vec::new()
}

#[cfg(target_os = "linux")]
#[derive(Debug, PartialEq)]
struct Stat {
    state: u8,
    parent: Option<Pid>,
    group: Option<Pid>,
    session: Option<Pid>,
}

#[cfg(target_os = "linux")]
impl Stat {
    fn lives(&self) -> bool {
        !matches!(self.state, b'Z' | b'X')
    }
}

/// `PID (NAME) STATE PARENT GROUP SESSION …`, where a name can hold anything, parentheses too.
#[cfg(target_os = "linux")]
fn parse_stat(stat: &[u8]) -> Option<Stat> {
    let end = memchr::memrchr(b')', stat)?;
    let mut fields = std::str::from_utf8(&stat[end + 1..]).ok()?.split_ascii_whitespace();
    let state = *fields.next()?.as_bytes().first()?;
    // A process that is just ending has the group -1.
    let mut pid = || fields.next()?.parse().ok().map(|pid: i32| Pid::from_raw(pid.max(0)));
    Some(Stat { state, parent: pid()?, group: pid()?, session: pid()? })
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn a_stat_line_is_understood() {
        let stat = |state, ids: [i32; 3]| {
            let [parent, group, session] = ids.map(Pid::from_raw);
            Some(Stat { state, parent, group, session })
        };
        let cases: &[(&[u8], Option<Stat>)] = &[
            (b"12 (sleep) S 7 12 5 0 -1 4194560", stat(b'S', [7, 12, 5])),
            (b"12 (a) b (c) Z 1 2 3\n", stat(b'Z', [1, 2, 3])),
            (b"12 (\xff\xfe) R 1 2 3", stat(b'R', [1, 2, 3])),
            (b"2 (kthreadd) S 0 0 0", stat(b'S', [0, 0, 0])),
            (b"12 (sleep) R 7 -1 -1", stat(b'R', [7, 0, 0])),
            (b"12 (sleep", None),
            (b"12 (sleep) S", None),
            (b"", None),
        ];
        for (line, expected) in cases {
            assert_eq!(parse_stat(line), *expected, "{line:?}");
        }
    }

    #[test]
    fn a_child_is_found_with_its_group() {
        use std::os::unix::process::CommandExt;
        let mut command = std::process::Command::new("sleep");
        let mut child = command.arg("1000").process_group(0).spawn().unwrap();
        let pid = Pid::from_child(&child);
        let found = descendants(rustix::process::getpid());
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(found.contains(&Descendant { pid, group: pid }), "{found:?}");
    }
}
