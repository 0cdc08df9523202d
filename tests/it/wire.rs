//! Contract, section 3, "Shapes": one line of JSON for each event and each shape, to the letter. A
//! rename is a visible decision here.

use std::{fmt::Debug, sync::Arc};

use agent_core::{
    AgentState, AssistantMessage, Block, Config, ConfigChange, EndReason, Event, EventKind,
    LastRun, Message, Origin, Partial, PartialBlock, QueueKind, QueueMode, Queued, Role, RunId,
    Snapshot, Source, StopReason, ThinkingLevel, ToolCall, ToolExecution, ToolOutput,
    ToolResultMessage, Undelivered, Usage, UserMessage, WhenIdle,
};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::{Value, json};

/// The value is this line, and the line is this value; what else is on the line is ignored.
#[track_caller]
fn check<T: Serialize + DeserializeOwned + PartialEq + Debug>(value: T, line: &str) {
    assert_eq!(serde_json::to_string(&value).unwrap(), line);
    assert_eq!(serde_json::from_str::<T>(line).unwrap(), value);
    if let Some(fields) = line.strip_prefix('{') {
        let more = format!(r#"{{"aFieldFromTheFuture":[{{"x":null}}],{}"#, fields);
        assert_eq!(serde_json::from_str::<T>(&more).unwrap(), value, "unknown fields are ignored");
    }
}

#[track_caller]
fn event(kind: EventKind, line: &str) {
    check(
        Event { seq: 7, run_id: Some(RunId(2)), kind },
        &format!(r#"{{"seq":7,"runId":2,{line}}}"#),
    );
}

#[track_caller]
fn outside(kind: EventKind, line: &str) {
    check(Event { seq: 7, run_id: None, kind }, &format!(r#"{{"seq":7,"runId":null,{line}}}"#));
}

fn origin() -> Origin {
    Origin { client: "vim".into(), connection: 3, client_message_id: None }
}

fn user(origin: Option<Origin>) -> Message {
    Message::User(UserMessage {
        id: "m1".into(),
        content: vec![Block::text("hi")],
        timestamp: 5,
        origin,
    })
}

const USER: &str =
    r#"{"role":"user","id":"m1","content":[{"type":"text","text":"hi"}],"timestamp":5}"#;
const USAGE: &str = r#"{"input":1,"output":2,"cacheRead":3,"cacheWrite":4}"#;

fn usage() -> Usage {
    Usage { input: 1, output: 2, cache_read: 3, cache_write: 4 }
}

fn queued() -> Arc<Queued> {
    Arc::new(Queued { message_id: "m4".into(), content: vec![Block::text("hi")], origin: None })
}

const QUEUED: &str = r#"{"messageId":"m4","content":[{"type":"text","text":"hi"}]}"#;

// C3
#[test]
fn messages() {
    check(user(None), USER);
    let from = USER
        .replace(r#""timestamp":5"#, r#""timestamp":5,"origin":{"client":"vim","connection":3}"#);
    check(user(Some(origin())), &from);
    let named = Origin { client_message_id: Some("c9".into()), ..origin() };
    check(named, r#"{"client":"vim","connection":3,"clientMessageId":"c9"}"#);
    let answer = AssistantMessage {
        id: "m2".into(),
        content: vec![],
        timestamp: 5,
        model: "acme/one".into(),
        stop_reason: StopReason::ToolUse,
        usage: usage(),
        error_message: None,
    };
    let line = format!(
        r#"{{"role":"assistant","id":"m2","content":[],"timestamp":5,"model":"acme/one","stopReason":"toolUse","usage":{USAGE}}}"#
    );
    check(Message::Assistant(answer.clone()), &line);
    let failed = AssistantMessage {
        stop_reason: StopReason::Error,
        error_message: Some("lost".into()),
        ..answer
    };
    let line = line.replace("toolUse", "error").replace("4}}", r#"4},"errorMessage":"lost"}"#);
    check(Message::Assistant(failed), &line);
    let result = ToolResultMessage {
        id: "m3".into(),
        tool_call_id: "a".into(),
        tool_name: "bash".into(),
        content: vec![Block::text("hi")],
        is_error: true,
        timestamp: 5,
        details: None,
    };
    let line = r#"{"role":"toolResult","id":"m3","toolCallId":"a","toolName":"bash","content":[{"type":"text","text":"hi"}],"isError":true,"timestamp":5}"#;
    check(Message::ToolResult(result.clone()), line);
    let detailed = ToolResultMessage { details: Some(json!({"exit": 1})), ..result };
    let line = line.replace(r#""timestamp":5"#, r#""timestamp":5,"details":{"exit":1}"#);
    check(Message::ToolResult(detailed), &line);
}

// C3
#[test]
fn blocks() {
    check(Block::text("hi"), r#"{"type":"text","text":"hi"}"#);
    check(
        Block::image("image/png", "eA=="),
        r#"{"type":"image","mimeType":"image/png","data":"eA=="}"#,
    );
    let thinking = |signature| Block::Thinking { thinking: "hm".into(), signature };
    check(thinking(None), r#"{"type":"thinking","thinking":"hm"}"#);
    check(thinking(Some("s".into())), r#"{"type":"thinking","thinking":"hm","signature":"s"}"#);
    let call =
        |arguments| Block::ToolCall(ToolCall { id: "a".into(), name: "read".into(), arguments });
    check(
        call(json!({"path": "x"})),
        r#"{"type":"toolCall","id":"a","name":"read","arguments":{"path":"x"}}"#,
    );
    check(
        call(Value::String("{".into())),
        r#"{"type":"toolCall","id":"a","name":"read","arguments":"{"}"#,
    );
}

// C3
#[test]
fn reasons_and_sources() {
    let stop_reasons = [
        StopReason::Stop,
        StopReason::Length,
        StopReason::ToolUse,
        StopReason::Error,
        StopReason::Aborted,
    ];
    check(stop_reasons.to_vec(), r#"["stop","length","toolUse","error","aborted"]"#);
    let ends = [
        EndReason::Stop,
        EndReason::Length,
        EndReason::MaxTurns,
        EndReason::StoppedByHook,
        EndReason::Error,
        EndReason::Aborted,
    ];
    check(ends.to_vec(), r#"["stop","length","max_turns","stopped_by_hook","error","aborted"]"#);
    let sources = [Source::Model, Source::Tool, Source::Steering, Source::FollowUp, Source::Hook];
    check(sources.to_vec(), r#"["model","tool","steering","followUp","hook"]"#);
    check(vec![QueueKind::Steering, QueueKind::FollowUp], r#"["steering","followUp"]"#);
    let levels = [
        ThinkingLevel::Off,
        ThinkingLevel::Minimal,
        ThinkingLevel::Low,
        ThinkingLevel::Medium,
        ThinkingLevel::High,
    ];
    check(levels.to_vec(), r#"["off","minimal","low","medium","high"]"#);
}

// C3
#[test]
fn events_of_a_run() {
    let message = Arc::new(user(None));
    event(
        EventKind::RunStart { messages: vec![message.clone()] },
        &format!(r#""type":"run_start","messages":[{USER}]"#),
    );
    event(EventKind::TurnStart { turn: 1 }, r#""type":"turn_start","turn":1"#);
    event(
        EventKind::MessageStart { role: Role::Assistant },
        r#""type":"message_start","role":"assistant""#,
    );
    let (content_index, delta) = (0, "hi".to_owned());
    event(
        EventKind::TextDelta { content_index, delta: delta.clone() },
        r#""type":"text_delta","contentIndex":0,"delta":"hi""#,
    );
    event(
        EventKind::ThinkingDelta { content_index, delta: delta.clone() },
        r#""type":"thinking_delta","contentIndex":0,"delta":"hi""#,
    );
    let (tool_call_id, tool_name) = ("a".to_owned(), "bash".to_owned());
    event(
        EventKind::ToolCallDelta {
            content_index,
            tool_call_id,
            tool_name: tool_name.clone(),
            delta,
        },
        r#""type":"tool_call_delta","contentIndex":0,"toolCallId":"a","toolName":"bash","delta":"hi""#,
    );
    event(
        EventKind::MessageEnd { message, source: Source::Steering },
        &format!(r#""type":"message_end","message":{USER},"source":"steering""#),
    );
    let tool_call_id: Arc<str> = "a".into();
    event(
        EventKind::ToolStart {
            tool_call_id: tool_call_id.clone(),
            tool_name,
            args: json!({"x": 1}),
        },
        r#""type":"tool_start","toolCallId":"a","toolName":"bash","args":{"x":1}"#,
    );
    let partial = ToolOutput::text("hi");
    event(
        EventKind::ToolUpdate { tool_call_id: tool_call_id.clone(), partial },
        r#""type":"tool_update","toolCallId":"a","partial":{"content":[{"type":"text","text":"hi"}]}"#,
    );
    let result = ToolOutput { details: Some(json!(1)), ..ToolOutput::text("hi") };
    event(
        EventKind::ToolEnd { tool_call_id: tool_call_id.clone(), result, is_error: false },
        r#""type":"tool_end","toolCallId":"a","result":{"content":[{"type":"text","text":"hi"}],"details":1},"isError":false"#,
    );
    event(
        EventKind::ToolSkipped { tool_call_id, reason: "no".into() },
        r#""type":"tool_skipped","toolCallId":"a","reason":"no""#,
    );
    event(
        EventKind::Retry { attempt: 1, delay_ms: 750, error: "lost".into() },
        r#""type":"retry","attempt":1,"delayMs":750,"error":"lost""#,
    );
    event(
        EventKind::TurnEnd { turn: 1, stop_reason: StopReason::ToolUse, usage: usage() },
        &format!(r#""type":"turn_end","turn":1,"stopReason":"toolUse","usage":{USAGE}"#),
    );
    event(
        EventKind::Diagnostic { message: "slow".into() },
        r#""type":"diagnostic","message":"slow""#,
    );
}

// C3
#[test]
fn queue_updates() {
    event(
        EventKind::QueueUpdate {
            queue: QueueKind::Steering,
            added: Some(queued()),
            removed: vec![],
        },
        &format!(r#""type":"queue_update","queue":"steering","added":{QUEUED}"#),
    );
    outside(
        EventKind::QueueUpdate {
            queue: QueueKind::FollowUp,
            added: None,
            removed: vec!["m4".into()],
        },
        r#""type":"queue_update","queue":"followUp","removed":["m4"]"#,
    );
}

// C3
#[test]
fn events_outside_a_run() {
    outside(EventKind::Reset {}, r#""type":"reset""#);
    let change = ConfigChange {
        max_turns: Some(3),
        thinking_level: Some(ThinkingLevel::Low),
        ..Default::default()
    };
    outside(
        EventKind::ConfigChanged { change },
        r#""type":"config_changed","thinkingLevel":"low","maxTurns":3"#,
    );
    let all = ConfigChange {
        model: Some("acme/one".into()),
        thinking_level: Some(ThinkingLevel::Off),
        system_prompt: Some("".into()),
        tools: Some(vec!["read".into()]),
        steering_mode: Some(QueueMode::All),
        follow_up_mode: Some(QueueMode::OneAtATime),
        when_idle: Some(WhenIdle::Hold),
        max_turns: Some(0),
        tool_execution: Some(ToolExecution::Sequential),
    };
    outside(
        EventKind::ConfigChanged { change: all },
        r#""type":"config_changed","model":"acme/one","thinkingLevel":"off","systemPrompt":"","tools":["read"],"steeringMode":"all","followUpMode":"one-at-a-time","whenIdle":"hold","maxTurns":0,"toolExecution":"sequential""#,
    );
}

// C3
#[test]
fn run_ends() {
    let end = |reason, error_message, undelivered| EventKind::RunEnd {
        reason,
        error_message,
        undelivered,
        usage: usage(),
    };
    event(
        end(EndReason::Stop, None, Undelivered::default()),
        &format!(
            r#""type":"run_end","reason":"stop","errorMessage":null,"undelivered":{{"steering":[],"followUp":[]}},"usage":{USAGE}"#
        ),
    );
    let undelivered = Undelivered { steering: vec![queued()], follow_up: vec![] };
    event(
        end(EndReason::Error, Some("lost".into()), undelivered),
        &format!(
            r#""type":"run_end","reason":"error","errorMessage":"lost","undelivered":{{"steering":[{QUEUED}],"followUp":[]}},"usage":{USAGE}"#
        ),
    );
    // A field that may be null may be missing.
    let short = format!(
        r#"{{"seq":7,"runId":2,"type":"run_end","reason":"stop","undelivered":{{"steering":[],"followUp":[]}},"usage":{USAGE}}}"#
    );
    assert!(serde_json::from_str::<Event>(&short).is_ok());
}

fn config() -> Config {
    Config {
        model: "acme/one".into(),
        thinking_level: ThinkingLevel::Off,
        system_prompt: "be brief".into(),
        tools: vec!["read".into()],
        steering_mode: QueueMode::OneAtATime,
        follow_up_mode: QueueMode::All,
        when_idle: WhenIdle::Reject,
        max_turns: 0,
        tool_execution: ToolExecution::Parallel,
    }
}

const CONFIG: &str = r#"{"model":"acme/one","thinkingLevel":"off","systemPrompt":"be brief","tools":["read"],"steeringMode":"one-at-a-time","followUpMode":"all","whenIdle":"reject","maxTurns":0,"toolExecution":"parallel"}"#;

// C3
#[test]
fn the_state_at_idle_and_in_the_midst_of_a_run() {
    check(config(), CONFIG);
    let mut state = AgentState::new(config(), [Arc::new(user(None))].into_iter().collect());
    const NO_USAGE: &str = r#"{"input":0,"output":0,"cacheRead":0,"cacheWrite":0}"#;
    check(
        state.clone(),
        &format!(
            r#"{{"status":"idle","activeRunId":null,"messages":[{USER}],"partial":null,"pendingToolCallIds":[],"steering":[],"followUp":[],"lastRun":null,"diagnostics":[],"usage":{NO_USAGE},"config":{CONFIG}}}"#
        ),
    );
    let call =
        PartialBlock::ToolCall { id: "a".into(), name: "read".into(), arguments: r#"{"pa"#.into() };
    let blocks = [PartialBlock::Thinking("hm".into()), PartialBlock::Text("x".into()), call];
    state.activity = agent_core::Activity::Running { active_run_id: RunId(2) };
    state.messages_from = Some(9);
    state.partial = Some(Partial { content: blocks.into_iter().collect() });
    state.pending_tool_call_ids = Arc::new(vec!["a".into()]);
    state.steering = Arc::new(vec![queued()]);
    state.last_run = Some(Arc::new(LastRun {
        run_id: RunId(1),
        reason: EndReason::Error,
        error_message: Some("lost".into()),
    }));
    state.diagnostics = Arc::new(vec!["slow".into()]);
    state.usage = usage();
    let partial = r#"{"content":[{"type":"thinking","thinking":"hm"},{"type":"text","text":"x"},{"type":"toolCall","id":"a","name":"read","arguments":"{\"pa"}]}"#;
    let line = format!(
        r#"{{"status":"running","activeRunId":2,"messages":[{USER}],"messagesFrom":9,"partial":{partial},"pendingToolCallIds":["a"],"steering":[{QUEUED}],"followUp":[],"lastRun":{{"runId":1,"reason":"error","errorMessage":"lost"}},"diagnostics":["slow"],"usage":{USAGE},"config":{CONFIG}}}"#
    );
    check(state.clone(), &line);
    check(Snapshot { seq: 12, state }, &format!(r#"{{"seq":12,"state":{line}}}"#));
    check(
        LastRun { run_id: RunId(1), reason: EndReason::Stop, error_message: None },
        r#"{"runId":1,"reason":"stop"}"#,
    );
}
