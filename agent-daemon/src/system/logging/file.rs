//! A file in place of stderr, for a daemon in the background.
//!
//! Owns: when it is full, and what happens then: it becomes the old one, and a new one begins.
//! Never: lets both together grow beyond twice [`MAX_BYTES`], but for what a panic says.

use std::{
    ffi::OsString,
    fs::{self, DirBuilder, File, Metadata, OpenOptions},
    io::{self, Write},
    os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt},
    path::{Path, PathBuf},
};

/// A log that has come to so many bytes makes room for a new one.
const MAX_BYTES: u64 = 8 << 20;

/// A log that is a file.
pub(super) struct LogFile {
    path: PathBuf,
    file: File,
    max_bytes: u64,
    /// Whether stderr is the same file, so that a panic's message and a library's words are in it.
    is_stderr: bool,
}

impl LogFile {
    /// From now on what the process says on stderr is in this file, after what is in it already.
    pub(super) fn in_place_of_stderr(path: PathBuf) -> io::Result<Self> {
        let log = LogFile { file: open(&path)?, path, max_bytes: MAX_BYTES, is_stderr: true };
        rustix::stdio::dup2_stderr(&log.file)?;
        Ok(log)
    }

    /// Begins a new file if this one is full, or is not the one of that name any more.
    fn make_room(&mut self) -> io::Result<()> {
        let ours = self.file.metadata()?;
        let is_ours = |there: Metadata| (there.dev(), there.ino()) == (ours.dev(), ours.ino());
        let is_in_place = fs::symlink_metadata(&self.path).is_ok_and(is_ours);
        let is_full = ours.len() >= self.max_bytes;
        if is_in_place && !is_full {
            return Ok(());
        }
        let begun = self.begin(is_in_place);
        // Better in a file that nobody finds than nowhere; but that may not grow for ever either.
        if is_full { begun } else { Ok(()) }
    }

    fn begin(&mut self, is_in_place: bool) -> io::Result<()> {
        if is_in_place {
            fs::rename(&self.path, old(&self.path))?;
        }
        self.file = open(&self.path)?;
        if self.is_stderr {
            rustix::stdio::dup2_stderr(&self.file)?;
        }
        Ok(())
    }
}

impl Write for LogFile {
    /// Writes a whole line.
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        self.make_room()?;
        self.file.write(line)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn open(path: &Path) -> io::Result<File> {
    if let Some(directory) = path.parent() {
        DirBuilder::new().recursive(true).mode(0o700).create(directory)?;
    }
    OpenOptions::new()
        .create(true)
        .append(true)
        .mode(0o600)
        .custom_flags(rustix::fs::OFlags::NOFOLLOW.bits() as i32)
        .open(path)
}

fn old(path: &Path) -> PathBuf {
    let mut name = OsString::from(path);
    name.push(".old");
    PathBuf::from(name)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::os::unix::fs::PermissionsExt;

    use super::*;

    struct Scene {
        directory: tempfile::TempDir,
        log: LogFile,
    }

    impl Scene {
        fn new() -> Self {
            let directory = tempfile::tempdir().unwrap();
            let path = directory.path().join("state/x.log");
            let log = LogFile { file: open(&path).unwrap(), path, max_bytes: 20, is_stderr: false };
            Scene { directory, log }
        }

        fn say(&mut self, line: &str) {
            self.log.write_all(format!("{line}\n").as_bytes()).unwrap();
        }

        fn text(&self, name: &str) -> String {
            fs::read_to_string(self.directory.path().join("state").join(name)).unwrap()
        }
    }

    #[test]
    fn a_full_log_becomes_the_old_one_and_only_one_is_kept() {
        let mut scene = Scene::new();
        for line in ["first of all", "second", "third", "fourth line", "fifth line", "sixth"] {
            scene.say(line);
        }
        assert_eq!(scene.text("x.log"), "sixth\n");
        assert_eq!(scene.text("x.log.old"), "third\nfourth line\nfifth line\n");
        let directory = scene.directory.path().join("state");
        assert_eq!(fs::read_dir(&directory).unwrap().count(), 2);
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!((mode(&directory), mode(&directory.join("x.log"))), (0o700, 0o600));
    }

    #[test]
    fn a_log_that_was_removed_or_moved_begins_again() {
        let mut scene = Scene::new();
        scene.say("lost");
        fs::remove_dir_all(scene.directory.path().join("state")).unwrap();
        scene.say("kept");
        assert_eq!(scene.text("x.log"), "kept\n");
        let path = |name| scene.directory.path().join("state").join(name);
        fs::rename(path("x.log"), path("elsewhere")).unwrap();
        scene.say("new");
        assert_eq!(
            (scene.text("x.log"), scene.text("elsewhere")),
            ("new\n".into(), "kept\n".into())
        );
    }
}
