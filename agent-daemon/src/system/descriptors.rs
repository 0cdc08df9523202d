//! How many descriptors this process may have open, and which of them go on to others.
//!
//! Owns: the limit that we were started with. The daemon raises its own, so that connections cannot
//! use up what tools and models need; commands get the first one back, since programs that `select`
//! break on higher numbers. Also what we were started with besides stdin, stdout and stderr: a lock
//! or a pipe of somebody's must not stay open for as long as a command of ours runs.
//! Never: closes anything.

use std::sync::OnceLock;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Enough for every connection that listeners serve, twice over.
const WANTED: u64 = 16_384;

static BEFORE: OnceLock<u64> = OnceLock::new();

/// Keeps all that is open, but for stdin, stdout and stderr, from the processes that we start. What
/// Rust opens is never theirs anyway, so this is about what we were started with.
pub(crate) fn keep_from_children() {
    close_fds::set_fds_cloexec_threadsafe(3, &[]);
}

/// Raises the limit as far as the system lets us, once.
pub(crate) fn raise_limit() {
    let limit = getrlimit(Resource::Nofile);
    let wanted = limit.maximum.map_or(WANTED, |maximum| maximum.min(WANTED));
    let Some(current) = limit.current.filter(|current| *current < wanted) else { return };
    if set_limit(wanted) {
        let _ = BEFORE.set(current);
    }
}

/// How many descriptors we may have open.
pub(crate) fn limit() -> u64 {
    getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX)
}

/// The limit that we were started with, if it is not ours any more.
pub(crate) fn limit_before() -> Option<u64> {
    BEFORE.get().copied()
}

/// Sets the limit of this process and of those that it starts. Whether it could.
pub(crate) fn set_limit(current: u64) -> bool {
    let limit = Rlimit { current: Some(current), ..getrlimit(Resource::Nofile) };
    setrlimit(Resource::Nofile, limit).is_ok()
}
