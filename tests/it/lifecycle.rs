//! Contract, section 5: prompt, continue, settle.

use std::sync::{Arc, Mutex};

use agent_core::{
    Agent, AgentOptions, ContinueError, EndReason, Gate, QueueMode, ScriptedModel, Step,
    SubmitError, WaitError, WhenIdle,
};
use expect_test::{Expect, expect};
use futures_util::FutureExt;
use support::{Script, ScriptedTool, Timeline, ToolStep, abort, continue_run, prompt, steer};

async fn check(script: Script, expected: Expect) {
    let play = script.play().await;
    expected.assert_eq(&play.timeline.runs());
}

// C5.1
#[tokio::test]
async fn a_prompt_while_a_run_is_active_is_busy_and_changes_nothing() {
    let gate = Gate::new();
    let play = Script::new().says_after(&gate, "one").stage();
    let handle = play.prompt("go");
    gate.reached().await;
    let before = play.agent.snapshot();
    let error = play.agent.prompt("again").unwrap_err();
    assert!(matches!(error, SubmitError::Busy(busy) if busy.run_id == handle.run_id()));
    assert!(error.to_string().starts_with("Agent is busy"), "{error}");
    assert_eq!(play.agent.snapshot(), before);
    gate.release();
    assert_eq!(handle.await.unwrap().reason, EndReason::Stop);
    play.settle().await;
    assert_eq!(play.timeline.runs(), "start1 → end1");
}

// C5.1
#[tokio::test]
async fn a_prompt_inside_any_event_of_a_run_is_busy() {
    let errors: Arc<Mutex<Vec<SubmitError>>> = Arc::default();
    let mut script =
        Script::new().calls([("a", "work")]).says("two").tool(ScriptedTool::new("work"));
    let moments =
        ["run_start", "turn_start", "message_start", "tool_call", "message_end", "turn_end"];
    for moment in moments {
        let errors = errors.clone();
        script = script.on(moment, move |agent| {
            errors.lock().unwrap().push(agent.prompt("again").unwrap_err());
        });
    }
    script.play().await;
    assert_eq!(errors.lock().unwrap().len(), moments.len());
    assert!(errors.lock().unwrap().iter().all(|error| matches!(error, SubmitError::Busy(_))));
}

