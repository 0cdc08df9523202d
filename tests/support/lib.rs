//! What the tests share: scripts to play, timelines to read, laws that every timeline obeys.
//!
//! Owns: the vocabulary of `tests/it`. Never: sleeps, or reaches behind public interfaces.

#![allow(clippy::unwrap_used)]

pub mod bytes;
pub mod daemon;
mod hooks;
mod laws;
pub mod process;
mod script;
mod timeline;
mod tool;

use std::time::Duration;

pub use hooks::ScriptedHooks;
pub use laws::{check_laws, check_requests};
pub use script::{Play, Script, abort, continue_run, follow_up, prompt, steer};
pub use timeline::{Timeline, transcript_story, word};
pub use tool::{ScriptedTool, ToolStep};

/// How long what must come may take; a test that waits longer has failed.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// Waits for what must come.
///
/// # Panics
/// It does not come.
pub async fn must<F: Future>(future: F) -> F::Output {
    tokio::time::timeout(PATIENCE, future).await.expect("it comes within a minute")
}
