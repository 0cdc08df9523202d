//! WebSocket frames to messages and back, on the server's side (RFC 6455, section 5).
//!
//! Owns: the pieces of a message that is not whole yet. Ours rather than a library's, because a
//! message over the limit is to be skipped, and the connection goes on (W1.3).
//! Never: reads, writes or shakes hands.

use std::ops::Range;

use crate::codec::framing::{
    FrameError, Framing, KEPT_BYTES, MAX_SKIPPED_BYTES, MessageDecoder, READ_BYTES, RawMessage,
};

/// How much a control frame may carry.
const MAX_CONTROL_BYTES: u64 = 125;

const CONTINUATION: u8 = 0x0;
const TEXT: u8 = 0x1;
const BINARY: u8 = 0x2;
const CLOSE: u8 = 0x8;
const PING: u8 = 0x9;
const PONG: u8 = 0xa;
const FINAL: u8 = 0x80;
const MASKED: u8 = 0x80;

/// Finds the messages in what a WebSocket client sends after the handshake.
#[derive(Debug)]
pub struct WebSocketDecoder {
    max_message_bytes: usize,
    buffer: Vec<u8>,
    // Invariant: what lies before it is decoded and may be dropped.
    start: usize,
    /// The payload that is being received.
    payload: Option<Payload>,
    /// The message that is being put together.
    message: Option<Message>,
    /// The pieces of the message so far, or of the one that was lent last.
    pieces: Vec<u8>,
    is_over: bool,
}

#[derive(Clone, Copy, Debug)]
struct Payload {
    opcode: u8,
    is_final: bool,
    left: u64,
    mask: [u8; 4],
    is_skipped: bool,
}

#[derive(Clone, Copy, Debug)]
struct Message {
    is_text: bool,
    bytes: u64,
    is_skipped: bool,
}

/// What was found, by its place.
enum Found {
    Whole { range: Range<usize>, is_text: bool },
    Assembled { is_text: bool },
    TooLarge,
    Ping(Range<usize>),
    Close,
}

impl WebSocketDecoder {
    /// A decoder for a client that has just shaken hands.
    pub fn new(max_message_bytes: usize) -> Self {
        WebSocketDecoder {
            max_message_bytes,
            buffer: Vec::new(),
            start: 0,
            payload: None,
            message: None,
            pieces: Vec::new(),
            is_over: false,
        }
    }

    fn advance(&mut self) -> Option<Result<Found, FrameError>> {
        if self.message.is_none() {
            self.pieces.clear();
            if self.pieces.capacity() > KEPT_BYTES {
                self.pieces = Vec::new();
            }
        }
        loop {
            let found = match self.payload {
                None => self.header()?.map(|too_large| too_large.then_some(Found::TooLarge)),
                Some(payload) if payload.is_skipped => Ok(self.skip(payload)?),
                Some(payload) => Ok(self.receive(payload)?),
            };
            if let Some(found) = found.transpose() {
                return Some(found);
            }
        }
    }

    /// Reads a header, and answers whether its message has just become too large.
    fn header(&mut self) -> Option<Result<bool, FrameError>> {
        let rest = &self.buffer[self.start..];
        let (first, second) = (*rest.first()?, *rest.get(1)?);
        let (opcode, is_final) = (first & 0x0f, first & FINAL != 0);
        if first & 0x70 != 0 {
            return Some(Err(FrameError::WebSocket("an extension that was not agreed on")));
        }
        if second & MASKED == 0 {
            return Some(Err(FrameError::WebSocket("a frame that is not masked")));
        }
        let (length, at) = match second & !MASKED {
            126 => (u64::from(u16::from_be_bytes(rest.get(2..4)?.try_into().ok()?)), 4),
            127 => (u64::from_be_bytes(rest.get(2..10)?.try_into().ok()?), 10),
            length => (u64::from(length), 2),
        };
        let mask = rest.get(at..at + 4)?.try_into().ok()?;
        self.start += at + 4;
        let mut payload = Payload { opcode, is_final, left: length, mask, is_skipped: false };
        let too_large = match opcode {
            CLOSE | PING | PONG if !is_final || length > MAX_CONTROL_BYTES => {
                Err(FrameError::WebSocket("a control frame in pieces or over 125 bytes"))
            }
            CLOSE | PING | PONG => Ok(false),
            CONTINUATION | TEXT | BINARY => self.piece(&mut payload),
            _ => Err(FrameError::WebSocket("an unknown kind of frame")),
        };
        self.payload = Some(payload);
        Some(too_large)
    }

