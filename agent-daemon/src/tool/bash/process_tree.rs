//! All the processes that descend from one.
//!
//! Owns: finding them and sending them a signal.
//! Never: signals anything that is not a descendant, such as the children of a stranger that was
//! given the number of one that has ended.

use rustix::process::{Pid, Signal, kill_process, kill_process_group};

/// A process that descends from another.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Descendant {
    pid: Pid,
    group: Pid,
}

/// The processes that there were when this was taken.
pub(super) struct ProcessSnapshot {
    #[cfg(target_os = "linux")]
    processes: Vec<(Stat, Pid)>,
}

impl ProcessSnapshot {
    /// Takes one. Elsewhere than on Linux it is empty.
    pub(super) fn take() -> Self {
        ProcessSnapshot {
            #[cfg(target_os = "linux")]
            processes: all_processes().collect(),
        }
    }

    /// Sends a signal to everything that descends from `root`, which leads a session and collects
    /// its orphans. `false` if there was nothing.
    ///
    /// One call can miss what is forked meanwhile, though not in a group that gets the signal: the
    /// kernel lets no fork slip out of a signal to a group. Whoever wants all of them gone calls
    /// again, with a new snapshot.
    pub(super) fn signal_descendants(&self, root: Pid, signal: Signal) -> bool {
        let descendants = self.descendants(root);
        let mut groups: Vec<Pid> = descendants.iter().map(|process| process.group).collect();
        groups.sort_by_key(|group| group.as_raw_nonzero());
        groups.dedup();
        for group in groups {
            // A group in here has only descendants, but for the root's own: groups do not reach
            // across sessions. Something that refuses (a set-user-id program) has to be left.
            if group != root {
                let _ = kill_process_group(group, signal);
            }
        }
        for process in descendants.iter().filter(|process| process.group == root) {
            let _ = kill_process(process.pid, signal);
        }
        !descendants.is_empty()
    }

    /// Kills what lives in a session; `false` if nothing does. The session's number stays taken as
    /// long as anything is in it, so this cannot hit a stranger.
    #[cfg(target_os = "linux")]
    pub(super) fn kill_session(&self, session: Pid) -> bool {
        let is_member = |stat: &Stat| stat.session == Some(session) && stat.lives();
        let mut found = false;
        for (_, pid) in self.processes.iter().filter(|(stat, _)| is_member(stat)) {
            found = true;
            let _ = kill_process(*pid, Signal::KILL);
        }
        found
    }

    /// Elsewhere sessions cannot be looked into.
    #[cfg(not(target_os = "linux"))]
    pub(super) fn kill_session(&self, _session: Pid) -> bool {
        false
    }

    /// Kills the children of this process that it did not start, and collects them once they have
    /// ended. `false` if there are none.
    ///
    /// They are told by their session: what we start is in ours, but for the `ours`, which have made
    /// one of their own, and whose descendants therefore cannot be in it.
    #[cfg(target_os = "linux")]
    pub(super) fn kill_adopted(&self, ours: impl Fn(Pid) -> bool) -> bool {
        let us = rustix::process::getpid();
        // Asked of /proc like theirs: a session that began outside of our container has no number
        // here, and rustix takes the kernel's zero for impossible.
        let Some(Stat { session, .. }) = stat(us) else { return false };
        let is_adopted = |(stat, pid): &&(Stat, Pid)| {
            stat.parent == Some(us) && stat.session != session && !ours(*pid)
        };
        let mut found = false;
        for (stat, pid) in self.processes.iter().filter(is_adopted) {
            found = true;
            if stat.lives() {
                let _ = kill_process_group(stat.group.unwrap_or(*pid), Signal::KILL);
            } else {
                let _ = rustix::process::waitpid(Some(*pid), rustix::process::WaitOptions::NOHANG);
            }
        }
        found
    }

    /// Elsewhere they do not come to us.
    #[cfg(not(target_os = "linux"))]
    pub(super) fn kill_adopted(&self, _ours: impl Fn(Pid) -> bool) -> bool {
        false
    }

