//! `wait-for-idle`.

use std::time::Duration;

use agent_client_library::client::CallError;
use agent_core::RunId;
use agent_protocol::{Method, WaitForIdle, WaitForIdleParams, WaitForIdleResult, WaitStatus};
use serde_json::value::RawValue;
use tokio::time::Instant;

use crate::{
    context::Context,
    exit::{Exit, Failure},
    output::line,
    render::{screen::Screen, sentences},
};

pub(super) async fn wait_for_idle(
    context: &Context,
    run: Option<u64>,
    timeout_ms: Option<u64>,
) -> Result<Exit, Failure> {
    let (mut client, session_id) = match context.existing().await? {
        Ok(found) => found,
        // A run that never was cannot be waited for.
        Err(none) => match run {
            Some(run) => return Err(Failure::Lost(format!("there is no run {run}: {none}"))),
            None => return context.nothing(&none, Some(r#"{"status":"idle","seq":0}"#)),
        },
    };
    let instance_id = client.server().instance_id.clone();
    let deadline = timeout_ms.map(|ms| Instant::now() + Duration::from_millis(ms));
    let mut params = WaitForIdleParams {
        run_id: run.map(RunId),
        timeout_ms,
        session_id: Some(session_id),
        ..WaitForIdleParams::default()
    };
    let result: Box<RawValue> = loop {
        match client.call_json(WaitForIdle::NAME, &params).await {
            // The run goes on without us. A daemon that does not is found out by connecting.
            Err(CallError::Lost(_)) => client = context.reconnect().await?,
            result => break result?,
        }
        if client.server().instance_id != instance_id {
            return Err(Failure::Lost("the daemon was restarted meanwhile".to_owned()));
        }
        let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
        params.timeout_ms = left.map(|left| left.as_millis() as u64);
    };
    let answer: WaitForIdleResult = serde_json::from_str(result.get()).map_err(|problem| {
        CallError::Shape { method: WaitForIdle::NAME.to_owned(), problem: problem.to_string() }
    })?;
    if context.json {
        line(result.get())?;
    }
    if answer.status == WaitStatus::Timeout {
        return Ok(Exit::TimedOut);
    }
    if let Some(last_run) = answer.last_run.as_ref().filter(|_| !context.json) {
        let piece = sentences::end(last_run.reason, last_run.error_message.as_deref());
        Screen::of_process().show(piece.as_slice())?;
    }
    Ok(Exit::of_last_run(answer.last_run.as_deref()))
}
