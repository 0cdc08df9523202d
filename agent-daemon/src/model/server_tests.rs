//! Tests: requests against a local server that does exactly what each test says, byte by byte.

#![allow(clippy::unwrap_used)]

use std::{sync::Arc, time::Duration};

use agent_core::{
    Agent, AgentOptions, Block, EndReason, EventKind, Model, ModelRequest, Subscription, collect,
};
use futures_util::FutureExt;
use rustls::pki_types::PrivatePkcs8KeyDer;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    sync::Notify,
};

use super::{
    anthropic_messages,
    model_config::ModelConfig,
    openai_completions, openai_responses,
    recorded::{fixture, told},
    remote::RemoteModel,
    test_requests::{KEY, http, model_at, request},
    test_transcripts::{image, text, user},
    wire_format::WireFormat,
};

pub(super) const API: &WireFormat = &openai_completions::FORMAT;

/// A server with one connection at a time, in the hands of a test.
pub(super) struct Server {
    listener: TcpListener,
    pub(super) address: String,
}

impl Server {
    pub(super) async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = format!("http://{}/v1", listener.local_addr().unwrap());
        Server { listener, address }
    }

    pub(super) fn model(&self) -> RemoteModel {
        model_at(API, &self.address, ModelConfig::default())
    }

    /// The next request, head and body.
    pub(super) async fn accept(&self) -> (TcpStream, String) {
        let (mut stream, _) = self.listener.accept().await.unwrap();
        let mut received = Vec::new();
        loop {
            let text = String::from_utf8_lossy(&received).into_owned();
            if let Some((head, body)) = text.split_once("\r\n\r\n") {
                let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
                if body.len() >= length.unwrap().parse::<usize>().unwrap() {
                    return (stream, text);
                }
            }
            assert_ne!(stream.read_buf(&mut received).await.unwrap(), 0, "{text}");
        }
    }

    /// Answers one request with these bytes, then closes.
    pub(super) async fn answer(&self, bytes: &[u8]) -> String {
        let (mut stream, request) = self.accept().await;
        stream.write_all(bytes).await.unwrap();
        request
    }
}

fn hello() -> ModelRequest {
    request([user([text("hi")])])
}

/// What a model says, then how it ends or fails.
pub(super) async fn story(model: &dyn Model) -> String {
    let (events, end) = collect(model, hello()).await;
    let end = match end {
        Ok(end) => format!("{:?}", end.stop_reason),
        Err(error) => {
            assert!(!error.message.contains(KEY), "{}", error.message);
            let after = error.retry_after.map(|delay| format!(" after {delay:?}"));
            format!("{:?}{}: {}", error.kind, after.unwrap_or_default(), error.message)
        }
    };
    told(&events, &end)
}

/// An agent that tells when its model has said something.
struct Watched {
    agent: Agent,
    said_something: Arc<Notify>,
    _subscription: Subscription,
}

impl Watched {
    fn new(model: RemoteModel) -> Self {
        let mut options = AgentOptions::new(model);
        options.retry.max_retries = 0;
        let agent = Agent::new(options);
        let said_something = Arc::new(Notify::new());
        let notify = said_something.clone();
        let subscription = agent.subscribe(move |event, _| {
            if matches!(event.kind, EventKind::TextDelta { .. }) {
                notify.notify_one();
            }
            async { Ok(()) }
        });
        Watched { agent, said_something, _subscription: subscription }
    }
}

pub(super) fn page(status: &str, headers: &str, body: &str) -> String {
    format!("HTTP/1.1 {status}\r\n{headers}content-length: {}\r\n\r\n{body}", body.len())
}

pub(super) fn delta(text: &str) -> String {
    format!("data: {{\"choices\":[{{\"index\":0,\"delta\":{{\"content\":\"{text}\"}}}}]}}\n\n")
}

pub(super) const FINISH: &str =
    "data: {\"choices\":[{\"index\":0,\"delta\":{},\"finish_reason\":\"stop\"}]}\n\n";

pub(super) const STREAM: &str =
    "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n";

