//! `prompt`: says something, and shows what comes of it.

use std::collections::VecDeque;

use agent_client_library::{
    client::{CallError, Client},
    mirror::{Beginning, Change, Mirror},
    session::{SessionChoice, new_message_id},
};
use agent_protocol::{
    CreateSession, CreateSessionParams, Disposition, GetState, GetStateParams, MessagesWanted,
    Method, Prompt, PromptParams, PromptResult, RpcError, SetConfig, SetConfigParams,
};
use serde_json::value::RawValue;

use crate::{
    arguments::{BusyArgument, PromptArguments},
    commands::{follow_run::FollowRun, input, interrupts::Interrupts},
    context::Context,
    exit::{Exit, Failure},
    output::line,
};

pub(super) async fn prompt(context: &Context, arguments: PromptArguments) -> Result<Exit, Failure> {
    let mut params = PromptParams {
        input: input::content(arguments.input).await?,
        on_busy: Some(arguments.on_busy.into()),
        client_message_id: Some(new_message_id()),
        ..PromptParams::default()
    };
    let client = context.connect().await?;
    if let Some(model) = arguments.model {
        choose(&client, context.choice()?, model, arguments.on_busy).await?;
    }
    if arguments.detach {
        return detached(context, &client, params).await;
    }
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

async fn detached(
    context: &Context,
    client: &Client,
    params: PromptParams,
) -> Result<Exit, Failure> {
    let session_id = Some(context.choice()?.id(client).await?);
    let params = PromptParams { session_id, ..params };
    if context.json {
        let result: Box<RawValue> = client.call_json(Prompt::NAME, &params).await?;
        line(result.get())?;
    } else {
        line(&client.call::<Prompt>(&params).await?.run_id.to_string())?;
    }
    Ok(Exit::Done)
}

/// Gives the session another model, from its next turn on. A name that is wrong is refused before
/// anything is made or changed.
async fn choose(
    client: &Client,
    choice: SessionChoice,
    model: String,
    on_busy: BusyArgument,
) -> Result<(), Failure> {
    let session_id = match choice {
        SessionChoice::Id(id) => id,
        SessionChoice::Directory(path) => {
            let (cwd, model) = (Some(path), Some(model.clone()));
            let params = CreateSessionParams { cwd, model, ..CreateSessionParams::default() };
            let session = client.call::<CreateSession>(&params).await?;
            if session.created {
                return Ok(());
            }
            session.session_id
        }
    };
    let session_id = Some(session_id);
    if on_busy == BusyArgument::Reject {
        // The prompt would be refused, and the run's model changed under it all the same. A run
        // that begins just now can still be met: the protocol has no step for both.
        let messages = Some(MessagesWanted::None);
        let session_id = session_id.clone();
        let params = GetStateParams { messages, session_id, ..GetStateParams::default() };
        if let Some(run_id) = client.call::<GetState>(&params).await?.state.active_run() {
            return Err(CallError::Refused(RpcError::Busy { run_id }.into()).into());
        }
    }
    let model = Some(model);
    let params = SetConfigParams { model, session_id, ..SetConfigParams::default() };
    client.call::<SetConfig>(&params).await?;
    Ok(())
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
