//! An agent's settings, as a screen shows them.
//!
//! Owns: the names of the settings and how a change is applied.
//! Never: holds the models and tools that the names stand for; the agent does.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

/// Makes of the one list of settings all of them, and some of them.
macro_rules! settings {
    ($($(#[$doc:meta])* $field:ident: $type:ty,)*) => {
        /// All settings. A change takes effect at the next turn. Without any there is neither a model
        /// nor a tool, and everything else is as it is for an agent that was told nothing.
        #[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
        #[serde(rename_all = "camelCase")]
        pub struct Config {
            $(
                $(#[$doc])*
                pub $field: $type,
            )*
        }

        /// Some settings: those that changed, or are to change.
        #[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
        #[serde(rename_all = "camelCase")]
        pub struct ConfigChange {
            $(
                $(#[$doc])*
                #[serde(default, skip_serializing_if = "Option::is_none")]
                pub $field: Option<$type>,
            )*
        }

        impl Config {
            /// Applies a change.
            pub fn apply(&mut self, change: &ConfigChange) {
                $(if let Some(value) = &change.$field {
                    self.$field = value.clone();
                })*
            }

            /// What `newer` has that this has not.
            pub fn difference(&self, newer: &Config) -> ConfigChange {
                ConfigChange {
                    $($field: (self.$field != newer.$field).then(|| newer.$field.clone()),)*
                }
            }
        }

        impl ConfigChange {
            /// Whether nothing is to change.
            pub fn is_empty(&self) -> bool {
                true $(&& self.$field.is_none())*
            }
        }
    };
}

settings! {
    /// The model as `PROVIDER/ID`.
    model: String,
    /// How much the model thinks.
    thinking_level: ThinkingLevel,
    /// Instructions that precede the transcript.
    system_prompt: Arc<str>,
    /// The names of the tools that the model may call.
    tools: Vec<String>,
    /// How many steering messages are taken at a boundary.
    steering_mode: QueueMode,
    /// How many follow-ups are taken when the run would stop.
    follow_up_mode: QueueMode,
    /// What becomes of `steer` and `follow_up` at idle.
    when_idle: WhenIdle,
    /// The most turns that a run may have; 0 for no limit.
    max_turns: u32,
    /// Whether calls of one batch may overlap.
    tool_execution: ToolExecution,
}

/// How much a model thinks before it answers. Providers translate it as they can.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema,
)]
#[serde(rename_all = "lowercase")]
pub enum ThinkingLevel {
    /// Not at all.
    #[default]
    Off,
    /// As little as possible.
    Minimal,
    /// A little.
    Low,
    /// Some.
    Medium,
    /// As much as is reasonable.
    High,
}

/// How much of a queue is taken at once.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema,
)]
#[serde(rename_all = "kebab-case")]
pub enum QueueMode {
    /// The oldest message: each instruction gets its own answer.
    #[default]
    OneAtATime,
    /// All messages: they arrive together.
    All,
}

/// What becomes of `steer` and `follow_up` when no run can take them.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema,
)]
#[serde(rename_all = "kebab-case")]
pub enum WhenIdle {
    /// They are refused.
    #[default]
    Reject,
    /// They wait for the next run.
    Hold,
}

/// Whether the calls of one batch may overlap.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema,
)]
#[serde(rename_all = "kebab-case")]
pub enum ToolExecution {
    /// All at once, but for tools that ask to run alone.
    #[default]
    Parallel,
    /// One after another, in call order.
    Sequential,
}