    /// Adds a piece to the message, and answers whether that made it too large.
    fn piece(&mut self, payload: &mut Payload) -> Result<bool, FrameError> {
        let mut message = match (self.message, payload.opcode) {
            (Some(message), CONTINUATION) => message,
            (None, TEXT | BINARY) => {
                Message { is_text: payload.opcode == TEXT, bytes: 0, is_skipped: false }
            }
            _ => return Err(FrameError::WebSocket("the pieces of a message out of order")),
        };
        message.bytes = message.bytes.saturating_add(payload.left);
        if message.bytes > MAX_SKIPPED_BYTES {
            return Err(FrameError::Endless);
        }
        let was_skipped = message.is_skipped;
        message.is_skipped |= message.bytes > self.max_message_bytes as u64;
        payload.is_skipped = message.is_skipped;
        self.message = Some(message);
        Ok(message.is_skipped && !was_skipped)
    }

    fn skip(&mut self, mut payload: Payload) -> Option<Option<Found>> {
        let here = payload.left.min((self.buffer.len() - self.start) as u64);
        self.start += here as usize;
        payload.left -= here;
        self.payload = (payload.left > 0).then_some(payload);
        if payload.left > 0 {
            return None;
        }
        self.pieces.clear();
        if payload.is_final {
            self.message = None;
        }
        Some(None)
    }

    fn receive(&mut self, payload: Payload) -> Option<Option<Found>> {
        let range = self.start..self.start + payload.left as usize;
        let bytes = self.buffer.get_mut(range.clone())?;
        for (byte, mask) in bytes.iter_mut().zip(payload.mask.iter().cycle()) {
            *byte ^= mask;
        }
        self.start = range.end;
        self.payload = None;
        Some(match payload.opcode {
            PING => Some(Found::Ping(range)),
            PONG => None,
            CLOSE => Some(Found::Close),
            _ => self.whole(range, payload.is_final),
        })
    }

    fn whole(&mut self, range: Range<usize>, is_final: bool) -> Option<Found> {
        let is_text = self.message.is_some_and(|message| message.is_text);
        if is_final {
            self.message = None;
            if self.pieces.is_empty() {
                return Some(Found::Whole { range, is_text });
            }
        }
        self.pieces.extend_from_slice(&self.buffer[range]);
        is_final.then_some(Found::Assembled { is_text })
    }

    fn frame(&self, found: Found) -> RawMessage<'_> {
        let (bytes, is_text) = match found {
            Found::Whole { range, is_text } => (&self.buffer[range], is_text),
            Found::Assembled { is_text } => (&self.pieces[..], is_text),
            Found::TooLarge => return RawMessage::TooLarge { limit: self.max_message_bytes },
            Found::Ping(range) => return RawMessage::Ping(&self.buffer[range]),
            Found::Close => return RawMessage::Close,
        };
        match std::str::from_utf8(bytes) {
            Ok(text) if is_text => RawMessage::Text(text),
            _ => RawMessage::NotText,
        }
    }
}

impl MessageDecoder for WebSocketDecoder {
    fn set_max_message_bytes(&mut self, max: usize) {
        self.max_message_bytes = max;
    }

    fn framing(&self) -> Option<Framing> {
        Some(Framing::WebSocket)
    }

    fn room(&mut self) -> &mut Vec<u8> {
        self.buffer.drain(..self.start);
        self.start = 0;
        if self.buffer.is_empty() && self.buffer.capacity() > KEPT_BYTES {
            self.buffer = Vec::new();
        }
        self.buffer.reserve(READ_BYTES);
        &mut self.buffer
    }

    fn next(&mut self) -> Option<Result<RawMessage<'_>, FrameError>> {
        if self.is_over {
            self.start = self.buffer.len();
            return None;
        }
        let found = self.advance()?;
        self.is_over = matches!(found, Err(_) | Ok(Found::Close));
        Some(found.map(|found| self.frame(found)))
    }

    /// Who leaves without a word has left.
    fn finish(&mut self) -> Option<RawMessage<'_>> {
        (!self.is_over).then_some(RawMessage::Close)
    }
}

