//! Faults of models, tools, hooks, listeners and callers: after each the agent is idle, paired, and
//! works. (Those of hooks are in `hooks`, those of models that fail politely in `models`.)

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicU32, Ordering},
    },
    time::Duration,
};

use agent_core::{
    Agent, BoxFuture, Gate, Model, ModelEnd, ModelError, ModelEvent, ModelRequest, ModelSink, Step,
    StopReason, Subscription, Tool, ToolConcurrency, ToolContext, ToolDecision, ToolError,
    ToolOutput, ToolSpec, Usage,
};
use support::{
    Play, Script, ScriptedHooks, ScriptedTool, Timeline, ToolStep, abort, must, prompt, word,
};

/// A thread that is kept busy without a single await, until the test is over.
#[derive(Clone, Default)]
struct Spin {
    spinning: Gate,
    over: Arc<AtomicBool>,
}

impl Spin {
    fn spin(&self) {
        self.spinning.release();
        while !self.over.load(Ordering::Relaxed) {
            std::thread::yield_now();
        }
    }
}

impl Drop for Spin {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Relaxed);
    }
}

/// Says something, which wakes its run, and then spins.
struct SpinningModel(Arc<Spin>);

impl Model for SpinningModel {
    fn name(&self) -> &str {
        "spinning/model"
    }

    fn respond<'a>(
        &'a self,
        _request: ModelRequest,
        sink: ModelSink,
    ) -> BoxFuture<'a, Result<ModelEnd, ModelError>> {
        Box::pin(async move {
            sink.send(ModelEvent::Text { index: 0, delta: "x".into() }).await?;
            self.0.spin();
            Ok(ModelEnd { stop_reason: StopReason::Stop, usage: Usage::default() })
        })
    }
}

