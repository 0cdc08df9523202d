//! What a person asked the offline model for. Pure.

use serde_json::{Value, json};

/// One request that the model understands.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Wish {
    Read { path: String },
    List { directory: Option<String> },
    Run { command: String },
    Write { path: String, content: String },
    Edit { path: String, old: String, new: String },
}

const VERBS: [&str; 5] = ["read", "list", "run", "write", "edit"];

/// What may stand before a verb without changing it.
const POLITE: &[&str] = &[
    "please",
    "now",
    "then",
    "also",
    "first",
    "next",
    "and",
    "can you",
    "could you",
    "would you",
    "ok",
];

/// All requests of a text, in order; none if it is something else.
pub(super) fn wishes(text: &str) -> Vec<Wish> {
    clauses(text).into_iter().filter_map(wish).collect()
}

/// The text cut at line ends and before each `and` that a verb follows: `write a: salt and pepper`
/// is one request.
fn clauses(text: &str) -> Vec<&str> {
    let mut clauses = Vec::new();
    for line in text.lines() {
        let mut start = 0;
        let mut from = 0;
        while let Some(at) = find_word(line, "and", from) {
            from = at + "and".len();
            if begins_with_verb(&line[from..]) {
                clauses.push(&line[start..at]);
                start = from;
            }
        }
        clauses.push(&line[start..]);
    }
    clauses
}

/// Where a word stands alone, blanks around it.
fn find_word(line: &str, word: &str, from: usize) -> Option<usize> {
    // ASCII only, so that the positions stay those of the original.
    let lower = line.to_ascii_lowercase();
    let found = |(at, _): &(usize, &str)| {
        let before = lower[..*at].chars().next_back();
        let after = lower[at + word.len()..].chars().next();
        before.is_some_and(char::is_whitespace) && after.is_some_and(char::is_whitespace)
    };
    lower.match_indices(word).filter(|(at, _)| *at >= from).find(found).map(|(at, _)| at)
}

fn begins_with_verb(clause: &str) -> bool {
    VERBS.iter().any(|verb| after_word(polite_removed(clause), verb).is_some())
}

fn polite_removed(mut clause: &str) -> &str {
    loop {
        clause = clause.trim_start_matches([' ', '\t', ',']);
        match POLITE.iter().find_map(|word| after_word(clause, word)) {
            Some(rest) => clause = rest,
            None => return clause,
        }
    }
}

/// What follows a word at the start of a text, in whatever case it is written.
fn after_word<'a>(text: &'a str, word: &str) -> Option<&'a str> {
    let head = text.get(..word.len())?;
    let rest = &text[word.len()..];
    let ends = rest.chars().next().is_none_or(|next| next.is_whitespace() || next == ',');
    (head.eq_ignore_ascii_case(word) && ends).then(|| rest.trim_start_matches([' ', '\t', ',']))
}

fn wish(clause: &str) -> Option<Wish> {
    let clause = polite_removed(clause).trim_end();
    let rest_of = |verb| after_word(clause, verb).map(str::trim);
    if let Some(rest) = rest_of("read") {
        let path = path(without_words(rest, &["the", "file"]));
        return (!path.is_empty()).then_some(Wish::Read { path });
    }
    if let Some(rest) = rest_of("list") {
        let rest = without_words(rest, &["the", "files", "in", "of", "directory", "folder"]);
        let directory = Some(path(rest)).filter(|directory| !directory.is_empty());
        return Some(Wish::List { directory });
    }
    if let Some(rest) = rest_of("run") {
        let command = unquoted(without_words(rest, &["the", "command"])).to_owned();
        return (!command.is_empty()).then_some(Wish::Run { command });
    }
    let (verb, rest) = ["write", "edit"].iter().find_map(|verb| Some((*verb, rest_of(verb)?)))?;
    let (target, what) = without_words(rest, &["the", "file", "to"]).split_once(':')?;
    let path = path(target);
    let what = what.trim();
    match verb {
        _ if path.is_empty() => None,
        "write" => Some(Wish::Write { path, content: format!("{}\n", unquoted(what)) }),
        _ => {
            let (old, new) = what.split_once("=>")?;
            let (old, new) = (unquoted(old.trim()).to_owned(), unquoted(new.trim()).to_owned());
            Some(Wish::Edit { path, old, new })
        }
    }
}

fn without_words<'a>(mut text: &'a str, words: &[&str]) -> &'a str {
    while let Some(rest) = words.iter().find_map(|word| after_word(text, word)) {
        // A file may be called `file`.
        if rest.is_empty() {
            break;
        }
        text = rest;
    }
    text
}

