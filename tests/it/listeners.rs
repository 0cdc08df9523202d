//! Contract, section 6: listeners.

use std::sync::{
    Arc, Mutex,
    atomic::{AtomicU32, Ordering},
};

use agent_core::{Agent, EventKind, Gate, Subscription};
use expect_test::expect;
use support::{Play, Script, Timeline, must, word};

/// Writes down who saw what.
fn log(play: &Play, log: &Arc<Mutex<Vec<String>>>, name: &'static str) -> Subscription {
    let log = log.clone();
    play.agent.subscribe(move |event, _| {
        let log = log.clone();
        async move {
            log.lock().unwrap().push(format!("{name}+{}", word(&event)));
            tokio::task::yield_now().await;
            log.lock().unwrap().push(format!("{name}-{}", word(&event)));
            Ok(())
        }
    })
}

fn failing(agent: &Agent, moment: &'static str) -> Subscription {
    agent.subscribe(move |event, _| async move {
        match word(&event).starts_with(moment) {
            true => Err(format!("cannot bear {moment}").into()),
            false => Ok(()),
        }
    })
}

// C6.1
#[tokio::test]
async fn listeners_are_awaited_one_after_another_in_subscription_order() {
    let play = Script::new().answers([]).stage();
    let seen = Arc::default();
    log(&play, &seen, "a");
    log(&play, &seen, "b");
    play.run("go").await;
    let seen = seen.lock().unwrap();
    for (index, event) in play.timeline.events().iter().enumerate() {
        let word = word(event);
        let expected = ["a+", "a-", "b+", "b-"].map(|sign| format!("{sign}{word}"));
        assert_eq!(seen[4 * index..4 * index + 4], expected);
    }
}

// C6.1
#[tokio::test]
async fn the_loop_goes_on_when_every_listener_has_finished_with_the_event() {
    let play = Script::new().says("one").stage();
    let gate = Gate::new();
    let slow = gate.clone();
    play.agent.subscribe(move |event, _| {
        let slow = slow.clone();
        async move {
            if word(&event) == "turn_start(1)" {
                slow.pass().await;
            }
            Ok(())
        }
    });
    let run = play.prompt("go");
    must(gate.reached()).await;
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
    assert_eq!(play.model.requests().len(), 0, "the model is not asked before");
    assert_eq!(play.story(), "run_start(1) turn_start(1)");
    gate.release();
    run.await.unwrap();
    play.settle().await;
}

// C6.1
#[tokio::test]
async fn subscribing_takes_effect_from_the_next_event_and_unsubscribing_too() {
    let play = Script::new().says("one").stage();
    let late: Arc<Mutex<Option<Timeline>>> = Arc::default();
    let victim: Arc<Mutex<Option<Subscription>>> = Arc::default();
    let (agent, new, gone) = (play.agent.clone(), late.clone(), victim.clone());
    play.agent.subscribe(move |event, _| {
        if word(&event) == "message_start" {
            *new.lock().unwrap() = Some(Timeline::of(&agent));
            gone.lock().unwrap().take().unwrap().unsubscribe();
        }
        async { Ok(()) }
    });
    let early = Timeline::of(&play.agent);
    *victim.lock().unwrap() = Some(early.subscription.clone());
    play.run("go").await;
    expect!["run_start(1) turn_start(1) message_start"].assert_eq(&early.story());
    let late = late.lock().unwrap().take().unwrap();
    expect!["text_delta message_end(model) turn_end(1 stop) run_end(1 stop)"]
        .assert_eq(&late.story());
}

// C6.1
#[tokio::test]
async fn unsubscribe_removes_only_its_own_also_its_self_and_twice() {
    let play = Script::new().says("one").stage();
    let seen = Arc::new(AtomicU32::new(0));
    let own: Arc<Mutex<Option<Subscription>>> = Arc::default();
    let (count, me) = (seen.clone(), own.clone());
    let subscription = play.agent.subscribe(move |_, _| {
        count.fetch_add(1, Ordering::Relaxed);
        let me = me.lock().unwrap().clone().unwrap();
        me.unsubscribe();
        me.unsubscribe();
        async { Ok(()) }
    });
    *own.lock().unwrap() = Some(subscription);
    let last = Timeline::of(&play.agent);
    play.run("go").await;
    assert_eq!(seen.load(Ordering::Relaxed), 1);
    assert_eq!(last.story(), play.story());
}

// C6.1
#[tokio::test]
async fn dropping_what_a_listener_owns_may_call_the_agent() {
    struct CallsOnDrop(Agent);
    impl Drop for CallsOnDrop {
        fn drop(&mut self) {
            self.0.abort(None).unwrap();
        }
    }
    let play = Script::new().says("one").stage();
    let owned = CallsOnDrop(play.agent.clone());
    let subscription = play.agent.subscribe(move |_, _| {
        let _ = &owned;
        async { Ok(()) }
    });
    subscription.unsubscribe();
    play.run("go").await;
}