async fn aborts_and_works(play: Play, spins: &[Arc<Spin>]) {
    play.agent.configure(agent_core::SettingsChange::default());
    let run = play.prompt("go");
    for spin in spins {
        must(spin.spinning.pass()).await;
    }
    assert!(play.agent.abort(None).unwrap().aborted);
    must(run).await.unwrap();
    play.settle().await;
    assert_eq!(play.last_run(), "aborted");
    let model = Some(Arc::new(agent_core::ScriptedModel::new().says("works")) as Arc<dyn Model>);
    play.agent.configure(agent_core::SettingsChange { model, ..Default::default() });
    must(play.prompt("again")).await.unwrap();
    play.settle().await;
    assert!(play.transcript().ends_with(r#"| assistant[stop] "works""#));
    for spin in spins {
        spin.over.store(true, Ordering::Relaxed);
    }
}

fn short_grace(options: &mut agent_core::AgentOptions) {
    options.limits.abort_grace = Duration::from_millis(50);
}

// C7.6
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn abort_settles_while_a_model_spins_on_the_thread_that_it_was_given() {
    for _ in 0..20 {
        let spin = Arc::new(Spin::default());
        let model = SpinningModel(spin.clone());
        let play =
            Script::new().with(|options| options.model = Arc::new(model)).with(short_grace).stage();
        aborts_and_works(play, &[spin]).await;
    }
}

// C7.6
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn abort_settles_while_more_tools_spin_than_there_are_threads() {
    let spins: Vec<Arc<Spin>> = (0..4).map(|_| Arc::default()).collect();
    let next = AtomicU32::new(0);
    let in_tool = spins.clone();
    let tool = ScriptedTool::new("spins").runs(move |_, context| {
        // Wakes the run first.
        context.update(ToolOutput::text("so far"));
        in_tool[next.fetch_add(1, Ordering::Relaxed) as usize].spin();
        async { Ok(ToolOutput::text("spun")) }
    });
    let play = Script::new()
        .calls([("a", "spins"), ("b", "spins"), ("c", "spins"), ("d", "spins")])
        .tool(tool)
        .with(short_grace)
        .stage();
    aborts_and_works(play, &spins).await;
}

// C7.6
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn abort_settles_while_a_hook_spins() {
    let spin = Arc::new(Spin::default());
    let in_hook = spin.clone();
    let hooks = ScriptedHooks::new().before_tool_call(move |_, _| {
        in_hook.spin();
        async { Ok(ToolDecision::Run) }
    });
    let play = Script::new()
        .calls([("a", "work"), ("b", "work")])
        .tool(ScriptedTool::new("work"))
        .hooks(hooks)
        .with(short_grace)
        .stage();
    aborts_and_works(play, &[spin]).await;
}

// C7.6
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_tool_that_calls_the_agent_and_then_spins_keeps_no_event_back() {
    let spin = Arc::new(Spin::default());
    let agent: Arc<Mutex<Option<Agent>>> = Arc::default();
    let (in_tool, own) = (spin.clone(), agent.clone());
    let tool = ScriptedTool::new("spins").runs(move |_, _| {
        // Somebody has to deliver this, and it must not be the thread that spins.
        own.lock().unwrap().as_ref().unwrap().steer("from a tool").unwrap();
        in_tool.spin();
        async { Ok(ToolOutput::text("spun")) }
    });
    let play = Script::new().calls([("a", "spins")]).tool(tool).with(short_grace).stage();
    *agent.lock().unwrap() = Some(play.agent.clone());
    let run = play.prompt("go");
    must(spin.spinning.pass()).await;
    play.timeline.reached("queue_update(steering").await;
    play.agent.abort(None).unwrap();
    must(run).await.unwrap();
    play.settle().await;
    agent.lock().unwrap().take();
    spin.over.store(true, Ordering::Relaxed);
}

// C7.4
#[tokio::test(start_paused = true)]
async fn a_tool_that_works_on_a_thread_of_its_own_is_abandoned_and_its_late_words_are_dropped() {
    let (spin, contexts) = (Arc::new(Spin::default()), Arc::new(Mutex::new(Vec::new())));
    let (in_tool, kept) = (spin.clone(), contexts.clone());
    let tool = ScriptedTool::new("threaded").runs(move |_, context| {
        kept.lock().unwrap().push(context);
        let spin = in_tool.clone();
        std::thread::spawn(move || spin.spin());
        std::future::pending()
    });
    let play = Script::new().calls([("a", "threaded")]).says("works").tool(tool).stage();
    let run = play.prompt("go");
    spin.spinning.pass().await;
    play.agent.abort(None).unwrap();
    run.await.unwrap();
    for context in contexts.lock().unwrap().iter() {
        context.update(ToolOutput::text("late"));
    }
    play.run("again").await;
    assert_eq!(play.timeline.only(&["tool_update"]), "");
    assert!(play.transcript().contains("did not stop in time"));
}

// C5.8
#[test]
fn a_panic_of_the_loop_itself_ends_in_run_end_and_idle() {
    // Nothing of ours panics, but a runtime without timers makes it: the first wait with a limit.
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    runtime.block_on(async {
        let play = Script::new().answers([Step::Gate(Gate::new())]).stage();
        play.prompt("go").await.unwrap();
        play.agent.wait_for_idle().await.unwrap();
        support::check_laws(&play.timeline.events(), &play.agent.snapshot());
        assert!(play.last_run().contains("the agent itself failed"), "{}", play.last_run());
        assert!(play.last_run().contains("timers are disabled"), "{}", play.last_run());
        assert!(play.agent.prompt("again").is_ok());
        play.agent.wait_for_idle().await.unwrap();
    });
}

// C11.2
#[tokio::test]
async fn a_tool_that_panics_when_asked_about_itself_later_harms_no_run() {
    /// Answers each question about itself once.
    struct Moody(ToolSpec, AtomicBool, AtomicBool);
    impl Tool for Moody {
        fn spec(&self) -> &ToolSpec {
            assert!(!self.1.swap(true, Ordering::Relaxed), "asked again");
            &self.0
        }
        fn execution(&self) -> ToolConcurrency {
            assert!(!self.2.swap(true, Ordering::Relaxed), "asked again");
            ToolConcurrency::Shared
        }
        fn call<'a>(
            &'a self,
            _: serde_json::Value,
            _: ToolContext,
        ) -> BoxFuture<'a, Result<ToolOutput, ToolError>> {
            Box::pin(async { Ok(ToolOutput::text("ok")) })
        }
    }
    let parameters = serde_json::json!({ "type": "object" });
    let spec = ToolSpec { name: "moody".into(), description: String::new(), parameters };
    let play = Script::new()
        .calls([("a", "moody"), ("b", "moody")])
        .says("done")
        .tool(Moody(spec, AtomicBool::new(false), AtomicBool::new(false)))
        .play()
        .await;
    assert_eq!(play.last_run(), "stop");
}

