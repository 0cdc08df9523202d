//! Contract, section 4: the reducer, as an agent and its clients use it.

use std::sync::Arc;

use agent_core::{
    EndReason, Event, EventKind, Gate, Message, PartialBlock, RunId, Snapshot, Step, Usage, reduce,
};
use expect_test::expect;
use support::{Script, ScriptedTool, abort, must, prompt, steer, transcript_story};

fn late(run: u64, kind: EventKind) -> Event {
    Event { seq: 1_000, run_id: Some(RunId(run)), kind }
}

// C4.1
#[tokio::test]
async fn run_start_makes_it_running_with_its_id_and_appends_the_prompt() {
    let play = Script::new().says("one").stage();
    let state = play.agent.snapshot().state;
    play.run("go").await;
    let state = reduce(state, &play.timeline.events()[0]);
    assert_eq!(state.active_run(), Some(RunId(1)));
    assert_eq!(transcript_story(state.messages.iter()), r#"user "go""#);
}

// C4.2
#[tokio::test]
async fn a_late_event_of_run_1_cannot_touch_run_2() {
    let gate = Gate::new();
    let play = Script::new()
        .calls([("a", "work")])
        .says("one")
        .answers([Step::text("tw"), Step::Gate(gate.clone())])
        .tool(ScriptedTool::new("work"))
        .stage();
    play.run("go").await;
    let first = play.timeline.events();
    let run = play.prompt("again");
    must(gate.reached()).await;
    play.timeline.reached("text_delta").await;
    let state = play.agent.snapshot().state;
    assert_eq!(state.active_run(), Some(RunId(2)));
    for event in first.iter().filter(|event| !matches!(event.kind, EventKind::RunStart { .. })) {
        assert_eq!(reduce(state.clone(), event), state);
    }
    // At idle they change nothing either.
    gate.release();
    must(run).await.unwrap();
    play.settle().await;
    let state = play.agent.snapshot().state;
    for event in first.iter().filter(|event| !matches!(event.kind, EventKind::RunStart { .. })) {
        assert_eq!(reduce(state.clone(), event), state);
    }
    // An event outside any run always applies.
    let message = "x".to_owned();
    let event = Event { seq: 9, run_id: None, kind: EventKind::Diagnostic { message } };
    assert_eq!(reduce(state, &event).diagnostics.len(), 1);
}

// C4.3
#[tokio::test]
async fn run_end_makes_it_idle_keeps_the_reason_and_clears_the_turn() {
    let gate = Gate::new();
    let play = Script::new().answers([Step::text("x"), Step::Gate(gate.clone())]).stage();
    let run = play.prompt("go");
    must(gate.reached()).await;
    play.timeline.reached("text_delta").await;
    let state = play.agent.snapshot().state;
    assert!(state.partial.is_some());
    let (reason, error_message) = (EndReason::Error, Some("lost".to_owned()));
    let (undelivered, usage) = (Default::default(), Usage::default());
    let end = late(1, EventKind::RunEnd { reason, error_message, undelivered, usage });
    let ended = reduce(state, &end);
    assert_eq!((ended.active_run(), &ended.partial), (None, &None));
    assert_eq!(ended.last_run.unwrap().error_message.as_deref(), Some("lost"));
    gate.release();
    let result = must(run).await.unwrap();
    play.settle().await;
    // After it the transcript is exactly the run's result.
    assert_eq!(play.agent.snapshot().state.messages, result.messages);
}

// C4.3
#[tokio::test]
async fn after_each_way_to_end_the_transcript_is_the_runs_result() {
    for script in [
        Script::new().says("one").says("two").on("text_delta", steer("left")),
        Script::new().answers([Step::text("x"), Step::Panic]),
        Script::new().says("one").on("text_delta", abort()),
        Script::new()
            .calls([("a", "work")])
            .tool(ScriptedTool::new("work"))
            .on("tool_start", abort()),
    ] {
        let play = script.stage();
        let result = play.run("go").await;
        assert_eq!(play.agent.snapshot().state.messages, result.messages);
        assert_eq!(result.messages.iter().cloned().collect::<Vec<_>>(), result.new_messages);
    }
}

// C4.4
#[tokio::test]
async fn a_client_that_attaches_at_any_event_ends_with_the_agents_state() {
    let play = Script::new()
        .answers([
            Step::text("let me "),
            Step::text("see"),
            Step::call(1, "a", "work", "{}"),
            Step::call(2, "b", "work", "{"),
        ])
        .says("two")
        .says("three")
        .tool(ScriptedTool::new("work"))
        .on("text_delta", steer("left"))
        .on("run_end(1", prompt("again"))
        .stage();
    let snapshots: Arc<std::sync::Mutex<Vec<Snapshot>>> = Arc::default();
    let (agent, taken) = (play.agent.clone(), snapshots.clone());
    play.agent.subscribe(move |_, _| {
        taken.lock().unwrap().push(agent.snapshot());
        async { Ok(()) }
    });
    snapshots.lock().unwrap().push(play.agent.snapshot());
    play.run("go").await;
    let events = play.timeline.events();
    let last = play.agent.snapshot();
    for snapshot in snapshots.lock().unwrap().iter() {
        // Over the wire and back.
        let text = serde_json::to_string(snapshot).unwrap();
        let Snapshot { seq, mut state } = serde_json::from_str(&text).unwrap();
        for event in events.iter().filter(|event| event.seq > seq) {
            let text = serde_json::to_string(event).unwrap();
            state = reduce(state, &serde_json::from_str(&text).unwrap());
        }
        assert_eq!(state, last.state);
    }
}

// C4.4
#[tokio::test]
async fn after_a_reset_all_messages_are_given_again() {
    let play = Script::new().says("one").stage();
    play.run("go").await;
    let mut tail = play.agent.snapshot().state;
    tail.messages = tail.messages.range(1, 2).cloned().collect();
    tail.messages_from = Some(1);
    play.agent.reset().unwrap();
    play.settle().await;
    let folded = reduce(tail, play.timeline.events().last().unwrap());
    assert_eq!(folded, play.agent.snapshot().state);
}

// C4.5
#[tokio::test]
async fn nothing_that_a_caller_does_with_a_snapshot_an_event_or_a_result_changes_the_agent() {
    let play = Script::new().says("one").stage();
    let mut result = play.run("go").await;
    let before = play.agent.snapshot();
    let mut mine = play.agent.snapshot();
    let intruder = mine.state.messages.get(0).unwrap().clone();
    mine.state.messages.push(intruder.clone());
    mine.state.diagnostics = Arc::new(vec!["mine".into()]);
    result.messages.push(intruder);
    for event in play.timeline.events() {
        let mut event = Event::clone(&event);
        if let EventKind::MessageEnd { message, .. } = &mut event.kind
            && let Message::Assistant(message) = Arc::make_mut(message)
        {
            message.content.clear();
        }
    }
    assert_eq!(play.agent.snapshot(), before);
    expect![[r#"user "go" | assistant[stop] "one""#]].assert_eq(&play.transcript());
}

// C4.5
#[tokio::test]
async fn a_snapshot_shares_the_messages_and_later_events_do_not_change_it() {
    let gate = Gate::new();
    let play = Script::new()
        .says("one")
        .answers([Step::text("tw"), Step::Gate(gate.clone()), Step::text("o")])
        .stage();
    play.run("go").await;
    let (one, two) = (play.agent.snapshot(), play.agent.snapshot());
    for index in 0..2 {
        let [a, b] = [&one, &two].map(|snapshot| snapshot.state.messages.get(index).unwrap());
        assert!(Arc::ptr_eq(a, b), "shared, not copied");
    }
    let run = play.prompt("again");
    must(gate.reached()).await;

    while play.agent.snapshot().seq < 11 {
        tokio::task::yield_now().await;
    }
    let partial = play.agent.snapshot();
    gate.release();
    must(run).await.unwrap();
    assert_eq!(one, two);
    let content = &partial.state.partial.as_ref().unwrap().content;
    assert_eq!(content.get(0), Some(&PartialBlock::Text("tw".into())));
    play.settle().await;
}
