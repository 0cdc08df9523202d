//! Server-sent events: bytes in, events out.
//!
//! Owns: line ends (CR, LF, CR LF, cut anywhere), comments, the byte order mark, data lines that
//! belong together, and the limit on one event's size.
//! Never: reads a socket or knows what the data means.

use super::cut_characters::text_of;

/// One event. What has no data is none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct SseEvent {
    /// The `event:` field; empty where there was none.
    pub(super) name: String,
    /// The `data:` lines, joined by line feeds; with marks for bytes that are no character, which
    /// may become one with those of the next event.
    pub(super) data: String,
}

/// An event grew past the limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("an event of the stream exceeds {limit} bytes")]
pub(super) struct EventTooLarge {
    pub(super) limit: usize,
}

/// The decoder's state between two pieces of the stream.
#[derive(Debug)]
pub(super) struct SseDecoder {
    limit: usize,
    /// The line that has not ended yet.
    line: Vec<u8>,
    /// The last piece ended in CR: an LF at the start of the next one belongs to it.
    skip_line_feed: bool,
    /// No line has ended yet, so that a byte order mark may still stand before the first.
    at_start: bool,
    name: Vec<u8>,
    data: Vec<u8>,
    has_data: bool,
}

const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

impl SseDecoder {
    /// A decoder that refuses events, and lines of them, above `limit` bytes.
    pub(super) fn new(limit: usize) -> Self {
        SseDecoder {
            limit,
            line: Vec::new(),
            skip_line_feed: false,
            at_start: true,
            name: Vec::new(),
            data: Vec::new(),
            has_data: false,
        }
    }

    /// Takes the next bytes and appends the events that they complete.
    ///
    /// # Errors
    /// An event is too large; the stream cannot be followed further.
    pub(super) fn feed(
        &mut self,
        mut bytes: &[u8],
        events: &mut Vec<SseEvent>,
    ) -> Result<(), EventTooLarge> {
        if self.skip_line_feed && !bytes.is_empty() {
            self.skip_line_feed = false;
            bytes = bytes.strip_prefix(b"\n").unwrap_or(bytes);
        }
        while let Some(end) = bytes.iter().position(|byte| matches!(byte, b'\n' | b'\r')) {
            self.extend_line(&bytes[..end])?;
            let carriage_return = bytes[end] == b'\r';
            bytes = &bytes[end + 1..];
            if carriage_return {
                self.skip_line_feed = bytes.is_empty();
                bytes = bytes.strip_prefix(b"\n").unwrap_or(bytes);
            }
            events.extend(self.end_line());
        }
        self.extend_line(bytes)
    }

    /// Takes the end of the stream. Many servers leave out the last empty line, so what stands in
    /// an event that was not ended still counts; it may be cut off.
    pub(super) fn finish(&mut self) -> Option<SseEvent> {
        let last = if self.line.is_empty() { None } else { self.end_line() };
        last.or_else(|| self.end_event())
    }

    fn extend_line(&mut self, bytes: &[u8]) -> Result<(), EventTooLarge> {
        // Before storing: the limit is there to bound memory.
        if self.line.len() + self.data.len() + bytes.len() > self.limit {
            return Err(EventTooLarge { limit: self.limit });
        }
        self.line.extend_from_slice(bytes);
        Ok(())
    }

    fn end_line(&mut self) -> Option<SseEvent> {
        let line = std::mem::take(&mut self.line);
        let mut rest = line.as_slice();
        if std::mem::take(&mut self.at_start) {
            rest = rest.strip_prefix(BYTE_ORDER_MARK).unwrap_or(rest);
        }
        if rest.is_empty() {
            return self.end_event();
        }
        let (field, value) = match rest.iter().position(|byte| *byte == b':') {
            Some(colon) => (&rest[..colon], &rest[colon + 1..]),
            None => (rest, &[][..]),
        };
        let value = value.strip_prefix(b" ").unwrap_or(value);
        match field {
            b"data" => {
                if self.has_data {
                    self.data.push(b'\n');
                }
                self.data.extend_from_slice(value);
                self.has_data = true;
            }
            b"event" => self.name = value.to_vec(),
            // An empty field is a comment; `id` and `retry` are for clients that reconnect.
            _ => {}
        }
        None
    }

