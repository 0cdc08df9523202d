//! What a session's model is told before anything else.
//!
//! Owns: the default system prompt, and the `AGENTS.md` files that people put beside their code.
//! Never: says anything that changes from one hour to the next, which would cost the provider's
//! cache; grows without bound, or opens something that could block. Takes no instructions from
//! strangers: neither a file of somebody else, nor one from outside of the repository.

use std::{
    fs::Metadata,
    io::{self, Read},
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
    sync::Arc,
};

use crate::tool::{boundary, directory::Directory, rules};

/// The name under which projects keep their instructions to agents.
const FILE_NAME: &str = "AGENTS.md";

/// So much of one file is taken.
const MAX_FILE: usize = 32 * 1024;

/// So much of all of them together.
const MAX_TOTAL: usize = 64 * 1024;

/// One file of instructions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Instructions {
    /// Where it is.
    pub path: PathBuf,
    /// What it says, at least from its beginning.
    pub text: String,
    /// Whether its end is missing, since there was too much.
    pub is_cut: bool,
}

/// A session's system prompt as it was last put together.
#[derive(Clone, Debug)]
pub(crate) struct SystemPrompt {
    directory: PathBuf,
    chosen: Option<Arc<str>>,
    instructions: Vec<Instructions>,
}

impl SystemPrompt {
    /// The prompt of a session in a directory (absolute, without symlinks): what was chosen, else the
    /// default one, and the project's instructions as they are now. Reads files.
    pub(crate) fn new(directory: &Path, chosen: Option<Arc<str>>) -> Self {
        let instructions = gather(directory);
        SystemPrompt { directory: directory.to_owned(), chosen, instructions }
    }

    /// The whole text, with these tools.
    pub(crate) fn text(&self, tools: &[impl AsRef<str>]) -> String {
        match &self.chosen {
            Some(chosen) => with_instructions(chosen, &self.instructions),
            None => with_instructions(&default_prompt(&self.directory, tools), &self.instructions),
        }
    }

    /// Reads the instructions again. The new text, if they have changed and `current` is still ours:
    /// nobody has set another since. Otherwise nothing may change, since a provider remembers the
    /// beginning of a request as long as it stays the same.
    pub(crate) fn renewed(&mut self, current: &str, tools: &[impl AsRef<str>]) -> Option<String> {
        if current != self.text(tools) {
            return None;
        }
        let instructions = gather(&self.directory);
        if instructions == self.instructions {
            return None;
        }
        self.instructions = instructions;
        Some(self.text(tools))
    }
}

/// The `AGENTS.md` files of a directory (absolute, without symlinks) and of those above it within its
/// repository, outermost first; without a repository only its own.
///
/// When there is too much, the nearer files come first: they know the project better. A file that
/// cannot be read, is neither ours nor root's, can be written to by others, or leads out of the
/// repository is left out with a warning in the log.
pub(crate) fn gather(directory: &Path) -> Vec<Instructions> {
    let root = directory.ancestors().find(|above| is_repository(above)).unwrap_or(directory);
    let mut room = MAX_TOTAL;
    let mut found: Vec<Instructions> = directory
        .ancestors()
        .take_while(|above| above.starts_with(root))
        .map(|directory| directory.join(FILE_NAME))
        .filter_map(|path| {
            let instructions = load(&path, root, room.min(MAX_FILE))?;
            room -= instructions.text.len();
            Some(instructions)
        })
        .collect();
    found.reverse();
    found
}

