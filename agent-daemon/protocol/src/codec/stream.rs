//! Bytes to frames in the two framings of a stream, lines and headers (W1.1 to W1.3).
//!
//! Owns: the framing that a peer chose, and the bytes that are not a whole frame yet.
//! Never: reads. What a frame costs in memory is bounded by the limit on a message, which applies to
//! the declared length, before a byte of the body is stored.

use std::ops::Range;

use crate::codec::framing::{
    FrameError, Framing, KEPT_BYTES, MAX_HEADER_BYTES, MAX_SKIPPED_BYTES, MessageDecoder,
    READ_BYTES, RawMessage,
};

/// Finds the messages in a stream of bytes, in lines or behind headers.
#[derive(Debug)]
pub struct StreamDecoder {
    max_message_bytes: usize,
    state: State,
    buffer: Vec<u8>,
    // Invariant: what lies before it is decoded and may be dropped.
    start: usize,
    // Invariant: there is no line feed from `start` to here. Keeps a long line linear.
    searched: usize,
}

#[derive(Clone, Copy, Debug)]
enum State {
    /// Before the first byte that is not blank.
    Undecided,
    Line,
    SkippedLine {
        skipped: u64,
    },
    Headers {
        taken: usize,
        length: Option<u64>,
    },
    Body {
        length: usize,
    },
    SkippedBody {
        left: u64,
    },
    /// After an error: there is nothing to read any more.
    Broken,
}

/// A frame by its place in the buffer.
enum Found {
    Message(Range<usize>),
    TooLarge,
}

impl StreamDecoder {
    /// A decoder for a connection that has not said anything yet.
    pub fn new(max_message_bytes: usize) -> Self {
        StreamDecoder {
            max_message_bytes,
            state: State::Undecided,
            buffer: Vec::new(),
            start: 0,
            searched: 0,
        }
    }

