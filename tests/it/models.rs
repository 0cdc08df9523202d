//! Contract, 5.7, 5.9 and section 12: models, their failures and retries.

use std::{sync::Arc, time::Duration};

use agent_core::{
    Agent, AgentOptions, Block, BoxFuture, EventKind, Gate, Model, ModelEnd, ModelError,
    ModelErrorKind, ModelEvent, ModelRequest, ModelSink, Step, StopReason, Usage,
};
use support::{Script, ScriptedTool, abort, must, word};
use tokio::time::Instant;

fn error(kind: ModelErrorKind) -> ModelError {
    ModelError::new(kind, "the provider is unwell")
}

fn after(seconds: u64) -> ModelError {
    ModelError {
        retry_after: Some(Duration::from_secs(seconds)),
        ..error(ModelErrorKind::Status(429))
    }
}

// C5.9
#[tokio::test(start_paused = true)]
async fn a_passing_failure_before_any_output_is_retried_with_back_off() {
    let kinds =
        [ModelErrorKind::Connection, ModelErrorKind::Status(503), ModelErrorKind::Status(429)];
    let begun = Instant::now();
    let play = kinds.into_iter().fold(Script::new(), |script, kind| script.fails(error(kind)));
    let play = play.says("at last").play().await;
    assert_eq!(play.last_run(), "stop");
    assert_eq!(
        play.timeline.only(&["turn", "retry", "message"]),
        "turn_start(1) retry(1) retry(2) retry(3) message_start message_end(model) turn_end(1 stop)"
    );
    assert_eq!(play.model.requests().len(), 4);
    let delays: Vec<u64> = play
        .timeline
        .events()
        .iter()
        .filter_map(|event| match event.kind {
            EventKind::Retry { delay_ms, .. } => Some(delay_ms),
            _ => None,
        })
        .collect();
    // Each doubles, less up to half of it.
    for (delay, full) in delays.iter().zip([1000, 2000, 4000]) {
        assert!((full / 2..=full).contains(delay), "{delays:?}");
    }
    let waited = begun.elapsed().as_millis() as u64;
    assert!((delays.iter().sum::<u64>()..delays.iter().sum::<u64>() + 10).contains(&waited));
    assert_eq!(play.transcript(), r#"user "go" | assistant[stop] "at last""#);
}

// C5.9
#[tokio::test(start_paused = true)]
async fn retries_come_to_an_end_and_each_turn_has_its_own() {
    let failing = |script: Script, times| {
        (0..times).fold(script, |script, _| script.fails(error(ModelErrorKind::Connection)))
    };
    let play = failing(Script::new(), 4).says("never").play().await;
    assert_eq!(play.last_run(), "error: the provider is unwell (gave up after 3 retries)");
    assert_eq!(play.model.requests().len(), 4);
    let script = failing(Script::new(), 3).calls([("a", "work")]).tool(ScriptedTool::new("work"));
    let play = failing(script, 3).says("done").play().await;
    assert_eq!(play.last_run(), "stop");
}

// C5.9
#[tokio::test(start_paused = true)]
async fn what_does_not_pass_is_not_retried() {
    for kind in [
        ModelErrorKind::Status(400),
        ModelErrorKind::Status(401),
        ModelErrorKind::ContextOverflow,
        ModelErrorKind::Malformed,
        ModelErrorKind::Unsupported,
        ModelErrorKind::Provider,
    ] {
        let play = Script::new().fails(error(kind)).says("never").play().await;
        assert_eq!(play.last_run(), "error: the provider is unwell");
        assert_eq!(play.model.requests().len(), 1);
    }
}

// C5.9
#[tokio::test(start_paused = true)]
async fn after_any_output_nothing_is_retried() {
    let lost = || Step::Fail(error(ModelErrorKind::Connection));
    let thought = Step::Event(ModelEvent::Thinking { index: 0, delta: "hm".into() });
    let signed = Step::Event(ModelEvent::ThinkingSignature { index: 0, signature: "s".into() });
    for (output, text) in
        [(Step::text("x"), "x"), (thought, ""), (signed, ""), (Step::call(0, "a", "work", ""), "")]
    {
        let play = Script::new().answers([output, lost()]).says("never").play().await;
        assert_eq!(play.last_run(), "error: the provider is unwell");
        assert_eq!(play.model.requests().len(), 1);
        assert_eq!(play.agent.snapshot().state.messages.last().unwrap().text(), text);
    }
    // A delta without anything in it is no output.
    let play = Script::new().answers([Step::text(""), lost()]).says("at last").play().await;
    assert_eq!(play.last_run(), "stop");
}

// C5.9
#[tokio::test(start_paused = true)]
async fn retry_after_is_honoured() {
    let begun = Instant::now();
    let play = Script::new().fails(after(17)).says("at last").play().await;
    assert_eq!(play.last_run(), "stop");
    let waited = begun.elapsed();
    assert!(waited >= Duration::from_secs(17) && waited < Duration::from_secs(18), "{waited:?}");
}

// C5.9
#[tokio::test(start_paused = true)]
async fn a_retry_after_beyond_the_longest_delay_fails_at_once_and_says_when() {
    let begun = Instant::now();
    let play = Script::new().fails(after(3600)).says("never").play().await;
    assert!(begun.elapsed() < Duration::from_secs(1));
    assert!(play.last_run().contains("3600 s"), "{}", play.last_run());
    assert_eq!(play.timeline.only(&["retry"]), "");
}

// C5.9
#[tokio::test(start_paused = true)]
async fn abort_ends_the_wait_for_a_retry_at_once() {
    for in_listener in [true, false] {
        let script = Script::new().fails(after(29)).says("never");
        let play = match in_listener {
            true => script.on("retry", abort()).stage(),
            false => script.stage(),
        };
        let begun = Instant::now();
        let run = play.prompt("go");
        play.timeline.reached("retry").await;
        if !in_listener {
            tokio::time::sleep(Duration::from_secs(1)).await;
            play.agent.abort(None).unwrap();
        }
        must(run).await.unwrap();
        play.settle().await;
        assert!(begun.elapsed() < Duration::from_secs(2));
        assert_eq!(play.last_run(), "aborted");
        assert_eq!(play.model.requests().len(), 1);
    }
}

// C5.9
#[tokio::test(start_paused = true)]
async fn a_wait_longer_than_the_clock_can_tell_is_no_panic() {
    let play = Script::new()
        .fails(ModelError { retry_after: Some(Duration::MAX), ..after(0) })
        .with(|options| {
            options.retry.max_delay = Duration::MAX;
            options.limits.abort_grace = Duration::MAX;
            options.limits.idle_timeout = Duration::MAX;
        })
        .on("retry", |agent| drop(agent.steer("now").unwrap()))
        .stage();
    let run = play.prompt("go");
    play.timeline.reached("queue_update").await;
    play.agent.abort(None).unwrap();
    must(run).await.unwrap();
    play.settle().await;
    assert_eq!(play.last_run(), "aborted");
}

// C5.7
#[tokio::test(start_paused = true)]
async fn a_model_that_is_silent_for_too_long_has_failed() {
    let begun = Instant::now();
    let play = Script::new().answers([Step::text("x"), Step::Hang]).stage();
    let run = play.prompt("go");
    let result = run.await.unwrap();
    assert_eq!(begun.elapsed().as_secs(), 300);
    assert!(result.error_message.unwrap().contains("nothing for 300 s"));
    play.settle().await;
    assert_eq!(play.transcript(), r#"user "go" | assistant[error] "x""#);
    let play = Script::new()
        .answers([Step::Hang])
        .with(|options| options.limits.idle_timeout = Duration::from_secs(2))
        .play()
        .await;
    assert!(play.last_run().contains("nothing for 2 s"), "{}", play.last_run());
}

// C5.7
#[tokio::test(start_paused = true)]
async fn the_time_that_listeners_take_is_not_the_models_silence() {
    let play = Script::new()
        .answers([Step::text("x"), Step::text("y")])
        .with(|options| options.limits.idle_timeout = Duration::from_secs(2))
        .stage();
    play.agent.subscribe(|event, _| async move {
        if word(&event) == "text_delta" {
            tokio::time::sleep(Duration::from_secs(10)).await;
        }
        Ok(())
    });
    play.run("go").await;
    assert_eq!(play.last_run(), "stop");
}

/// A model made of a closure.
struct Made<F>(F);

impl<F, Fut> Model for Made<F>
where
    F: Fn(ModelRequest, ModelSink) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<ModelEnd, ModelError>> + Send + 'static,
{
    fn name(&self) -> &str {
        "made/model"
    }

    fn respond<'a>(
        &'a self,
        request: ModelRequest,
        sink: ModelSink,
    ) -> BoxFuture<'a, Result<ModelEnd, ModelError>> {
        Box::pin((self.0)(request, sink))
    }
}

