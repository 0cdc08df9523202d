//! Replacing a file's content as a whole.
//!
//! Owns: the temporary file beside the target and the rename that makes it the target; what the new
//! file keeps of the old one; taking back what was made when the work is stopped.
//! Never: leaves half a file, or says something else than what happened. The rename is the one
//! moment that counts: before it nothing was written, after it everything was. (Its price: another
//! hard link to the same file goes on having the old content.)

use std::{
    fs::{File, Metadata, Permissions},
    io::{self, Write},
    os::{
        fd::AsFd,
        unix::fs::{MetadataExt, PermissionsExt},
    },
    path::{Path, PathBuf},
};

/// Between two pieces of this size the work can be stopped.
const PIECE: usize = 1024 * 1024;

/// What became of the file.
#[derive(Debug, PartialEq)]
pub(super) enum Outcome {
    /// There was none; now there is.
    Created,
    /// It had so many bytes before.
    Replaced { old_size: u64 },
    /// The work was stopped first. Nothing has changed.
    Stopped,
}

/// Why a file was not written. Nothing has changed.
#[derive(Debug, thiserror::Error)]
pub(super) enum WriteError {
    #[error("it is a directory")]
    Directory,
    #[error("it is a device, socket or pipe")]
    Special,
    #[error("it is read-only (mode {mode:03o}); change that with chmod first")]
    ReadOnly { mode: u32 },
    #[error("it was changed by something else meanwhile; read it again")]
    Changed,
    #[error("{step}: {source}")]
    Io { step: &'static str, source: io::Error },
}

/// Which state of a file someone has seen.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Seen {
    inode: u64,
    size: u64,
    modified: (i64, i64),
}

impl Seen {
    pub(super) fn of(metadata: &Metadata) -> Self {
        Seen {
            inode: metadata.ino(),
            size: metadata.len(),
            modified: (metadata.mtime(), metadata.mtime_nsec()),
        }
    }
}

/// Gives the file at `target`, a path without symlinks, this content.
///
/// With `seen`, only if the file is still in that state. `stop` is asked before each step.
///
/// # Errors
/// See [`WriteError`].
pub(super) fn replace(
    target: &Path,
    content: &[u8],
    seen: Option<&Seen>,
    stop: &dyn Fn() -> bool,
) -> Result<Outcome, WriteError> {
    let old = existing(target)?;
    let directory = target.parent().ok_or(WriteError::Directory)?;
    if stop() {
        return Ok(Outcome::Stopped);
    }
    let made = MadeDirectories::make(directory).map_err(failed("its directory"))?;
    let Some(temporary) = fill(directory, target, content, old.as_ref(), stop)? else {
        return Ok(Outcome::Stopped);
    };
    if seen.is_some() && existing(target)?.as_ref().map(Seen::of).as_ref() != seen {
        return Err(WriteError::Changed);
    }
    if stop() {
        return Ok(Outcome::Stopped);
    }
    temporary.persist(target).map_err(|error| failed("the last step, renaming")(error.error))?;
    made.keep();
    // The content is safe already; without this a power cut could bring the old name back.
    let _ = File::open(directory).and_then(|directory| directory.sync_all());
    Ok(match old {
        None => Outcome::Created,
        Some(old) => Outcome::Replaced { old_size: old.len() },
    })
}

/// The file that is there, if it may be replaced.
fn existing(target: &Path) -> Result<Option<Metadata>, WriteError> {
    let metadata = match std::fs::symlink_metadata(target) {
        Ok(metadata) => metadata,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(failed("looking at it")(error)),
    };
    if metadata.is_dir() {
        return Err(WriteError::Directory);
    }
    if !metadata.is_file() {
        return Err(WriteError::Special);
    }
    // A rename would not ask: it needs the directory only.
    if rustix::fs::access(target, rustix::fs::Access::WRITE_OK).is_err() {
        return Err(WriteError::ReadOnly { mode: metadata.mode() & 0o777 });
    }
    Ok(Some(metadata))
}

