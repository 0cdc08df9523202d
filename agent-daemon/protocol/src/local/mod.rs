//! Where the daemon and the clients of one user meet on a machine, and whom they trust there (W6).
//!
//! Owns: the rules that both sides must go by, or they would not find each other: which paths, which
//! way to them is safe, and what a token's file holds.
//! Never: opens a socket.

pub mod paths;
pub mod place;
pub mod token;
