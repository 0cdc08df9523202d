//! Places where what is written makes other programs run something.
//!
//! Owns: which those are: git's own data, whatever name or link leads there, the user's settings of git
//! and of this daemon, and `.agents`. Who may write there can run commands, through hooks or settings,
//! although no command was allowed.
//! Never: looks at what would be written.

use std::{
    ffi::OsStr,
    fmt,
    fs::{self, Metadata},
    os::unix::fs::MetadataExt,
    path::{Component, Path, PathBuf},
};

/// So many entries are looked at to see whether a file with several names has one that is off limits.
const MAX_ENTRIES: usize = 20_000;

/// Why nothing is written to a place. Reads on after `was not written:`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum OffLimits {
    Git,
    Agents,
    Settings,
}

impl fmt::Display for OffLimits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            OffLimits::Git => {
                "it is, or would be, part of a git repository's own data, whose settings and hooks \
                 run commands. Say what should be changed there, so that a person can do it."
            }
            OffLimits::Settings => {
                "it is, or would be, among the user's settings of git or of this daemon, which run \
                 commands. Say what should be changed there, so that a person can do it."
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

/// The user's own settings that make git or this daemon run commands.
pub(super) fn settings(home: Option<&Path>, config: Option<&Path>) -> Vec<PathBuf> {
    let of_home = home.into_iter().flat_map(|home| {
        [".gitconfig", ".config/git", ".config/agent-daemon"].map(|name| home.join(name))
    });
    let of_config =
        config.into_iter().flat_map(|it| ["git", "agent-daemon"].map(|name| it.join(name)));
    // Named as they are without symlinks, as places are.
    let followed = |path: PathBuf| super::resolve::follow(&path).ok();
    of_home.chain(of_config).filter_map(followed).collect()
}

/// Whether a file that has several names has one that is off limits. It is written where it lies, so
/// that all of them show the change. Looks at what belongs to the repositories around `place` and
/// `directory`; where that is too much to look at, it is taken to be so.
pub(super) fn by_another_name(place: &Path, directory: &Path) -> Option<OffLimits> {
    let file =
        fs::symlink_metadata(place).ok().filter(|file| file.is_file() && file.nlink() > 1)?;
    let around = place.ancestors().skip(1).chain(directory.ancestors());
    let mut left = MAX_ENTRIES;
    for (name, why) in [(".git", OffLimits::Git), (".agents", OffLimits::Agents)] {
        for above in around.clone() {
            if holds(&above.join(name), &file, &mut left) {
                return Some(why);
            }
        }
    }
    None
}

/// Whether a file is below a directory, but for what git only keeps and never does.
fn holds(directory: &Path, file: &Metadata, left: &mut usize) -> bool {
    let Ok(entries) = fs::read_dir(directory) else { return false };
    for entry in entries.flatten() {
        *left = left.saturating_sub(1);
        let Ok(found) = entry.metadata() else { continue };
        let is_kept = ["objects", "refs", "logs"].iter().any(|name| entry.file_name() == *name);
        let is_it = (found.dev(), found.ino()) == (file.dev(), file.ino());
        if *left == 0 || is_it || (found.is_dir() && !is_kept && holds(&entry.path(), file, left)) {
            return true;
        }
    }
    false
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
    fn a_hard_link_to_what_is_off_limits_is_known() {
        let scratch = tempfile::tempdir().unwrap();
        let root = scratch.path();
        let make = |path: &str, link: &str| {
            fs::create_dir_all(root.join(path).parent().unwrap()).unwrap();
            fs::write(root.join(path), "").unwrap();
            fs::hard_link(root.join(path), root.join(link)).unwrap();
        };
        make("p/.git/config", "p/notes.txt");
        make("p/.git/modules/m/hooks/post-checkout", "outside.txt");
        make("p/.agents/skills/x/SKILL.md", "p/doc.md");
        make("p/plain", "p/other");
        fs::write(root.join("p/alone"), "").unwrap();
        for (path, expected) in [
            ("p/notes.txt", Some(OffLimits::Git)),
            ("outside.txt", Some(OffLimits::Git)),
            ("p/doc.md", Some(OffLimits::Agents)),
            ("p/other", None),
            ("p/alone", None),
            ("p/none", None),
        ] {
            assert_eq!(by_another_name(&root.join(path), &root.join("p")), expected, "{path}");
        }
    }

    #[test]
    fn the_user_s_settings_are_found_behind_symlinks() {
        let scratch = tempfile::tempdir().unwrap();
        let root = scratch.path().canonicalize().unwrap();
        fs::create_dir_all(root.join("real/git")).unwrap();
        std::os::unix::fs::symlink(root.join("real"), root.join("config")).unwrap();
        let found = settings(Some(&root.join("home")), Some(&root.join("config")));
        for name in
            ["home/.gitconfig", "home/.config/agent-daemon", "real/git", "real/agent-daemon"]
        {
            assert!(found.contains(&root.join(name)), "{name}: {found:?}");
        }
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
