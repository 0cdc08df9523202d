//! Contract, section 3: events.

use agent_core::{Event, EventKind, Gate, Message, Step, StopReason, Usage};
use expect_test::{Expect, expect};
use support::{Script, ScriptedTool, ToolStep, abort, steer};

async fn check(script: Script, expected: Expect) {
    let play = script.play().await;
    expected.assert_eq(&play.story());
}

// C3.1
#[tokio::test]
async fn the_transcript_grows_at_run_start_and_message_end_and_empties_at_reset_only() {
    let play = Script::new().calls([("a", "work")]).says("done").tool(ScriptedTool::new("work"));
    let play = play.play().await;
    play.agent.reset().unwrap();
    play.settle().await;
    let mut transcript: Vec<String> = Vec::new();
    for event in play.timeline.events() {
        match &event.kind {
            EventKind::RunStart { messages } => {
                transcript.extend(messages.iter().map(|message| message.text()));
            }
            EventKind::MessageEnd { message, .. } => transcript.push(message.text()),
            EventKind::Reset {} => {
                assert_eq!(transcript, ["go", "", "work done", "done"]);
                transcript.clear();
            }
            _ => {}
        }
    }
    assert!(transcript.is_empty());
    assert!(play.agent.snapshot().state.messages.is_empty());
}

// C3.2
#[tokio::test]
async fn a_delta_holds_only_what_is_new() {
    let sizes = |pieces: usize| async move {
        let play =
            Script::new().answers((0..pieces).map(|_| Step::text("0123456789"))).play().await;
        let size = |event: &Event| serde_json::to_string(event).unwrap().len();
        let events = play.timeline.events();
        let deltas = events.iter().filter(|e| matches!(e.kind, EventKind::TextDelta { .. }));
        deltas.map(|event| size(event)).collect::<Vec<usize>>()
    };
    let (few, many) = (sizes(10).await, sizes(1000).await);
    assert_eq!((few.len(), many.len()), (10, 1000));
    // `seq` may have a few more digits; nothing else may grow.
    assert!(many.last().unwrap() - few[0] <= 3, "{} after {}", many[999], few[0]);
}

// C3.3
#[tokio::test]
async fn a_text_run_is_one_turn() {
    check(
        Script::new().answers([Step::text("o"), Step::text("ne")]),
        expect!["run_start(1) turn_start(1) message_start text_delta text_delta message_end(model) turn_end(1 stop) run_end(1 stop)"],
    )
    .await;
}

// C3.3
#[tokio::test]
async fn an_answer_that_failed_before_any_text_has_a_message_start_too() {
    check(
        Script::new(),
        expect!["run_start(1) turn_start(1) message_start message_end(model) turn_end(1 error) run_end(1 error)"],
    )
    .await;
}

// C3.3
#[tokio::test]
async fn an_answer_cut_before_any_text_has_a_message_start_too() {
    check(
        Script::new().answers([Step::End(StopReason::Length, Usage::default())]),
        expect!["run_start(1) turn_start(1) message_start message_end(model) turn_end(1 length) run_end(1 length)"],
    )
    .await;
}

// C3.3
#[tokio::test]
async fn a_run_aborted_before_the_model_was_asked_has_no_turn() {
    check(Script::new().on("run_start", abort()), expect!["run_start(1) run_end(1 aborted)"]).await;
}

// C3.3
#[tokio::test]
async fn a_run_aborted_at_a_boundary_has_no_further_turn() {
    check(
        Script::new()
            .calls([("a", "work")])
            .tool(ScriptedTool::new("work"))
            .on("turn_end", abort()),
        expect!["run_start(1) turn_start(1) message_start tool_call_delta(a) message_end(model) tool_start(a) tool_end(a) message_end(tool a) turn_end(1 toolUse) run_end(1 aborted)"],
    )
    .await;
}

// C3.3
#[tokio::test]
async fn steered_messages_follow_the_turn_start_of_the_turn_that_answers_them() {
    check(
        Script::new().says("one").says("two").on("text_delta", steer("left")),
        expect!["run_start(1) turn_start(1) message_start text_delta queue_update(steering +left) message_end(model) turn_end(1 stop) turn_start(2) queue_update(steering -m2) message_end(steering left) message_start text_delta message_end(model) turn_end(2 stop) run_end(1 stop)"],
    )
    .await;
}

