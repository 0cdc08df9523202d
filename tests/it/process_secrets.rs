//! Keys and the token are in no log, event, error, state or tool's environment (W6).

use serde_json::{Value, json};
use support::process::{Daemon, Home, ModelServer, Peer};

const OPENAI: &str = "sk-planted-openai-5f1c";
const ANTHROPIC: &str = "sk-ant-planted-anthropic-8e2d";
const LOCAL: &str = "planted-local-77ab";

// W6.4
#[test]
fn planted_keys_and_the_token_come_out_nowhere() {
    let model = ModelServer::start();
    let home = Home::new();
    let configuration = model.configuration();
    home.configure(&configuration.replace("base_url", "api_key_env = \"LOCAL_API_KEY\"\nbase_url"));
    let mut command = home.daemon_command(&["--log-level", "trace", "--listen", "tcp:127.0.0.1:0"]);
    command
        .env("OPENAI_API_KEY", OPENAI)
        .env("ANTHROPIC_API_KEY", ANTHROPIC)
        .env("LOCAL_API_KEY", LOCAL);
    let mut daemon = Daemon::start(&mut command);
    let address = daemon.said_after("tcp:");
    let token = std::fs::read_to_string(daemon.said_after("token is in ")).unwrap();
    let token = token.trim();
    let mut peer = Peer::tcp(&address).unwrap();
    peer.initialize(Some(token)).unwrap();
    peer.subscribe();

    peer.call("prompt", json!({ "input": "What is in the environment?" }));
    let mut call = model.call();
    // The one place where the key belongs.
    assert!(call.headers.contains(LOCAL), "{}", call.headers);
    call.begin();
    call.call_tool(
        0,
        "env",
        "bash",
        json!({ "command": "env; cat /proc/$$/environ | tr '\\0' '\\n'" }),
    );
    call.end("tool_calls");
    let call = model.call();
    assert!(!call.body.to_string().contains(LOCAL));
    // A careless server quotes what it was shown.
    let quote = format!("the key {LOCAL} in `Authorization: Bearer {LOCAL}` is not valid");
    call.fail("401 Unauthorized", &json!({ "error": { "message": quote } }).to_string());
    let end = peer.frame("run_end");
    assert_eq!(end["reason"], "error");
    assert!(end["errorMessage"].as_str().unwrap().contains("is not valid"), "{end}");
    for (method, params) in [
        ("getState", json!({})),
        ("listModels", json!({})),
        ("listSessions", json!({})),
        ("health", json!({})),
        ("getMessages", json!({})),
    ] {
        peer.call(method, params);
    }
    peer.refused("setConfig", json!({ "model": "nobody/nothing" }));
    peer.refused(
        "initialize",
        json!({ "protocolVersion": 1, "clientInfo": { "name": "x" }, "token": token }),
    );
    daemon.signal(rustix::process::Signal::TERM);
    peer.closed();
    daemon.exit();

    let result = peer.frames.iter().find(|frame| frame["type"] == "tool_end");
    let shown = result.map_or(Value::Null, |frame| frame["result"].clone()).to_string();
    assert!(shown.contains("AGENT_TEST_HOME"), "the tool showed an environment: {shown}");
    for secret in [OPENAI, ANTHROPIC, LOCAL, token] {
        assert!(!peer.text.contains(secret), "{secret} was sent to a client");
        assert!(!daemon.said().contains(secret), "{secret} was logged");
    }
}
