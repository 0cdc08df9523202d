//! What someone probably meant.
//!
//! Owns: the distance between two texts, and the files whose names come nearest to a wrong one.
//! Never: decides anything by likeness; it only words errors.

use std::path::{Path, PathBuf};

/// So many names of a directory are looked at.
const MAX_NAMES: usize = 10_000;

/// So many suggestions are made.
const MAX_SUGGESTIONS: usize = 3;

/// How many insertions, deletions and replacements of a character lead from one text to the other;
/// none if more than `most`.
pub(super) fn distance(one: &str, other: &str, most: usize) -> Option<usize> {
    let one: Vec<char> = one.chars().collect();
    let other: Vec<char> = other.chars().collect();
    if one.len().abs_diff(other.len()) > most {
        return None;
    }
    let mut row: Vec<usize> = (0..=other.len()).collect();
    for (i, a) in one.iter().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, b) in other.iter().enumerate() {
            let replaced = diagonal + usize::from(a != b);
            diagonal = row[j + 1];
            row[j + 1] = replaced.min(diagonal + 1).min(row[j] + 1);
        }
        if row.iter().min() > Some(&most) {
            return None;
        }
    }
    row.last().copied().filter(|distance| *distance <= most)
}

/// Why a path does not exist: how much of it does, and what there is that resembles the rest.
pub(super) fn explain_missing(path: &Path) -> String {
    let mut missing = path;
    let mut parent = path.parent();
    while let Some(directory) = parent {
        if directory.is_dir() {
            break;
        }
        missing = directory;
        parent = directory.parent();
    }
    let (Some(directory), Some(name)) = (parent, missing.file_name()) else {
        return String::new();
    };
    if let Ok(target) = std::fs::read_link(missing) {
        let which = if missing == path { "It".into() } else { missing.display().to_string() };
        return format!(
            " {which} is a symbolic link to {}, which does not exist.",
            target.display()
        );
    }
    let mut text = String::new();
    if missing != path {
        text.push_str(&format!(" There is no {} either.", missing.display()));
    }
    match nearest_names(directory, &name.to_string_lossy()).as_slice() {
        [] => {}
        names => {
            let names: Vec<_> = names.iter().map(|name| name.display().to_string()).collect();
            text.push_str(&format!(" Nearest names: {}.", names.join(", ")));
        }
    }
    text
}

fn nearest_names(directory: &Path, wanted: &str) -> Vec<PathBuf> {
    let wanted = wanted.to_lowercase();
    let most = (wanted.chars().count() / 2).max(2);
    let Ok(entries) = std::fs::read_dir(directory) else { return Vec::new() };
    let mut near: Vec<(usize, String)> = entries
        .take(MAX_NAMES)
        .filter_map(|entry| {
            let name = entry.ok()?.file_name().to_string_lossy().into_owned();
            Some((likeness(&wanted, &name.to_lowercase(), most)?, name))
        })
        .collect();
    near.sort();
    near.truncate(MAX_SUGGESTIONS);
    near.into_iter().map(|(_, name)| directory.join(name)).collect()
}

/// Like [`distance`], but the same name with another ending (`main` for `main.rs`) comes first.
fn likeness(wanted: &str, name: &str, most: usize) -> Option<usize> {
    let stem = |name: &str| name.split('.').next().unwrap_or_default().to_owned();
    if !stem(wanted).is_empty() && stem(wanted) == stem(name) {
        return Some(0);
    }
    distance(wanted, name, most)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_missing_path_is_explained() {
        let scratch = tempfile::tempdir().unwrap();
        let root = scratch.path();
        std::fs::create_dir_all(root.join("src/tool")).unwrap();
        for name in ["src/main.rs", "src/maintain.rs", "src/Library.rs", "src/zzz"] {
            std::fs::write(root.join(name), "").unwrap();
        }
        std::os::unix::fs::symlink("gone", root.join("src/link")).unwrap();
        const CASES: &[(&str, &[&str], &[&str])] = &[
            ("src/mian.rs", &["src/main.rs"], &["zzz", "either"]),
            ("src/main", &["src/main.rs"], &["zzz"]),
            ("src/library.rs", &["src/Library.rs"], &["zzz"]),
            ("scr/main.rs", &["There is no", "scr either", "Nearest names:", "/src."], &["zzz"]),
            ("src/entirely-different", &[], &["Nearest"]),
            ("src/link", &[" It is a symbolic link to gone, which does not exist."], &["Nearest"]),
            ("src/link/a", &["src/link is a symbolic link to gone, which does not"], &["Nearest"]),
        ];
        for (path, said, unsaid) in CASES {
            let text = explain_missing(&root.join(path));
            for part in *said {
                assert!(text.contains(part), "{path}: {text}");
            }
            for part in *unsaid {
                assert!(!text.contains(part), "{path}: {text}");
            }
        }
    }

    /// The textbook's recursion.
    fn textbook(one: &[char], other: &[char]) -> usize {
        match (one, other) {
            ([], rest) | (rest, []) => rest.len(),
            ([a, one_rest @ ..], [b, other_rest @ ..]) if a == b => textbook(one_rest, other_rest),
            ([_, one_rest @ ..], [_, other_rest @ ..]) => {
                1 + textbook(one_rest, other_rest)
                    .min(textbook(one, other_rest))
                    .min(textbook(one_rest, other))
            }
        }
    }

    proptest! {
        #[test]
        fn the_distance_is_the_textbooks(one in "[abé]{0,5}", other in "[abé]{0,5}", most in 0usize..6) {
            let chars = |text: &str| text.chars().collect::<Vec<_>>();
            let expected = textbook(&chars(&one), &chars(&other));
            let expected = Some(expected).filter(|distance| *distance <= most);
            prop_assert_eq!(distance(&one, &other, most), expected);
        }
    }
}
