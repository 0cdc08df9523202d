//! What a reader of the repository may rely on: every rule has its test, the centre stays pure,
//! files stay readable, and everything is formatted.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

/// The numbered rules of the contract.
const RULES: &[(u32, u32)] = &[(3, 4), (4, 5), (5, 10), (6, 4), (7, 8), (8, 10), (9, 3), (11, 3)];

/// The files of agent-core that import no tokio, clock or I/O.
const CENTRE: &[&str] =
    &["message", "event", "config", "state", "reduce", "queue", "run", "transcript"];

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

/// The rules that tests cite: a comment such as `// 8.4` right above a test's attribute.
fn cited(text: &str) -> Vec<String> {
    let lines: Vec<&str> = text.lines().map(str::trim).collect();
    let pairs = lines.windows(2).filter(|pair| {
        let is_test =
            ["#[test]", "#[tokio::test", "proptest!"].iter().any(|it| pair[1].starts_with(it));
        pair[0].starts_with("// ") && is_test
    });
    pairs.flat_map(|pair| pair[0][3..].split(", ").map(str::to_owned)).collect()
}

#[test]
fn every_rule_of_the_contract_has_a_test_that_cites_it() {
    let mut all: Vec<String> = Vec::new();
    for directory in ["tests/it", "agent-core/src", "agent-daemon/src"] {
        all.extend(sources(directory).iter().flat_map(|(_, text)| cited(text)));
    }
    let rules = RULES
        .iter()
        .flat_map(|(section, last)| (1..=*last).map(move |rule| format!("{section}.{rule}")));
    let missing: Vec<String> = rules.filter(|rule| !all.contains(rule)).collect();
    assert!(missing.is_empty(), "rules without a test: {missing:?}");
}

#[test]
fn the_centre_of_the_core_imports_no_runtime_clock_or_io() {
    for name in CENTRE {
        let text = fs::read_to_string(root().join(format!("agent-core/src/{name}.rs"))).unwrap();
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
                assert!(!line.contains(word), "{name}.rs: {line}");
            }
        }
    }
}

#[test]
fn no_file_is_too_long_to_read() {
    for directory in ["agent-core/src", "agent-daemon/src", "agent-client/src", "tests/support"] {
        for (path, text) in sources(directory) {
            let is_test = path.to_string_lossy().ends_with("tests.rs")
                || path
                    .components()
                    .any(|part| part.as_os_str() == "tests" && directory != "tests/support");
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
