//! The methods about sessions, settings and the daemon itself (W3).

use std::sync::Arc;

use agent_core::{Gate, ScriptedModel, Step};
use agent_daemon::transport::unix::UNIX;
use serde_json::{Value, json};
use support::{
    ScriptedTool,
    daemon::{InMemory, Peer},
};

fn says(answers: usize) -> ScriptedModel {
    (0..answers).fold(ScriptedModel::new(), |model, _| model.says("yes"))
}

// W3.4
#[tokio::test]
async fn a_directory_has_one_session_and_an_id_has_one_too() {
    let daemon = InMemory::new(says(0));
    let mut peer = daemon.connect();
    let main = json!({ "sessionId": "main", "created": false });
    assert_eq!(peer.ask("createSession", json!({})).await, main);
    assert_eq!(peer.ask("createSession", json!({ "cwd": daemon.directory() })).await, main);

    let project = daemon.directory().join("my project");
    std::fs::create_dir(&project).unwrap();
    std::os::unix::fs::symlink(&project, daemon.directory().join("link")).unwrap();
    let first = peer.ask("createSession", json!({ "cwd": project })).await;
    assert_eq!(first, json!({ "sessionId": "my-project", "created": true }));
    let link = json!({ "cwd": daemon.directory().join("link") });
    let again = peer.ask("createSession", link).await;
    assert_eq!(again, json!({ "sessionId": "my-project", "created": false }));

    let named = json!({ "sessionId": "named", "cwd": project });
    assert_eq!(peer.ask("createSession", named.clone()).await["created"], true);
    assert_eq!(
        peer.refused("createSession", named).await,
        (1005, json!({ "kind": "sessionExists", "retryable": false, "sessionId": "named" }))
    );
    let sessions = peer.ask("listSessions", json!({})).await;
    let ids: Vec<_> = sessions["sessions"]
        .as_array()
        .unwrap()
        .iter()
        .map(|session| session["sessionId"].as_str().unwrap())
        .collect();
    assert_eq!(ids, ["main", "my-project", "named"]);
    assert_eq!(sessions["sessions"][2]["cwd"], json!(project));
    assert_eq!(
        peer.refused("prompt", json!({ "input": "x", "sessionId": "none" })).await,
        (1005, json!({ "kind": "sessionNotFound", "retryable": false, "sessionId": "none" }))
    );
}

#[tokio::test]
async fn a_session_that_cannot_be_is_refused_with_the_reason() {
    let daemon = InMemory::with(says(0), None, "[limits]\nmax_sessions = 1");
    let mut peer = daemon.connect();
    let plain = daemon.directory().join("config.toml");
    let none = daemon.directory().join("none");
    for (params, field) in [
        (json!({ "cwd": "relative" }), "cwd"),
        (json!({ "cwd": none }), "cwd"),
        (json!({ "cwd": plain }), "cwd"),
        (json!({ "sessionId": "" }), "sessionId"),
        (json!({ "sessionId": "a/b" }), "sessionId"),
        (json!({ "sessionId": "x".repeat(129) }), "sessionId"),
        (json!({ "sessionId": "x", "tools": ["fly"] }), "tools"),
    ] {
        let (code, data) = peer.refused("createSession", params.clone()).await;
        assert_eq!((code, &data["field"]), (-32602, &json!(field)), "{params}");
    }
    let (code, data) = peer.refused("createSession", json!({ "sessionId": "x" })).await;
    assert_eq!((code, &data["kind"]), (-32006, &json!("tooManySessions")));
}

