//! Which bytes an edit replaces.
//!
//! Owns: finding each `oldText` in the original, byte by byte, and refusing what is missing,
//! ambiguous or overlapping. Pure. Never: touches a byte outside of what it found, or takes
//! something similar for the same. The one tolerance is CR LF where `oldText` says LF.

use std::ops::Range;

use memchr::memmem;
use serde::Deserialize;

/// One replacement that a call asks for.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct Replacement {
    pub(super) old_text: String,
    pub(super) new_text: String,
}

/// One replacement with its place.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Splice {
    /// What goes, in bytes of the original.
    pub(super) range: Range<usize>,
    /// What comes.
    pub(super) text: Vec<u8>,
    /// Which replacement of the call it is, from 0.
    pub(super) index: usize,
}

/// Why a call is refused. Lines and replacements count from 1.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub(super) enum EditRefusal {
    #[error("edits is empty; give at least one replacement")]
    Nothing,
    #[error("edits[{index}].oldText is empty; give the text to replace (to make a file use write)")]
    Empty { index: usize },
    #[error("edits[{index}] changes nothing: oldText and newText are the same")]
    Same { index: usize },
    #[error("edits[{index}].oldText is not in the file")]
    Missing { index: usize },
    #[error(
        "edits[{index}].oldText is in the file {}, at lines {}; add lines around it until it occurs once",
        times(*.more, .lines.len()), listed(.lines)
    )]
    Ambiguous { index: usize, lines: Vec<usize>, more: bool },
    #[error(
        "edits[{index}].oldText is at line {line}, but with other line ends: some are CRLF, some LF. \
         Write \\r\\n where the file has it, or replace line by line"
    )]
    MixedLineEnds { index: usize, line: usize },
    #[error("edits[{first}] and edits[{second}] overlap at line {line}; make them one")]
    Overlap { first: usize, second: usize, line: usize },
}

/// So many places of an ambiguous text are named.
const MAX_PLACES: usize = 10;

/// So many refusals are enough. Each costs a look through the file, and most often all have one cause.
pub(super) const MAX_REFUSALS: usize = 10;

/// The places of all replacements, in the order of the file.
///
/// # Errors
/// All that is wrong with the call, or the first [`MAX_REFUSALS`] of it.
pub(super) fn plan(
    original: &[u8],
    replacements: &[Replacement],
) -> Result<Vec<Splice>, Vec<EditRefusal>> {
    if replacements.is_empty() {
        return Err(vec![EditRefusal::Nothing]);
    }
    let mut splices = Vec::new();
    let mut refusals = Vec::new();
    for (index, replacement) in replacements.iter().enumerate() {
        match place(original, replacement, index) {
            Ok(splice) => splices.push(splice),
            Err(refusal) => refusals.push(refusal),
        }
        if refusals.len() == MAX_REFUSALS {
            return Err(refusals);
        }
    }
    splices.sort_by_key(|splice| (splice.range.start, splice.index));
    let overlaps = splices.windows(2).filter_map(|pair| overlap(original, &pair[0], &pair[1]));
    refusals.extend(overlaps.take(MAX_REFUSALS - refusals.len()));
    if refusals.is_empty() { Ok(splices) } else { Err(refusals) }
}

/// The new content. The splices are those of [`plan`].
pub(super) fn apply(original: &[u8], splices: &[Splice]) -> Vec<u8> {
    let mut new = Vec::with_capacity(original.len());
    let mut kept = 0;
    for splice in splices {
        new.extend_from_slice(&original[kept..splice.range.start]);
        new.extend_from_slice(&splice.text);
        kept = splice.range.end;
    }
    new.extend_from_slice(&original[kept..]);
    new
}

/// The line, from 1, that holds a byte.
pub(super) fn line_of(text: &[u8], at: usize) -> usize {
    memchr::memchr_iter(b'\n', &text[..at]).count() + 1
}

fn place(original: &[u8], asked: &Replacement, index: usize) -> Result<Splice, EditRefusal> {
    let old = asked.old_text.as_bytes();
    if old.is_empty() {
        return Err(EditRefusal::Empty { index });
    }
    if asked.old_text == asked.new_text {
        return Err(EditRefusal::Same { index });
    }
    let exact = only(original, occurrences(original, old), index)?;
    if let Some(start) = exact {
        let text = with_line_ends_of(original, asked);
        return Ok(Splice { range: start..start + old.len(), text, index });
    }
    place_despite_crlf(original, asked, index)
}

