//! What a reader of the repository may rely on: every rule has its test, the centre stays pure,
//! files stay readable, and everything is formatted.

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
    process::Command,
};

/// The pages that hold the numbered rules, `C8.4` and `W1.1`.
const PAGES: &[&str] = &["agent-core/CONTRACT.md", "agent-daemon/PROTOCOL.md"];

/// Where a rule may be cited.
const SOURCES: &[&str] = &[
    "agent-core/src",
    "agent-daemon/src",
    "agent-daemon/protocol/src",
    "agent-client/src",
    "agent-client/library/src",
    "tests/it",
    "tests/support",
];

/// The rooms of agent-core that import no tokio, clock or I/O, nor anything that does (`floors`).
const CENTRE: &[&str] = &["agent-core/src/data", "agent-core/src/pure"];

const MOST_LINES: usize = 500;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().to_owned()
}

/// All Rust files below a directory of the repository.
fn sources(directory: &str) -> Vec<(PathBuf, String)> {
    let mut open = vec![root().join(directory)];
    let mut sources = Vec::new();
    while let Some(path) = open.pop() {
        if path.is_dir() {
            open.extend(fs::read_dir(path).unwrap().map(|entry| entry.unwrap().path()));
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let text = fs::read_to_string(&path).unwrap();
            sources.push((path, text));
        }
    }
    assert!(!sources.is_empty(), "{directory} has sources");
    sources
}

/// A rule or a section of a page: `C8.4`, `W6`. None for any other word.
fn as_rule(word: &str) -> Option<&str> {
    let word = word.trim_matches(|c: char| !c.is_ascii_alphanumeric());
    let digits = word.strip_prefix(['C', 'W'])?;
    let mut parts = digits.split('.');
    let is_number =
        |part: Option<&str>| part.is_some_and(|part| part.parse::<u32>().is_ok_and(|n| n > 0));
    let is_rule = is_number(parts.next()) && parts.all(|part| is_number(Some(part)));
    is_rule.then_some(word)
}

/// The rules and sections that the pages have.
fn rules() -> BTreeSet<String> {
    let mut rules = BTreeSet::new();
    for page in PAGES {
        let text = fs::read_to_string(root().join(page)).unwrap();
        for line in text.lines() {
            let heading = line.strip_prefix("## ").and_then(|rest| rest.split(' ').next());
            let rule = line.strip_prefix("- **").and_then(|rest| rest.split("**").next());
            if let Some(name) = heading.or(rule).and_then(as_rule) {
                assert!(rules.insert(name.to_owned()), "{page} has {name} twice");
            }
        }
    }
    assert!(rules.len() > 50, "{rules:?}");
    rules
}

fn is_comment(line: &str) -> bool {
    line.trim_start().starts_with("//")
}

/// The rules that tests cite: a comment such as `// C8.4` right above a test's attribute.
fn cited_by_tests(text: &str) -> Vec<String> {
    let lines: Vec<&str> = text.lines().map(str::trim).collect();
    let pairs = lines.windows(2).filter(|pair| {
        let is_test =
            ["#[test]", "#[tokio::test", "proptest!"].iter().any(|it| pair[1].starts_with(it));
        is_comment(pair[0]) && is_test
    });
    let rules = pairs.flat_map(|pair| pair[0].split([' ', ',', '(', ')', ':']).filter_map(as_rule));
    rules.map(str::to_owned).collect()
}

#[test]
fn every_rule_has_a_test_that_cites_it() {
    let cited: BTreeSet<String> = SOURCES
        .iter()
        .flat_map(|directory| sources(directory))
        .flat_map(|(_, text)| cited_by_tests(&text))
        .collect();
    // Sections tell what their rules have in common, and need no test of their own.
    let uncited: Vec<String> =
        rules().into_iter().filter(|rule| rule.contains('.') && !cited.contains(rule)).collect();
    assert!(uncited.is_empty(), "rules that no test cites: {uncited:?}");
}

#[test]
fn every_citation_is_of_a_rule() {
    let rules = rules();
    for (path, text) in SOURCES.iter().flat_map(|directory| sources(directory)) {
        for line in text.lines().filter(|line| is_comment(line)) {
            let words = line.split([' ', ',', '(', ')', ':', '`', '/']);
            for rule in words.filter_map(as_rule) {
                assert!(rules.contains(rule), "{}: there is no {rule}: {line}", path.display());
            }
            let bare = line.split(['(', ')']).skip(1).step_by(2).find(|inner| {
                let mut numbers = inner.split(", ");
                numbers.all(|number| {
                    as_rule(&format!("C{number}")).is_some_and(|rule| rule.contains('.'))
                })
            });
            assert!(bare.is_none(), "{}: of which page? {line}", path.display());
        }
    }
}