#[tokio::test]
async fn a_request_carries_the_key() {
    let server = Server::start().await;
    let model = server.model();
    let bytes = [STREAM, &delta("ok"), FINISH].concat();
    let (said, request) = tokio::join!(story(&model), server.answer(bytes.as_bytes()));
    assert_eq!(said, "text ok | Stop");
    let (head, body) = request.split_once("\r\n\r\n").unwrap();
    assert!(head.starts_with("POST /v1/chat/completions HTTP/1.1\r\n"), "{head}");
    assert!(head.contains(&format!("authorization: Bearer {KEY}")), "{head}");
    let body: serde_json::Value = serde_json::from_str(body).unwrap();
    assert_eq!(body["messages"][0]["content"], "hi");
}

#[tokio::test]
async fn recorded_bytes_arrive_through_chunks_of_any_size() {
    for (api, path) in [
        (&openai_completions::FORMAT, "openai-compatible/tool-parallel-calls.sse"),
        (&anthropic_messages::FORMAT, "anthropic/text-then-tool.sse"),
        (&openai_responses::FORMAT, "openai-responses/text.sse"),
    ] {
        let recorded = fixture(path);
        for size in [1, 3, 100, 100_000] {
            let server = Server::start().await;
            let model = model_at(api, &server.address, ModelConfig::default());
            let serve = async {
                let (mut stream, _) = server.accept().await;
                let mut bytes = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\
                                  Transfer-Encoding: chunked\r\n\r\n"
                    .to_vec();
                for chunk in recorded.chunks(size) {
                    bytes.extend_from_slice(format!("{:x}\r\n", chunk.len()).as_bytes());
                    bytes.extend_from_slice(chunk);
                    bytes.extend_from_slice(b"\r\n");
                }
                bytes.extend_from_slice(b"0\r\n\r\n");
                // The client is done with the stream's last event, and may hang up before this.
                let _ = stream.write_all(&bytes).await;
            };
            let (said, ()) = tokio::join!(story(&model), serve);
            let whole = super::recorded::decoded(api, [recorded.as_slice()]);
            assert!(whole.starts_with(&said), "{path} in chunks of {size}: {said}");
        }
    }
}

