//! What no bytes whatever may do to the codec, or to a daemon at the other end of a connection.
//!
//! Owns: the properties that both the fuzz targets and the ordinary tests check.
//! Never: needs the rest of the tests' support, since the fuzz targets include this file alone; and
//! never lets a peer's bytes reach a tool.

use std::{collections::HashMap, path::Path, sync::Arc, sync::OnceLock};

use agent_core::Model;
use agent_daemon::{
    config::{Configuration, Flags, Surroundings},
    methods,
    model::ModelCatalog,
    peer::{
        connection::{Ending, serve_bytes},
        request::{Incoming, parse},
        server::{Server, ServerLimits},
    },
    sessions::{daemon::Daemon, registry::Blueprint},
    transport::unix::UNIX,
};
use agent_protocol::{
    CloseSession, EXIT, Method, Shutdown, WaitForIdle,
    codec::{
        FrameError, Framing, MessageDecoder, RawMessage, StreamDecoder, one_line,
        websocket::WebSocketDecoder,
    },
    local::paths::Directories,
};
use serde_json::{Value, value::RawValue};
use tokio::io::{AsyncReadExt, AsyncWriteExt, duplex, split};

/// Small, so that bytes of a reasonable number exceed it.
const MAX_MESSAGE_BYTES: usize = 2048;
/// What a decoder may hold besides one message: what it reads at once, and as much again.
const SPARE_BYTES: usize = 64 * 1024;

/// Checks the decoders of both kinds: the chunks in which bytes come change nothing, nothing is
/// found that was not sent, memory is bounded, and what is found survives being sent back.
///
/// The first byte of the input says how the others are cut.
///
/// # Panics
/// One of it does not hold.
pub fn check_codec(input: &[u8]) {
    let Some((cut, bytes)) = input.split_first() else { return };
    let new: [fn() -> Box<dyn MessageDecoder>; 2] = [
        || Box::new(StreamDecoder::new(MAX_MESSAGE_BYTES)),
        || Box::new(WebSocketDecoder::new(MAX_MESSAGE_BYTES)),
    ];
    for new in new {
        let story = frames(new(), bytes, bytes.len().max(1));
        assert_eq!(story, frames(new(), bytes, 1), "byte by byte");
        assert_eq!(story, frames(new(), bytes, 1 + usize::from(*cut)), "in pieces");
        let found: usize = story.iter().map(Found::len).sum();
        assert!(found <= bytes.len(), "{found} bytes were found in {}", bytes.len());
        story.iter().for_each(check_echo);
    }
}

/// One step of a decoder, for comparison.
#[derive(Clone, Debug, PartialEq)]
enum Found {
    Message(String),
    NotText,
    TooLarge,
    Ping(Vec<u8>),
    Close,
    Error(FrameError),
}

impl Found {
    fn len(&self) -> usize {
        match self {
            Found::Message(text) => text.len(),
            Found::Ping(bytes) => bytes.len(),
            _ => 0,
        }
    }
}

impl From<RawMessage<'_>> for Found {
    fn from(frame: RawMessage<'_>) -> Self {
        match frame {
            RawMessage::Text(text) => Found::Message(text.to_owned()),
            RawMessage::NotText => Found::NotText,
            RawMessage::TooLarge { limit } => {
                assert_eq!(limit, MAX_MESSAGE_BYTES);
                Found::TooLarge
            }
            RawMessage::Ping(bytes) => Found::Ping(bytes.to_owned()),
            RawMessage::Close => Found::Close,
        }
    }
}

fn frames(mut decoder: Box<dyn MessageDecoder>, bytes: &[u8], piece: usize) -> Vec<Found> {
    let mut story = Vec::new();
    for piece in bytes.chunks(piece) {
        let room = decoder.room();
        room.extend_from_slice(piece);
        assert!(room.len() <= MAX_MESSAGE_BYTES + SPARE_BYTES + piece.len(), "{}", room.len());
        while let Some(found) = decoder.next() {
            match found {
                Ok(frame) => story.push(frame.into()),
                Err(error) => {
                    story.push(Found::Error(error));
                    return story;
                }
            }
        }
    }
    story.extend(decoder.finish().map(Found::from));
    story
}

/// Whatever a peer says comes out as it went in when it is sent as one JSON text.
fn check_echo(found: &Found) {
    let Found::Message(text) = found else { return };
    let text = one_line(serde_json::to_string(text).expect("text is JSON"));
    for framing in [Framing::Lines, Framing::Headers] {
        let mut bytes = Vec::new();
        framing.encode(&[&text], &mut bytes);
        let decoder = StreamDecoder::new(bytes.len());
        let mut decoder: Box<dyn MessageDecoder> = Box::new(decoder);
        decoder.room().extend_from_slice(&bytes);
        assert_eq!(decoder.next(), Some(Ok(RawMessage::Text(&text))), "{framing:?}");
        assert_eq!(decoder.next(), None);
    }
}

