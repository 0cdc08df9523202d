//! What a session's model is told before anything else.
//!
//! Owns: the default system prompt, and the `AGENTS.md` files that people put beside their code.
//! Never: says anything that changes from one hour to the next, which would cost the provider's
//! cache; grows without bound, or opens something that could block.

use std::{
    fs::File,
    io::Read,
    path::{Path, PathBuf},
};

use crate::tool::boundary;

/// The name under which projects keep their instructions to agents.
const FILE_NAME: &str = "AGENTS.md";

/// So much of one file is taken.
const MAX_FILE: usize = 32 * 1024;

/// So much of all of them together.
const MAX_TOTAL: usize = 64 * 1024;

/// One file of instructions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Instructions {
    /// Where it is.
    pub path: PathBuf,
    /// What it says, at least from its beginning.
    pub text: String,
    /// Whether its end is missing, since there was too much.
    pub is_cut: bool,
}

/// The `AGENTS.md` files of a directory and of those above it, outermost first.
///
/// When there is too much, the nearer files come first: they know the project better. A file that
/// cannot be read is left out with a warning in the log.
pub fn gather(directory: &Path) -> Vec<Instructions> {
    let mut room = MAX_TOTAL;
    let mut found: Vec<Instructions> = directory
        .ancestors()
        .map(|directory| directory.join(FILE_NAME))
        .filter_map(|path| {
            let instructions = load(&path, room.min(MAX_FILE))?;
            room -= instructions.text.len();
            Some(instructions)
        })
        .collect();
    found.reverse();
    found
}

/// The system prompt for a coding agent in a directory, with these tools.
pub fn default_prompt(directory: &Path, tools: &[impl AsRef<str>]) -> String {
    let has = |name: &str| tools.iter().any(|tool| tool.as_ref() == name);
    let mut rules = Vec::new();
    if has("read") && (has("edit") || has("write")) {
        rules.push("Read a file before you change it.");
    }
    if has("read") && has("bash") {
        rules.push(
            "Use read rather than cat or sed to look at files, and bash to list and search \
             (ls, find, rg, grep).",
        );
    }
    if has("edit") {
        rules.push(
            "Use edit for changes: oldText must match the file exactly and occur once. Put \
             several changes of one file into one call.",
        );
    }
    if has("write") {
        rules.push("Use write only for new files and complete rewrites.");
    }
    if has("bash") {
        rules.push(
            "After a change run what tells whether it works, such as the tests, and read what \
             it says.",
        );
        rules.push(
            "Commands have no input and no terminal: give flags instead of answering \
             questions. What they leave in the background ends with them.",
        );
    }
    if !tools.is_empty() {
        rules.push(
            "Calls that do not depend on each other can go into one message; they run at the \
             same time.",
        );
    }
    rules.push("Do what was asked and no more; keep to the style of the code around.");
    rules.push(
        "Be brief. Say what you did and found, and what you could not do or check. Name \
             files by their paths.",
    );

    let tools = match tools {
        [] => "You have no tools; answer from what you are given.".to_owned(),
        tools => {
            let names: Vec<&str> = tools.iter().map(AsRef::as_ref).collect();
            format!("Your tools: {}.", names.join(", "))
        }
    };
    let rules: String = rules.iter().map(|rule| format!("- {rule}\n")).collect();
    format!(
        "You are a coding agent. You help people by reading, changing and running their code.\n\n\
         {tools}\nThe working directory, which relative paths start from: {}\n\n{rules}",
        directory.display()
    )
}

/// A system prompt that begins with the default one for some tools, for other tools. None if it begins
/// otherwise: then somebody chose it.
pub fn for_other_tools(
    prompt: &str,
    directory: &Path,
    tools: &[impl AsRef<str>],
    others: &[impl AsRef<str>],
) -> Option<String> {
    let rest = prompt.strip_prefix(default_prompt(directory, tools).trim_end())?;
    Some(default_prompt(directory, others).trim_end().to_owned() + rest)
}

/// A system prompt with the instructions of the project below it.
pub fn with_instructions(prompt: &str, instructions: &[Instructions]) -> String {
    if instructions.is_empty() {
        return prompt.to_owned();
    }
    let mut text = format!(
        "{}\n\nThe project has instructions for you. Where they differ, the later ones count.\n",
        prompt.trim_end()
    );
    for instructions in instructions {
        let path = instructions.path.display();
        text.push_str(&format!("\nInstructions from {path}:\n\n{}\n", instructions.text.trim()));
        if instructions.is_cut {
            text.push_str("[There is more in the file, which was too long to be shown here.]\n");
        }
    }
    text
}

