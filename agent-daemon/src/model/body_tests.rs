//! Tests: what becomes of a 200 with another body, and of servers that send without saying anything.

#![allow(clippy::unwrap_used)]

use std::time::Duration;

use tokio::io::AsyncWriteExt;

use super::{
    anthropic_messages,
    formats::FORMATS,
    model_config::ModelConfig,
    openai_completions, openai_responses,
    remote::RemoteModel,
    server_tests::{API, FINISH, STREAM, Server, delta, page, story},
    test_requests::{KEY, http, model_at},
    wire_format::WireFormat,
};

const NOT_AN_ANSWER: &str =
    ". Check that base_url of [providers.p] (URL) is the address of the openai-completions API.";

/// The kind of body that its head names, the body, and what a person is told.
const BODIES: &[(&str, &str, &str)] = &[
    (
        "text/html",
        "<title>Sign in</title>",
        "Malformed: p/m answered with text/html, not with an answer: a web page, “Sign in”",
    ),
    (
        "text/event-stream",
        "\n <!doctype html><h1>Blocked</h1>",
        "Malformed: p/m answered with text/event-stream, not with an answer: a web page, “Blocked”",
    ),
    (
        "text/plain",
        "upstream\u{202e} \u{1b}[31mconnect error for key-0123456789.",
        "Malformed: p/m answered with text/plain, not with an answer: upstream [31mconnect error for [secret]",
    ),
    (
        "text/event-stream",
        "id",
        "Malformed: p/m answered with text/event-stream, not with an answer: id",
    ),
    ("", "no", "Malformed: p/m answered with something, not with an answer: no"),
    (
        "application/json",
        r#"{"status":"ok","version":3}"#,
        r#"Malformed: p/m answered with application/json, not with an answer: {"status":"ok","version":3}"#,
    ),
    (
        "application/json",
        r#"{"choices": [{"#,
        "Malformed: p/m sent a stream that does not follow the openai-completions protocol: an event is no JSON (EOF while parsing an object at line 1 column 14): {\"choices\": [{",
    ),
];

#[tokio::test]
async fn the_words_of_another_body_are_told() {
    for (kind, body, expected) in BODIES {
        let server = Server::start().await;
        let model = server.model();
        let bytes = page("200 OK", &format!("content-type: {kind}\r\n"), body);
        let (said, _) = tokio::join!(story(&model), server.answer(bytes.as_bytes()));
        let said = said.replace(&server.address, "URL");
        assert_eq!(said, format!(" | {expected}{NOT_AN_ANSWER}"), "{kind} {body}");
        assert!(!said.contains(KEY));
    }
}

/// An error object comes with a success, as JSON, as a stream's first event, or instead of a stream.
#[tokio::test]
async fn an_error_object_counts_as_with_its_status() {
    for (error, expected) in [
        (
            r#"{"error":{"type":"overloaded_error","message":"Overloaded"}}"#,
            "Status(529) after 7s: p/m reported a failure in its answer: Overloaded. ",
        ),
        (
            r#"{"error":"no such model"}"#,
            "Provider after 7s: p/m reported a failure in its answer: no such model.",
        ),
        (
            r#"{"detail":"Not Found"}"#,
            "Provider after 7s: p/m reported a failure in its answer: Not Found.",
        ),
        (
            r#"{"code":503,"msg":"busy"}"#,
            "Status(503) after 7s: p/m reported a failure in its answer: busy. ",
        ),
        (
            r#"[{"error":{"code":429,"message":"Quota exceeded"}}]"#,
            "Status(429) after 7s: p/m reported a failure in its answer: Quota exceeded. ",
        ),
        (
            r#"{"error":{"type":"invalid_request_error","message":"prompt is too long: 3 tokens"}}"#,
            "ContextOverflow after 7s: p/m reported a failure in its answer: prompt is too long",
        ),
    ] {
        for api in FORMATS {
            for (kind, body) in [
                ("application/json", error.to_owned()),
                ("text/event-stream", error.to_owned()),
                ("text/plain", format!("\n{error}\n")),
                ("text/event-stream", format!("data: {error}\n\n")),
            ] {
                let server = Server::start().await;
                let model = model_at(api, &server.address, ModelConfig::default());
                let head = format!("content-type: {kind}\r\nretry-after: 7\r\n");
                let bytes = page("200 OK", &head, &body);
                let (said, _) = tokio::join!(story(&model), server.answer(bytes.as_bytes()));
                // A stream's head says nothing about its events.
                let expected = match body.starts_with("data") {
                    true => expected.replace(" after 7s", ""),
                    false => expected.to_owned(),
                };
                assert!(
                    said.starts_with(&format!(" | {expected}")),
                    "{api:?} {kind} {body}: {said}"
                );
            }
        }
    }
}

