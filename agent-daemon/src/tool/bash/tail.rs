//! The end of a text that grows.
//!
//! Owns: which last lines fit into a limit, and counting the others. Never: holds more than a few
//! times the largest limit, however much goes by.

use super::super::boundary;

/// How much of the end is asked for.
#[derive(Clone, Copy)]
pub(super) struct Limit {
    pub(super) lines: usize,
    pub(super) bytes: usize,
}

/// The end of a text, and how long it is.
pub(super) struct Tail {
    /// The last bytes, at least `held` of them if there are so many.
    text: String,
    held: usize,
    bytes: u64,
    line_ends: u64,
}

/// Whole last lines; or, when not even one fits, the end of the last line.
#[derive(Debug, PartialEq)]
pub(super) struct View<'a> {
    pub(super) text: &'a str,
    /// The number of the first line shown, from 1.
    pub(super) first: u64,
    /// How many lines there are in all.
    pub(super) total: u64,
    /// Whether the beginning of the only line is missing.
    pub(super) in_line: bool,
}

impl Tail {
    /// An empty text, of which no more than `largest` bytes will be asked for.
    pub(super) fn new(largest: usize) -> Self {
        // One byte more tells whether the view begins at a line.
        Tail { text: String::new(), held: largest + 1, bytes: 0, line_ends: 0 }
    }

    /// Appends.
    pub(super) fn push(&mut self, more: &str) {
        self.bytes += more.len() as u64;
        self.line_ends += memchr::memchr_iter(b'\n', more.as_bytes()).count() as u64;
        if more.len() > self.held {
            self.text.clear();
        }
        let cut = boundary::floor(more, more.len().saturating_sub(self.held));
        self.text.push_str(&more[cut..]);
        if self.text.len() > 4 * self.held {
            let cut = boundary::floor(&self.text, self.text.len() - self.held);
            self.text.drain(..cut);
        }
    }

    /// How many lines it has. A line end at the very end begins no further line.
    pub(super) fn lines(&self) -> u64 {
        let unended = !self.text.is_empty() && !self.text.ends_with('\n');
        self.line_ends + u64::from(unended)
    }

    /// Whether the whole text is within the limit.
    pub(super) fn fits(&self, limit: Limit) -> bool {
        self.bytes <= limit.bytes as u64 && self.lines() <= limit.lines as u64
    }

    /// All of it, as long as it is no longer than what was said to be the largest view.
    pub(super) fn whole(&self) -> &str {
        &self.text
    }

    /// The last lines within the limit.
    pub(super) fn view(&self, limit: Limit) -> View<'_> {
        let mut start = self.text.len();
        let mut shown = 0;
        // A line end at the very end belongs to the last line.
        let mut search = self.text.len().saturating_sub(1);
        while start > 0 && shown < limit.lines {
            let begin = memchr::memrchr(b'\n', &self.text.as_bytes()[..search]).map(|end| end + 1);
            // Without a line end before it, the line may begin in what is no longer held.
            let begin = begin.unwrap_or(0);
            if self.text.len() - begin > limit.bytes {
                break;
            }
            (start, search) = (begin, begin.saturating_sub(1));
            shown += 1;
        }
        let in_line = shown == 0 && !self.text.is_empty() && limit.lines > 0;
        if in_line {
            start = boundary::ceil(&self.text, self.text.len().saturating_sub(limit.bytes));
            shown = 1;
        }
        let total = self.lines();
        View { text: &self.text[start..], first: total + 1 - shown as u64, total, in_line }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// What a view promises, said with the whole text in memory.
    fn oracle(text: &str, limit: Limit) -> View<'_> {
        let lines: Vec<&str> = text.split_inclusive('\n').collect();
        let fits = |from: &usize| {
            let length: usize = lines[*from..].iter().map(|line| line.len()).sum();
            length <= limit.bytes && lines.len() - from <= limit.lines
        };
        let from = (0..=lines.len()).find(fits).unwrap_or(lines.len());
        let total = lines.len() as u64;
        if from == lines.len() && !lines.is_empty() {
            let start = boundary::ceil(text, text.len().saturating_sub(limit.bytes));
            return View { text: &text[start..], first: total, total, in_line: true };
        }
        let length: usize = lines[from..].iter().map(|line| line.len()).sum();
        View { text: &text[text.len() - length..], first: from as u64 + 1, total, in_line: false }
    }

    proptest! {
        #[test]
        fn a_view_is_the_end_of_the_whole(
            pieces in proptest::collection::vec("[aé\n]{0,12}", 0..12), lines in 1usize..6, bytes in 2usize..16,
        ) {
            let limit = Limit { lines, bytes };
            let mut tail = Tail::new(bytes);
            let mut whole = String::new();
            for piece in &pieces {
                tail.push(piece);
                whole.push_str(piece);
                prop_assert_eq!(tail.view(limit), oracle(&whole, limit), "{:?}", whole);
                prop_assert!(tail.text.len() <= 5 * (bytes + 4));
                let fits = oracle(&whole, limit).text.len() == whole.len();
                prop_assert_eq!(tail.fits(limit), fits);
                prop_assert!(!fits || tail.whole() == whole);
            }
        }
    }
}
