//! What follows from the way on which a peer came.
//!
//! Owns: the questions, and the usual answers. Never: knows a transport; each is one value.

use std::fmt;

use agent_protocol::codec::{MessageDecoder, StreamDecoder};

/// What is true of all peers who come by one transport.
pub struct Transport {
    /// The word before the colon in `--listen`, and the name in `capabilities.transports`.
    pub name: &'static str,
    /// Whether the peer must show the token before anything else.
    pub needs_token: bool,
    /// Whether the peer is the process that we were started for: its end is ours, and it reads as
    /// slowly as it likes.
    pub is_parent: bool,
    /// What finds the peer's messages in its bytes, none of which is longer than so many.
    pub decoder: fn(usize) -> Box<dyn MessageDecoder>,
    /// Writes the last bytes of a connection, for a reason of RFC 6455, 7.4.1.
    pub farewell: fn(u16, &mut Vec<u8>),
}

impl Transport {
    /// A plain stream of bytes, which tells by itself who is at its other end: no token, messages in
    /// lines or behind headers, and no farewell.
    pub(crate) const fn plain(name: &'static str) -> Self {
        Transport {
            name,
            needs_token: false,
            is_parent: false,
            decoder: |max_message_bytes| Box::new(StreamDecoder::new(max_message_bytes)),
            farewell: |_, _| {},
        }
    }
}

impl fmt::Display for Transport {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(self.name)
    }
}

impl fmt::Debug for Transport {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "Transport({})", self.name)
    }
}
