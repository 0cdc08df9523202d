//! What a run of 50 MB of events costs with readers, and with one that has stopped reading.

use std::time::{Duration, Instant};

use agent_core::{
    BoxFuture, Model, ModelEnd, ModelError, ModelEvent, ModelRequest, ModelSink, StopReason, Usage,
};
use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use serde_json::json;
use support::daemon::{InMemory, Peer};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt, DuplexStream},
    runtime::Runtime,
};

/// About 270 bytes on the wire, each.
const DELTAS: u32 = 185_000;

/// Says a hundred bytes at a time.
struct Talkative;

impl Model for Talkative {
    fn name(&self) -> &str {
        "bench/talkative"
    }

    fn respond<'a>(
        &'a self,
        _request: ModelRequest,
        sink: ModelSink,
    ) -> BoxFuture<'a, Result<ModelEnd, ModelError>> {
        Box::pin(async move {
            for _ in 0..DELTAS {
                sink.send(ModelEvent::Text { index: 0, delta: "word ".repeat(20) }).await?;
            }
            Ok(ModelEnd { stop_reason: StopReason::Stop, usage: Usage::default() })
        })
    }
}

/// How many read, and how many have subscribed and stopped.
#[derive(Clone, Copy)]
struct Readers {
    reading: u32,
    stopped: u32,
}

async fn subscriber(daemon: &InMemory) -> DuplexStream {
    let mut stream = daemon.stream();
    let call = json!({ "jsonrpc": "2.0", "id": 1, "method": "subscribe" });
    stream.write_all(format!("{call}\n").as_bytes()).await.expect("the daemon reads");
    // Its answer, so that it has taken effect.
    stream.read_exact(&mut [0; 16]).await.expect("the daemon answers");
    stream
}

async fn drain(mut stream: DuplexStream) {
    let mut buffer = vec![0; 64 * 1024];
    while stream.read(&mut buffer).await.is_ok_and(|read| read > 0) {}
}

/// From the prompt to the run's end, as a client without a subscription sees it.
async fn run(daemon: &InMemory, control: &mut Peer, readers: Readers) -> Duration {
    let mut stopped = Vec::new();
    for _ in 0..readers.stopped {
        stopped.push(subscriber(daemon).await);
    }
    let mut reading = tokio::task::JoinSet::new();
    for _ in 0..readers.reading {
        reading.spawn(drain(subscriber(daemon).await));
    }
    let begin = Instant::now();
    control.ask("prompt", json!({ "input": "go" })).await;
    control.ask("waitForIdle", json!({})).await;
    let taken = begin.elapsed();
    control.ask("reset", json!({})).await;
    taken
}

fn readers(bench: &mut Criterion) {
    let threads = Runtime::new().expect("a runtime can be made");
    let (daemon, mut control) = threads.block_on(async {
        let daemon = InMemory::new(Talkative);
        let control = daemon.connect();
        (daemon, control)
    });
    let mut group = bench.benchmark_group("run of 50 MB");
    group.sample_size(20).throughput(Throughput::Elements(u64::from(DELTAS)));
    let cases = [
        ("no reader", Readers { reading: 0, stopped: 0 }),
        ("1 reader", Readers { reading: 1, stopped: 0 }),
        ("1 reader, 1 stopped", Readers { reading: 1, stopped: 1 }),
        ("8 readers", Readers { reading: 8, stopped: 0 }),
        ("8 readers, 8 stopped", Readers { reading: 8, stopped: 8 }),
    ];
    for (name, readers) in cases {
        group.bench_function(name, |bench| {
            bench.iter_custom(|iterations| {
                threads.block_on(async {
                    let mut taken = Duration::ZERO;
                    for _ in 0..iterations {
                        taken += run(&daemon, &mut control, readers).await;
                    }
                    taken
                })
            });
        });
    }
    group.finish();
}

criterion_group!(benches, readers);
criterion_main!(benches);
