//! Whoever attaches, and whenever, ends up with the agent's exact state (wire, section 4).

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

use agent_client_library::fold::{Fold, Step};
use agent_core::{
    AgentState, BoxFuture, Gate, Model, ModelEnd, ModelError, ModelEvent, ModelRequest, ModelSink,
    StopReason, Tool, Usage,
};
use agent_protocol::Frame;
use serde_json::{Value, json};
use support::{
    ScriptedTool,
    daemon::{InMemory, Peer},
};
use tokio::sync::Semaphore;

/// A model that says one word for each permit; every tenth of its answers' blocks is a thought.
struct Paced {
    words: u64,
    permits: Arc<Semaphore>,
    said: Arc<AtomicU64>,
}

impl Model for Paced {
    fn name(&self) -> &str {
        "test/paced"
    }

    fn respond<'a>(
        &'a self,
        _request: ModelRequest,
        sink: ModelSink,
    ) -> BoxFuture<'a, Result<ModelEnd, ModelError>> {
        Box::pin(async move {
            for word in 0..self.words {
                self.permits.acquire().await.unwrap().forget();
                let (index, delta) = (word as u32 / 25, format!("wörd {word} "));
                sink.send(match index % 10 {
                    0 => ModelEvent::Thinking { index, delta },
                    _ => ModelEvent::Text { index, delta },
                })
                .await?;
                self.said.fetch_add(1, Ordering::Relaxed);
            }
            Ok(ModelEnd { stop_reason: StopReason::Stop, usage: Usage::default() })
        })
    }
}

/// A client that folds whatever it is sent.
struct Folder {
    peer: Peer,
    fold: Fold,
}

impl Folder {
    async fn attach(daemon: &InMemory, params: Value) -> Self {
        let mut peer = daemon.connect();
        peer.ask("subscribe", params).await;
        Folder { peer, fold: Fold::default() }
    }

    async fn step(&mut self) -> Step {
        let frame = self.peer.frame().await.expect("the connection lives");
        let frame: Frame = Frame::from_json(&frame.to_string()).unwrap();
        self.fold.step(&frame)
    }

    async fn fold_to(&mut self, seq: u64) -> &AgentState {
        while self.fold.cursor.seq < seq {
            let step = self.step().await;
            assert!(!matches!(step, Step::Gap | Step::Known), "{step:?}");
        }
        self.fold.state.as_ref().expect("it began with a snapshot")
    }
}

async fn state_of(peer: &mut Peer) -> (u64, AgentState) {
    let mut answer = peer.ask("getState", json!({})).await;
    (answer["seq"].as_u64().unwrap(), serde_json::from_value(answer["state"].take()).unwrap())
}

// W4.2, and C4.4: in mid-sentence too.
#[tokio::test]
async fn a_thousand_clients_that_attach_at_any_moment_have_the_agents_state() {
    const CLIENTS: u64 = 1_000;
    let (permits, said) = (Arc::new(Semaphore::new(0)), Arc::new(AtomicU64::new(0)));
    let words = CLIENTS / 4;
    let daemon = InMemory::new(Paced { words, permits: permits.clone(), said: said.clone() });
    let mut first = daemon.connect();
    first.ask("prompt", json!({ "input": "go" })).await;

    let mut folders = Vec::new();
    for client in 0..CLIENTS {
        let params = match client % 3 {
            0 => json!({ "snapshot": true }),
            1 => json!({ "snapshot": true, "messages": "tail" }),
            // Everything is still held: the whole run is replayed over the empty state.
            _ => json!({ "fromSeq": 0, "instanceId": "of another daemon" }),
        };
        folders.push(Folder::attach(&daemon, params).await);
        if client % 4 == 3 {
            permits.add_permits(1);
        }
    }
    first.ask("waitForIdle", json!({})).await;
    assert_eq!(said.load(Ordering::Relaxed), words);
    let (seq, state) = state_of(&mut first).await;
    for mut folder in folders {
        let mut own = folder.fold_to(seq).await.clone();
        own.messages_from = None;
        assert_eq!(own, state);
    }
}

