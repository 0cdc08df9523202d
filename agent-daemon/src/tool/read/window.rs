//! Some lines out of a stream of bytes, and what to say about the others.
//!
//! Owns: where the lines begin and end, the limits on what is shown, the notices.
//! Never: keeps more in memory than what is shown and one chunk.

use std::{
    fs::File,
    io::{self, BufRead, BufReader, Seek, SeekFrom},
};

use super::super::text::{counted, grouped};

/// How much is read at once.
pub(super) const CHUNK: usize = 256 * 1024;

/// Lines that are not shown are counted when no more than this has to be read for it.
const COUNTED_BYTES: u64 = 32 * 1024 * 1024;

/// A short text may have many bytes that are not UTF-8; in a long one they say that all of it is not.
const MANY: u64 = 100;

/// Bytes to take lines from.
pub(super) trait Source: BufRead {
    /// Passes a hole of a sparse file, without reading it; the number of bytes passed.
    fn pass_hole(&mut self) -> io::Result<u64> {
        Ok(0)
    }
}

impl Source for BufReader<File> {
    fn pass_hole(&mut self) -> io::Result<u64> {
        if !self.buffer().is_empty() {
            return Ok(0);
        }
        let here = self.stream_position()?;
        let next = match rustix::fs::seek(self.get_ref(), rustix::fs::SeekFrom::Data(here)) {
            Ok(next) => next,
            // The hole reaches to the end.
            Err(rustix::io::Errno::NXIO) => self.seek(SeekFrom::End(0))?,
            // This file system knows no holes; the call has not moved anything.
            Err(_) => here,
        };
        Ok(next.saturating_sub(here))
    }
}

/// What is wanted of a file.
#[derive(Clone, Copy)]
pub(super) struct WindowSize {
    /// The first line, from 1.
    pub(super) first: u64,
    /// At most so many lines.
    pub(super) lines: u64,
    /// At most so many bytes.
    pub(super) bytes: usize,
    /// How long the file says that it is.
    pub(super) file: u64,
}

/// The lines that are shown.
#[derive(Debug, PartialEq)]
pub(super) struct Window {
    /// Their bytes, line ends included.
    pub(super) text: Vec<u8>,
    /// The first one's number.
    pub(super) first: u64,
    /// The last one's number; below `first` for an empty file.
    pub(super) last: u64,
    /// How many lines the file has, where that is known.
    pub(super) total: Option<u64>,
    end: End,
}

/// Why a window ends where it does.
#[derive(Debug, PartialEq)]
enum End {
    /// The file does.
    OfFile,
    /// There are more lines.
    More,
    /// The only line shown is longer than a window; this is its length, where that is known.
    InLine { length: Option<u64> },
}

#[derive(Debug, thiserror::Error)]
pub(super) enum WindowError {
    #[error("the file has only {lines} lines")]
    PastTheEnd { lines: u64 },
    #[error("stopped")]
    Stopped,
    #[error(transparent)]
    Io(#[from] io::Error),
}

/// Reads the wanted lines.
pub(super) fn cut(
    reader: impl Source,
    wanted: WindowSize,
    stop: &dyn Fn() -> bool,
) -> Result<Window, WindowError> {
    let mut lines = Lines { reader, consumed: 0, stop };
    let before = lines.skip(wanted.first - 1, u64::MAX)?.expect("no budget was set");
    if before.partial || before.ended < wanted.first - 1 || (wanted.first > 1 && lines.at_end()?) {
        return Err(WindowError::PastTheEnd { lines: before.count() });
    }
    let begin = lines.consumed;
    let (text, shown, in_line) = lines.collect(wanted)?;
    let last = wanted.first + shown.count() - 1;
    let end = match in_line {
        true => {
            let rest = lines.skip(1, wanted.budget(lines.consumed))?;
            End::InLine { length: rest.map(|_| lines.consumed - begin) }
        }
        false if lines.at_end()? => End::OfFile,
        false => End::More,
    };
    let total = match &end {
        End::OfFile => Some(last),
        End::InLine { length: None } => None,
        _ => {
            let budget = wanted.budget(lines.consumed);
            lines.skip(u64::MAX, budget)?.map(|rest| last + rest.count())
        }
    };
    Ok(Window { text, first: wanted.first, last, total, end })
}

impl WindowSize {
    /// How much may be read to count lines: all the rest, or nothing. Files whose length says
    /// nothing, such as those in /proc, are short.
    fn budget(&self, consumed: u64) -> u64 {
        match self.file.saturating_sub(consumed) {
            rest if rest <= COUNTED_BYTES => COUNTED_BYTES,
            _ => 0,
        }
    }
}

/// Lines that went by.
#[derive(Clone, Copy, Default)]
struct Passed {
    /// Those with a line end.
    ended: u64,
    /// Whether there was a last one without.
    partial: bool,
}

impl Passed {
    fn count(self) -> u64 {
        self.ended + u64::from(self.partial)
    }
}

struct Lines<'a, R> {
    reader: R,
    consumed: u64,
    stop: &'a dyn Fn() -> bool,
}