    fn end_event(&mut self) -> Option<SseEvent> {
        let name = std::mem::take(&mut self.name);
        let data = std::mem::take(&mut self.data);
        std::mem::take(&mut self.has_data)
            .then(|| SseEvent { name: text_of(name), data: text_of(data) })
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use proptest::prelude::*;

    use super::*;

    /// Events as `name=data|`, then the error if there is one.
    fn story(pieces: &[&[u8]]) -> String {
        let mut decoder = SseDecoder::new(32);
        let mut events = Vec::new();
        let mut failure = None;
        for piece in pieces {
            failure = decoder.feed(piece, &mut events).err();
            if failure.is_some() {
                break;
            }
        }
        if failure.is_none() {
            events.extend(decoder.finish());
        }
        let mut story = String::new();
        for event in events {
            if !event.name.is_empty() {
                story += &format!("{}=", event.name);
            }
            story += &format!("{}|", event.data);
        }
        story + &failure.map(|failure| failure.to_string()).unwrap_or_default()
    }

    /// Bytes in, story out.
    const CASES: &[(&str, &str)] = &[
        ("", ""),
        ("data: a\n\n", "a|"),
        ("data: a\r\n\r\ndata: b\r\n\r\n", "a|b|"),
        ("data: a\r\rdata: b\r\r", "a|b|"),
        ("data: a\r\n\rdata: b\n\r\n", "a|b|"),
        ("data:a\ndata:  b\n\n", "a\n b|"),
        ("data\ndata\n\n", "\n|"),
        ("data:\n\n", "|"),
        ("\u{feff}data: a\n\n", "a|"),
        ("data: a\n\n\u{feff}data: b\n\n", "a|"),
        (": ping\n\n:\n\ndata: a\n:\ndata: b\n\n", "a\nb|"),
        ("event: e\ndata: a\n\ndata: b\n\n", "e=a|b|"),
        ("event: e\n\ndata: b\n\n", "b|"),
        ("id: 7\nretry: 9\nother: x\ndata: a\n\n", "a|"),
        ("data: 你好 👩‍💻\n\n", "你好 👩‍💻|"),
        ("data: a\n\ndata: no end", "a|no end|"),
        ("data: a\n\nevent: e\ndata: no end\n", "a|e=no end|"),
        ("data: {\"a\":\"b:c\"}\n\n", "{\"a\":\"b:c\"}|"),
        ("data: 0123456789012345678901234567890\n\n", "an event of the stream exceeds 32 bytes"),
        (
            "data: a\n\n: 0123456789012345678901234567890\n\n",
            "a|an event of the stream exceeds 32 bytes",
        ),
        (
            "data: 0123456789\ndata: 0123456789\ndata: 0123456789\n\n",
            "an event of the stream exceeds 32 bytes",
        ),
    ];

    #[test]
    fn events_do_not_depend_on_chunking() {
        for (bytes, expected) in CASES {
            for cut in 0..=bytes.len() {
                let (head, tail) = bytes.as_bytes().split_at(cut);
                assert_eq!(story(&[head, tail]), *expected, "{bytes:?} cut at {cut}");
            }
            let single: Vec<&[u8]> = bytes.as_bytes().chunks(1).collect();
            assert_eq!(story(&single), *expected, "{bytes:?} byte by byte");
        }
    }

    proptest! {
        #[test]
        fn any_bytes_cut_anywhere_read_the_same(
            bytes in "(data|event|:|: |\n|\r|a|é|\u{feff}){0,24}", cuts in prop::collection::vec(0usize..64, 0..4),
        ) {
            let bytes = bytes.as_bytes();
            let mut cuts: Vec<usize> = cuts.into_iter().map(|cut| cut.min(bytes.len())).collect();
            cuts.sort_unstable();
            let mut pieces = Vec::new();
            let mut from = 0;
            for cut in cuts {
                pieces.push(&bytes[from..cut]);
                from = cut;
            }
            pieces.push(&bytes[from..]);
            prop_assert_eq!(story(&pieces), story(&[bytes]));
        }
    }
}
