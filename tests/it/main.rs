//! What the whole promises, one module for each section of the contract.

#![allow(clippy::unwrap_used)]

mod events;
mod lifecycle;
mod smoke;
