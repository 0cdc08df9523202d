//! How peers reach the daemon (W1 and W6).
//!
//! Each transport ends in a pair of a reader and a writer; what is said over them is the
//! connection's.

mod listener;
mod stdio;
mod unix;
mod websocket;

pub use listener::{ListenError, Listener};
pub use stdio::Stdio;
pub use unix::{UnixSocket, UnixSocketError};
pub use websocket::WebSocketRules;
