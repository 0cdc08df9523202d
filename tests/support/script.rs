//! A script: what the model says, what the tools do, and what listeners do at which moment.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use agent_core::{
    Agent, AgentOptions, Gate, Hooks, ModelError, RunHandle, RunResult, ScriptedModel, Step, Tool,
};

use crate::{PATIENCE, Timeline, check_laws, check_requests, transcript_story, word};

/// What is to be played.
pub struct Script {
    model: ScriptedModel,
    options: AgentOptions,
    actions: Vec<(String, Action)>,
}

type Action = Arc<dyn Fn(&Agent) + Send + Sync>;

impl Default for Script {
    fn default() -> Self {
        Script::new()
    }
}

impl Script {
    /// A model without answers, and no tools.
    pub fn new() -> Self {
        let model = ScriptedModel::new();
        Script { options: AgentOptions::new(model.clone()), model, actions: Vec::new() }
    }

    fn model(mut self, change: impl FnOnce(ScriptedModel) -> ScriptedModel) -> Self {
        self.model = change(self.model);
        self
    }

    /// Adds an answer that says this and stops.
    pub fn says(self, text: &str) -> Self {
        self.model(|model| model.says(text))
    }

    /// Adds an answer that waits at a gate before it says this and stops.
    pub fn says_after(self, gate: &Gate, text: &str) -> Self {
        let gate = gate.clone();
        self.model(|model| model.answers([Step::Gate(gate), Step::text(text)]))
    }

    /// Adds an answer that makes these calls: id and tool, without arguments.
    pub fn calls<'a>(self, calls: impl IntoIterator<Item = (&'a str, &'a str)>) -> Self {
        let calls = calls.into_iter().map(|(id, tool)| (id, tool, "{}"));
        self.model(|model| model.calls(calls))
    }

    /// Adds an answer that makes one call.
    pub fn call(self, id: &str, tool: &str, arguments: &str) -> Self {
        self.model(|model| model.calls([(id, tool, arguments)]))
    }

    /// Adds an answer of these steps.
    pub fn answers(self, steps: impl IntoIterator<Item = Step>) -> Self {
        self.model(|model| model.answers(steps))
    }

    /// Adds an answer that fails at once.
    pub fn fails(self, error: ModelError) -> Self {
        self.model(|model| model.fails(error))
    }

    /// Adds a tool.
    pub fn tool(mut self, tool: impl Tool) -> Self {
        self.options.tools.push(Arc::new(tool));
        self
    }

    /// Sets the hooks.
    pub fn hooks(mut self, hooks: impl Hooks) -> Self {
        self.options.hooks = Some(Arc::new(hooks));
        self
    }

    /// Changes the agent's options.
    pub fn with(mut self, change: impl FnOnce(&mut AgentOptions)) -> Self {
        change(&mut self.options);
        self
    }

    /// Lets a listener act, once, at the first event whose word is or begins with `moment`; also
    /// `start1` and `end1` for the start and the end of run 1.
    pub fn on(mut self, moment: &str, action: impl Fn(&Agent) + Send + Sync + 'static) -> Self {
        self.actions.push((moment.to_owned(), Arc::new(action)));
        self
    }

    /// An agent at idle, with the listeners in place.
    pub fn stage(self) -> Play {
        let agent = Agent::new(self.options);
        let timeline = Timeline::of(&agent);
        for (moment, action) in self.actions {
            act_at(&agent, moment, action);
        }
        Play { agent, model: self.model, timeline }
    }

    /// Stages the script, prompts "go" and waits until the agent is idle.
    pub async fn play(self) -> Play {
        let play = self.stage();
        play.agent.prompt("go").unwrap();
        play.settle().await;
        play
    }
}

fn act_at(agent: &Agent, moment: String, action: Action) {
    let done = AtomicBool::new(false);
    let of = agent.clone();
    agent.subscribe(move |event, _| {
        let word = word(&event);
        let short = word.replace("run_start(", "start").replace("run_end(", "end");
        let is_it = word.starts_with(&moment)
            || short.trim_end_matches(')') == moment
            || short.split(' ').next() == Some(&moment);
        if is_it && !done.swap(true, Ordering::Relaxed) {
            action(&of);
        }
        async { Ok(()) }
    });
}

/// A script that is being played.
pub struct Play {
    /// The agent.
    pub agent: Agent,
    /// Its model, which remembers the requests.
    pub model: ScriptedModel,
    /// What its first listener has seen.
    pub timeline: Timeline,
}

impl Play {
    /// Starts a run.
    pub fn prompt(&self, text: &str) -> RunHandle {
        self.agent.prompt(text).unwrap()
    }

    /// Starts a run and waits for its result.
    pub async fn run(&self, text: &str) -> RunResult {
        let handle = self.prompt(text);
        self.settle().await;
        handle.await.unwrap()
    }

    /// Waits until the agent is idle and holds the timeline against the laws.
    pub async fn settle(&self) {
        let idle = tokio::time::timeout(PATIENCE, self.agent.wait_for_idle()).await;
        idle.unwrap_or_else(|_| panic!("not idle after {}", self.story())).unwrap();
        let snapshot = self.agent.snapshot();
        check_laws(&self.timeline.events(), &snapshot);
        // A panic of a listener is contained; one that is a failed assertion must not be.
        for diagnostic in snapshot.state.diagnostics.iter() {
            let failed = ["assertion", "called `"].iter().any(|sign| diagnostic.contains(sign));
            assert!(!failed, "{diagnostic}");
        }
        check_requests(&self.model.requests());
    }

    /// Every event as a word.
    pub fn story(&self) -> String {
        self.timeline.story()
    }

    /// The transcript as text.
    pub fn transcript(&self) -> String {
        transcript_story(self.agent.snapshot().state.messages.iter())
    }

    /// How the last run ended, as the wire spells it, with its error.
    pub fn last_run(&self) -> String {
        let last = self.agent.snapshot().state.last_run.unwrap();
        let reason = serde_json::to_value(last.reason).unwrap();
        let error = last.error_message.as_ref().map_or(String::new(), |error| format!(": {error}"));
        format!("{}{error}", reason.as_str().unwrap())
    }
}

/// Starts a run.
pub fn prompt(text: &'static str) -> impl Fn(&Agent) + Send + Sync {
    move |agent| drop(agent.prompt(text).unwrap())
}

/// Steers.
pub fn steer(text: &'static str) -> impl Fn(&Agent) + Send + Sync {
    move |agent| drop(agent.steer(text).unwrap())
}

/// Follows up.
pub fn follow_up(text: &'static str) -> impl Fn(&Agent) + Send + Sync {
    move |agent| drop(agent.follow_up(text).unwrap())
}

/// Aborts whatever run is active.
pub fn abort() -> impl Fn(&Agent) + Send + Sync {
    |agent| {
        agent.abort(None).unwrap();
    }
}

/// Continues.
pub fn continue_run() -> impl Fn(&Agent) + Send + Sync {
    |agent| drop(agent.continue_run().unwrap())
}
