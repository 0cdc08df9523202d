//! The method table: one short function per method.
//!
//! Owns: what each method does with its params.
//! Never: waits, but in `waitForIdle`, `closeSession` and `shutdown`, and for pictures to be looked
//! at, which holds up the calls behind; so calls take effect in the order in which they arrive (W1.5).

use std::{future::Future, sync::Arc, time::Duration};

use agent_core::{
    Agent, Idle, Input, Intent, Message, OnBusy, Origin, QueueKind, RunId, WaitError, WrongRun,
};
use agent_protocol::{RpcError, *};
use jsonrpsee::{Extensions, RpcModule, types::ErrorObjectOwned};

use crate::{
    events::subscription::with_newest_messages,
    methods::params::{parse, parse_initialize, parse_subscription},
    peer::{caller::Caller, transport::Transport},
    sessions::{daemon::Daemon, registry::not_found, session::Session},
};

mod input;
pub(crate) mod params;

/// The longest id or name that a client may give something, in bytes.
const MAX_NAME: usize = 256;
/// How many messages a page has unless the client says so,
const PAGE: usize = 100;
/// how many at most,
const MAX_PAGE: usize = 1_000;
/// and how many bytes of content, but for its first message.
const MAX_PAGE_BYTES: usize = 8 << 20;

type Answer<M> = Result<<M as Method>::Result, RpcError>;

/// Who calls, and whom.
struct Call<'a> {
    daemon: &'a Daemon,
    caller: &'a Arc<Caller>,
}

/// All methods of the protocol.
pub fn table(daemon: Arc<Daemon>) -> RpcModule<Daemon> {
    let mut table = Table { module: RpcModule::from_arc(daemon) };
    table.add_read_by::<Initialize>(parse_initialize, initialize);
    table.add_async::<Shutdown, _>(shutdown);
    table.add_async::<Prompt, _>(prompt);
    table.add::<Continue>(|call, params| call.session(&params.session_id)?.continue_run());
    table.add_async::<Steer, _>(steer);
    table.add_async::<FollowUp, _>(follow_up);
    table.add::<Abort>(abort);
    table.add_async::<WaitForIdle, _>(wait_for_idle);
    table.add::<RemoveQueued>(remove_queued);
    table.add::<ClearQueues>(clear_queues);
    table.add::<GetState>(get_state);
    table.add::<GetMessages>(get_messages);
    table.add::<Subscribe>(subscribe);
    table.add_read_by::<Unsubscribe>(parse_subscription, unsubscribe);
    table.add::<SetConfig>(set_config);
    table.add::<ListModels>(list_models);
    table.add::<Reset>(reset);
    table.add::<CreateSession>(|call, params| call.daemon.sessions.create(&params));
    table.add::<ListSessions>(list_sessions);
    table.add_async::<CloseSession, _>(close_session);
    table.add::<Health>(|call, _| Ok(call.daemon.health(call.caller.server().connections())));
    table.add::<GetSchema>(|call, _| Ok(call.daemon.schema().document.clone()));
    table.module
}

fn initialize(call: Call<'_>, params: InitializeParams) -> Answer<Initialize> {
    call.caller.authorize(params.token.as_deref())?;
    check_name("clientInfo.name", &params.client_info.name)?;
    call.caller.initialize(&params.client_info.name)?;
    let ClientInfo { name, version } = &params.client_info;
    tracing::info!(client = name, version, "client introduced itself");
    if let (Transport::Stdio, Some(parent)) = (call.caller.transport(), params.process_id) {
        call.daemon.watch_parent(parent);
    }
    Ok(call.daemon.introduction())
}

