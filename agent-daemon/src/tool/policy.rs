//! What a session's tools may do: the `[tools]` table of the configuration.
//!
//! Owns: its shape and its defaults. Never: touches the file system; [`super::Workspace`] applies it.

use std::{
    num::{NonZeroU32, NonZeroUsize},
    path::PathBuf,
};

use agent_core::Limits;
use serde::{Deserialize, Serialize};

/// The `[tools]` table. The default lets a session have all four tools, run commands, and write in
/// its own directory and the temp directory.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ToolPolicy {
    /// The tools that a session may have; all of them if not given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub allow: Option<Vec<BuiltIn>>,
    /// Where `write` and `edit` may write, relative to the session's directory; that directory and
    /// the temp directory if not given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub write_roots: Option<Vec<PathBuf>>,
    /// Whether commands may be run at all.
    pub bash: BashPolicy,
    /// How many calls of one answer may run at once, at least 1; the others wait in call order. 16
    /// if not given.
    pub max_parallel: NonZeroUsize,
    /// For how many seconds a command without a `timeout` may say and do nothing before it is ended:
    /// no output, and no processor time in any of its processes. 600 if not given; 0 for ever.
    pub bash_stall: u32,
    /// The most seconds that a command may be given with `timeout`; at least 1, and 7,200 if not
    /// given.
    pub bash_max_timeout: NonZeroU32,
}

impl Default for ToolPolicy {
    fn default() -> Self {
        ToolPolicy {
            allow: None,
            write_roots: None,
            bash: BashPolicy::default(),
            max_parallel: Limits::default().max_parallel,
            bash_stall: 600,
            bash_max_timeout: NonZeroU32::new(7_200).expect("it is not 0"),
        }
    }
}

/// Whether a session may run commands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum BashPolicy {
    /// Any command, which can then also write anywhere.
    #[default]
    Allow,
    /// None: `bash` is not offered.
    Deny,
}

/// The name of a built-in tool.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum BuiltIn {
    /// Shows a file.
    Read,
    /// Replaces a whole file.
    Write,
    /// Replaces parts of a file.
    Edit,
    /// Runs a command.
    Bash,
}

impl BuiltIn {
    /// All of them, in the order in which they are offered.
    pub const ALL: [BuiltIn; 4] = [BuiltIn::Read, BuiltIn::Write, BuiltIn::Edit, BuiltIn::Bash];

    /// As the model calls it.
    pub fn as_str(self) -> &'static str {
        match self {
            BuiltIn::Read => "read",
            BuiltIn::Write => "write",
            BuiltIn::Edit => "edit",
            BuiltIn::Bash => "bash",
        }
    }
}

impl ToolPolicy {
    /// Whether it allows a tool by its name.
    pub(crate) fn allows(&self, tool: BuiltIn) -> bool {
        self.allow.as_ref().is_none_or(|allowed| allowed.contains(&tool))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn a_wrong_table_is_refused_by_name() {
        const CASES: &[(&str, &str)] = &[
            ("alow = []", "unknown field `alow`"),
            ("allow = ['reed']", "unknown variant `reed`"),
            ("bash = 'ask'", "unknown variant `ask`"),
            ("write_roots = '.'", "expected a sequence"),
            ("max_parallel = 0", "expected a nonzero"),
            ("bash_max_timeout = 0", "expected a nonzero"),
            ("bash_stall = 0.5", "expected u32"),
            ("max_parallel = -1", "invalid value: integer `-1`"),
        ];
        for (table, reason) in CASES {
            let error = toml::from_str::<ToolPolicy>(table).unwrap_err().to_string();
            assert!(error.contains(reason), "{table}: {error}");
        }
    }

    #[test]
    fn a_table_survives_a_round_trip() {
        let table = "allow = [\"read\", \"bash\"]\nwrite_roots = [\".\"]\nbash = \"deny\"\n\
                     max_parallel = 4\nbash_stall = 0\nbash_max_timeout = 60\n";
        let policy: ToolPolicy = toml::from_str(table).unwrap();
        assert_eq!(toml::to_string(&policy).unwrap(), table);
    }
}
