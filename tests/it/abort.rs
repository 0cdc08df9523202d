//! Contract, section 7: abort.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use agent_core::{Abort, CancelSignal, Gate, RunId, Step, ToolDecision, ToolOutput};
use expect_test::expect;
use support::{Script, ScriptedHooks, ScriptedTool, ToolStep, abort, must, prompt, steer, word};
use tokio::time::Instant;

/// A script whose run passes through every kind of event that a run can have.
fn rich() -> Script {
    let hooks = ScriptedHooks::new().before_tool_call(|call, _| async move {
        Ok(match call.id.as_str() {
            "c" => ToolDecision::Block { reason: "no".into() },
            _ => ToolDecision::Run,
        })
    });
    let refused = agent_core::ModelError::new(agent_core::ModelErrorKind::Connection, "refused");
    let thought = agent_core::ModelEvent::Thinking { index: 9, delta: "hm".into() };
    Script::new()
        .fails(refused)
        .answers([
            Step::Event(thought),
            Step::text("let me see"),
            Step::call(1, "a", "work", "{}"),
            Step::call(2, "b", "work", "{}"),
            Step::call(3, "c", "work", "{}"),
        ])
        .says("done")
        .says("more")
        .says("and more")
        .tool(ScriptedTool::new("work").step(ToolStep::Update("half")))
        .hooks(hooks)
        .with(|options| options.retry.base_delay = Duration::from_millis(1))
        .on("text_delta", |agent| {
            agent.steer("now").unwrap();
            agent.follow_up("later").unwrap();
        })
}

// C7.1
#[tokio::test]
async fn abort_is_idempotent_and_at_idle_does_nothing_and_says_so() {
    let gate = Gate::new();
    let play = Script::new().says_after(&gate, "one").stage();
    let idle = play.agent.abort(None).unwrap();
    assert_eq!(idle, Abort { aborted: false, run_id: None, seq: 0 });
    let run = play.prompt("go");
    gate.reached().await;
    for _ in 0..3 {
        let abort = play.agent.abort(None).unwrap();
        assert_eq!((abort.aborted, abort.run_id), (true, Some(RunId(1))));
    }
    run.await.unwrap();
    play.settle().await;
    assert_eq!(play.last_run(), "aborted");
    let before = play.agent.snapshot();
    assert!(!play.agent.abort(None).unwrap().aborted);
    assert_eq!(play.agent.snapshot(), before);
}

// C7.1
#[tokio::test]
async fn model_tools_hooks_and_listeners_see_the_same_token() {
    let signals: Arc<Mutex<Vec<CancelSignal>>> = Arc::default();
    let (in_hook, in_tool, in_listener) = (signals.clone(), signals.clone(), signals.clone());
    let hooks = ScriptedHooks::new().transform_context(move |messages, signal| {
        in_hook.lock().unwrap().push(signal);
        async { Ok(messages) }
    });
    let begun = Gate::new();
    begun.release();
    let tool = ScriptedTool::new("work").waits(&begun).runs(move |_, context| {
        in_tool.lock().unwrap().push(context.signal.clone());
        async move {
            context.signal.cancelled().await;
            Ok(ToolOutput::text("stopped"))
        }
    });
    let play = Script::new()
        .calls([("a", "work")])
        .tool(tool)
        .hooks(hooks)
        .on("tool_start", |_| {})
        .stage();
    play.agent.subscribe(move |_, signal| {
        in_listener.lock().unwrap().push(signal);
        async { Ok(()) }
    });
    let run = play.prompt("go");
    play.timeline.reached("tool_start").await;
    begun.reached().await;
    assert!(signals.lock().unwrap().iter().all(|signal| !signal.is_cancelled()));
    play.agent.abort(None).unwrap();
    assert!(signals.lock().unwrap().iter().all(|signal| signal.is_cancelled()));
    assert!(play.model.requests()[0].signal.is_cancelled());
    run.await.unwrap();
    play.settle().await;
}

