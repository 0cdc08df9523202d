//! A directory that is held, not named.
//!
//! Owns: the way to it, on which no symlink is followed, so that it is the place that was allowed
//! whatever is renamed meanwhile; making what is missing of it; work on the files in it.
//! Never: leaves a temporary file, or a directory that was made for nothing.

use std::{
    ffi::{OsStr, OsString},
    fs::File,
    io,
    os::fd::OwnedFd,
    path::{Component, Path},
};

use rustix::{
    fs::{Access, AtFlags, Mode, OFlags, Stat},
    io::Errno,
};

/// To pass through a directory one need not be allowed to list it.
#[cfg(target_os = "linux")]
const PASS: OFlags = OFlags::PATH;
#[cfg(not(target_os = "linux"))]
const PASS: OFlags = OFlags::RDONLY;

/// A directory, wherever it is by now.
pub(super) struct Directory(OwnedFd);

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

    /// A new file, for a while, with a name that resembles the one it will have.
    pub(super) fn temporary(&self, name: &OsStr, mode: Mode) -> io::Result<Temporary<'_>> {
        // Long names have no room for more.
        let short: String = name.to_string_lossy().chars().take(40).collect();
        let flags = OFlags::CREATE | OFlags::EXCL | OFlags::RDWR | OFlags::CLOEXEC;
        loop {
            let random: String = std::iter::repeat_with(fastrand::alphanumeric).take(6).collect();
            let name = OsString::from(format!(".{short}.{random}.tmp"));
            match rustix::fs::openat(&self.0, &name, flags, mode) {
                Err(Errno::EXIST) => {}
                file => return Ok(Temporary { file: file?.into(), name, directory: self }),
            }
        }
    }

    /// Has the names on the disk, too.
    pub(super) fn sync(&self) -> io::Result<()> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        Ok(rustix::fs::fsync(rustix::fs::openat(&self.0, ".", flags, Mode::empty())?)?)
    }
}

/// A file that goes again unless it is given its name.
pub(super) struct Temporary<'a> {
    pub(super) file: File,
    name: OsString,
    directory: &'a Directory,
}

impl Temporary<'_> {
    /// Puts the file in the place of what has this name.
    pub(super) fn rename(self, name: &OsStr) -> io::Result<()> {
        let directory = &self.directory.0;
        // The drop that follows finds nothing under the old name.
        Ok(rustix::fs::renameat(directory, &self.name, directory, name)?)
    }
}

impl Drop for Temporary<'_> {
    fn drop(&mut self) {
        let _ = rustix::fs::unlinkat(&self.directory.0, &self.name, AtFlags::empty());
    }
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
