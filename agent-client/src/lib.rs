//! `agent-client`: the command line of `agent-daemon`.
//!
//! What a program needs that is no command line is in `agent-client-library`. To read the code, begin
//! with `commands`; `render` is what people see, and `attach` the view that they stay in.

mod arguments;
mod attach;
mod cli;
mod commands;
mod context;
mod exit;
mod follower;
mod output;
mod render;
mod start;

pub use cli::cli_main;