impl<R: Source> Lines<'_, R> {
    fn chunk(&mut self) -> Result<&[u8], WindowError> {
        if (self.stop)() {
            return Err(WindowError::Stopped);
        }
        Ok(self.reader.fill_buf()?)
    }

    fn consume(&mut self, bytes: usize) {
        self.reader.consume(bytes);
        self.consumed += bytes as u64;
    }

    fn at_end(&mut self) -> Result<bool, WindowError> {
        Ok(self.chunk()?.is_empty())
    }

    /// Passes so many lines, or all there are; none when that takes more bytes than the budget.
    fn skip(&mut self, lines: u64, budget: u64) -> Result<Option<Passed>, WindowError> {
        let mut passed = Passed::default();
        let begin = self.consumed;
        while passed.ended < lines {
            if self.consumed - begin >= budget {
                return Ok(None);
            }
            let chunk = self.chunk()?;
            if chunk.is_empty() {
                return Ok(Some(passed));
            }
            let missing = usize::try_from(lines - passed.ended).unwrap_or(usize::MAX);
            // Counting is several times faster than finding, and most chunks are passed whole.
            let mut ends = memchr::memchr_iter(b'\n', chunk);
            let (count, used) = match ends.clone().count() {
                count if count < missing => (count, chunk.len()),
                _ => (missing, ends.nth(missing - 1).map_or(chunk.len(), |end| end + 1)),
            };
            let last = chunk[used - 1];
            passed.partial = last != b'\n';
            passed.ended += count as u64;
            self.consume(used);
            if last == 0 && passed.ended < lines {
                // Most likely a hole: gigabytes without a line end, which cost seconds to read.
                self.consumed += self.reader.pass_hole()?;
            }
        }
        Ok(Some(passed))
    }

    /// The wanted lines, as many as fit; and whether the only one that does had to be cut.
    fn collect(&mut self, wanted: WindowSize) -> Result<(Vec<u8>, Passed, bool), WindowError> {
        let mut text = Vec::new();
        let mut passed = Passed::default();
        // Where the line begins that is being read.
        let mut begin = 0;
        while passed.ended < wanted.lines {
            let room = wanted.bytes - text.len();
            let chunk = self.chunk()?;
            let reach = &chunk[..chunk.len().min(room)];
            let end = memchr::memchr(b'\n', reach);
            let used = end.map_or(reach.len(), |end| end + 1);
            if chunk.is_empty() {
                break;
            }
            if used == 0 {
                return Ok(self.cut_line(text, begin, passed));
            }
            text.extend_from_slice(&reach[..used]);
            passed.ended += u64::from(end.is_some());
            passed.partial = end.is_none();
            begin = if end.is_some() { text.len() } else { begin };
            self.consume(used);
        }
        Ok((text, passed, false))
    }

    /// The window is full in the middle of a line: the line goes, unless it is the only one.
    fn cut_line(
        &mut self,
        mut text: Vec<u8>,
        begin: usize,
        passed: Passed,
    ) -> (Vec<u8>, Passed, bool) {
        if begin > 0 {
            text.truncate(begin);
            return (text, Passed { partial: false, ..passed }, false);
        }
        drop_cut_character(&mut text);
        (text, Passed { ended: 0, partial: true }, true)
    }
}

