//! The tools of an agent, by name.
//!
//! Owns: look-up and the validation of arguments against each tool's schema (contract 11.1).
//! Never: runs a tool.

use std::{
    fmt::Write,
    sync::{Arc, OnceLock},
};

use jsonschema::Validator;
use serde_json::Value;

use crate::{Tool, ToolSpec};

/// How many faults of one call's arguments are told to the model.
const MAX_FAULTS: usize = 5;

/// Tools with distinct names.
#[derive(Default)]
pub(crate) struct ToolSet {
    tools: Vec<Registered>,
    specs: Arc<[ToolSpec]>,
}

struct Registered {
    tool: Arc<dyn Tool>,
    /// Compiled at the first call: an agent that starts should not pay for tools it never uses.
    validator: OnceLock<Result<Validator, String>>,
}

impl ToolSet {
    /// Of two tools with one name the first counts.
    pub(crate) fn new(tools: Vec<Arc<dyn Tool>>) -> Self {
        let mut set = ToolSet::default();
        for tool in tools {
            if set.get(&tool.spec().name).is_some() {
                tracing::warn!(tool = tool.spec().name, "a second tool of this name is ignored");
                continue;
            }
            set.tools.push(Registered { tool, validator: OnceLock::new() });
        }
        set.specs = set.tools.iter().map(|registered| registered.tool.spec().clone()).collect();
        set
    }

    pub(crate) fn specs(&self) -> Arc<[ToolSpec]> {
        self.specs.clone()
    }

    pub(crate) fn names(&self) -> Vec<String> {
        self.specs.iter().map(|spec| spec.name.clone()).collect()
    }

    pub(crate) fn get(&self, name: &str) -> Option<Arc<dyn Tool>> {
        self.find(name).map(|registered| registered.tool.clone())
    }

    fn find(&self, name: &str) -> Option<&Registered> {
        self.tools.iter().find(|registered| registered.tool.spec().name == name)
    }

    /// Whether a call can run as it stands; if not, what to tell the model.
    pub(crate) fn check(&self, name: &str, arguments: &Value) -> Result<Arc<dyn Tool>, String> {
        let Some(registered) = self.find(name) else {
            let known = match self.names().join(", ") {
                names if names.is_empty() => "there are no tools".to_owned(),
                names => format!("the tools are {names}"),
            };
            return Err(format!("There is no tool named {name:?}; {known}."));
        };
        if !arguments.is_object() {
            return Err(format!(
                "The arguments of {name} are not a JSON object, so it was not run. Call it again \
                 with complete JSON."
            ));
        }
        let compile = || {
            jsonschema::validator_for(&registered.tool.spec().parameters)
                .map_err(|error| format!("The schema of the tool {name} is not valid: {error}"))
        };
        let validator =
            registered.validator.get_or_init(compile).as_ref().map_err(String::clone)?;
        let mut faults = String::new();
        for fault in validator.iter_errors(arguments).take(MAX_FAULTS) {
            let path = fault.instance_path().to_string();
            let field = if path.is_empty() { String::new() } else { format!("{path}: ") };
            let _ = write!(faults, "\n- {field}{}", fault.masked());
        }
        if faults.is_empty() {
            return Ok(registered.tool.clone());
        }
        Err(format!("The arguments of {name} do not fit its schema, so it was not run:{faults}"))
    }
}