// C7.2
#[tokio::test]
async fn aborted_before_the_first_request_none_is_sent() {
    let cases = [
        (Script::new().on("run_start", abort()), true),
        (Script::new().on("turn_start", abort()), true),
        (Script::new(), false),
    ];
    for (script, in_listener) in cases {
        let play = script.says("one").stage();
        let run = play.prompt("go");
        if !in_listener {
            // Prompt and abort without an await between.
            assert!(play.agent.abort(None).unwrap().aborted);
        }
        run.await.unwrap();
        play.settle().await;
        assert_eq!(play.model.requests().len(), 0);
        assert_eq!(play.last_run(), "aborted");
        assert_eq!(play.transcript(), r#"user "go""#);
    }
}

// C7.3
#[tokio::test]
async fn aborted_while_streaming_the_text_so_far_is_kept_without_the_calls() {
    let gate = Gate::new();
    let play = Script::new()
        .answers([
            Step::text("half a sen"),
            Step::call(1, "a", "work", r#"{"pa"#),
            Step::Gate(gate.clone()),
            Step::text("tence"),
        ])
        .tool(ScriptedTool::new("work"))
        .stage();
    let run = play.prompt("go");
    gate.reached().await;
    play.agent.abort(None).unwrap();
    run.await.unwrap();
    play.settle().await;
    assert_eq!(play.transcript(), r#"user "go" | assistant[aborted] "half a sen""#);
    expect!["run_start(1) turn_start(1) message_start text_delta tool_call_delta(a) message_end(model) turn_end(1 aborted) run_end(1 aborted)"]
        .assert_eq(&play.story());
}

/// A model that tells when its request is dropped.
struct Watched(Gate);

impl agent_core::Model for Watched {
    fn name(&self) -> &str {
        "watched/model"
    }

    fn respond<'a>(
        &'a self,
        _request: agent_core::ModelRequest,
        sink: agent_core::ModelSink,
    ) -> agent_core::BoxFuture<'a, Result<agent_core::ModelEnd, agent_core::ModelError>> {
        struct Release<'a>(&'a Gate);
        impl Drop for Release<'_> {
            fn drop(&mut self) {
                self.0.release();
            }
        }
        Box::pin(async move {
            let _release = Release(&self.0);
            sink.send(agent_core::ModelEvent::Text { index: 0, delta: "x".into() }).await?;
            std::future::pending().await
        })
    }
}

