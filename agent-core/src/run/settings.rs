//! An agent's settings, with the models and tools that their names stand for.
//!
//! Owns: what the next turn is asked with. Never: publishes; the agent compares and does.

use std::sync::Arc;

use crate::{
    data::config::{Config, QueueMode, ThinkingLevel, ToolExecution, WhenIdle},
    pure::retry::RetryPolicy,
    run::tool_set::ToolSet,
    seam::{
        hooks::{Hooks, NextTurn},
        model::Model,
        options::{AgentOptions, Limits},
        tool::Tool,
    },
};

/// The settings of one agent. Cheap to clone: each turn works with its own copy.
#[derive(Clone)]
pub(crate) struct Settings {
    pub(crate) model: Arc<dyn Model>,
    pub(crate) model_name: String,
    pub(crate) system_prompt: Arc<str>,
    pub(crate) tools: Arc<ToolSet>,
    pub(crate) hooks: Option<Arc<dyn Hooks>>,
    pub(crate) thinking_level: ThinkingLevel,
    pub(crate) steering_mode: QueueMode,
    pub(crate) follow_up_mode: QueueMode,
    pub(crate) when_idle: WhenIdle,
    pub(crate) max_turns: u32,
    pub(crate) tool_execution: ToolExecution,
    pub(crate) limits: Limits,
    pub(crate) retry: RetryPolicy,
}

/// Settings to change; none stays as it is.
#[derive(Clone, Default)]
pub struct SettingsChange {
    /// The model that answers.
    pub model: Option<Arc<dyn Model>>,
    /// The tools that the model may call.
    pub tools: Option<Vec<Arc<dyn Tool>>>,
    /// Instructions that precede the transcript.
    pub system_prompt: Option<Arc<str>>,
    /// How much the model thinks.
    pub thinking_level: Option<ThinkingLevel>,
    /// How many steering messages are taken at a boundary.
    pub steering_mode: Option<QueueMode>,
    /// How many follow-ups are taken when the run would stop.
    pub follow_up_mode: Option<QueueMode>,
    /// What becomes of `steer` and `follow_up` at idle.
    pub when_idle: Option<WhenIdle>,
    /// The most turns that a run may have; 0 for no limit.
    pub max_turns: Option<u32>,
    /// Whether calls of one batch may overlap.
    pub tool_execution: Option<ToolExecution>,
}

impl Settings {
    pub(crate) fn new(options: AgentOptions) -> Self {
        Settings {
            model_name: options.model.name().to_owned(),
            model: options.model,
            system_prompt: options.system_prompt,
            tools: Arc::new(ToolSet::new(options.tools)),
            hooks: options.hooks,
            thinking_level: options.thinking_level,
            steering_mode: options.steering_mode,
            follow_up_mode: options.follow_up_mode,
            when_idle: options.when_idle,
            max_turns: options.max_turns,
            tool_execution: options.tool_execution,
            limits: options.limits,
            retry: options.retry,
        }
    }

    pub(crate) fn apply(&mut self, PreparedChange { model_name, tools, change }: PreparedChange) {
        fn set<T>(setting: &mut T, value: Option<T>) {
            if let Some(value) = value {
                *setting = value;
            }
        }
        set(&mut self.model, change.model);
        set(&mut self.model_name, model_name);
        set(&mut self.tools, tools);
        set(&mut self.system_prompt, change.system_prompt);
        set(&mut self.thinking_level, change.thinking_level);
        set(&mut self.steering_mode, change.steering_mode);
        set(&mut self.follow_up_mode, change.follow_up_mode);
        set(&mut self.when_idle, change.when_idle);
        set(&mut self.max_turns, change.max_turns);
        set(&mut self.tool_execution, change.tool_execution);
    }

    pub(crate) fn to_config(&self) -> Config {
        Config {
            model: self.model_name.clone(),
            thinking_level: self.thinking_level,
            system_prompt: self.system_prompt.clone(),
            tools: self.tools.names(),
            steering_mode: self.steering_mode,
            follow_up_mode: self.follow_up_mode,
            when_idle: self.when_idle,
            max_turns: self.max_turns,
            tool_execution: self.tool_execution,
        }
    }
}

/// A change whose models and tools have been asked for their names: that is code which is not
/// ours, and it must not run under the agent's lock.
pub(crate) struct PreparedChange {
    model_name: Option<String>,
    tools: Option<Arc<ToolSet>>,
    change: SettingsChange,
}

impl SettingsChange {
    pub(crate) fn prepare(mut self) -> PreparedChange {
        PreparedChange {
            model_name: self.model.as_ref().map(|model| model.name().to_owned()),
            tools: self.tools.take().map(|tools| Arc::new(ToolSet::new(tools))),
            change: self,
        }
    }
}

impl From<NextTurn> for SettingsChange {
    fn from(next: NextTurn) -> Self {
        SettingsChange {
            model: next.model,
            tools: next.tools,
            system_prompt: next.system_prompt,
            thinking_level: next.thinking_level,
            ..SettingsChange::default()
        }
    }
}
