//! The tools of an agent, by name.
//!
//! Owns: look-up, and the validation of arguments against each tool's schema once [`repair`] has read
//! them as they were meant (C11.1).
//! Never: runs a tool.

use std::{
    fmt::Write,
    sync::{Arc, OnceLock},
};

use jsonschema::Validator;
use serde_json::Value;

use crate::{
    pure::repair,
    seam::tool::{Tool, ToolConcurrency, ToolSpec},
};

/// How many faults of one call's arguments are told to the model.
const MAX_FAULTS: usize = 5;

/// Tools with distinct names. What they say of themselves is asked once: it is code that is not
/// ours, and must not run in the midst of a batch.
#[derive(Default)]
pub(crate) struct ToolSet {
    tools: Vec<Registered>,
    // Invariant: as long as `tools`, in the same order.
    specs: Arc<[ToolSpec]>,
}

struct Registered {
    tool: Arc<dyn Tool>,
    concurrency: ToolConcurrency,
    /// Compiled at the first call: an agent that starts should not pay for tools it never uses.
    validator: OnceLock<Result<Validator, String>>,
}

impl ToolSet {
    /// Of two tools with one name the first counts.
    pub(crate) fn new(tools: Vec<Arc<dyn Tool>>) -> Self {
        let (mut registered, mut specs) = (Vec::new(), Vec::<ToolSpec>::new());
        for tool in tools {
            let spec = tool.spec().clone();
            if specs.iter().any(|known| known.name == spec.name) {
                tracing::warn!(tool = spec.name, "a second tool of this name is ignored");
                continue;
            }
            specs.push(spec);
            let concurrency = tool.execution();
            registered.push(Registered { tool, concurrency, validator: OnceLock::new() });
        }
        ToolSet { tools: registered, specs: specs.into() }
    }

    pub(crate) fn specs(&self) -> Arc<[ToolSpec]> {
        self.specs.clone()
    }

    pub(crate) fn names(&self) -> Vec<String> {
        self.specs.iter().map(|spec| spec.name.clone()).collect()
    }

    /// Whether calls of that tool may overlap; those of a tool that is not there may.
    pub(crate) fn concurrency(&self, name: &str) -> ToolConcurrency {
        self.find(name).map_or_else(Default::default, |(registered, _)| registered.concurrency)
    }

    fn find(&self, name: &str) -> Option<(&Registered, &ToolSpec)> {
        let mut tools = self.tools.iter().zip(self.specs.iter());
        tools.find(|(_, spec)| spec.name == name)
    }

    /// The tool of a call and the arguments that it can run with; if there are none, what to tell the
    /// model.
    pub(crate) fn check(
        &self,
        name: &str,
        arguments: &Value,
    ) -> Result<(Arc<dyn Tool>, Value), String> {
        let Some((registered, spec)) = self.find(name) else {
            let known = match self.names().join(", ") {
                names if names.is_empty() => "there are no tools".to_owned(),
                names => format!("the tools are {names}"),
            };
            return Err(format!("There is no tool named {name:?}; {known}."));
        };
        let read = match arguments {
            Value::String(text) => repair::object_in(text),
            other => repair::checked(other.clone()),
        };
        let not_run = |fault| format!("The arguments of {name} {fault}, so it was not run.");
        let mut arguments =
            read.map_err(|fault| not_run(fault) + " Call it again with one complete JSON object.")?;
        let validator = registered.validator(spec)?;
        if !validator.is_valid(&arguments) {
            repair::fit(&mut arguments, &spec.parameters);
            // What was text before nests now.
            arguments = repair::checked(arguments).map_err(not_run)?;
        }
        match faults(validator, &arguments) {
            faults if faults.is_empty() => Ok((registered.tool.clone(), arguments)),
            faults => Err(format!(
                "The arguments of {name} do not fit its schema, so it was not run:{faults}"
            )),
        }
    }
}

impl Registered {
    fn validator(&self, spec: &ToolSpec) -> Result<&Validator, String> {
        let compile = || {
            jsonschema::validator_for(&spec.parameters).map_err(|error| {
                format!("The schema of the tool {} is not valid: {error}", spec.name)
            })
        };
        self.validator.get_or_init(compile).as_ref().map_err(String::clone)
    }
}

/// What does not fit, a line each. What the model said is not repeated.
fn faults(validator: &Validator, arguments: &Value) -> String {
    let mut faults = String::new();
    for fault in validator.iter_errors(arguments).take(MAX_FAULTS) {
        let path = fault.instance_path().to_string();
        let field = if path.is_empty() { String::new() } else { format!("{path}: ") };
        let _ = write!(faults, "\n- {field}{}", fault.masked());
        if let Some(broken) = fault.instance().as_str().and_then(repair::broken_within) {
            let _ = write!(faults, "; it is a string, and as JSON it is broken: {broken}");
        }
    }
    faults
}
