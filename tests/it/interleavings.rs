//! Many threads at one agent: whatever order their calls take, the promises hold.
//!
//! What callers share is one value behind one lock, and each call is one step under it, so that any
//! interleaving is some order of steps; the slot is tested in every order of steps where it is
//! written. Here real threads look for what that argument could have missed.

use std::{
    collections::HashMap,
    sync::{
        Arc, Barrier,
        atomic::{AtomicU32, Ordering},
    },
};

use agent_core::{
    Agent, EventKind, QueueKind, ScriptedModel, SettingsChange, Snapshot, Undelivered, WhenIdle,
    reduce,
};
use support::{Script, ScriptedTool, Timeline, check_laws, check_requests, must};

const THREADS: u32 = 4;

/// What one thread was told.
#[derive(Default)]
struct Told {
    accepted: Vec<String>,
    returned: Vec<String>,
    snapshots: Vec<Snapshot>,
}

/// A generator of small numbers, the same for the same seed.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: u64) -> u64 {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % sides
    }
}

fn act(agent: &Agent, dice: &mut Dice, told: &mut Told) {
    let accepted = match dice.roll(12) {
        0..=1 => {
            // The ids of prompts are the same ones, but a handle does not name them.
            drop(agent.prompt("prompted"));
            return;
        }
        2..=4 => agent.steer("steered"),
        5..=6 => agent.follow_up("followed"),
        7 => {
            let _ = agent.abort(None);
            return;
        }
        8 => {
            drop(agent.continue_run());
            return;
        }
        9 => {
            let which = [None, Some(QueueKind::Steering), Some(QueueKind::FollowUp)];
            let (Undelivered { steering, follow_up }, _) =
                agent.clear_queues(which[dice.roll(3) as usize]);
            let cleared = steering.iter().chain(&follow_up);
            told.returned.extend(cleared.map(|queued| queued.message_id.to_string()));
            return;
        }
        10 => {
            let when_idle = Some([WhenIdle::Hold, WhenIdle::Reject][dice.roll(2) as usize]);
            agent.configure(SettingsChange { when_idle, ..SettingsChange::default() });
            agent.subscribe(|_, _| async { Ok(()) }).unsubscribe();
            return;
        }
        _ => {
            told.snapshots.push(agent.snapshot());
            return;
        }
    };
    told.accepted.extend(accepted.map(|accepted| accepted.message_id.to_string()));
}

fn talkative() -> Script {
    let mut script = Script::new();
    for number in 0..60 {
        script = match number % 3 {
            0 => script.calls([("a", "work"), ("b", "work")]),
            _ => script.says("x"),
        };
    }
    script.tool(ScriptedTool::new("work"))
}

// C8.4, C5.4, C4.4, C6.1
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn four_threads_prompt_steer_abort_continue_and_clear_and_nothing_is_lost() {
    for round in 0..rounds() {
        let play = talkative().stage();
        let second = Timeline::of(&play.agent);
        let start = Arc::new(Barrier::new(THREADS as usize));
        let threads: Vec<_> = (0..THREADS)
            .map(|thread| {
                let (agent, start) = (play.agent.clone(), start.clone());
                tokio::task::spawn_blocking(move || {
                    let mut told = Told::default();
                    let mut dice = Dice(u64::from(round * THREADS + thread));
                    start.wait();
                    for _ in 0..25 {
                        act(&agent, &mut dice, &mut told);
                    }
                    told
                })
            })
            .collect();
        let mut told = Told::default();
        for thread in threads {
            let Told { accepted, returned, snapshots } = must(thread).await.unwrap();
            told.accepted.extend(accepted);
            told.returned.extend(returned);
            told.snapshots.extend(snapshots);
        }
        must(play.agent.wait_for_idle()).await.unwrap();
        let (events, last) = (play.timeline.events(), play.agent.snapshot());
        check_laws(&events, &last);
        check_requests(&play.model.requests());
        assert_eq!(second.events(), events);
        for snapshot in told.snapshots {
            let after = &events[snapshot.seq as usize..];
            let folded = after.iter().fold(snapshot.state, |state, event| reduce(state, event));
            assert_eq!(folded, last.state);
        }
        let mut seen: HashMap<String, u32> = HashMap::new();
        let mut count = |id: &str| *seen.entry(id.to_owned()).or_default() += 1;
        for event in &events {
            match &event.kind {
                EventKind::RunStart { messages } => {
                    messages.iter().for_each(|message| count(message.id()))
                }
                EventKind::MessageEnd { message, .. } => count(message.id()),
                EventKind::RunEnd { undelivered: Undelivered { steering, follow_up }, .. } => {
                    steering.iter().chain(follow_up).for_each(|queued| count(&queued.message_id));
                }
                _ => {}
            }
        }
        told.returned.iter().for_each(|id| count(id));
        // What waits is what the agent has, not only what it shows.
        let waiting = play.agent.clear_queues(None).0;
        assert_eq!(waiting.steering.len(), last.state.steering.len());
        waiting.steering.iter().chain(&waiting.follow_up).for_each(|it| count(&it.message_id));
        for id in &told.accepted {
            assert_eq!(seen.get(id), Some(&1), "message {id} in round {round}");
        }
    }
}

// C9.1, C5.3
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whoever_waits_on_another_thread_is_woken() {
    let woken = Arc::new(AtomicU32::new(0));
    for _ in 0..rounds() {
        let model = ScriptedModel::new().says("x");
        let agent = Agent::new(agent_core::AgentOptions::new(model));
        let waiters: Vec<_> = (0..8)
            .map(|_| {
                let (agent, woken) = (agent.clone(), woken.clone());
                tokio::spawn(async move {
                    agent.wait_for_idle().await.unwrap();
                    woken.fetch_add(1, Ordering::Relaxed);
                })
            })
            .collect();
        let run = agent.prompt("go").unwrap();
        must(run).await.unwrap();
        for waiter in waiters {
            must(waiter).await.unwrap();
        }
        must(agent.wait_for_run(agent_core::RunId(1))).await.unwrap();
    }
    assert_eq!(woken.load(Ordering::Relaxed), 8 * rounds());
}

// C9.1, C5.4
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_event_that_comes_while_delivery_ends_is_not_left_behind() {
    let play = Script::new().with(|options| options.when_idle = WhenIdle::Hold).stage();
    let (round, done) = (Arc::new(AtomicU32::new(0)), Arc::new(AtomicU32::new(0)));
    let last = 10 * rounds();
    let threads: Vec<_> = (0..2)
        .map(|thread| {
            let (agent, round, done) = (play.agent.clone(), round.clone(), done.clone());
            std::thread::spawn(move || {
                for number in 1..=last {
                    while round.load(Ordering::Acquire) < number {
                        std::thread::yield_now();
                    }
                    // One of the two comes a little later each time.
                    (0..thread * (number % 200) * 10).for_each(|_| std::hint::spin_loop());
                    agent.steer("x").unwrap();
                    done.fetch_add(1, Ordering::Release);
                }
            })
        })
        .collect();
    for number in 1..=last {
        round.store(number, Ordering::Release);
        while done.load(Ordering::Acquire) < 2 * number {
            tokio::task::yield_now().await;
        }
        must(play.agent.wait_for_idle()).await.unwrap();
        assert_eq!(play.agent.clear_steering().len(), 2);
    }
    threads.into_iter().for_each(|thread| thread.join().unwrap());
    play.settle().await;
}

/// As many as there are property cases, so that one number makes everything thorough.
fn rounds() -> u32 {
    std::env::var("AGENT_PROPTEST_CASES").ok().and_then(|cases| cases.parse().ok()).unwrap_or(200)
}
