//! One lock per file, so that calls for it take effect one after another.
//!
//! Owns: the process's table of locks, by the path that symlinks lead to, and the order in which a
//! session's calls queue for them. One table for all sessions: two of them may work in the same
//! directory. Never: makes work on one file wait for work on another.

use std::{
    collections::HashMap,
    path::{Path, PathBuf},
    pin::pin,
    sync::{Arc, LazyLock, Mutex, Weak},
};

use agent_core::{CancelSignal, ToolError};
use futures_util::FutureExt;
use tokio::sync::OwnedMutexGuard;

use super::{
    blocking,
    workspace::{Target, Workspace},
};

type FileLock = tokio::sync::Mutex<()>;

/// A call's turn at a file. It belongs inside the work: a call that is dropped while its thread still
/// writes must not let the next one in.
pub(super) type FileTurn = OwnedMutexGuard<()>;

static LOCKS: LazyLock<Mutex<HashMap<PathBuf, Weak<FileLock>>>> = LazyLock::new(Mutex::default);

/// Where a path may be written, and the turn there. A session's calls get their turns at a file in
/// the order in which they asked, whatever name each has for it.
///
/// # Errors
/// The path leads nowhere, or to a place that the policy does not open.
pub(super) async fn turn(
    workspace: &Arc<Workspace>,
    path: &str,
    signal: &CancelSignal,
) -> Result<(Target, FileTurn), ToolError> {
    // Where a path leads is found on another thread, which takes any time; nobody may overtake.
    let queueing = workspace.queueing.lock().await;
    let (at, path) = (workspace.clone(), path.to_owned());
    let target = blocking::run(signal, move |_| at.target(&path)).await??;
    let mut lock = pin!(lock_of(&target.0).lock_owned());
    // The first poll is what puts it in the queue.
    let free = lock.as_mut().now_or_never();
    drop(queueing);
    let turn = match free {
        Some(turn) => turn,
        None => lock.await,
    };
    Ok((target, turn))
}

/// Waits for the file's turn as a call does that knows already where its path leads.
#[cfg(test)]
pub(super) async fn lock(path: &Path) -> FileTurn {
    lock_of(path).lock_owned().await
}

fn lock_of(path: &Path) -> Arc<FileLock> {
    let mut locks = LOCKS.lock().expect("nothing panics while it holds the table");
    if let Some(lock) = locks.get(path).and_then(Weak::upgrade) {
        return lock;
    }
    locks.retain(|_, lock| lock.strong_count() > 0);
    let lock = Arc::new(FileLock::default());
    locks.insert(path.to_owned(), Arc::downgrade(&lock));
    lock
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn one_file_waits_and_another_does_not() {
        let first = lock(Path::new("/lock-test/a")).await;
        let mut second = Box::pin(lock(Path::new("/lock-test/a")));
        assert!(second.as_mut().now_or_never().is_none());
        let other = lock(Path::new("/lock-test/b")).await;
        drop(first);
        drop((second.await, other));
    }

    #[tokio::test]
    async fn locks_that_nobody_holds_are_forgotten() {
        for round in 0..100 {
            drop(lock(&PathBuf::from(format!("/forgotten/{round}"))).await);
        }
        let locks = LOCKS.lock().expect("not poisoned");
        let kept = locks.keys().filter(|path| path.starts_with("/forgotten")).count();
        assert!(kept <= 1, "{kept}");
    }
}
