//! Files that cannot be replaced as a whole, or must not be.

#![allow(clippy::unwrap_used)]

use std::{
    cell::Cell,
    path::{Path, PathBuf},
    process::Command,
};

use super::*;
use crate::tool::atomic_write::replace;

/// Where a test that runs once more, elsewhere, finds its files.
const PLACE: &str = "TEST_IN_PLACE";

fn write(target: &Path, content: &str) -> Result<Outcome, WriteError> {
    replace(target, content.as_bytes(), None, &|| false)
}

fn scratch() -> (tempfile::TempDir, PathBuf) {
    let scratch = tempfile::tempdir().unwrap();
    let root = scratch.path().canonicalize().unwrap();
    (scratch, root)
}

/// Runs a test of this file again, behind a shell script that prepares its place as nobody can in a
/// process with threads. Whether that is possible here.
fn again(test: &str, place: &Path, launcher: &[&str], script: &str) -> bool {
    let possible =
        Command::new(launcher[0]).args(&launcher[1..]).args(["sh", "-c", "true"]).output();
    if !possible.is_ok_and(|tried| tried.status.success()) {
        return false;
    }
    let program = std::env::current_exe().unwrap();
    let name = format!("tool::in_place::tests::{test}");
    let output = Command::new(launcher[0])
        .args(&launcher[1..])
        .args(["sh", "-c", &format!("set -e; cd \"${PLACE}\"; {script}; exec \"$0\" \"$@\"")])
        .arg(program)
        .args(["--exact", &name, "--nocapture"])
        .env(PLACE, place)
        .output()
        .unwrap();
    let told = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && told.contains("1 passed"), "{told}");
    true
}

#[test]
fn all_names_of_a_file_show_the_change() {
    let (_scratch, root) = scratch();
    let (one, two) = (root.join("one"), root.join("two"));
    std::fs::write(&one, "a longer content").unwrap();
    std::fs::hard_link(&one, &two).unwrap();
    for content in ["new", "", "the longest content of them all"] {
        let outcome = write(&two, content).unwrap();
        assert!(outcome.remark().contains("since it has 2 names (hard links)"), "{outcome:?}");
        assert_eq!(std::fs::read_to_string(&one).unwrap(), content);
    }
    std::fs::remove_file(&one).unwrap();
    assert!(!write(&two, "alone").unwrap().is_in_place());
    assert_eq!(std::fs::read_dir(&root).unwrap().count(), 1);
}

#[test]
fn a_file_that_is_not_the_one_that_was_looked_at_stays() {
    let (_scratch, root) = scratch();
    let (one, two) = (root.join("one"), root.join("two"));
    std::fs::write(&one, "one").unwrap();
    std::fs::write(&two, "two").unwrap();
    let directory = Directory::find(&root).unwrap();
    let stat = directory.look(OsStr::new("one")).unwrap().unwrap();
    let seen = Seen::from(&stat);
    let over = |name: &str, seen| {
        overwrite(&directory, OsStr::new(name), b"new", &stat, seen, InPlace::Mounted)
    };
    assert!(matches!(over("two", None), Err(WriteError::Changed)));
    std::os::unix::fs::symlink("one", root.join("link")).unwrap();
    assert!(over("link", None).unwrap_err().to_string().starts_with("opening it"));
    std::fs::write(&one, "edited").unwrap();
    assert!(matches!(over("one", Some(&seen)), Err(WriteError::Changed)));
    let read = |path: &Path| std::fs::read_to_string(path).unwrap();
    assert_eq!((read(&one), read(&two)), ("edited".into(), "two".into()));
}

#[test]
fn a_failure_half_way_puts_the_old_content_back_or_says_what_is_there() {
    let (_scratch, root) = scratch();
    let path = root.join("file");
    // How many bytes can be written in all, over which old content, whether that was kept.
    let cases = [
        (4, "the old one", true, "the old one", "writing it in place failed: no room"),
        (4, "old", true, "old", "writing it in place failed"),
        (4, "the old one", false, "NEW old one", "its first 4 bytes are of the new content"),
        (0, "the old one", false, "the old one", "its first 0 bytes are of the new content"),
    ];
    for (room, old, is_kept, left, told) in cases {
        std::fs::write(&path, old).unwrap();
        let file = File::options().write(true).open(&path).unwrap();
        let (room, failed) = (Cell::new(room), Cell::new(false));
        let write_at = |bytes: &[u8], at| {
            // After the failure there is room for what was there before.
            let count = if failed.get() { bytes.len() } else { bytes.len().min(room.get()).min(3) };
            if count == 0 {
                failed.set(true);
                return Err(io::Error::other("no room"));
            }
            room.set(room.get().saturating_sub(count));
            file.write_at(&bytes[..count], at)
        };
        let before = is_kept.then_some(old.as_bytes());
        let error = put(&file, before, b"NEW content", &write_at).unwrap_err().to_string();
        assert!(error.contains(told), "{error}");
        assert_eq!(std::fs::read_to_string(&path).unwrap(), left);
    }
}

