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
pub(crate) mod directory;
mod edit;
mod file_locks;
mod in_place;
mod nearest;
mod off_limits;
mod outputs;
mod policy;
mod read;
mod resolve;
mod session_outputs;
mod workspace;
mod write;

pub use bash::supervisor;
pub use outputs::Outputs;
pub use policy::{BashPolicy, BuiltIn, ToolPolicy};
pub use session_outputs::SessionOutputs;
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

    /// What the gateways to Gemini take in a tool's schema: its `Schema` is a message with these
    /// fields, and one that it does not know ends the request. `exclusiveMinimum` and
    /// `additionalProperties` are among those.
    const KEYWORDS: &[&str] = &[
        "type",
        "description",
        "enum",
        "properties",
        "required",
        "items",
        "minItems",
        "maxItems",
        "minLength",
        "maxLength",
        "minimum",
        "maximum",
    ];

    fn assert_plain(tool: &str, schema: &serde_json::Value) {
        for (keyword, value) in schema.as_object().unwrap() {
            assert!(KEYWORDS.contains(&keyword.as_str()), "{tool}: {keyword}");
            match keyword.as_str() {
                "type" => assert!(value.is_string(), "{tool}: one type only, not {value}"),
                "enum" => {
                    let values = value.as_array().unwrap();
                    assert!(values.iter().all(serde_json::Value::is_string), "{tool}: {value}");
                }
                "properties" => {
                    value.as_object().unwrap().values().for_each(|value| assert_plain(tool, value));
                }
                "items" => assert_plain(tool, value),
                _ => {}
            }
        }
    }

    fn all() -> Vec<Arc<dyn Tool>> {
        built_in(Workspace::new("/".into(), ToolPolicy::default(), Vec::new()).into())
    }

    #[test]
    fn every_schema_is_of_the_plain_kind_that_all_providers_take() {
        assert_eq!(all().len(), BuiltIn::ALL.len());
        for tool in all() {
            let spec = tool.spec();
            assert_plain(&spec.name, &spec.parameters);
            assert_eq!(spec.parameters["type"], "object");
        }
    }

    /// The schemas cannot say so; the tools do.
    #[tokio::test]
    async fn a_field_that_a_tool_does_not_know_is_refused_by_name() {
        for tool in all() {
            let arguments = serde_json::json!({ "no_such_field": 1 });
            let (context, _updates) =
                agent_core::ToolContext::detached("1", agent_core::CancelSignal::never());
            let refused = tool.call(arguments, context).await.unwrap_err().to_string();
            assert!(refused.contains("unknown field `no_such_field`, expected"), "{refused}");
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
