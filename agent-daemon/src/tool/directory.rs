//! A directory that is held, not named.
//!
//! Owns: the way to it, on which no symlink is followed, so that it is the place that was allowed
//! whatever is renamed meanwhile; making what is missing of it; work on the files in it.
//! Never: leaves a directory that was made for nothing, or a temporary file. While such a file is
//! filled it has no name where the file system can do that, so that it goes with us if we are killed.
//! To take the place of another it needs one for a moment, and elsewhere it has one all the time;
//! what a kill leaves then is removed by the next [`Directory::sweep`].

use std::{
    ffi::{OsStr, OsString},
    fs::File,
    io,
    os::{
        fd::{AsRawFd, OwnedFd},
        unix::ffi::OsStrExt,
    },
    path::{Component, Path},
    time::Duration,
};

use rustix::{
    fs::{Access, AtFlags, Dir, FileType, FlockOperation, Mode, OFlags, Stat},
    io::Errno,
};

/// How the names of our temporary files end.
const SUFFIX: &str = ".agent-daemon.tmp";

/// So many names of a directory are looked at for what was left in it.
const MAX_SWEPT: usize = 10_000;

/// An empty temporary file of this age is not one that was made just now.
const SETTLED: Duration = Duration::from_secs(60);

/// To pass through a directory one need not be allowed to list it.
#[cfg(target_os = "linux")]
const PASS: OFlags = OFlags::PATH;
#[cfg(not(target_os = "linux"))]
const PASS: OFlags = OFlags::RDONLY;

/// A directory, wherever it is by now.
pub(crate) struct Directory(OwnedFd);

impl Directory {
    /// Goes to an absolute path without symlinks, and makes what is missing of it.
    ///
    /// # Errors
    /// Something on the way is no directory, or a symlink by now.
    pub(super) fn reach(path: &Path) -> io::Result<(Self, Made)> {
        let mut here = Directory(rustix::fs::open("/", PASS | OFlags::CLOEXEC, Mode::empty())?);
        let mut made = Made(Vec::new());
        for part in path.components() {
            let Component::Normal(name) = part else { continue };
            here = match here.enter(name) {
                Err(Errno::NOENT) => here.make(name, &mut made)?,
                there => there?,
            };
        }
        Ok((here, made))
    }

    /// Goes to an absolute path without symlinks, as far as all of it is there.
    pub(crate) fn find(path: &Path) -> io::Result<Self> {
        let mut here = Directory(rustix::fs::open("/", PASS | OFlags::CLOEXEC, Mode::empty())?);
        for part in path.components() {
            let Component::Normal(name) = part else { continue };
            here = here.enter(name)?;
        }
        Ok(here)
    }

    fn enter(&self, name: &OsStr) -> Result<Self, Errno> {
        let flags = PASS | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        rustix::fs::openat(&self.0, name, flags, Mode::empty()).map(Directory)
    }

    fn make(self, name: &OsStr, made: &mut Made) -> io::Result<Self> {
        match rustix::fs::mkdirat(&self.0, name, Mode::from_raw_mode(0o777)) {
            // Another call was faster.
            Err(Errno::EXIST) => return Ok(self.enter(name)?),
            done => done?,
        }
        let there = self.enter(name);
        made.0.push((self, name.to_owned()));
        Ok(there?)
    }

    /// What is there under a name; a symlink is not followed.
    pub(super) fn look(&self, name: &OsStr) -> io::Result<Option<Stat>> {
        match rustix::fs::statat(&self.0, name, AtFlags::SYMLINK_NOFOLLOW) {
            Err(Errno::NOENT) => Ok(None),
            found => Ok(Some(found?)),
        }
    }

    pub(super) fn may_write(&self, name: &OsStr) -> bool {
        rustix::fs::accessat(&self.0, name, Access::WRITE_OK, AtFlags::empty()).is_ok()
    }

    /// Opens what is there to write over it, and to read it if that is allowed; a symlink is refused.
    pub(super) fn open_to_write(&self, name: &OsStr) -> io::Result<File> {
        // Non-blocking: a pipe that was put there meanwhile would wait for a reader.
        let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let open = |access| rustix::fs::openat(&self.0, name, access | flags, Mode::empty());
        Ok(open(OFlags::RDWR).or_else(|_| open(OFlags::WRONLY))?.into())
    }

