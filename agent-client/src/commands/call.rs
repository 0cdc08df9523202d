//! `call`, for whatever has no command of its own, and `shutdown`.

use agent_daemon::protocol::{Method, Shutdown, ShutdownParams, ShutdownScope};
use serde_json::{Map, Value, value::RawValue};

use super::{Context, input, line, remark};
use crate::exit::{Exit, Failure};

/// The methods that speak of one session.
const OF_A_SESSION: &[&str] = &[
    "prompt",
    "continue",
    "steer",
    "followUp",
    "abort",
    "waitForIdle",
    "removeQueued",
    "clearQueues",
    "getState",
    "getMessages",
    "setConfig",
    "listModels",
    "reset",
    "closeSession",
];

pub(super) async fn call(
    context: &Context,
    method: String,
    params: Option<String>,
) -> Result<Exit, Failure> {
    let params = match params.as_deref() {
        Some("-") => Some(input::stdin()?),
        _ => params,
    };
    let mut params = object(params.as_deref().unwrap_or("{}"))?;
    let client = context.connect().await?;
    if OF_A_SESSION.contains(&method.as_str()) && !params.contains_key("sessionId") {
        params.insert("sessionId".to_owned(), context.choice()?.id(&client).await?.into());
    }
    let result: Box<RawValue> = client.call_json(&method, &params).await?;
    line(result.get())?;
    Ok(Exit::Done)
}

pub(super) async fn shutdown(context: &Context) -> Result<Exit, Failure> {
    let client = match context.connector.connect().await {
        Err(error) if error.is_absence() => {
            remark("no daemon is running");
            return Ok(Exit::Done);
        }
        client => client?,
    };
    let scope = Some(ShutdownScope::Daemon);
    let params = ShutdownParams { scope, ..ShutdownParams::default() };
    let pid = client.server().server_info.pid;
    context.tell(&client, Shutdown::NAME, &params, |()| format!("daemon {pid} has ended")).await
}

fn object(text: &str) -> Result<Map<String, Value>, Failure> {
    serde_json::from_str(text).map_err(|error| {
        Failure::Usage(format!(
            "the params have to be a JSON object, such as {{\"limit\": 3}}: {error}"
        ))
    })
}
