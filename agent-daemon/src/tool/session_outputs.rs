//! The outputs of one session that are too long for the model.
//!
//! Owns: their files, and how much they may take together: the oldest go first.
//! Never: removes one that is still written, or keeps any when the session has ended.

use std::{
    collections::VecDeque,
    fs::File,
    io,
    os::unix::fs::OpenOptionsExt,
    path::PathBuf,
    sync::{Arc, Mutex, MutexGuard, PoisonError, atomic::Ordering},
};

use super::outputs::{Outputs, private};

/// What a session may keep, in bytes.
const MAX_KEPT: u64 = 64 * 1024 * 1024;

/// What a file counts for at least: so much of a disk it takes.
const MIN_FILE: u64 = 4 * 1024;

/// The outputs of one session.
#[derive(Debug)]
pub struct SessionOutputs {
    daemon: Arc<Outputs>,
    /// Of its directory.
    name: String,
    /// What they may take together, in bytes.
    limit: u64,
    kept: Mutex<Kept>,
}

#[derive(Debug, Default)]
struct Kept {
    /// Oldest first.
    files: VecDeque<Entry>,
    last: u64,
    /// The directory that was used last.
    directory: Option<PathBuf>,
    ended: bool,
}

#[derive(Debug)]
struct Entry {
    number: u64,
    path: PathBuf,
    bytes: u64,
    is_open: bool,
}

/// An output's file, which goes with this unless it is kept.
#[derive(Debug)]
pub(super) struct OutputFile {
    outputs: Arc<SessionOutputs>,
    number: u64,
    pub(super) path: PathBuf,
}

/// Room in a file.
#[derive(Debug, PartialEq)]
pub(super) struct Room {
    /// So many more bytes may be written.
    pub(super) bytes: u64,
    /// These had to go for it; whoever asked removes them.
    pub(super) removed: Vec<PathBuf>,
}

impl Outputs {
    /// The outputs of a session.
    pub(crate) fn of_session(self: &Arc<Self>, id: &str) -> Arc<SessionOutputs> {
        // An id may come again, and `..` is one.
        let number = self.sessions.fetch_add(1, Ordering::Relaxed) + 1;
        Arc::new(SessionOutputs::new(self.clone(), format!("{number}-{id}")))
    }
}

impl SessionOutputs {
    pub(super) fn new(daemon: Arc<Outputs>, name: String) -> Self {
        SessionOutputs { daemon, name, limit: MAX_KEPT, kept: Mutex::default() }
    }

    /// Outputs of which a test can fill the disk soon.
    #[cfg(test)]
    pub(super) fn limited(daemon: Arc<Outputs>, limit: u64) -> Arc<Self> {
        let mut outputs = SessionOutputs::new(daemon, "session".to_owned());
        outputs.limit = limit;
        Arc::new(outputs)
    }

    /// The script that stands for an editor, if it can be written. Blocks.
    pub(super) fn editor(&self) -> Option<PathBuf> {
        self.daemon.editor().inspect_err(|error| tracing::debug!(%error, "no editor script")).ok()
    }

    /// Begins a file. Blocks.
    ///
    /// # Errors
    /// It cannot be made, or the session has ended.
    pub(super) fn begin(self: &Arc<Self>) -> io::Result<(OutputFile, File)> {
        let directory = self.daemon.directory()?.join(&self.name);
        let number = {
            let mut kept = self.lock();
            if kept.ended {
                return Err(io::Error::other("the session has ended"));
            }
            kept.last += 1;
            kept.directory = Some(directory.clone());
            kept.last
        };
        private().recursive(true).create(&directory)?;
        let path = directory.join(format!("{number}.log"));
        let file = File::options().write(true).create_new(true).mode(0o600).open(&path)?;
        let output = OutputFile { outputs: self.clone(), number, path: path.clone() };
        let mut kept = self.lock();
        kept.files.push_back(Entry { number, path, bytes: MIN_FILE, is_open: true });
        if kept.ended {
            drop(kept);
            // It went by between the two looks, and this file came after all others were removed.
            self.remove();
            return Err(io::Error::other("the session has ended"));
        }
        Ok((output, file))
    }

    /// Removes all files, for good. Blocks.
    pub fn remove(&self) {
        let directory = {
            let mut kept = self.lock();
            kept.ended = true;
            kept.files.clear();
            kept.directory.clone()
        };
        if let Some(directory) = directory {
            let _ = std::fs::remove_dir_all(directory);
        }
    }

