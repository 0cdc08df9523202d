//! What an agent costs: per delta with listeners, per snapshot with messages, per run with deltas.

use std::{hint::black_box, sync::Arc};

use agent_core::{
    Agent, AgentOptions, Block, BoxFuture, Message, Model, ModelEnd, ModelError, ModelEvent,
    ModelRequest, ModelSink, StopReason, Usage, UserMessage,
};
use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use tokio::runtime::Runtime;

/// Says a word as often as it is told.
struct Talkative(u32);

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
            for _ in 0..self.0 {
                sink.send(ModelEvent::Text { index: 0, delta: "word ".to_owned() }).await?;
            }
            Ok(ModelEnd { stop_reason: StopReason::Stop, usage: Usage::default() })
        })
    }
}

fn one_thread() -> Runtime {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("a runtime can be made")
}

async fn run(deltas: u32, listeners: u32) {
    let agent = Agent::new(AgentOptions::new(Talkative(deltas)));
    for _ in 0..listeners {
        agent.subscribe(|event, _| {
            black_box(event);
            async { Ok(()) }
        });
    }
    let run = agent.prompt("go").expect("the agent is idle");
    black_box(run.await.expect("the runtime lives"));
}

/// The time for 1,000 deltas; a thousandth of it is the cost of one.
fn listeners(bench: &mut Criterion) {
    let mut group = bench.benchmark_group("delta");
    group.throughput(Throughput::Elements(1_000));
    for listeners in [0, 1, 8] {
        group.bench_with_input(
            BenchmarkId::new("listeners", listeners),
            &listeners,
            |bench, count| {
                let runtime = one_thread();
                bench.iter(|| runtime.block_on(run(1_000, *count)));
            },
        );
    }
    let threads =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    let threads = threads.expect("a runtime can be made");
    group.bench_function("listeners/1/two threads", |bench| {
        bench.iter(|| threads.block_on(run(1_000, 1)));
    });
    group.finish();
}

fn snapshots(bench: &mut Criterion) {
    let mut group = bench.benchmark_group("snapshot");
    let runtime = one_thread();
    let _guard = runtime.enter();
    for messages in [10, 10_000] {
        let mut options = AgentOptions::new(Talkative(1));
        options.messages = (0..messages)
            .map(|number: u32| {
                let (id, content) = (format!("m{number}").into(), vec![Block::text("hi")]);
                Arc::new(Message::User(UserMessage { id, content, timestamp: 0, origin: None }))
            })
            .collect();
        let agent = Agent::new(options);
        group.bench_function(BenchmarkId::new("messages", messages), |bench| {
            bench.iter(|| black_box(agent.snapshot()));
        });
    }
    group.finish();
}

/// The throughput stays the same when a run's cost is linear in what the model says.
fn deltas(bench: &mut Criterion) {
    let mut group = bench.benchmark_group("run");
    group.sample_size(10);
    for deltas in [1_000, 10_000, 100_000] {
        group.throughput(Throughput::Elements(u64::from(deltas)));
        group.bench_with_input(BenchmarkId::new("deltas", deltas), &deltas, |bench, deltas| {
            let runtime = one_thread();
            bench.iter(|| runtime.block_on(run(*deltas, 1)));
        });
    }
    group.finish();
}

criterion_group!(benches, listeners, snapshots, deltas);
criterion_main!(benches);
