//! What an embedding program calls.
//!
//! Owns: the public calls and what they answer.

pub(crate) mod agent;
pub(crate) mod error;
pub(crate) mod handle;
pub(crate) mod intake;
pub(crate) mod scripted;