/// The system prompt for a coding agent in a directory, with these tools.
pub(crate) fn default_prompt(directory: &Path, tools: &[impl AsRef<str>]) -> String {
    let mut rules = rules(tools);
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
pub(crate) fn for_other_tools(
    prompt: &str,
    directory: &Path,
    tools: &[impl AsRef<str>],
    others: &[impl AsRef<str>],
) -> Option<String> {
    let rest = prompt.strip_prefix(default_prompt(directory, tools).trim_end())?;
    Some(default_prompt(directory, others).trim_end().to_owned() + rest)
}

/// A system prompt with the instructions of the project below it.
pub(crate) fn with_instructions(prompt: &str, instructions: &[Instructions]) -> String {
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

/// A repository's root has a directory `.git`, or a file that names one. Not one of a stranger, who
/// could draw the line where the files above are his.
fn is_repository(directory: &Path) -> bool {
    directory.join(".git").symlink_metadata().is_ok_and(|found| is_trusted(&found))
}

fn is_trusted(file: &Metadata) -> bool {
    [rustix::process::geteuid().as_raw(), 0].contains(&file.uid())
}

/// Whoever can write to it is its author, too. Our own group, which new files often belong to, is us.
fn is_writable_by_others(file: &Metadata) -> bool {
    let is_our_group = file.gid() == rustix::process::getegid().as_raw();
    file.mode() & 0o002 != 0 || file.mode() & 0o020 != 0 && !is_our_group
}

fn load(path: &Path, root: &Path, room: usize) -> Option<Instructions> {
    let bytes = match read(path, root, room) {
        Ok(bytes) => bytes?,
        Err(error) => {
            tracing::warn!(path = %path.display(), %error, "instructions are left out");
            return None;
        }
    };
    let mut text = String::from_utf8_lossy(&bytes).into_owned();
    let is_cut = text.len() > room;
    text.truncate(boundary::floor(&text, room));
    if text.trim().is_empty() {
        return None;
    }
    Some(Instructions { path: path.to_owned(), text, is_cut })
}

/// The beginning of a file, and one byte more if there is more; none if there is no such file.
fn read(path: &Path, root: &Path, room: usize) -> io::Result<Option<Vec<u8>>> {
    let refused = |why: &str| Err(io::Error::other(why));
    // Looked at before it is opened: opening a device can do something.
    if room == 0 || !path.metadata().is_ok_and(|found| found.is_file()) {
        return Ok(None);
    }
    let place = path.canonicalize()?;
    if !place.starts_with(root) {
        return refused("it leads out of the repository");
    }
    let (Some(above), Some(name)) = (place.parent(), place.file_name()) else { return Ok(None) };
    // Without symlinks: between the look and this, somebody may have put one there.
    let file = Directory::find(above)?.open_to_read(name)?;
    let found = file.metadata()?;
    if !found.is_file() {
        return Ok(None);
    }
    if !is_trusted(&found) {
        return refused("it belongs to somebody else");
    }
    if is_writable_by_others(&found) {
        return refused("others can write to it");
    }
    let mut bytes = Vec::new();
    file.take(room as u64 + 1).read_to_end(&mut bytes)?;
    Ok(Some(bytes))
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
        let root = &scratch.path().canonicalize().unwrap();
        std::fs::create_dir_all(root.join("a/b/c")).unwrap();
        std::fs::create_dir(root.join(".git")).unwrap();
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
        let root = &scratch.path().canonicalize().unwrap();
        std::fs::create_dir_all(root.join("a/b/c")).unwrap();
        std::fs::write(root.join(".git"), "gitdir: elsewhere").unwrap();
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
        assert!(gathered(&scratch.path().canonicalize().unwrap(), "").is_empty());
    }

    #[test]
    fn only_what_is_within_the_repository_counts() {
        let scratch = tempfile::tempdir().unwrap();
        let root = &scratch.path().canonicalize().unwrap();
        std::fs::create_dir_all(root.join("shop/src/deep")).unwrap();
        std::fs::write(root.join("AGENTS.md"), "above").unwrap();
        std::fs::write(root.join("shop/AGENTS.md"), "of the root").unwrap();
        std::fs::write(root.join("shop/src/AGENTS.md"), "src").unwrap();
        // Without a repository nobody knows where the project begins.
        assert_eq!(gathered(root, "shop/src"), ["shop/src/AGENTS.md: 3 bytes"]);
        assert!(gathered(root, "shop/src/deep").is_empty());
        std::fs::create_dir(root.join("shop/.git")).unwrap();
        let both = ["shop/AGENTS.md: 11 bytes", "shop/src/AGENTS.md: 3 bytes"];
        assert_eq!(gathered(root, "shop/src/deep"), both);
        // A symlink within is as good as a file; one that leads out is not.
        use std::os::unix::fs::symlink;
        symlink("../AGENTS.md", root.join("shop/src/deep/AGENTS.md")).unwrap();
        assert_eq!(gathered(root, "shop/src/deep").len(), 3);
        std::fs::remove_file(root.join("shop/AGENTS.md")).unwrap();
        symlink("../AGENTS.md", root.join("shop/AGENTS.md")).unwrap();
        let within = ["shop/src/AGENTS.md: 3 bytes", "shop/src/deep/AGENTS.md: 3 bytes"];
        assert_eq!(gathered(root, "shop/src/deep"), within);
        // A directory on the way that leads out, too.
        std::fs::create_dir(root.join("shop/other")).unwrap();
        symlink(root, root.join("shop/out")).unwrap();
        symlink("../out/AGENTS.md", root.join("shop/other/AGENTS.md")).unwrap();
        assert!(gathered(root, "shop/other").is_empty());
    }

    #[test]
    fn files_of_strangers_do_not_count() {
        use std::os::unix::fs::lchown;
        // Only root can make a file somebody else's.
        if !rustix::process::geteuid().is_root() {
            assert!(
                !is_trusted(&Path::new("/proc/1").metadata().unwrap()) || cfg!(target_os = "macos")
            );
            return;
        }
        let scratch = tempfile::tempdir().unwrap();
        let root = &scratch.path().canonicalize().unwrap();
        std::fs::create_dir_all(root.join("a/b")).unwrap();
        std::fs::create_dir(root.join(".git")).unwrap();
        for place in ["AGENTS.md", "a/AGENTS.md", "a/b/AGENTS.md"] {
            std::fs::write(root.join(place), "text").unwrap();
        }
        assert_eq!(gathered(root, "a/b").len(), 3);
        lchown(root.join("a/AGENTS.md"), Some(12_345), None).unwrap();
        let ours = ["AGENTS.md: 4 bytes", "a/b/AGENTS.md: 4 bytes"];
        assert_eq!(gathered(root, "a/b"), ours);
        // A link of ours to a stranger's file is the stranger's word.
        std::fs::remove_file(root.join("AGENTS.md")).unwrap();
        std::os::unix::fs::symlink("a/AGENTS.md", root.join("AGENTS.md")).unwrap();
        assert_eq!(gathered(root, "a/b"), ["a/b/AGENTS.md: 4 bytes"]);
        // Whose `.git` is a stranger's is no repository.
        lchown(root.join(".git"), Some(12_345), None).unwrap();
        std::fs::remove_file(root.join("AGENTS.md")).unwrap();
        std::fs::write(root.join("AGENTS.md"), "text").unwrap();
        assert_eq!(gathered(root, "a/b"), ["a/b/AGENTS.md: 4 bytes"]);
    }

    #[test]
    fn a_file_that_others_can_write_to_does_not_count() {
        use std::os::unix::fs::{PermissionsExt, lchown};
        let scratch = tempfile::tempdir().unwrap();
        let root = &scratch.path().canonicalize().unwrap();
        let file = root.join("AGENTS.md");
        std::fs::write(&file, "text").unwrap();
        let counts = |mode: u32| {
            std::fs::set_permissions(&file, std::fs::Permissions::from_mode(mode)).unwrap();
            !gathered(root, "").is_empty()
        };
        for (mode, expected) in [(0o644, true), (0o664, true), (0o666, false), (0o602, false)] {
            assert_eq!(counts(mode), expected, "{mode:o}");
        }
        if rustix::process::geteuid().is_root() {
            lchown(&file, None, Some(12_345)).unwrap();
            assert!(counts(0o640) && !counts(0o660));
        }
    }

    #[test]
    fn a_prompt_is_renewed_only_if_it_is_still_ours_and_has_changed() {
        let scratch = tempfile::tempdir().unwrap();
        let root = scratch.path().canonicalize().unwrap();
        for chosen in [None, Some("Be brief.".into())] {
            let mut prompt = SystemPrompt::new(&root, chosen);
            let first = prompt.text(&["read"]);
            assert_eq!(prompt.renewed(&first, &["read"]), None, "nothing has changed");
            std::fs::write(root.join("AGENTS.md"), "Use tabs.").unwrap();
            assert_eq!(prompt.renewed("Somebody's.", &["read"]), None, "not ours");
            let second = prompt.renewed(&first, &["read"]).unwrap();
            assert!(second.starts_with(first.trim_end()) && second.ends_with("Use tabs.\n"));
            assert_eq!(prompt.renewed(&second, &["read"]), None, "once is enough");
            std::fs::remove_file(root.join("AGENTS.md")).unwrap();
            assert_eq!(prompt.renewed(&second, &["read"]), Some(first));
        }
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
