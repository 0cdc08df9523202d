//! A tool call and its result in few lines, for people.
//!
//! Owns: which argument says most, and how much of a result is shown. Never: fails; arguments and
//! results have whatever shape a model or a tool gave them.

use agent_core::{Block, text_of};
use agent_protocol::harmless::{harmless, one_line};
use serde_json::Value;

/// How many lines of a command's output are shown: its end says how it went.
const TAIL_LINES: usize = 6;
/// How many lines of any other result: its beginning says what it is.
const HEAD_LINES: usize = 3;
/// How long a line may be.
const LINE_CHARS: usize = 160;

/// How calls of a tool are told.
struct Summary {
    tool: &'static str,
    /// The argument that says most.
    argument: &'static str,
    /// What is shown of it.
    shows: fn(&str, &Value) -> String,
    /// Which part of a result is shown.
    part: fn(&[&str]) -> Vec<String>,
}

/// The tools that are known by name. All others are told by all their arguments.
const SUMMARIES: &[Summary] = &[
    Summary { tool: "bash", argument: "command", shows: first_line, part: tail },
    Summary { tool: "read", argument: "path", shows: with_range, part: head },
    Summary { tool: "write", argument: "path", shows: whole, part: head },
    Summary { tool: "edit", argument: "path", shows: whole, part: head },
];

/// Such as `read README.md`.
pub fn call(tool: &str, arguments: &Value) -> String {
    let name = one_line(tool);
    let said = summary(tool).and_then(|summary| {
        let text = arguments.get(summary.argument)?.as_str()?;
        Some((summary.shows)(text, arguments))
    });
    let said = said.unwrap_or_else(|| match arguments {
        Value::Object(fields) if fields.is_empty() => String::new(),
        arguments => arguments.to_string(),
    });
    shorten(&one_line(&format!("{name} {said}")))
}

/// What a call came to, without line ends.
pub fn result(tool: &str, content: &[Block]) -> Vec<String> {
    let text = text_of(content);
    let lines: Vec<_> = text.trim_end().lines().collect();
    let shown = summary(tool).map_or_else(|| head(&lines), |summary| (summary.part)(&lines));
    let images = content.iter().filter_map(|block| match block {
        Block::Image { mime_type, .. } => Some(format!("[{}]", one_line(mime_type))),
        _ => None,
    });
    shown.into_iter().chain(images).collect()
}

fn summary(tool: &str) -> Option<&'static Summary> {
    SUMMARIES.iter().find(|summary| summary.tool == tool)
}

fn whole(text: &str, _: &Value) -> String {
    text.to_owned()
}

fn with_range(path: &str, arguments: &Value) -> String {
    path.to_owned() + &range(arguments)
}

fn range(arguments: &Value) -> String {
    let number = |name| arguments.get(name).and_then(Value::as_u64);
    match (number("offset"), number("limit")) {
        (None, None) => String::new(),
        (from, None) => format!(":{}-", from.unwrap_or(1)),
        (from, Some(limit)) => {
            let from = from.unwrap_or(1);
            format!(":{from}-{}", from.saturating_add(limit).saturating_sub(1))
        }
    }
}

fn first_line(text: &str, _: &Value) -> String {
    let text = text.trim();
    match text.split_once('\n') {
        Some((first, _)) => format!("{first} …"),
        None => text.to_owned(),
    }
}

fn head(lines: &[&str]) -> Vec<String> {
    // A notice of one line would take the place of one line.
    if lines.len() <= HEAD_LINES + 1 {
        return lines.iter().map(|line| shown(line)).collect();
    }
    let rest = lines.len() - HEAD_LINES;
    let shown = lines[..HEAD_LINES].iter().map(|line| shown(line));
    shown.chain([format!("… {rest} more lines")]).collect()
}

fn tail(lines: &[&str]) -> Vec<String> {
    if lines.len() <= TAIL_LINES + 1 {
        return lines.iter().map(|line| shown(line)).collect();
    }
    let rest = lines.len() - TAIL_LINES;
    let notice = format!("… {rest} lines before");
    std::iter::once(notice).chain(lines[rest..].iter().map(|line| shown(line))).collect()
}

fn shown(line: &str) -> String {
    shorten(&harmless(last_written(line)).replace('\t', "    "))
}

/// What a terminal would show of a line that was written over and over, as progress bars are.
fn last_written(line: &str) -> &str {
    let line = line.trim_end_matches('\r');
    line.rsplit('\r').next().unwrap_or(line)
}

fn shorten(line: &str) -> String {
    let line = line.trim_end();
    match line.char_indices().nth(LINE_CHARS) {
        Some((end, _)) => format!("{}…", &line[..end]),
        None => line.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_call_is_told_by_what_says_most() {
        for (tool, arguments, expected) in [
            ("read", json!({ "path": "README.md" }), "read README.md"),
            ("read", json!({ "path": "a", "offset": 10, "limit": 5 }), "read a:10-14"),
            ("read", json!({ "path": "a", "offset": 10 }), "read a:10-"),
            ("bash", json!({ "command": "cd x\nmake" }), "bash cd x …"),
            ("bash", json!({ "command": "printf '\u{1b}[2J'" }), "bash printf '␛[2J'"),
            ("write", json!({ "path": "a\nb", "content": "x" }), "write a b"),
            ("edit", json!({ "path": "src/lib.rs", "edits": [] }), "edit src/lib.rs"),
            ("search", json!({ "for": "x" }), r#"search {"for":"x"}"#),
            ("list", json!({}), "list"),
            ("bash", json!("{\"comm"), r#"bash "{\"comm""#),
            ("read", json!({ "path": 7 }), r#"read {"path":7}"#),
        ] {
            assert_eq!(call(tool, &arguments), expected);
        }
    }

    #[test]
    fn of_a_command_the_end_is_shown_and_of_all_else_the_beginning() {
        let lines: Vec<_> = (1..=9).map(|number| number.to_string()).collect();
        let content = [Block::text(lines.join("\n") + "\n"), Block::image("image/png", "AA==")];
        let told = ["… 3 lines before", "4", "5", "6", "7", "8", "9", "[image/png]"];
        assert_eq!(result("bash", &content), told);
        assert_eq!(result("read", &content), ["1", "2", "3", "… 6 more lines", "[image/png]"]);
        assert_eq!(result("read", &[Block::text("one\n\n")]), ["one"]);
        assert_eq!(result("read", &[Block::text("")]), [""; 0]);
    }

    #[test]
    fn a_line_that_was_written_over_shows_its_last_state() {
        assert_eq!(last_written(" 10%\r 50%\r100%\r"), "100%");
        assert_eq!(last_written("plain"), "plain");
        assert_eq!(last_written(""), "");
    }

    #[test]
    fn lines_of_a_result_are_short_and_harmless() {
        let content = [Block::text(format!("{}\n\x1b[1m\t50%\r90%", "x".repeat(200)))];
        assert_eq!(result("bash", &content), [format!("{}…", "x".repeat(160)), "90%".to_owned()]);
    }
}
