//! One lock per file, so that two edits of it happen one after another.
//!
//! Owns: the process's table of locks, by the path that symlinks lead to. One table for all
//! sessions: two of them may work in the same directory.
//! Never: makes work on one file wait for work on another.

use std::{
    collections::HashMap,
    path::{Path, PathBuf},
    sync::{Arc, LazyLock, Mutex, Weak},
};

use tokio::sync::OwnedMutexGuard;

type FileLock = tokio::sync::Mutex<()>;

static LOCKS: LazyLock<Mutex<HashMap<PathBuf, Weak<FileLock>>>> = LazyLock::new(Mutex::default);

/// Waits for the file's turn, first come first served. The path must have its symlinks resolved.
///
/// The guard belongs inside the work: a call that is dropped while its thread still writes must not
/// let the next one in.
pub(super) async fn lock(path: &Path) -> OwnedMutexGuard<()> {
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
    use futures_util::FutureExt;

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