    fn frame(&self, found: Found) -> RawMessage<'_> {
        match found {
            Found::TooLarge => RawMessage::TooLarge { limit: self.max_message_bytes },
            Found::Message(range) => match std::str::from_utf8(&self.buffer[range]) {
                Ok(text) => RawMessage::Text(text),
                Err(_) => RawMessage::NotText,
            },
        }
    }

    fn advance(&mut self) -> Option<Result<Found, FrameError>> {
        loop {
            let found = match self.state {
                State::Undecided => self.decide()?,
                State::Line => self.line()?,
                State::SkippedLine { skipped } => self.skip_line(skipped)?,
                State::Headers { taken, length } => self.header(taken, length)?,
                State::Body { length } => Ok(Some(self.body(length)?)),
                State::SkippedBody { left } => self.skip_body(left)?,
                State::Broken => {
                    self.take(self.buffer.len() - self.start);
                    return None;
                }
            };
            match found {
                Ok(Some(found)) => return Some(Ok(found)),
                Ok(None) => {}
                Err(error) => return Some(Err(error)),
            }
        }
    }

    /// W1.1: the first byte that is not blank chooses the framing.
    fn decide(&mut self) -> Option<Result<Option<Found>, FrameError>> {
        let rest = &self.buffer[self.start..];
        let blanks = rest.iter().take_while(|byte| byte.is_ascii_whitespace()).count();
        let first = rest.get(blanks).copied();
        self.take(blanks);
        self.state = match first? {
            b'{' | b'[' | b'"' | b'-' | b't' | b'f' | b'n' | b'0'..=b'9' => State::Line,
            b'C' | b'c' => State::Headers { taken: 0, length: None },
            other => return Some(Err(FrameError::FirstByte(other))),
        };
        Some(Ok(None))
    }

    fn line(&mut self) -> Option<Result<Option<Found>, FrameError>> {
        let Some(end) = self.line_feed() else {
            let waiting = without_cr(&self.buffer, self.start..self.buffer.len()).len();
            if waiting <= self.max_message_bytes {
                return None;
            }
            let skipped = self.buffer.len() - self.start;
            self.take(skipped);
            self.state = State::SkippedLine { skipped: skipped as u64 };
            return Some(Ok(Some(Found::TooLarge)));
        };
        let line = without_cr(&self.buffer, self.start..end);
        self.take(end + 1 - self.start);
        if line.len() > self.max_message_bytes {
            return Some(Ok(Some(Found::TooLarge)));
        }
        let is_empty = is_blank(&self.buffer[line.clone()]);
        Some(Ok((!is_empty).then_some(Found::Message(line))))
    }

    fn skip_line(&mut self, skipped: u64) -> Option<Result<Option<Found>, FrameError>> {
        let end = self.line_feed();
        let more = end.map_or(self.buffer.len(), |end| end + 1) - self.start;
        self.take(more);
        let skipped = skipped + more as u64;
        if skipped > MAX_SKIPPED_BYTES {
            return Some(Err(FrameError::Endless));
        }
        self.state = match end {
            Some(_) => State::Line,
            None => State::SkippedLine { skipped },
        };
        end.map(|_| Ok(None))
    }

    fn header(
        &mut self,
        taken: usize,
        length: Option<u64>,
    ) -> Option<Result<Option<Found>, FrameError>> {
        let end = self.line_feed();
        let line = self.start..end.unwrap_or(self.buffer.len());
        if taken + line.len() + usize::from(end.is_some()) > MAX_HEADER_BYTES {
            return Some(Err(FrameError::LongHeaders));
        }
        end?;
        self.take(line.len() + 1);
        let taken = taken + line.len() + 1;
        let line = &self.buffer[without_cr(&self.buffer, line)];
        self.state = match (line, length) {
            // Before a block of headers, as before the first, a blank line says nothing.
            (b"", None) if taken <= 2 => State::Headers { taken: 0, length: None },
            (b"", None) => return Some(Err(FrameError::ContentLength)),
            (b"", Some(length)) => return self.begin_body(length),
            (line, length) => match header_line(line, length) {
                Ok(length) => State::Headers { taken, length },
                Err(error) => return Some(Err(error)),
            },
        };
        Some(Ok(None))
    }

    fn begin_body(&mut self, length: u64) -> Option<Result<Option<Found>, FrameError>> {
        if length > MAX_SKIPPED_BYTES {
            return Some(Err(FrameError::Endless));
        }
        if length > self.max_message_bytes as u64 {
            self.state = State::SkippedBody { left: length };
            return Some(Ok(Some(Found::TooLarge)));
        }
        self.state = State::Body { length: length as usize };
        Some(Ok(None))
    }

    fn body(&mut self, length: usize) -> Option<Found> {
        let body = self.start..self.start + length;
        if body.end > self.buffer.len() {
            return None;
        }
        self.take(length);
        self.state = State::Headers { taken: 0, length: None };
        Some(Found::Message(body))
    }

    fn skip_body(&mut self, left: u64) -> Option<Result<Option<Found>, FrameError>> {
        let here = left.min((self.buffer.len() - self.start) as u64);
        self.take(here as usize);
        self.state = match left - here {
            0 => State::Headers { taken: 0, length: None },
            left => State::SkippedBody { left },
        };
        (left == here).then_some(Ok(None))
    }

    fn line_feed(&mut self) -> Option<usize> {
        let from = self.searched.max(self.start);
        let found = self.buffer[from..].iter().position(|byte| *byte == b'\n');
        self.searched = found.map_or(self.buffer.len(), |at| from + at);
        found.map(|at| from + at)
    }

    fn take(&mut self, bytes: usize) {
        self.start += bytes;
        self.searched = self.searched.max(self.start);
    }
}

impl MessageDecoder for StreamDecoder {
    fn set_max_message_bytes(&mut self, max: usize) {
        self.max_message_bytes = max;
    }

    fn framing(&self) -> Option<Framing> {
        match self.state {
            State::Undecided | State::Broken => None,
            State::Line | State::SkippedLine { .. } => Some(Framing::Lines),
            State::Headers { .. } | State::Body { .. } | State::SkippedBody { .. } => {
                Some(Framing::Headers)
            }
        }
    }

    fn room(&mut self) -> &mut Vec<u8> {
        self.buffer.drain(..self.start);
        self.searched -= self.start;
        self.start = 0;
        if self.buffer.is_empty() && self.buffer.capacity() > KEPT_BYTES {
            self.buffer = Vec::new();
        }
        // Not by the declared length: whoever declares much has not sent it yet.
        self.buffer.reserve(READ_BYTES);
        &mut self.buffer
    }

