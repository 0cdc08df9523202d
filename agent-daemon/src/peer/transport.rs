//! How a peer can have reached us, and what follows from it.
//!
//! Owns: the names of the ways. Never: opens one; `transport` does.

use std::fmt;

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
