//! Where a path really leads.
//!
//! Owns: following symlinks through paths whose end need not exist yet, which
//! `std::fs::canonicalize` refuses. Never: decides whether the place may be used.

use std::{
    collections::VecDeque,
    ffi::OsString,
    io,
    path::{Component, Path, PathBuf},
};

/// As many as Linux follows.
const MAX_SYMLINKS: usize = 40;

/// The place that an absolute path names once every symlink is followed, a dangling last one too.
///
/// From the first part that does not exist, the rest is taken as it is written.
///
/// # Errors
/// A directory on the way cannot be looked into, or the symlinks go round in circles.
pub(super) fn follow(path: &Path) -> io::Result<PathBuf> {
    let mut place = PathBuf::from("/");
    let mut rest = parts(path);
    let mut followed = 0;
    while let Some(part) = rest.pop_front() {
        if part == ".." {
            place.pop();
            continue;
        }
        let next = place.join(&part);
        match std::fs::symlink_metadata(&next) {
            Ok(found) if found.is_symlink() => {
                followed += 1;
                if followed > MAX_SYMLINKS {
                    return Err(io::Error::other("too many levels of symbolic links"));
                }
                let target = std::fs::read_link(&next)?;
                if target.is_absolute() {
                    place = PathBuf::from("/");
                }
                for part in parts(&target).into_iter().rev() {
                    rest.push_front(part);
                }
            }
            Ok(_) => place = next,
            Err(error) if error.kind() == io::ErrorKind::NotFound => place = next,
            Err(error) => return Err(error),
        }
    }
    Ok(place)
}

/// The parts of a path, without its root and without `.`.
fn parts(path: &Path) -> VecDeque<OsString> {
    path.components()
        .filter_map(|part| match part {
            Component::Normal(name) => Some(name.to_owned()),
            Component::ParentDir => Some("..".into()),
            Component::Prefix(_) | Component::RootDir | Component::CurDir => None,
        })
        .collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn every_way_to_a_place_is_followed() {
        let scratch = tempfile::tempdir().unwrap();
        let root = scratch.path().canonicalize().unwrap();
        std::fs::create_dir_all(root.join("real/deep")).unwrap();
        std::fs::write(root.join("real/file"), "x").unwrap();
        symlink("real", root.join("dir")).unwrap();
        symlink(root.join("real/file"), root.join("absolute")).unwrap();
        symlink("real/missing", root.join("dangling")).unwrap();
        symlink("dir/deep", root.join("chain")).unwrap();

        const CASES: &[(&str, &str)] = &[
            ("real/file", "real/file"),
            ("dir/file", "real/file"),
            ("./dir//./file", "real/file"),
            ("absolute", "real/file"),
            ("dangling", "real/missing"),
            ("chain/../file", "real/file"),
            ("new/a/../b", "new/b"),
            ("dir/new/file", "real/new/file"),
            ("real/deep/../../real", "real"),
        ];
        for (path, place) in CASES {
            assert_eq!(follow(&root.join(path)).unwrap(), root.join(place), "{path}");
        }
    }

    #[test]
    fn a_circle_is_an_error() {
        let scratch = tempfile::tempdir().unwrap();
        symlink("b", scratch.path().join("a")).unwrap();
        symlink("a", scratch.path().join("b")).unwrap();
        let error = follow(&scratch.path().join("a")).unwrap_err();
        assert!(error.to_string().contains("symbolic links"), "{error}");
    }
}