// C5.2
#[tokio::test]
async fn nothing_that_a_listener_does_in_run_start_changes_the_first_request() {
    let play = Script::new()
        .says("one")
        .on("run_start", |agent| {
            let mut mine = agent.snapshot().state.messages;
            mine.push(mine.get(0).unwrap().clone());
            assert!(agent.reset().is_err());
        })
        .play()
        .await;
    assert_eq!(play.model.requests()[0].messages.len(), 1);
    assert_eq!(play.transcript(), r#"user "go" | assistant[stop] "one""#);
}

// C5.3
#[tokio::test]
async fn the_handle_resolves_after_every_listener_has_finished_with_run_end() {
    let gate = Gate::new();
    let play = Script::new().says("one").stage();
    let slow = gate.clone();
    play.agent.subscribe(move |event, _| {
        let slow = slow.clone();
        async move {
            if matches!(event.kind, agent_core::EventKind::RunEnd { .. }) {
                slow.pass().await;
            }
            Ok(())
        }
    });
    let mut handle = play.prompt("go");
    gate.reached().await;
    // The slot is free and the state is idle, but the run has not settled.
    assert_eq!(play.agent.snapshot().state.active_run(), None);
    assert!((&mut handle).now_or_never().is_none());
    let mut waiter = Box::pin(play.agent.wait_for_idle());
    assert!((&mut waiter).now_or_never().is_none());
    gate.release();
    assert_eq!(handle.await.unwrap().reason, EndReason::Stop);
    assert!(waiter.await.unwrap().seq > 0);
    play.settle().await;
}

// C5.3
#[tokio::test]
async fn each_way_to_end_has_exactly_one_run_end() {
    for (script, reason) in [
        (Script::new().says("one"), "stop"),
        (Script::new(), "error: the script has no further answer"),
        (
            Script::new().answers([Step::Panic]),
            "error: the model's code panicked: the script says so",
        ),
        (Script::new().says("one").on("text_delta", abort()), "aborted"),
        (Script::new().calls([("a", "none")]).with(|options| options.max_turns = 1), "max_turns"),
    ] {
        let play = script.play().await;
        assert_eq!(play.last_run(), reason);
        assert_eq!(play.timeline.runs(), "start1 → end1");
    }
}

// C5.4
#[tokio::test]
async fn run_2_started_inside_run_end_1_keeps_its_slot() {
    check(
        Script::new().says("one").says("two").on("end1", prompt("again")),
        expect!["start1 → end1 → start2 → end2"],
    )
    .await;
}

// C5.4
#[tokio::test]
async fn every_listener_sees_run_2_that_the_first_one_started_in_run_end_1_in_order() {
    let play = Script::new().says("one").says("two").on("end1", prompt("again")).stage();
    let others = [Timeline::of(&play.agent), Timeline::of(&play.agent)];
    play.prompt("go");
    play.settle().await;
    for timeline in others {
        assert_eq!(timeline.runs(), "start1 → end1 → start2 → end2");
        assert_eq!(timeline.story(), play.story());
    }
}

// C5.4
#[tokio::test]
async fn a_chain_of_runs_each_started_in_the_end_of_the_one_before_stays_in_order() {
    check(
        Script::new()
            .says("one")
            .says("two")
            .on("end1", prompt("again"))
            .on("end2", abort())
            .on("end2", prompt("and again")),
        expect!["start1 → end1 → start2 → end2 → start3 → end3"],
    )
    .await;
}

// C5.4
#[tokio::test]
async fn an_event_published_by_a_listener_comes_after_the_one_that_it_listens_to() {
    let play = Script::new().says("one").says("two").on("run_start", steer("left")).stage();
    let late = Timeline::of(&play.agent);
    play.prompt("go");
    play.settle().await;
    assert!(late.story().starts_with("run_start(1) queue_update(steering +left) turn_start(1)"));
}

// C5.5
#[tokio::test]
async fn a_handle_gives_the_reason_the_new_messages_and_the_transcript() {
    let play = Script::new().says("one").says("two").stage();
    play.run("go").await;
    let result = play.run("again").await;
    assert_eq!((result.run_id.0, result.reason), (2, EndReason::Stop));
    assert_eq!(
        support::transcript_story(&result.new_messages),
        r#"user "again" | assistant[stop] "two""#
    );
    assert_eq!(support::transcript_story(result.messages.iter()), play.transcript());
}

// C5.5
#[tokio::test]
async fn awaiting_a_handle_or_idle_inside_a_listener_is_an_error_and_not_a_hang() {
    let play = Script::new().says("one").says("two").stage();
    let errors: Arc<Mutex<Vec<WaitError>>> = Arc::default();
    let (agent, seen) = (play.agent.clone(), errors.clone());
    play.agent.subscribe(move |event, _| {
        let (agent, seen) = (agent.clone(), seen.clone());
        async move {
            if event.run_id.is_some_and(|id| id.0 == 2) {
                return Ok(());
            }
            let idle = agent.wait_for_idle().await.unwrap_err();
            seen.lock().unwrap().push(idle);
            if matches!(event.kind, agent_core::EventKind::RunEnd { .. }) {
                let handle = agent.prompt("again").unwrap().await.unwrap_err();
                let run = agent.wait_for_run(agent_core::RunId(2)).await.unwrap_err();
                seen.lock().unwrap().extend([handle, run]);
            }
            Ok(())
        }
    });
    play.prompt("go");
    play.settle().await;
    assert_eq!(play.timeline.runs(), "start1 → end1 → start2 → end2");
    assert!(errors.lock().unwrap().len() > 5);
    assert!(errors.lock().unwrap().iter().all(|error| *error == WaitError::WaitsForItself));
}

// C5.5
#[tokio::test]
async fn waiting_for_oneself_inside_a_tool_or_a_hook_is_an_error_too() {
    let slot: Arc<Mutex<Option<Agent>>> = Arc::default();
    let errors: Arc<Mutex<Vec<WaitError>>> = Arc::default();
    let wait = {
        let (slot, errors) = (slot.clone(), errors.clone());
        move || {
            let (agent, errors) = (slot.lock().unwrap().clone().unwrap(), errors.clone());
            async move {
                let error = agent.wait_for_idle().await.unwrap_err();
                errors.lock().unwrap().push(error);
            }
        }
    };
    let (in_tool, in_before, in_after) = (wait.clone(), wait.clone(), wait.clone());
    let (in_context, in_stop, in_next) = (wait.clone(), wait.clone(), wait);
    let hooks = support::ScriptedHooks::new()
        .transform_context(move |messages, _| {
            let wait = in_context();
            async move {
                wait.await;
                Ok(messages)
            }
        })
        .before_tool_call(move |_, _| {
            let wait = in_before();
            async move {
                wait.await;
                Ok(agent_core::ToolDecision::Run)
            }
        })
        .after_tool_call(move |(_, outcome), _| {
            let wait = in_after();
            async move {
                wait.await;
                Ok(outcome)
            }
        })
        .should_stop_after_turn(move |_, _| {
            let wait = in_stop();
            async move {
                wait.await;
                Ok(false)
            }
        })
        .prepare_next_turn(move |_, _| {
            let wait = in_next();
            async move {
                wait.await;
                Ok(agent_core::NextTurn::default())
            }
        });
    let tool = ScriptedTool::new("work").runs(move |_, _| {
        let wait = in_tool();
        async move {
            wait.await;
            Ok(agent_core::ToolOutput::text("ok"))
        }
    });
    let play = Script::new().calls([("a", "work")]).says("done").tool(tool).hooks(hooks).stage();
    *slot.lock().unwrap() = Some(play.agent.clone());
    play.run("go").await;
    // Two requests, one call before, in and after, two turns, one next turn.
    assert_eq!(errors.lock().unwrap().len(), 8);
    assert_eq!(play.last_run(), "stop");
}

// C5.6
#[tokio::test]
async fn continue_answers_a_user_message_and_a_tool_result_without_a_new_message() {
    let play = Script::new()
        .calls([("a", "work")])
        .says("done")
        .tool(ScriptedTool::new("work"))
        .on("turn_end(1", abort())
        .on("end1", continue_run())
        .play()
        .await;
    expect![[
        r#"user "go" | assistant[toolUse] "" +a | result a "work done" | assistant[stop] "done""#
    ]]
    .assert_eq(&play.transcript());
    // Aborted before any request, so the prompt is the last message.
    let play =
        Script::new().says("done").on("start1", abort()).on("end1", continue_run()).play().await;
    expect![[r#"user "go" | assistant[stop] "done""#]].assert_eq(&play.transcript());
}

// C5.6
#[tokio::test]
async fn continue_after_an_answer_takes_held_steering_then_follow_ups_as_the_prompt() {
    let play = Script::new()
        .says("one")
        .says("two")
        .says("three")
        .with(|options| {
            options.when_idle = WhenIdle::Hold;
            options.follow_up_mode = QueueMode::All;
        })
        .stage();
    play.run("go").await;
    play.agent.follow_up("later").unwrap();
    play.agent.follow_up("and later").unwrap();
    play.agent.steer("now").unwrap();
    play.agent.continue_run().unwrap().await.unwrap();
    play.settle().await;
    expect![[r#"user "go" | assistant[stop] "one" | user "now" | assistant[stop] "two" | user "later" | user "and later" | assistant[stop] "three""#]]
        .assert_eq(&play.transcript());
    assert_eq!(play.timeline.runs(), "start1 → end1 → start2 → end2");
}

// C5.6
#[tokio::test]
async fn continue_without_anything_to_answer_fails_and_changes_nothing() {
    let play = Script::new().says("one").stage();
    assert_eq!(play.agent.continue_run().unwrap_err(), ContinueError::NothingToContinue);
    play.run("go").await;
    let before = play.agent.snapshot();
    assert_eq!(play.agent.continue_run().unwrap_err(), ContinueError::NothingToContinue);
    assert_eq!(play.agent.snapshot(), before);
    play.agent.reset().unwrap();
    assert_eq!(play.agent.continue_run().unwrap_err(), ContinueError::NothingToContinue);
    play.settle().await;
}

// C5.6
#[tokio::test]
async fn continue_while_a_run_is_active_is_busy() {
    let play = Script::new()
        .says("one")
        .on("text_delta", |agent| {
            assert!(matches!(agent.continue_run(), Err(ContinueError::Busy(_))));
        })
        .play()
        .await;
    assert_eq!(play.timeline.runs(), "start1 → end1");
}

// C5.8
#[tokio::test]
async fn dropping_the_handle_a_waiter_or_the_agent_changes_nothing_about_the_run() {
    let gate = Gate::new();
    let play = Script::new().says_after(&gate, "one").stage();
    drop(play.prompt("go"));
    gate.reached().await;
    let mut waiter = Box::pin(play.agent.wait_for_idle());
    assert!((&mut waiter).now_or_never().is_none());
    drop(waiter);
    let timeline = play.timeline.clone();
    let waiter = play.agent.wait_for_idle();
    drop(play);
    gate.release();
    waiter.await.unwrap();
    assert_eq!(timeline.runs(), "start1 → end1");
}

// C5.8
#[tokio::test]
async fn a_panic_in_a_model_ends_in_run_end_and_idle() {
    let play = Script::new().answers([Step::text("so f"), Step::Panic]).says("two").stage();
    play.run("go").await;
    assert_eq!(play.last_run(), "error: the model's code panicked: the script says so");
    play.run("again").await;
    expect![[r#"user "go" | assistant[error] "so f" | user "again" | assistant[stop] "two""#]]
        .assert_eq(&play.transcript());
}

// C5.10
#[tokio::test]
async fn an_answer_cut_by_the_output_limit_is_a_stop_with_the_reason_length() {
    let usage = agent_core::Usage::default();
    let cut = [Step::text("a long st"), Step::End(agent_core::StopReason::Length, usage)];
    let play = Script::new().answers(cut.clone()).play().await;
    assert_eq!(play.last_run(), "length");
    assert_eq!(play.transcript(), r#"user "go" | assistant[length] "a long st""#);
    // Something queued: the run goes on, and the last turn decides.
    let play =
        Script::new().answers(cut).says("two").on("text_delta", steer("shorter")).play().await;
    assert_eq!(play.last_run(), "stop");
}

// C5.10
#[tokio::test]
async fn the_calls_of_a_cut_answer_never_run_and_get_error_results() {
    let usage = agent_core::Usage::default();
    let tool = ScriptedTool::new("work").step(ToolStep::Panics);
    let play = Script::new()
        .answers([
            Step::call(0, "a", "work", "{}"),
            Step::call(1, "b", "work", r#"{"path": "/et"#),
            Step::End(agent_core::StopReason::Length, usage),
        ])
        .says("sorry")
        .tool(tool.clone())
        .play()
        .await;
    assert!(tool.calls().is_empty());
    let transcript = play.transcript();
    assert!(
        transcript.contains(r#"assistant[length] "" +a +b | result! a "The answer was cut off by"#)
    );
    assert!(transcript.ends_with(r#"| assistant[stop] "sorry""#), "{transcript}");
    assert_eq!(play.timeline.only(&["tool_skipped"]), "tool_skipped(a) tool_skipped(b)");
    assert_eq!(play.last_run(), "stop");
}

// C5.7
#[tokio::test]
async fn a_model_failure_keeps_the_text_so_far_and_drops_the_calls_that_never_ran() {
    let error = agent_core::ModelError::new(agent_core::ModelErrorKind::Malformed, "broken");
    let play = Script::new()
        .calls([("a", "work")])
        .answers([
            Step::text("let me see"),
            Step::call(1, "b", "work", r#"{"pa"#),
            Step::Fail(error),
        ])
        .tool(ScriptedTool::new("work"))
        .play()
        .await;
    expect![[r#"user "go" | assistant[toolUse] "" +a | result a "work done" | assistant[error] "let me see""#]]
        .assert_eq(&play.transcript());
    assert_eq!(play.last_run(), "error: broken");
}

// C5.7
#[tokio::test]
async fn after_a_failure_the_agent_works() {
    let model = ScriptedModel::new();
    let agent = Agent::new(AgentOptions::new(model.clone()));
    assert_eq!(agent.prompt("go").unwrap().await.unwrap().reason, EndReason::Error);
    let _ = model.says("one");
    let result = agent.prompt("again").unwrap().await.unwrap();
    assert_eq!(result.reason, EndReason::Stop);
    assert_eq!(result.messages.len(), 4);
}
