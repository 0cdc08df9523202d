//! Bytes to raw messages and messages to bytes, in both framings and of WebSockets (W1.1 to W1.4).
//!
//! Owns: how a message is written. `stream` and `websocket` find messages, in the words of `framing`.
//! Never: reads, writes or parses JSON.

mod framing;
mod stream;
pub mod websocket;

pub use framing::{
    FrameError, Framing, MAX_HEADER_BYTES, MAX_SKIPPED_BYTES, MessageDecoder, RawMessage,
};
pub use stream::StreamDecoder;

impl Framing {
    /// Appends one message, given in pieces that [`one_line`] has seen.
    pub fn encode(self, pieces: &[&str], out: &mut Vec<u8>) {
        let length: usize = pieces.iter().map(|piece| piece.len()).sum();
        match self {
            Framing::Lines => {}
            Framing::Headers => {
                out.extend_from_slice(format!("Content-Length: {length}\r\n\r\n").as_bytes());
            }
            Framing::WebSocket => websocket::begin_text(length, out),
        }
        for piece in pieces {
            out.extend_from_slice(piece.as_bytes());
        }
        if self == Framing::Lines {
            out.push(b'\n');
        }
    }
}

/// Makes a JSON text stay on one line, for whatever the reader takes for a line's end.
///
/// Line ends between tokens become blanks (a client's own text may be echoed, and it may have been
/// pretty-printed); U+2028 and U+2029 occur in strings only and are escaped (W1.1).
pub fn one_line(json: String) -> String {
    // Four searches at memory's speed beat one look at each character, and seldom find anything.
    if !['\n', '\r', '\u{2028}', '\u{2029}'].iter().any(|end| json.contains(*end)) {
        return json;
    }
    let mut line = String::with_capacity(json.len() + 16);
    for letter in json.chars() {
        match letter {
            '\n' | '\r' => line.push(' '),
            '\u{2028}' => line.push_str("\\u2028"),
            '\u{2029}' => line.push_str("\\u2029"),
            letter => line.push(letter),
        }
    }
    line
}
