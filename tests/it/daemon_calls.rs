//! The methods that start, feed, end and await runs (W3).

use std::io::Cursor;

use agent_core::{Gate, ScriptedModel, Step};
use base64::{Engine, prelude::BASE64_STANDARD};
use image::{DynamicImage, ImageFormat};
use serde_json::{Value, json};
use support::daemon::{InMemory, Peer};

/// A daemon whose first run waits at the gate, and a peer that has started it.
async fn in_a_run() -> (InMemory, Peer, Gate) {
    let gate = Gate::new();
    let model = ScriptedModel::new()
        .answers([Step::text("one"), Step::Gate(gate.clone())])
        .says("two")
        .says("three");
    let daemon = InMemory::new(model);
    let mut peer = daemon.connect();
    let started = peer.ask("prompt", json!({ "input": "go" })).await;
    assert_eq!(started, json!({"disposition":"started","runId":1,"messageId":"m1","seq":1}));
    gate.reached().await;
    (daemon, peer, gate)
}

// W3.1
#[tokio::test]
async fn a_prompt_is_answered_at_once_and_a_second_one_is_refused_or_queued_as_it_says() {
    let (_daemon, mut peer, gate) = in_a_run().await;
    let busy = peer.refused("prompt", json!({ "input": "again" })).await;
    assert_eq!(busy, (1001, json!({ "kind": "busy", "retryable": true, "runId": 1 })));
    let steered = peer.ask("prompt", json!({ "input": "a", "onBusy": "steer" })).await;
    assert_eq!((&steered["disposition"], &steered["runId"]), (&json!("steered"), &json!(1)));
    assert!(steered.get("position").is_none());
    let queued = peer.ask("prompt", json!({ "input": "b", "onBusy": "followUp" })).await;
    assert_eq!(queued["disposition"], "queued");
    gate.release();
    let idle = peer.ask("waitForIdle", json!({})).await;
    assert_eq!(idle["lastRun"], json!({ "runId": 1, "reason": "stop" }));
    let messages = peer.ask("getMessages", json!({})).await;
    let texts: Vec<_> = messages["messages"]
        .as_array()
        .unwrap()
        .iter()
        .map(|message| message["content"][0]["text"].as_str().unwrap())
        .collect();
    assert_eq!(texts, ["go", "one", "a", "two", "b", "three"]);
}

// W4.5
#[tokio::test]
async fn steering_a_run_tells_its_place_and_carries_its_origin() {
    let (_daemon, mut peer, _gate) = in_a_run().await;
    let editor = json!({ "protocolVersion": 1, "clientInfo": { "name": "editor" }, "odd": 1 });
    peer.ask("initialize", editor).await;
    let first = peer.ask("steer", json!({ "input": "a" })).await;
    assert_eq!((&first["disposition"], &first["position"]), (&json!("steered"), &json!(0)));
    let second = peer
        .ask("steer", json!({ "input": "b", "clientMessageId": "c", "expectedRunId": 1 }))
        .await;
    assert_eq!(second["position"], 1);
    let state = peer.ask("getState", json!({ "messages": "none" })).await;
    assert_eq!(
        state["state"]["steering"][1]["origin"],
        json!({ "client": "editor", "connection": 1, "clientMessageId": "c" })
    );
    assert_eq!(state["state"]["messagesFrom"], 1);
    let removed = peer.ask("removeQueued", json!({ "messageId": first["messageId"] })).await;
    assert_eq!(removed["removed"]["messageId"], first["messageId"]);
    assert_eq!(
        peer.ask("removeQueued", json!({ "messageId": "m9" })).await["removed"],
        json!(null)
    );
    peer.ask("followUp", json!({ "input": "c" })).await;
    let cleared = peer.ask("clearQueues", json!({ "which": "steering" })).await;
    assert_eq!(cleared["steering"][0]["messageId"], second["messageId"]);
    assert_eq!(cleared["followUp"], json!([]));
    let cleared = peer.ask("clearQueues", json!({})).await;
    assert_eq!(cleared["followUp"][0]["content"][0]["text"], "c");
}

