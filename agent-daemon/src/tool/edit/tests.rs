//! `edit` on real files.

#![allow(clippy::unwrap_used)]

use std::{
    os::unix::fs::{PermissionsExt, symlink},
    time::Duration,
};

use agent_core::{CancelSignal, CancelSource};

use super::*;

fn tool(directory: &Path) -> Arc<Edit> {
    let policy = toml::from_str("write_roots = ['.']").unwrap();
    Arc::new(Edit::new(Workspace::new(directory.into(), policy, Vec::new()).into()))
}

async fn call(
    tool: &Edit,
    path: &str,
    edits: &[(&str, &str)],
    signal: CancelSignal,
) -> Result<ToolOutput, ToolError> {
    let edits: Vec<Value> =
        edits.iter().map(|(old, new)| json!({ "oldText": old, "newText": new })).collect();
    let (context, _updates) = ToolContext::detached("1", signal);
    tool.call(json!({ "path": path, "edits": edits }), context).await
}

async fn story(directory: &Path, path: &str, edits: &[(&str, &str)]) -> String {
    match call(&tool(directory), path, edits, CancelSignal::never()).await {
        Ok(output) => agent_core::text_of(&output.content),
        Err(error) => format!("ERROR {error}"),
    }
}

#[tokio::test]
async fn an_edit_reports_its_places_and_a_diff() {
    let scratch = tempfile::tempdir().unwrap();
    std::fs::write(scratch.path().join("a"), "one\ntwo\nthree\n").unwrap();
    let edits = [("three", "3"), ("one", "1")];
    let output = call(&tool(scratch.path()), "a", &edits, CancelSignal::never()).await.unwrap();
    assert_eq!(
        output.content,
        [agent_core::Block::text("Edited a: 2 replacements, at lines 1, 3.")]
    );
    let details = output.details.unwrap();
    assert_eq!(details["firstChangedLine"], 1);
    assert_eq!(details["diff"], "--- a\n+++ a\n@@ -1,3 +1,3 @@\n-one\n+1\n two\n-three\n+3\n");
    assert_eq!(std::fs::read_to_string(scratch.path().join("a")).unwrap(), "1\ntwo\n3\n");
}

