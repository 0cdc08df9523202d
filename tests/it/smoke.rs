//! The first thing to look at when everything fails.

use agent_core::{Agent, AgentOptions, EndReason, ScriptedModel};

#[tokio::test]
async fn an_agent_answers_and_remembers() {
    let model = ScriptedModel::new().says("one").says("two");
    let agent = Agent::new(AgentOptions::new(model.clone()));
    let first = agent.prompt("count").unwrap().await.unwrap();
    assert_eq!(first.reason, EndReason::Stop);
    let second = agent.prompt("go on").unwrap().await.unwrap();
    let texts: Vec<String> = second.messages.iter().map(|message| message.text()).collect();
    assert_eq!(texts, ["count", "one", "go on", "two"]);
    assert_eq!(model.requests()[1].messages.len(), 3);
}
