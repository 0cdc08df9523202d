//! Contract, section 8: the two queues.

use std::sync::{Arc, Mutex};

use agent_core::{
    Agent, Block, Disposition, EndReason, EventKind, Gate, Intent, NoRun, OnBusy, QueueKind,
    QueueMode, RunId, SettingsChange, Step, SubmitError, WhenIdle,
};
use expect_test::{Expect, expect};
use support::{Play, Script, ScriptedHooks, ScriptedTool, abort, follow_up, prompt, steer};

async fn check(script: Script, expected: Expect) {
    expected.assert_eq(&script.play().await.transcript());
}

fn undelivered(play: &Play) -> Vec<String> {
    let events = play.timeline.events();
    let handed_back = events.iter().filter_map(|event| match &event.kind {
        EventKind::RunEnd { undelivered, .. } => Some(undelivered.clone()),
        _ => None,
    });
    let queued = handed_back.flat_map(|back| back.steering.into_iter().chain(back.follow_up));
    queued.map(|queued| agent_core::text_of(&queued.content)).collect()
}

fn enqueue(
    agent: &Agent,
    queue: QueueKind,
    run: u64,
    when_idle: Option<NoRun>,
) -> Result<Disposition, SubmitError> {
    let expected_run_id = Some(RunId(run));
    let intent = Intent::Queue { queue, expected_run_id, when_idle };
    agent.submit("late".into(), intent).map(|accepted| accepted.disposition)
}