// C3.4
#[tokio::test]
async fn results_join_in_call_order_after_the_whole_batch() {
    let (slow, b_ended) = (Gate::new(), Gate::new());
    let release = slow.clone();
    let script = Script::new()
        .calls([("a", "slow"), ("b", "quick")])
        .says("done")
        .tool(ScriptedTool::new("slow").waits(&slow))
        .tool(ScriptedTool::new("quick"))
        .on("tool_end(b)", move |_| {
            release.release();
            b_ended.release();
        });
    check(
        script,
        expect!["run_start(1) turn_start(1) message_start tool_call_delta(a) tool_call_delta(b) message_end(model) tool_start(a) tool_start(b) tool_end(b) tool_end(a) message_end(tool a) message_end(tool b) turn_end(1 toolUse) turn_start(2) message_start text_delta message_end(model) turn_end(2 stop) run_end(1 stop)"],
    )
    .await;
}

// C3.4
#[tokio::test]
async fn a_tool_that_asks_to_run_alone_overlaps_with_nothing() {
    let play = Script::new()
        .calls([("a", "shared"), ("b", "alone"), ("c", "shared"), ("d", "shared")])
        .says("done")
        .tool(ScriptedTool::new("shared"))
        .tool(ScriptedTool::new("alone").alone())
        .play()
        .await;
    expect!["tool_start(a) tool_end(a) tool_start(b) tool_end(b) tool_start(c) tool_start(d) tool_end(c) tool_end(d)"]
        .assert_eq(&play.timeline.only(&["tool_start", "tool_end"]));
}

// C3.4
#[tokio::test]
async fn a_sequential_agent_runs_one_call_at_a_time() {
    let play = Script::new()
        .calls([("a", "work"), ("b", "work")])
        .says("done")
        .tool(ScriptedTool::new("work"))
        .with(|options| options.tool_execution = agent_core::ToolExecution::Sequential)
        .play()
        .await;
    expect!["tool_start(a) tool_end(a) tool_start(b) tool_end(b)"]
        .assert_eq(&play.timeline.only(&["tool_start", "tool_end"]));
}

// C3.4
#[tokio::test(start_paused = true)]
async fn an_abandoned_call_has_its_tool_end_too() {
    let play = Script::new()
        .calls([("a", "deaf")])
        .tool(ScriptedTool::new("deaf").step(ToolStep::Hangs))
        .on("tool_start", abort())
        .play()
        .await;
    expect![
        "tool_start(a) tool_end(a error) message_end(tool a) turn_end(1 aborted) run_end(1 aborted)"
    ]
    .assert_eq(
        &play
            .timeline
            .only(&["tool_", "message_end(tool", "turn_end", "run_end"])
            .replace("tool_call_delta(a) ", ""),
    );
}

// C3.4
#[tokio::test]
async fn progress_comes_between_the_start_and_the_end_of_its_call() {
    let play = Script::new()
        .calls([("a", "work")])
        .says("done")
        .tool(ScriptedTool::new("work").step(ToolStep::Update("half")).step(ToolStep::Says("all")))
        .play()
        .await;
    expect!["tool_start(a) tool_update(a) tool_end(a)"].assert_eq(&play.timeline.only(&[
        "tool_start",
        "tool_update",
        "tool_end",
    ]));
}

// C3.4
#[tokio::test]
async fn a_message_keeps_the_id_of_its_acceptance() {
    let play = Script::new().says("one").says("two").on("text_delta", steer("left")).play().await;
    let ids: Vec<String> = play
        .agent
        .snapshot()
        .state
        .messages
        .iter()
        .filter(|message| matches!(&***message, Message::User(_)))
        .map(|message| message.id().to_string())
        .collect();
    assert_eq!(ids, ["m1", "m2"]);
    assert!(play.story().contains("queue_update(steering -m2)"));
}