// C7.3
#[tokio::test]
async fn the_request_is_dropped_at_once_also_while_a_listener_is_slow() {
    let dropped = Gate::new();
    let play =
        Script::new().with(|options| options.model = Arc::new(Watched(dropped.clone()))).stage();
    let (slow, agent) = (Gate::new(), play.agent.clone());
    let in_listener = slow.clone();
    play.agent.subscribe(move |event, _| {
        let (slow, agent) = (in_listener.clone(), agent.clone());
        async move {
            if word(&event) == "text_delta" {
                agent.abort(None).unwrap();
                slow.pass().await;
            }
            Ok(())
        }
    });
    let run = play.prompt("go");
    slow.reached().await;
    must(dropped.pass()).await;
    slow.release();
    run.await.unwrap();
    play.settle().await;
    assert_eq!(play.transcript(), r#"user "go" | assistant[aborted] "x""#);
}

// C7.4
#[tokio::test(start_paused = true)]
async fn aborted_during_tools_each_call_has_its_own_result_or_one_that_says_so() {
    let play = Script::new()
        .calls([("a", "polite"), ("b", "deaf"), ("c", "alone")])
        .tool(ScriptedTool::new("polite").step(ToolStep::Abort).step(ToolStep::Says("cleaned up")))
        .tool(ScriptedTool::new("deaf").step(ToolStep::Hangs))
        .tool(ScriptedTool::new("alone").alone())
        .on("tool_start(b", |_| {})
        .stage();
    let run = play.prompt("go");
    play.timeline.reached("tool_start(b").await;
    tokio::time::sleep(Duration::from_millis(1)).await;
    let begun = Instant::now();
    play.agent.abort(None).unwrap();
    run.await.unwrap();
    play.settle().await;
    assert_eq!(begun.elapsed(), Duration::from_secs(5));
    expect![[r#"user "go" | assistant[toolUse] "" +a +b +c | result a "cleaned up" | result! b "The tool was aborted and did not stop in time; what it did is unknown." | result! c "The run was aborted before the call began.""#]]
        .assert_eq(&play.transcript());
    expect!["tool_start(a) tool_start(b) tool_skipped(c) tool_end(a) tool_end(b error)"]
        .assert_eq(&play.timeline.only(&["tool_start", "tool_end", "tool_skipped"]));
}

// C7.4
#[tokio::test]
async fn a_call_whose_tool_start_saw_the_abort_is_not_carried_out() {
    let tool = ScriptedTool::new("work");
    let play = Script::new()
        .calls([("a", "work"), ("b", "work")])
        .tool(tool.clone())
        .on("tool_start(a)", abort())
        .play()
        .await;
    assert_eq!(tool.calls().len(), 0);
    assert_eq!(play.last_run(), "aborted");
    expect![
        "tool_start(a) tool_end(a error) tool_skipped(b) message_end(tool a) message_end(tool b)"
    ]
    .assert_eq(&play.timeline.only(&[
        "tool_start",
        "tool_end",
        "tool_skipped",
        "message_end(tool",
    ]));
}

// C7.4
#[tokio::test(start_paused = true)]
async fn a_result_that_came_in_time_is_kept_though_listeners_were_slow() {
    let play = Script::new()
        .calls([("a", "polite"), ("b", "deaf"), ("c", "polite")])
        .tool(ScriptedTool::new("polite").step(ToolStep::Abort).step(ToolStep::Says("cleaned up")))
        .tool(ScriptedTool::new("deaf").step(ToolStep::Hangs))
        .stage();
    play.agent.subscribe(|event, _| async move {
        if word(&event).starts_with("tool_end(") {
            tokio::time::sleep(Duration::from_secs(9)).await;
        }
        Ok(())
    });
    let run = play.prompt("go");
    play.timeline.reached("tool_start(c").await;
    tokio::time::sleep(Duration::from_millis(1)).await;
    play.agent.abort(None).unwrap();
    run.await.unwrap();
    play.settle().await;
    let transcript = play.transcript();
    assert!(transcript.contains(r#"result a "cleaned up""#), "{transcript}");
    assert!(transcript.contains(r#"result c "cleaned up""#), "{transcript}");
}

// C7.5
#[tokio::test]
async fn a_model_that_ignores_the_token_still_ends_as_aborted() {
    for moment in ["message_start", "text_delta", "message_end", "turn_end"] {
        let play = Script::new()
            .says("one")
            .says("two")
            .on("message_start", steer("now"))
            .on(moment, abort())
            .play()
            .await;
        assert_eq!(play.last_run(), "aborted", "{moment}");
        // Nothing is taken from a queue after it.
        assert!(!play.transcript().contains("now"), "{moment}");
        assert_eq!(play.model.requests().len(), 1);
    }
}

// C7.6
#[tokio::test(start_paused = true)]
async fn abort_settles_within_the_grace_period_at_whatever_event_it_comes() {
    let events = rich().play().await.timeline.events();
    let words: Vec<String> = events.iter().map(|event| word(event)).collect();
    for (index, moment) in words.iter().enumerate() {
        let play = rich().stage();
        let agent = play.agent.clone();
        let at = index as u64 + 1;
        play.agent.subscribe(move |event, _| {
            let agent = agent.clone();
            async move {
                if event.seq == at {
                    agent.abort(None).unwrap();
                }
                Ok(())
            }
        });
        let begun = Instant::now();
        play.prompt("go");
        play.settle().await;
        assert!(begun.elapsed() <= Duration::from_secs(6), "{moment}");
        let expected = if moment.starts_with("run_end") { "stop" } else { "aborted" };
        assert_eq!(play.last_run(), expected, "aborted at {moment}");
    }
    assert!(words.len() > 30, "{words:?}");
}

// C7.6
#[tokio::test(start_paused = true)]
async fn abort_settles_whatever_sleeps_for_ever() {
    let hang = || ScriptedHooks::new();
    let for_ever = std::future::pending;
    let scripts = [
        Script::new().answers([Step::Hang]),
        Script::new().answers([Step::text("x"), Step::Hang]),
        Script::new().calls([("a", "deaf")]).tool(ScriptedTool::new("deaf").step(ToolStep::Hangs)),
        Script::new().hooks(hang().transform_context(move |_, _| for_ever())),
        Script::new().hooks(hang().convert_to_model(move |_, _| std::future::pending())),
        Script::new()
            .says("x")
            .hooks(hang().should_stop_after_turn(move |_, _| std::future::pending())),
        Script::new()
            .calls([("a", "none")])
            .hooks(hang().prepare_next_turn(|_, _| std::future::pending())),
        Script::new()
            .calls([("a", "work")])
            .tool(ScriptedTool::new("work"))
            .hooks(hang().before_tool_call(|_, _| std::future::pending())),
        Script::new()
            .calls([("a", "work")])
            .tool(ScriptedTool::new("work"))
            .hooks(hang().after_tool_call(|_, _| std::future::pending())),
    ];
    for script in scripts {
        let play = script.says("works").stage();
        let run = play.prompt("go");
        // Time stands still until everything else has come to rest.
        tokio::time::sleep(Duration::from_secs(1)).await;
        assert!(play.agent.snapshot().state.active_run().is_some());
        let begun = Instant::now();
        assert!(play.agent.abort(None).unwrap().aborted);
        run.await.unwrap();
        play.settle().await;
        assert!(begun.elapsed() <= Duration::from_secs(5));
        assert_eq!(play.last_run(), "aborted");
    }
}

// C7.7
#[tokio::test]
async fn the_next_run_has_a_new_token() {
    let play = Script::new()
        .says("one")
        .says("two")
        .on("text_delta", abort())
        .on("end1", prompt("again"))
        .play()
        .await;
    assert_eq!(play.timeline.runs(), "start1 → end1 → start2 → end2");
    assert_eq!(play.last_run(), "stop");
    assert!(play.model.requests()[0].signal.is_cancelled());
    assert!(!play.model.requests()[1].signal.is_cancelled());
}

// C7.8
#[tokio::test]
async fn abort_answers_false_once_the_end_is_decided_and_changes_nothing() {
    let answers: Arc<Mutex<Vec<bool>>> = Arc::default();
    for (script, expected) in [
        // Input is closed by the failure before these events.
        (Script::new().answers([Step::text("x"), Step::Panic]), vec![false, false, false]),
        // Still open, then aborted: true as long as the run is there.
        (Script::new().says("x").on("text_delta", abort()), vec![true, true, false]),
        // The run could still go on at its turn_end.
        (Script::new().says("x"), vec![true, true, false]),
    ] {
        let mut script = script;
        for moment in ["message_end(model", "turn_end", "run_end"] {
            let answers = answers.clone();
            script = script.on(moment, move |agent| {
                answers.lock().unwrap().push(agent.abort(None).unwrap().aborted);
            });
        }
        let play = script.play().await;
        let answers = std::mem::take(&mut *answers.lock().unwrap());
        assert_eq!(answers, expected);
        assert_eq!(play.last_run().starts_with("aborted"), answers[0]);
    }
}