/// A complete temporary file on the disk, with what is kept of the old one; none if stopped.
fn fill(
    directory: &Path,
    target: &Path,
    content: &[u8],
    old: Option<&Metadata>,
    stop: &dyn Fn() -> bool,
) -> Result<Option<tempfile::NamedTempFile>, WriteError> {
    let name = target.file_name().unwrap_or_default().to_string_lossy();
    // Long names have no room for more.
    let short: String = name.chars().take(40).collect();
    let mut temporary = tempfile::Builder::new()
        .prefix(&format!(".{short}."))
        .suffix(".tmp")
        // A new file's mode is the umask's business, as with any other program.
        .permissions(Permissions::from_mode(if old.is_some() { 0o600 } else { 0o666 }))
        .tempfile_in(directory)
        .map_err(failed("making a temporary file beside it"))?;
    for piece in content.chunks(PIECE) {
        if stop() {
            return Ok(None);
        }
        temporary.write_all(piece).map_err(failed("writing"))?;
    }
    if let Some(old) = old {
        keep_owner_and_mode(temporary.as_file(), old).map_err(failed("keeping its mode"))?;
        keep_attributes(temporary.as_file(), target);
    }
    temporary.as_file().sync_all().map_err(failed("writing"))?;
    Ok(Some(temporary))
}

fn keep_owner_and_mode(file: &File, old: &Metadata) -> io::Result<()> {
    let new = file.metadata()?;
    if (new.uid(), new.gid()) != (old.uid(), old.gid()) {
        // Only root may give a file away; the content matters more than its owner.
        let owner = Some(rustix::fs::Uid::from_raw(old.uid()));
        let group = Some(rustix::fs::Gid::from_raw(old.gid()));
        let _ = rustix::fs::fchown(file.as_fd(), owner, group)
            .or_else(|_| rustix::fs::fchown(file.as_fd(), None, group));
    }
    // After the owner: changing that clears the set-user-id bit.
    file.set_permissions(Permissions::from_mode(old.mode() & 0o7777))
}

/// Access lists, labels and people's own attributes, as far as they may be set. Not capabilities:
/// those were given to the old content.
fn keep_attributes(file: &File, old: &Path) {
    let mut names = Vec::with_capacity(4096);
    let list = rustix::fs::listxattr(old, rustix::buffer::spare_capacity(&mut names));
    if list.is_err() {
        return;
    }
    let kept = |name: &&[u8]| {
        name.starts_with(b"user.")
            || name.starts_with(b"system.posix_acl_")
            || *name == b"security.selinux"
    };
    for name in names.split(|byte| *byte == 0).filter(kept) {
        let mut value = Vec::with_capacity(64 * 1024);
        if rustix::fs::getxattr(old, name, rustix::buffer::spare_capacity(&mut value)).is_ok() {
            let flags = rustix::fs::XattrFlags::empty();
            let _ = rustix::fs::fsetxattr(file, name, &value, flags);
        }
    }
}

fn failed(step: &'static str) -> impl Fn(io::Error) -> WriteError {
    move |source| WriteError::Io { step, source }
}

/// Directories that were made for a file, and go again if it does not come to be.
struct MadeDirectories(Vec<PathBuf>);

impl MadeDirectories {
    fn make(directory: &Path) -> io::Result<Self> {
        let missing: Vec<&Path> =
            directory.ancestors().take_while(|directory| !directory.exists()).collect();
        let mut made = MadeDirectories(Vec::new());
        for directory in missing.into_iter().rev() {
            match std::fs::create_dir(directory) {
                Ok(()) => made.0.push(directory.to_owned()),
                // Another call was faster.
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                Err(error) => return Err(error),
            }
        }
        Ok(made)
    }

    fn keep(mut self) {
        self.0.clear();
    }
}