// W4.3: no gap, no duplicate, wherever the connection was cut.
#[tokio::test]
async fn a_client_that_was_cut_off_at_any_event_resumes_to_the_same_state() {
    let gate = Gate::new();
    let model = agent_core::ScriptedModel::new()
        .calls([("a", "slow", "{\"x\":1}"), ("b", "quick", "{}")])
        .says("one two three")
        .says("four five six");
    let tools: Vec<Arc<dyn Tool>> = vec![
        Arc::new(ScriptedTool::new("slow").waits(&gate)),
        Arc::new(ScriptedTool::new("quick")),
    ];
    let daemon = InMemory::with(model, Some(tools), "");
    let mut first = daemon.connect();

    // Each takes one event more than the one before it; some more than there are.
    let mut folders = Vec::new();
    for _ in 0..60 {
        folders.push(Folder::attach(&daemon, json!({ "snapshot": true })).await);
    }
    first.ask("prompt", json!({ "input": "go" })).await;
    gate.reached().await;
    first.ask("steer", json!({ "input": "mind the gap" })).await;
    first.ask("followUp", json!({ "input": "and then" })).await;
    gate.release();
    first.ask("waitForIdle", json!({})).await;
    let (seq, state) = state_of(&mut first).await;

    let mut cuts = 0;
    for (index, mut folder) in folders.into_iter().enumerate() {
        let cut = (index as u64).min(seq);
        // The snapshot, at 0, is the first frame.
        folder.step().await;
        folder.fold_to(cut).await;
        let Folder { fold, peer } = folder;
        drop(peer);
        let cursor = &fold.cursor;
        let params = json!({ "fromSeq": cursor.seq, "instanceId": cursor.instance_id });
        let mut again = Folder::attach(&daemon, params).await;
        again.fold = fold;
        assert_eq!(again.step().await, Step::Begun, "cut at {cut}: replayed, not sent anew");
        assert_eq!(*again.fold_to(seq).await, state, "cut at {cut}");
        cuts += 1;
    }
    assert!(cuts > seq, "every event was a cut: {cuts} of {seq}");
}

// W4.6: merged, then dropped, then resynchronised; and nobody else notices.
#[tokio::test]
async fn a_reader_that_stops_amid_50_mb_of_events_harms_nobody_and_ends_with_the_state() {
    const BYTES: usize = 50 << 20;
    const DELTA: usize = 64 << 10;
    let words = (BYTES / DELTA) as u64;
    // The model is never further ahead of the reading client than what may wait for one.
    let permits = Arc::new(Semaphore::new((2 << 20) / DELTA));
    let flood = Flood { words, delta: "x".repeat(DELTA), permits: permits.clone() };
    let daemon = InMemory::with(flood, None, "[limits]\nmax_answer_bytes = 100_000_000");
    let mut stopped = Folder::attach(&daemon, json!({ "snapshot": true })).await;
    let mut reading = daemon.connect();
    reading.ask("subscribe", json!({})).await;
    reading.ask("prompt", json!({ "input": "go" })).await;

    // The other client misses nothing: every number comes, and no frame says `lagged`.
    let mut seq = 0;
    loop {
        let frame = reading.frame().await.unwrap();
        if let Some(next) = frame["seq"].as_u64() {
            assert_eq!(frame["prevSeq"].as_u64().unwrap_or(next - 1), seq);
            seq = next;
        }
        assert_ne!(frame["type"], "lagged");
        permits.add_permits(1);
        if frame["type"] == "run_end" {
            assert_eq!(frame["reason"], "stop");
            break;
        }
    }
    // The stopped one's own call takes effect although it reads nothing; then it catches up.
    let abort = stopped.peer.send("abort", json!({})).await;
    let (head, state) = state_of(&mut reading).await;
    let mut steps = Vec::new();
    while stopped.fold.cursor.seq < head {
        steps.push(stopped.step().await);
    }
    assert!(steps.contains(&Step::Lagged), "its backlog was dropped");
    assert!(
        steps.len() < words as usize / 2,
        "it was not sent what it had missed: {}",
        steps.len()
    );
    assert_eq!(*stopped.fold.state.as_ref().unwrap(), state);
    assert_eq!(stopped.peer.answer(abort).await.unwrap()["aborted"], false);
}

/// A model that says the same large word again and again.
struct Flood {
    words: u64,
    delta: String,
    permits: Arc<Semaphore>,
}

impl Model for Flood {
    fn name(&self) -> &str {
        "test/flood"
    }

    fn respond<'a>(
        &'a self,
        _request: ModelRequest,
        sink: ModelSink,
    ) -> BoxFuture<'a, Result<ModelEnd, ModelError>> {
        Box::pin(async move {
            for _ in 0..self.words {
                self.permits.acquire().await.unwrap().forget();
                sink.send(ModelEvent::Text { index: 0, delta: self.delta.clone() }).await?;
            }
            Ok(ModelEnd { stop_reason: StopReason::Stop, usage: Usage::default() })
        })
    }
}
