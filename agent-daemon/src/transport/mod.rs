//! How peers reach the daemon (W1 and W6).
//!
//! Each transport ends in a pair of a reader and a writer; what is said over them is the
//! connection's.

use std::fmt;

mod listener;
mod stdio;
mod strangers;
mod tally;
mod unix;
mod websocket;

pub use listener::{ListenError, Listener};
pub use stdio::Stdio;
pub(crate) use strangers::{Seat, Strangers};
pub use unix::{UnixSocket, UnixSocketError};
pub use websocket::WebSocketRules;

/// How one peer reached us.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transport {
    /// The parent process, over stdin and stdout.
    Stdio,
    /// A process of the same user, over a Unix socket.
    Unix,
    /// Whoever holds the token, over TCP.
    Tcp,
    /// Whoever holds the token, over a WebSocket.
    WebSocket,
}

impl Transport {
    /// Whether the peer must show the token before anything else.
    pub fn needs_token(self) -> bool {
        matches!(self, Transport::Tcp | Transport::WebSocket)
    }

    /// The name that `capabilities.transports` uses.
    pub fn name(self) -> &'static str {
        match self {
            Transport::Stdio => "stdio",
            Transport::Unix => "unix",
            Transport::Tcp => "tcp",
            Transport::WebSocket => "ws",
        }
    }
}

impl fmt::Display for Transport {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(self.name())
    }
}
