//! What an agent is made of.
//!
//! Owns: [`AgentOptions`] and their defaults. Never: changes; [`SettingsChange`](crate::SettingsChange)
//! does, later.

use std::{num::NonZeroUsize, sync::Arc, time::Duration};

use crate::{
    data::{
        config::{QueueMode, ThinkingLevel, ToolExecution, WhenIdle},
        transcript::Transcript,
    },
    pure::retry::RetryPolicy,
    seam::{hooks::Hooks, model::Model, tool::Tool},
};

/// What an agent is made of.
#[derive(Clone)]
pub struct AgentOptions {
    /// The model that answers.
    pub model: Arc<dyn Model>,
    /// Instructions that precede the transcript; empty for none.
    pub system_prompt: Arc<str>,
    /// The tools that the model may call. Of two with one name the first counts.
    pub tools: Vec<Arc<dyn Tool>>,
    /// Where the program looks into runs.
    pub hooks: Option<Arc<dyn Hooks>>,
    /// How much the model thinks.
    pub thinking_level: ThinkingLevel,
    /// How many steering messages are taken at a boundary.
    pub steering_mode: QueueMode,
    /// How many follow-ups are taken when the run would stop.
    pub follow_up_mode: QueueMode,
    /// What becomes of `steer` and `follow_up` at idle.
    pub when_idle: WhenIdle,
    /// The most turns that a run may have; 0 for no limit.
    pub max_turns: u32,
    /// Whether calls of one batch may overlap.
    pub tool_execution: ToolExecution,
    /// A transcript to go on from.
    pub messages: Transcript,
    /// How long things may take, how many may go on at once, and how much a model may say.
    pub limits: Limits,
    /// How often failed requests are sent again.
    pub retry: RetryPolicy,
}

impl AgentOptions {
    /// The defaults, with a model.
    pub fn new(model: impl Model) -> Self {
        AgentOptions {
            model: Arc::new(model),
            system_prompt: "".into(),
            tools: Vec::new(),
            hooks: None,
            thinking_level: ThinkingLevel::default(),
            steering_mode: QueueMode::default(),
            follow_up_mode: QueueMode::default(),
            when_idle: WhenIdle::default(),
            max_turns: 0,
            tool_execution: ToolExecution::default(),
            messages: Transcript::default(),
            limits: Limits::default(),
            retry: RetryPolicy::default(),
        }
    }
}

/// How long things may take, how many may go on at once, and how much a model may say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// How long tools may still take when the run was aborted; 5 s unless set.
    pub abort_grace: Duration,
    /// How long a model may be silent; 5 minutes unless set. Events with nothing new in them are
    /// silence.
    pub idle_timeout: Duration,
    /// How many calls of one answer may run at once; the others wait in call order. 16 unless set.
    pub max_parallel: NonZeroUsize,
    /// How large one answer may grow: text, thinking, signatures and the calls' names and JSON
    /// text, in bytes; 16 MiB unless set. One that grows larger ends as an error that keeps what
    /// came before.
    pub max_answer_bytes: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Limits {
            abort_grace: Duration::from_secs(5),
            idle_timeout: Duration::from_secs(300),
            max_parallel: NonZeroUsize::new(16).expect("16 is not 0"),
            max_answer_bytes: 16 << 20,
        }
    }
}
