//! Hooks made of closures.

use std::sync::Arc;

use agent_core::{
    BoxFuture, CancelSignal, FinishedTurn, HookError, Hooks, NextTurn, ToolCall, ToolDecision,
    ToolOutcome, Transcript,
};

type Hook<A, B> =
    Option<Arc<dyn Fn(A, CancelSignal) -> BoxFuture<'static, Result<B, HookError>> + Send + Sync>>;

/// Each hook does nothing until it is given a closure.
#[derive(Clone, Default)]
pub struct ScriptedHooks {
    transform_context: Hook<Transcript, Transcript>,
    convert_to_model: Hook<Transcript, Transcript>,
    before_tool_call: Hook<ToolCall, ToolDecision>,
    after_tool_call: Hook<(ToolCall, ToolOutcome), ToolOutcome>,
    should_stop_after_turn: Hook<FinishedTurn, bool>,
    prepare_next_turn: Hook<FinishedTurn, NextTurn>,
}

macro_rules! setters {
    ($($name:ident: $input:ty => $output:ty,)*) => {
        impl ScriptedHooks {
            $(
                /// Sets the hook of that name.
                pub fn $name<F, Fut>(mut self, hook: F) -> Self
                where
                    F: Fn($input, CancelSignal) -> Fut + Send + Sync + 'static,
                    Fut: Future<Output = Result<$output, HookError>> + Send + 'static,
                {
                    self.$name = Some(Arc::new(move |input, signal| Box::pin(hook(input, signal))));
                    self
                }
            )*
        }
    };
}

setters! {
    transform_context: Transcript => Transcript,
    convert_to_model: Transcript => Transcript,
    before_tool_call: ToolCall => ToolDecision,
    after_tool_call: (ToolCall, ToolOutcome) => ToolOutcome,
    should_stop_after_turn: FinishedTurn => bool,
    prepare_next_turn: FinishedTurn => NextTurn,
}

impl ScriptedHooks {
    /// Hooks that do nothing.
    pub fn new() -> Self {
        ScriptedHooks::default()
    }
}

impl Hooks for ScriptedHooks {
    fn transform_context(
        &self,
        messages: Transcript,
        signal: CancelSignal,
    ) -> BoxFuture<'_, Result<Transcript, HookError>> {
        match &self.transform_context {
            Some(hook) => hook(messages, signal),
            None => Box::pin(async { Ok(messages) }),
        }
    }

    fn convert_to_model(
        &self,
        messages: Transcript,
        signal: CancelSignal,
    ) -> BoxFuture<'_, Result<Transcript, HookError>> {
        match &self.convert_to_model {
            Some(hook) => hook(messages, signal),
            None => Box::pin(async { Ok(messages) }),
        }
    }

    fn before_tool_call(
        &self,
        call: ToolCall,
        signal: CancelSignal,
    ) -> BoxFuture<'_, Result<ToolDecision, HookError>> {
        match &self.before_tool_call {
            Some(hook) => hook(call, signal),
            None => Box::pin(async { Ok(ToolDecision::Run) }),
        }
    }

    fn after_tool_call(
        &self,
        call: ToolCall,
        outcome: ToolOutcome,
        signal: CancelSignal,
    ) -> BoxFuture<'_, Result<ToolOutcome, HookError>> {
        match &self.after_tool_call {
            Some(hook) => hook((call, outcome), signal),
            None => Box::pin(async { Ok(outcome) }),
        }
    }

    fn should_stop_after_turn(
        &self,
        turn: FinishedTurn,
        signal: CancelSignal,
    ) -> BoxFuture<'_, Result<bool, HookError>> {
        match &self.should_stop_after_turn {
            Some(hook) => hook(turn, signal),
            None => Box::pin(async { Ok(false) }),
        }
    }

    fn prepare_next_turn(
        &self,
        turn: FinishedTurn,
        signal: CancelSignal,
    ) -> BoxFuture<'_, Result<NextTurn, HookError>> {
        match &self.prepare_next_turn {
            Some(hook) => hook(turn, signal),
            None => Box::pin(async { Ok(NextTurn::default()) }),
        }
    }
}
