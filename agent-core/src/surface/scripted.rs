//! A model that plays a script, and gates that let a test decide what happens when.
//!
//! Owns: nothing that a real agent needs; it is public so that users can test their own tools.

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex, PoisonError},
};

use tokio::sync::watch;

use crate::{
    data::{
        message::{StopReason, Usage},
        outcome::{ModelError, ModelErrorKind},
    },
    seam::{
        BoxFuture,
        model::{Model, ModelEnd, ModelEvent, ModelRequest, ModelSink},
    },
};

/// A model whose answers were written beforehand. Clones share the script.
///
/// ```
/// use agent_core::{Agent, AgentOptions, ScriptedModel};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let model = ScriptedModel::new().says("one").says("two");
/// let agent = Agent::new(AgentOptions::new(model.clone()));
/// agent.prompt("count")?.await?;
/// let result = agent.prompt("go on")?.await?;
/// assert_eq!(result.messages.last().unwrap().text(), "two");
/// // The second request has seen the first answer.
/// assert_eq!(model.requests()[1].messages.len(), 3);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Default)]
pub struct ScriptedModel {
    script: Arc<Mutex<Script>>,
}

#[derive(Default)]
struct Script {
    answers: VecDeque<Vec<Step>>,
    requests: Vec<ModelRequest>,
}

/// One step of an answer.
#[derive(Clone)]
pub enum Step {
    /// Sends an event.
    Event(ModelEvent),
    /// Waits at a gate, or until the run is aborted and drops the model.
    Gate(Gate),
    /// Ends the answer, with this cost.
    End(StopReason, Usage),
    /// Fails.
    Fail(ModelError),
    /// Panics.
    Panic,
    /// Waits for ever.
    Hang,
}

impl Step {
    /// A piece of text, in block 0.
    pub fn text(delta: &str) -> Self {
        Step::Event(ModelEvent::Text { index: 0, delta: delta.to_owned() })
    }

    /// A whole call, in the block of that index.
    pub fn call(index: u32, id: &str, name: &str, arguments: &str) -> Self {
        let (id, name, delta) = (id.to_owned(), name.to_owned(), arguments.to_owned());
        Step::Event(ModelEvent::ToolCall { index, id, name, delta })
    }
}

impl ScriptedModel {
    /// A model without answers: each request fails.
    pub fn new() -> Self {
        ScriptedModel::default()
    }

    /// Adds an answer. One whose steps run out ends as [`StopReason::Stop`].
    pub fn answers(self, steps: impl IntoIterator<Item = Step>) -> Self {
        self.lock().answers.push_back(steps.into_iter().collect());
        self
    }

    /// Adds an answer that says this and stops.
    pub fn says(self, text: &str) -> Self {
        self.answers([Step::text(text)])
    }

    /// Adds an answer that makes these calls: id, tool, JSON arguments.
    pub fn calls<'a>(self, calls: impl IntoIterator<Item = (&'a str, &'a str, &'a str)>) -> Self {
        let calls = calls.into_iter().enumerate();
        self.answers(
            calls.map(|(index, (id, name, arguments))| {
                Step::call(index as u32, id, name, arguments)
            }),
        )
    }

    /// Adds an answer that fails at once.
    pub fn fails(self, error: ModelError) -> Self {
        self.answers([Step::Fail(error)])
    }

    /// The requests so far, oldest first.
    pub fn requests(&self) -> Vec<ModelRequest> {
        self.lock().requests.clone()
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Script> {
        self.script.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn next_answer(&self, request: ModelRequest) -> Vec<Step> {
        let mut script = self.lock();
        script.requests.push(request);
        script.answers.pop_front().unwrap_or_else(|| {
            let message = "the script has no further answer";
            vec![Step::Fail(ModelError::new(ModelErrorKind::Provider, message))]
        })
    }
}

impl Model for ScriptedModel {
    fn name(&self) -> &str {
        "scripted/model"
    }

    fn respond<'a>(
        &'a self,
        request: ModelRequest,
        sink: ModelSink,
    ) -> BoxFuture<'a, Result<ModelEnd, ModelError>> {
        Box::pin(async move {
            for step in self.next_answer(request) {
                match step {
                    Step::Event(event) => sink.send(event).await?,
                    Step::Gate(gate) => gate.pass().await,
                    Step::End(stop_reason, usage) => return Ok(ModelEnd { stop_reason, usage }),
                    Step::Fail(error) => return Err(error),
                    Step::Panic => panic!("the script says so"),
                    Step::Hang => std::future::pending().await,
                }
            }
            Ok(ModelEnd { stop_reason: StopReason::Stop, usage: Usage::default() })
        })
    }
}

/// A point that one side waits at until another lets it pass. Clones are the same gate.
#[derive(Clone)]
pub struct Gate {
    state: Arc<watch::Sender<GateState>>,
}

#[derive(Clone, Copy, Default)]
struct GateState {
    reached: bool,
    open: bool,
}

impl Default for Gate {
    fn default() -> Self {
        Gate { state: Arc::new(watch::Sender::new(GateState::default())) }
    }
}

impl Gate {
    /// A closed gate that nobody has reached.
    pub fn new() -> Self {
        Gate::default()
    }

    /// Arrives and waits until the gate is open.
    pub async fn pass(&self) {
        self.state.send_modify(|state| state.reached = true);
        self.wait(|state| state.open).await;
    }

    /// Waits until someone has arrived.
    pub async fn reached(&self) {
        self.wait(|state| state.reached).await;
    }

    /// Opens the gate for good.
    pub fn release(&self) {
        self.state.send_modify(|state| state.open = true);
    }

    async fn wait(&self, condition: impl Fn(&GateState) -> bool) {
        let mut changes = self.state.subscribe();
        // The sender lives in `self`, so the wait cannot fail.
        let _ = changes.wait_for(|state| condition(state)).await;
    }
}
