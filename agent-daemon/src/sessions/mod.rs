//! The sessions of one daemon, each an agent with its directory and its events.
//!
//! Owns: which sessions there are, what they are made of, and until when they take work.
//! Never: knows of a connection.

pub mod daemon;
mod idempotency;
pub(crate) mod instructions;
pub mod registry;
pub(crate) mod session;
pub(crate) mod toolbox;
