//! What an edit changed, for people.
//!
//! Owns: a unified diff of two states of a file. Never: costs more than the part that differs, nor
//! grows without bound.

use std::{fmt::Write, ops::Range, time::Duration};

use similar::{ChangeTag, DiffOp, TextDiff};

use super::super::boundary;

/// So many lines around a change are shown.
const CONTEXT: usize = 3;

/// A longer diff is cut.
const MAX_BYTES: usize = 50 * 1024;

/// A diff that takes longer is a coarser one.
const MAX_TIME: Duration = Duration::from_millis(300);

/// A unified diff. Bytes that are not UTF-8 are shown as U+FFFD.
pub(super) fn unified(named: &str, old: &[u8], new: &[u8]) -> String {
    let (start, old_end, new_end) = differing(old, new);
    let first_line = memchr::memchr_iter(b'\n', &old[..start]).count();
    let old = String::from_utf8_lossy(&old[start..old_end]);
    let new = String::from_utf8_lossy(&new[start..new_end]);
    let diff = TextDiff::configure().timeout(MAX_TIME).diff_lines(old.as_ref(), new.as_ref());
    let mut text = format!("--- {named}\n+++ {named}\n");
    for group in diff.grouped_ops(CONTEXT) {
        text.push_str(&hunk(&diff, &group, first_line));
        if text.len() > MAX_BYTES {
            break;
        }
    }
    if text.len() > MAX_BYTES {
        let line = text[..boundary::floor(&text, MAX_BYTES)].rfind('\n');
        text.truncate(line.map_or(0, |end| end + 1));
        text.push_str("\\ The diff is longer than what is shown here.\n");
    }
    text
}

/// Where two texts differ, with the lines around that are shown: start, end in the old one, end in
/// the new one. A file can have a million lines, and an edit change one.
fn differing(old: &[u8], new: &[u8]) -> (usize, usize, usize) {
    let same = old.iter().zip(new).take_while(|(old, new)| old == new).count();
    let mut start = same;
    for _ in 0..=CONTEXT {
        // The first round goes to the line's own beginning.
        start = memchr::memrchr(b'\n', &old[..start.saturating_sub(1)]).map_or(0, |end| end + 1);
    }
    let rest = (&old[same..], &new[same..]);
    let same_end = rest.0.iter().rev().zip(rest.1.iter().rev());
    let same_end = same_end.take_while(|(old, new)| old == new).count();
    let mut after = same_end;
    let tail = &old[old.len() - same_end..];
    if let Some(end) = memchr::memchr_iter(b'\n', tail).nth(CONTEXT) {
        after = same_end - (end + 1);
    } else if !tail.is_empty() {
        after = 0;
    }
    (start, old.len() - after, new.len() - after)
}

fn hunk<'a>(diff: &TextDiff<'a, 'a, str>, group: &[DiffOp], first_line: usize) -> String {
    let (Some(first), Some(last)) = (group.first(), group.last()) else { return String::new() };
    let old = first.old_range().start..last.old_range().end;
    let new = first.new_range().start..last.new_range().end;
    let mut text = format!("@@ -{} +{} @@\n", span(old, first_line), span(new, first_line));
    for change in group.iter().flat_map(|op| diff.iter_changes(op)) {
        let sign = match change.tag() {
            ChangeTag::Equal => ' ',
            ChangeTag::Delete => '-',
            ChangeTag::Insert => '+',
        };
        let _ = write!(text, "{sign}{}", change.value());
        if change.missing_newline() {
            text.push_str("\n\\ No newline at end of file\n");
        }
    }
    text
}

/// A range of lines as a hunk's header has it: from 1, without the length of a single line.
fn span(lines: Range<usize>, first_line: usize) -> String {
    match lines.len() {
        // Nothing comes after a line, not at one.
        0 => format!("{},0", first_line + lines.start),
        1 => (first_line + lines.start + 1).to_string(),
        length => format!("{},{length}", first_line + lines.start + 1),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use proptest::prelude::*;
    use rustix::time::{ClockId, clock_gettime};

    use super::*;

    #[test]
    fn a_diff_has_context() {
        let diff = unified("a", b"1\n2\n3\n4\n5\n6", b"1\n2\n3\n4\nfive\n6");
        let expected = "--- a\n+++ a\n@@ -2,5 +2,5 @@\n 2\n 3\n 4\n-5\n+five\n 6\n\\ No newline at end of file\n";
        assert_eq!(diff, expected);
    }

    #[test]
    fn a_diff_is_bounded() {
        let (old, new) = ("a\n".repeat(100_000), "b\n".repeat(100_000));
        let diff = unified("a", old.as_bytes(), new.as_bytes());
        assert!(diff.len() < MAX_BYTES + 100);
        assert!(diff.ends_with("shown here.\n"));
    }

    #[test]
    fn a_small_change_of_a_large_file_is_cheap() {
        let old = "line\n".repeat(2_000_000);
        let new = format!("{}other\n{}", &old[..5_000_000], &old[5_000_000..]);
        // Our own time: others may keep the machine busy.
        let time = || Duration::try_from(clock_gettime(ClockId::ThreadCPUTime)).unwrap();
        let begin = time();
        let diff = unified("a", old.as_bytes(), new.as_bytes());
        assert!(
            diff.contains("@@ -999998,6 +999998,7 @@\n line\n line\n line\n+other\n"),
            "{diff}"
        );
        assert!(time() - begin < Duration::from_secs(3), "{:?}", time() - begin);
    }

    proptest! {
        #[test]
        fn a_diff_leads_from_the_old_text_to_the_new(
            head in "[ab\n]{0,30}", old in "[xy\n]{0,8}", new in "[xy\n]{0,8}", tail in "[ab\n]{0,30}",
        ) {
            let (old, new) = (format!("{head}{old}{tail}"), format!("{head}{new}{tail}"));
            let diff = unified("f", old.as_bytes(), new.as_bytes());
            prop_assert_eq!(patched(&old, &diff), new);
        }
    }

    /// The old text with the diff applied, hunk by hunk, each at the line that its header says.
    fn patched(old: &str, diff: &str) -> String {
        let lines: Vec<&str> = old.split_inclusive('\n').collect();
        let (mut at, mut result) = (0, String::new());
        let mut rest = diff.split_inclusive('\n').skip(2).peekable();
        while let Some(line) = rest.next() {
            let unended = rest.peek().is_some_and(|next| next.starts_with('\\'));
            let text = |line: &str| line[1..line.len() - usize::from(unended)].to_owned();
            match line.as_bytes()[0] {
                b'@' => {
                    let range = line.split(['-', ' ']).nth(2).unwrap_or_default();
                    let mut numbers = range.split(',').map(|number| number.parse::<usize>());
                    let start = numbers.next().and_then(Result::ok).expect("a hunk has a start");
                    let empty = matches!(numbers.next(), Some(Ok(0)));
                    let start = if empty { start } else { start - 1 };
                    result.extend(lines[at..start].iter().copied());
                    at = start;
                }
                b' ' => {
                    assert_eq!(lines[at], text(line));
                    result.push_str(lines[at]);
                    at += 1;
                }
                b'-' => {
                    assert_eq!(lines[at], text(line));
                    at += 1;
                }
                b'+' => result.push_str(&text(line)),
                _ => {}
            }
        }
        result.extend(lines[at..].iter().copied());
        result
    }
}
