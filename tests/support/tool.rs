//! A tool that plays a script.

use std::sync::{Arc, Mutex};

use agent_core::{
    BoxFuture, Gate, Tool, ToolConcurrency, ToolContext, ToolError, ToolOutput, ToolSpec,
};
use serde_json::{Value, json};

/// A tool whose every call takes the same steps; one whose steps run out answers "NAME done".
#[derive(Clone)]
pub struct ScriptedTool {
    spec: ToolSpec,
    concurrency: ToolConcurrency,
    steps: Vec<ToolStep>,
    calls: Arc<Mutex<Vec<Value>>>,
}

/// One step of a call.
#[derive(Clone)]
pub enum ToolStep {
    /// Shows progress.
    Update(&'static str),
    /// Waits at a gate, whatever the token says.
    Gate(Gate),
    /// Waits for the token to fire.
    Abort,
    /// Succeeds with this text.
    Says(&'static str),
    /// Fails with this text.
    Fails(&'static str),
    /// Panics.
    Panics,
    /// Never returns.
    Hangs,
    /// Anything else.
    Calls(Call),
}

type Call = Arc<dyn Fn(Value, ToolContext) -> BoxFuture<'static, Answer> + Send + Sync>;
type Answer = Result<ToolOutput, ToolError>;

impl ScriptedTool {
    /// A tool that takes any arguments and answers at once.
    pub fn new(name: &str) -> Self {
        let spec = ToolSpec {
            name: name.to_owned(),
            description: format!("the tool {name}"),
            parameters: json!({ "type": "object" }),
        };
        let (concurrency, steps) = (ToolConcurrency::Shared, Vec::new());
        ScriptedTool { spec, concurrency, steps, calls: Arc::default() }
    }

    /// Adds a step.
    pub fn step(mut self, step: ToolStep) -> Self {
        self.steps.push(step);
        self
    }

    /// Waits at a gate.
    pub fn waits(self, gate: &Gate) -> Self {
        self.step(ToolStep::Gate(gate.clone()))
    }

    /// Runs a closure.
    pub fn runs<F, Fut>(self, call: F) -> Self
    where
        F: Fn(Value, ToolContext) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Answer> + Send + 'static,
    {
        self.step(ToolStep::Calls(Arc::new(move |arguments, context| {
            Box::pin(call(arguments, context))
        })))
    }

    /// Lets no other call run beside it.
    pub fn alone(mut self) -> Self {
        self.concurrency = ToolConcurrency::Alone;
        self
    }

    /// Gives the arguments a schema.
    pub fn takes(mut self, parameters: Value) -> Self {
        self.spec.parameters = parameters;
        self
    }

    /// The arguments of the calls so far.
    pub fn calls(&self) -> Vec<Value> {
        self.calls.lock().unwrap().clone()
    }
}

impl Tool for ScriptedTool {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    fn execution(&self) -> ToolConcurrency {
        self.concurrency
    }

    fn call<'a>(&'a self, arguments: Value, context: ToolContext) -> BoxFuture<'a, Answer> {
        self.calls.lock().unwrap().push(arguments.clone());
        Box::pin(async move {
            for step in &self.steps {
                match step {
                    ToolStep::Update(text) => context.update(ToolOutput::text(*text)),
                    ToolStep::Gate(gate) => gate.pass().await,
                    ToolStep::Abort => context.signal.cancelled().await,
                    ToolStep::Says(text) => return Ok(ToolOutput::text(*text)),
                    ToolStep::Fails(text) => return Err(ToolError::new(*text)),
                    ToolStep::Panics => panic!("the tool's script says so"),
                    ToolStep::Hangs => std::future::pending().await,
                    ToolStep::Calls(call) => return call(arguments, context).await,
                }
            }
            Ok(ToolOutput::text(format!("{} done", self.spec.name)))
        })
    }
}
