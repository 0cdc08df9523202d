//! What starts, steers, ends and awaits runs, and what waits in their queues.

use std::{sync::Arc, time::Duration};

use agent_core::{
    Agent, Idle, Input, Intent, OnBusy, Origin, QueueKind, RunId, WaitError, WrongRun,
};
use agent_protocol::{
    Abort, AbortParams, AbortResult, ClearQueues, ClearQueuesParams, ClearQueuesResult, Content,
    Continue, FollowUp, Method, Prompt, PromptParams, PromptResult, QueueParams, QueueResult,
    RemoveQueued, RemoveQueuedParams, RemoveQueuedResult, RpcError, SessionParams, Steer,
    WaitForIdle, WaitForIdleParams, WaitForIdleResult, WaitStatus, WhichQueues,
};
use futures_util::FutureExt;

use crate::{
    methods::{Handler, How, Response, check_name, input},
    peer::caller::Caller,
    sessions::daemon::Daemon,
};

impl Handler for Prompt {
    const HOW: How<Self> =
        How::Later(|daemon, caller, params| prompt(daemon, caller, params).boxed());
}

async fn prompt(
    daemon: Arc<Daemon>,
    caller: Arc<Caller>,
    params: PromptParams,
) -> Response<Prompt> {
    let session = daemon.sessions.get(params.session_id.as_deref())?;
    let input = input(&caller, params.input, params.client_message_id).await?;
    let intent = Intent::Prompt { on_busy: params.on_busy.unwrap_or(OnBusy::Reject) };
    let QueueResult { disposition, run_id, message_id, seq, .. } =
        session.submit(Prompt::NAME, input, intent)?;
    let run_id = run_id.expect("only what is held has no run, and a prompt is never held");
    Ok(PromptResult { disposition, run_id, message_id, seq })
}

impl Handler for Continue {
    const HOW: How<Self> =
        How::AtOnce(|call, params: SessionParams| call.session(&params.session_id)?.continue_run());
}

impl Handler for Steer {
    const HOW: How<Self> = How::Later(|daemon, caller, params| {
        queue::<Self>(daemon, caller, QueueKind::Steering, params).boxed()
    });
}

impl Handler for FollowUp {
    const HOW: How<Self> = How::Later(|daemon, caller, params| {
        queue::<Self>(daemon, caller, QueueKind::FollowUp, params).boxed()
    });
}

async fn queue<M: Method>(
    daemon: Arc<Daemon>,
    caller: Arc<Caller>,
    queue: QueueKind,
    params: QueueParams,
) -> Result<QueueResult, RpcError> {
    let session = daemon.sessions.get(params.session_id.as_deref())?;
    let input = input(&caller, params.input, params.client_message_id).await?;
    let QueueParams { expected_run_id, when_idle, .. } = params;
    session.submit(M::NAME, input, Intent::Queue { queue, expected_run_id, when_idle })
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

impl Handler for Abort {
    const HOW: How<Self> = How::AtOnce(|call, params: AbortParams| {
        let abort = call.session(&params.session_id)?.agent.abort(params.expected_run_id)?;
        Ok(AbortResult { aborted: abort.aborted, run_id: abort.run_id, seq: abort.seq })
    });
}

impl Handler for WaitForIdle {
    const HOW: How<Self> =
        How::Later(|daemon, caller, params| wait_for_idle(daemon, caller, params).boxed());
}

async fn wait_for_idle(
    daemon: Arc<Daemon>,
    caller: Arc<Caller>,
    params: WaitForIdleParams,
) -> Response<WaitForIdle> {
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

impl Handler for RemoveQueued {
    const HOW: How<Self> = How::AtOnce(|call, params: RemoveQueuedParams| {
        let session = call.session(&params.session_id)?;
        let (removed, seq) = session.agent.remove_queued(&params.message_id);
        Ok(RemoveQueuedResult { removed, seq })
    });
}

impl Handler for ClearQueues {
    const HOW: How<Self> = How::AtOnce(|call, params: ClearQueuesParams| {
        let which = match params.which.unwrap_or_default() {
            WhichQueues::All => None,
            WhichQueues::Steering => Some(QueueKind::Steering),
            WhichQueues::FollowUp => Some(QueueKind::FollowUp),
        };
        let (cleared, seq) = call.session(&params.session_id)?.agent.clear_queues(which);
        Ok(ClearQueuesResult { cleared, seq })
    });
}