// C6.2
#[tokio::test]
async fn the_state_is_reduced_before_listeners_see_the_event() {
    let play = Script::new().says("one").stage();
    let agent = play.agent.clone();
    let states: Arc<Mutex<Vec<String>>> = Arc::default();
    let seen = states.clone();
    play.agent.subscribe(move |event, _| {
        let snapshot = agent.snapshot();
        assert_eq!(snapshot.seq, event.seq);
        let run = snapshot.state.active_run().map(|id| id.0);
        let partial = snapshot.state.partial.is_some();
        let said = format!("{} {run:?} {} {partial}", word(&event), snapshot.state.messages.len());
        seen.lock().unwrap().push(said);
        async { Ok(()) }
    });
    play.run("go").await;
    expect![[r#"
        run_start(1) Some(1) 1 false
        turn_start(1) Some(1) 1 false
        message_start Some(1) 1 true
        text_delta Some(1) 1 true
        message_end(model) Some(1) 2 false
        turn_end(1 stop) Some(1) 2 false
        run_end(1 stop) None 2 false"#]]
    .assert_eq(&states.lock().unwrap().join("\n"));
}

// C6.3
#[tokio::test]
async fn a_listener_that_fails_or_panics_is_a_diagnostic_and_stops_nobody() {
    let play = Script::new().says("one").stage();
    failing(&play.agent, "message_start");
    play.agent.subscribe(|event, _| async move {
        assert_ne!(word(&event), "text_delta", "[expected]");
        Ok(())
    });
    // Panics when it is called, not when it is awaited.
    play.agent.subscribe(|event, _| {
        if word(&event).starts_with("run_end") {
            panic!("no end");
        }
        async { Ok(()) }
    });
    let last = Timeline::of(&play.agent);
    play.prompt("go").await.unwrap();
    must(play.agent.wait_for_idle()).await.unwrap();
    expect!["run_start(1) turn_start(1) message_start diagnostic text_delta diagnostic message_end(model) turn_end(1 stop) run_end(1 stop) diagnostic"]
        .assert_eq(&last.story());
    let state = play.agent.snapshot().state;
    assert_eq!(state.diagnostics.len(), 3);
    assert_eq!(*state.diagnostics[0], *"a listener failed: cannot bear message_start");
    assert!(state.diagnostics[1].starts_with("a listener panicked: assertion"));
    assert_eq!(*state.diagnostics[2], *"a listener panicked: no end");
    // The run was over when its run_end failed: that diagnostic is nobody's.
    assert_eq!(play.timeline.events().last().unwrap().run_id, None);
}

// C6.3
#[tokio::test]
async fn a_listener_that_fails_on_every_event_does_not_report_itself_for_ever() {
    let play = Script::new().answers((0..99).map(|_| agent_core::Step::text("x"))).stage();
    failing(&play.agent, "");
    failing(&play.agent, "");
    play.prompt("go").await.unwrap();
    must(play.agent.wait_for_idle()).await.unwrap();
    let events = play.timeline.events();
    let count = |is: fn(&EventKind) -> bool| events.iter().filter(|event| is(&event.kind)).count();
    let diagnostics = count(|kind| matches!(kind, EventKind::Diagnostic { .. }));
    let others = count(|kind| !matches!(kind, EventKind::Diagnostic { .. }));
    assert_eq!(diagnostics, 2 * others);
    // Bounded, oldest dropped.
    let state = play.agent.snapshot().state;
    assert!(state.diagnostics.len() < diagnostics && state.diagnostics.len() <= 64);
}

// C6.3
#[tokio::test]
async fn a_listener_whose_leftovers_panic_when_dropped_stops_nobody() {
    struct Bomb;
    impl Drop for Bomb {
        fn drop(&mut self) {
            panic!("dropped");
        }
    }
    /// Is still there, with its bomb, when it has completed.
    struct Ready(#[allow(dead_code)] Bomb);
    impl Future for Ready {
        type Output = Result<(), agent_core::ListenerError>;

        fn poll(
            self: std::pin::Pin<&mut Self>,
            _: &mut std::task::Context<'_>,
        ) -> std::task::Poll<Self::Output> {
            std::task::Poll::Ready(Ok(()))
        }
    }
    let play = Script::new().says("one").stage();
    let once = AtomicU32::new(0);
    play.agent.subscribe(move |event, _| -> agent_core::BoxFuture<'static, _> {
        match word(&event).as_str() {
            "run_end(1 stop)" | "text_delta" if once.fetch_add(1, Ordering::Relaxed) < 2 => {
                Box::pin(Ready(Bomb))
            }
            _ => Box::pin(async { Ok(()) }),
        }
    });
    let last = Timeline::of(&play.agent);
    must(play.prompt("go")).await.unwrap();
    play.settle().await;
    assert_eq!(last.story(), play.story());
    assert_eq!(play.agent.snapshot().state.diagnostics.len(), 2);
}

// C6.4
#[tokio::test]
async fn a_listener_can_stop_its_own_work_when_the_run_is_aborted() {
    let play = Script::new().says("one").stage();
    let gate = Gate::new();
    let reached = gate.clone();
    play.agent.subscribe(move |event, signal| {
        let reached = reached.clone();
        async move {
            if word(&event) == "text_delta" {
                reached.release();
                signal.cancelled().await;
            }
            Ok(())
        }
    });
    let run = play.prompt("go");
    must(gate.pass()).await;
    play.agent.abort(None).unwrap();
    must(run).await.unwrap();
    play.settle().await;
    assert_eq!(play.last_run(), "aborted");
}

// C6.4
#[tokio::test]
async fn the_token_of_an_event_outside_a_run_never_fires() {
    let play = Script::new().says("one").stage();
    let fired = Arc::new(AtomicU32::new(0));
    let count = fired.clone();
    play.agent.subscribe(move |event, signal| {
        if event.run_id.is_none() && signal.is_cancelled() {
            count.fetch_add(1, Ordering::Relaxed);
        }
        async { Ok(()) }
    });
    let agent = play.agent.clone();
    play.agent.subscribe(move |event, _| {
        if word(&event) == "run_start(1)" {
            agent.abort(None).unwrap();
            let max_turns = Some(7);
            agent.configure(agent_core::SettingsChange { max_turns, ..Default::default() });
        }
        async { Ok(()) }
    });
    play.run("go").await;
    assert_eq!(play.story(), "run_start(1) config_changed run_end(1 aborted)");
    assert_eq!(fired.load(Ordering::Relaxed), 0);
}
