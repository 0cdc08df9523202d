//! The client of `agent-daemon`: a library that mirrors an agent's state.
//!
//! To read the code, begin with [`client`], then [`fold`] and [`mirror`].

pub mod client;
pub mod connect;
pub mod fold;
pub mod mirror;
pub mod session;
mod start;
pub mod transport;

pub use start::StartError;