/// Mounting needs a namespace of one's own, which not every system gives.
#[test]
fn a_mounted_file_is_written_where_it_is() {
    let Some(place) = std::env::var_os(PLACE).map(PathBuf::from) else {
        let (_scratch, root) = scratch();
        std::fs::create_dir(root.join("fixed")).unwrap();
        for name in ["source", "mounted", "other", "fixed/file", "small", "fixed/linked"] {
            std::fs::write(root.join(name), "old").unwrap();
        }
        let script = "mount --bind source mounted; mount --bind fixed fixed; \
                      mount --bind other fixed/file; mount -o remount,ro,bind fixed; \
                      mkdir tiny; mount -t tmpfs -o size=64k none tiny; \
                      echo old > tiny/a; ln tiny/a tiny/b";
        if again("a_mounted_file_is_written_where_it_is", &root, &["unshare", "-rm"], script) {
            let read = |name| std::fs::read_to_string(root.join(name)).unwrap();
            assert_eq!((read("source"), read("mounted")), ("new".into(), "old".into()));
            assert_eq!((read("other"), read("fixed/file")), ("new".into(), "old".into()));
        }
        return;
    };
    let outcome = write(&place.join("mounted"), "new").unwrap();
    assert!(outcome.remark().contains("since it is mounted there"), "{outcome:?}");
    let outcome = write(&place.join("fixed/file"), "new").unwrap();
    assert!(outcome.remark().contains("since its directory cannot be written to"), "{outcome:?}");
    assert!(write(&place.join("fixed/new"), "new").is_err());
    assert!(write(&place.join("fixed/linked"), "new").is_err(), "it is read-only itself");
    // No room: found out before anything is lost.
    let error = write(&place.join("tiny/b"), &"x".repeat(1 << 20)).unwrap_err().to_string();
    assert!(error.contains("No space left"), "{error}");
    assert_eq!(std::fs::read_to_string(place.join("tiny/a")).unwrap(), "old\n");
    write(&place.join("tiny/b"), &"x".repeat(32 << 10)).unwrap();
    let left = std::fs::read_dir(&place).unwrap().map(|entry| entry.unwrap().file_name());
    assert!(!left.into_iter().any(|name| name.to_string_lossy().ends_with(".tmp")));
}

#[test]
fn a_file_in_a_directory_that_takes_no_other_is_written_where_it_is() {
    use std::os::unix::fs::PermissionsExt;
    let set = |path: &Path, mode| {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
    };
    let place = std::env::var_os(PLACE).map(PathBuf::from);
    if place.is_none() && rustix::process::geteuid().is_root() {
        // To root every directory is open.
        let (_scratch, root) = scratch();
        std::fs::write(root.join("file"), "old").unwrap();
        set(&root, 0o755);
        set(&root.join("file"), 0o666);
        let name = "a_file_in_a_directory_that_takes_no_other_is_written_where_it_is";
        let nobody = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"];
        if again(name, &root, &nobody, "true") {
            assert_eq!(std::fs::read_to_string(root.join("file")).unwrap(), "new");
        }
        return;
    }
    let own = place.is_none().then(scratch);
    let root = place.unwrap_or_else(|| own.as_ref().unwrap().1.clone());
    if own.is_some() {
        std::fs::write(root.join("file"), "old").unwrap();
        set(&root, 0o555);
    }
    let outcome = write(&root.join("file"), "new").unwrap();
    assert!(outcome.remark().contains("since its directory cannot be written to"), "{outcome:?}");
    let error = write(&root.join("other"), "new").unwrap_err().to_string();
    assert!(
        error.contains("making a temporary file beside it failed: Permission denied"),
        "{error}"
    );
    assert_eq!(std::fs::read_dir(&root).unwrap().count(), 1);
    if own.is_some() {
        set(&root, 0o755);
    }
}
