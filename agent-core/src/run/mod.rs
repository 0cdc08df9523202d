//! What an agent does: its one lock, its events' way to the listeners, and its runs.
//!
//! Owns: all effects. Never: is called from outside but by [`surface`](crate::surface).

pub(crate) mod agent_loop;
pub(crate) mod answer;
pub(crate) mod check;
pub(crate) mod contain;
pub(crate) mod feed;
pub(crate) mod guarded;
pub(crate) mod hook_call;
pub(crate) mod publisher;
pub(crate) mod run_task;
pub(crate) mod settings;
pub(crate) mod stream;
pub(crate) mod tool_batch;
pub(crate) mod tool_set;
