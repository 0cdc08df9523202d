//! The built-in tools: `read`, `write`, `edit` and `bash`.
//!
//! Owns: which of them a session is offered, and what all four share: arguments, paths and what a
//! session may touch ([`Workspace`]), file locks, work on blocking threads, whole-file replacement.
//! Never: decides when a call runs or how its result joins the transcript; that is the loop's work.

mod arguments;
mod atomic_write;
mod bash;
mod blocking;
pub(crate) mod boundary;
mod built_in;
pub(crate) mod directory;
mod edit;
mod editor;
mod file_locks;
mod in_place;
mod kind;
mod nearest;
mod off_limits;
mod outputs;
mod policy;
mod read;
mod resolve;
mod session_outputs;
mod text;
mod workspace;
mod write;
mod written;

pub use bash::supervisor;
pub use built_in::built_in;
pub(crate) use built_in::rules;
pub(crate) use outputs::Outputs;
pub use policy::{BashPolicy, BuiltIn, ToolPolicy};
pub(crate) use session_outputs::SessionOutputs;
pub use workspace::Workspace;

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::sync::Arc;

    use agent_core::Tool;

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
}
