//! Rooms stand on floors: what is lower knows nothing of what is higher, and nobody has to read a
//! circle. Held against the imports as they are written, those of tests apart.

use std::{collections::BTreeSet, fs, path::Path};

use support::process::repository;

/// The modules of a crate, lowest first. One that has modules of its own stands for all of them,
/// unless they are named.
const FLOORS: &[(&str, &[&str])] = &[
    (
        "agent-core/src",
        &[
            "data::message",
            "data::outcome",
            "data::config",
            "data::transcript",
            "data::event",
            "data::state",
            "data",
            "pure::nesting",
            "pure::repair",
            "pure::queue",
            "pure::slot",
            "pure::retry",
            "pure::reduce",
            "pure",
            "seam",
            "seam::cancel",
            "seam::tool",
            "seam::model",
            "seam::hooks",
            "seam::options",
            "run::contain",
            "run::answer",
            "run::tool_set",
            "run::settings",
            "run::feed",
            "run::guarded",
            "run::publisher",
            "run::hook_call",
            "run::run_task",
            "run::stream",
            "run::check",
            "run::tool_batch",
            "run::agent_loop",
            "run",
            "surface::error",
            "surface::handle",
            "surface::intake",
            "surface::agent",
            "surface::scripted",
            "surface",
        ],
    ),
    (
        "agent-daemon/protocol/src",
        &[
            "harmless",
            "codec::framing",
            "codec::stream",
            "codec::websocket",
            "codec",
            "local::paths",
            "local::place",
            "local::token",
            "local",
            "error",
            "content",
            "frames",
            "params",
            "results",
            "methods",
            "schema",
        ],
    ),
    (
        "agent-daemon/src",
        &[
            "system",
            "picture",
            "tool::arguments",
            "tool::boundary",
            "tool::nearest",
            "tool::resolve",
            "tool::blocking",
            "tool::policy",
            "tool::off_limits",
            "tool::directory",
            "tool::written",
            "tool::in_place",
            "tool::atomic_write",
            "tool::editor",
            "tool::outputs",
            "tool::session_outputs",
            "tool::workspace",
            "tool::kind",
            "tool::file_locks",
            "tool::text",
            "tool::read",
            "tool::write",
            "tool::edit",
            "tool::bash",
            "tool::built_in",
            "tool",
            "model::foreign_text",
            "model::cut_characters",
            "model::json_text",
            "model::sse",
            "model::reported",
            "model::retry_after",
            "model::secret",
            "model::proxy",
            "model::http",
            "model::patience",
            "model::body",
            "model::pictures",
            "model::history",
            "model::unavailable",
            "model::model_config",
            "model::abilities",
            "model::stream_failure",
            "model::wire_format",
            "model::openai_completions",
            "model::anthropic_messages",
            "model::openai_responses",
            "model::formats",
            "model::answer_stream",
            "model::provider",
            "model::failure",
            "model::remote",
            "model::offline",
            "model::catalog",
            "model",
            "model::recorded",
            "events::policy",
            "events::entry",
            "events::fanout",
            "events::subscription",
            "events",
            "peer::tally",
            "peer::strangers",
            "peer::transport",
            "peer::server",
            "peer::outbox",
            "peer::caller",
            "peer::request",
            "peer::calls",
            "peer::connection",
            "peer",
            "transport::stdio",
            "transport::socket",
            "transport::unix",
            "transport::tcp",
            "transport::websocket",
            "transport::acceptor",
            "transport",
            "transport::endpoint",
            "config::error",
            "config::file",
            "config",
            "sessions::idempotency",
            "sessions::instructions",
            "sessions::toolbox",
            "sessions::session",
            "sessions::registry",
            "sessions::daemon",
            "sessions",
            "methods::params",
            "methods::input",
            "methods",
            "methods::connection",
            "methods::runs",
            "methods::sessions",
            "process::parent",
            "process::run",
            "process::cli",
            "process",
        ],
    ),
    (
        "agent-client/library/src",
        &["transport", "client", "owner", "connect", "session", "fold", "mirror"],
    ),
    (
        "agent-client/src",
        &[
            "arguments",
            "exit",
            "output",
            "start",
            "context",
            "render::piece",
            "render::summary",
            "render::sentences",
            "render::renderer",
            "render::state",
            "render::screen",
            "render",
            "follower",
            "attach::keys",
            "attach::line",
            "attach::view",
            "attach::status",
            "attach::input",
            "attach::terminal",
            "attach",
            "commands::interrupts",
            "commands::stdin",
            "commands::input",
            "commands::follow_run",
            "commands",
            "cli",
        ],
    ),
];

/// A module's path and what it imports of its own crate.
type Imports = (String, BTreeSet<String>);

/// The floor of a path: that of the longest name that it begins with.
fn floor(floors: &[&str], path: &str) -> Option<usize> {
    let stands_for = |name: &str| {
        path.strip_prefix(name).is_some_and(|rest| rest.is_empty() || rest.starts_with("::"))
    };
    let found = floors.iter().enumerate().filter(|(_, name)| stands_for(name));
    found.max_by_key(|(_, name)| name.len()).map(|(floor, _)| floor)
}