#[tokio::test]
async fn an_answer_of_another_api_is_named() {
    let completion = r#"{"object":"chat.completion","choices":[{"message":{"content":"hi"},"finish_reason":"stop"}]}"#;
    let message = r#"{"type":"message","role":"assistant","content":[{"type":"text","text":"hi"}],"stop_reason":"end_turn"}"#;
    let response = r#"{"object":"response","status":"completed","output":[{"type":"message","content":[{"type":"output_text","text":"hi"}]}]}"#;
    let ollama = "{\"model\":\"m\",\"message\":{\"content\":\"h\"},\"done\":false}\n{\"model\":\"m\",\"message\":{\"content\":\"i\"},\"done\":true}\n";
    let started = "event: message_start\ndata: {\"type\":\"message_start\",\"message\":{}}\n\ndata: {\"type\":\"message_stop\"}\n\n";
    for (api, body, expected) in [
        (&openai_completions::FORMAT, completion, "text hi | Stop"),
        (&anthropic_messages::FORMAT, message, "text hi | Stop"),
        (&openai_responses::FORMAT, response, "text hi | Stop"),
        (
            &openai_completions::FORMAT,
            message,
            " | Malformed: p/m answered as the anthropic-messages API does. Set `api = \"anthropic-messages\"` in [providers.p], or see that base_url of [providers.p] (URL) is the address of the openai-completions API.",
        ),
        (
            &openai_completions::FORMAT,
            started,
            " | Malformed: p/m answered as the anthropic-messages API does. ",
        ),
        (
            &openai_completions::FORMAT,
            response,
            " | Malformed: p/m answered as the openai-responses API does. ",
        ),
        (
            &anthropic_messages::FORMAT,
            completion,
            " | Malformed: p/m answered as the openai-completions API does. ",
        ),
        (
            &openai_responses::FORMAT,
            completion,
            " | Malformed: p/m answered as the openai-completions API does. ",
        ),
        (
            &openai_completions::FORMAT,
            ollama,
            " | Malformed: p/m answered as Ollama's own API does. Such answers are not understood, or see",
        ),
    ] {
        let server = Server::start().await;
        let model = model_at(api, &server.address, ModelConfig::default());
        let bytes = page("200 OK", "content-type: application/json\r\n", body);
        let (said, _) = tokio::join!(story(&model), server.answer(bytes.as_bytes()));
        let said = said.replace(&server.address, "URL");
        assert!(said.starts_with(expected), "{api:?} {body}: {said}");
    }
}

#[tokio::test]
async fn events_in_lines_of_their_own_are_understood() {
    let server = Server::start().await;
    let model = server.model();
    let body =
        [&delta("o"), &delta("k"), FINISH].concat().replace("data: ", "").replace("\n\n", "\n");
    let bytes = page("200 OK", "content-type: application/x-ndjson\r\n", &body);
    let (said, _) = tokio::join!(story(&model), server.answer(bytes.as_bytes()));
    assert_eq!(said, "text ok | Stop");
}