async fn shutdown(
    daemon: Arc<Daemon>,
    caller: Arc<Caller>,
    params: ShutdownParams,
) -> Answer<Shutdown> {
    let is_ours = caller.transport() == Transport::Stdio;
    if !is_ours && params.scope != Some(ShutdownScope::Daemon) {
        let problem =
            "expected \"daemon\": others may be using it; `exit` ends the connection only";
        return Err(RpcError::invalid_param("scope", problem));
    }
    tracing::info!("a client asked for the daemon's end");
    caller.note_shutdown();
    daemon.close();
    // In a task of its own: whoever asked may go away, and a daemon that takes no work and does
    // not end is of no use to anybody.
    let ending = tokio::spawn(async move {
        daemon.shut_down().await;
        if !is_ours {
            daemon.has_shut_down();
        }
    });
    ending.await.map_err(|error| RpcError::InternalError { problem: error.to_string() })
}

async fn prompt(daemon: Arc<Daemon>, caller: Arc<Caller>, params: PromptParams) -> Answer<Prompt> {
    let session = daemon.sessions.get(params.session_id.as_deref())?;
    let input = input(&caller, params.input, params.client_message_id).await?;
    let intent = Intent::Prompt { on_busy: params.on_busy.unwrap_or(OnBusy::Reject) };
    let QueueResult { disposition, run_id, message_id, seq, .. } =
        session.submit(Prompt::NAME, input, intent)?;
    let run_id = run_id.expect("only what is held has no run, and a prompt is never held");
    Ok(PromptResult { disposition, run_id, message_id, seq })
}

async fn steer(daemon: Arc<Daemon>, caller: Arc<Caller>, params: QueueParams) -> Answer<Steer> {
    queue(&daemon, &caller, Steer::NAME, QueueKind::Steering, params).await
}

async fn follow_up(
    daemon: Arc<Daemon>,
    caller: Arc<Caller>,
    params: QueueParams,
) -> Answer<FollowUp> {
    queue(&daemon, &caller, FollowUp::NAME, QueueKind::FollowUp, params).await
}

async fn queue(
    daemon: &Daemon,
    caller: &Caller,
    method: &'static str,
    queue: QueueKind,
    params: QueueParams,
) -> Result<QueueResult, RpcError> {
    let session = daemon.sessions.get(params.session_id.as_deref())?;
    let input = input(caller, params.input, params.client_message_id).await?;
    let QueueParams { expected_run_id, when_idle, .. } = params;
    session.submit(method, input, Intent::Queue { queue, expected_run_id, when_idle })
}

/// What a client says, checked.
async fn input(
    caller: &Caller,
    content: Content,
    client_message_id: Option<String>,
) -> Result<Input, RpcError> {
    if let Some(id) = &client_message_id {
        check_name("clientMessageId", id)?;
    }
    let content = input::checked(content.0).await?;
    let origin = Origin {
        client: caller.client().map(|name| name.to_string()).unwrap_or_default(),
        connection: caller.connection(),
        client_message_id,
    };
    Ok(Input { content, origin: Some(origin) })
}

fn abort(call: Call<'_>, params: AbortParams) -> Answer<Abort> {
    let abort = call.session(&params.session_id)?.agent.abort(params.expected_run_id)?;
    Ok(AbortResult { aborted: abort.aborted, run_id: abort.run_id, seq: abort.seq })
}

async fn wait_for_idle(
    daemon: Arc<Daemon>,
    caller: Arc<Caller>,
    params: WaitForIdleParams,
) -> Answer<WaitForIdle> {
    let session = daemon.sessions.get(params.session_id.as_deref())?;
    let patience = params.timeout_ms.map_or(Duration::MAX, Duration::from_millis);
    let idle = tokio::time::timeout(patience, idle(&session.agent, params.run_id)).await;
    let answer = match idle {
        Ok(idle) => {
            let Idle { seq, last_run } = idle?;
            WaitForIdleResult { status: WaitStatus::Idle, seq, last_run }
        }
        // What the log has is what subscriptions can have been sent.
        Err(_) => {
            let seq = session.log.head();
            WaitForIdleResult { status: WaitStatus::Timeout, seq, last_run: None }
        }
    };
    caller.events_sent(&session.log, answer.seq).await;
    Ok(answer)
}