/// Where a text begins; two places may overlap each other. Stops when there are too many to name.
fn occurrences(text: &[u8], wanted: &[u8]) -> Vec<usize> {
    let finder = memmem::Finder::new(wanted);
    let mut found = Vec::new();
    let mut from = 0;
    while found.len() <= MAX_PLACES
        && let Some(at) = finder.find(&text[from..])
    {
        found.push(from + at);
        from += at + 1;
    }
    found
}

/// The one place; none if there is none.
fn only(text: &[u8], found: Vec<usize>, index: usize) -> Result<Option<usize>, EditRefusal> {
    if found.len() > 1 {
        let places = found.iter().take(MAX_PLACES).map(|at| line_of(text, *at)).collect();
        let more = found.len() > MAX_PLACES;
        return Err(EditRefusal::Ambiguous { index, lines: places, more });
    }
    Ok(found.first().copied())
}

/// `newText` as it goes into the file. A single line that becomes several gets the line ends of its
/// file, when that has only CRLF: a model writes LF without meaning it. Where `oldText` has a line
/// end itself, it has told which one it means.
fn with_line_ends_of(original: &[u8], asked: &Replacement) -> Vec<u8> {
    let tells = asked.old_text.contains(['\r', '\n']) || asked.new_text.contains('\r');
    if !tells && asked.new_text.contains('\n') && line_ends(original) == LineEnds::Crlf {
        return to_crlf(&asked.new_text);
    }
    asked.new_text.clone().into_bytes()
}

/// The place of an `oldText` with LF in a file that has CRLF there.
fn place_despite_crlf(
    original: &[u8],
    asked: &Replacement,
    index: usize,
) -> Result<Splice, EditRefusal> {
    let missing = EditRefusal::Missing { index };
    if !asked.old_text.contains('\n') || asked.old_text.contains('\r') {
        return Err(missing);
    }
    let plain = WithoutCr::of(original);
    let found = occurrences(&plain.text, asked.old_text.as_bytes());
    let Some(at) = only(&plain.text, found, index)? else { return Err(missing) };
    let range = plain.original_range(at..at + asked.old_text.len());
    if line_ends(&original[range.clone()]) != LineEnds::Crlf {
        return Err(EditRefusal::MixedLineEnds { index, line: line_of(original, range.start) });
    }
    Ok(Splice { range, text: to_crlf(&asked.new_text), index })
}

/// A text with LF for each CR LF, and the way back.
struct WithoutCr {
    text: Vec<u8>,
    /// Where, in `text`, the line feeds are that had a CR.
    dropped: Vec<usize>,
}

impl WithoutCr {
    fn of(original: &[u8]) -> Self {
        let mut text = Vec::with_capacity(original.len());
        let mut dropped = Vec::new();
        let mut kept = 0;
        for at in memmem::find_iter(original, b"\r\n") {
            text.extend_from_slice(&original[kept..at]);
            dropped.push(text.len());
            kept = at + 1;
        }
        text.extend_from_slice(&original[kept..]);
        WithoutCr { text, dropped }
    }

    /// The same text in the original. A range that begins at a line feed leaves its CR outside only
    /// if it is not the line feed's own, so the CR belongs to the range.
    fn original_range(&self, range: Range<usize>) -> Range<usize> {
        let before = |at: usize| self.dropped.partition_point(|dropped| *dropped < at);
        range.start + before(range.start)..range.end + before(range.end)
    }
}

#[derive(Debug, PartialEq)]
enum LineEnds {
    None,
    Lf,
    Crlf,
    Mixed,
}

fn line_ends(text: &[u8]) -> LineEnds {
    let all = memchr::memchr_iter(b'\n', text).count();
    let crlf = memmem::find_iter(text, b"\r\n").count();
    match (all, crlf) {
        (0, _) => LineEnds::None,
        (_, 0) => LineEnds::Lf,
        (all, crlf) if all == crlf => LineEnds::Crlf,
        _ => LineEnds::Mixed,
    }
}

/// The text with CR LF for each line feed that has no CR yet.
fn to_crlf(text: &str) -> Vec<u8> {
    text.replace("\r\n", "\n").replace('\n', "\r\n").into_bytes()
}

fn overlap(original: &[u8], one: &Splice, other: &Splice) -> Option<EditRefusal> {
    let (first, second) = (one.index.min(other.index), one.index.max(other.index));
    let line = line_of(original, other.range.start);
    (one.range.end > other.range.start).then_some(EditRefusal::Overlap { first, second, line })
}

