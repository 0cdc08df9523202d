//! The process: from its arguments to its exit status.
//!
//! Owns: what ends the daemon, and in which order.
//! Never: takes part in a call or a run.

pub mod cli;
mod parent;
mod run;
