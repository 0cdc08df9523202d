//! Where a socket or a token may be, and whom of this machine it may belong to.
//!
//! Owns: the rule for both sides, so that a client looks at the way to a socket as the daemon does.
//! Never: trusts a way that somebody else can bend: each directory and each symlink on it is ours or
//! the superuser's, and others can write to none of them, but for those like `/tmp`, where what is
//! ours stays ours.

use std::{
    ffi::OsString,
    fs::{self, DirBuilder},
    io,
    os::unix::fs::{DirBuilderExt, MetadataExt},
    path::{Path, PathBuf},
    sync::LazyLock,
};

/// As many symlinks as the kernel follows.
const MAX_LINKS: u32 = 40;

/// Group and others may write.
const BY_OTHERS: u32 = 0o022;
/// Others may write.
const BY_ANYBODY: u32 = 0o002;
/// Only its owner may rename or remove what is inside.
const STICKY: u32 = 0o1000;

/// A directory cannot hold a socket or a token.
#[derive(Debug, thiserror::Error)]
pub enum PlaceError {
    /// Others could put something of their own in the place of ours.
    #[error(
        "{} is not safe on the way to a socket or a token: {problem}; name one in a directory of \
         your own",
        path.display()
    )]
    Unsafe {
        /// The directory or the symlink.
        path: PathBuf,
        /// Why.
        problem: Problem,
    },
    /// The system refused something.
    #[error("cannot use the directory {}: {source}", path.display())]
    Io {
        /// The directory.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
}

/// What is wrong with a place.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Problem {
    /// It belongs to neither us nor the superuser.
    #[error("it belongs to another user, uid {0}")]
    Owner(u32),
    /// Others can put something into it, or take something out.
    #[error("other users can write to it, and `chmod go-w` would end that")]
    Writable,
}

impl PlaceError {
    /// Whether there is no such directory yet.
    pub fn is_absence(&self) -> bool {
        matches!(self, PlaceError::Io { source, .. } if source.kind() == io::ErrorKind::NotFound)
    }
}

/// Whether a uid is ours or the superuser's.
pub fn is_ours_or_roots(uid: u32) -> bool {
    uid == 0 || uid == rustix::process::geteuid().as_raw() || *UNMAPPED == Some(uid)
}

/// In a user namespace, as sandboxes are, the superuser's own files belong to nobody, as do those
/// of all other users who are not part of it.
static UNMAPPED: LazyLock<Option<u32>> = LazyLock::new(|| {
    let nobody = fs::read_to_string("/proc/sys/kernel/overflowuid").ok()?.trim().parse().ok()?;
    let map = fs::read_to_string("/proc/self/uid_map").ok()?;
    (!is_mapped(&map, nobody)).then_some(nobody)
});

/// Whether a uid means somebody in a namespace with this map: lines of first uid, its meaning
/// outside and how many.
fn is_mapped(map: &str, uid: u32) -> bool {
    map.lines().any(|line| {
        let mut numbers = line.split_whitespace().map(|number| number.parse::<u64>().unwrap_or(0));
        let (first, _, count) = (numbers.next(), numbers.next(), numbers.next());
        let (first, count) = (first.unwrap_or(0), count.unwrap_or(0));
        (first..first + count).contains(&uid.into())
    })
}

/// Follows the way to a directory as the system would.
///
/// # Errors
/// Somebody else can bend it, or it is not there.
pub fn check_directory(directory: &Path) -> Result<(), PlaceError> {
    let absolute = std::path::absolute(directory);
    let absolute =
        absolute.map_err(|source| PlaceError::Io { path: directory.to_owned(), source })?;
    let mut at = PathBuf::from("/");
    let mut rest = backwards(&absolute);
    let mut links = 0;
    while let Some(part) = rest.pop() {
        if part == ".." {
            at.pop();
            continue;
        }
        // The root begins anew.
        at.push(part);
        if let Some(target) = check_step(&at, BY_ANYBODY)? {
            links += 1;
            if links > MAX_LINKS {
                let source = rustix::io::Errno::LOOP.into();
                return Err(PlaceError::Io { path: directory.to_owned(), source });
            }
            at.pop();
            rest.extend(backwards(&target));
        }
    }
    // What lies above may be a group's: whatever the group puts in the way is refused for whose it
    // is. In the directory itself it could take away what is ours.
    check_step(&at, BY_OTHERS).map(|_| ())
}

/// Looks at one directory or symlink; gives where the symlink leads.
fn check_step(path: &Path, writers: u32) -> Result<Option<PathBuf>, PlaceError> {
    let io = |source| PlaceError::Io { path: path.to_owned(), source };
    let refused = |problem| Err(PlaceError::Unsafe { path: path.to_owned(), problem });
    let metadata = fs::symlink_metadata(path).map_err(io)?;
    if !is_ours_or_roots(metadata.uid()) {
        return refused(Problem::Owner(metadata.uid()));
    }
    if metadata.is_symlink() {
        return fs::read_link(path).map(Some).map_err(io);
    }
    match metadata.mode() & writers != 0 && metadata.mode() & STICKY == 0 {
        true => refused(Problem::Writable),
        false => Ok(None),
    }
}

/// The parts of a path, the last one first.
fn backwards(path: &Path) -> Vec<OsString> {
    path.components().rev().map(|part| part.as_os_str().to_owned()).collect()
}

