//! How the daemon gives memory back.
//!
//! Owns: the settings of the C library's allocator, which were chosen by measurement. A daemon lives
//! for weeks beside an editor, and what it used for a moment is not its own.
//! Never: changes what supervisors of commands and clients do; they do not live long.
//!
//! The table is why this allocator was chosen, and older than [`give_back_at_rest`]: anonymous memory in
//! MiB ten seconds after 800 trivial commands (a transcript of 0.4 MB), after a picture of 10 MB that
//! stays in the transcript, and after `reset`; no other load:
//!
//! | allocator                              | commands | picture | reset |
//! | -------------------------------------- | -------: | ------: | ----: |
//! | glibc                                  |       38 |     116 |   117 |
//! | glibc, two arenas and fixed thresholds |       13 |      26 |    13 |
//! | mimalloc                               |       21 |      32 |    45 |
//! | jemalloc, two arenas, a decay of 1 s   |       11 |      25 |     7 |
//!
//! mimalloc gives back when something is allocated, and at rest nothing is. jemalloc would save a
//! little more, and cost every fresh clone a minute and `make`, and every start half a MiB.

use std::time::Duration;

use tokio::sync::Notify;

/// So long after the last of what frees it is looked for what can be given back: one look, however
/// many of them there are together.
const REST: Duration = Duration::from_secs(1);

/// Much may have become unused.
static FREED: Notify = Notify::const_new();

/// Says that much may have become unused: a run has ended, or a transcript was emptied or forgotten.
pub(crate) fn has_freed() {
    FREED.notify_one();
}

/// Gives back what the thresholds leave: whole pages between pieces that are in use. Never completes.
pub(crate) async fn give_back_at_rest() {
    loop {
        FREED.notified().await;
        tokio::time::sleep(REST).await;
        // Some milliseconds, in which other threads may wait for an arena. A panic is none of ours.
        let _ = tokio::task::spawn_blocking(trim).await;
    }
}

/// Has the allocator give back what is not used. To be called before there are other threads.
pub(crate) fn give_back() {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    {
        /// Each thread would have an arena of its own otherwise, up to eight for each core, and a
        /// hole in one is of no use to the others. Two: runs seldom wait for one another.
        const ARENAS: i32 = 2;
        /// What is unused at the end of an arena is given back above this,
        const UNUSED_BYTES: i32 = 128 * 1024;
        /// and what is larger than this has pages of its own. Both would grow with the largest
        /// piece that was ever given back, which may be a picture, and never shrink.
        const OWN_PAGES_BYTES: i32 = 128 * 1024;
        set(libc::M_ARENA_MAX, ARENAS);
        set(libc::M_TRIM_THRESHOLD, UNUSED_BYTES);
        set(libc::M_MMAP_THRESHOLD, OWN_PAGES_BYTES);
    }
}

#[cfg_attr(all(target_os = "linux", target_env = "gnu"), expect(unsafe_code))]
fn trim() {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    // SAFETY: `malloc_trim` takes a number, and gives back pages that nothing is in, under the
    // allocator's own locks.
    unsafe {
        libc::malloc_trim(0);
    }
}

/// There is no safe call for it, and the environment, which has the same settings, is inherited by
/// tools.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
#[expect(unsafe_code)]
fn set(parameter: i32, value: i32) {
    // SAFETY: `mallopt` takes two numbers and keeps one of them, under the allocator's own lock. A
    // number that it does not know is refused, and then memory is given back as late as before.
    unsafe { libc::mallopt(parameter, value) };
}
