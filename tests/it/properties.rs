//! Whatever is played, these hold: convergence, nothing lost, pairing, balance, abort settles, one
//! order for all. Issue by issue they are (a) to (f) below.
//!
//! The number of cases is `AGENT_PROPTEST_CASES`. Time is paused and there is one thread, so that a
//! case is the same each time: it is a list of what the model says, how long everything takes, and
//! what clients, listeners and tools do at which moment.

use std::{
    collections::HashMap,
    panic::resume_unwind,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

use agent_core::{
    Agent, AgentOptions, BoxFuture, CancelSignal, EndReason, Event, EventKind, HookError, Intent,
    Model, ModelEnd, ModelError, ModelErrorKind, ModelEvent, ModelRequest, ModelSink, NoRun,
    OnBusy, QueueKind, QueueMode, RunHandle, RunId, SettingsChange, Snapshot, StopReason,
    SubmitError, Subscription, ToolDecision, ToolError, ToolExecution, ToolOutput, Undelivered,
    Usage, WhenIdle, reduce,
};
use proptest::{collection::vec, prelude::*, test_runner::TestRunner};
use support::{ScriptedHooks, ScriptedTool, Timeline, check_laws, check_requests};
use tokio::time::Instant;

const GRACE: Duration = Duration::from_secs(5);
/// What all pauses of listeners together may add to an abort.
const SLACK: Duration = Duration::from_secs(2);

#[derive(Clone, Debug)]
struct Case {
    answers: Vec<Answer>,
    tools: Vec<ToolPlan>,
    hooks: Vec<HookPlan>,
    /// What the listener does at the event of that number, counted from its first.
    listener: Vec<(u32, Does)>,
    clients: Vec<(Pause, Act)>,
    max_turns: u32,
    all_at_once: bool,
    holds: bool,
    sequential: bool,
    max_parallel: usize,
}

/// A point at which others get their turn.
#[derive(Clone, Copy, Debug)]
enum Pause {
    None,
    Yield(u8),
    Sleep(u8),
}

#[derive(Clone, Debug)]
struct Answer {
    steps: Vec<(Pause, Say)>,
    end: (Pause, End),
}

#[derive(Clone, Copy, Debug)]
enum Say {
    Text(&'static str),
    Thought,
    Signature,
    Call { id: &'static str, tool: u8, arguments: &'static str },
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum End {
    Stop,
    Length,
    Lost,
    Refused,
    Panics,
    Hangs,
}

#[derive(Clone, Copy, Debug)]
struct ToolPlan {
    pause: Pause,
    update: bool,
    alone: bool,
    does: ToolDoes,
}

#[derive(Clone, Copy, Debug)]
enum ToolDoes {
    Succeeds,
    Fails,
    Panics,
    Hangs,
    WaitsForAbort,
    Acts(Act),
}

#[derive(Clone, Copy, Debug)]
struct HookPlan {
    hook: u8,
    /// At its call of that number.
    call: u32,
    does: HookDoes,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum HookDoes {
    Fails,
    Panics,
    Hangs,
    Waits,
    /// Whatever that hook can do: blocks a call, stops the run.
    Intervenes,
}

#[derive(Clone, Copy, Debug)]
enum Does {
    Act(Act),
    Pauses(Pause),
    Fails,
    Panics,
}

/// What clients, listeners and tools do to the agent.
#[derive(Clone, Copy, Debug)]
enum Act {
    Prompt(OnBusy),
    Queue(QueueKind, Option<u8>, Option<NoRun>),
    Abort(Option<u8>),
    Continue,
    Clear(Option<QueueKind>),
    RemoveOne(u8),
    Reset,
    Configure(u8),
    Look,
    WaitABit,
    Unsubscribe,
}

fn pause() -> impl Strategy<Value = Pause> {
    prop_oneof![
        2 => Just(Pause::None),
        3 => (0..12_u8).prop_map(Pause::Yield),
        2 => (1..60_u8).prop_map(Pause::Sleep),
    ]
}

fn say() -> impl Strategy<Value = Say> {
    prop_oneof![
        4 => prop_oneof![Just("x"), Just("é"), Just("")].prop_map(Say::Text),
        1 => Just(Say::Thought),
        1 => Just(Say::Signature),
        3 => (
            prop_oneof![Just("a"), Just("b"), Just("c"), Just("")],
            0..4_u8,
            prop_oneof![4 => Just("{}"), 1 => Just(""), 1 => Just("{\"x\""), 1 => Just("[]")],
        )
            .prop_map(|(id, tool, arguments)| Say::Call { id, tool, arguments }),
    ]
}

fn answer() -> impl Strategy<Value = Answer> {
    let end = prop_oneof![
        12 => Just(End::Stop),
        2 => Just(End::Length),
        2 => Just(End::Lost),
        1 => Just(End::Refused),
        1 => Just(End::Panics),
        1 => Just(End::Hangs),
    ];
    (vec((pause(), say()), 0..6), (pause(), end)).prop_map(|(steps, end)| Answer { steps, end })
}

fn queue() -> impl Strategy<Value = QueueKind> {
    prop_oneof![Just(QueueKind::Steering), Just(QueueKind::FollowUp)]
}

fn act() -> impl Strategy<Value = Act> {
    let on_busy = prop_oneof![Just(OnBusy::Reject), Just(OnBusy::Steer), Just(OnBusy::FollowUp)];
    let no_run = prop_oneof![Just(NoRun::Reject), Just(NoRun::Hold), Just(NoRun::Prompt)];
    let run = proptest::option::weighted(0.3, 1..4_u8);
    prop_oneof![
        3 => on_busy.prop_map(Act::Prompt),
        6 => (queue(), run.clone(), proptest::option::weighted(0.3, no_run))
            .prop_map(|(queue, run, no_run)| Act::Queue(queue, run, no_run)),
        4 => run.prop_map(Act::Abort),
        1 => Just(Act::Continue),
        1 => proptest::option::of(queue()).prop_map(Act::Clear),
        1 => (0..8_u8).prop_map(Act::RemoveOne),
        1 => Just(Act::Reset),
        1 => (0..6_u8).prop_map(Act::Configure),
        2 => Just(Act::Look),
        1 => Just(Act::WaitABit),
        1 => Just(Act::Unsubscribe),
    ]
}

fn tool() -> impl Strategy<Value = ToolPlan> {
    let does = prop_oneof![
        6 => Just(ToolDoes::Succeeds),
        1 => Just(ToolDoes::Fails),
        1 => Just(ToolDoes::Panics),
        1 => Just(ToolDoes::Hangs),
        1 => Just(ToolDoes::WaitsForAbort),
        1 => act().prop_map(ToolDoes::Acts),
    ];
    (pause(), any::<bool>(), proptest::bool::weighted(0.2), does)
        .prop_map(|(pause, update, alone, does)| ToolPlan { pause, update, alone, does })
}

fn hook() -> impl Strategy<Value = HookPlan> {
    let does = prop_oneof![
        1 => Just(HookDoes::Fails),
        1 => Just(HookDoes::Panics),
        1 => Just(HookDoes::Hangs),
        2 => Just(HookDoes::Waits),
        3 => Just(HookDoes::Intervenes),
    ];
    (0..6_u8, 0..4_u32, does).prop_map(|(hook, call, does)| HookPlan { hook, call, does })
}

fn case() -> impl Strategy<Value = Case> {
    let does = prop_oneof![
        4 => act().prop_map(Does::Act),
        2 => pause().prop_map(Does::Pauses),
        1 => Just(Does::Fails),
        1 => Just(Does::Panics),
    ];
    (
        vec(answer(), 1..8),
        vec(tool(), 3),
        vec(hook(), 0..3),
        vec((0..60_u32, does), 0..6),
        vec((pause(), act()), 0..10),
        (0..4_u32, any::<bool>(), any::<bool>(), proptest::bool::weighted(0.2), 1..5_usize),
    )
        .prop_map(|(answers, tools, hooks, listener, clients, settings)| {
            let (max_turns, all_at_once, holds, sequential, max_parallel) = settings;
            Case {
                answers,
                tools,
                hooks,
                listener,
                clients,
                max_turns,
                all_at_once,
                holds,
                sequential,
                max_parallel,
            }
        })
}

impl Pause {
    async fn pass(self) {
        match self {
            Pause::None => {}
            Pause::Yield(times) => {
                for _ in 0..times {
                    tokio::task::yield_now().await;
                }
            }
            Pause::Sleep(ms) => tokio::time::sleep(Duration::from_millis(ms.into())).await,
        }
    }
}

/// Unwinds without the noise of a panic hook.
fn quiet_panic() -> ! {
    resume_unwind(Box::new("quiet"))
}

/// Plays the answers, one for each request, then says nothing and stops.
struct Player {
    answers: Vec<Answer>,
    requests: Arc<Mutex<Vec<ModelRequest>>>,
}

impl Model for Player {
    fn name(&self) -> &str {
        "player/model"
    }

    fn respond<'a>(
        &'a self,
        request: ModelRequest,
        sink: ModelSink,
    ) -> BoxFuture<'a, Result<ModelEnd, ModelError>> {
        let mut requests = self.requests.lock().unwrap();
        let answer = self.answers.get(requests.len());
        requests.push(request);
        Box::pin(async move {
            let usage = Usage { output: 1, ..Usage::default() };
            let stop = |stop_reason| Ok(ModelEnd { stop_reason, usage });
            let Some(answer) = answer else { return stop(StopReason::Stop) };
            for (index, (pause, say)) in answer.steps.iter().enumerate() {
                pause.pass().await;
                sink.send(say.event(index as u32)).await?;
            }
            let (pause, end) = answer.end;
            pause.pass().await;
            match end {
                End::Stop => stop(StopReason::Stop),
                End::Length => stop(StopReason::Length),
                End::Lost => Err(ModelError::new(ModelErrorKind::Connection, "lost")),
                End::Refused => Err(ModelError::new(ModelErrorKind::Status(400), "refused")),
                End::Panics => quiet_panic(),
                End::Hangs => std::future::pending().await,
            }
        })
    }
}

impl Say {
    fn event(self, index: u32) -> ModelEvent {
        match self {
            // Sometimes the same block, sometimes another.
            Say::Text(delta) => ModelEvent::Text { index: index / 3, delta: delta.into() },
            Say::Thought => ModelEvent::Thinking { index: index / 2, delta: "hm".into() },
            Say::Signature => {
                ModelEvent::ThinkingSignature { index: index / 2, signature: "s".into() }
            }
            Say::Call { id, tool, arguments } => {
                let (id, name) = (id.to_owned(), format!("t{tool}"));
                ModelEvent::ToolCall { index, id, name, delta: arguments.into() }
            }
        }
    }
}

/// What everyone has been told by the agent's calls.
#[derive(Default)]
struct Ledger {
    accepted: Vec<String>,
    /// What `clear_queues` and `remove_queued` gave back.
    returned: Vec<String>,
    /// The runs that `abort` said will end as aborted, and when it said so.
    aborted: Vec<(RunId, Instant)>,
    snapshots: Vec<Snapshot>,
    handles: Vec<RunHandle>,
    subscriptions: Vec<Subscription>,
}

struct Stage {
    agent: Agent,
    ledger: Mutex<Ledger>,
}

impl Stage {
    fn act(&self, act: Act) {
        let agent = &self.agent;
        let mut ledger = self.ledger.lock().unwrap();
        match act {
            Act::Prompt(on_busy) => ledger.submit(agent, Intent::Prompt { on_busy }),
            Act::Queue(queue, run, when_idle) => {
                let expected_run_id = run.map(|run| RunId(run.into()));
                ledger.submit(agent, Intent::Queue { queue, expected_run_id, when_idle });
            }
            Act::Abort(run) => {
                let expected = run.map(|run| RunId(run.into()));
                match agent.abort(expected) {
                    Ok(abort) if abort.aborted => {
                        ledger.aborted.push((abort.run_id.unwrap(), Instant::now()));
                    }
                    Ok(_) => {}
                    Err(wrong) => assert_ne!(wrong.actual, expected),
                }
            }
            Act::Continue => {
                if let Ok(handle) = agent.continue_run() {
                    ledger.handles.push(handle);
                }
            }
            Act::Clear(which) => {
                let (Undelivered { steering, follow_up }, _) = agent.clear_queues(which);
                let cleared = steering.iter().chain(&follow_up);
                ledger.returned.extend(cleared.map(|queued| queued.message_id.to_string()));
            }
            Act::RemoveOne(index) => {
                let id = ledger.accepted.iter().rev().nth(index.into()).cloned();
                let removed = id.and_then(|id| agent.remove_queued(&id).0);
                ledger.returned.extend(removed.map(|queued| queued.message_id.to_string()));
            }
            Act::Reset => drop(agent.reset().ok()),
            Act::Configure(what) => drop(agent.configure(change(what))),
            Act::Look => ledger.snapshots.push(agent.snapshot()),
            Act::WaitABit => drop(Box::pin(agent.wait_for_idle())),
            Act::Unsubscribe => {
                if let Some(subscription) = ledger.subscriptions.pop() {
                    subscription.unsubscribe();
                }
                ledger.subscriptions.push(agent.subscribe(|_, _| async { Ok(()) }));
            }
        }
    }
}

impl Ledger {
    fn submit(&mut self, agent: &Agent, intent: Intent) {
        let active = agent.snapshot().state.active_run();
        match agent.submit("said".into(), intent) {
            Ok(accepted) => {
                self.accepted.push(accepted.message_id.to_string());
                self.handles.extend(accepted.handle);
                if let Intent::Queue { expected_run_id: Some(expected), .. } = intent {
                    assert_eq!(accepted.run_id, Some(expected));
                }
            }
            Err(SubmitError::Busy(busy)) => assert_eq!(Some(busy.run_id), active),
            Err(SubmitError::WrongRun(wrong)) => assert_eq!(wrong.actual, active),
            Err(_) => {}
        }
    }
}

fn change(what: u8) -> SettingsChange {
    let mut change = SettingsChange::default();
    match what {
        0 => change.max_turns = Some(2),
        1 => change.max_turns = Some(0),
        2 => change.steering_mode = Some(QueueMode::All),
        3 => change.when_idle = Some(WhenIdle::Hold),
        4 => change.tool_execution = Some(ToolExecution::Sequential),
        _ => change.tools = Some(Vec::new()),
    }
    change
}

fn hooks(plans: &[HookPlan]) -> ScriptedHooks {
    let counts: Arc<[AtomicU32; 6]> = Arc::default();
    let plans: Arc<[HookPlan]> = plans.into();
    let next = move |hook: u8, signal: CancelSignal| {
        let call = counts[usize::from(hook)].fetch_add(1, Ordering::Relaxed);
        let plan = plans.iter().find(|plan| plan.hook == hook && plan.call == call);
        let does = plan.map(|plan| plan.does);
        async move {
            match does {
                Some(HookDoes::Fails) => Err(HookError::new("the case says so")),
                Some(HookDoes::Panics) => quiet_panic(),
                Some(HookDoes::Hangs) => std::future::pending().await,
                Some(HookDoes::Waits) => {
                    tokio::select! {
                        () = signal.cancelled() => {}
                        () = tokio::time::sleep(Duration::from_secs(7)) => {}
                    }
                    Ok(false)
                }
                Some(HookDoes::Intervenes) => Ok(true),
                None => Ok(false),
            }
        }
    };
    let [n0, n1, n2, n3, n4, n5] = std::array::from_fn(|_| next.clone());
    ScriptedHooks::new()
        .transform_context(move |messages, signal| {
            let next = n0(0, signal);
            async move { next.await.map(|_| messages) }
        })
        .convert_to_model(move |messages, signal| {
            let next = n1(1, signal);
            async move { next.await.map(|_| messages) }
        })
        .before_tool_call(move |_, signal| {
            let next = n2(2, signal);
            async move {
                Ok(match next.await? {
                    true => ToolDecision::Block { reason: "blocked".into() },
                    false => ToolDecision::Run,
                })
            }
        })
        .after_tool_call(move |(_, mut outcome), signal| {
            let next = n3(3, signal);
            async move {
                outcome.is_error ^= next.await?;
                Ok(outcome)
            }
        })
        .should_stop_after_turn(move |_, signal| n4(4, signal))
        .prepare_next_turn(move |_, signal| {
            let next = n5(5, signal);
            async move {
                let mut settings = agent_core::NextTurn::default();
                if next.await? {
                    settings.system_prompt = Some("changed".into());
                }
                Ok(settings)
            }
        })
}

fn scripted_tool(
    number: usize,
    plan: ToolPlan,
    stage: &Arc<Mutex<Option<Arc<Stage>>>>,
) -> ScriptedTool {
    let stage = stage.clone();
    let tool = ScriptedTool::new(&format!("t{number}")).runs(move |_, context| {
        let stage = stage.clone();
        async move {
            if plan.update {
                context.update(ToolOutput::text("so far"));
            }
            plan.pause.pass().await;
            match plan.does {
                ToolDoes::Succeeds => {}
                ToolDoes::Fails => return Err(ToolError::new("failed")),
                ToolDoes::Panics => quiet_panic(),
                ToolDoes::Hangs => std::future::pending().await,
                ToolDoes::WaitsForAbort => context.signal.cancelled().await,
                ToolDoes::Acts(act) => {
                    let stage = stage.lock().unwrap().clone();
                    stage.unwrap().act(act);
                }
            }
            context.update(ToolOutput::text("almost"));
            Ok(ToolOutput::text("done"))
        }
    });
    if plan.alone { tool.alone() } else { tool }
}

async fn play(case: Case) {
    let requests: Arc<Mutex<Vec<ModelRequest>>> = Arc::default();
    let player = Player { answers: case.answers, requests: requests.clone() };
    let mut options = AgentOptions::new(player);
    let for_tools: Arc<Mutex<Option<Arc<Stage>>>> = Arc::default();
    for (number, plan) in case.tools.iter().enumerate() {
        options.tools.push(Arc::new(scripted_tool(number, *plan, &for_tools)));
    }
    if !case.hooks.is_empty() {
        options.hooks = Some(Arc::new(hooks(&case.hooks)));
    }
    options.max_turns = case.max_turns;
    options.limits.max_parallel = case.max_parallel.try_into().unwrap();
    if case.all_at_once {
        (options.steering_mode, options.follow_up_mode) = (QueueMode::All, QueueMode::All);
    }
    if case.holds {
        options.when_idle = WhenIdle::Hold;
    }
    if case.sequential {
        options.tool_execution = ToolExecution::Sequential;
    }
    let agent = Agent::new(options);
    let stage = Arc::new(Stage { agent, ledger: Mutex::default() });
    *for_tools.lock().unwrap() = Some(stage.clone());

    let first = Timeline::of(&stage.agent);
    listen(&stage, case.listener);
    let last = Timeline::of(&stage.agent);
    let ends = watch_ends(&stage.agent);

    // Most of what can go wrong needs a run.
    stage.act(Act::Prompt(OnBusy::Reject));
    for (pause, act) in case.clients {
        pause.pass().await;
        stage.act(act);
    }
    come_to_rest(&stage).await;
    for_tools.lock().unwrap().take();

    let snapshot = stage.agent.snapshot();
    let said = snapshot.state.diagnostics.iter().find(|said| said.contains("assertion"));
    assert_eq!(said, None);
    // (d) and the rest of section 3.
    check_laws(&first.events(), &snapshot);
    not_too_many_at_once(case.max_parallel, &first.events());
    // (c)
    check_requests(&requests.lock().unwrap());
    // (f)
    assert_eq!(first.events(), last.events());
    let mut ledger = std::mem::take(&mut *stage.ledger.lock().unwrap());
    converges(&ledger.snapshots, &first.events(), &snapshot);
    // What waits is what the agent has, not only what it shows.
    let waiting = stage.agent.clear_queues(None).0;
    let shown = [&snapshot.state.steering, &snapshot.state.follow_up];
    assert_eq!([&waiting.steering, &waiting.follow_up], shown.map(|queue| &**queue));
    nothing_is_lost(&ledger, &first.events(), &waiting);
    aborts_settled(&ledger.aborted, &ends.lock().unwrap());
    handles_resolve(&mut ledger.handles, &first.events()).await;
    // It works.
    let run = stage.agent.prompt("works").unwrap();
    stage.agent.abort(None).unwrap();
    assert_eq!(run.await.unwrap().reason, EndReason::Aborted);
}

fn listen(stage: &Arc<Stage>, plan: Vec<(u32, Does)>) {
    let (weak, count) = (Arc::downgrade(stage), AtomicU32::new(0));
    stage.agent.subscribe(move |_, _| {
        let number = count.fetch_add(1, Ordering::Relaxed);
        let plan: Vec<Does> =
            plan.iter().filter(|(at, _)| *at == number).map(|(_, does)| *does).collect();
        let stage = weak.upgrade();
        async move {
            for does in plan {
                match does {
                    Does::Act(act) => stage.as_ref().unwrap().act(act),
                    Does::Pauses(pause) => pause.pass().await,
                    Does::Fails => return Err("the case says so".into()),
                    Does::Panics => quiet_panic(),
                }
            }
            Ok(())
        }
    });
}

type Ends = Arc<Mutex<HashMap<RunId, (Instant, EndReason)>>>;

fn watch_ends(agent: &Agent) -> Ends {
    let ends = Ends::default();
    let seen = ends.clone();
    agent.subscribe(move |event, _| {
        if let EventKind::RunEnd { reason, .. } = event.kind {
            seen.lock().unwrap().insert(event.run_id.unwrap(), (Instant::now(), reason));
        }
        async { Ok(()) }
    });
    ends
}

/// Waits until the agent is idle; what hangs for ever is aborted, which must settle.
async fn come_to_rest(stage: &Stage) {
    // Longer than any model may be silent, with all its retries.
    let patience = Duration::from_secs(500);
    for _ in 0..30 {
        if tokio::time::timeout(patience, stage.agent.wait_for_idle()).await.is_ok() {
            return;
        }
        stage.act(Act::Abort(None));
        tokio::time::sleep(GRACE + SLACK).await;
    }
    panic!("the agent does not come to rest");
}

/// (a) A snapshot and the events after it add up to the agent's own state.
fn converges(snapshots: &[Snapshot], events: &[Arc<Event>], last: &Snapshot) {
    for snapshot in snapshots {
        let text = serde_json::to_string(snapshot).unwrap();
        let read: Snapshot = serde_json::from_str(&text).unwrap();
        let after = &events[snapshot.seq as usize..];
        for start in [snapshot.state.clone(), read.state] {
            let state = after.iter().fold(start, |state, event| reduce(state, event));
            assert_eq!(state, last.state);
        }
    }
}

/// No more calls run at one time than may.
fn not_too_many_at_once(limit: usize, events: &[Arc<Event>]) {
    let mut running = 0;
    for event in events {
        match &event.kind {
            EventKind::ToolStart { .. } => running += 1,
            EventKind::ToolEnd { .. } => running -= 1,
            _ => {}
        }
        assert!(running <= limit, "{running} calls at once, not {limit}");
    }
}

/// (b) Each accepted message joined the transcript once, or came back once, or waits.
fn nothing_is_lost(ledger: &Ledger, events: &[Arc<Event>], waiting: &Undelivered) {
    let mut seen: HashMap<&str, u32> = HashMap::new();
    let mut count = |id| *seen.entry(id).or_default() += 1;
    for event in events {
        match &event.kind {
            EventKind::RunStart { messages } => {
                messages.iter().for_each(|message| count(&**message.id()));
            }
            EventKind::MessageEnd { message, .. } => count(message.id()),
            EventKind::RunEnd { undelivered: Undelivered { steering, follow_up }, .. } => {
                steering.iter().chain(follow_up).for_each(|queued| count(&queued.message_id));
            }
            _ => {}
        }
    }
    ledger.returned.iter().for_each(|id| count(id));
    let waiting = waiting.steering.iter().chain(&waiting.follow_up);
    waiting.for_each(|queued| count(&queued.message_id));
    for id in &ledger.accepted {
        assert_eq!(seen.get(&**id), Some(&1), "message {id} is somewhere, once");
    }
}

/// (e) An abort that said true was followed by `run_end: aborted` within the grace period.
fn aborts_settled(aborted: &[(RunId, Instant)], ends: &HashMap<RunId, (Instant, EndReason)>) {
    for (run, begun) in aborted {
        let (ended, reason) = ends[run];
        assert_eq!(reason, EndReason::Aborted);
        assert!(ended.duration_since(*begun) <= GRACE + SLACK, "run {run} took too long");
    }
}

/// Each handle gives what its run's events say.
async fn handles_resolve(handles: &mut Vec<RunHandle>, events: &[Arc<Event>]) {
    for handle in handles.drain(..) {
        let id = handle.run_id();
        let result = handle.await.unwrap();
        let of_run = || events.iter().filter(|event| event.run_id == Some(id));
        let joined: usize = of_run()
            .map(|event| match &event.kind {
                EventKind::RunStart { messages } => messages.len(),
                EventKind::MessageEnd { .. } => 1,
                _ => 0,
            })
            .sum();
        assert_eq!(result.new_messages.len(), joined);
        let end = of_run().find_map(|event| match &event.kind {
            EventKind::RunEnd { reason, undelivered, .. } => Some((*reason, undelivered.clone())),
            _ => None,
        });
        assert_eq!(end, Some((result.reason, result.undelivered)));
    }
}

fn cases() -> u32 {
    std::env::var("AGENT_PROPTEST_CASES").ok().and_then(|cases| cases.parse().ok()).unwrap_or(300)
}

// C4.4, C8.4, C3.4, C3.3, C7.6, C5.4
#[test]
fn whatever_is_played_the_promises_hold() {
    let config = ProptestConfig {
        cases: cases(),
        failure_persistence: None,
        max_shrink_iters: 20_000,
        ..ProptestConfig::default()
    };
    let played = TestRunner::new(config).run(&case(), |case| {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .start_paused(true)
            .build()
            .unwrap();
        runtime.block_on(play(case));
        Ok(())
    });
    if let Err(failure) = played {
        panic!("{failure}");
    }
}