/// What a server answers, and what a person is told.
const PAGES: &[(&str, &str, &str, &str)] = &[
    (
        "400 Bad Request",
        "x-request-id: r-1\r\n",
        r#"{"error":{"code":400,"message":"Invalid tool_choice: sometimes","type":"invalid_request_error"}}"#,
        "Status(400): p/m answered 400 Bad Request: Invalid tool_choice: sometimes. (request r-1)",
    ),
    (
        "400 Bad Request",
        "",
        r#"{"error":{"code":400,"message":"request (9021 tokens) exceeds the available context size (8192 tokens), try increasing it","type":"exceed_context_size_error"}}"#,
        "ContextOverflow: p/m answered 400 Bad Request: request (9021 tokens) exceeds the available \
         context size (8192 tokens), try increasing it. The conversation does not fit the model's \
         context window any more: reset the session, send less, or choose a model with a larger window.",
    ),
    (
        "401 Unauthorized",
        "",
        r#"{"error":{"message":"Incorrect API key provided: key-0123456789, or sk-aaaaaaaaaaaaaaaaaaaa","type":"invalid_request_error"}}"#,
        "Status(401): p/m answered 401 Unauthorized: Incorrect API key provided: [secret], or \
         sk-[secret]. Check the key in the environment variable P_KEY.",
    ),
    (
        "403 Forbidden",
        "",
        r#"{"error":"no"}"#,
        "Status(403): p/m answered 403 Forbidden: no. Check that the key in the environment variable \
         P_KEY may use this model.",
    ),
    (
        "404 Not Found",
        "",
        r#"{"detail":"Not Found"}"#,
        "Status(404): p/m answered 404 Not Found: Not Found. Check the model's name. Check that \
         base_url of [providers.p] (URL) is the address of the openai-completions API.",
    ),
    (
        "429 Too Many Requests",
        "retry-after: 7\r\n",
        r#"{"error":{"message":"Rate limit reached for tokens per minute: maximum context length"}}"#,
        "Status(429) after 7s: p/m answered 429 Too Many Requests: Rate limit reached for tokens per \
         minute: maximum context length. Too many requests: wait and try again.",
    ),
    (
        "429 Too Many Requests",
        "date: Thu, 29 Feb 2024 23:59:50 GMT\r\nretry-after: Fri, 01 Mar 2024 00:00:05 GMT\r\n",
        "",
        "Status(429) after 15s: p/m answered 429 Too Many Requests. Too many requests: wait and try again.",
    ),
    (
        "429 Too Many Requests",
        "retry-after-ms: 250\r\nretry-after: 1\r\n",
        "slow\r\ndown",
        "Status(429) after 250ms: p/m answered 429 Too Many Requests: slow down. Too many requests: \
         wait and try again.",
    ),
    (
        "429 Too Many Requests",
        "",
        r#"[{"error":{"code":429,"message":"Quota exceeded","details":[{"retryDelay":"34s"}]}}]"#,
        "Status(429) after 34s: p/m answered 429 Too Many Requests: Quota exceeded. Too many \
         requests: wait and try again.",
    ),
    (
        "429 Too Many Requests",
        "",
        r#"{"error":{"message":"You exceeded your current quota","type":"insufficient_quota","code":"insufficient_quota"}}"#,
        "Provider: p/m answered 429 Too Many Requests: You exceeded your current quota. The \
         account's quota is used up: check its plan and billing.",
    ),
    (
        "500 Internal Server Error",
        "content-type: text/html\r\n",
        "<html><head><title>Oops</title></head><body>key-0123456789</body></html>",
        "Status(500): p/m answered 500 Internal Server Error: a web page, “Oops”. This often passes: \
         try again.",
    ),
    (
        "503 Service Unavailable",
        "",
        r#"{"error":{"message":"Loading model","type":"unavailable_error","code":503}}"#,
        "Status(503): p/m answered 503 Service Unavailable: Loading model. The server is busy or \
         starting: wait and try again.",
    ),
    (
        "529",
        "",
        r#"{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}"#,
        "Status(529): p/m answered 529 Overloaded: Overloaded. The server is busy or starting: wait \
         and try again.",
    ),
    (
        "308 Permanent Redirect",
        "location: https://elsewhere.example/v1\r\n",
        "",
        "Status(308): p/m answered 308 Permanent Redirect. It redirects to \
         https://elsewhere.example/v1: set the final address in base_url of [providers.p].",
    ),
    (
        "200 OK",
        "content-type: text/html; charset=utf-8\r\n",
        "<!doctype html><title>Sign in</title>",
        "Malformed: p/m answered with text/html, not with an answer: a web page, “Sign in”. Check \
         that base_url of [providers.p] (URL) is the address of the openai-completions API.",
    ),
    (
        "200 OK",
        "content-type: application/json\r\n",
        r#"{"error":{"message":"no such model","code":404}}"#,
        "Status(404): p/m reported a failure in its answer: no such model. Check the model's name. \
         Check that base_url of [providers.p] (URL) is the address of the openai-completions API.",
    ),
    (
        "200 OK",
        "content-type: text/event-stream\r\n",
        "data: {broken\n\n",
        "Malformed: p/m sent a stream that does not follow the openai-completions protocol: an event \
         is no JSON (key must be a string at line 1 column 2): {broken. Check that base_url of \
         [providers.p] (URL) is the address of the openai-completions API.",
    ),
    (
        "200 OK",
        "content-type: text/event-stream\r\n",
        "data: {\"error\":{\"message\":\"CUDA out of memory\"}}\n\n",
        "Provider: p/m reported a failure in its answer: CUDA out of memory.",
    ),
];

#[tokio::test]
async fn failures_say_who_what_and_what_to_do() {
    for (status, headers, body, expected) in PAGES {
        let server = Server::start().await;
        let model = server.model();
        let bytes = page(status, headers, body);
        let (said, _) = tokio::join!(story(&model), server.answer(bytes.as_bytes()));
        let said = said.replace(&server.address, "URL");
        assert_eq!(said, format!(" | {expected}"), "{status}");
    }
}

