//! Writing over a file where it lies.
//!
//! Owns: the files that nothing can take the place of, and those whose other names shall show the
//! change; how as much as possible of the old content is kept when that fails.
//! Never: begins before there is room for all of it, stops half-way because someone asks, or says that
//! nothing has changed when something has. A kill in the midst of it does leave half of each.

use std::{
    ffi::OsStr,
    fs::File,
    io::{self, ErrorKind},
    os::unix::fs::FileExt,
};

use rustix::{fs::Stat, io::Errno};

use super::{
    directory::Directory,
    written::{InPlace, Outcome, Seen, WriteError, failed},
};

/// So much of an old content is remembered, to put it back.
const MAX_KEPT: u64 = 64 * 1024 * 1024;

/// Gives the file that was looked at this content.
///
/// # Errors
/// See [`WriteError`].
pub(super) fn overwrite(
    directory: &Directory,
    name: &OsStr,
    content: &[u8],
    old: &Stat,
    seen: Option<&Seen>,
    why: InPlace,
) -> Result<Outcome, WriteError> {
    let file = directory.open_to_write(name).map_err(failed("opening it to write in place"))?;
    let found = rustix::fs::fstat(&file).map_err(io::Error::from);
    let found = found.map_err(failed("looking at it"))?;
    let is_same = (found.st_dev, found.st_ino) == (old.st_dev, old.st_ino);
    if !is_same || seen.is_some_and(|seen| *seen != Seen::from(&found)) {
        return Err(WriteError::Changed);
    }
    let old_size = found.st_size.unsigned_abs();
    make_room(&file, old_size, content.len() as u64).map_err(failed("making room for it"))?;
    let before = kept(&file, old_size);
    put(&file, before.as_deref(), content, &|bytes, at| file.write_at(bytes, at))?;
    file.sync_all().map_err(|source| WriteError::Half {
        state: "all of it was written, but the disk may not have it".into(),
        source,
    })?;
    Ok(Outcome::Replaced { old_size, in_place: Some(why) })
}

/// Has a full disk or a limit found out before anything is lost, where the file system can tell.
fn make_room(file: &File, old_size: u64, new_size: u64) -> io::Result<()> {
    if new_size <= old_size {
        return Ok(());
    }
    #[cfg(target_os = "linux")]
    {
        let flags = rustix::fs::FallocateFlags::KEEP_SIZE;
        let room = rustix::fs::fallocate(file, flags, 0, new_size);
        if let Err(error @ (Errno::NOSPC | Errno::DQUOT | Errno::FBIG)) = room {
            // What was set aside goes back.
            file.set_len(old_size)?;
            return Err(error.into());
        }
    }
    #[cfg(not(target_os = "linux"))]
    let _ = file;
    Ok(())
}

/// The old content, unless that is too much or may not be read.
fn kept(file: &File, size: u64) -> Option<Vec<u8>> {
    let mut before = vec![0; usize::try_from(size).ok().filter(|_| size <= MAX_KEPT)?];
    file.read_exact_at(&mut before, 0).is_ok().then_some(before)
}

/// Writes the new content over the old one, and the old one back if that fails.
fn put(
    file: &File,
    before: Option<&[u8]>,
    content: &[u8],
    write_at: &dyn Fn(&[u8], u64) -> io::Result<usize>,
) -> Result<(), WriteError> {
    let mut done = 0;
    let written = write_all(content, &mut done, write_at).and_then(|()| {
        // Only now, so that there is never less than there was.
        file.set_len(content.len() as u64)
    });
    let Err(source) = written else { return Ok(()) };
    let restored = before.is_some_and(|before| {
        let lost = &before[..done.min(before.len())];
        write_all(lost, &mut 0, write_at).is_ok() && file.set_len(before.len() as u64).is_ok()
    });
    match restored {
        true => Err(WriteError::Io { step: "writing it in place", source }),
        false => Err(WriteError::Half {
            state: format!(
                "its first {done} bytes are of the new content, and what follows is of the old"
            ),
            source,
        }),
    }
}

fn write_all(
    content: &[u8],
    done: &mut usize,
    write_at: &dyn Fn(&[u8], u64) -> io::Result<usize>,
) -> io::Result<()> {
    while *done < content.len() {
        match write_at(&content[*done..], *done as u64) {
            Ok(0) => return Err(ErrorKind::WriteZero.into()),
            Ok(count) => *done += count,
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
