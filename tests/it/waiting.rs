//! Contract, section 9: waiting.

use agent_core::{EndReason, Gate, RunId, Step, WaitError, WhenIdle};
use futures_util::FutureExt;
use support::{Script, abort, must, prompt, word};

// C9.1
#[tokio::test]
async fn at_idle_waiting_is_over_at_once() {
    let play = Script::new().says("one").stage();
    let idle = play.agent.wait_for_idle().now_or_never().unwrap().unwrap();
    assert_eq!((idle.seq, idle.last_run), (0, None));
    play.run("go").await;
    let idle = play.agent.wait_for_idle().now_or_never().unwrap().unwrap();
    assert_eq!(idle.seq, play.agent.seq());
    assert_eq!(idle.last_run.unwrap().reason, EndReason::Stop);
}

// C9.1
#[tokio::test]
async fn all_waiters_go_on_together_whatever_the_end() {
    for (script, reason) in [
        (Script::new().says("one"), EndReason::Stop),
        (Script::new(), EndReason::Error),
        (Script::new().says("one").on("text_delta", abort()), EndReason::Aborted),
    ] {
        let play = script.stage();
        play.prompt("go");
        let waiters: Vec<_> = (0..10).map(|_| tokio::spawn(play.agent.wait_for_idle())).collect();
        for waiter in waiters {
            let idle = must(waiter).await.unwrap().unwrap();
            assert_eq!(idle.last_run.unwrap().reason, reason);
            assert_eq!(idle.seq, play.timeline.events().len() as u64);
        }
        play.settle().await;
    }
}

// C9.1
#[tokio::test]
async fn if_a_listener_starts_another_run_first_the_wait_goes_on() {
    let gate = Gate::new();
    let play =
        Script::new().says("one").says_after(&gate, "two").on("end1", prompt("again")).stage();
    play.prompt("go");
    let mut waiter = Box::pin(play.agent.wait_for_idle());
    must(gate.reached()).await;
    assert!((&mut waiter).now_or_never().is_none());
    gate.release();
    let idle = must(waiter).await.unwrap();
    assert_eq!(idle.last_run.unwrap().run_id, RunId(2));
    play.settle().await;
}

// C9.1
#[tokio::test]
async fn idle_means_that_events_outside_a_run_are_delivered_too() {
    let play = Script::new().with(|options| options.when_idle = WhenIdle::Hold).stage();
    let gate = Gate::new();
    let slow = gate.clone();
    play.agent.subscribe(move |_, _| {
        let slow = slow.clone();
        async move {
            slow.pass().await;
            Ok(())
        }
    });
    play.agent.steer("held").unwrap();
    let mut waiter = Box::pin(play.agent.wait_for_idle());
    assert!((&mut waiter).now_or_never().is_none());
    must(gate.reached()).await;
    assert!((&mut waiter).now_or_never().is_none());
    gate.release();
    assert_eq!(must(waiter).await.unwrap().seq, 1);
    play.settle().await;
}

// C9.2
#[tokio::test]
async fn waiting_for_one_run_ends_with_it_though_another_goes_on() {
    let gate = Gate::new();
    let play =
        Script::new().says("one").says_after(&gate, "two").on("end1", prompt("again")).stage();
    assert_eq!(play.agent.wait_for_run(RunId(1)).await, Err(WaitError::UnknownRun(RunId(1))));
    play.prompt("go");
    let idle = must(play.agent.wait_for_run(RunId(1))).await.unwrap();
    assert_eq!(idle.last_run.unwrap().run_id, RunId(1));
    must(gate.reached()).await;
    // Over long ago: at once, and still with its own end.
    let again = play.agent.wait_for_run(RunId(1)).now_or_never().unwrap().unwrap();
    assert_eq!(again.last_run.unwrap().run_id, RunId(1));
    let mut second = Box::pin(play.agent.wait_for_run(RunId(2)));
    assert!((&mut second).now_or_never().is_none());
    assert_eq!(play.agent.wait_for_run(RunId(3)).await, Err(WaitError::UnknownRun(RunId(3))));
    assert_eq!(play.agent.wait_for_run(RunId(0)).await, Err(WaitError::UnknownRun(RunId(0))));
    gate.release();
    assert_eq!(must(second).await.unwrap().last_run.unwrap().run_id, RunId(2));
    play.settle().await;
}

// C9.2
#[tokio::test]
async fn a_run_has_settled_only_when_every_listener_has_finished_with_its_end() {
    let play = Script::new().says("one").stage();
    let gate = Gate::new();
    let slow = gate.clone();
    play.agent.subscribe(move |event, _| {
        let slow = slow.clone();
        async move {
            if word(&event).starts_with("run_end") {
                slow.pass().await;
            }
            Ok(())
        }
    });
    play.prompt("go");
    must(gate.reached()).await;
    let mut waiter = Box::pin(play.agent.wait_for_run(RunId(1)));
    assert!((&mut waiter).now_or_never().is_none());
    gate.release();
    must(waiter).await.unwrap();
}

// C9.2
#[tokio::test]
async fn dropped_waits_leave_nothing_behind() {
    let gate = Gate::new();
    let play = Script::new().answers([Step::Gate(gate.clone())]).stage();
    let run = play.prompt("go");
    for _ in 0..1000 {
        let mut waiter = Box::pin(play.agent.wait_for_idle());
        assert!((&mut waiter).now_or_never().is_none());
        let mut waiter = Box::pin(play.agent.wait_for_run(RunId(1)));
        assert!((&mut waiter).now_or_never().is_none());
    }
    gate.release();
    must(run).await.unwrap();
    play.settle().await;
}

// C9.3
#[tokio::test]
async fn a_prompt_after_the_wait_uses_a_new_token() {
    let play = Script::new().says("one").says("two").on("text_delta", abort()).stage();
    play.prompt("go");
    must(play.agent.wait_for_idle()).await.unwrap();
    play.run("again").await;
    let requests = play.model.requests();
    assert!(requests[0].signal.is_cancelled() && !requests[1].signal.is_cancelled());
    assert_eq!(play.last_run(), "stop");
}