#[tokio::test]
async fn a_refused_edit_changes_nothing() {
    let scratch = tempfile::tempdir().unwrap();
    let root = scratch.path();
    std::fs::write(root.join("a"), "one\ntwo\n").unwrap();
    std::fs::write(root.join("utf16"), b"\xff\xfeh\0i\0").unwrap();
    std::fs::create_dir(root.join("dir")).unwrap();
    symlink("/etc/hosts", root.join("out")).unwrap();
    type Case = (&'static str, &'static [(&'static str, &'static str)], &'static str);
    const CASES: &[Case] = &[
        (
            "a",
            &[("one", "1"), ("four", "4")],
            "ERROR a was not changed:\n- edits[1].oldText is not in the file.",
        ),
        ("a", &[("tow", "2")], "ERROR a was not changed:\n- edits[0].oldText is not in the file."),
        ("a", &[("one\ntwo\nthree", "")], "It begins at line 1, but the file ends before it does."),
        (
            "b",
            &[("x", "y")],
            "ERROR Cannot edit b: No such file or directory (os error 2). Nearest names:",
        ),
        (
            "a",
            &[("x", "y"); 11],
            "- edits[9].oldText is not in the file.\nThe rest of the call was",
        ),
        // A single byte would fit, and what comes in its place spoil the file.
        ("utf16", &[("h", "xy")], "ERROR Cannot edit utf16: it is in UTF-16"),
        ("dir", &[("x", "y")], "ERROR Cannot edit dir: it is not a regular file."),
        ("out", &[("localhost", "y")], "which leads to /etc/hosts) was not written: it is outside"),
    ];
    for (path, edits, told) in CASES {
        let story = story(root, path, edits).await;
        assert!(story.contains(told), "{path} {edits:?}: {story}");
        assert_eq!(std::fs::read_to_string(root.join("a")).unwrap(), "one\ntwo\n");
    }
    assert_eq!(std::fs::read_dir(root).unwrap().count(), 4, "no temporary file is left");
}

#[tokio::test]
async fn a_symlink_is_followed_and_the_mode_stays() {
    let scratch = tempfile::tempdir().unwrap();
    let real = scratch.path().join("real");
    std::fs::write(&real, "#!/bin/sh\nold\n").unwrap();
    std::fs::set_permissions(&real, std::fs::Permissions::from_mode(0o750)).unwrap();
    symlink("real", scratch.path().join("link")).unwrap();
    let told = story(scratch.path(), "link", &[("old", "new")]).await;
    assert_eq!(told, "Edited link: 1 replacement, at line 2.");
    assert!(scratch.path().join("link").is_symlink());
    assert_eq!(real.metadata().unwrap().permissions().mode() & 0o777, 0o750);
    assert_eq!(std::fs::read_to_string(&real).unwrap(), "#!/bin/sh\nnew\n");
}

#[tokio::test]
async fn of_many_places_some_are_told() {
    let scratch = tempfile::tempdir().unwrap();
    let names: Vec<String> = (0..1_000).map(|at| format!("<{at}>")).collect();
    std::fs::write(scratch.path().join("a"), names.join("\n")).unwrap();
    let edits: Vec<(&str, &str)> = names.iter().map(|name| (name.as_str(), "done")).collect();
    let told = story(scratch.path(), "a", &edits).await;
    assert!(told.starts_with("Edited a: 1,000 replacements, at lines 1, 2, 3, 4,"), "{told}");
    assert!(told.ends_with(" 19, 20 and further down."), "{told}");
}

/// A peer let two edits of one batch read the same original, and lost the first.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn edits_of_one_file_at_once_are_all_kept() {
    let scratch = tempfile::tempdir().unwrap();
    let names: Vec<String> = (0..40).map(|at| format!("<{at}>")).collect();
    std::fs::write(scratch.path().join("a"), names.join("\n")).unwrap();
    symlink("a", scratch.path().join("b")).unwrap();
    // Two sessions, two names: what counts is the file.
    let tools = [tool(scratch.path()), tool(scratch.path())];
    let calls = names.iter().enumerate().map(|(at, name)| {
        let (tool, name) = (tools[at % 2].clone(), name.clone());
        let path = if at % 3 == 0 { "b" } else { "a" };
        tokio::spawn(async move {
            call(&tool, path, &[(&name, "done")], CancelSignal::never()).await.unwrap();
        })
    });
    for call in calls.collect::<Vec<_>>() {
        call.await.unwrap();
    }
    let expected = vec!["done"; 40].join("\n");
    assert_eq!(std::fs::read_to_string(scratch.path().join("a")).unwrap(), expected);
}

#[tokio::test]
async fn an_aborted_edit_says_truly_that_nothing_was_changed() {
    let scratch = tempfile::tempdir().unwrap();
    std::fs::write(scratch.path().join("a"), "old").unwrap();
    let source = CancelSource::default();
    source.cancel(Duration::ZERO);
    let error =
        call(&tool(scratch.path()), "a", &[("old", "new")], source.signal()).await.unwrap_err();
    let expected = "a was not changed: the run was aborted. It is as it was before.";
    assert_eq!(error.to_string(), expected);
    assert_eq!(std::fs::read_to_string(scratch.path().join("a")).unwrap(), "old");
}

/// Dropped after any number of polls, a call leaves the old content or the new and nothing else.
#[tokio::test]
async fn a_dropped_edit_leaves_old_or_new() {
    let scratch = tempfile::tempdir().unwrap();
    let path = scratch.path().join("a");
    let (old, new) =
        ("old ".to_owned() + &"x".repeat(3 << 20), "new ".to_owned() + &"x".repeat(3 << 20));
    let tool = tool(scratch.path());
    for micros in (0..20_000).step_by(1_000) {
        std::fs::write(&path, &old).unwrap();
        let edit = call(&tool, "a", &[("old", "new")], CancelSignal::never());
        let _ = tokio::time::timeout(Duration::from_micros(micros), edit).await;
        // Its thread may still be busy; its turn ends when it is done.
        drop(file_locks::lock(&path.canonicalize().unwrap()).await);
        let content = std::fs::read_to_string(&path).unwrap();
        assert!(content == old || content == new, "dropped after {micros} µs: neither old nor new");
        assert_eq!(std::fs::read_dir(scratch.path()).unwrap().count(), 1, "{micros} µs");
    }
}
