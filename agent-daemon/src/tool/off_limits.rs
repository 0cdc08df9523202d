//! Places where what is written makes other programs run something.
//!
//! Owns: which those are: git's own data, whatever name or link leads there, and `.agents`. Who may
//! write there can run commands, through hooks or settings, although no command was allowed.
//! Never: looks at what would be written.

use std::{
    ffi::OsStr,
    fmt,
    path::{Component, Path},
};

/// Why nothing is written to a place. Reads on after `was not written:`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum OffLimits {
    Git,
    Agents,
}

impl fmt::Display for OffLimits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            OffLimits::Git => {
                "it is, or would be, part of a git repository's own data, whose settings and hooks \
                 run commands. Say what should be changed there, so that a person can do it."
            }
            OffLimits::Agents => {
                "it is within `.agents`, which tells agents what to do and to run. Say what should \
                 be changed there, so that a person can do it."
            }
        })
    }
}

/// Whether a place must not be written to. `named` is the path as it was given, `place` where it leads
/// once symlinks are followed.
pub(super) fn of(named: &Path, place: &Path) -> Option<OffLimits> {
    let reason = [named, place].into_iter().find_map(by_name);
    let would_be_git = || place.file_name() == Some(OsStr::new("HEAD"));
    // What is below a `.git` its name has decided already.
    let is_named_git = |above: &&Path| above.file_name().is_some_and(|name| folded(name) == ".git");
    let mut above = place.ancestors().skip(1).filter(|above| !is_named_git(above));
    let mut is_git = || above.any(is_git_directory);
    reason.or_else(|| (would_be_git() || is_git()).then_some(OffLimits::Git))
}

fn by_name(path: &Path) -> Option<OffLimits> {
    let names: Vec<String> = path
        .components()
        .filter_map(|part| match part {
            Component::Normal(name) => Some(folded(name)),
            _ => None,
        })
        .collect();
    if names.iter().any(|name| name == ".agents") {
        return Some(OffLimits::Agents);
    }
    let git = names.iter().rposition(|name| name == ".git" || name == "git~1")?;
    (!is_harmless(&names[git + 1..])).then_some(OffLimits::Git)
}

/// What people and their editors do write there, and nothing is run for.
fn is_harmless(below_git: &[String]) -> bool {
    match below_git {
        [info, exclude] => info == "info" && exclude == "exclude",
        [message] => message.ends_with("_editmsg") || message.ends_with("_msg"),
        _ => false,
    }
}

/// A name as the most forgiving file systems compare it: without case, without the characters that
/// nobody sees, without a stream's name and the dots and blanks at its end.
fn folded(name: &OsStr) -> String {
    let name = name.to_string_lossy();
    let name = name.split(':').next().unwrap_or_default().trim_end_matches(['.', ' ']);
    let is_seen = |symbol: &char| {
        !matches!(symbol, '\u{200c}'..='\u{200f}' | '\u{202a}'..='\u{202e}')
            && !matches!(symbol, '\u{206a}'..='\u{206f}' | '\u{feff}')
    };
    name.chars().filter(is_seen).flat_map(char::to_lowercase).collect()
}

/// As git sees it. It takes such a directory, under any name, for a repository, or for the data of one
/// whose `.git` is a file. None can be made that was none, since all of them have a `HEAD`.
fn is_git_directory(directory: &Path) -> bool {
    let has = |name: &str| directory.join(name).symlink_metadata().is_ok();
    has("HEAD") && (has("commondir") || has("objects") && has("refs"))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn names_that_lead_into_git_or_agents_are_known() {
        const NONE: Option<OffLimits> = None;
        const GIT: Option<OffLimits> = Some(OffLimits::Git);
        const AGENTS: Option<OffLimits> = Some(OffLimits::Agents);
        const CASES: &[(&str, Option<OffLimits>)] = &[
            (".git/config", GIT),
            ("/p/.git", GIT),
            ("/p/.git/config.worktree", GIT),
            ("/p/.git/hooks/pre-commit", GIT),
            ("/p/.git/modules/m/config", GIT),
            ("/p/.git/worktrees/w/config.worktree", GIT),
            ("/p/.git/info/attributes", GIT),
            ("/p/sub/.git/config", GIT),
            ("/p/.GIT/config", GIT),
            ("/p/.g\u{200c}it/config", GIT),
            ("/p/.git./config", GIT),
            ("/p/.git::$INDEX_ALLOCATION/config", GIT),
            ("/p/GIT~1/config", GIT),
            ("/p/.git/../.git/config", GIT),
            ("/p/.git/modules/m/info/exclude", GIT),
            ("/p/HEAD", GIT),
            ("/p/.git/info/exclude", NONE),
            ("/p/.git/COMMIT_EDITMSG", NONE),
            ("/p/.git/MERGE_MSG", NONE),
            ("/p/.gitignore", NONE),
            ("/p/.gitattributes", NONE),
            ("/p/.github/workflows/ci.yml", NONE),
            ("/p/x.git", NONE),
            ("/p/git/config", NONE),
            ("/p/config", NONE),
            ("/p/hooks/pre-commit", NONE),
            ("/p/HEAD/x", NONE),
            (".agents/skills/x/SKILL.md", AGENTS),
            ("/p/sub/.Agents/x", AGENTS),
            ("/p/.agents", AGENTS),
            ("/p/AGENTS.md", NONE),
            ("/p/agents/x", NONE),
        ];
        for (path, expected) in CASES {
            let path = Path::new(path);
            assert_eq!(of(path, path), *expected, "{path:?}");
        }
        assert_eq!(of(Path::new(".git/config"), Path::new("/p/store/config")), GIT);
        assert_eq!(of(Path::new("a"), Path::new("/p/.git/config")), GIT);
    }

    #[test]
    fn data_of_git_under_another_name_is_known() {
        let scratch = tempfile::tempdir().unwrap();
        let root = scratch.path();
        let make = |path: &str| {
            std::fs::create_dir_all(root.join(path).parent().unwrap()).unwrap();
            std::fs::write(root.join(path), "").unwrap();
        };
        ["bare/HEAD", "bare/objects/x", "bare/refs/x"].into_iter().for_each(make);
        ["tree/HEAD", "tree/commondir", "docs/HEAD", "docs/objects/x"].into_iter().for_each(make);
        ["own/.git/HEAD", "own/.git/objects/x", "own/.git/refs/x"].into_iter().for_each(make);
        for (path, expected) in [
            ("own/.git/config", true),
            ("own/.git/info/exclude", false),
            ("bare/info/exclude", true),
            ("bare/config", true),
            ("bare/hooks/post-checkout", true),
            ("tree/config.worktree", true),
            ("docs/config", false),
            ("config", false),
        ] {
            let path = root.join(path);
            assert_eq!(of(&path, &path).is_some(), expected, "{path:?}");
        }
    }
}
