//! What a command meets where it would open an editor.
//!
//! There is no terminal, and without one an editor waits for ever, or fails in a way that helps
//! nobody. So every variable that names an editor names a script that says so and fails.
//!
//! Owns: the script, and the variables that name it.
//! Never: stands in the way of an editor that the command itself names.

use std::{ffi::OsString, path::Path};

/// The script; it knows itself by the name of its file.
pub(super) const SCRIPT: &str = include_str!("no_editor.sh");

/// The name of its file.
pub(super) const FILE_NAME: &str = "agent-no-editor";

/// What programs look at, each before the next.
const NAMES: [&str; 4] = ["GIT_SEQUENCE_EDITOR", "GIT_EDITOR", "VISUAL", "EDITOR"];

/// What git looks at in its configuration.
const KEYS: [&str; 2] = ["core.editor", "sequence.editor"];

/// The environment variables that name the script, or a program that merely fails if there is none.
/// `count` is `GIT_CONFIG_COUNT` as a command would inherit it: ours join the settings that it
/// counts, and of two settings with one key the last one holds.
pub(super) fn variables(script: Option<&Path>, count: Option<&str>) -> Vec<(String, OsString)> {
    let editor = script.map_or_else(|| "false".into(), shell_word);
    let mut variables: Vec<(String, OsString)> =
        NAMES.iter().map(|name| ((*name).to_owned(), editor.clone())).collect();
    // Git ends at a count that is no number.
    let mut count: u16 = count.and_then(|count| count.trim().parse().ok()).unwrap_or(0);
    for key in KEYS {
        variables.push((format!("GIT_CONFIG_KEY_{count}"), key.into()));
        variables.push((format!("GIT_CONFIG_VALUE_{count}"), editor.clone()));
        count = count.saturating_add(1);
    }
    variables.push(("GIT_CONFIG_COUNT".to_owned(), count.to_string().into()));
    variables
}

/// A path as a shell reads it: git and most others have a shell start their editor.
fn shell_word(path: &Path) -> OsString {
    let text = path.as_os_str();
    let is_plain = |byte: &u8| byte.is_ascii_alphanumeric() || b"/._-+,:@%".contains(byte);
    if text.as_encoded_bytes().iter().all(is_plain) {
        return text.to_owned();
    }
    let mut word = OsString::from("'");
    // In between is text of this very path, cut at ASCII only.
    for (at, part) in path.to_string_lossy().split('\'').enumerate() {
        if at > 0 {
            word.push("'\\''");
        }
        word.push(part);
    }
    word.push("'");
    word
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    fn value(variables: &[(String, OsString)], name: &str) -> String {
        let found = variables.iter().find(|(variable, _)| variable == name);
        found.unwrap_or_else(|| panic!("{name}")).1.to_str().unwrap().to_owned()
    }

    #[test]
    fn settings_of_git_that_are_there_stay_and_ours_come_last() {
        for (inherited, first) in
            [(None, 0), (Some("2"), 2), (Some(""), 0), (Some("x"), 0), (Some("-1"), 0)]
        {
            let variables = variables(Some(Path::new("/c/agent-no-editor")), inherited);
            assert_eq!(value(&variables, "GIT_CONFIG_COUNT"), (first + 2).to_string());
            for (at, key) in [(first, "core.editor"), (first + 1, "sequence.editor")] {
                assert_eq!(value(&variables, &format!("GIT_CONFIG_KEY_{at}")), key);
                let editor = value(&variables, &format!("GIT_CONFIG_VALUE_{at}"));
                assert_eq!(editor, "/c/agent-no-editor");
            }
            for name in NAMES {
                assert_eq!(value(&variables, name), "/c/agent-no-editor");
            }
        }
        assert_eq!(value(&variables(None, None), "EDITOR"), "false");
    }

    #[test]
    fn a_path_is_one_word_of_the_shell() {
        for (path, word) in [("/a/b", "/a/b"), ("/a b/c", "'/a b/c'"), ("/it's", r"'/it'\''s'")] {
            assert_eq!(shell_word(Path::new(path)), word);
        }
    }
}
