//! A built-in tool, as one value.
//!
//! Owns: what there is to know of one beside what it does. Never: knows one;
//! [`built_in`](super::built_in) lists them.

use std::sync::Arc;

use agent_core::Tool;

use super::{policy::ToolPolicy, workspace::Workspace};

/// What there is to know of a built-in tool.
pub(crate) struct Kind {
    /// Makes it for a session.
    pub(crate) make: fn(Arc<Workspace>) -> Arc<dyn Tool>,
    /// Whether a policy that allows it by name lets a session have it.
    pub(crate) is_offered: fn(&ToolPolicy) -> bool,
    /// What a model is told about using it.
    pub(crate) rules: &'static [Rule],
}

/// A sentence of the default system prompt.
pub(crate) struct Rule {
    /// It makes sense only beside one of these tools; beside any where none is named.
    pub(crate) beside: &'static [&'static str],
    /// The sentence.
    pub(crate) says: &'static str,
}

impl Rule {
    /// One that always makes sense.
    pub(crate) const fn always(says: &'static str) -> Self {
        Rule { beside: &[], says }
    }
}