#[tokio::test]
async fn at_idle_a_message_is_refused_held_or_starts_a_run_as_it_says() {
    let daemon = InMemory::new(ScriptedModel::new().says("one"));
    let mut peer = daemon.connect();
    for method in ["steer", "followUp"] {
        let refused = peer.refused(method, json!({ "input": "x" })).await;
        assert_eq!(refused, (1002, json!({ "kind": "notRunning", "retryable": false })));
    }
    let held = peer.ask("steer", json!({ "input": "held", "whenIdle": "hold" })).await;
    assert_eq!(
        held,
        json!({"disposition":"held","runId":null,"messageId":"m1","position":0,"seq":1})
    );
    let late = json!({ "input": "x", "whenIdle": "prompt", "expectedRunId": 7 });
    assert_eq!(
        peer.refused("steer", late).await,
        (1004, json!({ "kind": "wrongRun", "retryable": false, "expected": 7, "actual": null }))
    );
    let started = peer.ask("followUp", json!({ "input": "x", "whenIdle": "prompt" })).await;
    assert_eq!((&started["disposition"], &started["runId"]), (&json!("started"), &json!(1)));
    assert_eq!(started["position"], json!(null));
}

/// A picture in base64.
fn picture(width: u32, height: u32, format: ImageFormat) -> String {
    let mut bytes = Cursor::new(Vec::new());
    DynamicImage::new_rgb8(width, height).write_to(&mut bytes, format).unwrap();
    BASE64_STANDARD.encode(bytes.into_inner())
}

// W1.5: a picture takes a while to be looked at, and yet nothing overtakes it.
#[tokio::test]
async fn what_comes_after_a_picture_takes_effect_after_it() {
    let gate = Gate::new();
    let daemon = InMemory::new(ScriptedModel::new().answers([Step::Gate(gate)]));
    let mut peer = daemon.connect();
    let line = |method: &str, id: Option<u64>, params: Value| {
        let mut call = json!({ "jsonrpc": "2.0", "method": method, "params": params });
        id.inspect(|id| call["id"] = (*id).into());
        format!("{call}\n")
    };
    let large = json!([{
        "type": "image", "mimeType": "image/jpeg", "data": picture(3_000, 1_500, ImageFormat::Png),
    }]);
    let calls = [
        line("prompt", Some(101), json!({ "input": large })),
        line("steer", None, json!({ "input": large })),
        line("steer", Some(102), json!({ "input": "b" })),
        line("getState", Some(103), json!({})),
        line("abort", Some(104), json!({})),
    ];
    peer.write(&calls.concat()).await;
    assert_eq!(peer.answer(101).await.unwrap()["disposition"], "started");
    assert_eq!(peer.answer(102).await.unwrap()["position"], 1, "also without an id");
    let state = peer.answer(103).await.unwrap()["state"].take();
    let sent = [&state["messages"][0]["content"][0], &state["steering"][0]["content"][0]];
    for block in sent {
        assert_eq!(block["mimeType"], "image/png", "what it is, and not what it was called");
        let bytes = BASE64_STANDARD.decode(block["data"].as_str().unwrap()).unwrap();
        let seen = image::load_from_memory(&bytes).unwrap();
        assert_eq!((seen.width(), seen.height()), (2_000, 1_000));
    }
    assert_eq!(peer.answer(104).await.unwrap()["aborted"], true);
}

#[tokio::test]
async fn a_picture_that_models_refuse_is_refused_by_all_that_take_input() {
    let (_daemon, mut peer, _gate) = in_a_run().await;
    let text = json!({ "type": "text", "text": "see" });
    let no_picture = json!([text, { "type": "image", "mimeType": "image/png", "data": "eA==" }]);
    let fits = picture(3, 2, ImageFormat::WebP);
    let misnamed = json!([{ "type": "image", "mimeType": "image/png", "data": fits }]);
    for method in ["prompt", "steer", "followUp"] {
        let (code, data) = peer.refused(method, json!({ "input": no_picture })).await;
        assert_eq!((code, &data["field"]), (-32602, &json!("input[1].data")), "{method}: {data}");
        let params = match method {
            "prompt" => json!({ "input": misnamed, "onBusy": "steer" }),
            _ => json!({ "input": misnamed }),
        };
        peer.ask(method, params).await;
    }
    let state = peer.ask("getState", json!({})).await;
    let expected = json!({ "type": "image", "mimeType": "image/webp", "data": fits });
    for queued in [&state["state"]["steering"][1], &state["state"]["followUp"][0]] {
        assert_eq!(queued["content"][0], expected, "byte for byte");
    }
}