/// Appends the header of an unmasked frame.
pub(super) fn begin_text(length: usize, out: &mut Vec<u8>) {
    out.push(FINAL | TEXT);
    match length {
        0..=125 => out.push(length as u8),
        126..=0xffff => {
            out.push(126);
            out.extend_from_slice(&(length as u16).to_be_bytes());
        }
        _ => {
            out.push(127);
            out.extend_from_slice(&(length as u64).to_be_bytes());
        }
    }
}

/// Appends the answer to a ping.
pub fn pong(payload: &[u8], out: &mut Vec<u8>) {
    out.extend_from_slice(&[FINAL | PONG, payload.len() as u8]);
    out.extend_from_slice(payload);
}

/// Appends the last frame of a connection.
pub fn close(code: u16, out: &mut Vec<u8>) {
    out.extend_from_slice(&[FINAL | CLOSE, 2]);
    out.extend_from_slice(&code.to_be_bytes());
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use tokio_tungstenite::tungstenite::{
        Message as TheirMessage,
        protocol::{Role, WebSocket},
    };

    use super::*;
    use crate::codec::framing::tests::check_every_cut;

    const MAX: usize = 300;

    /// A client's frame: final bit and opcode, then the text, masked.
    fn frame(first: u8, payload: &[u8]) -> Vec<u8> {
        let mut bytes = vec![first];
        match payload.len() {
            length @ 0..=125 => bytes.push(MASKED | length as u8),
            length @ 126..=0xffff => {
                bytes.push(MASKED | 126);
                bytes.extend((length as u16).to_be_bytes());
            }
            length => {
                bytes.push(MASKED | 127);
                bytes.extend((length as u64).to_be_bytes());
            }
        }
        let mask = [1, 2, 3, 4];
        bytes.extend(mask);
        bytes.extend(payload.iter().zip(mask.iter().cycle()).map(|(byte, mask)| byte ^ mask));
        bytes
    }

    fn decode(pieces: &[&[u8]]) -> String {
        let mut decoder = WebSocketDecoder::new(MAX);
        let mut story = String::new();
        for piece in pieces {
            decoder.room().extend_from_slice(piece);
            while let Some(frame) = decoder.next() {
                story.push_str(&match frame {
                    Ok(RawMessage::Text(text)) => format!("{text}|"),
                    Ok(RawMessage::NotText) => "[not text]".to_owned(),
                    Ok(RawMessage::TooLarge { limit }) => format!("[over {limit}]"),
                    Ok(RawMessage::Ping(payload)) => format!("[ping {}]", payload.len()),
                    Ok(RawMessage::Close) => "[close]".to_owned(),
                    Err(FrameError::WebSocket(_)) => "[error]".to_owned(),
                    Err(error) => format!("[{error:?}]"),
                });
            }
        }
        story
    }

    #[test]
    fn frames_do_not_depend_on_chunking() {
        let long = "x".repeat(200);
        let cases: &[(&[Vec<u8>], &str)] = &[
            (&[frame(0x81, b"{}"), frame(0x81, b"[]")], "{}|[]|"),
            (&[frame(0x81, b"")], "|"),
            (&[frame(0x01, b"a"), frame(0x00, b""), frame(0x80, b"b"), frame(0x81, b"c")], "ab|c|"),
            (&[frame(0x01, b""), frame(0x80, b"b")], "b|"),
            (&[frame(0x01, b"a"), frame(0x89, b"hi"), frame(0x80, b"b")], "[ping 2]ab|"),
            (&[frame(0x8a, b"hi"), frame(0x81, b"a")], "a|"),
            (&[frame(0x01, b"\xc3"), frame(0x80, b"\xa9")], "é|"),
            (
                &[frame(0x81, b"\xff"), frame(0x82, b"{}"), frame(0x81, b"a")],
                "[not text][not text]a|",
            ),
            (&[frame(0x81, &[b'x'; MAX + 1]), frame(0x81, b"a")], "[over 300]a|"),
            (
                &[
                    frame(0x01, long.as_bytes()),
                    frame(0x00, long.as_bytes()),
                    frame(0x89, b""),
                    frame(0x80, long.as_bytes()),
                    frame(0x81, b"a"),
                ],
                "[over 300][ping 0]a|",
            ),
            (&[frame(0x88, &[3, 232]), frame(0x81, b"a")], "[close]"),
            // What is against the rules.
            (&[vec![0x81, 0x02, b'{', b'}']], "[error]"),
            (&[frame(0xc1, b"a")], "[error]"),
            (&[frame(0x83, b"a")], "[error]"),
            (&[frame(0x80, b"a")], "[error]"),
            (&[frame(0x01, b"a"), frame(0x81, b"b")], "[error]"),
            (&[frame(0x09, b"a")], "[error]"),
            (&[frame(0x89, &[0; 126])], "[error]"),
            (&[vec![0x81, 0xff, 0, 0, 0, 0, 0x40, 0, 0, 1, 0, 0, 0, 0]], "[Endless]"),
            (&[vec![0x81, 0xff, 0xff, 0, 0, 0, 0x40, 0, 0, 1, 0, 0, 0, 0]], "[Endless]"),
        ];
        for (frames, story) in cases {
            check_every_cut(decode, &frames.concat(), story);
        }
    }

    #[test]
    fn a_declared_length_reserves_nothing() {
        let mut decoder = WebSocketDecoder::new(1 << 30);
        decoder.room().extend([0x81, 0xff, 0, 0, 0, 0, 0x3b, 0, 0, 0, 0, 0, 0, 0, b'{']);
        assert!(decoder.next().is_none());
        assert!(decoder.room().capacity() < 1 << 20);
    }

    /// A stream that reads from one vector and writes to another.
    #[derive(Default)]
    struct Wires {
        input: std::io::Cursor<Vec<u8>>,
        output: Vec<u8>,
    }

    impl std::io::Read for Wires {
        fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
            self.input.read(buffer)
        }
    }

    impl std::io::Write for Wires {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.output.write(bytes)
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    proptest! {
        #[test]
        fn we_and_another_implementation_understand_each_other(
            texts in proptest::collection::vec("[a-zé€{}]{0,90}", 1..8),
            chunk in 1_usize..500,
        ) {
            let mut theirs = WebSocket::from_raw_socket(Wires::default(), Role::Client, None);
            let mut sent = String::new();
            for text in &texts {
                theirs.send(TheirMessage::text(text.as_str())).expect("a vector takes everything");
                sent.push_str(&format!("{text}|"));
            }
            let pieces: Vec<&[u8]> = theirs.get_ref().output.chunks(chunk).collect();
            prop_assert_eq!(decode(&pieces), sent);

            let mut bytes = Vec::new();
            for text in &texts {
                Framing::WebSocket.encode(&[text, "!"], &mut bytes);
            }
            pong(b"x", &mut bytes);
            let long = "y".repeat(70_000);
            Framing::WebSocket.encode(&[&long], &mut bytes);
            close(1000, &mut bytes);
            let wires = Wires { input: std::io::Cursor::new(bytes), output: Vec::new() };
            let mut theirs = WebSocket::from_raw_socket(wires, Role::Client, None);
            let mut read = || theirs.read().expect("what we write is valid");
            for text in &texts {
                prop_assert_eq!(read(), TheirMessage::text(format!("{text}!")));
            }
            prop_assert_eq!(read(), TheirMessage::Pong(b"x".as_slice().into()));
            prop_assert_eq!(read(), TheirMessage::text(long));
            prop_assert!(read().is_close());
        }

        #[test]
        fn no_bytes_make_it_fail_and_no_chunking_changes_the_story(
            bytes in proptest::collection::vec(any::<u8>(), 0..200),
            start in proptest::sample::select(vec![vec![], frame(0x01, b"a"), vec![0x81, 0xfe]]),
            chunk in 1_usize..40,
        ) {
            let bytes = [start, bytes].concat();
            let pieces: Vec<&[u8]> = bytes.chunks(chunk).collect();
            prop_assert_eq!(decode(&pieces), decode(&[&bytes]));
        }
    }
}
