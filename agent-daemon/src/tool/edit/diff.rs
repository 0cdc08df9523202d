//! What an edit changed, for people.

use std::time::Duration;

use similar::TextDiff;

use super::super::boundary;

/// A longer diff is cut.
const MAX_BYTES: usize = 50 * 1024;

/// A diff that takes longer is a coarser one.
const MAX_TIME: Duration = Duration::from_millis(300);

/// A unified diff. Bytes that are not UTF-8 are shown as U+FFFD.
pub(super) fn unified(named: &str, old: &[u8], new: &[u8]) -> String {
    let (old, new) = (String::from_utf8_lossy(old), String::from_utf8_lossy(new));
    let diff = TextDiff::configure().timeout(MAX_TIME).diff_lines(old.as_ref(), new.as_ref());
    let mut text = diff.unified_diff().context_radius(3).header(named, named).to_string();
    if text.len() > MAX_BYTES {
        let end = text[..boundary::floor(&text, MAX_BYTES)].rfind('\n').map_or(0, |end| end + 1);
        text.truncate(end);
        text.push_str("\\ The diff is longer than what is shown here.\n");
    }
    text
}

#[cfg(test)]
mod tests {
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
}
