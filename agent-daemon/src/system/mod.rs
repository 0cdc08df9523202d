//! What the system lends this process: descriptors, memory, and somewhere to say things.
//!
//! Owns: what there is one of for the whole process.
//! Never: knows of anything else in the daemon.

pub(crate) mod descriptors;
pub(crate) mod logging;
pub(crate) mod memory;