    /// Opens what is there to read it, without waiting for anything; a symlink is refused.
    pub(crate) fn open_to_read(&self, name: &OsStr) -> io::Result<File> {
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        Ok(rustix::fs::openat(&self.0, name, flags, Mode::empty())?.into())
    }

    /// A new file, for a while, that is to have this name.
    pub(super) fn temporary(&self, name: &OsStr, mode: Mode) -> io::Result<Temporary<'_>> {
        let temporary = match self.nameless(mode) {
            Some(file) => Temporary { file, name: None, directory: self },
            None => {
                let flags = OFlags::CREATE | OFlags::EXCL | OFlags::RDWR | OFlags::CLOEXEC;
                let (file, name) =
                    under_free_name(name, |name| rustix::fs::openat(&self.0, name, flags, mode))?;
                Temporary { file: file.into(), name: Some(name), directory: self }
            }
        };
        // What tells a sweep that somebody still writes. Not every file system has such locks; there
        // a sweep does not get one either.
        let _ = rustix::fs::flock(&temporary.file, FlockOperation::NonBlockingLockExclusive);
        Ok(temporary)
    }

    /// A file without a name that can be given one, where the system can do that.
    #[cfg(target_os = "linux")]
    fn nameless(&self, mode: Mode) -> Option<File> {
        let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
        let file = File::from(rustix::fs::openat(&self.0, ".", flags, mode).ok()?);
        rustix::fs::stat(path_of(&file)).is_ok().then_some(file)
    }

    #[cfg(not(target_os = "linux"))]
    fn nameless(&self, _: Mode) -> Option<File> {
        None
    }

    /// Removes the temporary files that calls have left which were killed.
    pub(super) fn sweep(&self) {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let listed = rustix::fs::openat(&self.0, ".", flags, Mode::empty()).and_then(Dir::new);
        // One that may not be listed is not swept.
        for entry in listed.into_iter().flat_map(|listed| listed.take(MAX_SWEPT)).flatten() {
            let name = OsStr::from_bytes(entry.file_name().to_bytes());
            if name.as_bytes().starts_with(b".") && name.as_bytes().ends_with(SUFFIX.as_bytes()) {
                let _ = self.remove_if_left(name);
            }
        }
    }

    /// Whoever fills a temporary file holds its lock, which ends with the process.
    fn remove_if_left(&self, name: &OsStr) -> io::Result<()> {
        let file = self.open_to_read(name)?;
        let found = rustix::fs::fstat(&file)?;
        let is_ours = FileType::from_raw_mode(found.st_mode) == FileType::RegularFile
            && found.st_uid == rustix::process::geteuid().as_raw();
        // Between its making and its lock a file is empty.
        let age = || file.metadata()?.modified()?.elapsed().map_err(io::Error::other);
        if is_ours && (found.st_size > 0 || age()? > SETTLED) {
            rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive)?;
            rustix::fs::unlinkat(&self.0, name, AtFlags::empty())?;
        }
        Ok(())
    }

    /// Has the names on the disk, too.
    pub(super) fn sync(&self) -> io::Result<()> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        Ok(rustix::fs::fsync(rustix::fs::openat(&self.0, ".", flags, Mode::empty())?)?)
    }
}

/// Tries names that resemble the one that a file will have, until one is free.
fn under_free_name<T>(
    name: &OsStr,
    make: impl Fn(&OsStr) -> Result<T, Errno>,
) -> io::Result<(T, OsString)> {
    // Long names have no room for more.
    let short: String = name.to_string_lossy().chars().take(40).collect();
    loop {
        let random: String = std::iter::repeat_with(fastrand::alphanumeric).take(6).collect();
        let name = OsString::from(format!(".{short}.{random}{SUFFIX}"));
        match make(&name) {
            Err(Errno::EXIST) => {}
            made => return Ok((made?, name)),
        }
    }
}

/// A file that goes again unless it is given its name.
pub(super) struct Temporary<'a> {
    pub(super) file: File,
    /// The one that it has for a while; none if it has none at all.
    name: Option<OsString>,
    directory: &'a Directory,
}