async fn idle(agent: &Agent, run: Option<RunId>) -> Result<Idle, RpcError> {
    let idle = match run {
        None => agent.wait_for_idle().await,
        Some(run) => agent.wait_for_run(run).await,
    };
    idle.map_err(|error| match error {
        WaitError::UnknownRun(expected) => {
            WrongRun { expected, actual: agent.snapshot().state.active_run() }.into()
        }
        WaitError::WaitsForItself | WaitError::RuntimeGone => {
            RpcError::InternalError { problem: error.to_string() }
        }
    })
}

fn remove_queued(call: Call<'_>, params: RemoveQueuedParams) -> Answer<RemoveQueued> {
    let session = call.session(&params.session_id)?;
    let (removed, seq) = session.agent.remove_queued(&params.message_id);
    Ok(RemoveQueuedResult { removed, seq })
}

fn clear_queues(call: Call<'_>, params: ClearQueuesParams) -> Answer<ClearQueues> {
    let which = match params.which.unwrap_or_default() {
        WhichQueues::All => None,
        WhichQueues::Steering => Some(QueueKind::Steering),
        WhichQueues::FollowUp => Some(QueueKind::FollowUp),
    };
    let (cleared, seq) = call.session(&params.session_id)?.agent.clear_queues(which);
    Ok(ClearQueuesResult { cleared, seq })
}

fn get_state(call: Call<'_>, params: GetStateParams) -> Answer<GetState> {
    let session = call.session(&params.session_id)?;
    let now = session.agent.snapshot();
    let count = match (params.messages.unwrap_or_default(), params.limit) {
        (MessagesWanted::All, limit) => limit.unwrap_or(usize::MAX),
        (MessagesWanted::Tail, limit) => limit.unwrap_or(TAIL_MESSAGES),
        (MessagesWanted::None, _) => 0,
    };
    Ok(GetStateResult {
        seq: now.seq,
        instance_id: session.log.instance_id().to_owned(),
        session_id: session.id.to_string(),
        state: with_newest_messages(now.state, count),
    })
}

fn get_messages(call: Call<'_>, params: GetMessagesParams) -> Answer<GetMessages> {
    let now = call.session(&params.session_id)?.agent.snapshot();
    let transcript = &now.state.messages;
    let from = params.from.unwrap_or(0);
    let to = from.saturating_add(params.limit.unwrap_or(PAGE).min(MAX_PAGE));
    let mut bytes = 0;
    let fits = |message: &&Arc<Message>| {
        let is_first = bytes == 0;
        bytes += 1 + message.content().iter().map(|block| block.len()).sum::<usize>();
        is_first || bytes <= MAX_PAGE_BYTES
    };
    let messages = transcript.range(from, to).take_while(fits).cloned().collect();
    Ok(GetMessagesResult { messages, total: transcript.len(), seq: now.seq })
}

fn subscribe(call: Call<'_>, params: SubscribeParams) -> Answer<Subscribe> {
    let session = call.session(&params.session_id)?;
    let id = call.caller.subscribe(&session.log, &params)?;
    Ok(id.to_string())
}

fn unsubscribe(call: Call<'_>, params: UnsubscribeParams) -> Answer<Unsubscribe> {
    Ok(call.caller.unsubscribe(&params.subscription))
}

fn set_config(call: Call<'_>, params: SetConfigParams) -> Answer<SetConfig> {
    let session = call.session(&params.session_id)?;
    // All is looked up before anything is changed.
    let change = session.resolve(&params, call.daemon.sessions.catalog())?;
    let (config, _) = session.agent.configure(change);
    Ok(Arc::unwrap_or_clone(config))
}

fn list_models(call: Call<'_>, params: SessionParams) -> Answer<ListModels> {
    let session = call.session(&params.session_id)?;
    let current = session.agent.snapshot().state.config.model.clone();
    let mut models = call.daemon.sessions.catalog().list();
    if let Some(unavailable) = session.unavailable()
        && models.iter().all(|model| model.id != current)
    {
        models.insert(0, unavailable.describe());
    }
    Ok(ListModelsResult { models, current })
}