#[tokio::test]
async fn settings_change_together_or_not_at_all() {
    let daemon = InMemory::new(says(0));
    let mut peer = daemon.connect();
    let before = peer.ask("setConfig", json!({})).await;
    let change = json!({
        "model": "offline/demo", "thinkingLevel": "high", "systemPrompt": "Be brief.",
        "tools": ["bash", "read"], "steeringMode": "all", "followUpMode": "all",
        "whenIdle": "hold", "maxTurns": 3, "toolExecution": "sequential",
    });
    assert_eq!(peer.ask("setConfig", change.clone()).await, change);
    assert_ne!(before, change);

    let mut wrong = json!({ "maxTurns": 9, "model": "nowhere/x" });
    let (code, data) = peer.refused("setConfig", wrong.clone()).await;
    assert_eq!(
        (code, &data["kind"], &data["model"]),
        (1012, &json!("modelUnavailable"), &json!("nowhere/x"))
    );
    assert!(data["reason"].as_str().unwrap().contains("[providers.nowhere]"), "{data}");
    wrong["model"] = json!("offline/demo");
    wrong["tools"] = json!(["read", "fly"]);
    let (code, data) = peer.refused("setConfig", wrong).await;
    assert_eq!((code, &data["field"]), (-32602, &json!("tools")));
    assert_eq!(data["problem"], "there is no tool `fly` (there are: read, write, edit, bash)");
    let (code, _) = peer.refused("setConfig", json!({ "steeringMode": "both" })).await;
    assert_eq!(code, -32602);
    assert_eq!(peer.ask("getState", json!({})).await["state"]["config"], change, "unchanged");
}

#[tokio::test]
async fn the_default_prompt_names_the_tools_that_there_are() {
    let daemon = InMemory::new(says(0));
    let mut peer = daemon.connect();
    std::fs::write(daemon.directory().join("AGENTS.md"), "Use tabs.").unwrap();
    peer.ask("createSession", json!({ "sessionId": "s" })).await;
    for (change, expected, instructed) in [
        (json!({ "tools": ["read"] }), "Your tools: read.\n", true),
        (json!({ "tools": ["edit", "read", "edit"] }), "Your tools: edit, read.\n", true),
        (json!({ "tools": [] }), "You have no tools", true),
        (json!({ "tools": ["bash", "read"] }), "Your tools: bash, read.\n", true),
        (json!({ "systemPrompt": "Be brief.", "tools": ["read"] }), "Be brief.", false),
        (json!({ "tools": ["bash"] }), "Be brief.", false),
    ] {
        let mut change = change;
        change["sessionId"] = json!("s");
        let config = peer.ask("setConfig", change).await;
        let prompt = config["systemPrompt"].as_str().unwrap();
        assert!(prompt.contains(expected), "{expected}: {prompt}");
        assert_eq!(prompt.contains("Use tabs."), instructed, "{prompt}");
        assert_eq!(prompt.contains("Your tools"), expected.starts_with("Your tools"), "{prompt}");
    }
}

#[tokio::test]
async fn a_session_s_tools_come_and_go_while_it_lives() {
    let model = ScriptedModel::new()
        .answers([Step::call(0, "1", "late", "{}")])
        .says("done")
        .answers([Step::call(0, "2", "late", "{}")])
        .says("done");
    let daemon = InMemory::new(model);
    let mut peer = daemon.connect();
    let session = daemon.daemon.sessions.get(None).unwrap();
    let late = Arc::new(ScriptedTool::new("late"));
    session.add_tool(late.clone());
    let config = peer.ask("getState", json!({})).await["state"]["config"].clone();
    assert_eq!(config["tools"], json!(["read", "write", "edit", "bash", "late"]));
    let prompt = config["systemPrompt"].as_str().unwrap();
    assert!(prompt.contains("Your tools: read, write, edit, bash, late.\n"), "{prompt}");

    peer.ask("prompt", json!({ "input": "call it" })).await;
    peer.ask("waitForIdle", json!({})).await;
    assert_eq!(late.calls().len(), 1);
    let config = peer.ask("setConfig", json!({ "tools": ["late", "read"] })).await;
    assert_eq!(config["tools"], json!(["late", "read"]));

    assert!(session.remove_tool("late") && !session.remove_tool("late"));
    let config = peer.ask("getState", json!({})).await["state"]["config"].clone();
    assert_eq!(config["tools"], json!(["read"]));
    let (_, data) = peer.refused("setConfig", json!({ "tools": ["late"] })).await;
    assert_eq!(data["problem"], "there is no tool `late` (there are: read, write, edit, bash)");
    peer.ask("prompt", json!({ "input": "call it" })).await;
    peer.ask("waitForIdle", json!({})).await;
    assert_eq!(late.calls().len(), 1, "it is gone");
}

