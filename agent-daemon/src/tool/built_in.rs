//! All built-in tools.
//!
//! Owns: the one list. Adding one is a file or directory, a variant of [`BuiltIn`] and a row here.

use std::sync::Arc;

use agent_core::Tool;

use super::{
    bash, edit,
    kind::Kind,
    policy::{BuiltIn, ToolPolicy},
    read,
    workspace::Workspace,
    write,
};

/// What there is to know of a tool.
fn kind(name: BuiltIn) -> &'static Kind {
    match name {
        BuiltIn::Read => &read::KIND,
        BuiltIn::Write => &write::KIND,
        BuiltIn::Edit => &edit::KIND,
        BuiltIn::Bash => &bash::KIND,
    }
}

/// The built-in tools that the session's policy lets it have, in a fixed order.
pub fn built_in(workspace: Arc<Workspace>) -> Vec<Arc<dyn Tool>> {
    let offered = BuiltIn::ALL.into_iter().filter(|name| is_offered(*name, workspace.policy()));
    offered.map(|name| (kind(name).make)(workspace.clone())).collect()
}

/// What a model is told about using these tools, as far as they are built in.
pub(crate) fn rules(tools: &[impl AsRef<str>]) -> Vec<&'static str> {
    let has = |name: &str| tools.iter().any(|tool| tool.as_ref() == name);
    let kinds = BuiltIn::ALL.into_iter().filter(|name| has(name.as_str())).map(kind);
    let rules = kinds.flat_map(|kind| kind.rules);
    let makes_sense = |beside: &[&str]| beside.is_empty() || beside.iter().any(|name| has(name));
    rules.filter(|rule| makes_sense(rule.beside)).map(|rule| rule.says).collect()
}

fn is_offered(name: BuiltIn, policy: &ToolPolicy) -> bool {
    policy.allows(name) && (kind(name).is_offered)(policy)
}