#[tokio::test]
async fn recorded_refusals_keep_their_kind() {
    for (api, path, status, expected) in [
        (API, "openai-compatible/error-unauthorized.json", "401 Unauthorized", "Status(401)"),
        (API, "openai-compatible/error-loading.json", "503 Service Unavailable", "Status(503)"),
        (API, "openai-compatible/error-no-messages.json", "400 Bad Request", "Status(400)"),
        (
            API,
            "openai-compatible/error-context-exceeded.json",
            "400 Bad Request",
            "ContextOverflow",
        ),
        (
            &anthropic_messages::FORMAT,
            "anthropic/error-context-exceeded.json",
            "400 Bad Request",
            "ContextOverflow",
        ),
        (
            &anthropic_messages::FORMAT,
            "anthropic/error-no-messages.json",
            "500 Error",
            "Status(500)",
        ),
        (
            &anthropic_messages::FORMAT,
            "anthropic/error-unauthorized.json",
            "401 Unauthorized",
            "Status(401)",
        ),
    ] {
        let server = Server::start().await;
        let model = model_at(api, &server.address, ModelConfig::default());
        let body = String::from_utf8(fixture(path)).unwrap();
        let bytes = page(status, "", &body);
        let ((_, end), _) = tokio::join!(collect(&model, hello()), server.answer(bytes.as_bytes()));
        assert_eq!(format!("{:?}", end.unwrap_err().kind), expected, "{path}");
    }
}

#[tokio::test]
async fn an_endless_error_page_is_cut() {
    let server = Server::start().await;
    let model = server.model();
    let flood = async {
        let (mut stream, _) = server.accept().await;
        stream.write_all(b"HTTP/1.1 500 Oops\r\n\r\n").await.unwrap();
        // Ends when the client has had enough.
        while stream.write_all(&[b'x'; 4096]).await.is_ok() {}
    };
    let (said, ()) = tokio::join!(story(&model), flood);
    assert!(
        said.starts_with(" | Status(500): p/m answered 500 Internal Server Error: xxx"),
        "{said}"
    );
    assert!(said.len() < 1000);
}

#[tokio::test]
async fn a_refused_connection_asks_whether_the_server_runs() {
    let server = Server::start().await;
    let (model, address) = (server.model(), server.address.clone());
    drop(server);
    assert_eq!(
        story(&model).await.replace(&address, "URL"),
        " | Connection: p/m: cannot connect to URL: Connection refused (os error 111). Is the server \
         running there? base_url of [providers.p] says where it is."
    );
}

#[tokio::test]
async fn https_to_a_plain_port_is_named_as_such() {
    let server = Server::start().await;
    let address = server.address.replace("http:", "https:");
    let model = model_at(API, &address, ModelConfig::default());
    let serve = async {
        let (mut stream, _) = server.listener.accept().await.unwrap();
        stream.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n").await.unwrap();
        stream.read_u8().await.unwrap();
    };
    let (said, ()) = tokio::join!(story(&model), serve);
    let said = said.replace(&address, "URL");
    assert!(said.starts_with(" | Connection: p/m: no secure connection to URL: "), "{said}");
    assert!(said.contains("Check that base_url of [providers.p] begins with"), "{said}");
}

/// What no second attempt would change is not taken for a lost connection, which is tried again.
#[tokio::test]
async fn a_certificate_that_nobody_trusts_is_named_as_such() {
    let read = |name: &str| {
        std::fs::read([env!("CARGO_MANIFEST_DIR"), "/../tests/fixtures/tls/", name].concat())
    };
    let certificate = read("certificate.der").unwrap().into();
    let key = PrivatePkcs8KeyDer::from(read("key.der").unwrap()).into();
    let _ = rustls::crypto::ring::default_provider().install_default();
    let config = rustls::ServerConfig::builder()
        .with_no_client_auth()
        .with_single_cert(vec![certificate], key)
        .unwrap();
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!("https://localhost:{}/v1", listener.local_addr().unwrap().port());
    let server = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut connection = rustls::ServerConnection::new(Arc::new(config)).unwrap();
        // The client says no.
        connection.complete_io(&mut stream).unwrap_err();
    });
    let said = story(&model_at(API, &address, ModelConfig::default())).await;
    server.join().unwrap();
    let said = said.replace(&address, "URL");
    assert!(
        said.starts_with(
            " | Provider: p/m: no secure connection to URL: invalid peer certificate: "
        ),
        "{said}"
    );
}