/// A model whose connections may be silent for a minute.
fn impatient(server: &Server, api: &'static WireFormat) -> RemoteModel {
    let model = model_at(api, &server.address, ModelConfig::default());
    let http = http(Duration::from_secs(60), &|_| None).into();
    RemoteModel { http, ..model }
}

/// Lets a server say something again and again, and tells what came of it and when it ended.
async fn again_and_again(api: &'static WireFormat, first: &str, again: &str) -> (String, Duration) {
    let server = Server::start().await;
    let model = impatient(&server, api);
    let begun = std::sync::OnceLock::new();
    let serve = async {
        let (mut stream, _) = server.accept().await;
        stream.write_all(first.as_bytes()).await.unwrap();
        tokio::time::pause();
        begun.get_or_init(tokio::time::Instant::now);
        loop {
            tokio::time::sleep(Duration::from_secs(40)).await;
            // Some time for the bytes to get across, which the paused clock knows nothing of.
            if stream.write_all(again.as_bytes()).await.is_err() {
                return;
            }
        }
    };
    let said = tokio::select! {
        said = story(&model) => said,
        () = serve => panic!("the server cannot end before the model"),
    };
    let took = begun.get().unwrap().elapsed();
    tokio::time::resume();
    (said.replace(&server.address, "URL"), took)
}

#[tokio::test]
async fn signs_of_life_extend_the_wait_ten_times_and_no_further() {
    let ping = "event: ping\ndata: {\"type\":\"ping\"}\n\n";
    let empty = "data: {\"choices\":[]}\n\n";
    for (api, first, again, said) in [
        (API, STREAM.to_owned(), ": ping\n\n", ""),
        (API, STREAM.to_owned(), empty, ""),
        (API, STREAM.to_owned() + &delta("one"), &delta(""), "text one"),
        (&anthropic_messages::FORMAT, STREAM.to_owned(), ping, ""),
        (API, "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n\r\n".to_owned(), " ", ""),
        (API, "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n\r\n{".to_owned(), " ", ""),
    ] {
        let (told, took) = again_and_again(api, &first, again).await;
        assert_eq!(
            told,
            format!(
                "{said} | Stalled: p/m: not a word arrived from URL for 10 minutes. Try again; if it \
                 stays so, look at the server, or give it longer with `model_idle_timeout_ms` in \
                 [limits]."
            ),
            "{first:?} {again:?}"
        );
        assert!((590..=610).contains(&took.as_secs()), "{took:?}");
    }
}

#[tokio::test]
async fn what_a_model_says_begins_the_wait_anew() {
    let server = Server::start().await;
    let model = impatient(&server, API);
    let serve = async {
        let (mut stream, _) = server.accept().await;
        stream.write_all(STREAM.as_bytes()).await.unwrap();
        tokio::time::pause();
        for number in 0..40 {
            tokio::time::sleep(Duration::from_secs(40)).await;
            let said = if number % 10 == 9 { delta("o") } else { ": ping\n\n".to_owned() };
            stream.write_all(said.as_bytes()).await.unwrap();
        }
        stream.write_all(FINISH.as_bytes()).await.unwrap();
    };
    let (said, ()) = tokio::join!(story(&model), serve);
    assert_eq!(said, "text oooo | Stop");
}

#[tokio::test]
async fn comments_after_a_whole_answer_do_not_hold_it_up() {
    let first = [STREAM, &delta("ok"), FINISH].concat();
    let server = Server::start().await;
    let model = impatient(&server, API);
    let serve = async {
        let (mut stream, _) = server.accept().await;
        stream.write_all(first.as_bytes()).await.unwrap();
        tokio::time::pause();
        loop {
            tokio::time::sleep(Duration::from_secs(2)).await;
            stream.write_all(b": ping\n\n").await.unwrap();
        }
    };
    let begun = tokio::time::Instant::now();
    let said = tokio::select! {
        said = story(&model) => said,
        () = serve => unreachable!(),
    };
    assert_eq!(said, "text ok | Stop");
    assert!(begun.elapsed() < Duration::from_secs(10), "{:?}", begun.elapsed());
}
