//! The built-in tools: `read`, `write`, `edit` and `bash`.
//!
//! Owns: which of them a session is offered, and what all four share: arguments, paths and what a
//! session may touch ([`Workspace`]), file locks, work on blocking threads, whole-file replacement.
//! Never: decides when a call runs or how its result joins the transcript; that is the loop's work.

use std::sync::Arc;

use agent_core::Tool;

mod arguments;
mod atomic_write;
mod bash;
mod blocking;
pub(crate) mod boundary;
mod directory;
mod edit;
mod file_locks;
mod nearest;
mod policy;
mod read;
mod resolve;
mod workspace;
mod write;

pub use bash::supervisor;
pub use policy::{BashPolicy, BuiltIn, ToolPolicy};
pub use workspace::Workspace;

/// At most this many lines go to the model at once.
const MAX_LINES: usize = 2_000;

/// At most this many bytes of text go to the model at once.
const MAX_BYTES: usize = 50 * 1024;

/// The built-in tools that the session's policy lets it have, in a fixed order.
pub fn built_in(workspace: Arc<Workspace>) -> Vec<Arc<dyn Tool>> {
    BuiltIn::ALL
        .into_iter()
        .filter(|name| workspace.policy().offers(*name))
        .map(|name| -> Arc<dyn Tool> {
            let workspace = workspace.clone();
            match name {
                BuiltIn::Read => Arc::new(read::Read::new(workspace)),
                BuiltIn::Write => Arc::new(write::Write::new(workspace)),
                BuiltIn::Edit => Arc::new(edit::Edit::new(workspace)),
                BuiltIn::Bash => Arc::new(bash::Bash::new(workspace)),
            }
        })
        .collect()
}

/// A count with thousands separated, as people read it.
fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// A count with its noun: `1 line`, `2,000 lines`.
fn counted(number: u64, noun: &str) -> String {
    format!("{} {noun}{}", grouped(number), if number == 1 { "" } else { "s" })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    fn offered(policy: &str) -> Vec<String> {
        let policy = toml::from_str(policy).unwrap();
        let workspace = Workspace::new("/".into(), policy, Vec::new());
        built_in(workspace.into()).iter().map(|tool| tool.spec().name.clone()).collect()
    }

    #[test]
    fn the_policy_decides_which_tools_are_offered() {
        const CASES: &[(&str, &[&str])] = &[
            ("", &["read", "write", "edit", "bash"]),
            ("allow = []", &[]),
            ("allow = ['bash', 'read']", &["read", "bash"]),
            ("bash = 'deny'", &["read", "write", "edit"]),
            ("allow = ['bash']\nbash = 'deny'", &[]),
        ];
        for (policy, names) in CASES {
            assert_eq!(offered(policy), *names, "{policy}");
        }
    }

    #[test]
    fn counts_read_well() {
        assert_eq!(counted(1, "line"), "1 line");
        assert_eq!(counted(0, "line"), "0 lines");
        assert_eq!(counted(1_234_567, "byte"), "1,234,567 bytes");
        assert_eq!(grouped(123), "123");
    }
}