// C5.7
#[tokio::test]
async fn what_a_model_leaves_behind_may_panic_when_it_is_dropped() {
    struct Bomb;
    impl Drop for Bomb {
        fn drop(&mut self) {
            panic!("dropped");
        }
    }
    struct Leaves;
    impl Model for Leaves {
        fn name(&self) -> &str {
            "leaves/bombs"
        }
        fn respond<'a>(
            &'a self,
            _: ModelRequest,
            sink: ModelSink,
        ) -> BoxFuture<'a, Result<ModelEnd, ModelError>> {
            Box::pin(async move {
                let _bomb = Bomb;
                // The sink outlives the model, so the end must come from the agent itself.
                std::mem::forget(sink.clone());
                std::future::pending().await
            })
        }
    }
    let play = Script::new().with(|options| options.model = Arc::new(Leaves)).stage();
    let run = play.prompt("go");
    play.timeline.reached("turn_start").await;
    tokio::task::yield_now().await;
    play.agent.abort(None).unwrap();
    must(run).await.unwrap();
    play.settle().await;
    assert_eq!(play.last_run(), "aborted");
}

// C6.3
#[tokio::test]
async fn a_listener_may_do_anything_in_any_event() {
    // Each listener does one thing in every event, and the run ends as it should.
    type Act = fn(&Agent);
    let acts: [(&str, Act); 9] = [
        ("prompts", |agent| drop(agent.prompt("x"))),
        ("steers", |agent| drop(agent.steer("x"))),
        ("follows up", |agent| drop(agent.follow_up("x"))),
        ("aborts", |agent| _ = agent.abort(None)),
        ("continues", |agent| drop(agent.continue_run())),
        ("clears", |agent| drop(agent.clear_queues(None))),
        ("resets", |agent| _ = agent.reset()),
        ("subscribes", |agent| drop(agent.subscribe(|_, _| async { Ok(()) }))),
        ("looks", |agent| drop(agent.snapshot())),
    ];
    for (name, act) in acts {
        let mut script = Script::new().calls([("a", "work"), ("b", "work")]);
        for _ in 0..40 {
            script = script.says("x");
        }
        let play = script.tool(ScriptedTool::new("work").step(ToolStep::Update("x"))).stage();
        let agent = play.agent.clone();
        let times = AtomicU32::new(0);
        play.agent.subscribe(move |_, _| {
            // Re-entrant, but not for ever: a listener that starts a run in each run_end, say.
            if times.fetch_add(1, Ordering::Relaxed) < 30 {
                act(&agent);
            }
            async { Ok(()) }
        });
        play.prompt("go");
        play.settle().await;
        let runs = play.timeline.runs();
        assert!(runs.starts_with("start1 → end1"), "{name}: {runs}");
        play.prompt("again");
        play.settle().await;
    }
}

