//! `steer`, `follow-up` and `abort`.

use agent_client_library::{client::CallError, session::new_message_id};
use agent_core::RunId;
use agent_protocol::{
    Abort, AbortParams, AbortResult, Disposition, FollowUp, Method, QueueParams, QueueResult,
    RpcError, Steer,
};

use crate::{
    arguments::{IdleArgument, QueueArguments},
    commands::input,
    context::Context,
    exit::{Exit, Failure},
};

pub(super) async fn steer(context: &Context, arguments: QueueArguments) -> Result<Exit, Failure> {
    submit(context, Steer::NAME, arguments).await
}

pub(super) async fn follow_up(
    context: &Context,
    arguments: QueueArguments,
) -> Result<Exit, Failure> {
    submit(context, FollowUp::NAME, arguments).await
}

async fn submit(
    context: &Context,
    method: &str,
    arguments: QueueArguments,
) -> Result<Exit, Failure> {
    let QueueArguments { input, run, when_idle } = arguments;
    let input = input::content(input).await?;
    let (client, session_id) = match when_idle {
        // Nothing can be active in a session that is not there. What else becomes of the message is
        // for the session's settings to say.
        Some(IdleArgument::Reject) => match context.existing().await? {
            Ok((client, id)) => (client, Some(id)),
            Err(_) => return Err(CallError::Refused(RpcError::NotRunning.into()).into()),
        },
        _ => context.session().await?,
    };
    let params = QueueParams {
        input,
        expected_run_id: run.map(RunId),
        when_idle: when_idle.map(Into::into),
        client_message_id: Some(new_message_id()),
        session_id,
        ..QueueParams::default()
    };
    context.tell(&client, method, &params, what_became_of_it).await
}

pub(super) async fn abort(context: &Context, run: Option<u64>) -> Result<Exit, Failure> {
    let (client, session_id) = match context.existing().await? {
        Ok(found) => found,
        Err(none) => return context.nothing(&none, Some("null")),
    };
    let (expected_run_id, session_id) = (run.map(RunId), Some(session_id));
    let params = AbortParams { expected_run_id, session_id, ..AbortParams::default() };
    let told = |result: AbortResult| match result.run_id.filter(|_| result.aborted) {
        Some(run_id) => format!("run {run_id} is being aborted"),
        None => "nothing to abort".to_owned(),
    };
    context.tell(&client, Abort::NAME, &params, told).await
}

fn what_became_of_it(result: QueueResult) -> String {
    let run = result.run_id.map_or_else(|| "no run".to_owned(), |run_id| format!("run {run_id}"));
    let before = result.position.unwrap_or(0);
    let place = if before == 0 { String::new() } else { format!(", {before} before it") };
    match result.disposition {
        Disposition::Started => format!("started {run}"),
        Disposition::Steered => format!("steers {run}{place}"),
        Disposition::Queued => format!("follows up {run}{place}"),
        Disposition::Held => format!("waits for the next run{place}"),
    }
}
