//! What the whole promises, one module for each section of the contract.

#![allow(clippy::unwrap_used)]

mod abort;
mod daemon_calls;
mod daemon_sessions;
mod daemon_timeline;
mod events;
mod faults;
mod hooks;
mod lifecycle;
mod listeners;
mod models;
mod peers;
mod properties;
mod queues;
mod reducer;
mod smoke;
mod tidy;
mod tools;
mod waiting;
mod wire;
