//! Decisions without effects: functions of their arguments, tested in every order.
//!
//! Owns: what is right. Never: does it; [`run`](crate::run) does.

pub(crate) mod nesting;
pub(crate) mod queue;
pub(crate) mod reduce;
pub(crate) mod repair;
pub(crate) mod retry;
pub(crate) mod slot;