// W1.5
#[tokio::test]
async fn prompt_and_abort_in_one_write_abort_that_prompts_run() {
    let daemon = InMemory::new(ScriptedModel::new().says("never asked"));
    let mut peer = daemon.connect();
    peer.write(concat!(
        r#"{"jsonrpc":"2.0","id":1,"method":"prompt","params":{"input":"x"}}"#,
        "\n",
        r#"{"jsonrpc":"2.0","id":2,"method":"abort","params":{"expectedRunId":1}}"#,
        "\n",
        r#"{"jsonrpc":"2.0","id":3,"method":"waitForIdle"}"#,
        "\n",
    ))
    .await;
    assert_eq!(peer.answer(1).await.unwrap()["runId"], 1);
    let aborted = peer.answer(2).await.unwrap();
    assert_eq!((&aborted["aborted"], &aborted["runId"]), (&json!(true), &json!(1)));
    assert_eq!(peer.answer(3).await.unwrap()["lastRun"]["reason"], "aborted");
    let mut later = daemon.connect();
    assert_eq!(later.ask("abort", json!({})).await["aborted"], false);
    assert_eq!(later.refused("abort", json!({ "expectedRunId": 1 })).await.0, 1004);
}

// W3.4
#[tokio::test]
async fn waiting_ends_with_the_run_with_patience_or_at_once() {
    let (daemon, mut peer, gate) = in_a_run().await;
    let waiting = peer.send("waitForIdle", json!({ "runId": 1 })).await;
    let impatient = peer.ask("waitForIdle", json!({ "timeoutMs": 0 })).await;
    assert_eq!(impatient["status"], "timeout");
    assert!(impatient.get("lastRun").is_none());
    gate.release();
    let settled = peer.answer(waiting).await.unwrap();
    assert_eq!((&settled["status"], &settled["lastRun"]["runId"]), (&json!("idle"), &json!(1)));
    peer.ask("prompt", json!({ "input": "x" })).await;
    peer.ask("waitForIdle", json!({})).await;
    let of_run_1 = daemon.connect().ask("waitForIdle", json!({ "runId": 1 })).await;
    assert_eq!(of_run_1["lastRun"], json!({ "runId": 1, "reason": "stop" }));
    let never = peer.refused("waitForIdle", json!({ "runId": 9 })).await;
    assert_eq!(
        (never.0, &never.1["expected"], &never.1["actual"]),
        (1004, &json!(9), &json!(null))
    );
}

// W3.2
#[tokio::test]
async fn what_was_awaited_has_been_sent_before_the_answer() {
    let text = "word ".repeat(200);
    let steps = text.split_inclusive(' ').map(Step::text);
    let daemon = InMemory::new(ScriptedModel::new().answers(steps));
    let mut peer = daemon.connect();
    peer.ask("subscribe", json!({})).await;
    peer.send("prompt", json!({ "input": "x" })).await;
    let idle = peer.ask("waitForIdle", json!({})).await;
    // `ask` reads no further than the answer, so these came before it.
    let timeline = peer.timeline();
    assert!(timeline.ends_with("end1(stop)"), "{timeline}");
    assert_eq!(idle["seq"], peer.ask("getState", json!({})).await["seq"]);
}

#[tokio::test]
async fn a_run_continues_only_where_there_is_something_to_answer() {
    let model = ScriptedModel::new().answers([Step::Hang]).says("more");
    let daemon = InMemory::new(model);
    let mut peer = daemon.connect();
    assert_eq!(peer.refused("continue", json!({})).await.0, 1003);
    peer.ask("prompt", json!({ "input": "x" })).await;
    assert_eq!(peer.refused("continue", json!({})).await.0, 1001);
    assert_eq!(peer.refused("reset", json!({})).await.0, 1001);
    peer.ask("abort", json!({})).await;
    peer.ask("waitForIdle", json!({})).await;
    assert_eq!(peer.refused("continue", json!({})).await.0, 1003);
    peer.ask("followUp", json!({ "input": "y", "whenIdle": "hold" })).await;
    assert_eq!(peer.ask("continue", json!({})).await["runId"], 2);
    assert_eq!(peer.ask("waitForIdle", json!({})).await["lastRun"]["reason"], "stop");
}

