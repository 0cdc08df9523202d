//! The tools of one session.
//!
//! Owns: which tools its agent can be given, while the session lives. Never: gives it one.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use agent_core::Tool;
use agent_protocol::RpcError;

use crate::tool::SessionOutputs;

/// What a session's agent can be given.
pub(crate) struct Toolbox {
    // Invariant: their names differ. Asked for once, and not under the lock: it is code that is not
    // ours.
    tools: Mutex<Vec<Named>>,
    /// What they said that was too long for the model.
    outputs: Arc<SessionOutputs>,
}

#[derive(Clone)]
struct Named {
    name: String,
    tool: Arc<dyn Tool>,
}

impl Toolbox {
    /// A box with these tools. Of two with one name the first counts.
    pub(crate) fn new(tools: Vec<Arc<dyn Tool>>, outputs: Arc<SessionOutputs>) -> Self {
        let mut distinct = Vec::<Named>::new();
        for named in tools.into_iter().map(Named::new) {
            if !distinct.iter().any(|known| known.name == named.name) {
                distinct.push(named);
            }
        }
        Toolbox { tools: Mutex::new(distinct), outputs }
    }

    /// All of them, in the order in which they came.
    pub(crate) fn all(&self) -> Vec<Arc<dyn Tool>> {
        self.lock().iter().map(|named| named.tool.clone()).collect()
    }

    /// Those with these names, each once.
    ///
    /// # Errors
    /// A name that none has.
    pub(crate) fn named(&self, names: &[String]) -> Result<Vec<Arc<dyn Tool>>, RpcError> {
        let tools = self.lock();
        let find = |name: &String| {
            let found = tools.iter().find(|known| known.name == *name);
            found.map(|known| known.tool.clone()).ok_or_else(|| {
                let there: Vec<_> = tools.iter().map(|known| known.name.as_str()).collect();
                let there = there.join(", ");
                let problem = format!("there is no tool `{name}` (there are: {there})");
                RpcError::invalid_param("tools", problem)
            })
        };
        // Of a name that is there twice the agent keeps one, and the prompt must not say otherwise.
        let is_first = |at: &usize| !names[..*at].contains(&names[*at]);
        (0..names.len()).filter(is_first).map(|at| find(&names[at])).collect()
    }

    /// Adds a tool, in place of one with its name, and tells the name.
    pub(crate) fn put(&self, tool: Arc<dyn Tool>) -> String {
        let named = Named::new(tool);
        let name = named.name.clone();
        let replaced = {
            let mut tools = self.lock();
            match tools.iter_mut().find(|known| known.name == name) {
                Some(known) => Some(std::mem::replace(known, named)),
                None => {
                    tools.push(named);
                    None
                }
            }
        };
        // What a tool owns is not ours; not under the lock.
        drop(replaced);
        name
    }

    /// Takes a tool out, if there is one of this name.
    pub(crate) fn take(&self, name: &str) -> Option<Arc<dyn Tool>> {
        let mut tools = self.lock();
        let at = tools.iter().position(|known| known.name == name)?;
        Some(tools.remove(at).tool)
    }

    /// What they said that was too long for the model.
    pub(crate) fn outputs(&self) -> &Arc<SessionOutputs> {
        &self.outputs
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Named>> {
        // Each change is one step.
        self.tools.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Named {
    fn new(tool: Arc<dyn Tool>) -> Self {
        Named { name: tool.spec().name.clone(), tool }
    }
}
