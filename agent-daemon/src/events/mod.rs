//! What the agents' events become on their way to clients (W4).
//!
//! Owns: one log of serialised events per session, and a cursor in it for each reader.
//! Never: lets a reader hold up an agent, or another reader.

pub(crate) mod entry;
pub(crate) mod fanout;
pub(crate) mod policy;
pub(crate) mod subscription;