impl Temporary<'_> {
    /// Puts the file in the place of what has this name, or where nothing has.
    pub(super) fn take_place(mut self, name: &OsStr) -> io::Result<()> {
        if self.name.is_none() {
            match self.link(name) {
                Err(Errno::EXIST) => {}
                linked => return Ok(linked?),
            }
            self.name = Some(under_free_name(name, |name| self.link(name))?.1);
        }
        let directory = &self.directory.0;
        if let Some(own) = &self.name {
            rustix::fs::renameat(directory, own, directory, name)?;
        }
        self.name = None;
        Ok(())
    }

    /// Gives a file without a name one.
    fn link(&self, name: &OsStr) -> Result<(), Errno> {
        let path = path_of(&self.file);
        rustix::fs::linkat(rustix::fs::CWD, path, &self.directory.0, name, AtFlags::SYMLINK_FOLLOW)
    }
}

impl Drop for Temporary<'_> {
    fn drop(&mut self) {
        if let Some(name) = &self.name {
            let _ = rustix::fs::unlinkat(&self.directory.0, name, AtFlags::empty());
        }
    }
}

/// The name that the system has for what we have open.
fn path_of(file: &File) -> String {
    format!("/proc/self/fd/{}", file.as_raw_fd())
}

/// Directories that were made for a file, each with the one it is in. They go again if the file does
/// not come to be.
pub(super) struct Made(Vec<(Directory, OsString)>);

impl Made {
    pub(super) fn keep(mut self) {
        self.0.clear();
    }
}

impl Drop for Made {
    fn drop(&mut self) {
        for (directory, name) in self.0.iter().rev() {
            // One that someone else uses by now is not empty, and stays.
            let _ = rustix::fs::unlinkat(&directory.0, name, AtFlags::REMOVEDIR);
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::{collections::BTreeSet, io::Write, time::SystemTime};

    use super::*;

    fn names(directory: &Path) -> BTreeSet<String> {
        let entries = std::fs::read_dir(directory).unwrap();
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn a_file_that_is_being_filled_has_no_name() {
        let scratch = tempfile::tempdir().unwrap();
        let directory = Directory::find(&scratch.path().canonicalize().unwrap()).unwrap();
        let mut temporary = directory.temporary(OsStr::new("a"), 0o600.into()).unwrap();
        temporary.file.write_all(b"x").unwrap();
        // Not every file system can do that; then it has a name that a sweep knows.
        let expected = temporary.name.as_ref().map(|name| name.to_str().unwrap().to_owned());
        assert_eq!(names(scratch.path()), expected.into_iter().collect());
        temporary.take_place(OsStr::new("a")).unwrap();
        assert_eq!(names(scratch.path()), ["a".to_owned()].into());
        let again = directory.temporary(OsStr::new("a"), 0o600.into()).unwrap();
        again.take_place(OsStr::new("a")).unwrap();
        assert_eq!(names(scratch.path()), ["a".to_owned()].into());
        assert_eq!(std::fs::read(scratch.path().join("a")).unwrap(), b"");
    }

    #[test]
    fn what_a_killed_call_left_is_swept_and_nothing_else() {
        let scratch = tempfile::tempdir().unwrap();
        let root = scratch.path().canonicalize().unwrap();
        let directory = Directory::find(&root).unwrap();
        let make = |name: &str, content: &str| {
            std::fs::write(root.join(name), content).unwrap();
            File::open(root.join(name)).unwrap()
        };
        make(".left.abcdef.agent-daemon.tmp", "half of");
        let old = make(".early.abcdef.agent-daemon.tmp", "");
        old.set_modified(SystemTime::now() - 2 * SETTLED).unwrap();
        let held = make(".held.abcdef.agent-daemon.tmp", "half of");
        rustix::fs::flock(&held, FlockOperation::LockExclusive).unwrap();
        let kept = [
            ".held.abcdef.agent-daemon.tmp",
            // Made just now: its lock may be about to come.
            ".new.abcdef.agent-daemon.tmp",
            ".other.abcdef.tmp",
            "visible.agent-daemon.tmp",
        ];
        kept[1..].iter().for_each(|name| {
            make(name, if name.contains("new") { "" } else { "x" });
        });
        std::fs::create_dir(root.join(".dir.agent-daemon.tmp")).unwrap();
        std::os::unix::fs::symlink("visible.agent-daemon.tmp", root.join(".link.agent-daemon.tmp"))
            .unwrap();
        directory.sweep();
        let mut expected: BTreeSet<String> = kept.iter().map(|name| (*name).to_owned()).collect();
        expected.extend([".dir.agent-daemon.tmp".into(), ".link.agent-daemon.tmp".into()]);
        assert_eq!(names(&root), expected);
        drop(held);
        directory.sweep();
        assert!(!names(&root).contains(".held.abcdef.agent-daemon.tmp"));
    }
}
