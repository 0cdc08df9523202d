//! The client of `agent-daemon`: a library that mirrors an agent's state, and a command line on it.
//!
//! To read the code, begin with [`client`], then [`fold`] and [`mirror`]. `render` is what people
//! see, and `commands` what they can ask for.

mod arguments;
mod attach;
mod catch_up;
mod cli;
pub mod client;
mod commands;
pub mod connect;
mod exit;
pub mod fold;
pub mod mirror;
mod owner;
mod render;
mod screen;
pub mod session;
mod start;
mod summary;
pub mod transport;

pub use cli::cli_main;
pub use start::StartError;
