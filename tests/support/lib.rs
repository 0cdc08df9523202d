//! What the tests share: scripts to play, timelines to read, laws that every timeline obeys.
//!
//! Owns: the vocabulary of `tests/it`. Never: sleeps, or reaches behind public interfaces.

#![allow(clippy::unwrap_used)]

pub mod daemon;
mod hooks;
mod laws;
mod script;
mod timeline;
mod tool;

pub use hooks::ScriptedHooks;
pub use laws::{check_laws, check_requests};
pub use script::{Play, Script, abort, continue_run, follow_up, prompt, steer};
pub use timeline::{Timeline, transcript_story, word};
pub use tool::{ScriptedTool, ToolStep};
