//! Replacing a file's content as a whole.
//!
//! Owns: the order of the steps, up to the rename that makes a temporary file the target; what the
//! new file keeps of the old one; stopping in between; the few files that a rename cannot replace or
//! must not, which are left to [`in_place`].
//! Never: leaves half a file, or says something else than what happened. The rename is the one
//! moment that counts: before it nothing was written, after it everything was.

use std::{
    ffi::OsStr,
    fs::File,
    io::{self, Write},
    os::{fd::AsFd, unix::fs::MetadataExt},
    path::Path,
};

use rustix::fs::{FileType, Gid, Mode, Stat, Uid};

use super::{
    directory::{Directory, Temporary},
    in_place,
    written::{InPlace, Outcome, Seen, WriteError, failed},
};

/// Between two pieces of this size the work can be stopped.
const PIECE: usize = 1024 * 1024;

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
    let (Some(path), Some(name)) = (target.parent(), target.file_name()) else {
        return Err(WriteError::Directory);
    };
    if stop() {
        return Ok(Outcome::Stopped);
    }
    let (directory, made) = Directory::reach(path).map_err(failed("reaching its directory"))?;
    directory.sweep();
    let old = existing(&directory, name)?;
    let over = |old: &Stat, why| in_place::overwrite(&directory, name, content, old, seen, why);
    let outcome = match old.as_ref().and_then(|old| Some((old, InPlace::for_links(old)?))) {
        Some((old, why)) => over(old, why),
        None => {
            let written = as_a_whole(&directory, target, content, old.as_ref(), seen, stop);
            written.or_else(|error| match (&old, InPlace::after(&error)) {
                (Some(old), Some(why)) if !stop() => over(old, why),
                _ => Err(error),
            })
        }
    }?;
    if outcome != Outcome::Stopped {
        made.keep();
        // The content is safe already; without this a power cut could bring the old name back.
        let _ = directory.sync();
    }
    Ok(outcome)
}

/// By a temporary file that takes the place of the old one.
fn as_a_whole(
    directory: &Directory,
    target: &Path,
    content: &[u8],
    old: Option<&Stat>,
    seen: Option<&Seen>,
    stop: &dyn Fn() -> bool,
) -> Result<Outcome, WriteError> {
    let name = target.file_name().unwrap_or_default();
    let Some(temporary) = fill(directory, target, content, old, stop)? else {
        return Ok(Outcome::Stopped);
    };
    if seen.is_some() && existing(directory, name)?.as_ref().map(Seen::from).as_ref() != seen {
        return Err(WriteError::Changed);
    }
    if stop() {
        return Ok(Outcome::Stopped);
    }
    temporary.take_place(name).map_err(failed("the last step, a rename,"))?;
    Ok(match old {
        None => Outcome::Created,
        Some(old) => Outcome::Replaced { old_size: old.st_size.unsigned_abs(), in_place: None },
    })
}

/// The file that is there, if it may be replaced.
fn existing(directory: &Directory, name: &OsStr) -> Result<Option<Stat>, WriteError> {
    let Some(found) = directory.look(name).map_err(failed("looking at it"))? else {
        return Ok(None);
    };
    match FileType::from_raw_mode(found.st_mode) {
        FileType::RegularFile => {}
        FileType::Directory => return Err(WriteError::Directory),
        // Where the path led, there was none: someone has put one there since.
        FileType::Symlink => return Err(WriteError::Changed),
        _ => return Err(WriteError::Special),
    }
    // A rename would not ask: it needs the directory only.
    if !directory.may_write(name) {
        return Err(WriteError::ReadOnly {
            mode: Mode::from_raw_mode(found.st_mode).bits() & 0o777,
        });
    }
    Ok(Some(found))
}