impl Drop for MadeDirectories {
    fn drop(&mut self) {
        for directory in self.0.iter().rev() {
            // One that someone else uses by now is not empty, and stays.
            let _ = std::fs::remove_dir(directory);
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::cell::Cell;

    use super::*;

    fn never() -> bool {
        false
    }

    /// Everything below a directory, with sizes.
    fn contents(directory: &Path) -> Vec<String> {
        let mut seen = Vec::new();
        for entry in std::fs::read_dir(directory).unwrap() {
            let path = entry.unwrap().path();
            seen.push(format!("{} {}", path.display(), path.metadata().unwrap().len()));
            if path.is_dir() {
                seen.extend(contents(&path));
            }
        }
        seen.sort();
        seen
    }

    #[test]
    fn stopped_at_any_step_nothing_has_changed() {
        let large = vec![b'x'; 3 * PIECE];
        for target in ["old", "new", "made/for/it"] {
            let mut finished = false;
            for step in 0.. {
                let scratch = tempfile::tempdir().unwrap();
                std::fs::write(scratch.path().join("old"), "before").unwrap();
                let before = contents(scratch.path());
                let asked = Cell::new(0);
                let stop = || asked.replace(asked.get() + 1) == step;
                let target = scratch.path().join(target);
                let outcome = replace(&target, &large, None, &stop).unwrap();
                finished = outcome != Outcome::Stopped;
                if finished {
                    assert_eq!(std::fs::read(&target).unwrap(), large);
                    assert!(step >= 5, "the work looks up {step} times only");
                    break;
                }
                assert_eq!(contents(scratch.path()), before, "{target:?} stopped at {step}");
            }
            assert!(finished);
        }
    }

    #[test]
    fn mode_and_owner_stay() {
        let scratch = tempfile::tempdir().unwrap();
        let target = scratch.path().join("script");
        for mode in [0o755, 0o600, 0o644, 0o4750] {
            std::fs::write(&target, "old").unwrap();
            std::fs::set_permissions(&target, Permissions::from_mode(mode)).unwrap();
            let root = rustix::process::geteuid().is_root();
            if root {
                std::os::unix::fs::chown(&target, Some(12), Some(34)).unwrap();
                std::fs::set_permissions(&target, Permissions::from_mode(mode)).unwrap();
            }
            replace(&target, b"new", None, &never).unwrap();
            let metadata = target.metadata().unwrap();
            assert_eq!(metadata.mode() & 0o7777, mode);
            if root {
                assert_eq!((metadata.uid(), metadata.gid()), (12, 34));
            }
            std::fs::remove_file(&target).unwrap();
        }
    }

    #[test]
    fn attributes_stay() {
        use rustix::fs::{XattrFlags, getxattr, setxattr};
        let scratch = tempfile::tempdir().unwrap();
        let target = scratch.path().join("file");
        std::fs::write(&target, "old").unwrap();
        // Not every file system has them.
        if setxattr(&target, "user.colour", b"red", XattrFlags::empty()).is_ok() {
            replace(&target, b"new", None, &never).unwrap();
            let mut value = [0; 8];
            let length = getxattr(&target, "user.colour", &mut value).unwrap();
            assert_eq!(&value[..length], b"red");
        }
    }

    #[test]
    fn a_new_file_has_the_mode_that_any_program_gives() {
        let scratch = tempfile::tempdir().unwrap();
        std::fs::write(scratch.path().join("plain"), "").unwrap();
        replace(&scratch.path().join("ours"), b"", None, &never).unwrap();
        let mode = |name: &str| scratch.path().join(name).metadata().unwrap().mode();
        assert_eq!(mode("ours"), mode("plain"));
    }

    #[test]
    fn what_cannot_be_written_stays_as_it_is() {
        let scratch = tempfile::tempdir().unwrap();
        let target = scratch.path().join("file");
        std::fs::write(&target, "old").unwrap();
        let refused =
            |target: &Path, seen| replace(target, b"new", seen, &never).unwrap_err().to_string();

        let other = Seen { inode: 1, size: 2, modified: (3, 4) };
        assert!(refused(&target, Some(&other)).contains("changed by something else"));
        assert_eq!(refused(scratch.path(), None), "it is a directory");
        assert_eq!(refused(Path::new("/dev/null"), None), "it is a device, socket or pipe");
        assert!(refused(&target.join("below"), None).contains("Not a directory"));
        assert_eq!(contents(scratch.path()), [format!("{} 3", target.display())]);

        if !rustix::process::geteuid().is_root() {
            std::fs::set_permissions(&target, Permissions::from_mode(0o444)).unwrap();
            assert!(refused(&target, None).contains("read-only (mode 444)"));
            std::fs::set_permissions(&target, Permissions::from_mode(0o644)).unwrap();
        }

        let seen = Seen::of(&target.metadata().unwrap());
        let outcome = replace(&target, b"newer", Some(&seen), &never).unwrap();
        assert_eq!(outcome, Outcome::Replaced { old_size: 3 });
    }

    #[test]
    fn a_name_of_the_greatest_length_can_be_written() {
        let scratch = tempfile::tempdir().unwrap();
        let target = scratch.path().join("n".repeat(255));
        assert_eq!(replace(&target, b"x", None, &never).unwrap(), Outcome::Created);
    }
}
