//! The client's mirror ends up with the agent's own state (C4.4; W4).

use std::sync::{
    Arc,
    atomic::{AtomicU32, Ordering},
};

use agent_client_library::{
    client::{CallError, Client},
    connect::{ConnectError, Dial},
    fold::Missed,
    mirror::{Beginning, Change, Mirror, News},
    session::SessionChoice,
};
use agent_core::{
    Gate, Model, ModelEvent, ScriptedModel, Step as ModelStep, StopReason, Tool, Usage,
};
use agent_protocol::{
    DEFAULT_SESSION, GetState, GetStateParams, GetStateResult, MessagesWanted, Prompt,
    PromptParams, QueueParams, Reset, SessionParams, Steer, WaitForIdle, WaitForIdleParams,
};
use futures_util::FutureExt;
use support::{ScriptedTool, daemon::InMemory, must};
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex, split};

/// Beyond what any of these runs sends.
const NEVER: u64 = u64::MAX;

/// Connects a client whose connection breaks after so many bytes have come.
async fn connect(daemon: &InMemory, break_after: u64) -> Result<Arc<Client>, CallError> {
    over(daemon.stream(), break_after).await
}

async fn over(stream: DuplexStream, break_after: u64) -> Result<Arc<Client>, CallError> {
    let (reader, writer) = split(stream);
    Client::over(reader.take(break_after), writer, None).await.map(Arc::new)
}

/// Connects again, each time for twice as long.
fn dial(daemon: &Arc<InMemory>, break_after: u64) -> Dial {
    let (daemon, dials) = (daemon.clone(), AtomicU32::new(0));
    Arc::new(move || {
        let daemon = daemon.clone();
        let dial = dials.fetch_add(1, Ordering::Relaxed);
        let break_after = break_after.saturating_mul(2_u64.saturating_pow(dial));
        async move {
            let connected = connect(&daemon, break_after).await;
            connected
                .map_err(|problem| ConnectError::Greeting { address: "memory".into(), problem })
        }
        .boxed()
    })
}

fn main_session() -> SessionChoice {
    SessionChoice::Id(DEFAULT_SESSION.to_owned())
}

async fn mirror(daemon: &Arc<InMemory>, break_after: u64) -> Result<Mirror, CallError> {
    let client = connect(daemon, break_after).await?;
    let beginning = Beginning::Snapshot(MessagesWanted::All);
    Mirror::new(client, dial(daemon, break_after), main_session(), beginning).await
}

/// Follows until a run has ended; tells how often the connection broke and the daemon dropped
/// events.
async fn to_the_end(mut mirror: Mirror) -> (Mirror, usize, usize) {
    let (mut lost, mut lagged) = (0, 0);
    loop {
        match must(mirror.next()).await.unwrap() {
            Change::Disconnected => lost += 1,
            Change::News { news: News::Lagged, .. } => lagged += 1,
            Change::News { .. } => {}
        }
        let state = mirror.state();
        if state.is_some_and(|state| state.active_run().is_none() && state.last_run.is_some()) {
            return (mirror, lost, lagged);
        }
    }
}

async fn own_state(client: &Client) -> GetStateResult {
    client.call::<GetState>(&GetStateParams::default()).await.unwrap()
}

async fn settled(client: &Client) {
    must(client.call::<WaitForIdle>(&WaitForIdleParams::default())).await.unwrap();
}

fn prompt(text: &str) -> PromptParams {
    PromptParams { input: text.into(), ..PromptParams::default() }
}

/// Thinking, text, calls in pieces, and gates between them.
fn long_answer(gates: &[Gate], ending: &str) -> Vec<ModelStep> {
    let mut steps = Vec::new();
    let thinking = |text: String| ModelStep::Event(ModelEvent::Thinking { index: 0, delta: text });
    steps.extend((0..12).map(|number| thinking(format!("step {number}, "))));
    for (place, gate) in gates.iter().enumerate() {
        steps.push(ModelStep::Gate(gate.clone()));
        for number in 0..12 {
            let delta = format!("{place}.{number} “é”\n");
            steps.push(ModelStep::Event(ModelEvent::Text { index: 1, delta }));
        }
    }
    if !ending.is_empty() {
        for (index, id) in [(2, "a"), (3, "b")] {
            for delta in ["{\"to", "\":", "1}"] {
                steps.push(ModelStep::call(index, &format!("{id}{ending}"), "quick", delta));
            }
        }
        steps.push(ModelStep::End(StopReason::ToolUse, Usage::default()));
    }
    steps
}

fn daemon_of(model: impl Model) -> Arc<InMemory> {
    let tools: Vec<Arc<dyn Tool>> = vec![Arc::new(ScriptedTool::new("quick"))];
    Arc::new(InMemory::with(model, Some(tools), ""))
}

#[tokio::test]
async fn mirrors_that_begin_and_break_anywhere_in_a_run_end_up_with_its_state() {
    let gates: Vec<Gate> = (0..8).map(|_| Gate::new()).collect();
    let model = ScriptedModel::new()
        .answers(long_answer(&gates[..3], "1"))
        .answers(long_answer(&gates[3..5], "2"))
        .answers(long_answer(&gates[5..], ""))
        .says("steered");
    let daemon = daemon_of(model);
    let client = connect(&daemon, NEVER).await.unwrap();
    client.call::<Prompt>(&prompt("go")).await.unwrap();
    let mut mirrors = Vec::new();
    let mut break_after = 0;
    for gate in &gates {
        must(gate.reached()).await;
        let mut begun = 0;
        while begun < 20 {
            // Each breaks at another place, about an event apart; too early a break is none of ours.
            break_after += 277;
            let Ok(mirror) = mirror(&daemon, break_after).await else { continue };
            mirrors.push(tokio::spawn(to_the_end(mirror)));
            begun += 1;
        }
        let steering = QueueParams { input: "and this".into(), ..QueueParams::default() };
        client.call::<Steer>(&steering).await.unwrap();
        gate.release();
    }
    settled(&client).await;
    let own = own_state(&client).await;
    let mut lost = 0;
    for mirror in mirrors {
        let (mirror, times, _) = mirror.await.unwrap();
        assert_eq!(mirror.state(), Some(&own.state));
        assert_eq!(mirror.cursor().seq, own.seq);
        lost += times;
    }
    assert!(lost > 100, "only {lost} connections broke");
}