/// The paths of a `use` tree.
fn paths(prefix: &str, tree: &str, found: &mut BTreeSet<String>) {
    let tree = tree.trim();
    let Some((head, inner)) = tree.split_once('{') else {
        // A `super` in a tree begins anew.
        let path = format!("{prefix}{tree}");
        let path = path.rsplit("crate::").next().unwrap_or_default();
        found.insert(path.trim_end_matches("::self").to_owned());
        return;
    };
    let inner = inner.trim_end().strip_suffix('}').expect("braces close");
    let (mut depth, mut start) = (0, 0);
    for (at, letter) in inner.char_indices().chain([(inner.len(), ',')]) {
        match letter {
            '{' => depth += 1,
            '}' => depth -= 1,
            ',' if depth == 0 => {
                if !inner[start..at].trim().is_empty() {
                    paths(&format!("{prefix}{}", head.trim()), &inner[start..at], found);
                }
                start = at + 1;
            }
            _ => {}
        }
    }
}

/// What begins like this, up to the brace that closes its first one. A tree can stand in another.
fn whole_tree(text: &str) -> &str {
    let mut depth = 0;
    let end = text.find(|letter| {
        depth += i32::from(letter == '{') - i32::from(letter == '}');
        letter == '}' && depth == 0
    });
    &text[..=end.expect("braces close")]
}

/// What a file's code imports of its own crate, by `use` and by the way. `above` is what it calls
/// `super`.
fn imports(above: &str, text: &str) -> BTreeSet<String> {
    let code = text.split("\n#[cfg(test)]").next().unwrap_or_default();
    let lines = code.lines().filter(|line| !line.trim_start().starts_with("//"));
    let code: String = lines.map(|line| format!("{line}\n")).collect();
    let code = code.replace("pub(super)", "").replace("super::", &format!("crate::{above}"));
    let mut found = BTreeSet::new();
    for (at, start) in code.match_indices("crate::") {
        let rest = &code[at + start.len()..];
        let is_name = |letter: char| letter.is_alphanumeric() || "_:".contains(letter);
        let end = rest.find(|letter| !is_name(letter)).unwrap_or(rest.len());
        match rest[end..].starts_with('{') {
            true => paths("", whole_tree(rest), &mut found),
            false => paths("", &rest[..end], &mut found),
        };
    }
    found
}

/// All modules below a directory, but for tests.
fn modules(root: &Path, directory: &Path, found: &mut Vec<Imports>) {
    for entry in fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            modules(root, &path, found);
            continue;
        }
        let below = path.strip_prefix(root).unwrap().with_extension("");
        let names: Vec<_> = below.iter().map(|name| name.to_str().unwrap()).collect();
        let module = names.join("::");
        let module = module.strip_suffix("::mod").unwrap_or(&module).to_owned();
        let is_rust = path.extension().is_some_and(|extension| extension == "rs");
        let is_test = module.ends_with("tests") || module.contains("test_");
        if is_rust && !is_test && module != "lib" && module != "main" {
            let above = module.rsplit_once("::").map_or(String::new(), |(it, _)| format!("{it}::"));
            let imports = imports(&above, &fs::read_to_string(&path).unwrap());
            found.push((module, imports));
        }
    }
}

/// The arrows that run up, as `from -> to`.
fn arrows_up(floors: &[&str], modules: &[Imports]) -> Vec<String> {
    let mut up = Vec::new();
    for (module, imports) in modules {
        let here = floor(floors, module).unwrap_or_else(|| panic!("{module} has no floor"));
        for import in imports {
            let there = floor(floors, import).unwrap_or_else(|| panic!("{import} has no floor"));
            if there > here {
                up.push(format!("{module} -> {import}"));
            }
        }
    }
    up
}

#[test]
fn no_module_knows_of_what_is_above_it() {
    for (directory, floors) in FLOORS {
        let (root, mut found) = (repository().join(directory), Vec::new());
        modules(&root, &root, &mut found);
        assert_eq!(arrows_up(floors, &found), [""; 0], "in {directory}");
        for floor in *floors {
            let is_there = found.iter().any(|(module, _)| module == floor);
            assert!(is_there, "{directory} has no module {floor}");
        }
        let arrows: usize = found.iter().map(|(_, imports)| imports.len()).sum();
        assert!(arrows > 10, "only {arrows} imports were found in {directory}");
    }
}

#[test]
fn an_arrow_that_runs_up_is_seen_however_it_is_written() {
    let floors = ["low", "high::one", "high"];
    let up = |text: &str| arrows_up(&floors, &[("low".to_owned(), imports("", text))]);
    for text in [
        "use crate::high::Thing;",
        "use crate::high;",
        "use crate::{low::Other, high::{one::Thing}};",
        "use crate::{\n    low,\n    high::{self, one},\n};",
        "fn f() -> crate::high::Thing {}",
        "use super::high::{Thing, other};",
        "use crate::{low::{super::{high::Thing}}, low};",
    ] {
        assert!(!up(text).is_empty(), "{text}");
    }
    for text in ["use crate::low::Thing;", "// crate::high", "\n#[cfg(test)]\nuse crate::high;"] {
        assert!(up(text).is_empty(), "{text}");
    }
}
