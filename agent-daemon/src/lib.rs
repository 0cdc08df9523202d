//! The daemon: agents over JSON-RPC on stdio and sockets, with the real models and tools.
//!
//! To read the code, begin with `agent_protocol`, then [`methods`], [`session`] and [`connection`].

pub mod caller;
mod calls;
pub mod cli;
pub mod config;
pub mod connection;
pub mod daemon;
mod descriptors;
pub mod entry;
pub mod fanout;
mod idempotency;
pub mod instructions;
pub mod logging;
mod memory;
pub mod methods;
pub mod model;
pub mod outbox;
pub mod params;
mod parent;
mod picture;
pub mod request;
pub mod run;
pub mod server;
pub mod session;
pub mod sessions;
pub mod subscription;
pub mod tool;
pub mod transport;
