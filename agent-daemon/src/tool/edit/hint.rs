//! Why an `oldText` is not where someone thought it was.
//!
//! Owns: the search for the place that was meant. Never: lets that place be edited.

use super::super::{boundary, nearest::distance};

/// So many lines of the file are looked at.
const MAX_LINES: usize = 20_000;

/// So much of a line is compared and shown.
const MAX_WIDTH: usize = 200;

/// A sentence about the place that comes nearest; empty if none does.
pub(super) fn nearest_place(original: &[u8], old_text: &str) -> String {
    if old_text.contains('\u{fffd}') {
        return " It contains \u{fffd}, which stands for bytes that are not UTF-8; leave those out."
            .into();
    }
    let with_lf = old_text.replace("\r\n", "\n");
    if with_lf != old_text && memchr::memmem::find(original, with_lf.as_bytes()).is_some() {
        return " It is there with LF where oldText has CRLF.".into();
    }
    let unended = old_text.strip_suffix('\n').map(|text| text.strip_suffix('\r').unwrap_or(text));
    if unended.is_some_and(|text| !text.is_empty() && original.ends_with(text.as_bytes())) {
        return " The file ends there without a line end; leave out the one that ends oldText."
            .into();
    }
    let text = String::from_utf8_lossy(original);
    let file: Vec<&str> = text.lines().take(MAX_LINES).collect();
    let wanted: Vec<&str> = old_text.lines().collect();
    let Some(first) = wanted.iter().position(|line| !line.trim().is_empty()) else {
        return String::new();
    };
    same_beginning(&file, &wanted[first..])
        .or_else(|| other_white_space(&file, wanted[first]))
        .or_else(|| similar_line(&file, wanted[first]))
        .unwrap_or_default()
}

/// The place where most lines agree before one does not.
fn same_beginning(file: &[&str], wanted: &[&str]) -> Option<String> {
    let agreeing = |start: usize| {
        let rest = file[start + 1..].iter().zip(&wanted[1..]);
        1 + rest.take_while(|(have, want)| have == want).count()
    };
    // The text may begin in the middle of a line.
    let (start, count) = (0..file.len())
        .filter(|start| file[*start].ends_with(wanted[0]))
        .map(|start| (start, agreeing(start)))
        .max_by_key(|(start, count)| (*count, usize::MAX - start))?;
    let want = wanted.get(count)?;
    Some(match file.get(start + count) {
        Some(have) => format!(
            " It begins at line {}, but line {} is {} where oldText has {}.",
            start + 1,
            start + count + 1,
            shown(have),
            shown(want),
        ),
        None => format!(" It begins at line {}, but the file ends before it does.", start + 1),
    })
}

fn other_white_space(file: &[&str], wanted: &str) -> Option<String> {
    let squeezed = |line: &str| line.split_whitespace().collect::<Vec<_>>().join(" ");
    let wanted_squeezed = squeezed(wanted);
    let at = file.iter().position(|line| squeezed(line).contains(&wanted_squeezed))?;
    Some(format!(
        " Line {} differs in white space: it is {} where oldText has {}.",
        at + 1,
        shown(file[at]),
        shown(wanted),
    ))
}

fn similar_line(file: &[&str], wanted: &str) -> Option<String> {
    let wanted = cut(wanted.trim());
    let most = wanted.chars().count() / 3;
    let (_, at) = file
        .iter()
        .enumerate()
        .filter_map(|(at, line)| Some((distance(wanted, cut(line.trim()), most)?, at)))
        .min()?;
    Some(format!(" The most similar line is line {}: {}.", at + 1, shown(file[at])))
}

fn cut(line: &str) -> &str {
    &line[..boundary::floor(line, MAX_WIDTH)]
}

/// A line with its tabs and quotes visible.
fn shown(line: &str) -> String {
    let more = if line.len() > MAX_WIDTH { " …" } else { "" };
    format!("{:?}{more}", cut(line))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_place_that_was_meant_is_named() {
        const FILE: &str = "fn main() {\n    let total = 1;\n    print(total);\n}\n\nfn other() {\n\tprint(2);\n}\n";
        const CASES: &[(&str, &str)] = &[
            (
                "fn main() {\n    let total = 2;\n",
                "begins at line 1, but line 2 is \"    let total = 1;\" where oldText has \"    let total = 2;\"",
            ),
            ("main() {\n    let total = 1;\n    show(total);", "begins at line 1, but line 3 is"),
            (
                "fn other() {\n    print(2);",
                "line 7 is \"\\tprint(2);\" where oldText has \"    print(2);\"",
            ),
            ("  let total = 1;  ", "Line 2 differs in white space"),
            ("  print( total );", "The most similar line is line 3"),
            ("lett total = 1;", "The most similar line is line 2: \"    let total = 1;\""),
            ("}\n\nfn third() {", "begins at line 4, but line 6 is"),
            (
                "fn other() {\n\tprint(2);\n}\nmore",
                "begins at line 6, but the file ends before it does",
            ),
            ("fn main() {\r\n", "It is there with LF where oldText has CRLF"),
            ("caf\u{fffd}", "bytes that are not UTF-8"),
        ];
        for (old_text, told) in CASES {
            let hint = nearest_place(FILE.as_bytes(), old_text);
            assert!(hint.contains(told), "{old_text:?}: {hint}");
        }
        for silent in ["something else entirely", "\n\n\n", " "] {
            assert_eq!(nearest_place(FILE.as_bytes(), silent), "", "{silent:?}");
        }
    }

    #[test]
    fn a_missing_last_line_end_is_told() {
        for (file, old_text) in [("a\nb", "b\n"), ("a\nb", "a\nb\n"), ("b", "b\r\n")] {
            let hint = nearest_place(file.as_bytes(), old_text);
            assert!(hint.starts_with(" The file ends there without a line end"), "{hint}");
        }
    }

    #[test]
    fn long_lines_are_cut() {
        let hint = nearest_place("x".repeat(5_000).as_bytes(), &"x".repeat(5_001));
        assert!(hint.len() < 400, "{hint}");
    }
}