// C8.1
#[tokio::test]
async fn one_at_a_time_gives_each_instruction_its_own_answer() {
    check(
        Script::new()
            .says("one")
            .says("two")
            .says("three")
            .on("text_delta", |agent| {
                agent.steer("check the tests first").unwrap();
                agent.steer("then update the notes").unwrap();
            }),
        expect![[r#"user "go" | assistant[stop] "one" | user "check the tests first" | assistant[stop] "two" | user "then update the notes" | assistant[stop] "three""#]],
    )
    .await;
}

// C8.1
#[tokio::test]
async fn all_at_once_gives_them_one_answer() {
    check(
        Script::new().says("one").says("two").with(|options| options.steering_mode = QueueMode::All).on(
            "text_delta",
            |agent| {
                agent.steer("check the tests first").unwrap();
                agent.steer("then update the notes").unwrap();
            },
        ),
        expect![[r#"user "go" | assistant[stop] "one" | user "check the tests first" | user "then update the notes" | assistant[stop] "two""#]],
    )
    .await;
}

// C8.1
#[tokio::test]
async fn each_mode_can_be_set_during_a_run() {
    check(
        Script::new().says("one").says("two").says("three").on("text_delta", |agent| {
            for text in ["a", "b"] {
                agent.steer(text).unwrap();
                agent.follow_up(format!("later {text}")).unwrap();
            }
            let steering_mode = Some(QueueMode::All);
            agent.configure(SettingsChange { steering_mode, ..SettingsChange::default() });
            let follow_up_mode = Some(QueueMode::All);
            agent.configure(SettingsChange { follow_up_mode, ..SettingsChange::default() });
        }),
        expect![[r#"user "go" | assistant[stop] "one" | user "a" | user "b" | assistant[stop] "two" | user "later a" | user "later b" | assistant[stop] "three""#]],
    )
    .await;
}

// C8.2
#[tokio::test]
async fn steering_comes_before_follow_ups_which_wait_for_the_run_to_stop() {
    check(
        Script::new()
            .calls([("a", "work")])
            .says("two")
            .says("three")
            .tool(ScriptedTool::new("work"))
            .on("message_start", |agent| {
                agent.follow_up("later").unwrap();
                agent.steer("now").unwrap();
            }),
        expect![[r#"user "go" | assistant[toolUse] "" +a | result a "work done" | user "now" | assistant[stop] "two" | user "later" | assistant[stop] "three""#]],
    )
    .await;
}

// C8.2
#[tokio::test]
async fn follow_ups_wait_while_there_are_tool_results_to_answer() {
    check(
        Script::new()
            .calls([("a", "work")])
            .says("two")
            .says("three")
            .tool(ScriptedTool::new("work"))
            .on("message_start", follow_up("later")),
        expect![[r#"user "go" | assistant[toolUse] "" +a | result a "work done" | assistant[stop] "two" | user "later" | assistant[stop] "three""#]],
    )
    .await;
}

// C8.2
#[tokio::test]
async fn steering_never_splits_a_call_from_its_result() {
    let gate = Gate::new();
    let play = Script::new()
        .calls([("a", "slow"), ("b", "slow")])
        .says("two")
        .tool(ScriptedTool::new("slow").waits(&gate))
        .stage();
    let run = play.prompt("go");
    gate.reached().await;
    play.agent.steer("now").unwrap();
    gate.release();
    run.await.unwrap();
    play.settle().await;
    expect![[r#"user "go" | assistant[toolUse] "" +a +b | result a "slow done" | result b "slow done" | user "now" | assistant[stop] "two""#]]
        .assert_eq(&play.transcript());
}

// C8.2
#[tokio::test]
async fn the_hook_is_asked_before_the_turn_limit_and_the_queues() {
    let hooks = ScriptedHooks::new().should_stop_after_turn(|_, _| async { Ok(true) });
    let play = Script::new()
        .says("one")
        .with(|options| options.max_turns = 1)
        .hooks(hooks)
        .on("text_delta", steer("now"))
        .play()
        .await;
    assert_eq!(play.last_run(), "stopped_by_hook");
    assert_eq!(undelivered(&play), ["now"]);
}

// C8.2
#[tokio::test]
async fn cancellation_comes_before_the_hook() {
    let asked = Arc::new(Mutex::new(0));
    let count = asked.clone();
    let hooks = ScriptedHooks::new().should_stop_after_turn(move |_, _| {
        *count.lock().unwrap() += 1;
        async { Ok(true) }
    });
    let play = Script::new().says("one").hooks(hooks).on("turn_end", abort()).play().await;
    assert_eq!(play.last_run(), "aborted");
    assert_eq!(*asked.lock().unwrap(), 0);
}

// C8.3
#[tokio::test]
async fn each_queue_is_first_in_first_out_whatever_the_mode() {
    for mode in [QueueMode::OneAtATime, QueueMode::All] {
        let mut script = Script::new().with(|options| {
            options.steering_mode = mode;
            options.follow_up_mode = mode;
        });
        for _ in 0..11 {
            script = script.says("ok");
        }
        let script = script.on("text_delta", |agent| {
            for number in 0..5 {
                agent.steer(format!("s{number}")).unwrap();
                agent.follow_up(format!("f{number}")).unwrap();
            }
        });
        let play = script.play().await;
        let messages = play.agent.snapshot().state.messages;
        let texts: Vec<String> = messages.iter().map(|message| message.text()).collect();
        let said: Vec<&String> =
            texts.iter().filter(|text| *text != "ok" && *text != "go").collect();
        assert_eq!(said, ["s0", "s1", "s2", "s3", "s4", "f0", "f1", "f2", "f3", "f4"]);
    }
}

// C8.4
#[tokio::test]
async fn a_message_accepted_at_any_moment_of_the_last_turn_is_answered() {
    for moment in
        ["start1", "turn_start(1", "message_start", "text_delta", "message_end", "turn_end(1"]
    {
        for queue in [QueueKind::Steering, QueueKind::FollowUp] {
            let mut script = Script::new();
            for _ in 0..3 {
                script = script.says("one");
            }
            let play = script
                .on(moment, move |agent| {
                    let accepted = match queue {
                        QueueKind::Steering => agent.steer("late"),
                        QueueKind::FollowUp => agent.follow_up("late"),
                    };
                    assert!(accepted.is_ok());
                })
                .play()
                .await;
            assert!(play.transcript().contains(r#"user "late""#), "{moment}");
            assert_eq!(undelivered(&play), [""; 0]);
        }
    }
}

// C8.4
#[tokio::test]
async fn a_message_that_comes_back_does_so_in_order() {
    let play = Script::new()
        .says("one")
        .on("text_delta", |agent| {
            for text in ["a", "b", "c"] {
                agent.steer(text).unwrap();
            }
            agent.follow_up("d").unwrap();
            agent.follow_up("e").unwrap();
        })
        .on("turn_start(2", abort())
        .play()
        .await;
    assert_eq!(undelivered(&play), ["b", "c", "d", "e"]);
    assert!(play.transcript().ends_with(r#"user "a""#), "{}", play.transcript());
}

// C8.5
#[tokio::test]
async fn what_was_queued_when_a_run_fails_is_handed_back_and_never_leaks() {
    let stop = ScriptedHooks::new().should_stop_after_turn(|turn, _| async move {
        Ok(agent_core::text_of(&turn.message.content) == "stop here")
    });
    let queue = |agent: &Agent| {
        agent.steer("now").unwrap();
        agent.follow_up("later").unwrap();
    };
    for (script, reason) in [
        (Script::new().answers([Step::text("x"), Step::Panic]), "error"),
        (Script::new().says("x").on("text_delta", abort()), "aborted"),
        (Script::new().says("x").with(|options| options.max_turns = 1), "max_turns"),
        (Script::new().says("stop here").hooks(stop), "stopped_by_hook"),
    ] {
        let play = script
            .says("two")
            .with(|options| options.when_idle = WhenIdle::Hold)
            .on("message_start", queue)
            .play()
            .await;
        assert!(play.last_run().starts_with(reason));
        assert_eq!(undelivered(&play), ["now", "later"]);
        assert!(play.agent.snapshot().state.steering.is_empty());
        play.agent.configure(SettingsChange { max_turns: Some(0), ..SettingsChange::default() });
        play.run("again").await;
        let transcript = play.transcript();
        assert!(!transcript.contains("now") && !transcript.contains("later"), "{transcript}");
    }
}

// C8.5
#[tokio::test]
async fn a_turn_that_failed_closes_input_before_its_turn_end() {
    for script in [
        Script::new(),
        Script::new().answers([Step::text("x"), Step::Panic]),
        Script::new().says("x").on("text_delta", abort()),
        Script::new()
            .calls([("a", "work")])
            .tool(ScriptedTool::new("work"))
            .on("tool_end", abort()),
    ] {
        let refused: Arc<Mutex<Vec<SubmitError>>> = Arc::default();
        let seen = refused.clone();
        let script = script.on("turn_end", move |agent| {
            let errors = [agent.steer("x").unwrap_err(), agent.follow_up("x").unwrap_err()];
            seen.lock().unwrap().extend(errors);
        });
        script.play().await;
        assert_eq!(*refused.lock().unwrap(), [SubmitError::NotRunning, SubmitError::NotRunning]);
    }
}

// C8.6
#[tokio::test]
async fn a_natural_stop_on_the_last_allowed_turn_is_a_stop() {
    let play = Script::new().says("one").with(|options| options.max_turns = 1).play().await;
    assert_eq!(play.last_run(), "stop");
}

// C8.6
#[tokio::test]
async fn the_turn_limit_takes_nothing_that_would_not_be_answered() {
    let play = Script::new()
        .says("one")
        .says("two")
        .with(|options| options.max_turns = 2)
        .on("text_delta", |agent| {
            agent.steer("a").unwrap();
            agent.steer("b").unwrap();
            agent.follow_up("c").unwrap();
        })
        .play()
        .await;
    assert_eq!(play.last_run(), "max_turns");
    assert_eq!(undelivered(&play), ["b", "c"]);
    expect![[r#"user "go" | assistant[stop] "one" | user "a" | assistant[stop] "two""#]]
        .assert_eq(&play.transcript());
}

// C8.6
#[tokio::test]
async fn results_that_nobody_may_answer_end_the_run_as_max_turns_and_paired() {
    let play = Script::new()
        .calls([("a", "work")])
        .tool(ScriptedTool::new("work"))
        .with(|options| options.max_turns = 1)
        .play()
        .await;
    assert_eq!(play.last_run(), "max_turns");
    expect![[r#"user "go" | assistant[toolUse] "" +a | result a "work done""#]]
        .assert_eq(&play.transcript());
}

// C8.7
#[tokio::test]
async fn at_idle_input_is_refused_and_changes_nothing() {
    let play = Script::new().says("one").stage();
    for _ in 0..2 {
        let before = play.agent.snapshot();
        assert_eq!(play.agent.steer("x").unwrap_err(), SubmitError::NotRunning);
        assert_eq!(play.agent.follow_up("x").unwrap_err(), SubmitError::NotRunning);
        assert_eq!(play.agent.snapshot(), before);
        if before.seq == 0 {
            play.run("go").await;
        }
    }
}

// C8.7
#[tokio::test]
async fn held_messages_are_taken_before_the_first_request_of_the_next_run() {
    let play = Script::new()
        .says("one")
        .says("two")
        .with(|options| options.when_idle = WhenIdle::Hold)
        .stage();
    let accepted = play.agent.steer("held").unwrap();
    assert_eq!((accepted.disposition, accepted.run_id), (Disposition::Held, None));
    play.agent.follow_up("later").unwrap();
    play.run("go").await;
    expect!["queue_update(steering +held) queue_update(followUp +later) run_start(1) turn_start(1) queue_update(steering -m1) message_end(steering held) message_start text_delta message_end(model) turn_end(1 stop) turn_start(2) queue_update(followUp -m2) message_end(followUp later) message_start text_delta message_end(model) turn_end(2 stop) run_end(1 stop)"]
        .assert_eq(&play.story());
    assert_eq!(play.model.requests()[0].messages.len(), 2);
}

// C8.7
#[tokio::test]
async fn held_messages_of_a_run_that_fails_are_undelivered_too() {
    let play = Script::new()
        .says("two")
        .with(|options| options.when_idle = WhenIdle::Hold)
        .on("start1", abort())
        .stage();
    play.agent.steer("held").unwrap();
    play.run("go").await;
    assert_eq!(undelivered(&play), ["held"]);
    play.run("again").await;
    expect![[r#"user "go" | user "again" | assistant[stop] "two""#]].assert_eq(&play.transcript());
}

// C8.7
#[tokio::test]
async fn a_message_held_while_a_run_closes_waits_for_the_next_one() {
    for moment in ["turn_end(1", "end1"] {
        let play = Script::new()
            .answers([Step::text("x"), Step::Panic])
            .says("two")
            .with(|options| options.when_idle = WhenIdle::Hold)
            .on("text_delta", steer("given back"))
            .on(moment, steer("held"))
            .play()
            .await;
        assert_eq!(undelivered(&play), ["given back"]);
        let state = play.agent.snapshot().state;
        assert_eq!(state.steering.len(), 1, "a message held meanwhile stays");
        play.run("again").await;
        expect![[r#"user "go" | assistant[error] "x" | user "again" | user "held" | assistant[stop] "two""#]]
            .assert_eq(&play.transcript());
    }
}

// C8.8
#[tokio::test]
async fn input_for_a_run_that_is_not_active_is_refused_and_names_the_active_one() {
    let gate = Gate::new();
    let play = Script::new().says("one").says_after(&gate, "two").stage();
    play.run("go").await;
    let wrong = |error: SubmitError| match error {
        SubmitError::WrongRun(wrong) => (wrong.expected.0, wrong.actual.map(|id| id.0)),
        other => panic!("{other:?}"),
    };
    for when_idle in [None, Some(NoRun::Hold), Some(NoRun::Prompt), Some(NoRun::Reject)] {
        let error = enqueue(&play.agent, QueueKind::Steering, 1, when_idle).unwrap_err();
        assert_eq!(wrong(error), (1, None));
    }
    let run = play.prompt("again");
    gate.reached().await;
    let before = play.agent.snapshot();
    for queue in [QueueKind::Steering, QueueKind::FollowUp] {
        assert_eq!(wrong(enqueue(&play.agent, queue, 1, None).unwrap_err()), (1, Some(2)));
    }
    let error = play.agent.abort(Some(RunId(1))).unwrap_err();
    assert_eq!((error.expected, error.actual), (RunId(1), Some(RunId(2))));
    assert_eq!(play.agent.snapshot(), before);
    assert!(enqueue(&play.agent, QueueKind::Steering, 2, None).is_ok());
    assert!(play.agent.abort(Some(RunId(2))).unwrap().aborted);
    assert_eq!(run.await.unwrap().reason, EndReason::Aborted);
    play.settle().await;
}

// C8.8
#[tokio::test]
async fn a_message_for_a_run_that_has_closed_is_never_held_for_another() {
    let refused: Arc<Mutex<Vec<SubmitError>>> = Arc::default();
    let seen = refused.clone();
    let play = Script::new()
        .says("two")
        .answers([])
        .with(|options| options.when_idle = WhenIdle::Hold)
        .answers([Step::Panic])
        .on("text_delta", abort())
        .on("turn_end(1", move |agent| {
            for when_idle in [None, Some(NoRun::Hold), Some(NoRun::Prompt)] {
                let error = enqueue(agent, QueueKind::Steering, 1, when_idle).unwrap_err();
                seen.lock().unwrap().push(error);
            }
        })
        .play()
        .await;
    assert_eq!(*refused.lock().unwrap(), [SubmitError::NotRunning; 3]);
    assert!(play.agent.snapshot().state.steering.is_empty());
}

// C8.9
#[tokio::test]
async fn clearing_returns_what_was_removed_and_each_message_can_be_removed_alone() {
    let gate = Gate::new();
    let play = Script::new().says_after(&gate, "one").says("two").stage();
    let run = play.prompt("go");
    gate.reached().await;
    let agent = &play.agent;
    let ids: Vec<_> = ["a", "b", "c"].map(|text| agent.steer(text).unwrap().message_id).into();
    agent.follow_up("d").unwrap();
    let (removed, _) = agent.remove_queued(&ids[1]);
    assert_eq!(removed.unwrap().content, [Block::text("b")]);
    assert_eq!(agent.remove_queued(&ids[1]).0, None);
    assert_eq!(agent.remove_queued("nothing").0, None);
    let cleared = agent.clear_steering();
    assert_eq!(
        cleared.iter().map(|queued| &queued.message_id).collect::<Vec<_>>(),
        [&ids[0], &ids[2]]
    );
    assert_eq!(agent.clear_steering().len(), 0);
    assert_eq!(agent.clear_follow_ups().len(), 1);
    agent.steer("e").unwrap();
    agent.follow_up("f").unwrap();
    let (both, _) = agent.clear_queues(None);
    assert_eq!((both.steering.len(), both.follow_up.len()), (1, 1));
    agent.steer(both.steering[0].content.clone()).unwrap();
    gate.release();
    run.await.unwrap();
    play.settle().await;
    expect![[r#"user "go" | assistant[stop] "one" | user "e" | assistant[stop] "two""#]]
        .assert_eq(&play.transcript());
}

// C8.9
#[tokio::test]
async fn held_messages_can_be_cleared_too() {
    let play = Script::new().with(|options| options.when_idle = WhenIdle::Hold).stage();
    play.agent.steer("a").unwrap();
    play.agent.follow_up("b").unwrap();
    let (cleared, _) = play.agent.clear_queues(None);
    assert_eq!((cleared.steering.len(), cleared.follow_up.len()), (1, 1));
    play.settle().await;
    assert_eq!(
        play.story(),
        "queue_update(steering +a) queue_update(followUp +b) queue_update(steering -m1) queue_update(followUp -m2)"
    );
}

// C8.10
#[tokio::test]
async fn a_queue_holds_64_messages() {
    let gate = Gate::new();
    let play = Script::new().says_after(&gate, "one").stage();
    let run = play.prompt("go");
    gate.reached().await;
    for number in 0..64 {
        assert_eq!(play.agent.steer("x").unwrap().position, Some(number));
    }
    let before = play.agent.snapshot();
    assert!(matches!(play.agent.steer("x").unwrap_err(), SubmitError::QueueFull(_)));
    assert_eq!(play.agent.snapshot(), before);
    // The other queue has its own room.
    play.agent.follow_up("x").unwrap();
    play.agent.abort(None).unwrap();
    run.await.unwrap();
    play.settle().await;
    assert_eq!(undelivered(&play).len(), 65);
}

// C8.10
#[tokio::test]
async fn a_queue_holds_32_mib() {
    let play = Script::new().with(|options| options.when_idle = WhenIdle::Hold).stage();
    let image =
        |bytes: usize| vec![Block::image("image/png", "x".repeat(bytes - "image/png".len()))];
    play.agent.steer(image(31 << 20)).unwrap();
    play.agent.steer(image(1 << 20)).unwrap();
    assert!(matches!(play.agent.steer("x").unwrap_err(), SubmitError::QueueFull(_)));
    play.agent.clear_steering();
    play.agent.steer(image(32 << 20)).unwrap();
    assert!(matches!(play.agent.steer("x").unwrap_err(), SubmitError::QueueFull(_)));
    play.settle().await;
}

// C8.10
#[tokio::test]
async fn what_run_end_hands_back_has_no_queue_update_of_its_own() {
    let play = Script::new()
        .answers([Step::text("x"), Step::Panic])
        .on("text_delta", steer("now"))
        .play()
        .await;
    assert_eq!(
        play.timeline.only(&["queue_update", "run_end"]),
        "queue_update(steering +now) run_end(1 error)"
    );
    assert!(play.agent.snapshot().state.steering.is_empty());
}

// C8.7
#[tokio::test]
async fn input_can_choose_for_itself_what_happens_without_a_run() {
    let play = Script::new().says("one").says("two").stage();
    let queue = |when_idle| Intent::Queue {
        queue: QueueKind::FollowUp,
        expected_run_id: None,
        when_idle: Some(when_idle),
    };
    assert_eq!(
        play.agent.submit("x".into(), queue(NoRun::Reject)).unwrap_err(),
        SubmitError::NotRunning
    );
    let held = play.agent.submit("held".into(), queue(NoRun::Hold)).unwrap();
    assert_eq!(held.disposition, Disposition::Held);
    let started = play.agent.submit("go".into(), queue(NoRun::Prompt)).unwrap();
    assert_eq!(started.disposition, Disposition::Started);
    started.handle.unwrap().await.unwrap();
    play.settle().await;
    expect![[r#"user "go" | assistant[stop] "one" | user "held" | assistant[stop] "two""#]]
        .assert_eq(&play.transcript());
}

// C5.1
#[tokio::test]
async fn a_prompt_can_choose_to_become_steering_or_a_follow_up_of_an_open_run() {
    let gate = Gate::new();
    let play = Script::new().says_after(&gate, "one").says("two").says("three").stage();
    let run = play.prompt("go");
    gate.reached().await;
    let submit = |on_busy| play.agent.submit("x".into(), Intent::Prompt { on_busy });
    assert!(matches!(submit(OnBusy::Reject), Err(SubmitError::Busy(_))));
    assert_eq!(submit(OnBusy::Steer).unwrap().disposition, Disposition::Steered);
    assert_eq!(submit(OnBusy::FollowUp).unwrap().disposition, Disposition::Queued);
    gate.release();
    assert_eq!(run.await.unwrap().new_messages.len(), 6);
    play.settle().await;
}

// C8.5
#[tokio::test]
async fn undelivered_input_can_be_prompted_again_inside_run_end() {
    let play = Script::new()
        .answers([Step::text("x"), Step::Panic])
        .says("two")
        .on("text_delta", steer("now"))
        .on("end1", prompt("now"))
        .play()
        .await;
    expect![[r#"user "go" | assistant[error] "x" | user "now" | assistant[stop] "two""#]]
        .assert_eq(&play.transcript());
}

// C2
#[tokio::test]
async fn input_that_shows_nothing_is_refused_and_changes_nothing() {
    let agent = Script::new().play().await.agent;
    let before = agent.snapshot().seq;
    for text in ["", " ", "\r\n\t", "\u{a0}\u{2029}\u{3000}", "\u{feff}", "\u{200b}\u{1b}\0"] {
        for input in [vec![], vec![Block::text(text)], vec![Block::text(text), Block::text(" ")]] {
            let refused = agent.submit(input.into(), Intent::Prompt { on_busy: OnBusy::Reject });
            assert_eq!(refused.map(|_| ()).unwrap_err(), SubmitError::EmptyInput, "{text:?}");
        }
        assert_eq!(agent.follow_up(text).map(|_| ()), Err(SubmitError::EmptyInput));
    }
    assert_eq!(agent.snapshot().seq, before);
}