/// Takes off a character that the end of the text cuts.
fn drop_cut_character(text: &mut Vec<u8>) {
    let cut = text.utf8_chunks().last().map_or(0, |chunk| chunk.invalid().len());
    let tail = &text[text.len() - cut..];
    if std::str::from_utf8(tail).is_err_and(|error| error.error_len().is_none()) {
        text.truncate(text.len() - cut);
    }
}

impl Window {
    /// Whether there is more than what is shown.
    pub(super) fn is_cut(&self) -> bool {
        self.end != End::OfFile
    }

    /// What the bytes are, when they are no text.
    pub(super) fn binary_kind(&self) -> Option<&'static str> {
        match self.text.as_slice() {
            [0xff, 0xfe, ..] | [0xfe, 0xff, ..] => return Some("a file in UTF-16"),
            text if memchr::memchr(0, text).is_some() => return Some("a binary file"),
            _ => {}
        }
        let foreign = self.foreign_bytes();
        if foreign > MANY && foreign * 3 > self.text.len() as u64 {
            return Some("a file in an unknown encoding");
        }
        let odd = |byte: &&u8| matches!(byte, 0x01..=0x08 | 0x0e..=0x1a | 0x1c..=0x1f | 0x7f);
        let strange = self.text.iter().filter(odd).count();
        (strange * 10 > self.text.len()).then_some("a binary file")
    }

    /// What has to be said besides the text, one sentence or two each.
    pub(super) fn notices(&self, named: &str) -> Vec<String> {
        let mut notices = Vec::new();
        let of_total = match self.total {
            Some(total) => format!(" of {}", grouped(total)),
            None => String::new(),
        };
        match &self.end {
            End::OfFile => {}
            End::More => notices.push(format!(
                "[Lines {}-{}{of_total} are shown. Use offset={} to go on.]",
                grouped(self.first),
                grouped(self.last),
                self.last + 1,
            )),
            End::InLine { length } => notices.push(self.long_line(*length, &of_total, named)),
        }
        let crlf = memchr::memmem::find_iter(&self.text, b"\r\n").count();
        let others = memchr::memchr_iter(b'\n', &self.text).count() - crlf;
        match (crlf, others) {
            (0, _) => {}
            (_, 0) => notices.push("[Line ends are CRLF.]".into()),
            _ => notices.push("[Line ends are mixed: some are CRLF, some LF.]".into()),
        }
        let foreign = self.foreign_bytes();
        if foreign > 0 {
            notices.push(format!(
                "[{} not UTF-8 and shown as \u{fffd}. `edit` keeps such bytes; leave them out of \
                 oldText.]",
                match foreign {
                    1 => "1 byte is".into(),
                    more => format!("{} bytes are", grouped(more)),
                },
            ));
        }
        notices
    }

    fn long_line(&self, length: Option<u64>, of_total: &str, named: &str) -> String {
        let length = match length {
            Some(length) => format!(" of its {}", counted(length, "byte")),
            None => String::new(),
        };
        let next = match self.total {
            Some(total) if total == self.last => String::new(),
            _ => format!(" Use offset={} for the next line.", self.last + 1),
        };
        format!(
            "[Line {}{of_total} is too long: the first {}{length} are shown. For the rest of it use \
             bash, for example: sed -n {}p {} | cut -b {}-{}.{next}]",
            grouped(self.first),
            grouped(self.text.len() as u64),
            self.first,
            quoted(named),
            self.text.len() + 1,
            self.text.len() * 2,
        )
    }

    /// How many bytes are in no UTF-8 character.
    fn foreign_bytes(&self) -> u64 {
        self.text.utf8_chunks().map(|chunk| chunk.invalid().len() as u64).sum()
    }
}

/// A word as a shell takes it literally.
fn quoted(word: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"/._-+=:@%".contains(&byte);
    if word.bytes().all(plain) { word.into() } else { format!("'{}'", word.replace('\'', r"'\''")) }
}