#[tokio::test]
async fn instructions_are_read_again_when_a_run_begins_and_at_a_reset() {
    let daemon = InMemory::new(says(6));
    let mut peer = daemon.connect();
    let file = daemon.directory().join("AGENTS.md");
    async fn prompt_of(peer: &mut Peer) -> (Value, String) {
        let state = peer.ask("getState", json!({ "sessionId": "s" })).await;
        let prompt = &state["state"]["config"]["systemPrompt"];
        (state["seq"].clone(), prompt.as_str().unwrap().to_owned())
    }
    peer.ask("createSession", json!({ "sessionId": "s" })).await;
    let (_, plain) = prompt_of(&mut peer).await;
    run(&mut peer, "s", "x").await;
    let (after_one, same) = prompt_of(&mut peer).await;
    assert_eq!(same, plain);

    std::fs::write(&file, "Use tabs.").unwrap();
    assert_eq!(prompt_of(&mut peer).await.1, plain, "not before a run");
    run(&mut peer, "s", "x").await;
    let (after_two, instructed) = prompt_of(&mut peer).await;
    assert!(instructed.starts_with(plain.trim_end()) && instructed.contains("Use tabs."));
    let events = |from: &Value, to: &Value| to.as_u64().unwrap() - from.as_u64().unwrap();
    assert_eq!(events(&after_one, &after_two), after_one.as_u64().unwrap() + 1, "one change more");

    run(&mut peer, "s", "x").await;
    let (after_three, _) = prompt_of(&mut peer).await;
    assert_eq!(events(&after_two, &after_three), after_one.as_u64().unwrap(), "nothing changed");

    std::fs::write(&file, "Use blanks.").unwrap();
    peer.ask("reset", json!({ "sessionId": "s" })).await;
    let (after_reset, reset) = prompt_of(&mut peer).await;
    assert!(reset.contains("Use blanks.") && !reset.contains("Use tabs."), "{reset}");
    assert_eq!(events(&after_three, &after_reset), 2);

    // Other tools: still the default prompt, so the instructions still follow.
    peer.ask("setConfig", json!({ "sessionId": "s", "tools": ["read"] })).await;
    std::fs::remove_file(&file).unwrap();
    run(&mut peer, "s", "x").await;
    let (_, without) = prompt_of(&mut peer).await;
    assert!(without.contains("Your tools: read.") && !without.contains("Use"), "{without}");

    // What somebody has set stays as it is.
    peer.ask("setConfig", json!({ "sessionId": "s", "systemPrompt": "Be brief." })).await;
    std::fs::write(&file, "Use tabs.").unwrap();
    run(&mut peer, "s", "x").await;
    peer.ask("reset", json!({ "sessionId": "s" })).await;
    assert_eq!(prompt_of(&mut peer).await.1, "Be brief.");
}

#[tokio::test]
async fn a_new_session_begins_with_the_settings_it_was_made_with() {
    let daemon = InMemory::with(says(0), None, "[session]\nmax_turns = 5\nwhen_idle = 'hold'");
    let mut peer = daemon.connect();
    std::fs::write(daemon.directory().join("AGENTS.md"), "Use tabs.").unwrap();
    let made = json!({ "sessionId": "s", "maxTurns": 7, "tools": [], "systemPrompt": "Be brief." });
    peer.ask("createSession", made).await;
    let state = peer.ask("getState", json!({ "sessionId": "s" })).await;
    assert_eq!(state["seq"], 0);
    let config = &state["state"]["config"];
    let prompt = config["systemPrompt"].as_str().unwrap();
    assert!(prompt.starts_with("Be brief.") && prompt.contains("Use tabs."), "{prompt}");
    assert_eq!((&config["maxTurns"], &config["tools"]), (&json!(7), &json!([])));
    assert_eq!(config["whenIdle"], "hold", "of the file");
    assert_eq!(peer.ask("getState", json!({})).await["state"]["config"]["maxTurns"], 5);
}

