//! What people see of events, messages and states. Pure, but for the screen.
//!
//! Owns: that nothing of it is obeyed by a terminal.

pub mod piece;
pub mod renderer;
pub mod screen;
pub mod sentences;
pub mod state;
pub mod summary;