/// Checks a whole connection to a daemon with the real method table, the offline model and no tool:
/// every request gets exactly one answer of a legal shape, answers keep the order of the requests,
/// subscriptions have no gap, and the daemon goes on.
///
/// The first byte of the input says how the others are cut.
///
/// # Panics
/// One of it does not hold.
pub fn check_connection(input: &[u8]) {
    let Some((cut, bytes)) = input.split_first() else { return };
    let mut builder = tokio::runtime::Builder::new_current_thread();
    let runtime = builder.enable_all().start_paused(true).build().expect("one without threads");
    runtime.block_on(async {
        let daemon = Arc::new(Daemon::new(blueprint()));
        let limits =
            ServerLimits { max_message_bytes: MAX_MESSAGE_BYTES, ..ServerLimits::default() };
        let server = Server::new(methods::table(daemon.clone()), limits, None);
        let (ending, said) = converse(&server, bytes, 1 + usize::from(*cut)).await;
        Expected::of(bytes).check(&ending, &said);

        let question = br#"{"id":"still there?","method":"health"}"#;
        let (_, said) = converse(&server, question, question.len()).await;
        assert!(said.starts_with(br#"{"jsonrpc":"2.0","id":"still there?","result":"#));
        daemon.shut_down().await;
    });
}

/// Sends everything, ends the input and tells what came back.
async fn converse(server: &Arc<Server>, bytes: &[u8], piece: usize) -> (Ending, Vec<u8>) {
    let (ours, theirs) = duplex(4096);
    let (reader, writer) = split(theirs);
    let serving = serve_bytes(server.clone(), reader, writer, &UNIX);
    let (mut reader, mut writer) = split(ours);
    let send = async {
        for piece in bytes.chunks(piece) {
            // A connection that was closed for what it was sent takes no more.
            if writer.write_all(piece).await.is_err() {
                return;
            }
        }
        // So is the end of the input no news to it.
        let _ = writer.shutdown().await;
    };
    let mut said = Vec::new();
    let receive = async { reader.read_to_end(&mut said).await.expect("memory can be read") };
    let (ending, (), _) = tokio::join!(serving, send, receive);
    (ending, said)
}

fn blueprint() -> Blueprint {
    static MODELS: OnceLock<(Arc<ModelCatalog>, Arc<dyn Model>)> = OnceLock::new();
    static CONFIGURATION: OnceLock<Configuration> = OnceLock::new();
    let (catalog, model) = MODELS.get_or_init(|| {
        let catalog = ModelCatalog::new(Default::default(), &|_| None);
        let model = catalog.get("offline/demo").expect("it is always there");
        (Arc::new(catalog), model)
    });
    let configuration = CONFIGURATION.get_or_init(|| {
        let flags = Flags { stdio: true, ..Flags::default() };
        let around = Surroundings {
            // Neither the user's own configuration nor any file of theirs.
            variable: &|name| (name == "AGENT_DAEMON_CONFIG").then(|| "/dev/null".to_owned()),
            directories: Directories::of_user(),
            current_dir: Path::new("/").to_owned(),
        };
        Configuration::load(flags, &around).expect("an empty file is a configuration")
    });
    let tools = Some(Vec::new());
    let (catalog, model) = (catalog.clone(), model.clone());
    Blueprint { catalog, model: Ok(model), tools, configuration: configuration.clone() }
}

/// The answers that bytes ask for.
struct Expected {
    framing: Framing,
    /// The ids of what is answered in order,
    in_order: Vec<String>,
    /// and of calls that wait aside.
    aside: Vec<String>,
}

/// An answer or a frame. Ids are compared as they are written: some are no number to anybody.
#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields)]
struct Said<'a> {
    jsonrpc: &'a str,
    #[serde(borrow)]
    id: Option<&'a RawValue>,
    result: Option<&'a RawValue>,
    error: Option<Value>,
    method: Option<&'a str>,
    params: Option<Value>,
}

impl Expected {
    fn of(bytes: &[u8]) -> Self {
        let mut decoder = StreamDecoder::new(MAX_MESSAGE_BYTES);
        let (mut in_order, mut aside) = (Vec::new(), Vec::new());
        // Told by the first byte that is not blank; nothing else is asked for without one.
        decoder.room().extend_from_slice(bytes);
        let mut framing = Framing::Lines;
        loop {
            let frame = match decoder.next() {
                Some(Ok(frame)) => frame,
                Some(Err(_)) => break,
                None => match decoder.finish() {
                    Some(frame) => frame,
                    None => break,
                },
            };
            let goes_on = expect(frame, &mut in_order, &mut aside);
            framing = decoder.framing().unwrap_or(framing);
            if !goes_on {
                break;
            }
        }
        Expected { framing, in_order, aside }
    }

    fn check(mut self, ending: &Ending, said: &[u8]) {
        let mut in_order = std::mem::take(&mut self.in_order).into_iter().peekable();
        let mut last_seqs = HashMap::new();
        for text in messages(self.framing, said) {
            let said: Said<'_> = serde_json::from_str(&text)
                .unwrap_or_else(|error| panic!("neither answer nor frame: {error}: {text}"));
            assert_eq!(said.jsonrpc, "2.0");
            let Some(id) = said.id.map(RawValue::get).or(said.method.is_none().then_some("null"))
            else {
                check_frame(said, &mut last_seqs);
                continue;
            };
            check_answer(&said, &text);
            if in_order.next_if(|next| next == id).is_some() {
                continue;
            }
            let waiting = self.aside.iter().position(|waiting| waiting == id);
            let waiting = waiting.unwrap_or_else(|| panic!("nobody asked, or not yet: {text}"));
            self.aside.swap_remove(waiting);
        }
        assert_eq!(in_order.next(), None, "no answer to it, after {ending:?}");
        if matches!(ending, Ending::EndOfInput) {
            assert!(self.aside.is_empty(), "no answers to {:?}", self.aside);
        }
    }
}

/// Notes what a frame asks for, and answers whether anything after it counts.
fn expect(frame: RawMessage<'_>, in_order: &mut Vec<String>, aside: &mut Vec<String>) -> bool {
    let RawMessage::Text(text) = frame else {
        in_order.push("null".to_owned());
        return true;
    };
    match parse(text) {
        Incoming::StrayAnswer => {}
        Incoming::Refused { id, .. } => in_order.push(one_line(id.to_owned())),
        Incoming::Request(request) => {
            let waits = [WaitForIdle::NAME, CloseSession::NAME, Shutdown::NAME];
            match request.id {
                None => {}
                Some(id) if waits.contains(&&*request.method) => {
                    aside.push(one_line(id.to_owned()))
                }
                Some(id) => in_order.push(one_line(id.to_owned())),
            }
            // W1.6: one that has an id is answered, and ends the conversation all the same.
            return request.method != EXIT;
        }
    }
    true
}

fn messages(framing: Framing, said: &[u8]) -> Vec<String> {
    let text = std::str::from_utf8(said).expect("what is written is text");
    if framing == Framing::Lines {
        return text.lines().map(str::to_owned).collect();
    }
    let mut decoder: Box<dyn MessageDecoder> = Box::new(StreamDecoder::new(usize::MAX));
    decoder.room().extend_from_slice(said);
    let mut messages = Vec::new();
    while let Some(frame) = decoder.next() {
        match frame.expect("what is written has its headers") {
            RawMessage::Text(text) => messages.push(text.to_owned()),
            other => panic!("{other:?} was written"),
        }
    }
    messages
}

fn check_answer(said: &Said<'_>, text: &str) {
    assert!(said.method.is_none() && said.params.is_none(), "{text}");
    // A result of null is one, too, and reads as none.
    let has_result = said.result.is_some() || text.contains(r#""result":null"#);
    assert!(has_result != said.error.is_some(), "{text}");
    let Some(error) = &said.error else { return };
    assert!(error["message"].is_string() && error["code"].is_i64(), "{text}");
    assert!(error["code"] != -32603, "an internal error: {text}");
    assert!(error["data"]["kind"].is_string(), "{text}");
    assert!(error["data"]["retryable"].is_boolean(), "{text}");
}

/// W4.4: a subscriber sees numbers grow by one, or is told what came before.
fn check_frame(said: Said<'_>, last_seqs: &mut HashMap<String, Option<u64>>) {
    assert_eq!(said.method, Some("event"));
    let params = said.params.expect("a frame has params");
    let subscription = params["subscription"].as_str().expect("a frame names its subscription");
    let frame = &params["result"];
    assert!(frame["sessionId"].is_string(), "{frame}");
    let kind = frame["type"].as_str().expect("a frame has a type");
    let known = last_seqs.contains_key(subscription);
    assert!(known || kind == "subscribed", "{kind} is not the first frame");
    if kind == "subscribed" {
        // What a replay begins with is the client's to know.
        let last = if frame["replay"] == "events" { None } else { frame["headSeq"].as_u64() };
        last_seqs.insert(subscription.to_owned(), last);
        return;
    }
    let Some(seq) = frame["seq"].as_u64() else { return };
    let before = frame["prevSeq"].as_u64().unwrap_or(seq - 1);
    let last = last_seqs.insert(subscription.to_owned(), Some(seq)).flatten();
    assert!(last.is_none_or(|last| last == before), "after {last:?}: {frame}");
}