fn load(path: &Path, room: usize) -> Option<Instructions> {
    // Looked at before it is opened: opening a pipe would block.
    let metadata = std::fs::metadata(path).ok()?;
    if !metadata.is_file() || room == 0 {
        return None;
    }
    let mut bytes = Vec::new();
    let read = File::open(path).and_then(|file| {
        // One byte more tells whether there is more.
        file.take(room as u64 + 1).read_to_end(&mut bytes)
    });
    if let Err(error) = read {
        tracing::warn!(path = %path.display(), %error, "instructions cannot be read");
        return None;
    }
    let mut text = String::from_utf8_lossy(&bytes).into_owned();
    let is_cut = text.len() > room;
    text.truncate(boundary::floor(&text, room));
    if text.trim().is_empty() {
        return None;
    }
    Some(Instructions { path: path.to_owned(), text, is_cut })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    /// The instructions that lie within a scratch directory, in words.
    fn gathered(root: &Path, directory: &str) -> Vec<String> {
        let own = |found: &Instructions| found.path.starts_with(root);
        let told = |found: Instructions| {
            let place = found.path.strip_prefix(root).unwrap().display().to_string();
            format!(
                "{place}: {} bytes{}",
                found.text.len(),
                if found.is_cut { ", cut" } else { "" }
            )
        };
        gather(&root.join(directory)).into_iter().filter(own).map(told).collect()
    }

    #[test]
    fn files_are_gathered_from_the_outside_in() {
        let scratch = tempfile::tempdir().unwrap();
        let root = scratch.path();
        std::fs::create_dir_all(root.join("a/b/c")).unwrap();
        std::fs::write(root.join("AGENTS.md"), "outer").unwrap();
        std::fs::write(root.join("a/b/AGENTS.md"), "caf\u{e9}").unwrap();
        std::fs::write(root.join("a/AGENTS.md"), " \n").unwrap();
        std::fs::create_dir(root.join("a/b/c/AGENTS.md")).unwrap();
        assert_eq!(gathered(root, "a/b/c"), ["AGENTS.md: 5 bytes", "a/b/AGENTS.md: 5 bytes"]);
        assert_eq!(gathered(root, "a"), ["AGENTS.md: 5 bytes"]);
    }

    #[test]
    fn the_nearer_files_have_room_first() {
        let scratch = tempfile::tempdir().unwrap();
        let root = scratch.path();
        std::fs::create_dir_all(root.join("a/b/c")).unwrap();
        for place in ["AGENTS.md", "a/AGENTS.md", "a/b/AGENTS.md"] {
            std::fs::write(root.join(place), "é".repeat(20_000)).unwrap();
        }
        std::fs::write(root.join("a/b/c/AGENTS.md"), "near").unwrap();
        let expected = [
            "a/AGENTS.md: 32764 bytes, cut",
            "a/b/AGENTS.md: 32768 bytes, cut",
            "a/b/c/AGENTS.md: 4 bytes",
        ];
        assert_eq!(gathered(root, "a/b/c"), expected);
    }

    #[test]
    fn a_pipe_by_that_name_is_left_alone() {
        let scratch = tempfile::tempdir().unwrap();
        let path = scratch.path().join(FILE_NAME);
        let made = std::process::Command::new("mkfifo").arg(path).status().unwrap();
        assert!(made.success());
        assert!(gathered(scratch.path(), "").is_empty());
    }

    #[test]
    fn the_prompt_names_what_there_is() {
        let all = default_prompt(Path::new("/work/shop"), &["read", "write", "edit", "bash"]);
        for part in
            ["read, write, edit, bash.", "start from: /work/shop\n", "- Use edit", "- Be brief"]
        {
            assert!(all.contains(part), "{all}");
        }
        let one = default_prompt(Path::new("/"), &["read"]);
        assert!(!one.contains("edit") && !one.contains("bash"), "{one}");
        let none = default_prompt(Path::new("/"), &[] as &[&str]);
        assert!(none.contains("You have no tools"), "{none}");
    }

    #[test]
    fn instructions_are_introduced_with_their_path() {
        let file = |path: &str, text: &str, is_cut| Instructions {
            path: path.into(),
            text: text.into(),
            is_cut,
        };
        let files =
            [file("/AGENTS.md", "Be kind.\n", false), file("/a/AGENTS.md", "Use tabs.", true)];
        let expected = "Base.\n\nThe project has instructions for you. Where they differ, the later \
                        ones count.\n\nInstructions from /AGENTS.md:\n\nBe kind.\n\nInstructions \
                        from /a/AGENTS.md:\n\nUse tabs.\n[There is more in the file, which was too \
                        long to be shown here.]\n";
        assert_eq!(with_instructions("Base.\n", &files), expected);
        assert_eq!(with_instructions("Base.\n", &[]), "Base.\n");
    }
}