    fn lock(&self) -> MutexGuard<'_, Kept> {
        // Nothing under the lock can panic half-way through a change.
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for SessionOutputs {
    fn drop(&mut self) {
        self.remove();
    }
}

impl OutputFile {
    /// Asks for room for more bytes, at the cost of older files that are not written any more.
    pub(super) fn room(&self, written: u64, more: u64) -> Room {
        let mut kept = self.outputs.lock();
        let mut removed = Vec::new();
        let wanted = (written + more).max(MIN_FILE);
        loop {
            let others = kept.files.iter().filter(|file| file.number != self.number);
            let others: u64 = others.map(|file| file.bytes).sum();
            if others + wanted > self.outputs.limit
                && let Some(oldest) = kept.files.iter().position(|file| !file.is_open)
            {
                removed.extend(kept.files.remove(oldest).map(|file| file.path));
                continue;
            }
            let allowed = wanted.min(self.outputs.limit.saturating_sub(others));
            if let Some(own) = kept.files.iter_mut().find(|file| file.number == self.number) {
                own.bytes = allowed.max(MIN_FILE);
            }
            return Room { bytes: allowed.saturating_sub(written).min(more), removed };
        }
    }

    /// What the session may keep, in bytes.
    pub(super) fn limit(&self) -> u64 {
        self.outputs.limit
    }

    /// Keeps the file, as long as there is room for it and the session lives.
    pub(super) fn keep(self) -> PathBuf {
        let mut kept = self.outputs.lock();
        if let Some(own) = kept.files.iter_mut().find(|file| file.number == self.number) {
            own.is_open = false;
        }
        self.path.clone()
    }
}

impl Drop for OutputFile {
    fn drop(&mut self) {
        let mut kept = self.outputs.lock();
        let own = kept.files.iter().position(|file| file.number == self.number && file.is_open);
        if own.and_then(|at| kept.files.remove(at)).is_some() {
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

#[cfg(test)]
pub(super) mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    pub(in crate::tool) const LIMIT: u64 = 1024 * 1024;

    /// Outputs that may take [`LIMIT`], in a cache of their own.
    pub(in crate::tool) fn outputs() -> (Arc<SessionOutputs>, tempfile::TempDir) {
        let cache = tempfile::tempdir().unwrap();
        (SessionOutputs::limited(Outputs::new(Some(cache.path())), LIMIT), cache)
    }

    fn room(bytes: u64, removed: &[&PathBuf]) -> Room {
        Room { bytes, removed: removed.iter().map(|path| (*path).clone()).collect() }
    }

    #[test]
    fn the_oldest_that_are_not_written_go_first() {
        let (outputs, _cache) = outputs();
        let [first, second, third, fourth] = [(); 4].map(|()| outputs.begin().unwrap().0);
        for file in [&first, &second, &third] {
            assert_eq!(file.room(0, LIMIT / 4), room(LIMIT / 4, &[]));
        }
        let second = second.keep();
        let third = third.keep();
        assert_eq!(fourth.room(0, LIMIT / 4), room(LIMIT / 4, &[]));
        assert_eq!(fourth.room(LIMIT / 4, 1), room(1, &[&second]));
        // The first is still written, so there is an end to it.
        let most = LIMIT - LIMIT / 4;
        assert_eq!(fourth.room(LIMIT / 4 + 1, most), room(most - LIMIT / 4 - 1, &[&third]));
        assert_eq!(fourth.room(most, 1), room(0, &[]));
        first.keep();
        assert_eq!(fourth.room(most, 1).bytes, 1);
    }

    #[test]
    fn many_small_files_count_for_what_they_take() {
        let (outputs, _cache) = outputs();
        let begin = || {
            let (file, _) = outputs.begin().unwrap();
            let removed = file.room(0, 1).removed.len();
            file.keep();
            removed
        };
        let full = LIMIT / MIN_FILE;
        assert_eq!((0..full).map(|_| begin()).sum::<usize>(), 0);
        assert_eq!(begin(), 1);
    }

    #[test]
    fn files_go_with_the_session_and_those_not_kept_at_once() {
        let (outputs, cache) = outputs();
        let kept = outputs.begin().unwrap().0.keep();
        let dropped = outputs.begin().unwrap().0.path.clone();
        assert!(kept.exists() && !dropped.exists());
        let (open, _file) = outputs.begin().unwrap();
        outputs.remove();
        assert!(!kept.parent().unwrap().exists());
        assert_eq!(open.room(0, 1).bytes, 1);
        drop(open);
        assert!(outputs.begin().unwrap_err().to_string().contains("has ended"));
        drop(outputs);
        let root = cache.path().join("agent-daemon/output");
        assert_eq!(std::fs::read_dir(root).unwrap().count(), 0);
    }

    #[test]
    fn a_session_may_have_any_legal_id() {
        let cache = tempfile::tempdir().unwrap();
        let daemon = Outputs::new(Some(cache.path()));
        let paths = ["..", ".", "a:b", &"x".repeat(128), ".."]
            .map(|id| daemon.of_session(id).begin().unwrap().0.path.clone());
        let directory = daemon.directory().unwrap();
        assert!(paths.iter().all(|path| path.parent().unwrap().parent() == Some(&*directory)));
    }
}