/// A complete temporary file on the disk, with what is kept of the old one; none if stopped.
fn fill<'a>(
    directory: &'a Directory,
    target: &Path,
    content: &[u8],
    old: Option<&Stat>,
    stop: &dyn Fn() -> bool,
) -> Result<Option<Temporary<'a>>, WriteError> {
    // A new file's mode is the umask's business, as with any other program.
    let mode = Mode::from_raw_mode(if old.is_some() { 0o600 } else { 0o666 });
    let mut temporary = directory
        .temporary(target.file_name().unwrap_or_default(), mode)
        .map_err(failed("making a temporary file beside it"))?;
    for piece in content.chunks(PIECE) {
        if stop() {
            return Ok(None);
        }
        temporary.file.write_all(piece).map_err(failed("writing"))?;
    }
    if let Some(old) = old {
        keep_owner_and_mode(&temporary.file, old).map_err(failed("keeping its mode"))?;
        keep_attributes(&temporary.file, target);
    }
    temporary.file.sync_all().map_err(failed("writing"))?;
    Ok(Some(temporary))
}

fn keep_owner_and_mode(file: &File, old: &Stat) -> io::Result<()> {
    let new = file.metadata()?;
    if (new.uid(), new.gid()) != (old.st_uid, old.st_gid) {
        // Only root may give a file away; the content matters more than its owner.
        let owner = Some(Uid::from_raw(old.st_uid));
        let group = Some(Gid::from_raw(old.st_gid));
        let _ = rustix::fs::fchown(file.as_fd(), owner, group)
            .or_else(|_| rustix::fs::fchown(file.as_fd(), None, group));
    }
    // After the owner: changing that clears the set-user-id bit.
    Ok(rustix::fs::fchmod(file, Mode::from_raw_mode(old.st_mode))?)
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

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::{
        cell::Cell,
        fs::Permissions,
        os::unix::fs::{PermissionsExt, symlink},
    };

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

    /// What is checked before must still hold when it counts, and nothing is left behind.
    #[test]
    fn a_directory_that_becomes_a_symlink_on_the_way_leads_nowhere_else() {
        for target in ["in/old", "in/new", "in/made/new"] {
            let mut written = 0;
            for step in 0..6 {
                let scratch = tempfile::tempdir().unwrap();
                let root = scratch.path().canonicalize().unwrap();
                std::fs::create_dir(root.join("in")).unwrap();
                std::fs::create_dir_all(root.join("outside/made")).unwrap();
                std::fs::write(root.join("in/old"), "before").unwrap();
                std::fs::write(root.join("outside/old"), "before").unwrap();
                let outside = contents(&root.join("outside"));
                let asked = Cell::new(0);
                let swap = || {
                    if asked.replace(asked.get() + 1) == step {
                        std::fs::rename(root.join("in"), root.join("moved")).unwrap();
                        symlink("outside", root.join("in")).unwrap();
                    }
                    false
                };
                let outcome = replace(&root.join(target), &vec![b'x'; 3 * PIECE], None, &swap);
                written += usize::from(outcome.is_ok());
                assert_eq!(contents(&root.join("outside")), outside, "{target} at {step}");
                let left = contents(&root);
                assert!(!left.iter().any(|name| name.contains(".tmp ")), "{target}: {left:?}");
            }
            assert!(written > 0, "a directory that was reached is held");
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
        assert!(
            refused(&target.join("below"), None)
                .starts_with("reaching its directory failed: Not a directory")
        );
        assert_eq!(contents(scratch.path()), [format!("{} 3", target.display())]);

        if !rustix::process::geteuid().is_root() {
            std::fs::set_permissions(&target, Permissions::from_mode(0o444)).unwrap();
            assert!(refused(&target, None).contains("read-only (mode 444)"));
            std::fs::set_permissions(&target, Permissions::from_mode(0o644)).unwrap();
        }

        let seen = Seen::of(&target.metadata().unwrap());
        let outcome = replace(&target, b"newer", Some(&seen), &never).unwrap();
        assert_eq!(outcome, Outcome::Replaced { old_size: 3, in_place: None });
    }

    #[test]
    fn a_name_of_the_greatest_length_can_be_written() {
        let scratch = tempfile::tempdir().unwrap();
        let target = scratch.path().join("n".repeat(255));
        assert_eq!(replace(&target, b"x", None, &never).unwrap(), Outcome::Created);
    }
}
