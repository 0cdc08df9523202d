//! What the agents' events become on their way to clients (W4).
//!
//! Owns: one log of serialised events per session, and a cursor in it for each reader.
//! Never: lets a reader hold up an agent, or another reader.

pub mod entry;
pub mod fanout;
pub mod policy;
pub mod subscription;
