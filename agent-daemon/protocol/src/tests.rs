//! The wire, pinned: one line of JSON for each method, frame and error. A line that must change is
//! a change of the protocol.

#![allow(clippy::unwrap_used)]

use std::collections::BTreeSet;

use serde_json::{Value, json};

use agent_core::Block;

use crate::*;

/// Method, params, result.
const METHODS: &[(&str, &str, &str)] = &[
    (
        "initialize",
        r#"{"protocolVersion":1,"clientInfo":{"name":"editor","version":"2.1"},"processId":42,"token":"00ff"}"#,
        r#"{"protocolVersion":1,"serverInfo":{"name":"agent-daemon","version":"0.1.0","pid":7},"instanceId":"6f1c","defaultSessionId":"main","capabilities":{"maxMessageBytes":33554432,"replay":{"events":4096,"bytes":8388608},"transports":["stdio"],"schemaHash":"00ff"}}"#,
    ),
    ("shutdown", r#"{"scope":"daemon"}"#, "null"),
    (
        "prompt",
        r#"{"input":"read README.md","clientMessageId":"c1","onBusy":"followUp","sessionId":"main"}"#,
        r#"{"disposition":"started","runId":1,"messageId":"m1","seq":1}"#,
    ),
    ("continue", "{}", r#"{"runId":2,"seq":9}"#),
    (
        "steer",
        r#"{"input":[{"type":"text","text":"look"},{"type":"image","mimeType":"image/png","data":"QUJD"}],"expectedRunId":1,"whenIdle":"hold","clientMessageId":"c2"}"#,
        r#"{"disposition":"held","runId":null,"messageId":"m2","position":0,"seq":3}"#,
    ),
    (
        "followUp",
        r#"{"input":"then push","whenIdle":"prompt"}"#,
        r#"{"disposition":"started","runId":3,"messageId":"m3","position":null,"seq":4}"#,
    ),
    ("abort", r#"{"expectedRunId":1}"#, r#"{"aborted":true,"runId":1,"seq":5}"#),
    (
        "waitForIdle",
        r#"{"runId":1,"timeoutMs":1000}"#,
        r#"{"status":"idle","seq":9,"lastRun":{"runId":1,"reason":"error","errorMessage":"refused"}}"#,
    ),
    (
        "removeQueued",
        r#"{"messageId":"m2"}"#,
        r#"{"removed":{"messageId":"m2","content":[{"type":"text","text":"look"}],"origin":{"client":"editor","connection":1,"clientMessageId":"c2"}},"seq":6}"#,
    ),
    (
        "clearQueues",
        r#"{"which":"followUp"}"#,
        r#"{"steering":[],"followUp":[{"messageId":"m3","content":[{"type":"text","text":"x"}]}],"seq":7}"#,
    ),
    (
        "getState",
        r#"{"messages":"tail","limit":1}"#,
        r#"{"seq":9,"instanceId":"6f1c","sessionId":"main","state":{"status":"running","activeRunId":1,"messages":[{"role":"user","id":"m1","content":[{"type":"text","text":"x"}],"timestamp":1}],"messagesFrom":4,"partial":{"content":[{"type":"text","text":"He"}]},"pendingToolCallIds":["t1"],"steering":[],"followUp":[],"lastRun":null,"diagnostics":[],"usage":{"input":1,"output":2,"cacheRead":3,"cacheWrite":4},"config":{"model":"offline/demo","thinkingLevel":"off","systemPrompt":"","tools":["read"],"steeringMode":"one-at-a-time","followUpMode":"all","whenIdle":"reject","maxTurns":0,"toolExecution":"parallel"}}}"#,
    ),
    (
        "getMessages",
        r#"{"from":10,"limit":50}"#,
        r#"{"messages":[{"role":"toolResult","id":"m9","toolCallId":"t1","toolName":"read","content":[{"type":"text","text":"x"}],"isError":false,"timestamp":1,"details":{"lines":1}}],"total":11,"seq":9}"#,
    ),
    (
        "subscribe",
        r#"{"fromSeq":3,"instanceId":"6f1c","snapshot":true,"messages":"none","include":["run_start","run_end"],"exclude":["text_delta"]}"#,
        r#""s1""#,
    ),
    ("unsubscribe", r#"{"subscription":"s1"}"#, "true"),
    (
        "setConfig",
        r#"{"model":"local/gemma","thinkingLevel":"high","systemPrompt":"Be brief.","tools":["read","bash"],"steeringMode":"all","followUpMode":"one-at-a-time","whenIdle":"hold","maxTurns":9,"toolExecution":"sequential"}"#,
        r#"{"model":"local/gemma","thinkingLevel":"high","systemPrompt":"Be brief.","tools":["read","bash"],"steeringMode":"all","followUpMode":"one-at-a-time","whenIdle":"hold","maxTurns":9,"toolExecution":"sequential"}"#,
    ),
    (
        "listModels",
        r#"{"sessionId":"main"}"#,
        r#"{"models":[{"id":"local/gemma","provider":"local","api":"openai-completions","contextWindow":32768,"maxOutputTokens":4096,"images":false,"thinking":false,"available":false,"reason":"no key"}],"current":"offline/demo"}"#,
    ),
    ("reset", "{}", r#"{"seq":10}"#),
    (
        "createSession",
        r#"{"cwd":"/src/project","model":"offline/demo","sessionId":"other"}"#,
        r#"{"sessionId":"other","created":true}"#,
    ),
    (
        "listSessions",
        "{}",
        r#"{"sessions":[{"sessionId":"main","instanceId":"6f1c","cwd":"/src","model":"offline/demo","activeRunId":null,"messages":0,"seq":0}]}"#,
    ),
    ("closeSession", r#"{"sessionId":"other"}"#, r#"{"closed":true}"#),
    (
        "health",
        r#"{"_meta":{"trace":1}}"#,
        r#"{"status":"ok","uptimeMs":12,"sessions":1,"connections":2,"version":"0.1.0"}"#,
    ),
    ("getSchema", "{}", "{}"),
];

/// What `params.result` of the notification `event` may hold.
const FRAMES: &[&str] = &[
    r#"{"sessionId":"main","type":"subscribed","instanceId":"6f1c","headSeq":4,"oldestSeq":1,"replay":"none"}"#,
    r#"{"sessionId":"main","type":"lagged","fromSeq":1,"toSeq":9}"#,
    r#"{"sessionId":"main","type":"session_closed"}"#,
    r#"{"sessionId":"main","type":"server_shutdown","reason":"SIGTERM"}"#,
    r#"{"sessionId":"main","seq":1,"runId":1,"type":"run_start","messages":[{"role":"user","id":"m1","content":[{"type":"text","text":"x"}],"timestamp":1,"origin":{"client":"editor","connection":1}}]}"#,
    r#"{"sessionId":"main","seq":2,"runId":1,"type":"turn_start","turn":1}"#,
    r#"{"sessionId":"main","seq":3,"runId":1,"type":"message_start","role":"assistant"}"#,
    r#"{"sessionId":"main","prevSeq":3,"seq":6,"runId":1,"type":"text_delta","contentIndex":0,"delta":"Hel"}"#,
    r#"{"sessionId":"main","seq":7,"runId":1,"type":"thinking_delta","contentIndex":1,"delta":"so"}"#,
    r#"{"sessionId":"main","seq":8,"runId":1,"type":"tool_call_delta","contentIndex":2,"toolCallId":"t1","toolName":"bash","delta":"{}"}"#,
    r#"{"sessionId":"main","seq":9,"runId":1,"type":"message_end","message":{"role":"assistant","id":"m2","content":[{"type":"thinking","thinking":"so","signature":"s"},{"type":"toolCall","id":"t1","name":"bash","arguments":{"command":"ls"}}],"timestamp":1,"model":"offline/demo","stopReason":"toolUse","usage":{"input":1,"output":2,"cacheRead":0,"cacheWrite":0}},"source":"model"}"#,
    r#"{"sessionId":"main","seq":10,"runId":1,"type":"tool_start","toolCallId":"t1","toolName":"bash","args":{"command":"ls"}}"#,
    r#"{"sessionId":"main","seq":11,"runId":1,"type":"tool_update","toolCallId":"t1","partial":{"content":[{"type":"text","text":"a"}]}}"#,
    r#"{"sessionId":"main","seq":12,"runId":1,"type":"tool_end","toolCallId":"t1","result":{"content":[{"type":"text","text":"a"}],"details":{"exitCode":0}},"isError":false}"#,
    r#"{"sessionId":"main","seq":13,"runId":1,"type":"tool_skipped","toolCallId":"t2","reason":"aborted"}"#,
    r#"{"sessionId":"main","seq":14,"runId":1,"type":"queue_update","queue":"steering","added":{"messageId":"m3","content":[{"type":"text","text":"y"}]}}"#,
    r#"{"sessionId":"main","seq":15,"runId":1,"type":"queue_update","queue":"followUp","removed":["m3"]}"#,
    r#"{"sessionId":"main","seq":16,"runId":1,"type":"retry","attempt":1,"delayMs":1000,"error":"503"}"#,
    r#"{"sessionId":"main","seq":17,"runId":1,"type":"turn_end","turn":1,"stopReason":"toolUse","usage":{"input":1,"output":2,"cacheRead":0,"cacheWrite":0}}"#,
    r#"{"sessionId":"main","seq":18,"runId":null,"type":"diagnostic","message":"a listener failed"}"#,
    r#"{"sessionId":"main","seq":19,"runId":null,"type":"config_changed","maxTurns":3}"#,
    r#"{"sessionId":"main","seq":20,"runId":null,"type":"reset"}"#,
    r#"{"sessionId":"main","seq":21,"runId":1,"type":"run_end","reason":"max_turns","errorMessage":null,"undelivered":{"steering":[],"followUp":[]},"usage":{"input":1,"output":2,"cacheRead":0,"cacheWrite":0}}"#,
];

/// Code and `error.data`.
const ERRORS: &[(i32, &str)] = &[
    (-32700, r#"{"retryable":false,"kind":"parseError","problem":"x"}"#),
    (-32600, r#"{"retryable":false,"kind":"invalidRequest","problem":"x"}"#),
    (-32601, r#"{"retryable":false,"kind":"methodNotFound","method":"x"}"#),
    (-32602, r#"{"retryable":false,"kind":"invalidParams","field":"input","problem":"x"}"#),
    (-32603, r#"{"retryable":false,"kind":"internalError","problem":"x"}"#),
    (-32005, r#"{"retryable":false,"kind":"batchUnsupported","limit":1}"#),
    (-32006, r#"{"retryable":true,"kind":"tooManySubscriptions","limit":32}"#),
    (-32006, r#"{"retryable":true,"kind":"tooManyWaiting","limit":32}"#),
    (-32006, r#"{"retryable":true,"kind":"tooManySessions","limit":256}"#),
    (-32007, r#"{"retryable":false,"kind":"messageTooLarge","limit":33554432}"#),
    (-32800, r#"{"retryable":false,"kind":"requestCancelled"}"#),
    (1001, r#"{"retryable":true,"kind":"busy","runId":1}"#),
    (1002, r#"{"retryable":false,"kind":"notRunning"}"#),
    (1003, r#"{"retryable":false,"kind":"nothingToContinue"}"#),
    (1004, r#"{"retryable":false,"kind":"wrongRun","expected":1,"actual":null}"#),
    (1005, r#"{"retryable":false,"kind":"sessionNotFound","sessionId":"x"}"#),
    (1005, r#"{"retryable":false,"kind":"sessionExists","sessionId":"x"}"#),
    (1006, r#"{"retryable":false,"kind":"inputTooLarge","maxBytes":1,"actualBytes":2}"#),
    (1007, r#"{"retryable":false,"kind":"idempotencyConflict","messageId":"m1"}"#),
    (1008, r#"{"retryable":false,"kind":"seqOutOfRange","oldestSeq":1,"headSeq":2}"#),
    (1009, r#"{"retryable":false,"kind":"unsupportedProtocolVersion","supported":[1]}"#),
    (1010, r#"{"retryable":false,"kind":"unauthorized"}"#),
    (1011, r#"{"retryable":true,"kind":"shuttingDown"}"#),
    (1012, r#"{"retryable":false,"kind":"modelUnavailable","model":"x/y","reason":"no key"}"#),
    (1013, r#"{"retryable":true,"kind":"queueFull","maxMessages":64,"maxBytes":33554432}"#),
];

/// The protocol's schema, to hold examples against.
struct Schema(Value);

impl Schema {
    fn new() -> Self {
        Schema(schema::protocol())
    }

    /// Holds JSON text against the schema at a path of the document.
    fn check(&self, path: &str, text: &str) {
        let mut schema = self.0.pointer(path).unwrap_or_else(|| panic!("no {path}")).clone();
        if let Some(schema) = schema.as_object_mut() {
            schema.insert("$defs".to_owned(), self.0["$defs"].clone());
        }
        let validator = jsonschema::validator_for(&schema).unwrap();
        let value: Value = serde_json::from_str(text).unwrap();
        if let Err(error) = validator.validate(&value) {
            panic!("{path}: {error} at {}\n{text}", error.instance_path());
        }
    }
}

struct Pinned {
    schema: Schema,
    seen: BTreeSet<&'static str>,
}

impl<M: Method> Visit<M> for Pinned {
    fn visit(&mut self) {
        let name = M::NAME;
        let (_, params, result) =
            METHODS.iter().find(|(method, ..)| *method == name).unwrap_or_else(|| panic!("{name}"));
        let read: M::Params = serde_json::from_str(params).unwrap();
        assert_eq!(serde_json::to_string(&read).unwrap(), *params, "{name}");
        let read: M::Result = serde_json::from_str(result).unwrap();
        assert_eq!(serde_json::to_string(&read).unwrap(), *result, "{name}");
        self.schema.check(&format!("/methods/{name}/params"), params);
        self.schema.check(&format!("/methods/{name}/result"), result);
        self.seen.insert(name);
    }
}

#[test]
fn every_method_is_pinned_and_fits_its_schema() {
    let mut pinned = Pinned { schema: Schema::new(), seen: BTreeSet::new() };
    each_method(&mut pinned);
    assert_eq!(pinned.seen.len(), METHODS.len());
}

#[test]
fn every_frame_is_pinned_and_fits_its_schema() {
    let schema = Schema::new();
    let mut types = BTreeSet::new();
    for text in FRAMES {
        let again = match Frame::from_json(text).unwrap() {
            Frame::Event(frame) => serde_json::to_string(&frame),
            Frame::Control(frame) => serde_json::to_string(&frame),
        };
        assert_eq!(again.unwrap(), *text);
        schema.check("/frame", text);
        types.insert(
            serde_json::from_str::<Value>(text).unwrap()["type"].as_str().unwrap().to_owned(),
        );
    }
    assert!(EVENT_TYPES.iter().all(|name| types.contains(*name)), "{types:?}");
    assert_eq!(types.len(), EVENT_TYPES.len() + 4);
}

#[test]
fn every_error_is_pinned_and_fits_its_schema() {
    let schema = Schema::new();
    let kinds = schema.0["$defs"]["ErrorData"]["oneOf"].as_array().unwrap().len();
    assert_eq!(kinds, ERRORS.len());
    for (code, text) in ERRORS {
        let read: ErrorData = serde_json::from_str(text).unwrap();
        assert_eq!(read.error.code(), *code, "{text}");
        assert_eq!(read.error.is_retryable(), read.retryable, "{text}");
        assert_eq!(serde_json::to_string(&read).unwrap(), *text);
        schema.check("/errorData", text);
    }
}

#[test]
fn every_type_of_event_can_be_filtered() {
    let schema = schemars::schema_for!(agent_core::EventKind);
    let variants = schema.get("oneOf").unwrap().as_array().unwrap();
    let types: Vec<_> = variants
        .iter()
        .map(|variant| variant.pointer("/properties/type/const").unwrap().as_str().unwrap())
        .collect();
    let mut expected = EVENT_TYPES.to_vec();
    expected.sort_by_key(|name| types.iter().position(|other| other == name));
    assert_eq!(types, expected);
}

#[test]
fn the_schema_refuses_what_the_daemon_refuses() {
    let document = schema::protocol();
    let mut schema = document.pointer("/methods/steer/params").unwrap().clone();
    schema["$defs"] = document["$defs"].clone();
    let validator = jsonschema::validator_for(&schema).unwrap();
    assert!(validator.is_valid(&json!({ "input": "x" })));
    assert!(!validator.is_valid(&json!({})));
    assert!(!validator.is_valid(&json!({ "input": "x", "expectedRunID": 1 })));
    assert!(!validator.is_valid(&json!({ "input": [{ "type": "video" }] })));
}

#[test]
fn one_text_is_sent_as_a_string() {
    assert_eq!(serde_json::to_string(&Content::from("x")).unwrap(), r#""x""#);
    let two = Content(vec![Block::text("x"), Block::text("y")]);
    assert_eq!(
        serde_json::to_string(&two).unwrap(),
        r#"[{"type":"text","text":"x"},{"type":"text","text":"y"}]"#
    );
}