#[tokio::test]
async fn a_connection_lost_before_and_in_the_answer_is_told_apart() {
    for (bytes, expected) in [
        ("".to_owned(), " | Connection: p/m: the connection to URL was lost before an answer: "),
        (
            "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ncontent-length: 999\r\n\r\n"
                .to_owned()
                + &delta("one"),
            "text one | Connection: p/m broke off: the connection to URL was lost (",
        ),
        (STREAM.to_owned() + &delta("one"), "text one | Truncated: p/m broke off in the middle"),
        (STREAM.to_owned() + &delta("one") + "data: {\"cho", "text one | Truncated: p/m broke off"),
        (STREAM.to_owned(), " | Truncated: p/m broke off in the middle of its answer"),
    ] {
        let server = Server::start().await;
        let model = server.model();
        let (said, _) = tokio::join!(story(&model), server.answer(bytes.as_bytes()));
        let said = said.replace(&server.address, "URL");
        assert!(said.starts_with(expected), "{bytes:?}: {said}");
    }
}

#[tokio::test]
async fn a_reset_is_a_lost_connection() {
    for first in ["", &delta("one")] {
        let server = Server::start().await;
        let agent = Watched::new(server.model());
        let run = agent.agent.prompt("hi").unwrap();
        let (mut stream, _) = server.accept().await;
        if !first.is_empty() {
            stream.write_all(format!("{STREAM}{first}").as_bytes()).await.unwrap();
            agent.said_something.notified().await;
        }
        // Closing with zero linger sends a reset instead of an end.
        let linger = Some(Duration::ZERO);
        rustix::net::sockopt::set_socket_linger(&stream, linger).unwrap();
        drop(stream);
        let error = run.await.unwrap().error_message.unwrap();
        let expected = if first.is_empty() { "lost before an answer" } else { "was lost (" };
        assert!(error.contains(expected), "{error}");
        assert!(error.contains("reset"), "{error}");
    }
}

#[tokio::test]
async fn an_answer_that_is_whole_needs_no_end() {
    let usage =
        "data: {\"choices\":[],\"usage\":{\"prompt_tokens\":7,\"completion_tokens\":3}}\n\n";
    for rest in ["", usage, "data: {\"cho", ": still here\n\n"] {
        let server = Server::start().await;
        let model = server.model();
        let bytes = [STREAM, &delta("ok"), FINISH, rest].concat();
        let (said, _) = tokio::join!(story(&model), server.answer(bytes.as_bytes()));
        assert_eq!(said, "text ok | Stop", "{rest}");
    }
}

#[tokio::test]
async fn events_that_are_called_json_are_events_all_the_same() {
    for before in ["", "\n: hello\n\n"] {
        let server = Server::start().await;
        let model = server.model();
        let body = [before, &delta("ok"), FINISH].concat();
        let bytes = page("200 OK", "content-type: application/json\r\n", &body);
        let (said, _) = tokio::join!(story(&model), server.answer(bytes.as_bytes()));
        assert_eq!(said, "text ok | Stop");
    }
}

#[tokio::test]
async fn a_whole_answer_does_not_wait_for_a_server_that_holds_the_connection() {
    let server = Server::start().await;
    let agent = Watched::new(server.model());
    let run = agent.agent.prompt("hi").unwrap();
    let (mut stream, _) = server.accept().await;
    stream.write_all([STREAM, &delta("ok"), FINISH].concat().as_bytes()).await.unwrap();
    agent.said_something.notified().await;
    tokio::time::pause();
    let start = tokio::time::Instant::now();
    assert_eq!(run.await.unwrap().reason, EndReason::Stop);
    assert!(start.elapsed() < Duration::from_secs(10));
}

/// The loop has a limit of its own, for models that have none.
fn impatient(model: RemoteModel) -> RemoteModel {
    RemoteModel { http: http(Duration::from_secs(60), &|_| None).into(), ..model }
}

#[tokio::test]
async fn silence_ends_the_wait() {
    for first in ["", &delta("one")] {
        let server = Server::start().await;
        let agent = Watched::new(impatient(server.model()));
        let run = agent.agent.prompt("hi").unwrap();
        let (mut stream, _) = server.accept().await;
        if !first.is_empty() {
            stream.write_all(format!("{STREAM}{first}").as_bytes()).await.unwrap();
            agent.said_something.notified().await;
        }
        tokio::time::pause();
        let result = run.await.unwrap();
        tokio::time::resume();
        assert_eq!(
            result.error_message.unwrap().replace(&server.address, "URL"),
            "p/m: nothing arrived from URL for 60 s. Try again; if it stays so, look at the server, \
             or give it longer with `model_idle_timeout_ms` in [limits]."
        );
    }
}

