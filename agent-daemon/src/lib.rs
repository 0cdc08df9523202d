//! The daemon: agents over JSON-RPC on stdio and sockets, with the real models and tools.

pub mod codec;
