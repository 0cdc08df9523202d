//! The daemon: agents over JSON-RPC on stdio and sockets, with the real models and tools.
//!
//! To read the code, begin with `agent-protocol`, then [`methods`], [`sessions`] and [`peer`].

pub mod config;
pub mod events;
pub mod methods;
pub mod model;
pub mod peer;
mod picture;
pub mod process;
pub mod sessions;
mod system;
pub mod tool;
pub mod transport;