#[tokio::test]
async fn a_server_that_says_it_is_at_work_is_waited_for() {
    let server = Server::start().await;
    let model = impatient(server.model());
    let serve = async {
        let (mut stream, _) = server.accept().await;
        stream.write_all(STREAM.as_bytes()).await.unwrap();
        tokio::time::pause();
        for _ in 0..5 {
            tokio::time::sleep(Duration::from_secs(40)).await;
            stream.write_all(b": ping\n\n").await.unwrap();
        }
        stream.write_all([delta("ok").as_str(), FINISH].concat().as_bytes()).await.unwrap();
    };
    let (said, ()) = tokio::join!(story(&model), serve);
    assert_eq!(said, "text ok | Stop");
}

#[tokio::test]
async fn dropping_a_request_closes_its_connection() {
    for first in ["", &delta("one")] {
        let server = Server::start().await;
        let agent = Watched::new(server.model());
        let run = agent.agent.prompt("hi").unwrap();
        let (mut stream, _) = server.accept().await;
        if !first.is_empty() {
            stream.write_all(format!("{STREAM}{first}").as_bytes()).await.unwrap();
            agent.said_something.notified().await;
        }
        agent.agent.abort(None).unwrap();
        // An end, or a reset: the client has bytes that it will not read.
        assert!(matches!(stream.read(&mut [0; 16]).await, Ok(0) | Err(_)));
        assert_eq!(run.await.unwrap().reason, EndReason::Aborted);
    }
}

#[tokio::test]
async fn pictures_for_a_model_that_sees_none_are_refused_before_anything_is_sent() {
    let server = Server::start().await;
    let model = server.model();
    let (_, end) = collect(&model, request([user([text("look"), image()])])).await;
    let error = end.unwrap_err();
    assert_eq!(
        format!("{:?}: {}", error.kind, error.message),
        "Unsupported: p/m takes no pictures, so nothing was sent. Leave the picture out, choose \
         another model, or set `images = true` for it in [providers.p] if it does."
    );
    assert!(server.listener.accept().now_or_never().is_none());
    // Older ones are left out with a note.
    let older = request([user([image()]), user([text("and now?")])]);
    let bytes = [STREAM, &delta("ok"), FINISH].concat();
    let ((_, end), sent) = tokio::join!(collect(&model, older), server.answer(bytes.as_bytes()));
    end.unwrap();
    assert!(sent.contains("left out") && !sent.contains("aW1n"), "{sent}");
}

#[tokio::test]
async fn pictures_too_large_for_a_model_are_refused_before_anything_is_sent() {
    let server = Server::start().await;
    let sees = ModelConfig { images: true, ..ModelConfig::default() };
    let mut model = model_at(&anthropic_messages::FORMAT, &server.address, sees);
    let ask = || request([user([Block::image("image/png", "A".repeat(6_000_000))])]);
    model.config.id = "claude-opus-5".to_owned();
    let error = collect(&model, ask()).await.1.unwrap_err();
    assert_eq!(
        format!("{:?}: {}", error.kind, error.message),
        "Unsupported: p/m takes no pictures of more than 5242880 bytes of base64, and one has \
         6000000, so nothing was sent. Make it smaller, or choose another model."
    );
    assert!(server.listener.accept().now_or_never().is_none());
    // Other servers have no such limit.
    model.config.id = "gemma".to_owned();
    tokio::select! {
        (_, end) = collect(&model, ask()) => panic!("{end:?}"),
        accepted = server.listener.accept() => drop(accepted.unwrap()),
    }
}

#[test]
fn a_proxy_is_not_asked_for_servers_on_this_machine() {
    // In a process of its own: the environment belongs to all tests of this one.
    let test = "model::server_tests::a_request_carries_the_key";
    let output = std::process::Command::new(std::env::current_exe().unwrap())
        .args(["--exact", test])
        .env("HTTP_PROXY", "http://127.0.0.1:9")
        .env("http_proxy", "http://127.0.0.1:9")
        .env_remove("NO_PROXY")
        .env_remove("no_proxy")
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && said.contains("1 passed"), "{said}");
}