// C6.1
#[tokio::test]
async fn a_listener_that_unsubscribes_another_in_any_event_disturbs_nobody() {
    let count = Script::new().says("one").play().await.timeline.events().len() as u64;
    for at in 1..=count {
        let play = Script::new().says("one").stage();
        let victim: Arc<Mutex<Option<Subscription>>> = Arc::default();
        let gone = victim.clone();
        play.agent.subscribe(move |event, _| {
            if event.seq == at {
                gone.lock().unwrap().take().unwrap().unsubscribe();
            }
            async { Ok(()) }
        });
        let (first, last) = (Timeline::of(&play.agent), Timeline::of(&play.agent));
        *victim.lock().unwrap() = Some(first.subscription.clone());
        play.run("go").await;
        assert_eq!(first.events().len() as u64, at);
        assert_eq!(last.story(), play.story());
    }
}

// C8.4
#[tokio::test]
async fn input_from_many_tasks_at_once_is_delivered_once_each() {
    let gate = Gate::new();
    let mut script = Script::new().says_after(&gate, "x");
    for _ in 0..100 {
        script = script.says("x");
    }
    let play = script.stage();
    let run = play.prompt("go");
    must(gate.reached()).await;
    let tasks: Vec<_> = (0..8)
        .map(|task| {
            let agent = play.agent.clone();
            tokio::spawn(async move {
                for number in 0..8 {
                    agent.steer(format!("{task}.{number}")).unwrap();
                    tokio::task::yield_now().await;
                }
            })
        })
        .collect();
    for task in tasks {
        task.await.unwrap();
    }
    gate.release();
    must(run).await.unwrap();
    play.settle().await;
    for task in 0..8 {
        for number in 0..8 {
            let said = format!(r#"user "{task}.{number}""#);
            assert_eq!(play.transcript().matches(&said).count(), 1);
        }
    }
}

// C7.1
#[tokio::test]
async fn prompt_and_abort_without_an_await_between_and_then_a_prompt_work() {
    let play = Script::new().says("one").stage();
    for _ in 0..100 {
        let run = play.prompt("go");
        assert!(play.agent.abort(Some(run.run_id())).unwrap().aborted);
        let result = must(run).await.unwrap();
        assert_eq!(result.reason, agent_core::EndReason::Aborted);
    }
    let run = play.prompt("at last");
    assert_eq!(must(run).await.unwrap().reason, agent_core::EndReason::Stop);
    play.settle().await;
}

// C5.4
#[tokio::test]
async fn a_run_started_by_two_listeners_of_run_end_is_started_once() {
    let play = Script::new().says("one").says("two").on("end1", prompt("first")).stage();
    let agent = play.agent.clone();
    let refused = Arc::new(AtomicU32::new(0));
    let count = refused.clone();
    play.agent.subscribe(move |event, _| {
        if word(&event) == "run_end(1 stop)" && agent.prompt("second").is_err() {
            count.fetch_add(1, Ordering::Relaxed);
        }
        async { Ok(()) }
    });
    play.prompt("go");
    play.settle().await;
    assert_eq!(play.timeline.runs(), "start1 → end1 → start2 → end2");
    assert_eq!(refused.load(Ordering::Relaxed), 1);
}

// C5.8
#[tokio::test(start_paused = true)]
async fn a_hook_or_tool_that_starts_a_run_is_busy_and_one_that_aborts_ends_its_own() {
    let agent: Arc<Mutex<Option<Agent>>> = Arc::default();
    let own = agent.clone();
    let tool = ScriptedTool::new("aborts").runs(move |_, context| {
        let agent = own.lock().unwrap().clone().unwrap();
        async move {
            assert!(agent.prompt("x").is_err());
            abort()(&agent);
            context.signal.cancelled().await;
            Ok(ToolOutput::text("aborted my run"))
        }
    });
    let play = Script::new().calls([("a", "aborts")]).tool(tool).stage();
    *agent.lock().unwrap() = Some(play.agent.clone());
    play.run("go").await;
    agent.lock().unwrap().take();
    assert_eq!(play.last_run(), "aborted");
    assert!(play.transcript().contains(r#"result a "aborted my run""#));
}
