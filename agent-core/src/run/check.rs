//! Whether a tool call may run, and with which arguments.
//!
//! Owns: the order of the questions: is there such a tool, do the arguments fit, what does the hook
//! say. Never: runs a tool, or says what becomes of a call that may not.

use std::sync::Arc;

use crate::{
    data::message::ToolCall,
    pure::nesting::{self, MAX_DEPTH},
    run::{
        hook_call::{HookCall, Interrupted},
        tool_set::ToolSet,
    },
    seam::{hooks::ToolDecision, tool::Tool},
};

/// A call that may run.
pub(crate) struct Checked {
    pub(crate) tool: Arc<dyn Tool>,
    /// With the arguments that it runs with.
    pub(crate) call: ToolCall,
}

/// Why a call may not run.
pub(crate) enum Refusal {
    /// Not this call; the model is told why.
    Call(String),
    /// No call any more.
    Batch(Interrupted),
}

/// Checks one call. Safe to drop: no hook speaks for the call any more then.
pub(crate) async fn check(
    tools: Arc<ToolSet>,
    hooks: HookCall,
    call: ToolCall,
) -> Result<Checked, Refusal> {
    let (tool, arguments) = tools.check(&call.name, &call.arguments).map_err(Refusal::Call)?;
    let call = ToolCall { arguments, ..call };
    match hooks.before_tool_call(call.clone()).await.map_err(Refusal::Batch)? {
        ToolDecision::Run => Ok(Checked { tool, call }),
        ToolDecision::RunWith(arguments) if !nesting::is_shallow(&arguments) => {
            Err(Refusal::Call(format!("The arguments nest deeper than {MAX_DEPTH} levels.")))
        }
        ToolDecision::RunWith(arguments) => {
            let (tool, arguments) = tools.check(&call.name, &arguments).map_err(Refusal::Call)?;
            Ok(Checked { tool, call: ToolCall { arguments, ..call } })
        }
        ToolDecision::Block { reason } => Err(Refusal::Call(reason)),
    }
}
