//! `call`, for whatever has no command of its own.

use serde_json::{Map, Value, value::RawValue};

use crate::{
    commands::stdin,
    context::Context,
    exit::{Exit, Failure},
    output::line,
};

/// The methods that bring something into one session, which they make on first use.
const WRITING: &[&str] = &["prompt", "steer", "followUp", "setConfig"];
/// The other methods that speak of one session.
const READING: &[&str] = &[
    "continue",
    "abort",
    "waitForIdle",
    "removeQueued",
    "clearQueues",
    "getState",
    "getMessages",
    "reset",
    "closeSession",
];
/// How long the params may be: as a message, at most.
const MAX_PARAMS_BYTES: usize = 1 << 30;

pub(super) async fn call(
    context: &Context,
    method: String,
    params: Option<String>,
) -> Result<Exit, Failure> {
    let params = match params.as_deref() {
        Some("-") => Some(stdin::whole(MAX_PARAMS_BYTES).await?),
        _ => params,
    };
    let mut params = object(params.as_deref().unwrap_or("{}"))?;
    let (client, session_id) = match method.as_str() {
        _ if params.contains_key("sessionId") => (context.connect().await?, None),
        method if WRITING.contains(&method) => context.session().await?,
        method if READING.contains(&method) => match context.existing().await? {
            Ok((client, id)) => (client, Some(id)),
            Err(none) => return Err(Failure::Lost(none.to_string())),
        },
        "listModels" => {
            let client = context.connect().await?;
            let session_id = context.choice()?.existing(&client).await?;
            (client, session_id)
        }
        _ => (context.connect().await?, None),
    };
    if let Some(session_id) = session_id {
        params.insert("sessionId".to_owned(), session_id.into());
    }
    let result: Box<RawValue> = client.call_json(&method, &params).await?;
    line(result.get())?;
    Ok(Exit::Done)
}

fn object(text: &str) -> Result<Map<String, Value>, Failure> {
    serde_json::from_str(text).map_err(|error| {
        Failure::Usage(format!(
            "the params have to be a JSON object, such as {{\"limit\": 3}}: {error}"
        ))
    })
}