    fn next(&mut self) -> Option<Result<RawMessage<'_>, FrameError>> {
        let found = self.advance();
        if let Some(Err(_)) = found {
            self.state = State::Broken;
        }
        Some(found?.map(|found| self.frame(found)))
    }

    /// A line may lack its end.
    fn finish(&mut self) -> Option<RawMessage<'_>> {
        let rest = self.start..self.buffer.len();
        self.take(rest.len());
        let is_line = matches!(self.state, State::Line) && !is_blank(&self.buffer[rest.clone()]);
        is_line.then(|| self.frame(Found::Message(without_cr(&self.buffer, rest))))
    }
}

fn is_blank(bytes: &[u8]) -> bool {
    bytes.iter().all(u8::is_ascii_whitespace)
}

fn without_cr(buffer: &[u8], line: Range<usize>) -> Range<usize> {
    match buffer[line.clone()] {
        [.., b'\r'] => line.start..line.end - 1,
        _ => line,
    }
}

/// Reads one header line and answers the length that is known after it.
fn header_line(line: &[u8], length: Option<u64>) -> Result<Option<u64>, FrameError> {
    let colon = line.iter().position(|byte| *byte == b':').ok_or(FrameError::Header)?;
    let (name, value) = (&line[..colon], line[colon + 1..].trim_ascii());
    if name.eq_ignore_ascii_case(b"Content-Type") {
        return Ok(length);
    }
    if !name.eq_ignore_ascii_case(b"Content-Length") {
        return Err(FrameError::Header);
    }
    let is_number = !value.is_empty() && value.iter().all(u8::is_ascii_digit);
    if length.is_some() || !is_number {
        return Err(FrameError::ContentLength);
    }
    let digits = value.iter().map(|digit| u64::from(digit - b'0'));
    // What does not fit a u64 is more than we skip, whatever it is.
    Ok(Some(digits.fold(0, |number: u64, digit| number.saturating_mul(10).saturating_add(digit))))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use proptest::prelude::*;

    use super::*;
    use crate::codec::{framing::tests::check_every_cut, one_line};

    const MAX: usize = 16;

    /// Bytes in, story out: messages ended by `|`, what happened otherwise in brackets.
    const CASES: &[(&str, &str)] = &[
        ("", ""),
        (" \r\n\t", ""),
        // Lines.
        ("{}\n", "{}|"),
        ("  \n{}\r\n\n \n[1]\n", "{}|[1]|"),
        ("{}", "{}|"),
        ("{}\r", "{}|"),
        ("{} \n \"x\"\nnull", "{} | \"x\"|null|"),
        ("\"x\"\n-1\ntrue\nfalse\nnull\n7\n", "\"x\"|-1|true|false|null|7|"),
        ("[1,\r2]\n", "[1,\r2]|"),
        ("\"\u{2028}\"\n{}\n", "\"\u{2028}\"|{}|"),
        ("{}\nContent\n", "{}|Content|"),
        ("1234567890123456\n7\n", "1234567890123456|7|"),
        ("1234567890123456\r\n7\n", "1234567890123456|7|"),
        ("12345678901234567\n7\n", "[too large]7|"),
        ("12345678901234567890123456789012345\n7\n", "[too large]7|"),
        ("1234567890123456\r7\n7\n", "[too large]7|"),
        ("12345678901234567", "[too large]"),
        // Headers.
        ("Content-Length: 2\r\n\r\n{}", "{}|"),
        ("\r\n Content-Length: 2\r\n\r\n{}", "{}|"),
        ("content-length:2\n\n[]CONTENT-LENGTH:  1 \r\n\r\n7", "[]|7|"),
        ("Content-Length: 2\r\n\r\n{}\r\n\nContent-Length: 2\r\n\r\n[]", "{}|[]|"),
        ("Content-Type: x; charset=utf8\r\nContent-Length: 2\r\n\r\n{}", "{}|"),
        ("Content-Length: 2\r\nContent-Type: x\r\n\r\n{}", "{}|"),
        ("Content-Length: 0\r\n\r\nContent-Length: 1\r\n\r\n7", "|7|"),
        ("Content-Length: 4\r\n\r\n\"é\"", "\"é\"|"),
        ("Content-Length: 3\r\n\r\n{\n}", "{\n}|"),
        ("Content-Length: 5\r\n\r\n{}", ""),
        ("Content-Length: 5\r\n", ""),
        ("Content-Length: 17\r\n\r\n12345678901234567Content-Length: 1\r\n\r\n7", "[too large]7|"),
        ("Content-Length: 17\r\n\r\n1234", "[too large]"),
        ("Content-Length: 1073741824\r\n\r\n1234", "[too large]"),
        ("Content-Length: 1073741825\r\n\r\n1234", "[endless]"),
        ("Content-Length: 99999999999999999999999\r\n\r\n1234", "[endless]"),
        ("Content-Length: 2\r\nContent-Length: 2\r\n\r\n{}", "[content length]"),
        ("Content-Length: \r\n\r\n{}", "[content length]"),
        ("Content-Length: -2\r\n\r\n{}", "[content length]"),
        ("Content-Length: +2\r\n\r\n{}", "[content length]"),
        ("Content-Length: 0x2\r\n\r\n{}", "[content length]"),
        ("Content-Length: 2 2\r\n\r\n{}", "[content length]"),
        ("Content-Type: x\r\n\r\n{}", "[content length]"),
        ("Content-Length : 2\r\n\r\n{}", "[header]"),
        ("Content-Length: 2\r\n Content-Type: x\r\n\r\n{}", "[header]"),
        ("Content-Length 2\r\n\r\n{}", "[header]"),
        ("Content-Length: 2\r\nHost: x\r\n\r\n{}", "[header]"),
        ("Content-Length: 2\r\n\r\n{}{}\r\n", "{}|[header]"),
        ("CONNECT a:1 HTTP/1.1\r\n", "[header]"),
        ("clear\n", "[header]"),
        // Neither.
        ("GET / HTTP/1.1\r\n\r\n", "[first byte]"),
        ("POST / HTTP/1.1\r\n\r\n{}", "[first byte]"),
        (" x{}\n", "[first byte]"),
        ("\u{feff}{}\n", "[first byte]"),
    ];

    fn decode(pieces: &[&[u8]]) -> String {
        let mut decoder = StreamDecoder::new(MAX);
        let mut story = String::new();
        for piece in pieces {
            decoder.room().extend_from_slice(piece);
            while let Some(frame) = decoder.next() {
                tell(frame, &mut story);
            }
        }
        if let Some(frame) = decoder.finish() {
            tell(Ok(frame), &mut story);
        }
        story
    }

    fn tell(frame: Result<RawMessage<'_>, FrameError>, story: &mut String) {
        match frame {
            Ok(RawMessage::Text(text)) => {
                story.push_str(text);
                story.push('|');
            }
            Ok(RawMessage::NotText) => story.push_str("[not utf-8]"),
            Ok(RawMessage::TooLarge { limit: MAX }) => story.push_str("[too large]"),
            Ok(RawMessage::TooLarge { .. }) => story.push_str("[wrong limit]"),
            Err(FrameError::FirstByte(_)) => story.push_str("[first byte]"),
            Err(FrameError::Header) => story.push_str("[header]"),
            Err(FrameError::ContentLength) => story.push_str("[content length]"),
            Err(FrameError::LongHeaders) => story.push_str("[long headers]"),
            Err(FrameError::Endless) => story.push_str("[endless]"),
            other => panic!("{other:?}"),
        }
    }

    // W1.1
    #[test]
    fn framing_does_not_depend_on_chunking() {
        for (bytes, story) in CASES {
            check_every_cut(decode, bytes.as_bytes(), story);
        }
    }

    #[test]
    fn bytes_that_are_no_text_spoil_only_their_own_message() {
        let lines = b"{\"a\":\"\xff\"}\n{}\n";
        let headers = b"Content-Length: 3\r\n\r\n\"\xc3\"Content-Length: 2\r\n\r\n{}";
        for bytes in [lines.as_slice(), headers.as_slice()] {
            check_every_cut(decode, bytes, "[not utf-8]{}|");
        }
    }

    // W1.2
    #[test]
    fn headers_are_bounded_whether_or_not_they_end() {
        let long = format!("Content-Type: {}\r\n", "x".repeat(MAX_HEADER_BYTES));
        assert_eq!(decode(&[long.as_bytes()]), "[long headers]");
        let many = "Content-Type: x\r\n".repeat(1000);
        assert_eq!(decode(&[many.as_bytes()]), "[long headers]");
        let padding =
            "x".repeat(MAX_HEADER_BYTES - "Content-Type: \r\nContent-Length: 2\r\n\r\n".len());
        let full = format!("Content-Type: {padding}\r\nContent-Length: 2\r\n\r\n{{}}");
        assert_eq!(decode(&[full.as_bytes()]), "{}|");
        let over = format!("Content-Type: x{padding}\r\nContent-Length: 2\r\n\r\n{{}}");
        assert_eq!(decode(&[over.as_bytes()]), "[long headers]");
    }

    // W1.3
    #[test]
    fn a_line_without_an_end_is_not_stored_and_is_not_skipped_for_ever() {
        let mut decoder = StreamDecoder::new(MAX);
        let mut story = String::new();
        for last in [false, false, false, true] {
            if last {
                decoder.state = State::SkippedLine { skipped: MAX_SKIPPED_BYTES - 4 };
            }
            decoder.room().extend_from_slice(&[b'1'; 1 << 20]);
            while let Some(frame) = decoder.next() {
                tell(frame, &mut story);
            }
            assert!(decoder.buffer.capacity() <= 4 << 20);
        }
        assert_eq!(story, "[too large][endless]");
    }

    #[test]
    fn a_declared_length_reserves_nothing() {
        let mut decoder = StreamDecoder::new(1 << 30);
        decoder.room().extend_from_slice(b"Content-Length: 1000000000\r\n\r\n{");
        assert!(decoder.next().is_none());
        assert!(decoder.room().capacity() < 1 << 20);
    }

    #[test]
    fn a_large_message_gives_its_memory_back() {
        let mut decoder = StreamDecoder::new(1 << 30);
        decoder.room().extend_from_slice(&[b'1'; 1 << 20]);
        decoder.room().extend_from_slice(b"\n");
        assert!(decoder.next().is_some());
        assert!(decoder.room().capacity() <= KEPT_BYTES);
    }

    // W1.2
    #[test]
    fn what_is_written_is_exact() {
        for (framing, expected) in [
            (Framing::Lines, "{\"a\":1}\n7\n"),
            (Framing::Headers, "Content-Length: 7\r\n\r\n{\"a\":1}Content-Length: 1\r\n\r\n7"),
        ] {
            let mut out = Vec::new();
            framing.encode(&["{\"a\":", "1}"], &mut out);
            framing.encode(&["7"], &mut out);
            assert_eq!(String::from_utf8(out).unwrap(), expected);
        }
    }

    #[test]
    fn what_some_reader_takes_for_a_line_end_is_not_written() {
        let json = "{\"a\":\r\n\"€\u{2028}\u{2029}\u{2027}\"}".to_owned();
        assert_eq!(one_line(json), "{\"a\":  \"€\\u2028\\u2029\u{2027}\"}");
        assert_eq!(one_line("{}".to_owned()), "{}");
    }

    proptest! {
        #[test]
        fn messages_come_out_as_they_went_in(
            texts in proptest::collection::vec("[a-zé€{}\\[\\]\" ]{0,12}", 1..20),
            chunk in 1_usize..40,
            headers in any::<bool>(),
        ) {
            let framing = if headers { Framing::Headers } else { Framing::Lines };
            let mut bytes = Vec::new();
            let mut expected = String::new();
            for text in &texts {
                let text = format!("{{{text}");
                framing.encode(&[&text], &mut bytes);
                let fits = text.len() <= MAX;
                expected.push_str(&if fits { format!("{text}|") } else { "[too large]".into() });
            }
            let pieces: Vec<&[u8]> = bytes.chunks(chunk).collect();
            prop_assert_eq!(decode(&pieces), expected);
        }

        #[test]
        fn no_bytes_make_it_fail_and_no_chunking_changes_the_story(
            bytes in proptest::collection::vec(any::<u8>(), 0..200),
            start in proptest::sample::select(vec!["", "{", "Content-Length: 3\r\n"]),
            chunk in 1_usize..40,
        ) {
            let bytes = [start.as_bytes(), &bytes].concat();
            let pieces: Vec<&[u8]> = bytes.chunks(chunk).collect();
            prop_assert_eq!(decode(&pieces), decode(&[&bytes]));
        }
    }
}