fn reset(call: Call<'_>, params: SessionParams) -> Answer<Reset> {
    let seq = call.session(&params.session_id)?.reset()?;
    Ok(SeqResult { seq })
}

fn list_sessions(call: Call<'_>, _: SessionParams) -> Answer<ListSessions> {
    Ok(ListSessionsResult { sessions: call.daemon.sessions.summaries() })
}

async fn close_session(
    daemon: Arc<Daemon>,
    _: Arc<Caller>,
    params: SessionParams,
) -> Answer<CloseSession> {
    let session = daemon.sessions.get(params.session_id.as_deref())?;
    if *session.id == *DEFAULT_SESSION {
        return Ok(CloseSessionResult { closed: false });
    }
    session.close(not_found(&session.id))?;
    // In a task of its own: whoever asked may go away, and a session half closed would stay so.
    let closing = tokio::spawn(async move {
        session.settle().await;
        session.remove_outputs().await;
        session.log.finish(Control::SessionClosed {});
        daemon.sessions.remove(&session);
        tracing::info!(session = %session.id, "session closed");
    });
    let closed = closing.await.is_ok();
    Ok(CloseSessionResult { closed })
}

impl Call<'_> {
    fn session(&self, id: &Option<String>) -> Result<Arc<Session>, RpcError> {
        self.daemon.sessions.get(id.as_deref())
    }
}

fn check_name(field: &str, name: &str) -> Result<(), RpcError> {
    match (1..=MAX_NAME).contains(&name.len()) {
        true => Ok(()),
        false => Err(RpcError::invalid_param(field, format!("expected 1 to {MAX_NAME} bytes"))),
    }
}

struct Table {
    module: RpcModule<Daemon>,
}

impl Table {
    /// Adds a method that is carried out at once.
    fn add<M: Method>(&mut self, method: fn(Call<'_>, M::Params) -> Answer<M>)
    where
        M::Result: Clone + 'static,
        M::Params: 'static,
    {
        self.add_read_by::<M>(parse, method);
    }

    /// Adds a method with params of an unusual shape.
    fn add_read_by<M: Method>(
        &mut self,
        read: fn(Option<&str>) -> Result<M::Params, RpcError>,
        method: fn(Call<'_>, M::Params) -> Answer<M>,
    ) where
        M::Result: Clone + 'static,
        M::Params: 'static,
    {
        let added = self.module.register_method(M::NAME, move |params, daemon, extensions| {
            let call = Call { daemon, caller: caller(extensions)? };
            let result = read(params.as_str()).and_then(|params| method(call, params));
            result.map_err(ErrorObjectOwned::from)
        });
        added.expect("each method is added once");
    }

    /// Adds a method that may wait: aside, but for what has to take its turn. Its first step is done
    /// at once, too.
    fn add_async<M: Method, F>(&mut self, method: fn(Arc<Daemon>, Arc<Caller>, M::Params) -> F)
    where
        F: Future<Output = Answer<M>> + Send + 'static,
        M::Result: Clone + 'static,
        M::Params: Send + 'static,
    {
        let added =
            self.module.register_async_method(M::NAME, move |params, daemon, extensions| {
                let read = parse::<M::Params>(params.as_str());
                async move {
                    let caller = caller(&extensions)?.clone();
                    method(daemon, caller, read?).await.map_err(ErrorObjectOwned::from)
                }
            });
        added.expect("each method is added once");
    }
}

fn caller(extensions: &Extensions) -> Result<&Arc<Caller>, RpcError> {
    // Only a connection makes calls, and it says whose they are.
    extensions
        .get::<Arc<Caller>>()
        .ok_or_else(|| RpcError::InternalError { problem: "a call without a caller".to_owned() })
}