fn end() -> ModelEnd {
    ModelEnd { stop_reason: StopReason::Stop, usage: Usage::default() }
}

fn text(delta: &str) -> ModelEvent {
    ModelEvent::Text { index: 0, delta: delta.to_owned() }
}

fn made<F, Fut>(model: F) -> Script
where
    F: Fn(ModelRequest, ModelSink) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<ModelEnd, ModelError>> + Send + 'static,
{
    Script::new().with(|options| options.model = Arc::new(Made(model)))
}

// C5.7
#[tokio::test]
async fn a_sink_kept_and_used_after_the_end_says_that_nobody_listens() {
    // There is no way to end twice or not at all: the end is what `respond` returns. What is left
    // is to go on after it.
    let closed = Gate::new();
    let seen = closed.clone();
    let play = made(move |_, sink| {
        let seen = seen.clone();
        async move {
            sink.send(text("one")).await?;
            tokio::spawn(async move {
                while sink.send(text("late")).await.is_ok() {}
                seen.release();
            });
            Ok(end())
        }
    })
    .play()
    .await;
    must(closed.pass()).await;
    assert_eq!(play.last_run(), "stop");
    let said = play.agent.snapshot().state.messages.last().unwrap().text();
    assert!(said.starts_with("one"), "{said}");
    play.run("again").await;
}

