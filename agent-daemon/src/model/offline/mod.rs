//! The built-in model `offline/demo`: no network, no key, real tools.
//!
//! Owns: a few plain requests that it understands, carried out with the tools that it is given, and
//! telling in words what came of them, word by word, slowly enough to be steered.
//! Never: pretends to be more than it is; its first answer says what it is and how to get a real one.

mod answer;
mod wishes;

use std::time::Duration;

use agent_core::{
    BoxFuture, Message, Model, ModelEnd, ModelError, ModelEvent, ModelRequest, ModelSink,
    StopReason, Usage,
};
use answer::{Answer, answer};

/// The model's name.
pub(super) const NAME: &str = "offline/demo";

/// The pause before each word.
const PAUSE: Duration = Duration::from_millis(25);

/// The model `offline/demo`.
#[derive(Debug)]
pub(super) struct OfflineModel {
    /// What to do to get a real model, on this machine.
    pub(super) advice: String,
}

impl Model for OfflineModel {
    fn name(&self) -> &str {
        NAME
    }

    fn respond<'a>(
        &'a self,
        request: ModelRequest,
        sink: ModelSink,
    ) -> BoxFuture<'a, Result<ModelEnd, ModelError>> {
        Box::pin(async move {
            let Answer { text, calls } = answer(&request, &self.advice);
            let output = say(&text, &sink).await?;
            let stop_reason = if calls.is_empty() { StopReason::Stop } else { StopReason::ToolUse };
            for (index, call) in (1..).zip(calls) {
                tokio::time::sleep(PAUSE).await;
                let delta = call.arguments.to_string();
                sink.send(ModelEvent::ToolCall { index, id: call.id, name: call.name, delta })
                    .await?;
            }
            let usage = Usage { input: words_read(&request), output, ..Usage::default() };
            Ok(ModelEnd { stop_reason, usage })
        })
    }
}

/// Says a text word by word; gives the number of words.
async fn say(text: &str, sink: &ModelSink) -> Result<u64, ModelError> {
    let mut words = 0;
    for word in text.split_inclusive(char::is_whitespace) {
        tokio::time::sleep(PAUSE).await;
        sink.send(ModelEvent::Text { index: 0, delta: word.to_owned() }).await?;
        words += 1;
    }
    Ok(words)
}

/// This model's tokens are words.
fn words_read(request: &ModelRequest) -> u64 {
    let words = |message: &Message| message.text().split_whitespace().count() as u64;
    request.messages.iter().map(|message| words(message)).sum()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use agent_core::{StopReason, collect};

    use super::*;
    use crate::model::{
        test_requests::{bash, request, request_of, tool},
        test_transcripts::{assistant, call, result, text, user},
    };

    /// What the model says and calls, `/` between deltas.
    async fn story(request: ModelRequest) -> String {
        let model = OfflineModel { advice: "Set a key.".to_owned() };
        let (events, end) = collect(&model, request).await;
        let mut story = String::new();
        for event in events {
            match event {
                ModelEvent::Text { delta, .. } => story += &delta,
                ModelEvent::ToolCall { index, id, name, delta } => {
                    story += &format!("\n{index} {id} {name} {delta}");
                }
                other => panic!("{other:?}"),
            }
        }
        format!("{story}\n{:?}", end.unwrap().stop_reason)
    }

    fn tools() -> Vec<agent_core::ToolSpec> {
        vec![tool("read", &["path"]), bash()]
    }

    #[tokio::test(start_paused = true)]
    async fn two_requests_joined_by_and_are_two_calls_of_one_message() {
        let prompt = user([text("read README.md and run ls")]);
        assert_eq!(
            story(request_of("", [prompt], tools())).await,
            "This is the built-in offline demo, not a real model. Set a key.\n\n\
             I will read README.md and run `ls`.\n\
             1 call_1 read {\"path\":\"README.md\"}\n\
             2 call_2 bash {\"command\":\"ls\"}\n\
             ToolUse"
        );
    }

    #[tokio::test(start_paused = true)]
    async fn results_are_told_in_words() {
        let transcript = [
            user([text("read README.md and run false")]),
            assistant(
                NAME,
                StopReason::ToolUse,
                [
                    text("I will."),
                    call("call_1", "read", r#"{"path":"README.md"}"#),
                    call("call_2", "bash", r#"{"command":"false"}"#),
                ],
            ),
            result("call_1", "read", [text("# Title\n\nmore\n")]),
            result("call_2", "bash", []),
        ];
        assert_eq!(
            story(request_of("", transcript, tools())).await,
            "README.md has 3 lines and begins: “# Title”. `false` printed nothing.\nStop"
        );
    }

    #[tokio::test(start_paused = true)]
    async fn steering_beside_results_is_answered_too() {
        let transcript = [
            user([text("run ls")]),
            assistant(NAME, StopReason::ToolUse, [call("call_1", "bash", r#"{"command":"ls"}"#)]),
            result("call_1", "bash", [text("a")]),
            user([text("Please read `a`.")]),
        ];
        assert_eq!(
            story(request_of("", transcript, tools())).await,
            "`ls` printed: “a”. Now to “Please read `a`.”: I will read a.\n\
             1 call_2 read {\"path\":\"a\"}\nToolUse"
        );
    }

    #[tokio::test(start_paused = true)]
    async fn a_tool_that_is_not_there_is_named() {
        let prompt = [
            assistant(NAME, StopReason::Stop, [text("hi")]),
            user([text("read a and write b: c")]),
        ];
        assert_eq!(
            story(request_of("", prompt, tools())).await,
            "I will read a. I cannot write b: the tool `write` is not available here.\n\
             1 call_1 read {\"path\":\"a\"}\nToolUse"
        );
    }

    #[tokio::test(start_paused = true)]
    async fn what_it_does_not_understand_it_says() {
        let story = story(request([user([text("What is love?")])])).await;
        assert!(story.contains("I do not understand “What is love?”"), "{story}");
        assert!(story.contains("`edit PATH: OLD => NEW`"), "{story}");
    }

    #[tokio::test(start_paused = true)]
    async fn words_come_one_by_one_with_pauses() {
        let start = tokio::time::Instant::now();
        let model = OfflineModel { advice: String::new() };
        let (events, end) = collect(&model, request([user([text("hello")])])).await;
        assert_eq!(events.len() as u64, end.unwrap().usage.output);
        assert_eq!(start.elapsed(), PAUSE * events.len() as u32);
    }
}