#[tokio::test]
async fn models_are_listed_with_what_is_wrong_with_them() {
    let file = "
        [providers.far]
        api = 'openai-completions'
        base_url = 'http://127.0.0.1:9/v1'
        api_key_env = 'NO_SUCH_KEY'
        models = [{ id = 'm', context_window = 1000, images = true }]
        [providers.near]
        api = 'openai-completions'
        base_url = 'http://127.0.0.1:9/v1'
        api_key_env = 'KEY_OF_TESTS'
        models = [{ id = 'm' }]
    ";
    let daemon = InMemory::with(says(0), None, file);
    let mut peer = daemon.connect();
    let list = peer.ask("listModels", json!({})).await;
    let far = &list["models"][0];
    assert_eq!((&far["id"], &far["available"]), (&json!("far/m"), &json!(false)));
    assert!(far["reason"].as_str().unwrap().contains("NO_SUCH_KEY"));
    assert_eq!((&far["contextWindow"], &far["images"]), (&json!(1000), &json!(true)));
    assert_eq!(list["models"][1]["available"], true);
    assert_eq!(list["models"][2]["id"], "offline/demo");
    let (code, data) = peer.refused("setConfig", json!({ "model": "far/m" })).await;
    assert_eq!((code, &data["reason"]), (1012, &far["reason"]));
    peer.ask("setConfig", json!({ "model": "near/m" })).await;
    let list = peer.ask("listModels", json!({})).await;
    assert_eq!(list["current"], "near/m");
    assert!(!list.to_string().contains("secret"), "{list}");
}

async fn run(peer: &mut Peer, session: &str, input: &str) -> Value {
    peer.ask("prompt", json!({ "input": input, "sessionId": session })).await;
    peer.ask("waitForIdle", json!({ "sessionId": session })).await
}

#[tokio::test]
async fn a_transcript_is_read_in_pages_and_in_part() {
    let daemon = InMemory::new(says(60));
    let mut peer = daemon.connect();
    for _ in 0..60 {
        run(&mut peer, "main", "x").await;
    }
    let mut seen = 0;
    loop {
        let page = peer.ask("getMessages", json!({ "from": seen })).await;
        assert_eq!(page["total"], 120);
        match page["messages"].as_array().unwrap().len() {
            0 => break,
            length => seen += length,
        }
    }
    assert_eq!(seen, 120);
    let page = peer.ask("getMessages", json!({ "from": 118, "limit": 1 })).await;
    assert_eq!(page["messages"][0]["role"], "user");
    for (params, length, from) in [
        (json!({}), 120, json!(null)),
        (json!({ "messages": "tail" }), 50, json!(70)),
        (json!({ "messages": "tail", "limit": 3 }), 3, json!(117)),
        (json!({ "limit": 200 }), 120, json!(null)),
        (json!({ "messages": "none" }), 0, json!(120)),
    ] {
        let state = peer.ask("getState", params.clone()).await["state"].take();
        assert_eq!(state["messages"].as_array().unwrap().len(), length, "{params}");
        assert_eq!(state["messagesFrom"], from, "{params}");
    }
    peer.ask("reset", json!({})).await;
    assert_eq!(peer.ask("getMessages", json!({})).await["total"], 0);
}

// W3.4
#[tokio::test]
async fn closing_a_session_settles_it_first_and_its_id_begins_anew() {
    let gate = Gate::new();
    let model = ScriptedModel::new().answers([Step::Gate(gate.clone())]).says("yes");
    let daemon = InMemory::new(model);
    let mut peer = daemon.connect();
    let introduced = peer
        .ask("initialize", json!({ "protocolVersion": 1, "clientInfo": { "name": "t" } }))
        .await;
    assert_eq!(peer.ask("closeSession", json!({})).await, json!({ "closed": false }));
    let session = json!({ "sessionId": "s" });
    peer.ask("createSession", session.clone()).await;
    peer.ask("subscribe", session.clone()).await;
    let opened = peer.frame_of("subscribed").await;
    assert_eq!(opened["instanceId"], introduced["instanceId"]);
    peer.ask("prompt", json!({ "input": "x", "sessionId": "s" })).await;
    gate.reached().await;
    assert_eq!(peer.ask("closeSession", session.clone()).await, json!({ "closed": true }));
    let closed = peer.frame_of("session_closed").await;
    assert_eq!(closed["sessionId"], "s");
    for method in ["getState", "waitForIdle", "closeSession", "continue"] {
        assert_eq!(peer.refused(method, session.clone()).await.0, 1005, "{method}");
    }
    assert_eq!(peer.ask("createSession", session.clone()).await["created"], true);
    let state = peer.ask("getState", session).await;
    assert_ne!(state["instanceId"], introduced["instanceId"]);
    assert_eq!((&state["seq"], &state["state"]["messages"]), (&json!(0), &json!([])));
}

