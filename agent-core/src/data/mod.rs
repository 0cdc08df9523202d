//! Plain data: what is said, what happens, what is.
//!
//! Owns: the shapes that core, wire and clients share. Never: knows a runtime, a clock or a lock.

pub(crate) mod config;
pub(crate) mod event;
pub(crate) mod message;
pub(crate) mod outcome;
pub(crate) mod state;
pub(crate) mod transcript;
