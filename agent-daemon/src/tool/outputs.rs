//! Where outputs are kept that are too long for the model.
//!
//! A directory for each daemon, in it one for each session: `ROOT/DAEMON/SESSION/1.log`. Beside a
//! daemon's directory is a file that it holds locked, by which others see that it lives. What a
//! daemon that was killed left behind, the next one removes.
//!
//! Owns: these directories, and which daemon they belong to. [`SessionOutputs`](super::SessionOutputs) has what is in one
//! session's. Never: makes anything before it is needed, or removes what belongs to a daemon that lives.

use std::{
    fs::{DirBuilder, File},
    io::{self, Write},
    os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt},
    path::{Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard, PoisonError, atomic::AtomicU64},
};

use rustix::fs::{FlockOperation, flock};

use super::editor;

/// Ends the name of the file that is locked.
const LOCK: &str = ".lock";

/// The outputs of one daemon.
#[derive(Debug)]
pub struct Outputs {
    /// Where it may have its directory; the first that can be used is.
    roots: Vec<PathBuf>,
    place: Mutex<Place>,
    pub(super) sessions: AtomicU64,
}

#[derive(Debug)]
enum Place {
    /// Nothing was needed so far.
    None,
    Held(Held),
    /// The daemon has ended.
    Removed,
}

/// A directory that is ours as long as this lives.
#[derive(Debug)]
struct Held {
    directory: PathBuf,
    lock: PathBuf,
    _locked: File,
}

impl Outputs {
    /// Outputs in the user's cache directory, or where there is none, or none that can be written
    /// to, in a private one in the temp directory.
    pub fn new(cache: Option<&Path>) -> Arc<Self> {
        let user = rustix::process::geteuid().as_raw();
        let ours = cache.map(|cache| cache.join("agent-daemon"));
        let temp = std::env::temp_dir().join(format!("agent-daemon-{user}"));
        let roots = ours.into_iter().chain([temp]).map(|ours| ours.join("output")).collect();
        Arc::new(Outputs { roots, place: Mutex::new(Place::None), sessions: AtomicU64::new(0) })
    }

    /// Removes what daemons that no longer live have left. Blocks.
    pub(crate) fn sweep(&self) {
        for root in &self.roots {
            if check_private(root).is_ok() {
                sweep(root);
            }
        }
    }

    /// Removes everything, for good. Blocks.
    pub fn remove(&self) {
        let place = std::mem::replace(&mut *self.lock(), Place::Removed);
        if let Place::Held(held) = place {
            held.remove();
        }
    }

    /// The daemon's directory, which is there. Blocks.
    ///
    /// # Errors
    /// It cannot be made, or the daemon has ended.
    pub(super) fn directory(&self) -> io::Result<PathBuf> {
        let mut place = self.lock();
        match &*place {
            Place::Removed => return Err(io::Error::other("the session has ended")),
            Place::Held(held) if held.is_there() => return Ok(held.directory.clone()),
            // Someone may have emptied the whole cache, or a part of it.
            Place::Held(_) | Place::None => {}
        }
        if let Place::Held(incomplete) = std::mem::replace(&mut *place, Place::None) {
            incomplete.remove();
        }
        let mut failure = io::Error::other("there is no place for it");
        for root in &self.roots {
            match Held::take(root) {
                Ok(held) => {
                    let directory = held.directory.clone();
                    *place = Place::Held(held);
                    return Ok(directory);
                }
                Err(error) => failure = error,
            }
        }
        Err(failure)
    }

    /// The script that stands for an editor. Blocks.
    ///
    /// # Errors
    /// It cannot be written.
    pub(super) fn editor(&self) -> io::Result<PathBuf> {
        let directory = self.directory()?;
        let path = directory.join(editor::FILE_NAME);
        if path.try_exists()? {
            return Ok(path);
        }
        // Under another name until it is whole: commands begin at the same time.
        let mut file = tempfile::Builder::new()
            .permissions(PermissionsExt::from_mode(0o700))
            .tempfile_in(directory)?;
        file.write_all(editor::SCRIPT.as_bytes())?;
        file.into_temp_path().persist(&path)?;
        Ok(path)
    }

    fn lock(&self) -> MutexGuard<'_, Place> {
        // A change is one assignment.
        self.place.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Outputs {
    fn drop(&mut self) {
        self.remove();
    }
}

impl Held {
    fn take(root: &Path) -> io::Result<Self> {
        make_private(root)?;
        loop {
            let random: String = std::iter::repeat_with(fastrand::alphanumeric).take(6).collect();
            let name = format!("{}-{random}", std::process::id());
            let lock = root.join(format!("{name}{LOCK}"));
            let options = &mut File::options();
            let file = match options.write(true).create_new(true).mode(0o600).open(&lock) {
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => continue,
                file => file?,
            };
            flock(&file, FlockOperation::LockExclusive)?;
            // Before it was locked, a daemon that sweeps can have taken it for a dead one's.
            if file.metadata()?.nlink() == 0 {
                continue;
            }
            let directory = root.join(name);
            private().create(&directory)?;
            return Ok(Held { directory, lock, _locked: file });
        }
    }

