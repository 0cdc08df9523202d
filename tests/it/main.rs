//! What the whole promises, one module for each section of the contract.

#![allow(clippy::unwrap_used)]

mod abort;
mod daemon_calls;
mod daemon_sessions;
mod daemon_timeline;
mod events;
mod lifecycle;
mod queues;
mod smoke;
