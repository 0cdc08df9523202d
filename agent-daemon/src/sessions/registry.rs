//! The sessions of one daemon: by id, and the oldest one of each directory.
//!
//! Owns: which sessions there are, how many there may be, and what a new one is made of.
//! Never: looks into a session's run.

use std::{
    collections::HashSet,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use agent_core::{AgentOptions, Limits, Model, RetryPolicy, SettingsChange, Tool, Transcript};
use agent_protocol::{
    CreateSessionParams, CreateSessionResult, DEFAULT_SESSION, RpcError, SessionSummary,
    SetConfigParams,
};

use crate::{
    config::{Configuration, LimitsTable, Settings},
    model::{ModelCatalog, ModelUnavailable},
    sessions::{
        instructions::SystemPrompt,
        session::{Identity, Session, resolve},
        toolbox::Toolbox,
    },
    system::memory::has_freed,
    tool::{self, Outputs, ToolPolicy, Workspace},
};

/// The longest id of a session, in bytes.
const MAX_ID: usize = 128;
/// How many ids of closed sessions are remembered.
const REMEMBERED_IDS: usize = 4_096;

/// The sessions.
pub struct Sessions {
    blueprint: Blueprint,
    outputs: Arc<Outputs>,
    instance_id: Arc<str>,
    table: Mutex<Table>,
}

/// What new sessions are made of.
pub struct Blueprint {
    /// All models.
    pub catalog: Arc<ModelCatalog>,
    /// The model of a session that asks for none, or why it cannot be used. Such a session is there
    /// all the same; what would ask its model is refused.
    pub model: Result<Arc<dyn Model>, ModelUnavailable>,
    /// The tools of every session, in place of the built-in ones.
    pub tools: Option<Vec<Arc<dyn Tool>>>,
    /// Everything else.
    pub configuration: Configuration,
}

struct Table {
    /// Oldest first.
    sessions: Vec<Arc<Session>>,
    closed_ids: HashSet<Arc<str>>,
    /// Ids were closed that are no longer remembered.
    has_forgotten: bool,
    /// Why no more sessions are made.
    closed: Option<RpcError>,
}

impl Sessions {
    /// The default session alone.
    pub(crate) fn new(blueprint: Blueprint, instance_id: Arc<str>) -> Self {
        let cwd = blueprint.configuration.cwd.clone();
        let outputs = Outputs::new(blueprint.configuration.cache.as_deref());
        let toolbox = blueprint.toolbox(&cwd, &outputs, DEFAULT_SESSION);
        let (options, prompt) = blueprint.options(&cwd, toolbox.all(), SettingsChange::default());
        let slow_readers = blueprint.configuration.slow_readers;
        let identity =
            Identity { id: DEFAULT_SESSION.into(), instance_id: instance_id.clone(), cwd };
        let main = Session::new(identity, slow_readers, options, prompt, toolbox)
            .without_model(blueprint.model.as_ref().err());
        let table = Table {
            sessions: vec![Arc::new(main)],
            closed_ids: HashSet::new(),
            has_forgotten: false,
            closed: None,
        };
        Sessions { blueprint, outputs, instance_id, table: Mutex::new(table) }
    }

    /// All models.
    pub(crate) fn catalog(&self) -> &ModelCatalog {
        &self.blueprint.catalog
    }

    /// What commands said that was too long for the model.
    pub(crate) fn outputs(&self) -> &Arc<Outputs> {
        &self.outputs
    }

    /// The session of that id, or the default one.
    ///
    /// # Errors
    /// There is none.
    pub fn get(&self, id: Option<&str>) -> Result<Arc<Session>, RpcError> {
        let id = id.unwrap_or(DEFAULT_SESSION);
        let table = self.lock();
        table.get(id).cloned().ok_or_else(|| not_found(id))
    }

    /// All sessions, oldest first.
    pub(crate) fn all(&self) -> Vec<Arc<Session>> {
        self.lock().sessions.clone()
    }

    /// All sessions, for people.
    pub(crate) fn summaries(&self) -> Vec<SessionSummary> {
        let summary = |session: &Arc<Session>| {
            let now = session.agent.snapshot();
            SessionSummary {
                session_id: session.id.to_string(),
                instance_id: session.log.instance_id().to_owned(),
                cwd: session.cwd.display().to_string(),
                model: now.state.config.model.clone(),
                active_run_id: now.state.active_run(),
                messages: now.state.messages.len(),
                seq: now.seq,
            }
        };
        self.all().iter().map(summary).collect()
    }

    /// Makes a session, or without an id finds the oldest one of the directory. The settings are
    /// those of a new session; one that is found keeps its own.
    ///
    /// # Errors
    /// A parameter that cannot be used, an id that exists, or one session too many.
    pub(crate) fn create(
        &self,
        params: &CreateSessionParams,
    ) -> Result<CreateSessionResult, RpcError> {
        let cwd = match &params.cwd {
            Some(cwd) => directory(cwd)?,
            None => self.blueprint.configuration.cwd.clone(),
        };
        if let Some(id) = &params.session_id {
            check_id(id)?;
        }
        // Outside the lock: it reads files. Whoever finds a session has asked for nothing wrong.
        let name = params.session_id.as_deref().unwrap_or("session");
        let toolbox = self.blueprint.toolbox(&cwd, &self.outputs, name);
        let settings = SetConfigParams::from(params.clone());
        let change = resolve(&settings, self.catalog(), &toolbox)?;
        let unavailable = match &change.model {
            Some(_) => None,
            None => self.blueprint.model.as_ref().err(),
        };
        let (options, prompt) = self.blueprint.options(&cwd, toolbox.all(), change);

        let mut table = self.lock();
        if let Some(why) = &table.closed {
            return Err(why.clone());
        }
        let id: Arc<str> = match &params.session_id {
            Some(id) if table.get(id).is_some() => {
                return Err(RpcError::SessionExists { session_id: id.clone() });
            }
            Some(id) => id.as_str().into(),
            None => match table.of_directory(&cwd) {
                Some(session) => {
                    let session_id = session.id.to_string();
                    return Ok(CreateSessionResult { session_id, created: false });
                }
                None => table.free_id(&cwd),
            },
        };
        let limit = self.blueprint.configuration.settings.limits.max_sessions;
        if table.sessions.len() as u64 >= limit {
            return Err(RpcError::TooManySessions { limit });
        }
        let instance_id = table.instance_of(&id, &self.instance_id);
        let slow_readers = self.blueprint.configuration.slow_readers;
        let identity = Identity { id: id.clone(), instance_id, cwd };
        let session = Session::new(identity, slow_readers, options, prompt, toolbox)
            .without_model(unavailable);
        tracing::info!(session = %id, cwd = %session.cwd.display(), "session created");
        table.sessions.push(Arc::new(session));
        Ok(CreateSessionResult { session_id: id.to_string(), created: true })
    }

    /// Forgets a session that has settled.
    pub(crate) fn remove(&self, session: &Arc<Session>) {
        let mut table = self.lock();
        table.sessions.retain(|other| !Arc::ptr_eq(other, session));
        if table.closed_ids.len() < REMEMBERED_IDS {
            table.closed_ids.insert(session.id.clone());
        } else if !table.closed_ids.contains(&session.id) {
            table.has_forgotten = true;
        }
        has_freed();
    }

    /// Makes no more sessions, and lets those that there are take no more work.
    pub(crate) fn close(&self, why: &RpcError) {
        let mut table = self.lock();
        table.closed.get_or_insert(why.clone());
        for session in &table.sessions {
            // One that is closed already settles as well.
            let _ = session.close(why.clone());
        }
    }

    fn lock(&self) -> MutexGuard<'_, Table> {
        // Nothing under the lock can panic half-way through a change.
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Blueprint {
    /// The tools of a session, whose outputs are kept under its name.
    fn toolbox(&self, cwd: &Path, outputs: &Arc<Outputs>, name: &str) -> Toolbox {
        let outputs = outputs.of_session(name);
        let all = self.tools.clone().unwrap_or_else(|| {
            let policy = self.configuration.settings.tools.clone();
            let secrets = self.catalog.secret_variables();
            let workspace = Workspace::new(cwd.to_owned(), policy, secrets);
            tool::built_in(Arc::new(workspace.with_outputs(outputs.clone())))
        });
        Toolbox::new(all, outputs)
    }

    /// What an agent in a directory begins with: the settings that were asked for, else those of the
    /// configuration.
    fn options(
        &self,
        cwd: &Path,
        tools: Vec<Arc<dyn Tool>>,
        asked: SettingsChange,
    ) -> (AgentOptions, SystemPrompt) {
        let Settings { session, limits, retry, tools: policy, .. } = &self.configuration.settings;
        let tools = asked.tools.unwrap_or(tools);
        let ours = || match &self.model {
            Ok(model) => model.clone(),
            Err(unavailable) => Arc::new(unavailable.clone()),
        };
        let names: Vec<&str> = tools.iter().map(|tool| tool.spec().name.as_str()).collect();
        let prompt =
            SystemPrompt::new(cwd, asked.system_prompt.or_else(|| session.system_prompt.clone()));
        let options = AgentOptions {
            model: asked.model.unwrap_or_else(ours),
            system_prompt: prompt.text(&names).into(),
            tools,
            hooks: None,
            thinking_level: asked.thinking_level.unwrap_or(session.thinking_level),
            steering_mode: asked.steering_mode.unwrap_or(session.steering_mode),
            follow_up_mode: asked.follow_up_mode.unwrap_or(session.follow_up_mode),
            when_idle: asked.when_idle.unwrap_or(session.when_idle),
            max_turns: asked.max_turns.unwrap_or(session.max_turns),
            tool_execution: asked.tool_execution.unwrap_or(session.tool_execution),
            messages: Transcript::default(),
            limits: limits_of(limits, policy),
            retry: RetryPolicy {
                max_retries: retry.max_retries as u32,
                base_delay: Duration::from_millis(retry.base_delay_ms),
                max_delay: Duration::from_millis(retry.max_delay_ms),
            },
        };
        (options, prompt)
    }
}

/// Without the loop's limit for a silent model: ours watch their connections, where a server that
/// says no more than that it is still at work is not silent.
fn limits_of(limits: &LimitsTable, policy: &ToolPolicy) -> Limits {
    Limits {
        abort_grace: Duration::from_millis(limits.abort_grace_ms),
        idle_timeout: Duration::MAX,
        max_parallel: policy.max_parallel,
        max_answer_bytes: limits.max_answer_bytes as usize,
    }
}

impl Table {
    fn get(&self, id: &str) -> Option<&Arc<Session>> {
        self.sessions.iter().find(|session| *session.id == *id)
    }

    fn of_directory(&self, cwd: &Path) -> Option<&Arc<Session>> {
        self.sessions.iter().find(|session| session.cwd == cwd && session.is_open())
    }

    /// An id that people recognise: the directory's name, with a number where it is taken.
    fn free_id(&self, cwd: &Path) -> Arc<str> {
        let name = cwd.file_name().map(|name| name.to_string_lossy()).unwrap_or_default();
        let may_stay = |symbol: char| symbol.is_ascii_alphanumeric() || "._-".contains(symbol);
        let symbols = name.chars().map(|symbol| if may_stay(symbol) { symbol } else { '-' });
        let name: String = symbols.take(40).collect();
        let name = if name.is_empty() { "session" } else { &name };
        let numbered = (2_u64..).map(|number| format!("{name}-{number}"));
        let mut ids = std::iter::once(name.to_owned()).chain(numbered);
        let id = ids.find(|id| self.get(id).is_none());
        id.expect("there are more numbers than sessions").into()
    }

    /// A session's numbers count within its instance, so an id that comes again is another one.
    fn instance_of(&self, id: &str, daemon: &Arc<str>) -> Arc<str> {
        match self.has_forgotten || self.closed_ids.contains(id) {
            true => uuid::Uuid::new_v4().to_string().into(),
            false => daemon.clone(),
        }
    }
}

/// The error for a session that is not there, or no longer.
pub(crate) fn not_found(id: &str) -> RpcError {
    RpcError::SessionNotFound { session_id: id.chars().take(MAX_ID).collect() }
}

fn check_id(id: &str) -> Result<(), RpcError> {
    let is_legal = |byte: u8| byte.is_ascii_alphanumeric() || b"._:-".contains(&byte);
    match (1..=MAX_ID).contains(&id.len()) && id.bytes().all(is_legal) {
        true => Ok(()),
        false => Err(RpcError::invalid_param(
            "sessionId",
            format!("expected 1 to {MAX_ID} letters, digits and `.`, `_`, `:`, `-`"),
        )),
    }
}

fn directory(cwd: &str) -> Result<PathBuf, RpcError> {
    let refused = |problem: String| RpcError::invalid_param("cwd", problem);
    let path = Path::new(cwd);
    // The daemon's own directory is not the client's, so a relative path would mean another place.
    if !path.is_absolute() {
        return Err(refused(format!("expected an absolute path, got {cwd:?}")));
    }
    let found =
        path.canonicalize().map_err(|error| refused(format!("{cwd:?} is not usable: {error}")))?;
    match found.is_dir() {
        true => Ok(found),
        false => Err(refused(format!("{cwd:?} is not a directory"))),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use agent_core::{
        Agent, BoxFuture, EndReason, ModelEnd, ModelError, ModelEvent, ModelRequest, ModelSink,
        StopReason, Usage,
    };

    use super::*;

    /// A model whose server reads the prompt for an hour, and says so.
    struct Slow;

    impl Model for Slow {
        fn name(&self) -> &str {
            "p/slow"
        }

        fn respond<'a>(
            &'a self,
            _: ModelRequest,
            sink: ModelSink,
        ) -> BoxFuture<'a, Result<ModelEnd, ModelError>> {
            Box::pin(async move {
                tokio::time::sleep(Duration::from_secs(3600)).await;
                sink.send(ModelEvent::Text { index: 0, delta: "read".to_owned() }).await?;
                Ok(ModelEnd { stop_reason: StopReason::Stop, usage: Usage::default() })
            })
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_model_is_given_the_time_that_its_server_asks_for() {
        let limits = limits_of(&LimitsTable::default(), &ToolPolicy::default());
        let options = AgentOptions { limits, ..AgentOptions::new(Slow) };
        let run = Agent::new(options).prompt("hi").unwrap();
        assert_eq!(run.await.unwrap().reason, EndReason::Stop);
    }
}
