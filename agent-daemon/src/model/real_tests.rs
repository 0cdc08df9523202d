//! Tests against a real model server, where `AGENT_TEST_MODEL_URL` names one, such as that of
//! `tests/real-model/serve.sh DIR agent`.

#![allow(clippy::unwrap_used)]

use agent_core::{Message, ModelErrorKind, ModelRequest, StopReason, collect};

use super::{
    formats::FORMATS,
    model_config::ModelConfig,
    recorded::told,
    remote::RemoteModel,
    test_requests::{bash, model_at, request_of, tool},
    test_transcripts::{assistant, call, result, text, thinking, user},
    wire_format::WireFormat,
};

/// The server's model through each wire format; none, and a word about it, where there is no server.
fn models() -> Vec<RemoteModel> {
    let Ok(url) = std::env::var("AGENT_TEST_MODEL_URL") else {
        eprintln!("skipped: AGENT_TEST_MODEL_URL names no server");
        return Vec::new();
    };
    let config = ModelConfig { max_output_tokens: Some(100), ..ModelConfig::default() };
    let base = |api: &WireFormat| match api.name {
        "anthropic-messages" => url.clone(),
        _ => format!("{}/v1", url.trim_end_matches('/')),
    };
    FORMATS.into_iter().map(|api| model_at(api, &base(api), config.clone())).collect()
}

fn ask(messages: impl IntoIterator<Item = Message>) -> ModelRequest {
    request_of("You are a coding agent.", messages, [bash(), tool("read", &["path"])])
}

/// What it says and how it ends, with the usage checked rather than shown.
async fn story(model: &RemoteModel, request: ModelRequest) -> String {
    let (events, end) = collect(model, request).await;
    let end = end.unwrap_or_else(|error| panic!("{:?}: {error}", model.provider.api));
    assert!(end.usage.output > 0, "{:?}: {:?}", model.provider.api, end.usage);
    // Its ids are random.
    told(&events, &format!("{:?}", end.stop_reason))
}

#[tokio::test]
async fn a_real_model_calls_the_tool_that_it_is_told_to() {
    for model in models() {
        let said =
            story(&model, ask([user([text("Use bash to run `echo hello > out.txt`")])])).await;
        let end = " bash {\"command\": \"echo hello > out.txt\"} | ToolUse";
        assert!(
            said.starts_with("call ") && said.ends_with(end),
            "{:?}: {said}",
            model.provider.api
        );
    }
}

#[tokio::test]
async fn a_real_model_answers_in_words_and_after_a_result() {
    for model in models() {
        let api = model.provider.api;
        let said = story(&model, ask([user([text("What is the capital of France?")])])).await;
        assert_eq!(said, "text The capital of France is Paris. | Stop", "{api:?}");
        // With remains of another model: its thought, its ids, arguments that are not JSON.
        let transcript = [
            user([text("Use bash to run `cargo test`")]),
            assistant(
                "other/model",
                StopReason::ToolUse,
                [
                    thinking("hm", Some("c2ln")),
                    text("I will."),
                    call("call|1:a", "bash", r#"{"command":"cargo test"}"#),
                    call("call|1:b", "bash", r#""{\"comm""#),
                ],
            ),
            result("call|1:a", "bash", [text("ok. 3 passed; 0 failed.")]),
            result("call|1:b", "bash", []),
        ];
        let said = story(&model, ask(transcript)).await;
        assert!(said.starts_with("text ") && said.ends_with(" | Stop"), "{api:?}: {said}");
    }
}

#[tokio::test]
async fn a_real_server_says_when_the_context_is_full() {
    for model in models() {
        let long = "word ".repeat(20_000);
        let (_, end) = collect(&model, ask([user([text(&long)])])).await;
        let error = end.unwrap_err();
        assert_eq!(error.kind, ModelErrorKind::ContextOverflow, "{error}");
    }
}
