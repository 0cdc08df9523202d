//! One session: an agent with its directory, its events and what it was asked before.
//!
//! Owns: the moment after which a session takes no more work, and the translation between the
//! core's calls and the wire's.
//! Never: waits, but in `settle`; every other call is one step of the agent.

use std::{
    path::PathBuf,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use agent_core::{
    Accepted, Agent, AgentOptions, Event, EventKind, Input, Intent, NoRun, SettingsChange, Tool,
};
use agent_protocol::{ContinueResult, QueueResult, RpcError, SetConfigParams};

use crate::{
    events::{fanout::EventLog, policy::SlowReaderPolicy},
    model::{ModelCatalog, ModelUnavailable},
    sessions::{
        idempotency::Idempotency,
        instructions::{SystemPrompt, for_other_tools},
        toolbox::Toolbox,
    },
    system::memory::has_freed,
};

/// One agent, hosted.
pub struct Session {
    /// Its name among the sessions.
    pub id: Arc<str>,
    /// Where its tools work; absolute, without symlinks.
    pub cwd: PathBuf,
    /// The agent.
    pub agent: Agent,
    /// The agent's events, for whoever subscribes.
    pub log: Arc<EventLog>,
    toolbox: Toolbox,
    /// The model that it was made with, if that cannot be used.
    unavailable: Option<ModelUnavailable>,
    intake: Mutex<Intake>,
}

/// Which session it is.
pub(crate) struct Identity {
    /// Its name among the sessions.
    pub(crate) id: Arc<str>,
    /// What its sequence numbers count in.
    pub(crate) instance_id: Arc<str>,
    /// Where its tools work; absolute, without symlinks.
    pub(crate) cwd: PathBuf,
}

/// What decides whether a call starts anything.
struct Intake {
    /// Why no more work is taken.
    closed: Option<RpcError>,
    answers: Idempotency<QueueResult>,
    /// As it was last put together; another one may have been set since.
    prompt: SystemPrompt,
}

impl Session {
    /// A session whose agent is new.
    pub(crate) fn new(
        identity: Identity,
        slow_readers: SlowReaderPolicy,
        options: AgentOptions,
        prompt: SystemPrompt,
        toolbox: Toolbox,
    ) -> Self {
        let Identity { id, instance_id, cwd } = identity;
        let agent = Agent::new(options);
        let snapshot = {
            let agent = agent.clone();
            move || agent.snapshot()
        };
        let log = Arc::new(EventLog::new(&id, instance_id, slow_readers, snapshot));
        // The log holds the agent, so the agent must not hold the log.
        let (weak_log, session_id) = (Arc::downgrade(&log), id.clone());
        agent.subscribe(move |event, _| {
            if let Some(log) = weak_log.upgrade() {
                log.append(&event);
            }
            note(&session_id, &event);
            std::future::ready(Ok(()))
        });
        let intake = Mutex::new(Intake { closed: None, answers: Idempotency::default(), prompt });
        Session { id, cwd, agent, log, toolbox, unavailable: None, intake }
    }

    /// The same with the reason why its model cannot be used, if there is one.
    pub(crate) fn without_model(self, unavailable: Option<&ModelUnavailable>) -> Self {
        Session { unavailable: unavailable.cloned(), ..self }
    }

    /// Why the session's model cannot be used, until it has another. It is never given one of those.
    pub(crate) fn unavailable(&self) -> Option<&ModelUnavailable> {
        let unavailable = self.unavailable.as_ref()?;
        let current = &self.agent.snapshot().state.config.model;
        (*current == unavailable.model).then_some(unavailable)
    }

    /// Takes a message in, unless the same call was made before (W3.3).
    ///
    /// # Errors
    /// What the agent refused it with; the session is closed; the id stands for something else; it
    /// would ask a model that cannot be used.
    pub(crate) fn submit(
        &self,
        method: &'static str,
        input: Input,
        intent: Intent,
    ) -> Result<QueueResult, RpcError> {
        let mut intake = self.intake()?;
        let origin = input.origin.clone();
        let id = origin.as_ref().and_then(|origin| origin.client_message_id.as_deref());
        let content = input.content.clone();
        let Intake { answers, prompt, .. } = &mut *intake;
        answers.once(id, method, &content, || {
            if would_start(intent) {
                self.check_model()?;
            }
            self.renew(prompt);
            let Accepted { disposition, run_id, message_id, position, seq, .. } =
                self.agent.submit(input, intent)?;
            let answer =
                QueueResult { disposition, run_id, message_id: message_id.clone(), position, seq };
            Ok::<_, RpcError>((message_id, answer))
        })
    }

    /// Runs again without a new message.
    ///
    /// # Errors
    /// What the agent refused it with; the session is closed; the model cannot be used.
    pub(crate) fn continue_run(&self) -> Result<ContinueResult, RpcError> {
        let mut intake = self.intake()?;
        self.check_model()?;
        self.renew(&mut intake.prompt);
        let run = self.agent.continue_run()?;
        Ok(ContinueResult { run_id: run.run_id(), seq: run.seq() })
    }

    /// Empties the transcript, and begins again with the instructions as they are now.
    ///
    /// # Errors
    /// A run is active.
    pub(crate) fn reset(&self) -> Result<u64, RpcError> {
        self.renew(&mut self.lock().prompt);
        Ok(self.agent.reset()?)
    }

    /// Before a run begins: what people have changed in their instructions counts from now on.
    fn renew(&self, prompt: &mut SystemPrompt) {
        let state = self.agent.snapshot().state;
        if state.active_run().is_some() {
            return;
        }
        if let Some(text) = prompt.renewed(&state.config.system_prompt, &state.config.tools) {
            let change =
                SettingsChange { system_prompt: Some(text.into()), ..SettingsChange::default() };
            self.agent.configure(change);
        }
    }

    /// Takes no more work from now on: `why` is what it is refused with.
    ///
    /// # Errors
    /// It takes none already, for this reason.
    pub(crate) fn close(&self, why: RpcError) -> Result<(), RpcError> {
        self.intake()?.closed = Some(why);
        Ok(())
    }

    /// Aborts the run and completes when the agent is idle. Safe to drop.
    pub(crate) async fn settle(&self) {
        // Without an expected run there is nothing to be wrong about.
        let _ = self.agent.abort(None);
        if let Err(error) = self.agent.wait_for_idle().await {
            tracing::error!(session = %self.id, %error, "the session did not settle");
        }
    }

    /// Removes what its tools kept on disk. Safe to drop; it goes all the same.
    pub(crate) async fn remove_outputs(&self) {
        let outputs = self.toolbox.outputs().clone();
        if let Err(error) = tokio::task::spawn_blocking(move || outputs.remove()).await {
            tracing::error!(session = %self.id, %error, "the outputs were not removed");
        }
    }

    /// Whether work is taken.
    pub(crate) fn is_open(&self) -> bool {
        self.lock().closed.is_none()
    }

    /// Looks up what a change names. The default system prompt names the tools, so it changes with
    /// them.
    ///
    /// # Errors
    /// A model that cannot be used, or a tool that the session may not have.
    pub(crate) fn resolve(
        &self,
        params: &SetConfigParams,
        catalog: &ModelCatalog,
    ) -> Result<SettingsChange, RpcError> {
        let mut change = resolve(params, catalog, &self.toolbox)?;
        if let (Some(tools), None) = (&change.tools, &change.system_prompt) {
            change.system_prompt = self.prompt_with(tools);
        }
        Ok(change)
    }

    /// Lets the session have one more tool, in place of one with its name, and gives it to the agent.
    /// It can be called from the next turn on.
    pub fn add_tool(&self, tool: Arc<dyn Tool>) {
        // One change after another.
        let _turn = self.lock();
        let name = self.toolbox.put(tool);
        let mut names = self.agent.snapshot().state.config.tools.clone();
        if !names.contains(&name) {
            names.push(name);
        }
        self.give(&names);
    }

    /// Takes a tool from the session and its agent; whether it had one of this name. A call that runs
    /// goes on.
    pub fn remove_tool(&self, name: &str) -> bool {
        let _turn = self.lock();
        let taken = self.toolbox.take(name);
        let mut names = self.agent.snapshot().state.config.tools.clone();
        names.retain(|known| known != name);
        self.give(&names);
        taken.is_some()
    }

    /// Gives the agent those of its tools that are still there, with these names.
    fn give(&self, names: &[String]) {
        let named = |name: &String| self.toolbox.named(std::slice::from_ref(name)).ok();
        let tools: Vec<_> = names.iter().filter_map(named).flatten().collect();
        let system_prompt = self.prompt_with(&tools);
        let change = SettingsChange { tools: Some(tools), system_prompt, ..Default::default() };
        self.agent.configure(change);
    }

    /// The system prompt for other tools; none if it does not name them.
    fn prompt_with(&self, tools: &[Arc<dyn Tool>]) -> Option<Arc<str>> {
        let names: Vec<&str> = tools.iter().map(|tool| tool.spec().name.as_str()).collect();
        let config = &self.agent.snapshot().state.config;
        let prompt = for_other_tools(&config.system_prompt, &self.cwd, &config.tools, &names);
        prompt.map(Into::into)
    }

    fn check_model(&self) -> Result<(), RpcError> {
        self.unavailable().map_or(Ok(()), |unavailable| Err(unavailable.clone().into()))
    }

    fn intake(&self) -> Result<MutexGuard<'_, Intake>, RpcError> {
        let intake = self.lock();
        match &intake.closed {
            Some(why) => Err(why.clone()),
            None => Ok(intake),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Intake> {
        // A panic in between has at worst not remembered an answer.
        self.intake.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whether the input starts a run where none is active; and with a model that cannot be used none is.
fn would_start(intent: Intent) -> bool {
    match intent {
        Intent::Prompt { .. } => true,
        Intent::Queue { expected_run_id, when_idle, .. } => {
            expected_run_id.is_none() && when_idle == Some(NoRun::Prompt)
        }
    }
}

/// Looks up what a change of settings names, among the tools of a box.
///
/// # Errors
/// A model that cannot be used, or a tool that is not among them.
pub(crate) fn resolve(
    params: &SetConfigParams,
    catalog: &ModelCatalog,
    toolbox: &Toolbox,
) -> Result<SettingsChange, RpcError> {
    let prompt = params.system_prompt.as_deref().map_or(0, str::len) as u64;
    if prompt > MAX_SYSTEM_PROMPT {
        return Err(RpcError::InputTooLarge { max_bytes: MAX_SYSTEM_PROMPT, actual_bytes: prompt });
    }
    Ok(SettingsChange {
        model: params.model.as_ref().map(|name| catalog.get(name)).transpose()?,
        tools: params.tools.as_ref().map(|names| toolbox.named(names)).transpose()?,
        system_prompt: params.system_prompt.clone(),
        thinking_level: params.thinking_level,
        steering_mode: params.steering_mode,
        follow_up_mode: params.follow_up_mode,
        when_idle: params.when_idle,
        max_turns: params.max_turns,
        tool_execution: params.tool_execution,
    })
}

impl From<ModelUnavailable> for RpcError {
    fn from(ModelUnavailable { model, reason }: ModelUnavailable) -> Self {
        RpcError::ModelUnavailable { model, reason }
    }
}

/// The longest system prompt: what one message may have of text.
const MAX_SYSTEM_PROMPT: u64 = 1 << 20;

/// What the log says of a run.
fn note(session: &str, event: &Event) {
    let run = event.run_id.map(|run| run.0);
    match &event.kind {
        EventKind::RunStart { .. } => tracing::info!(session, run, seq = event.seq, "run started"),
        EventKind::RunEnd { reason, error_message, .. } => {
            let error = error_message.as_deref();
            tracing::info!(session, run, seq = event.seq, ?reason, error, "run ended");
            has_freed();
        }
        EventKind::Reset {} => has_freed(),
        EventKind::Retry { attempt, delay_ms, error } => {
            tracing::warn!(
                session,
                run,
                attempt,
                delay_ms,
                error,
                "model request will be repeated"
            );
        }
        EventKind::Diagnostic { message } => tracing::warn!(session, run, message, "diagnostic"),
        EventKind::ToolStart { tool_call_id, tool_name, .. } => {
            tracing::debug!(session, run, id = %tool_call_id, tool = tool_name, "tool started");
        }
        EventKind::ToolEnd { tool_call_id, is_error, .. } => {
            tracing::debug!(session, run, id = %tool_call_id, is_error, "tool ended");
        }
        _ => {}
    }
}