fn thought(delta: &str) -> Step {
    Step::Event(ModelEvent::Thinking { index: 0, delta: delta.to_owned() })
}

// C5.9
#[tokio::test(start_paused = true)]
async fn an_answer_with_nothing_in_it_is_asked_for_once_more() {
    let signed = Step::Event(ModelEvent::ThinkingSignature { index: 0, signature: "s".into() });
    let cost = Usage { input: 1, output: 2, cache_read: 3, cache_write: 4 };
    for empty in [vec![], vec![thought("hm"), signed], vec![Step::text(" \n")]] {
        let before = if empty.is_empty() { "retry(1)" } else { "message_start retry(1)" };
        let empty = empty.into_iter().chain([Step::End(StopReason::Stop, cost)]);
        let so = ModelEvent::Thinking { index: 1, delta: "so".to_owned() };
        let end = Step::End(StopReason::Stop, cost);
        let answer = [Step::Event(so), Step::text("here"), end];
        let play = Script::new().answers(empty).answers(answer).play().await;
        assert_eq!(
            play.timeline.only(&["turn", "retry", "message"]),
            format!("turn_start(1) {before} message_start message_end(model) turn_end(1 stop)")
        );
        let state = play.agent.snapshot().state;
        let so = Block::Thinking { thinking: "so".into(), signature: None };
        assert_eq!(state.messages.last().unwrap().content(), [so, Block::text("here")]);
        assert_eq!((state.usage.output, play.last_run().as_str()), (4, "stop"), "both cost");
    }
}

