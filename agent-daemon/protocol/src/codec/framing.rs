//! What bytes are cut into, and what finds the cuts.
//!
//! Owns: the words that both decoders share, and their bounds. Never: decodes.

/// How messages are told apart in a stream of bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Framing {
    /// One JSON text per line.
    Lines,
    /// A `Content-Length` header before each text, as language servers do.
    Headers,
    /// The frames of a WebSocket.
    WebSocket,
}

/// One message of the peer, or what became of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RawMessage<'a> {
    /// Text that may be JSON.
    Text(&'a str),
    /// Bytes that are no text.
    NotText,
    /// A message over the limit. Its bytes are skipped.
    TooLarge {
        /// In bytes.
        limit: usize,
    },
    /// A WebSocket's question whether we are there, to be answered with these bytes.
    Ping(&'a [u8]),
    /// A WebSocket's end.
    Close,
}

/// Why no further frame can be found in a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FrameError {
    /// Neither a JSON text nor a header begins like this.
    #[error(
        "the first byte, {0:#04x}, begins neither a line of JSON nor a Content-Length header; send \
         one JSON text per line, or LSP headers"
    )]
    FirstByte(u8),
    /// A header that we do not know: HTTP, as a rule.
    #[error("a header line is neither Content-Length nor Content-Type")]
    Header,
    /// The length is missing, given twice, or no number.
    #[error("the headers do not give one Content-Length as a decimal number")]
    ContentLength,
    /// Over [`MAX_HEADER_BYTES`].
    #[error("the headers are longer than {MAX_HEADER_BYTES} bytes")]
    LongHeaders,
    /// Over [`MAX_SKIPPED_BYTES`].
    #[error("a message is longer than {MAX_SKIPPED_BYTES} bytes, which is too much to skip")]
    Endless,
    /// Against the rules of WebSockets.
    #[error("the WebSocket client sent {0}")]
    WebSocket(&'static str),
}

/// What finds the frames in a stream of bytes.
pub trait MessageDecoder: Send {
    /// Changes the limit, from the next message on.
    fn set_max_message_bytes(&mut self, max: usize);

    /// The peer's framing, once its first byte has told.
    fn framing(&self) -> Option<Framing>;

    /// Where the next bytes are to be appended; nothing else may be done to it.
    fn room(&mut self) -> &mut Vec<u8>;

    /// The next frame, or none before more bytes have come.
    ///
    /// # Errors
    /// No further frame can be found; the connection has to end.
    fn next(&mut self) -> Option<Result<RawMessage<'_>, FrameError>>;

    /// The last frame, when there are no more bytes.
    fn finish(&mut self) -> Option<RawMessage<'_>>;
}

/// How long one block of headers may be.
pub const MAX_HEADER_BYTES: usize = 4096;
/// How long a message may be for its bytes to be skipped; over it, the connection closes.
pub const MAX_SKIPPED_BYTES: u64 = 1 << 30;

/// How much room a read gets.
pub(super) const READ_BYTES: usize = 16 * 1024;
/// A buffer that one large message left behind is given back.
pub(super) const KEPT_BYTES: usize = 256 * 1024;

#[cfg(test)]
pub(super) mod tests {
    /// What a decoder tells of bytes does not depend on where they are cut.
    pub(in crate::codec) fn check_every_cut(
        decode: fn(&[&[u8]]) -> String,
        bytes: &[u8],
        story: &str,
    ) {
        let text = String::from_utf8_lossy(bytes);
        for cut in 0..=bytes.len() {
            let (head, tail) = bytes.split_at(cut);
            assert_eq!(decode(&[head, tail]), story, "{text:?} cut at {cut}");
        }
        let single: Vec<&[u8]> = bytes.chunks(1).collect();
        assert_eq!(decode(&single), story, "{text:?} byte by byte");
    }
}
