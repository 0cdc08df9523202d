//! Contract, section 11: tools.

use agent_core::{Block, EventKind, Gate, Message, Step, ToolError, ToolOutput};
use serde_json::{Value, json};
use support::{Play, Script, ScriptedTool, ToolStep, must};

/// What becomes of calls.
const CALLS: &[&str] = &["tool_start", "tool_end", "tool_skipped"];

fn work() -> ScriptedTool {
    ScriptedTool::new("work")
}

async fn call(arguments: &str, tool: &ScriptedTool) -> Play {
    let play =
        Script::new().call("a", "work", arguments).says("done").tool(tool.clone()).play().await;
    assert_eq!(play.last_run(), "stop");
    play
}

fn result(play: &Play) -> agent_core::ToolResultMessage {
    let messages = play.agent.snapshot().state.messages;
    let Message::ToolResult(result) = &**messages.get(2).unwrap() else { panic!() };
    result.clone()
}

// C11.1
#[tokio::test]
async fn arguments_are_validated_and_the_error_names_the_field() {
    let tool = work().takes(json!({
        "type": "object",
        "properties": { "path": { "type": "string" }, "limit": { "type": "integer", "minimum": 1 } },
        "required": ["path"],
        "additionalProperties": false,
    }));
    for (arguments, complaints) in [
        (r#"{"path": 7}"#, vec!["/path"]),
        (r#"{"path": "x", "limit": 0}"#, vec!["/limit"]),
        (r#"{}"#, vec!["path"]),
        ("", vec!["path"]),
        (r#"{"path": "x", "pth": 1}"#, vec!["pth"]),
        (r#"{"path": 7, "limit": "x"}"#, vec!["/path", "/limit"]),
    ] {
        let play = call(arguments, &tool).await;
        let text = agent_core::text_of(&result(&play).content);
        assert!(result(&play).is_error);
        for complaint in complaints {
            assert!(text.contains(complaint), "{arguments}: {text}");
        }
    }
    assert!(tool.calls().is_empty());
    call(r#"{"path": "x", "limit": 1}"#, &tool).await;
    assert_eq!(tool.calls(), [json!({ "path": "x", "limit": 1 })]);
}

// C11.1
#[tokio::test]
async fn the_model_is_told_name_description_and_schema() {
    let schema = json!({ "type": "object", "properties": { "path": {} } });
    let play = call("{}", &work().takes(schema.clone())).await;
    let spec = &play.model.requests()[0].tools[0];
    assert_eq!(
        (&*spec.name, &*spec.description, &spec.parameters),
        ("work", "the tool work", &schema)
    );
}

// C11.1
#[tokio::test]
async fn a_value_that_does_not_fit_is_not_repeated_to_the_model() {
    let schema = json!({ "type": "object", "properties": { "key": { "type": "integer" } } });
    let play = call(r#"{"key": "sk-secret"}"#, &work().takes(schema)).await;
    assert!(!agent_core::text_of(&result(&play).content).contains("sk-secret"));
}

// C11.1
#[tokio::test]
async fn arguments_that_are_not_a_json_object_never_run_and_stay_a_string() {
    let tool = work();
    let deep = format!("{}1{}", "[".repeat(99), "]".repeat(99));
    let deep = format!(r#"{{"x": {deep}}}"#);
    for arguments in ["{", "[]", "7", "true", r#""x""#, r#"{"path": "/et"#, "{} {}", &deep] {
        let play = call(arguments, &tool).await;
        assert!(result(&play).is_error, "{arguments}");
        let messages = play.agent.snapshot().state.messages;
        let Message::Assistant(answer) = &**messages.get(1).unwrap() else { panic!() };
        assert_eq!(answer.tool_calls().next().unwrap().arguments, Value::String(arguments.into()));
    }
    assert!(tool.calls().is_empty());
    // None at all counts as an empty object.
    call(" ", &tool).await;
    call("null", &tool).await;
    assert_eq!(tool.calls(), [json!({}), json!({})]);
}

// C11.1
#[tokio::test]
async fn arguments_with_a_slip_of_one_meaning_run_as_they_were_meant() {
    let edit = json!({ "type": "object", "properties": { "old": { "type": "string" } } });
    let schema = json!({
        "type": "object",
        "properties": {
            "path": { "type": "string" }, "limit": { "type": "integer", "minimum": 1 },
            "edits": { "type": "array", "items": edit },
        },
        "required": ["path"],
    });
    // What the model says, what the transcript keeps of it, and what runs.
    let cases = [
        (
            r#"{"path": "5", "limit": "5"}"#,
            json!({"path": "5", "limit": "5"}),
            json!({"path": "5", "limit": 5}),
        ),
        (
            r#"{"path": "a", "limit": null}"#,
            json!({"path": "a", "limit": null}),
            json!({"path": "a"}),
        ),
        (
            r#"{"path": "a", "edits": "[{\"old\": \"x\"}]"}"#,
            json!({"path": "a", "edits": "[{\"old\": \"x\"}]"}),
            json!({"path": "a", "edits": [{"old": "x"}]}),
        ),
        (
            r#"{"path": "a", "edits": {"old": "x"}}"#,
            json!({"path": "a", "edits": {"old": "x"}}),
            json!({"path": "a", "edits": [{"old": "x"}]}),
        ),
        // As text these would go back to the provider as an empty object.
        (r#""{\"path\": \"a\"}""#, json!({"path": "a"}), json!({"path": "a"})),
        ("{\"path\": \"a\tb\r\nc\"}", json!({"path": "a\tb\r\nc"}), json!({"path": "a\tb\r\nc"})),
    ];
    for (said, kept, meant) in cases {
        let tool = work().takes(schema.clone());
        let play = call(said, &tool).await;
        assert_eq!(tool.calls(), std::slice::from_ref(&meant), "{said}");
        let messages = play.agent.snapshot().state.messages;
        let Message::Assistant(answer) = &**messages.get(1).unwrap() else { panic!() };
        assert_eq!(answer.tool_calls().next().unwrap().arguments, kept, "{said}");
        let shown = play.timeline.events().iter().find_map(|event| match &event.kind {
            EventKind::ToolStart { args, .. } => Some(args.clone()),
            _ => None,
        });
        assert_eq!(shown, Some(meant), "{said}");
    }
    for (said, cause) in [
        (r#"{"path": "a", "limit": "0"}"#, "/limit: value is less than the minimum of 1"),
        (r#"{"path": "a", "edits": "[{\"old\": 1}]"}"#, "/edits/0/old: value is not of type"),
        (
            r#"{"path": "a", "edits": "[{\"old\": \"x"}"#,
            "as JSON it is broken: EOF while parsing a string at line 1 column 11",
        ),
        (r#"{"path": "a", "edits": "x"}"#, "/edits: value is not of type \"array\""),
        (r#"{"path": "/et"#, "work are not JSON: EOF while parsing a string at line 1 column 13"),
        ("[1]", "The arguments of work are a JSON array and not an object"),
    ] {
        let tool = work().takes(schema.clone());
        let play = call(said, &tool).await;
        let text = agent_core::text_of(&result(&play).content);
        assert!(tool.calls().is_empty() && text.contains(cause), "{said}: {text}");
    }
}

// C11.1
#[tokio::test]
async fn a_schema_that_is_not_valid_is_the_tools_fault_and_an_error_result() {
    let play = call("{}", &work().takes(json!({ "type": "no such type" }))).await;
    assert!(agent_core::text_of(&result(&play).content).contains("schema of the tool work"));
}

// C11.2
#[tokio::test]
async fn whatever_goes_wrong_in_a_call_is_a_paired_error_result_and_the_run_goes_on() {
    struct Unserialisable;
    impl serde::Serialize for Unserialisable {
        fn serialize<S: serde::Serializer>(&self, _: S) -> Result<S::Ok, S::Error> {
            Err(serde::ser::Error::custom("no JSON"))
        }
    }
    let deep = || (0..200).fold(json!({}), |inner, _| json!({ "in": inner }));
    let cases = [
        (work().step(ToolStep::Fails("no such file")), "no such file"),
        (work().step(ToolStep::Panics), "The tool panicked: the tool's script says so"),
        (
            work().runs(|_, _| -> std::future::Ready<_> { panic!("early") }),
            "The tool panicked: early",
        ),
        (
            work().runs(|_, _| async { ToolOutput::text("x").with_details(Unserialisable) }),
            "cannot be serialised: no JSON",
        ),
        (
            work().runs(move |_, _| async move { ToolOutput::text("x").with_details(deep()) }),
            "nest deeper than 64",
        ),
        (
            work().runs(move |_, _| async move {
                Err(ToolError::from(ToolOutput::text("x").with_details(deep())?))
            }),
            "nest deeper than 64",
        ),
        (ScriptedTool::new("other"), r#"There is no tool named "work"; the tools are other."#),
    ];
    for (tool, complaint) in cases {
        let play = call("{}", &tool).await;
        let result = result(&play);
        assert_eq!(
            (&*result.tool_call_id, &*result.tool_name, result.is_error),
            ("a", "work", true)
        );
        let text = agent_core::text_of(&result.content);
        assert!(text.contains(complaint), "{text}");
    }
}

// C11.2
#[tokio::test]
async fn an_error_keeps_its_content_and_details() {
    let tool = work().runs(|_, _| async {
        let content = vec![Block::text("exit 1"), Block::image("image/png", "eA==")];
        Err(ToolOutput { content, details: Some(json!({ "exit": 1 })) }.into())
    });
    let play = call("{}", &tool).await;
    assert_eq!(result(&play).content.len(), 2);
    assert_eq!(result(&play).details, Some(json!({ "exit": 1 })));
}

// C11.2
#[tokio::test]
async fn calls_with_one_id_are_told_apart_and_stay_paired() {
    let play = Script::new()
        .answers([
            Step::call(0, "a", "work", r#"{"n": 0}"#),
            Step::call(1, "a", "work", r#"{"n": 1}"#),
            Step::call(2, "", "work", r#"{"n": 2}"#),
            Step::call(3, "", "work", r#"{"n": 3}"#),
            Step::call(4, "a_1", "work", r#"{"n": 4}"#),
        ])
        .says("done")
        .tool(work())
        .play()
        .await;
    let messages = play.agent.snapshot().state.messages;
    let Message::Assistant(answer) = &**messages.get(1).unwrap() else { panic!() };
    let mut ids: Vec<&str> = answer.tool_calls().map(|call| &*call.id).collect();
    assert_eq!(ids[0], "a");
    ids.sort_unstable();
    ids.dedup();
    assert_eq!((ids.len(), ids.contains(&"")), (5, false));
    assert_eq!(messages.len(), 8);
}

// C11.2
#[tokio::test]
async fn of_two_tools_with_one_name_the_first_counts() {
    let first = work().step(ToolStep::Says("first"));
    let play = Script::new()
        .calls([("a", "work")])
        .says("done")
        .tool(first)
        .tool(work().step(ToolStep::Says("second")))
        .play()
        .await;
    assert!(play.transcript().contains(r#"result a "first""#));
    assert_eq!(play.model.requests()[0].tools.len(), 1);
}

// C11.2: what calls queue for they get in call order.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn calls_begin_in_call_order() {
    let calls = 200;
    let tool = work();
    let numbered =
        |n: usize| Step::call(n as u32, &n.to_string(), "work", &format!(r#"{{"n":{n}}}"#));
    Script::new().answers((0..calls).map(numbered)).says("done").tool(tool.clone()).play().await;
    assert_eq!(tool.calls(), (0..calls).map(|n| json!({ "n": n })).collect::<Vec<_>>());
}

// C3.4: a call that waits for another to end has not begun.
#[tokio::test]
async fn no_more_calls_run_at_once_than_the_limit_and_the_others_follow_in_call_order() {
    let gates = [(); 4].map(|()| Gate::new());
    let play = gates
        .iter()
        .zip(["a", "b", "c", "d"])
        .fold(
            Script::new().calls([("a", "a"), ("b", "b"), ("c", "c"), ("d", "d")]).says("done"),
            |script, (gate, name)| script.tool(ScriptedTool::new(name).waits(gate)),
        )
        .with(|options| options.limits.max_parallel = 2.try_into().unwrap())
        .stage();
    let run = play.prompt("go");
    for (gate, next) in [(1, "tool_start(c)"), (2, "tool_start(d)"), (3, "tool_end(d)")] {
        gates[gate].release();
        play.timeline.reached(next).await;
    }
    gates[0].release();
    must(run).await.unwrap();
    play.settle().await;
    assert_eq!(
        play.timeline.only(CALLS),
        "tool_start(a) tool_start(b) tool_end(b) tool_start(c) tool_end(c) tool_start(d) \
         tool_end(d) tool_end(a)"
    );
}

// C7.4
#[tokio::test]
async fn an_abort_skips_the_calls_that_wait_for_others_to_end() {
    let play = Script::new()
        .calls([("a", "work"), ("b", "work"), ("c", "work")])
        .tool(work().step(ToolStep::Update("begun")).step(ToolStep::Abort))
        .with(|options| options.limits.max_parallel = std::num::NonZero::<usize>::MIN)
        .on("tool_update(a)", support::abort())
        .play()
        .await;
    assert_eq!(
        play.timeline.only(CALLS),
        "tool_start(a) tool_skipped(b) tool_skipped(c) tool_end(a)"
    );
    assert_eq!(play.last_run(), "aborted");
}

// C3.4
#[tokio::test]
async fn sixteen_calls_run_at_once_unless_set() {
    let gate = Gate::new();
    let names: Vec<String> = (1..=40).map(|n| n.to_string()).collect();
    let play = Script::new()
        .calls(names.iter().map(|name| (&**name, "work")))
        .says("done")
        .tool(work().waits(&gate))
        .stage();
    let run = play.prompt("go");
    play.timeline.reached("tool_start(16)").await;
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
    assert!(!play.timeline.story().contains("tool_start(17)"), "{}", play.timeline.story());
    gate.release();
    must(run).await.unwrap();
    play.settle().await;
    assert!(play.transcript().contains(r#"result 40 "work done""#));
}

// C11.2
#[tokio::test]
async fn updates_that_come_after_their_call_has_ended_are_dropped() {
    // The context of the first call is kept and used: beside a running call, and in a later run.
    let kept: std::sync::Arc<std::sync::Mutex<Option<agent_core::ToolContext>>> =
        Default::default();
    let keep = kept.clone();
    let late = kept.clone();
    let gate = Gate::new();
    let play = Script::new()
        .calls([("a", "keeps"), ("b", "slow")])
        .says("one")
        .calls([("a", "slow")])
        .says("two")
        .tool(ScriptedTool::new("keeps").runs(move |_, context| {
            *keep.lock().unwrap() = Some(context);
            async { Ok(ToolOutput::text("kept")) }
        }))
        .tool(ScriptedTool::new("slow").waits(&gate))
        .on("tool_end(a)", move |_| {
            late.lock().unwrap().as_ref().unwrap().update(ToolOutput::text("late"));
        })
        .stage();
    let run = play.prompt("go");
    play.timeline.reached("tool_end(a)").await;
    gate.release();
    must(run).await.unwrap();
    let run = play.prompt("again");
    kept.lock().unwrap().as_ref().unwrap().update(ToolOutput::text("later"));
    must(run).await.unwrap();
    play.settle().await;
    assert_eq!(play.timeline.only(&["tool_update"]), "");
}

// C11.2
#[tokio::test]
async fn a_tool_that_floods_updates_delays_nobody() {
    let play = Script::new()
        .calls([("a", "floods"), ("b", "work")])
        .says("done")
        .tool(ScriptedTool::new("floods").runs(|_, context| async move {
            for _ in 0..10_000 {
                context.update(ToolOutput::text("x"));
            }
            Ok(ToolOutput::text("flooded"))
        }))
        .tool(work())
        .play()
        .await;
    let updates = play.timeline.only(&["tool_update"]).split(' ').count();
    assert!(updates <= 64, "{updates}");
    assert!(play.transcript().contains(r#"result a "flooded""#));
}

// C11.3
#[tokio::test]
async fn the_built_in_four_read_write_edit_and_run_commands() {
    let directory = tempfile::tempdir().unwrap();
    let policy = agent_daemon::tool::ToolPolicy::default();
    let root = directory.path().canonicalize().unwrap();
    let workspace = agent_daemon::tool::Workspace::new(root, policy, Vec::new());
    let calls = [
        ("w", "write", r#"{"path": "a.txt", "content": "one two"}"#),
        ("e", "edit", r#"{"path": "a.txt", "edits": [{"oldText": "two", "newText": "three"}]}"#),
        ("r", "read", r#"{"path": "a.txt"}"#),
        ("b", "bash", r#"{"command": "cat a.txt; exit 3"}"#),
    ];
    let play = calls
        .into_iter()
        .fold(Script::new(), |script, (id, tool, arguments)| script.call(id, tool, arguments));
    let play = play
        .says("done")
        .with(|options| options.tools = agent_daemon::tool::built_in(workspace.into()))
        .play()
        .await;
    assert_eq!(play.agent.snapshot().state.config.tools, ["read", "write", "edit", "bash"]);
    let transcript = play.transcript();
    assert_eq!(std::fs::read_to_string(directory.path().join("a.txt")).unwrap(), "one three");
    assert!(transcript.contains(r#"result r "one three"#), "{transcript}");
    assert!(transcript.contains(r#"result! b "one three"#), "{transcript}");
}

// C11.3: one file, several names; each call builds on what the one before it did.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn calls_for_one_file_take_effect_in_call_order() {
    let directory = tempfile::tempdir().unwrap();
    let root = directory.path().canonicalize().unwrap();
    std::os::unix::fs::symlink(".", root.join("here")).unwrap();
    let policy = agent_daemon::tool::ToolPolicy::default();
    let workspace = agent_daemon::tool::Workspace::new(root.clone(), policy, Vec::new());
    // To follow this takes longer.
    let far = format!("{}a", "here/".repeat(40));
    let mut calls = vec![("write", json!({ "path": "a", "content": "0" }))];
    for step in 0..20 {
        let edits = [json!({ "oldText": step.to_string(), "newText": (step + 1).to_string() })];
        let path = ["a", &far, "./a"][step % 3];
        calls.push(("edit", json!({ "path": path, "edits": edits })));
    }
    calls.push(("write", json!({ "path": "b/c", "content": "first" })));
    calls.push(("write", json!({ "path": "here/b/c", "content": "second" })));
    let calls = calls.iter().enumerate().map(|(at, (tool, arguments))| {
        Step::call(at as u32, &at.to_string(), tool, &arguments.to_string())
    });
    let play = Script::new()
        .answers(calls)
        .says("done")
        .with(|options| options.tools = agent_daemon::tool::built_in(workspace.into()))
        .play()
        .await;
    let content = |name: &str| std::fs::read_to_string(root.join(name)).unwrap();
    assert_eq!((&*content("a"), &*content("b/c")), ("20", "second"), "{}", play.transcript());
}
