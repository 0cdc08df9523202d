//! The course's timeline (seed S0) through the daemon, with two clients.

use std::sync::Arc;

use agent_core::{Gate, ScriptedModel, Tool};
use expect_test::expect;
use serde_json::json;
use support::{ScriptedTool, daemon::InMemory};

#[tokio::test]
async fn both_steers_arrive_after_both_results_and_run_2_sees_all_of_run_1() {
    let model = ScriptedModel::new()
        .calls([("a", "slow", "{}"), ("b", "quick", "{}")])
        .says("both done")
        .says("nothing more");
    let (slow, quick) = (Gate::new(), Gate::new());
    let tools: Vec<Arc<dyn Tool>> = vec![
        Arc::new(ScriptedTool::new("slow").waits(&slow)),
        Arc::new(ScriptedTool::new("quick").waits(&quick)),
    ];
    let file = "[session]\nsteering_mode = 'all'";
    let daemon = InMemory::with(model.clone(), Some(tools), file);
    let (mut first, mut second) = (daemon.connect(), daemon.connect());
    first.ask("subscribe", json!({})).await;
    second.ask("subscribe", json!({})).await;

    first.ask("prompt", json!({ "input": "review" })).await;
    slow.reached().await;
    quick.reached().await;
    first.ask("steer", json!({ "input": "check the tests first" })).await;
    quick.release();
    second.frame_of("tool_end").await;
    second.ask("steer", json!({ "input": "then update the notes" })).await;
    slow.release();
    first.ask("waitForIdle", json!({})).await;
    second.ask("prompt", json!({ "input": "what else?" })).await;
    first.ask("waitForIdle", json!({})).await;

    expect!["start1(review) → says(…) → tool(a) → tool(b) → steering+ → done(b) → steering+ → done(a) → result(a) → result(b) → steering(check the tests first) → steering(then update the notes) → says(both done) → end1(stop) → start2(what else?) → says(nothing more) → end2(stop)"].assert_eq(&first.timeline());
    let request = &model.requests()[2].messages;
    let texts: Vec<String> = request.iter().map(|message| message.text()).collect();
    expect!["review |  | slow done | quick done | check the tests first | then update the notes | both done | what else?"].assert_eq(&texts.join(" | "));
}