    fn is_there(&self) -> bool {
        self.directory.is_dir() && self.lock.exists()
    }

    fn remove(self) {
        remove(&self.directory, &self.lock);
    }
}

/// The lock's file goes last: a directory without one would stay for ever.
fn remove(directory: &Path, lock: &Path) {
    match std::fs::remove_dir_all(directory) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            tracing::warn!(directory = %directory.display(), %error, "outputs were not removed");
        }
        _ => {
            let _ = std::fs::remove_file(lock);
        }
    }
}

fn sweep(root: &Path) {
    for entry in std::fs::read_dir(root).into_iter().flatten().flatten() {
        let lock = entry.path();
        let name = lock.file_name().and_then(|name| name.to_str()?.strip_suffix(LOCK));
        let Some(directory) = name.map(|name| root.join(name)) else { continue };
        let Ok(file) = File::options().write(true).open(&lock) else { continue };
        // One that is locked is held by its daemon.
        if flock(&file, FlockOperation::NonBlockingLockExclusive).is_ok() {
            tracing::info!(directory = %directory.display(), "removing outputs of a dead daemon");
            remove(&directory, &lock);
        }
    }
}

pub(super) fn private() -> DirBuilder {
    let mut builder = DirBuilder::new();
    builder.mode(0o700);
    builder
}

fn make_private(root: &Path) -> io::Result<()> {
    private().recursive(true).create(root)?;
    check_private(root)
}

/// The directory, and the one above it, which in the temp directory anyone can have made, are ours
/// and no one else's to write to.
fn check_private(root: &Path) -> io::Result<()> {
    for directory in [root.parent(), Some(root)].into_iter().flatten() {
        let metadata = std::fs::symlink_metadata(directory)?;
        let is_ours = metadata.uid() == rustix::process::geteuid().as_raw();
        if !metadata.is_dir() || !is_ours || metadata.mode() & 0o022 != 0 {
            let problem = format!("{} is not ours alone", directory.display());
            return Err(io::Error::other(problem));
        }
    }
    if std::fs::symlink_metadata(root)?.mode() & 0o077 != 0 {
        std::fs::set_permissions(root, PermissionsExt::from_mode(0o700))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    fn names(root: &Path) -> Vec<String> {
        let entries = std::fs::read_dir(root).into_iter().flatten();
        let mut names: Vec<String> =
            entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    #[test]
    fn everything_is_private_and_goes_with_the_daemon() {
        let cache = tempfile::tempdir().unwrap();
        let root = cache.path().join("agent-daemon/output");
        let outputs = Outputs::new(Some(cache.path()));
        assert!(!root.exists());
        let directory = outputs.directory().unwrap();
        assert_eq!(directory.parent(), Some(&*root));
        for place in [&root, &directory, &outputs.editor().unwrap()] {
            assert_eq!(place.metadata().unwrap().mode() & 0o777, 0o700, "{}", place.display());
        }
        assert_eq!(outputs.directory().unwrap(), directory);
        outputs.remove();
        assert_eq!(names(&root), [""; 0]);
        assert!(outputs.directory().unwrap_err().to_string().contains("has ended"));
    }

    #[test]
    fn a_cache_that_was_emptied_is_made_again() {
        let cache = tempfile::tempdir().unwrap();
        let outputs = Outputs::new(Some(cache.path()));
        outputs.editor().unwrap();
        std::fs::remove_dir_all(cache.path()).unwrap();
        assert!(outputs.editor().unwrap().exists());
        drop(outputs);
        assert_eq!(names(&cache.path().join("agent-daemon/output")), [""; 0]);
    }

    #[test]
    fn what_a_dead_daemon_left_is_swept_and_what_a_living_one_has_is_not() {
        let cache = tempfile::tempdir().unwrap();
        let root = cache.path().join("agent-daemon/output");
        let living = Outputs::new(Some(cache.path()));
        let kept = living.directory().unwrap();
        // As a daemon leaves it that was killed: the lock is gone with the process.
        std::fs::create_dir(root.join("1-dead")).unwrap();
        std::fs::write(root.join("1-dead/1.log"), "x").unwrap();
        std::fs::write(root.join("1-dead.lock"), "").unwrap();
        Outputs::new(Some(cache.path())).sweep();
        let name = kept.file_name().unwrap().to_str().unwrap();
        assert_eq!(names(&root), [name.to_owned(), format!("{name}{LOCK}")]);
    }

    #[test]
    fn without_a_cache_that_can_be_used_they_are_in_the_temp_directory() {
        for cache in [None, Some(Path::new("/proc/no/cache"))] {
            let directory = Outputs::new(cache).directory().unwrap();
            assert!(directory.starts_with(std::env::temp_dir()), "{}", directory.display());
        }
    }

    #[test]
    fn a_place_that_others_could_change_is_not_used() {
        let cache = tempfile::tempdir().unwrap();
        let ours = cache.path().join("agent-daemon");
        std::fs::create_dir(&ours).unwrap();
        std::fs::set_permissions(&ours, PermissionsExt::from_mode(0o777)).unwrap();
        let error = make_private(&ours.join("output")).unwrap_err();
        assert!(error.to_string().contains("is not ours alone"), "{error}");
    }
}