/// A path without quotes and without the full stop of its sentence.
fn path(text: &str) -> String {
    let text = text.trim();
    let whole = unquoted(text);
    if whole.len() < text.len() {
        return whole.to_owned();
    }
    let without_stop = text.trim_end_matches(['.', ',', '!', '?', ';']);
    // `.`, `..` and `a/..` are paths.
    let is_dots = without_stop.is_empty() || without_stop.ends_with('/');
    let path = if is_dots { text } else { without_stop };
    unquoted(path).to_owned()
}

/// A text without the quotes or backticks around the whole of it.
fn unquoted(text: &str) -> &str {
    let inner = |quote: char| text.strip_prefix(quote)?.strip_suffix(quote);
    ['`', '"', '\''].into_iter().find_map(inner).unwrap_or(text)
}

impl Wish {
    /// The tool that carries it out.
    pub(super) fn tool(&self) -> &'static str {
        match self {
            Wish::Read { .. } => "read",
            Wish::List { .. } | Wish::Run { .. } => "bash",
            Wish::Write { .. } => "write",
            Wish::Edit { .. } => "edit",
        }
    }

    /// The tool's arguments.
    pub(super) fn arguments(&self) -> Value {
        match self {
            Wish::Read { path } => json!({ "path": path }),
            Wish::List { directory: None } => json!({ "command": "ls" }),
            Wish::List { directory: Some(directory) } => {
                json!({ "command": format!("ls -- {}", shell_quoted(directory)) })
            }
            Wish::Run { command } => json!({ "command": command }),
            Wish::Write { path, content } => json!({ "path": path, "content": content }),
            Wish::Edit { path, old, new } => {
                json!({ "path": path, "edits": [{ "oldText": old, "newText": new }] })
            }
        }
    }

    /// The wish in words that follow “I will”.
    pub(super) fn words(&self) -> String {
        match self {
            Wish::Read { path } => format!("read {path}"),
            Wish::List { directory: None } => "list the files here".to_owned(),
            Wish::List { directory: Some(directory) } => format!("list {directory}"),
            Wish::Run { command } => format!("run `{command}`"),
            Wish::Write { path, .. } => format!("write {path}"),
            Wish::Edit { path, .. } => format!("edit {path}"),
        }
    }
}

/// As it is where that is safe, since people see the command.
fn shell_quoted(path: &str) -> String {
    let is_plain = |c: char| c.is_alphanumeric() || matches!(c, '.' | '_' | '-' | '/' | '+' | '@');
    if path.chars().all(is_plain) {
        path.to_owned()
    } else {
        format!("'{}'", path.replace('\'', r"'\''"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A text, and the tool calls that it comes to.
    const CASES: &[(&str, &str)] = &[
        ("read README.md and run ls", "read {\"path\":\"README.md\"}\nbash {\"command\":\"ls\"}\n"),
        ("Please READ `src/main.rs`.", "read {\"path\":\"src/main.rs\"}\n"),
        ("can you read the file \"a b.txt\"", "read {\"path\":\"a b.txt\"}\n"),
        ("read a.txt.", "read {\"path\":\"a.txt\"}\n"),
        ("read `a`!", "read {\"path\":\"a\"}\n"),
        ("read", ""),
        ("ready?", ""),
        ("list", "bash {\"command\":\"ls\"}\n"),
        ("list the files in src.", "bash {\"command\":\"ls -- src\"}\n"),
        ("list ..", "bash {\"command\":\"ls -- ..\"}\n"),
        ("list it's", "bash {\"command\":\"ls -- 'it'\\\\''s'\"}\n"),
        ("run `echo a and b`", "bash {\"command\":\"echo a and b\"}\n"),
        ("run ls .", "bash {\"command\":\"ls .\"}\n"),
        ("run echo 'x' 'y'", "bash {\"command\":\"echo 'x' 'y'\"}\n"),
        (
            "write n.txt: salt and pepper and then, please read n.txt",
            "write {\"content\":\"salt and pepper\\n\",\"path\":\"n.txt\"}\nread {\"path\":\"n.txt\"}\n",
        ),
        ("write n.txt", ""),
        ("write : x", ""),
        (
            "edit n.txt: salt => \"sugar: brown\"",
            "edit {\"edits\":[{\"newText\":\"sugar: brown\",\"oldText\":\"salt\"}],\"path\":\"n.txt\"}\n",
        ),
        ("edit n.txt: salt", ""),
        ("read a\nrun b", "read {\"path\":\"a\"}\nbash {\"command\":\"b\"}\n"),
        ("first run é AND read ü", "bash {\"command\":\"é\"}\nread {\"path\":\"ü\"}\n"),
        ("", ""),
        ("你好", ""),
    ];

    #[test]
    fn plain_requests_become_tool_calls() {
        for (text, expected) in CASES {
            let calls: String = wishes(text)
                .iter()
                .map(|wish| format!("{} {}\n", wish.tool(), wish.arguments()))
                .collect();
            assert_eq!(calls, *expected, "{text}");
        }
    }
}