#[test]
fn the_centre_of_the_core_imports_no_runtime_clock_or_io() {
    for (path, text) in CENTRE.iter().flat_map(|room| sources(room)) {
        let code = without_tests(&text);
        let uses = code.lines().filter(|line| !line.trim_start().starts_with("//"));
        for line in uses {
            for word in [
                "tokio",
                "futures_util",
                "std::fs",
                "std::io",
                "std::net",
                "std::thread",
                "SystemTime",
                "Instant",
                "Mutex",
                "async ",
                ".await",
            ] {
                assert!(!line.contains(word), "{}: {line}", path.display());
            }
        }
    }
}

#[test]
fn no_file_is_too_long_to_read() {
    for directory in SOURCES.iter().filter(|directory| **directory != "tests/it") {
        for (path, text) in sources(directory) {
            let is_test = path.to_string_lossy().ends_with("tests.rs")
                || path
                    .components()
                    .any(|part| part.as_os_str() == "tests" && *directory != "tests/support");
            let lines = without_tests(&text).lines().count();
            assert!(is_test || lines <= MOST_LINES, "{}: {lines} lines", path.display());
        }
    }
}

fn without_tests(text: &str) -> &str {
    text.split("\n#[cfg(test)]").next().unwrap_or(text)
}

#[test]
fn everything_is_formatted() {
    let check =
        Command::new(env!("CARGO")).args(["fmt", "--all", "--check"]).current_dir(root()).output();
    match check {
        Ok(output) if output.status.success() => {}
        Ok(output) if String::from_utf8_lossy(&output.stderr).contains("not installed") => {
            eprintln!("skipped: rustfmt is not installed");
        }
        Ok(output) => {
            let differences = String::from_utf8_lossy(&output.stdout);
            panic!("run `cargo fmt`:\n{differences}{}", String::from_utf8_lossy(&output.stderr));
        }
        Err(error) => eprintln!("skipped: cargo cannot be run: {error}"),
    }
}

/// What a program links that is only a client.
#[test]
fn the_client_s_library_comes_without_models_and_tools() {
    let tree = Command::new(env!("CARGO"))
        .args(["tree", "--package", "agent-client-library", "--edges", "normal"])
        .args(["--prefix", "none", "--locked", "--offline"])
        .current_dir(root())
        .output()
        .unwrap();
    let packages = String::from_utf8(tree.stdout).unwrap();
    let names: BTreeSet<_> = packages.lines().filter_map(|line| line.split(' ').next()).collect();
    for needed in ["agent-client-library", "agent-core", "agent-protocol", "tokio"] {
        assert!(names.contains(needed), "{needed} is not in the tree: {packages}");
    }
    for heavy in ["agent-daemon", "reqwest", "rustls", "hyper", "image", "clap", "toml"] {
        assert!(!names.contains(heavy), "the library needs {heavy}");
    }
}

/// What the core exports although nobody outside of it names it: parts of what others do name.
const PARTS: &[&str] = &["GrowingText", "SinkClosed"];

#[test]
fn what_the_core_exports_is_used_outside_of_it() {
    let lib = fs::read_to_string(root().join("agent-core/src/lib.rs")).unwrap();
    let lists = lib.split("\npub use ").skip(1).map(|rest| rest.split(';').next().unwrap());
    let words = |text: &str| -> BTreeSet<String> {
        let words = text.split(|c: char| !c.is_alphanumeric() && c != '_');
        words.map(str::to_owned).collect()
    };
    let is_type = |word: &String| word.starts_with(|c: char| c.is_uppercase());
    let exported: BTreeSet<_> = lists.flat_map(words).filter(is_type).collect();
    assert!(exported.len() > 50, "{exported:?}");
    let outside =
        ["agent-daemon", "agent-client", "tests/it", "tests/support", "agent-core/examples"];
    let outside = outside.iter().flat_map(|place| sources(place));
    // This page names them, too.
    let outside = outside.filter(|(path, _)| !path.ends_with("it/tidy.rs"));
    let used: BTreeSet<_> = outside.flat_map(|(_, text)| words(&text)).collect();
    let unused: BTreeSet<_> = exported.difference(&used).map(String::as_str).collect();
    assert_eq!(unused, PARTS.iter().copied().collect());
}