    /// Whether a process lives.
    #[cfg(target_os = "linux")]
    pub(super) fn lives(&self, pid: Pid) -> bool {
        self.processes.iter().any(|(stat, number)| *number == pid && stat.lives())
    }

    /// Elsewhere nobody knows.
    #[cfg(not(target_os = "linux"))]
    pub(super) fn lives(&self, _pid: Pid) -> bool {
        false
    }

    /// Living processes only: one that has ended and waits to be collected counts no more.
    #[cfg(target_os = "linux")]
    fn descendants(&self, root: Pid) -> Vec<Descendant> {
        // A stranger with the number of one that has ended does not lead a session, or hardly ever.
        let leads = |(stat, pid): &(Stat, Pid)| *pid == root && stat.session == Some(root);
        let mut parents = Vec::new();
        parents.extend(self.processes.iter().any(leads).then_some(root));
        let mut found = Vec::new();
        while let Some(parent) = parents.pop() {
            let is_child = |stat: &Stat| stat.parent == Some(parent);
            for (stat, pid) in self.processes.iter().filter(|(stat, _)| is_child(stat)) {
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
    fn descendants(&self, _root: Pid) -> Vec<Descendant> {
        Vec::new()
    }
}

/// Sends a signal to everything that descends from `root` now, as [`ProcessSnapshot`] does.
pub(super) fn signal_descendants(root: Pid, signal: Signal) -> bool {
    ProcessSnapshot::take().signal_descendants(root, signal)
}

/// What loses its parent becomes a child of this process from now on, if that is its nearest
/// ancestor that said so, whatever session it made.
pub(super) fn collect_orphans() {
    #[cfg(target_os = "linux")]
    let _ = rustix::process::set_child_subreaper(Some(rustix::process::getpid()));
}

/// Whether a process is stopped.
#[cfg(target_os = "linux")]
pub(super) fn is_stopped(pid: Pid) -> bool {
    stat(pid).is_some_and(|stat| matches!(stat.state, b'T' | b't'))
}

/// Elsewhere nobody knows.
#[cfg(not(target_os = "linux"))]
pub(super) fn is_stopped(_pid: Pid) -> bool {
    false
}

/// Whether a process is a child of this one and lives.
#[cfg(target_os = "linux")]
pub(super) fn is_our_child(pid: Pid) -> bool {
    let us = rustix::process::getpid();
    stat(pid).is_some_and(|stat| stat.parent == Some(us) && stat.lives())
}

/// Whether a process is there, ours or not.
#[cfg(not(target_os = "linux"))]
pub(super) fn is_our_child(pid: Pid) -> bool {
    rustix::process::test_kill_process(pid).is_ok()
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
        Some((stat(pid)?, pid))
    })
}

#[cfg(target_os = "linux")]
fn stat(pid: Pid) -> Option<Stat> {
    parse_stat(&std::fs::read(format!("/proc/{pid}/stat")).ok()?)
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
    fn a_leaders_child_is_found_with_its_group() {
        use std::{io::BufRead, process::Stdio};
        let mut command = std::process::Command::new("setsid");
        // Without a terminal not every `sh` gives a job a group of its own.
        command
            .args(["bash", "-c", "set -m; sleep 1000 & echo $! $$; wait"])
            .stdout(Stdio::piped());
        let mut leader = command.spawn().unwrap();
        let mut line = String::new();
        let said = leader.stdout.take().unwrap();
        std::io::BufReader::new(said).read_line(&mut line).unwrap();
        let number = |text: &str| Pid::from_raw(text.parse().unwrap()).unwrap();
        let (child, root) = line.trim().split_once(' ').unwrap();
        let (child, root) = (number(child), number(root));
        let now = ProcessSnapshot::take();
        let found = [now.descendants(root), now.descendants(child)];
        assert!(is_our_child(root) && !is_our_child(child));
        assert!(signal_descendants(root, Signal::KILL));
        let ended = leader.wait().unwrap();
        assert_eq!(found, [vec![Descendant { pid: child, group: child }], vec![]], "{ended}");
        assert!(!signal_descendants(root, Signal::KILL));
    }
}