#[tokio::test]
async fn a_mirror_of_a_daemon_that_was_restarted_begins_anew_and_says_so() {
    let first = daemon_of(ScriptedModel::new().says("one"));
    let second = daemon_of(ScriptedModel::new().says("two"));
    let (client, other) =
        (connect(&first, NEVER).await.unwrap(), connect(&second, NEVER).await.unwrap());
    for (client, text) in [(&client, "a"), (&other, "b")] {
        client.call::<Prompt>(&prompt(text)).await.unwrap();
        settled(client).await;
    }
    let (ours, theirs) = duplex(64 * 1024);
    let relay = tokio::spawn(pass_on(first.stream(), theirs, None));
    let client = over(ours, NEVER).await.unwrap();
    let beginning = Beginning::Snapshot(MessagesWanted::All);
    let mut mirror =
        Mirror::new(client, dial(&second, NEVER), main_session(), beginning).await.unwrap();
    let mut story = vec![must(mirror.next()).await.unwrap()];
    relay.abort();
    story.push(must(mirror.next()).await.unwrap());
    story.push(must(mirror.next()).await.unwrap());
    assert!(
        matches!(
            story[..],
            [
                Change::News { news: News::Snapshot(Missed::Nothing), .. },
                Change::Disconnected,
                Change::News { news: News::Snapshot(Missed::Agent), .. },
            ]
        ),
        "{story:?}"
    );
    assert_eq!(mirror.state(), Some(&own_state(&other).await.state));
}

/// Passes bytes on in both directions; of what the daemon sends, nothing while the gate is closed.
async fn pass_on(daemon: DuplexStream, client: DuplexStream, gate: Option<Gate>) {
    let (mut from_daemon, mut to_daemon) = split(daemon);
    let (mut from_client, mut to_client) = split(client);
    let down = async {
        let mut bytes = vec![0; 16 * 1024];
        loop {
            let count = from_daemon.read(&mut bytes).await.unwrap_or(0);
            if count == 0 || to_client.write_all(&bytes[..count]).await.is_err() {
                return;
            }
            if let Some(gate) = &gate {
                gate.pass().await;
            }
        }
    };
    let up = tokio::io::copy(&mut from_client, &mut to_daemon);
    tokio::select! { () = down => {}, _ = up => {} }
}

#[tokio::test]
async fn a_mirror_that_was_held_up_for_too_long_ends_up_with_the_state() {
    let piece = "x".repeat(512 * 1024);
    let model =
        ScriptedModel::new().answers((0..24).map(|_| ModelStep::text(&piece))).says("short");
    let daemon = daemon_of(model);
    let gate = Gate::new();
    let (ours, theirs) = duplex(64 * 1024);
    let held = daemon.stream();
    // The answer to `initialize` passes; what comes next waits.
    tokio::spawn(pass_on(held, theirs, Some(gate.clone())));
    let client = over(ours, NEVER).await.unwrap();
    let attaching = tokio::spawn({
        let (daemon, client) = (daemon.clone(), client.clone());
        async move {
            let beginning = Beginning::Snapshot(MessagesWanted::All);
            Mirror::new(client, dial(&daemon, NEVER), main_session(), beginning).await
        }
    });
    let other = connect(&daemon, NEVER).await.unwrap();
    // A subscription, as the daemon sees it, exists once the call has come; another call of the same
    // connection behind it is answered only after.
    must(gate.reached()).await;
    let behind = tokio::spawn({
        let client = client.clone();
        async move { client.call::<WaitForIdle>(&WaitForIdleParams::default()).await }
    });
    tokio::task::yield_now().await;
    other.call::<Prompt>(&prompt("go")).await.unwrap();
    settled(&other).await;
    gate.release();
    let mirror = must(attaching).await.unwrap().unwrap();
    must(behind).await.unwrap().unwrap();
    let (mirror, _, lagged) = to_the_end(mirror).await;
    assert_eq!(lagged, 1);
    let own = own_state(&other).await;
    assert_eq!(mirror.state(), Some(&own.state));
    assert_eq!(mirror.cursor().seq, own.seq);
}

#[tokio::test]
async fn a_mirror_without_a_transcript_counts_from_nothing_after_a_reset() {
    let daemon = daemon_of(ScriptedModel::new().says("one").says("two"));
    let client = connect(&daemon, NEVER).await.unwrap();
    client.call::<Prompt>(&prompt("a")).await.unwrap();
    settled(&client).await;
    let beginning = Beginning::Snapshot(MessagesWanted::None);
    let mut mirror =
        Mirror::new(client.clone(), dial(&daemon, NEVER), main_session(), beginning).await.unwrap();
    must(mirror.next()).await.unwrap();
    assert_eq!(mirror.state().unwrap().messages_from, Some(2));
    client.call::<Reset>(&SessionParams::default()).await.unwrap();
    client.call::<Prompt>(&prompt("b")).await.unwrap();
    settled(&client).await;
    let own = own_state(&client).await;
    while mirror.cursor().seq < own.seq {
        must(mirror.next()).await.unwrap();
    }
    assert_eq!(mirror.state(), Some(&own.state));
}
