//! Where code that is not ours is put in: models, tools and hooks.
//!
//! Owns: what such code is, what it is given and what it may answer.
//! Never: calls it; [`run`](crate::run) does.

use std::{future::Future, pin::Pin};

pub(crate) mod cancel;
pub(crate) mod hooks;
pub(crate) mod model;
pub(crate) mod options;
pub(crate) mod tool;

/// A boxed future, so that the traits can be used as objects.
pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;