// W3.3
#[tokio::test]
async fn the_same_call_again_is_answered_as_before_and_does_nothing() {
    let (daemon, mut peer, gate) = in_a_run().await;
    let call = json!({ "input": "a", "clientMessageId": "c1" });
    let first = peer.ask("steer", call.clone()).await;
    let blocks = json!({ "input": [{ "type": "text", "text": "a" }], "clientMessageId": "c1" });
    let mut other = daemon.connect();
    for again in [call, blocks] {
        assert_eq!(other.ask("steer", again).await, first);
    }
    let conflict = json!({ "kind": "idempotencyConflict", "retryable": false, "messageId": "m2" });
    let different = json!({ "input": "b", "clientMessageId": "c1" });
    assert_eq!(other.refused("steer", different.clone()).await, (1007, conflict.clone()));
    let elsewhere = json!({ "input": "a", "clientMessageId": "c1" });
    assert_eq!(other.refused("prompt", elsewhere.clone()).await, (1007, conflict.clone()));
    // A refusal is not remembered.
    let busy = json!({ "input": "x", "clientMessageId": "c2" });
    assert_eq!(other.refused("prompt", busy.clone()).await.0, 1001);
    gate.release();
    other.ask("waitForIdle", json!({})).await;
    peer.ask("reset", json!({})).await;
    assert_eq!(other.refused("prompt", elsewhere).await, (1007, conflict), "also after reset");
    assert_eq!(other.ask("prompt", busy).await["disposition"], "started");
}

// W1.7, W3.5
#[tokio::test]
async fn input_that_cannot_be_taken_is_refused_with_the_reason() {
    let daemon = InMemory::new(ScriptedModel::new());
    let mut peer = daemon.connect();
    let large = "x".repeat((1 << 20) + 1);
    let refused = peer.refused("prompt", json!({ "input": large })).await;
    let data = json!({
        "kind": "inputTooLarge", "retryable": false, "maxBytes": 1 << 20,
        "actualBytes": (1 << 20) + 1,
    });
    assert_eq!(refused, (1006, data));
    for (params, field) in [
        (json!({ "input": "" }), "input"),
        (json!({ "input": [] }), "input"),
        (
            json!({ "input": [{ "type": "image", "mimeType": "image/png", "data": "?" }] }),
            "input[0].data",
        ),
        (json!({ "input": "x", "clientMessageId": "" }), "clientMessageId"),
        (json!({ "input": "x", "onbusy": "steer" }), "onbusy"),
        (json!({ "input": "x", "sessionId": 7 }), "sessionId"),
    ] {
        let (code, data) = peer.refused("prompt", params.clone()).await;
        assert_eq!((code, &data["field"]), (-32602, &json!(field)), "{params}");
    }
    assert_eq!(peer.ask("getState", json!({})).await["seq"], 0, "nothing happened");
}

// Section 2: another version may have another shape, so the version is looked at first.
// W2.1
#[tokio::test]
async fn another_version_is_refused_as_such_whatever_else_it_says() {
    let daemon = InMemory::new(ScriptedModel::new());
    let mut peer = daemon.connect();
    let (code, data) = peer.refused("initialize", json!({ "protocolVersion": 2 })).await;
    assert_eq!((code, &data["supported"]), (1009, &json!([1])));
    let (code, data) = peer.refused("initialize", json!({ "protocolVersion": 1 })).await;
    assert_eq!(code, -32602);
    assert!(data["problem"].as_str().unwrap().contains("clientInfo"), "{data}");
}

/// W3.4: some providers refuse a request with such a message, and the others never see it.
#[tokio::test]
async fn input_of_nothing_but_white_space_is_refused_wherever_input_is_taken() {
    let (_daemon, mut peer, gate) = in_a_run().await;
    for input in [
        json!(" \t\r\n"),
        json!("\u{a0}\u{3000}"),
        json!([{ "type": "text", "text": "\n" }, { "type": "text", "text": "" }]),
        json!([]),
    ] {
        for (method, params) in [
            ("prompt", json!({ "input": input, "onBusy": "steer" })),
            ("prompt", json!({ "input": input, "onBusy": "followUp" })),
            ("steer", json!({ "input": input })),
            ("followUp", json!({ "input": input, "whenIdle": "hold" })),
        ] {
            let (code, data) = peer.refused(method, params).await;
            assert_eq!((code, &data["field"]), (-32602, &json!("input")), "{method} {input}");
        }
    }
    // A picture speaks for itself, and text keeps the white space that it has.
    let data = picture(1, 1, ImageFormat::Png);
    let picture = json!({ "type": "image", "mimeType": "image/png", "data": data });
    let input = json!([{ "type": "text", "text": " \n" }, picture]);
    peer.ask("steer", json!({ "input": input })).await;
    peer.ask("steer", json!({ "input": "  indented\n" })).await;
    let steering = peer.ask("clearQueues", json!({})).await["steering"].clone();
    assert_eq!(steering[0]["content"], json!([picture]));
    assert_eq!(steering[1]["content"][0]["text"], "  indented\n");
    gate.release();
}
