//! Contract, section 10: hooks.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use agent_core::{
    Block, HookError, Message, NextTurn, ScriptedModel, Step, ThinkingLevel, ToolDecision,
    ToolOutput, Transcript,
};
use expect_test::expect;
use serde_json::json;
use support::{Script, ScriptedHooks, ScriptedTool, abort, transcript_story};

fn hooks() -> ScriptedHooks {
    ScriptedHooks::new()
}

fn call_then_say() -> Script {
    Script::new().calls([("a", "work")]).says("done")
}

// 10
#[tokio::test]
async fn transform_context_then_convert_to_model_change_one_request_only() {
    let hooks = hooks()
        .transform_context(|mut messages, _| async move {
            messages.push(messages.get(0).unwrap().clone());
            Ok(messages)
        })
        .convert_to_model(|messages, _| async move {
            // It sees what the hook before it returned, and drops the first message.
            Ok(messages.range(1, messages.len()).cloned().collect::<Transcript>())
        });
    let play = Script::new().says("one").says("two").hooks(hooks).stage();
    play.run("go").await;
    play.run("again").await;
    let requests: Vec<String> =
        play.model.requests().iter().map(|r| transcript_story(r.messages.iter())).collect();
    expect![[r#"
        user "go"
        assistant[stop] "one" | user "again" | user "go""#]]
    .assert_eq(&requests.join("\n"));
    expect![[r#"user "go" | assistant[stop] "one" | user "again" | assistant[stop] "two""#]]
        .assert_eq(&play.transcript());
}

// 10
#[tokio::test]
async fn before_tool_call_lets_it_run_changes_the_arguments_or_blocks_it() {
    let hooks = hooks().before_tool_call(|call, _| async move {
        Ok(match call.id.as_str() {
            "a" => ToolDecision::Run,
            "b" => ToolDecision::RunWith(json!({ "path": "b changed" })),
            _ => ToolDecision::Block { reason: "not on a Sunday".into() },
        })
    });
    let tool = ScriptedTool::new("work").takes(json!({
        "type": "object", "properties": { "path": { "type": "string" } }, "required": ["path"],
    }));
    let path = |id| (id, "work", r#"{"path": "as asked"}"#);
    let calls = ["a", "b", "c"].map(path).into_iter().enumerate();
    let play = Script::new()
        .answers(calls.map(|(i, (id, tool, args))| Step::call(i as u32, id, tool, args)))
        .says("done")
        .tool(tool.clone())
        .hooks(hooks)
        .play()
        .await;
    assert_eq!(tool.calls(), [json!({ "path": "as asked" }), json!({ "path": "b changed" })]);
    assert!(play.transcript().contains(r#"result! c "not on a Sunday""#));
    expect!["tool_start(a) tool_start(b) tool_end(a) tool_skipped(c) tool_end(b)"]
        .assert_eq(&play.timeline.only(&["tool_start", "tool_end", "tool_skipped"]));
    // What the model asked for stays in the transcript as it said it.
    let transcript = serde_json::to_string(&play.agent.snapshot().state.messages).unwrap();
    assert!(!transcript.contains("b changed"));
}

// 10
#[tokio::test]
async fn arguments_that_a_hook_changed_are_validated_again() {
    let deep = (0..200).fold(json!({}), |inner, _| json!({ "in": inner }));
    for (arguments, complaint) in [(json!({ "path": 7 }), "/path"), (deep, "nest deeper than")] {
        let tool = ScriptedTool::new("work").takes(json!({
            "type": "object", "properties": { "path": { "type": "string" } },
        }));
        let hooks = hooks().before_tool_call(move |_, _| {
            let arguments = arguments.clone();
            async { Ok(ToolDecision::RunWith(arguments)) }
        });
        let play = call_then_say().tool(tool.clone()).hooks(hooks).play().await;
        assert!(tool.calls().is_empty());
        assert!(play.transcript().contains(complaint), "{}", play.transcript());
        assert_eq!(play.last_run(), "stop");
    }
}

// 10
#[tokio::test]
async fn before_tool_call_is_asked_about_calls_that_can_run_and_no_others() {
    let asked: Arc<Mutex<Vec<String>>> = Arc::default();
    let seen = asked.clone();
    let hooks = hooks().before_tool_call(move |call, _| {
        seen.lock().unwrap().push(call.id);
        async { Ok(ToolDecision::Run) }
    });
    Script::new()
        .answers([
            Step::call(0, "unknown", "none", "{}"),
            Step::call(1, "broken", "work", "{"),
            Step::call(2, "fine", "work", "{}"),
        ])
        .says("done")
        .tool(ScriptedTool::new("work"))
        .hooks(hooks)
        .play()
        .await;
    assert_eq!(*asked.lock().unwrap(), ["fine"]);
}

// 10
#[tokio::test]
async fn after_tool_call_replaces_content_details_and_the_error_flag_before_tool_end() {
    let hooks = hooks().after_tool_call(|(call, mut outcome), _| async move {
        assert_eq!((&*call.name, outcome.is_error), ("work", true));
        outcome.output = ToolOutput { content: vec![Block::text("fine")], details: Some(json!(7)) };
        outcome.is_error = false;
        Ok(outcome)
    });
    let tool = ScriptedTool::new("work").step(support::ToolStep::Fails("bad"));
    let play = call_then_say().tool(tool).hooks(hooks).play().await;
    assert_eq!(play.timeline.only(&["tool_end"]), "tool_end(a)");
    assert!(play.transcript().contains(r#"result a "fine""#));
    let messages = play.agent.snapshot().state.messages;
    let Message::ToolResult(result) = &**messages.get(2).unwrap() else { panic!() };
    assert_eq!(result.details, Some(json!(7)));
}

// 10
#[tokio::test]
async fn should_stop_after_turn_ends_the_run_and_is_not_asked_after_a_failure() {
    let asked = Arc::new(Mutex::new(Vec::new()));
    let seen = asked.clone();
    let hooks = hooks().should_stop_after_turn(move |turn, _| {
        seen.lock().unwrap().push((turn.turn, turn.results.len(), turn.messages.len()));
        async move { Ok(turn.turn == 2) }
    });
    let play = Script::new()
        .calls([("a", "work"), ("b", "work")])
        .calls([("c", "work")])
        .says("never")
        .tool(ScriptedTool::new("work"))
        .hooks(hooks.clone())
        .play()
        .await;
    assert_eq!(play.last_run(), "stopped_by_hook");
    assert_eq!(*asked.lock().unwrap(), [(1, 2, 4), (2, 1, 6)]);
    assert_eq!(play.model.requests().len(), 2);
    Script::new().hooks(hooks).play().await;
    assert_eq!(asked.lock().unwrap().len(), 2);
}

// 10
#[tokio::test]
async fn prepare_next_turn_changes_model_thinking_level_system_prompt_and_tools_and_it_lasts() {
    let other = ScriptedModel::new().says("two").says("three");
    let next = other.clone();
    let hooks = hooks().prepare_next_turn(move |turn, _| {
        let model = next.clone();
        async move {
            assert_eq!(turn.turn, 1);
            Ok(NextTurn {
                model: Some(Arc::new(model)),
                thinking_level: Some(ThinkingLevel::High),
                system_prompt: Some("be brief".into()),
                tools: Some(vec![Arc::new(ScriptedTool::new("other"))]),
            })
        }
    });
    let play = call_then_say().tool(ScriptedTool::new("work")).hooks(hooks).stage();
    play.run("go").await;
    play.run("again").await;
    assert_eq!(play.model.requests().len(), 1);
    for request in other.requests() {
        assert_eq!(*request.system_prompt, *"be brief");
        assert_eq!(request.thinking_level, ThinkingLevel::High);
        assert_eq!(request.tools[0].name, "other");
    }
    assert_eq!(
        play.timeline.only(&["config", "turn_start"]),
        "turn_start(1) config_changed turn_start(2) turn_start(1)"
    );
    assert_eq!(play.agent.snapshot().state.config.tools, ["other"]);
}

// 10
#[tokio::test]
async fn prepare_next_turn_is_asked_only_when_there_is_a_next_turn() {
    let hooks = hooks().prepare_next_turn(|_, _| async { Err(HookError::new("no next turn")) });
    let play = Script::new().says("one").hooks(hooks.clone()).play().await;
    assert_eq!(play.last_run(), "stop");
    let play = call_then_say()
        .tool(ScriptedTool::new("work"))
        .hooks(hooks)
        .with(|options| options.max_turns = 1)
        .play()
        .await;
    assert_eq!(play.last_run(), "max_turns");
}

/// The same failure in each hook, once returned and once panicked.
fn failing_hooks() -> Vec<(&'static str, ScriptedHooks)> {
    macro_rules! both {
        ($($name:ident),*) => {
            vec![$(
                (stringify!($name), hooks().$name(|_, _| async { Err(HookError::new("no")) })),
                (stringify!($name), hooks().$name(|_, _| async { panic!("no") })),
                (stringify!($name), hooks().$name(|_, _| -> std::future::Ready<_> { panic!("no") })),
            )*]
        };
    }
    both!(
        transform_context,
        convert_to_model,
        before_tool_call,
        after_tool_call,
        should_stop_after_turn,
        prepare_next_turn
    )
}

// 10
#[tokio::test]
async fn a_hook_that_fails_or_panics_at_any_point_ends_the_run_as_error_and_paired() {
    for (name, hooks) in failing_hooks() {
        let play = Script::new()
            .calls([("a", "work"), ("b", "work"), ("c", "none")])
            .says("done")
            .tool(ScriptedTool::new("work"))
            .hooks(hooks)
            .play()
            .await;
        let end = play.last_run();
        assert!(end.starts_with("error: the hook ") && end.contains("no"), "{name}: {end}");
        // The laws, which `play` checks, say that every call is paired; and the agent works.
        play.agent.abort(None).unwrap();
        assert!(play.agent.prompt("again").is_ok());
        play.settle().await;
    }
}

// 10
#[tokio::test]
async fn when_before_tool_call_fails_calls_that_run_get_the_token_and_the_others_never_run() {
    let tool = ScriptedTool::new("work")
        .step(support::ToolStep::Abort)
        .step(support::ToolStep::Says("stopped"));
    let hooks = hooks().before_tool_call(|call, _| async move {
        match call.id.as_str() {
            "a" => Ok(ToolDecision::Run),
            _ => Err(HookError::new("no")),
        }
    });
    let play = Script::new()
        .calls([("a", "work"), ("b", "work"), ("c", "work")])
        .tool(tool)
        .hooks(hooks)
        .play()
        .await;
    expect![[r#"user "go" | assistant[toolUse] "" +a +b +c | result a "stopped" | result! b "the hook before_tool_call failed: no" | result! c "the hook before_tool_call failed: no""#]]
        .assert_eq(&play.transcript());
    assert_eq!(play.last_run(), "error: the hook before_tool_call failed: no");
    expect!["tool_start(a) tool_skipped(b) tool_skipped(c) tool_end(a) turn_end(1 error) run_end(1 error)"]
        .assert_eq(&play.timeline.only(&["tool_start", "tool_end", "tool_skipped", "turn_end", "run_end"]));
}

// 10
#[tokio::test(start_paused = true)]
async fn a_slow_hook_is_a_diagnostic_and_the_run_goes_on() {
    let hooks = hooks().transform_context(|messages, _| async move {
        tokio::time::sleep(Duration::from_secs(20)).await;
        Ok(messages)
    });
    let play = Script::new().says("one").hooks(hooks).play().await;
    assert_eq!(play.timeline.only(&["diagnostic"]), "diagnostic");
    assert_eq!(play.last_run(), "stop");
}

// 10
#[tokio::test]
async fn hooks_get_the_runs_token() {
    let hooks = hooks().should_stop_after_turn(|_, signal| async move {
        assert!(!signal.is_cancelled());
        Ok(false)
    });
    let play = Script::new().says("one").hooks(hooks).on("text_delta", |_| {}).play().await;
    assert_eq!(play.last_run(), "stop");
}

// 10
#[tokio::test(start_paused = true)]
async fn after_tool_call_has_the_rest_of_the_grace_period() {
    let hooks = hooks().after_tool_call(|(_, mut outcome), signal| async move {
        signal.cancelled().await;
        tokio::time::sleep(Duration::from_secs(3)).await;
        outcome.output = ToolOutput::text("in time");
        Ok(outcome)
    });
    let play = call_then_say().tool(ScriptedTool::new("work")).hooks(hooks).stage();
    let run = play.prompt("go");
    play.timeline.reached("tool_start").await;
    tokio::time::sleep(Duration::from_millis(1)).await;
    abort()(&play.agent);
    run.await.unwrap();
    play.settle().await;
    assert!(play.transcript().contains(r#"result a "in time""#), "{}", play.transcript());
    assert_eq!(play.last_run(), "aborted");
}
