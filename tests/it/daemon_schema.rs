//! A whole session, recorded, against the schema that the daemon itself gives.

use std::sync::Arc;

use agent_core::{Gate, ScriptedModel, Step, Tool};
use serde_json::{Value, json};
use support::{
    ScriptedTool,
    daemon::{InMemory, Peer},
};

/// Holds everything that is said against the schema.
struct Recorder {
    peer: Peer,
    schema: Value,
    said: usize,
}

impl Recorder {
    async fn new(mut peer: Peer) -> Self {
        let schema = peer.ask("getSchema", json!({})).await;
        Recorder { peer, schema, said: 0 }
    }

    async fn call(&mut self, method: &str, params: Value) -> Value {
        let answer = self.peer.call(method, params.clone()).await;
        self.check(&format!("/methods/{method}/params"), &params);
        match answer {
            Ok(result) => {
                self.check(&format!("/methods/{method}/result"), &result);
                result
            }
            Err(error) => {
                self.check("/errorData", &error["data"]);
                error
            }
        }
    }

    fn check_frames(&mut self) {
        for frame in self.peer.frames() {
            self.check("/frame", &frame);
        }
    }

    fn check(&mut self, path: &str, value: &Value) {
        let mut schema = self.schema.pointer(path).unwrap_or_else(|| panic!("no {path}")).clone();
        if let Some(schema) = schema.as_object_mut() {
            schema.insert("$defs".to_owned(), self.schema["$defs"].clone());
        }
        let validator = jsonschema::validator_for(&schema).unwrap();
        if let Err(error) = validator.validate(value) {
            panic!("{path}: {error} at {}\n{value}", error.instance_path());
        }
        self.said += 1;
    }
}

#[tokio::test]
async fn everything_that_is_said_fits_the_schema() {
    let (slow, late) = (Gate::new(), Gate::new());
    let model = ScriptedModel::new()
        .calls([("a", "slow", r#"{"x":1}"#), ("b", "broken", "not json")])
        .answers([Step::text("half"), Step::Gate(late.clone())])
        .says("yes");
    let tools: Vec<Arc<dyn Tool>> = vec![
        Arc::new(ScriptedTool::new("slow").waits(&slow)),
        Arc::new(ScriptedTool::new("broken")),
    ];
    let daemon = InMemory::with(model, Some(tools), "");
    let mut client = Recorder::new(daemon.connect()).await;
    let introduction = json!({ "protocolVersion": 1, "clientInfo": { "name": "recorder" } });
    client.call("initialize", introduction).await;
    client.call("subscribe", json!({ "snapshot": true })).await;
    client.call("prompt", json!({ "input": "go", "clientMessageId": "c1" })).await;
    slow.reached().await;
    client.call("steer", json!({ "input": "left", "expectedRunId": 1 })).await;
    let queued = client.call("followUp", json!({ "input": "right" })).await;
    client.call("getState", json!({ "messages": "tail" })).await;
    client.call("removeQueued", json!({ "messageId": queued["messageId"] })).await;
    client.call("followUp", json!({ "input": "up" })).await;
    client.call("prompt", json!({ "input": "again" })).await;
    slow.release();
    late.reached().await;
    // In mid-sentence: the state has a partial answer.
    client.call("subscribe", json!({ "snapshot": true, "messages": "none" })).await;
    client.call("subscribe", json!({ "fromSeq": 1, "exclude": ["text_delta"] })).await;
    client.call("getState", json!({})).await;
    client.call("setConfig", json!({ "maxTurns": 9, "tools": [] })).await;
    client.call("abort", json!({})).await;
    client.call("waitForIdle", json!({})).await;
    client.call("steer", json!({ "input": "late", "expectedRunId": 1 })).await;
    client.call("followUp", json!({ "input": "held", "whenIdle": "hold" })).await;
    client.call("clearQueues", json!({})).await;
    client.call("prompt", json!({ "input": "once more" })).await;
    client.call("waitForIdle", json!({ "timeoutMs": 60_000 })).await;
    client.call("continue", json!({})).await;
    client.call("getMessages", json!({})).await;
    client.call("listModels", json!({})).await;
    client.call("reset", json!({})).await;
    client.call("createSession", json!({ "sessionId": "other" })).await;
    client.call("listSessions", json!({})).await;
    client.call("subscribe", json!({ "sessionId": "other" })).await;
    client.call("closeSession", json!({ "sessionId": "other" })).await;
    client.call("prompt", json!({ "input": "x", "sessionId": "other" })).await;
    client.call("unsubscribe", json!({ "subscription": "s1" })).await;
    client.call("health", json!({})).await;
    client.call("shutdown", json!({})).await;
    client.check_frames();
    assert!(client.said > 100, "{} things were said", client.said);
}
