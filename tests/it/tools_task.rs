//! A real task, end to end: a failing test is read, its cause found and mended, with the real tools.

use agent_core::ScriptedModel;
use serde_json::json;
use support::daemon::InMemory;

const SUM: &str =
    "# Adds its arguments.\ntotal=0\nfor n in \"$@\"; do total=$((total - n)); done\necho $total\n";
const TEST: &str = "got=$(sh sum.sh 1 2 3)\n[ \"$got\" = 6 ] || { echo \"want 6, got $got\"; exit 1; }\necho passed\n";

// C11.3: read, find, edit, run, read the output, mend, done.
#[tokio::test]
async fn a_failing_test_is_mended_with_the_real_tools() {
    let edit = json!({ "path": "sum.sh", "edits": [
        { "oldText": "total - n", "newText": "total + n" }
    ] });
    let model = ScriptedModel::new()
        .calls([("c1", "bash", r#"{"command":"sh test.sh"}"#)])
        .calls([("c2", "read", r#"{"path":"test.sh"}"#), ("c3", "read", r#"{"path":"sum.sh"}"#)])
        .calls([("c4", "edit", edit.to_string().as_str())])
        .calls([("c5", "bash", r#"{"command":"sh test.sh"}"#)])
        .calls([("c6", "write", r#"{"path":"notes/done.md","content":"mended\n"}"#)])
        .says("The sign was wrong; the test passes now.");
    let daemon = InMemory::new(model);
    let directory = daemon.directory();
    std::fs::write(directory.join("sum.sh"), SUM).unwrap();
    std::fs::write(directory.join("test.sh"), TEST).unwrap();

    let mut peer = daemon.connect();
    peer.ask("prompt", json!({ "input": "make the test pass" })).await;
    let idle = peer.ask("waitForIdle", json!({})).await;
    assert_eq!(idle["lastRun"]["reason"], "stop");

    let page = peer.ask("getMessages", json!({})).await;
    let results: Vec<(&str, bool, &str)> = page["messages"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|message| message["role"] == "toolResult")
        .map(|message| {
            let text = message["content"][0]["text"].as_str().unwrap();
            let is_error = message["isError"].as_bool().unwrap();
            (message["toolCallId"].as_str().unwrap(), is_error, text)
        })
        .collect();
    let said = |call: &str| *results.iter().find(|(id, ..)| *id == call).unwrap();
    let (_, failed, first) = said("c1");
    assert!(failed && first.contains("want 6, got -6"), "{first}");
    assert!(said("c2").2.contains("want 6"));
    assert!(said("c3").2.contains("total - n"));
    assert!(!said("c4").1, "{}", said("c4").2);
    let (_, failed, second) = said("c5");
    assert!(!failed && second.contains("passed"), "{second}");
    assert_eq!(results.len(), 6);
    let sum = std::fs::read_to_string(directory.join("sum.sh")).unwrap();
    assert_eq!(sum, SUM.replace("total - n", "total + n"));
    assert_eq!(std::fs::read_to_string(directory.join("notes/done.md")).unwrap(), "mended\n");
}