/// Makes a directory, and those above it, that only we can look into; one that exists stays as it
/// is, and must be safe.
///
/// # Errors
/// Somebody else can bend the way to it, or the system refuses.
pub fn make_private_directory(directory: &Path) -> Result<(), PlaceError> {
    let io = |source| PlaceError::Io { path: directory.to_owned(), source };
    match check_directory(directory) {
        // As far as it exists, it is safe.
        Err(error) if error.is_absence() => {
            DirBuilder::new().recursive(true).mode(0o700).create(directory).map_err(io)?;
            check_directory(directory)
        }
        checked => checked,
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::os::unix::fs::{PermissionsExt, lchown, symlink};

    use super::*;

    /// Made by us, and given to somebody else where we can.
    struct Place(tempfile::TempDir);

    impl Place {
        fn new() -> Self {
            Place(tempfile::tempdir().unwrap())
        }

        fn path(&self, name: &str) -> PathBuf {
            self.0.path().join(name)
        }

        fn make(&self, name: &str, mode: u32) -> PathBuf {
            let path = self.path(name);
            fs::create_dir_all(&path).unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
            path
        }

        fn check(&self, name: &str) -> String {
            match check_directory(&self.path(name)) {
                Ok(()) => "safe".to_owned(),
                Err(PlaceError::Unsafe { path, problem }) => {
                    let path = path.strip_prefix(self.0.path()).unwrap_or(&path);
                    format!("{} {problem:?}", path.display())
                }
                Err(error) if error.is_absence() => "absent".to_owned(),
                Err(PlaceError::Io { source, .. }) => format!("{source}"),
            }
        }
    }

    #[test]
    fn others_may_write_nowhere_on_the_way_but_where_ours_stays_ours() {
        let place = Place::new();
        for (name, mode, expected) in [
            ("private", 0o700, "safe"),
            ("seen", 0o755, "safe"),
            ("open", 0o777, "open Writable"),
            ("group", 0o770, "group Writable"),
            ("sticky", 0o1777, "safe"),
        ] {
            place.make(name, mode);
            assert_eq!(place.check(name), expected);
        }
        place.make("open/inner", 0o700);
        assert_eq!(place.check("open/inner"), "open Writable");
        place.make("group/inner", 0o700);
        assert_eq!(place.check("group/inner"), "safe");
        assert_eq!(place.check("group/inner/.."), "group Writable");
        assert_eq!(place.check("private/none/at/all"), "absent");
        assert_eq!(place.check("open/none"), "open Writable");
    }

    #[test]
    fn symlinks_are_followed_to_where_they_lead() {
        let place = Place::new();
        place.make("open", 0o777);
        place.make("private/deep", 0o700);
        for (target, link, expected) in [
            ("private", "own", "safe"),
            ("private/deep/..", "winding", "safe"),
            ("open", "to-open", "open Writable"),
            ("nowhere", "dangling", "absent"),
        ] {
            symlink(target, place.path(link)).unwrap();
            assert_eq!(place.check(link), expected, "{link}");
        }
        symlink(place.path("open"), place.path("absolute")).unwrap();
        assert_eq!(place.check("absolute"), "open Writable");
        symlink("round", place.path("round")).unwrap();
        assert!(place.check("round").contains("symbolic links"), "{}", place.check("round"));
    }

    #[test]
    fn what_belongs_to_somebody_else_is_refused() {
        if !rustix::process::geteuid().is_root() {
            eprintln!("skipped: only root can give files away");
            return;
        }
        let place = Place::new();
        place.make("sticky", 0o1777);
        place.make("private", 0o700);
        let theirs = place.make("sticky/theirs", 0o700);
        let planted = place.path("sticky/planted");
        symlink(place.path("private"), &planted).unwrap();
        for path in [&theirs, &planted] {
            lchown(path, Some(65533), None).unwrap();
        }
        assert_eq!(place.check("sticky/theirs"), "sticky/theirs Owner(65533)");
        assert_eq!(place.check("sticky/theirs/deeper"), "sticky/theirs Owner(65533)");
        assert_eq!(place.check("sticky/planted"), "sticky/planted Owner(65533)");
        assert!(make_private_directory(&place.path("sticky/theirs/deeper")).is_err());
        assert!(!theirs.join("deeper").exists());
    }

    #[test]
    fn directories_are_made_private_and_existing_ones_stay() {
        let place = Place::new();
        place.make("seen", 0o755);
        make_private_directory(&place.path("seen/a/b")).unwrap();
        let mode = |name: &str| fs::metadata(place.path(name)).unwrap().mode() & 0o777;
        assert_eq!((mode("seen"), mode("seen/a"), mode("seen/a/b")), (0o755, 0o700, 0o700));
    }

    #[test]
    fn nobody_is_somebody_where_the_namespace_says_so() {
        for (map, uid, expected) in [
            ("         0          0 4294967295\n", 65534, true),
            ("0 1000 1\n1 100000 65536\n", 65534, true),
            ("0 1000 1\n", 65534, false),
            ("1000 1000 1\n", 65534, false),
            ("", 65534, false),
        ] {
            assert_eq!(is_mapped(map, uid), expected, "{map}");
        }
    }
}