fn times(more: bool, count: usize) -> String {
    match (more, count) {
        (true, count) => format!("more than {count} times"),
        (false, 2) => "twice".into(),
        (false, count) => format!("{count} times"),
    }
}

/// Some numbers of lines, in words.
pub(super) fn listed(lines: &[usize]) -> String {
    lines.iter().map(usize::to_string).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use proptest::prelude::*;

    use super::*;

    fn replacements(pairs: &[(&str, &str)]) -> Vec<Replacement> {
        let replacement = |(old, new): &(&str, &str)| Replacement {
            old_text: (*old).into(),
            new_text: (*new).into(),
        };
        pairs.iter().map(replacement).collect()
    }

    /// The new content, or the refusals, one per line.
    fn edited(original: &[u8], pairs: &[(&str, &str)]) -> Result<Vec<u8>, String> {
        match plan(original, &replacements(pairs)) {
            Ok(splices) => Ok(apply(original, &splices)),
            Err(refusals) => {
                Err(refusals.iter().map(EditRefusal::to_string).collect::<Vec<_>>().join("\n"))
            }
        }
    }

    #[test]
    fn bytes_outside_of_the_replaced_text_stay() {
        type Case = (&'static [u8], &'static [(&'static str, &'static str)], &'static [u8]);
        const CASES: &[Case] = &[
            (b"a b c", &[("b", "B")], b"a B c"),
            (b"a b c", &[("c", "C"), ("a", "A")], b"A b C"),
            (b"ab", &[("a", "x"), ("b", "y")], b"xy"),
            (b"a b c", &[("b ", "")], b"a c"),
            // Replacements see the original, not each other's work.
            (b"one two", &[("one", "two"), ("two", "one")], b"two one"),
            // Line ends, byte order mark, missing last line end, other encodings.
            (b"a\r\nb\r\n", &[("b", "B")], b"a\r\nB\r\n"),
            (b"a\r\nb\nc\r\n", &[("b", "B")], b"a\r\nB\nc\r\n"),
            (b"\xef\xbb\xbfa\nb", &[("a", "A")], b"\xef\xbb\xbfA\nb"),
            (b"\xef\xbb\xbfa\nb", &[("b", "B")], b"\xef\xbb\xbfa\nB"),
            (b"caf\xe9 a\xff\xfe", &[("a\u{0}", "x"), ("caf", "x")], b""),
            (b"caf\xe9 old \xff\xfe\n", &[("old", "new")], b"caf\xe9 new \xff\xfe\n"),
            (b"a\0b", &[("b", "c")], b"a\0c"),
            ("é ü".as_bytes(), &[("ü", "ö")], "é ö".as_bytes()),
            // LF stands for CRLF where the file has that, and newText follows.
            (b"a\r\nb\r\nc\r\n", &[("a\nb", "x\ny\nz")], b"x\r\ny\r\nz\r\nc\r\n"),
            (b"a\r\nb\r\nc\r\n", &[("b\n", "")], b"a\r\nc\r\n"),
            (b"a\r\nb\r\nc\r\n", &[("\nb", "\nB")], b"a\r\nB\r\nc\r\n"),
            (b"x\ny\r\nb\r\nc\n", &[("y\nb", "Y\nB")], b"x\nY\r\nB\r\nc\n"),
            // A line that becomes two does so in the way of its file.
            (b"a\r\nb\r\n", &[("b", "b\nc")], b"a\r\nb\r\nc\r\n"),
            (b"a\r\nb\n", &[("b", "b\nc")], b"a\r\nb\nc\n"),
            (b"a\nb\n", &[("b", "b\nc")], b"a\nb\nc\n"),
            // Who names CR means it.
            (b"a\r\nb\r\n", &[("a\r\nb", "a\nb")], b"a\nb\r\n"),
            (b"a\r\nb\r\n", &[("b", "b\r\nc")], b"a\r\nb\r\nc\r\n"),
        ];
        for (original, pairs, new) in CASES {
            match edited(original, pairs) {
                Ok(content) => assert_eq!(content, *new, "{pairs:?}"),
                Err(refusal) => assert!(new.is_empty(), "{pairs:?}: {refusal}"),
            }
        }
    }

    #[test]
    fn what_is_not_certain_is_refused() {
        type Case = (&'static str, &'static [(&'static str, &'static str)], &'static str);
        const CASES: &[Case] = &[
            ("a", &[], "edits is empty"),
            ("a", &[("", "x")], "edits[0].oldText is empty"),
            ("", &[("", "x")], "edits[0].oldText is empty"),
            ("a", &[("a", "a")], "edits[0] changes nothing"),
            ("a", &[("b", "x")], "edits[0].oldText is not in the file"),
            ("a\nb\na\n", &[("a", "x")], "edits[0].oldText is in the file twice, at lines 1, 3;"),
            ("aaa", &[("aa", "x")], "in the file twice, at lines 1, 1;"),
            ("a a a", &[("a", "x")], "in the file 3 times, at lines 1, 1, 1;"),
            ("abc\n", &[("ab", "x"), ("bc", "y")], "edits[0] and edits[1] overlap at line 1"),
            ("q\nabc\n", &[("bc", "x"), ("abc", "y")], "edits[0] and edits[1] overlap at line 2"),
            ("abc", &[("b", "x"), ("b", "y")], "edits[0] and edits[1] overlap at line 1"),
            // Similar is not the same.
            ("a  b", &[("a b", "x")], "is not in the file"),
            ("“a”", &[("\"a\"", "x")], "is not in the file"),
            ("a \nb", &[("a\nb", "x")], "is not in the file"),
            ("A", &[("a", "x")], "is not in the file"),
            // Line ends.
            (
                "a\r\nb\nc\n",
                &[("a\nb\nc", "x")],
                "edits[0].oldText is at line 1, but with other line ends",
            ),
            ("a\r\nb\r\na\r\nb\r\n", &[("a\nb", "x")], "in the file twice, at lines 1, 3;"),
            ("a\nb\n", &[("a\r\nb", "x")], "is not in the file"),
            // All that is wrong is said at once.
            (
                "a a",
                &[("a", "x"), ("b", "y")],
                "at lines 1, 1; add lines around it until it occurs once\nedits[1].oldText is not",
            ),
        ];
        for (original, pairs, told) in CASES {
            let refusal = edited(original.as_bytes(), pairs).unwrap_err();
            assert!(refusal.contains(told), "{original:?} {pairs:?}: {refusal}");
        }
        let pairs = vec![("b", "x"); 50];
        assert_eq!(edited(b"a", &pairs).unwrap_err().lines().count(), MAX_REFUSALS);
        let many = "a\n".repeat(50);
        let refusal = edited(many.as_bytes(), &[("a", "x")]).unwrap_err();
        assert!(refusal.contains("more than 10 times, at lines 1, 2, 3, 4, 5, 6, 7, 8, 9, 10;"));
    }

    /// Pieces that are kept, around unique texts that are replaced.
    fn pieces() -> impl Strategy<Value = Vec<Vec<u8>>> {
        let byte = prop_oneof![Just(b'\r'), Just(b'\n'), Just(0xff), Just(0xc3), any::<u8>()];
        let kept =
            proptest::collection::vec(byte.prop_filter("markers are ours", |b| *b != b'<'), 0..12);
        proptest::collection::vec(kept, 1..6)
    }

    proptest! {
        #[test]
        fn any_bytes_around_survive(pieces in pieces(), new in "[a\u{e9}]{0,4}") {
            let markers: Vec<String> = (0..pieces.len() - 1).map(|at| format!("<{at}>")).collect();
            let joined = |between: &dyn Fn(usize) -> Vec<u8>| {
                let mut whole = pieces[0].clone();
                for (at, piece) in pieces[1..].iter().enumerate() {
                    whole.extend(between(at));
                    whole.extend(piece);
                }
                whole
            };
            let original = joined(&|at| markers[at].clone().into_bytes());
            let expected = joined(&|_| new.clone().into_bytes());
            let asked: Vec<_> = markers.iter().rev().map(|marker| (marker.as_str(), new.as_str())).collect();
            match asked.is_empty() {
                true => prop_assert!(edited(&original, &asked).is_err()),
                false => prop_assert_eq!(edited(&original, &asked).unwrap(), expected),
            }
        }

        #[test]
        fn a_plan_replaces_exactly_what_was_asked(original in "[ab\r\n]{0,20}", old in "[ab\n]{1,3}", new in "[ab]{0,2}") {
            let original = original.as_bytes();
            let Ok(splices) = plan(original, &replacements(&[(&old, &new)])) else { return Ok(()) };
            let range = splices[0].range.clone();
            let replaced = std::str::from_utf8(&original[range.clone()]).unwrap();
            prop_assert_eq!(replaced.replace("\r\n", "\n"), old);
            let result = apply(original, &splices);
            prop_assert!(result.starts_with(&original[..range.start]));
            prop_assert!(result.ends_with(&original[range.end..]));
        }
    }
}
