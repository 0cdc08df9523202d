//! What became of a file that was to be written.

use std::{fmt, fs::Metadata, io, os::unix::fs::MetadataExt};

use rustix::{fs::Stat, io::Errno};

/// What became of the file.
#[derive(Debug, PartialEq)]
pub(super) enum Outcome {
    /// There was none; now there is.
    Created,
    /// It had so many bytes before.
    Replaced { old_size: u64, in_place: Option<InPlace> },
    /// The work was stopped first. Nothing has changed.
    Stopped,
}

impl Outcome {
    pub(super) fn is_in_place(&self) -> bool {
        matches!(self, Outcome::Replaced { in_place: Some(_), .. })
    }

    /// What is said besides, if it did not go the usual way.
    pub(super) fn remark(&self) -> String {
        match self {
            Outcome::Replaced { in_place: Some(why), .. } => {
                format!(" The file was written over where it is, since {why}.")
            }
            _ => String::new(),
        }
    }
}

/// Why a file was not written. Nothing has changed, unless it says so.
#[derive(Debug, thiserror::Error)]
pub(super) enum WriteError {
    #[error("it is a directory")]
    Directory,
    #[error("it is a device, socket or pipe")]
    Special,
    #[error("it is read-only (mode {mode:03o}); change that with chmod first")]
    ReadOnly { mode: rustix::fs::RawMode },
    #[error("it was changed by something else meanwhile; read it again")]
    Changed,
    #[error("{step} failed: {source}")]
    Io { step: &'static str, source: io::Error },
    #[error("{state}, since writing it in place failed: {source}")]
    Half { state: String, source: io::Error },
}

impl WriteError {
    /// As a sentence about a file that was not `written`, or not `changed`.
    pub(super) fn sentence(&self, named: &str, done: &str) -> String {
        match self {
            WriteError::Half { .. } => format!("{named} was damaged: {self}."),
            _ => format!("{named} was not {done}, since {self}."),
        }
    }
}

/// Which state of a file someone has seen.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Seen {
    pub(super) inode: i128,
    pub(super) size: i128,
    pub(super) modified: (i128, i128),
}

impl Seen {
    pub(super) fn of(metadata: &Metadata) -> Self {
        Seen {
            inode: metadata.ino().into(),
            size: metadata.len().into(),
            modified: (metadata.mtime().into(), metadata.mtime_nsec().into()),
        }
    }
}

impl From<&Stat> for Seen {
    fn from(stat: &Stat) -> Self {
        Seen {
            inode: stat.st_ino.into(),
            size: stat.st_size.into(),
            modified: (stat.st_mtime.into(), stat.st_mtime_nsec.into()),
        }
    }
}

/// Why a file was not replaced as a whole. Reads on after `since`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum InPlace {
    /// It has so many names, hard links, and all of them shall show the change.
    Links(i128),
    /// Something is mounted there.
    Mounted,
    /// The directory takes no other file.
    Directory,
}

impl InPlace {
    pub(super) fn for_links(old: &Stat) -> Option<Self> {
        let names = i128::from(old.st_nlink);
        (names > 1).then_some(InPlace::Links(names))
    }

    /// Whether the failure of a replacement is one that writing in place does not meet.
    pub(super) fn after(error: &WriteError) -> Option<Self> {
        let WriteError::Io { source, .. } = error else { return None };
        match Errno::from_io_error(source)? {
            Errno::BUSY => Some(InPlace::Mounted),
            Errno::ACCESS | Errno::PERM | Errno::ROFS => Some(InPlace::Directory),
            _ => None,
        }
    }
}

impl fmt::Display for InPlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            InPlace::Links(names) => write!(f, "it has {names} names (hard links)"),
            InPlace::Mounted => f.write_str("it is mounted there"),
            InPlace::Directory => f.write_str("its directory cannot be written to"),
        }
    }
}

/// A step that failed.
pub(super) fn failed(step: &'static str) -> impl Fn(io::Error) -> WriteError {
    move |source| WriteError::Io { step, source }
}
