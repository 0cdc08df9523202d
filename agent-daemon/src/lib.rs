//! The daemon: agents over JSON-RPC on stdio and sockets, with the real models and tools.
//!
//! To read the code, begin with [`protocol`].

pub mod codec;
pub mod error;
pub mod model;
pub mod params;
pub mod paths;
pub mod protocol;
