//! Faults that other agents are known for, as tests of ours.

use std::sync::{
    Arc, Mutex,
    atomic::{AtomicU32, Ordering},
};

use agent_core::{Gate, QueueKind, SubmitError, ToolDecision, ToolOutput};
use expect_test::expect;
use support::{Script, ScriptedHooks, ScriptedTool, Timeline, must, prompt, word};

// C6.3
#[tokio::test]
async fn a_listener_that_throws_on_tool_end_unpairs_nothing() {
    let play = Script::new()
        .calls([("a", "work"), ("b", "work")])
        .says("done")
        .tool(ScriptedTool::new("work"))
        .stage();
    play.agent.subscribe(|event, _| async move {
        match word(&event).starts_with("tool_end") {
            true => panic!("a bug in the screen"),
            false => Ok(()),
        }
    });
    let last = Timeline::of(&play.agent);
    play.run("go").await;
    assert_eq!(last.story(), play.story());
    expect![[r#"user "go" | assistant[toolUse] "" +a +b | result a "work done" | result b "work done" | assistant[stop] "done""#]]
        .assert_eq(&play.transcript());
}

// C5.4
#[tokio::test]
async fn a_prompt_inside_run_end_with_two_listeners_reaches_both_in_order() {
    let play = Script::new().says("one").says("two").stage();
    let before = Timeline::of(&play.agent);
    let agent = play.agent.clone();
    play.agent.subscribe(move |event, _| {
        if word(&event) == "run_end(1 stop)" {
            prompt("again")(&agent);
        }
        async { Ok(()) }
    });
    let after = Timeline::of(&play.agent);
    play.prompt("go");
    play.settle().await;
    for timeline in [before, after] {
        assert_eq!(timeline.runs(), "start1 → end1 → start2 → end2");
    }
}

// C7.4
#[tokio::test]
async fn an_abort_in_the_preflight_of_call_1_of_3_pairs_all_three() {
    let gate = Gate::new();
    let in_hook = gate.clone();
    let tool = ScriptedTool::new("work");
    let hooks = ScriptedHooks::new().before_tool_call(move |_, _| {
        let gate = in_hook.clone();
        async move {
            gate.pass().await;
            Ok(ToolDecision::Run)
        }
    });
    let play = Script::new()
        .calls([("a", "work"), ("b", "work"), ("c", "work")])
        .tool(tool.clone())
        .hooks(hooks)
        .stage();
    let run = play.prompt("go");
    must(gate.reached()).await;
    play.agent.abort(None).unwrap();
    gate.release();
    must(run).await.unwrap();
    play.settle().await;
    assert!(tool.calls().is_empty());
    expect!["tool_skipped(a) tool_skipped(b) tool_skipped(c) message_end(tool a) message_end(tool b) message_end(tool c)"]
        .assert_eq(&play.timeline.only(&["tool_start", "tool_end", "tool_skipped", "message_end(tool"]));
}

// C8.4
#[tokio::test]
async fn a_message_that_comes_at_any_step_of_the_final_drain_is_answered_or_refused_or_handed_back()
{
    // A thousand times, each after one more step of the scheduler than the time before.
    for steps in 0..1000 {
        let mut script = Script::new();
        for _ in 0..4 {
            script = script.says("x");
        }
        let play = script.stage();
        let run = play.prompt("go");
        for _ in 0..steps % 40 {
            tokio::task::yield_now().await;
        }
        let steered = play.agent.steer("steered");
        let followed = play.agent.follow_up("followed");
        let result = must(run).await.unwrap();
        play.settle().await;
        for (accepted, text, queue) in
            [(steered, "steered", QueueKind::Steering), (followed, "followed", QueueKind::FollowUp)]
        {
            let joined = play.transcript().matches(text).count();
            let back = match queue {
                QueueKind::Steering => result.undelivered.steering.len(),
                QueueKind::FollowUp => result.undelivered.follow_up.len(),
            };
            match accepted {
                Ok(_) => assert_eq!(joined + back, 1),
                Err(error) => assert_eq!((error, joined, back), (SubmitError::NotRunning, 0, 0)),
            }
        }
    }
}

// C8.4
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_message_that_another_thread_sends_during_the_final_drain_is_not_lost() {
    let accepted = Arc::new(AtomicU32::new(0));
    for round in 0..1000_u32 {
        let mut script = Script::new();
        for _ in 0..4 {
            script = script.says("x");
        }
        let play = script.stage();
        let run = play.prompt("go");
        let (agent, count) = (play.agent.clone(), accepted.clone());
        let sender = tokio::task::spawn_blocking(move || {
            for _ in 0..round % 100 {
                std::hint::spin_loop();
            }
            let sent = [agent.steer("sent"), agent.follow_up("sent")];
            let sent = sent.iter().filter(|sent| sent.is_ok()).count();
            count.fetch_add(sent as u32, Ordering::Relaxed);
            sent
        });
        let result = must(run).await.unwrap();
        let sent = sender.await.unwrap();
        play.settle().await;
        let joined = play.transcript().matches("sent").count();
        let back = result.undelivered.steering.len() + result.undelivered.follow_up.len();
        assert_eq!((joined, back), (sent, 0), "round {round}");
    }
    assert!(accepted.load(Ordering::Relaxed) > 0);
}

// C4.2
#[tokio::test]
async fn a_late_tool_update_does_not_appear_in_run_2() {
    let kept: Arc<Mutex<Option<agent_core::ToolContext>>> = Arc::default();
    let keep = kept.clone();
    let play = Script::new()
        .calls([("a", "work")])
        .says("one")
        .calls([("a", "work")])
        .says("two")
        .tool(ScriptedTool::new("work").runs(move |_, context| {
            // The second call finds the first one's context, and speaks through it.
            let mut kept = keep.lock().unwrap();
            if let Some(first) = kept.replace(context) {
                first.update(ToolOutput::text("late"));
            }
            async { Ok(ToolOutput::text("ok")) }
        }))
        .stage();
    play.run("go").await;
    play.run("again").await;
    assert_eq!(play.timeline.only(&["tool_update"]), "");
}

// C7.1
#[tokio::test]
async fn prompt_and_abort_without_an_await_between_end_as_aborted() {
    let play = Script::new().says("one").stage();
    let run = play.prompt("go");
    play.agent.abort(None).unwrap();
    must(run).await.unwrap();
    play.settle().await;
    assert_eq!(play.story(), "run_start(1) run_end(1 aborted)");
}