#[tokio::test]
async fn sessions_do_not_share_a_transcript() {
    let daemon = InMemory::new(says(2));
    let mut peer = daemon.connect();
    peer.ask("createSession", json!({ "sessionId": "s" })).await;
    run(&mut peer, "main", "for main").await;
    run(&mut peer, "s", "for s").await;
    let messages = peer.ask("getMessages", json!({ "sessionId": "s" })).await;
    assert_eq!(
        (&messages["total"], &messages["messages"][0]["content"][0]["text"]),
        (&json!(2), &json!("for s"))
    );
}

// W2.1
#[tokio::test]
async fn the_versions_must_agree_and_an_introduction_comes_once() {
    let daemon = InMemory::new(says(0));
    let mut peer = daemon.connect();
    let other = json!({ "protocolVersion": 2, "clientInfo": { "name": "t" } });
    assert_eq!(
        peer.refused("initialize", other).await,
        (
            1009,
            json!({ "kind": "unsupportedProtocolVersion", "retryable": false, "supported": [1] })
        )
    );
    let ours = json!({ "protocolVersion": 1, "clientInfo": { "name": "t" }, "rootUri": null });
    let result = peer.ask("initialize", ours.clone()).await;
    assert_eq!(result["serverInfo"]["pid"], std::process::id());
    assert_eq!(result["capabilities"]["maxMessageBytes"], 32 << 20);
    assert_eq!(result["capabilities"]["replay"], json!({ "events": 4096, "bytes": 8 << 20 }));
    assert_eq!(peer.refused("initialize", ours).await.0, -32600);
    assert_eq!(peer.refused("initialize", json!({ "protocolVersion": 1 })).await.0, -32602);
}

// W2.2
#[tokio::test]
async fn shutdown_lets_runs_settle_and_takes_no_more_work() {
    let gate = Gate::new();
    let daemon = InMemory::new(ScriptedModel::new().answers([Step::Gate(gate.clone())]));
    let mut peer = daemon.connect();
    let mut other = daemon.connect_by(&UNIX);
    assert_eq!(other.refused("shutdown", json!({})).await.1["field"], "scope");
    assert_eq!(other.ask("health", json!({})).await["connections"], 2);
    peer.ask("prompt", json!({ "input": "x" })).await;
    gate.reached().await;
    let waiting = other.send("waitForIdle", json!({})).await;
    assert_eq!(peer.ask("shutdown", json!({})).await, json!(null));
    assert_eq!(other.answer(waiting).await.unwrap()["lastRun"]["reason"], "aborted");
    for (method, params) in [
        ("prompt", json!({ "input": "x" })),
        ("steer", json!({ "input": "x", "whenIdle": "hold" })),
        ("continue", json!({})),
        ("createSession", json!({ "sessionId": "s" })),
    ] {
        let refused = other.refused(method, params).await;
        assert_eq!(
            refused,
            (1011, json!({ "kind": "shuttingDown", "retryable": true })),
            "{method}"
        );
    }
    assert_eq!(other.ask("health", json!({})).await["status"], "shuttingDown");
    assert_eq!(peer.ask("shutdown", json!({})).await, json!(null), "again");
}

#[tokio::test]
async fn the_schema_names_every_method() {
    let daemon = InMemory::new(says(0));
    let schema = daemon.connect().ask("getSchema", json!({})).await;
    let methods = schema["methods"].as_object().unwrap();
    assert_eq!(methods.len(), 22);
    assert!(methods["steer"]["params"].is_object() && methods["steer"]["result"].is_object());
}
