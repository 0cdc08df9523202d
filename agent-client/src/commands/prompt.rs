//! `prompt`: says something, and shows what comes of it.

use std::collections::VecDeque;

use agent_daemon::protocol::{
    Disposition, MessagesWanted, Method, Prompt, PromptParams, PromptResult,
};
use serde_json::value::RawValue;

use super::{Context, follow_run::FollowRun, input, interrupts::Interrupts, line};
use crate::{
    arguments::PromptArguments,
    client::CallError,
    exit::{Exit, Failure},
    mirror::{Beginning, Change, Mirror},
    session::new_message_id,
};

pub(super) async fn prompt(context: &Context, arguments: PromptArguments) -> Result<Exit, Failure> {
    let mut params = PromptParams {
        input: input::content(arguments.input)?,
        on_busy: Some(arguments.on_busy.into()),
        client_message_id: Some(new_message_id()),
        ..PromptParams::default()
    };
    if arguments.detach {
        return detached(context, params).await;
    }
    let client = context.connect().await?;
    let interrupts = Interrupts::watch()?;
    // Before the prompt, so that none of the run's events can be missed.
    let beginning = Beginning::Snapshot(MessagesWanted::None);
    let mut mirror = Mirror::new(client, context.dial(), context.choice()?, beginning).await?;
    params.session_id = Some(mirror.session_id().to_owned());
    let (answer, early) = send(&mut mirror, &params).await?;
    let from_start = answer.disposition == Disposition::Started;
    let run = FollowRun::new(mirror, answer.run_id, context.json, from_start);
    run.until_its_end(early, &interrupts).await
}

async fn detached(context: &Context, params: PromptParams) -> Result<Exit, Failure> {
    let (client, session_id) = context.session().await?;
    let params = PromptParams { session_id, ..params };
    if context.json {
        let result: Box<RawValue> = client.call_json(Prompt::NAME, &params).await?;
        line(result.get())?;
    } else {
        line(&client.call::<Prompt>(&params).await?.run_id.to_string())?;
    }
    Ok(Exit::Done)
}

/// Sends the prompt, again if the connection is lost before the answer: its id makes it count once.
/// What the mirror reports meanwhile is kept for later.
async fn send(
    mirror: &mut Mirror,
    params: &PromptParams,
) -> Result<(PromptResult, VecDeque<Change>), Failure> {
    let mut early = VecDeque::new();
    loop {
        match mirror.client().clone().call::<Prompt>(params).await {
            Err(CallError::Lost(_)) => early.extend(connected_again(mirror).await?),
            answer => return Ok((answer?, early)),
        }
    }
}

async fn connected_again(mirror: &mut Mirror) -> Result<Vec<Change>, Failure> {
    let mut changes = Vec::new();
    while !mirror.client().is_connected() || changes.is_empty() {
        changes.push(mirror.next().await?);
    }
    Ok(changes)
}