// C5.9, C4.4
#[tokio::test(start_paused = true)]
async fn thoughts_that_came_to_nothing_are_not_shown_beside_the_next() {
    let gate = Gate::new();
    let here = ModelEvent::Text { index: 1, delta: "here".into() };
    let play = Script::new()
        .answers([thought("hm")])
        .answers([thought("so"), Step::Gate(gate.clone()), Step::Event(here)])
        .stage();
    let run = play.prompt("go");
    play.timeline.reached("retry").await;
    assert_eq!(play.agent.snapshot().state.partial, None);
    must(gate.reached()).await;
    let partial = serde_json::to_value(play.agent.snapshot().state.partial).unwrap();
    assert_eq!(partial["content"], serde_json::json!([{ "type": "thinking", "thinking": "so" }]));
    gate.release();
    must(run).await.unwrap();
    play.settle().await;
}

// C5.9
#[tokio::test(start_paused = true)]
async fn a_model_that_goes_on_saying_nothing_has_failed() {
    let play = Script::new().answers([]).answers([thought("hm")]).says("never").play().await;
    assert_eq!(
        play.last_run(),
        "error: scripted/model thought, but then said nothing: its answer ended without text or a \
         tool call. Try again, or choose another model. (gave up after 1 retry)"
    );
    assert_eq!(play.model.requests().len(), 2);
    assert_eq!(play.transcript(), r#"user "go" | assistant[error] * """#);
    // Beside the repetitions of what failed; and not at all where nothing is repeated.
    let lost = || error(ModelErrorKind::Connection);
    let play = Script::new().fails(lost()).fails(lost()).answers([]).says("at last").play().await;
    assert_eq!(play.last_run(), "stop");
    let play = Script::new()
        .answers([])
        .says("never")
        .with(|options| options.retry.max_retries = 0)
        .play()
        .await;
    assert!(play.last_run().starts_with("error: scripted/model said nothing: "));
    // Also after the results of tools, where some models have nothing to add.
    let script = Script::new().calls([("a", "work")]).tool(ScriptedTool::new("work"));
    let play = script.answers([]).answers([]).says("never").play().await;
    assert!(play.last_run().starts_with("error: scripted/model said nothing: "));
    assert!(play.transcript().contains(r#"result a "work done" | assistant[error]"#));
}

// C5.9
#[tokio::test(start_paused = true)]
async fn an_abort_in_the_wait_after_an_empty_answer_ends_it() {
    let play = Script::new().answers([thought("hm")]).says("never").stage();
    let run = play.prompt("go");
    play.timeline.reached("retry").await;
    play.agent.abort(None).unwrap();
    must(run).await.unwrap();
    play.settle().await;
    assert_eq!(play.transcript(), r#"user "go" | assistant[aborted] """#);
}

// C5.10
#[tokio::test]
async fn an_answer_cut_while_it_was_still_thinking_says_so() {
    let cut = Step::End(StopReason::Length, Usage::default());
    let play = Script::new().answers([thought("hm"), cut]).says("never").play().await;
    assert_eq!(play.last_run(), "length");
}

// C5.7
#[tokio::test]
async fn an_answer_that_is_too_long_ends_as_an_error_that_keeps_what_came() {
    let dropped = Gate::new();
    let seen = dropped.clone();
    let play = made(move |_, sink| {
        // Tells when the request is dropped.
        let guard = OnDrop(seen.clone());
        async move {
            let _guard = guard;
            let (id, name, delta) = ("a".into(), "work".into(), "{".into());
            sink.send(ModelEvent::ToolCall { index: 1, id, name, delta }).await?;
            loop {
                sink.send(text("0123456")).await?;
            }
        }
    })
    .with(|options| options.limits.max_answer_bytes = 100)
    .tool(ScriptedTool::new("work"))
    .play()
    .await;
    assert_eq!(
        play.last_run(),
        "error: made/model was stopped: its answer is longer than 100 bytes (max_answer_bytes)"
    );
    // Six bytes are the call's, which never ran.
    let state = play.agent.snapshot().state;
    let said = "0123456".repeat(20)[..94].to_owned();
    assert_eq!(state.messages.last().unwrap().content(), [Block::text(said)]);
    let times = play.timeline.only(&["message", "retry", "run_end"]);
    assert_eq!(times, "message_start message_end(model) run_end(1 error)");
    must(dropped.pass()).await;
}

struct OnDrop(Gate);

impl Drop for OnDrop {
    fn drop(&mut self) {
        self.0.release();
    }
}

// C5.7
#[tokio::test]
async fn an_answer_has_sixteen_mebibytes_at_most_unless_told_otherwise() {
    let play = made(|_, sink| async move {
        loop {
            let delta = "x".repeat(1 << 20);
            sink.send(ModelEvent::Thinking { index: 0, delta }).await?;
        }
    })
    .play()
    .await;
    assert!(play.last_run().contains("longer than 16777216 bytes"), "{}", play.last_run());
}

// C5.7
#[tokio::test(start_paused = true)]
async fn events_without_anything_new_are_silence() {
    let (id, name, delta) = (String::new(), "work".to_owned(), String::new());
    for nothing in [text(""), ModelEvent::ToolCall { index: 0, id, name, delta }] {
        let begun = Instant::now();
        let play = made(move |_, sink| {
            let nothing = nothing.clone();
            async move {
                loop {
                    sink.send(nothing.clone()).await?;
                    tokio::time::sleep(Duration::from_secs(100)).await;
                }
            }
        })
        .tool(ScriptedTool::new("work"))
        .stage();
        let error = play.prompt("go").await.unwrap().error_message.unwrap();
        assert!(error.contains("nothing for 300 s"), "{error}");
        assert_eq!(begun.elapsed().as_secs(), 300);
        play.settle().await;
    }
}

// C5.7
#[tokio::test]
async fn a_model_that_floods_waits_for_the_listeners_and_ends_with_an_abort() {
    let sent = Arc::new(std::sync::atomic::AtomicU64::new(0));
    let count = sent.clone();
    let play = made(move |_, sink| {
        let count = count.clone();
        async move {
            loop {
                sink.send(text("x")).await?;
                count.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
            }
        }
    })
    .stage();
    let gate = Gate::new();
    let slow = gate.clone();
    let times = std::sync::atomic::AtomicU32::new(0);
    play.agent.subscribe(move |event, _| {
        let is_late = word(&event) == "text_delta"
            && times.fetch_add(1, std::sync::atomic::Ordering::Relaxed) == 500;
        let slow = slow.clone();
        async move {
            if is_late {
                slow.pass().await;
            }
            Ok(())
        }
    });
    let run = play.prompt("go");
    must(gate.reached()).await;
    for _ in 0..1000 {
        tokio::task::yield_now().await;
    }
    let ahead = sent.load(std::sync::atomic::Ordering::Relaxed) - 500;
    assert!(ahead <= 66, "{ahead} events ahead of the listeners");
    gate.release();
    play.agent.abort(None).unwrap();
    must(run).await.unwrap();
    play.settle().await;
    assert_eq!(play.last_run(), "aborted");
}

// C5.7
#[tokio::test]
async fn a_stop_reason_that_the_calls_belie_does_not_count() {
    let stop = Step::End(StopReason::Stop, Usage::default());
    let tool_use = Step::End(StopReason::ToolUse, Usage::default());
    let failed = Step::End(StopReason::Error, Usage::default());
    let play = Script::new()
        .answers([Step::call(0, "a", "work", "{}"), stop])
        .answers([Step::text("one"), tool_use])
        .answers([Step::text("two"), failed])
        .tool(ScriptedTool::new("work"))
        .stage();
    play.run("go").await;
    play.run("again").await;
    assert_eq!(
        play.transcript(),
        r#"user "go" | assistant[toolUse] "" +a | result a "work done" | assistant[stop] "one" | user "again" | assistant[stop] "two""#
    );
}

// C5.7
#[tokio::test]
async fn blocks_keep_the_order_in_which_they_began_whatever_their_numbers() {
    let event = Step::Event;
    let play = Script::new()
        .answers([
            event(ModelEvent::Thinking { index: 9, delta: "h".into() }),
            event(ModelEvent::Text { index: 2, delta: "one".into() }),
            event(ModelEvent::Thinking { index: 9, delta: "m".into() }),
            event(ModelEvent::ThinkingSignature { index: 9, signature: "proof".into() }),
            event(ModelEvent::Text { index: 2, delta: " two".into() }),
            // The number of a thought, used for text: another block.
            event(ModelEvent::Text { index: 9, delta: "three".into() }),
        ])
        .play()
        .await;
    let messages = play.agent.snapshot().state.messages;
    let thought = Block::Thinking { thinking: "hm".into(), signature: Some("proof".into()) };
    let content = [thought, Block::text("one two"), Block::text("three")];
    assert_eq!(messages.last().unwrap().content(), content);
    let indices: Vec<u32> = play
        .timeline
        .events()
        .iter()
        .filter_map(|event| match event.kind {
            EventKind::TextDelta { content_index, .. }
            | EventKind::ThinkingDelta { content_index, .. } => Some(content_index),
            _ => None,
        })
        .collect();
    assert_eq!(indices, [0, 1, 0, 1, 2]);
}

// C5.7
#[tokio::test]
async fn usage_adds_up_over_turns_and_runs() {
    let usage = Usage { input: 1, output: 2, cache_read: 3, cache_write: 4 };
    let stop = |reason| Step::End(reason, usage);
    let play = Script::new()
        .answers([Step::call(0, "a", "work", "{}"), stop(StopReason::ToolUse)])
        .answers([Step::text("one"), stop(StopReason::Stop)])
        .answers([Step::text("two"), stop(StopReason::Stop)])
        .tool(ScriptedTool::new("work"))
        .stage();
    assert_eq!(play.run("go").await.usage.output, 4);
    assert_eq!(play.run("again").await.usage.output, 2);
    assert_eq!(
        play.agent.snapshot().state.usage,
        Usage { input: 3, output: 6, cache_read: 9, cache_write: 12 }
    );
}

// 12
#[tokio::test]
async fn a_model_is_given_the_system_prompt_the_messages_the_tools_the_level_and_the_token() {
    let play = Script::new()
        .says("one")
        .tool(ScriptedTool::new("work"))
        .with(|options| {
            options.system_prompt = "be brief".into();
            options.thinking_level = agent_core::ThinkingLevel::Low;
        })
        .play()
        .await;
    let request = &play.model.requests()[0];
    assert_eq!((&*request.system_prompt, request.messages.len()), ("be brief", 1));
    assert_eq!((request.tools.len(), request.thinking_level), (1, agent_core::ThinkingLevel::Low));
    assert!(!request.signal.is_cancelled());
}

// 12
#[tokio::test]
async fn a_change_of_settings_during_a_turn_takes_effect_at_the_next() {
    let other = agent_core::ScriptedModel::new().says("from the other");
    let next = other.clone();
    let play = Script::new()
        .calls([("a", "work")])
        .tool(ScriptedTool::new("work"))
        .on("message_start", move |agent| {
            let change = agent_core::SettingsChange {
                model: Some(Arc::new(next.clone())),
                tools: Some(Vec::new()),
                ..Default::default()
            };
            agent.configure(change);
        })
        .play()
        .await;
    // The turn under way still has its tools.
    assert!(
        play.transcript().contains(r#"result a "work done" | assistant[stop] "from the other""#)
    );
    assert_eq!(other.requests()[0].tools.len(), 0);
}

// 12
#[tokio::test]
async fn a_change_that_changes_nothing_is_no_event() {
    let play = Script::new().stage();
    let max_turns = Some(0);
    play.agent.configure(agent_core::SettingsChange { max_turns, ..Default::default() });
    assert_eq!(play.agent.seq(), 0);
}

// 12
#[tokio::test]
async fn ids_go_on_from_those_of_a_given_transcript() {
    let play = Script::new().says("one").stage();
    play.run("go").await;
    let mut options = AgentOptions::new(agent_core::ScriptedModel::new().says("two"));
    options.messages = play.agent.snapshot().state.messages;
    let agent = Agent::new(options);
    let result = agent.prompt("again").unwrap().await.unwrap();
    let ids: Vec<&str> = result.messages.iter().map(|message| &**message.id()).collect();
    assert_eq!(ids, ["m1", "m2", "m3", "m4"]);
}
