//! The properties of the fuzz targets, on their corpus and on generated conversations.

use std::{fs, path::Path};

use proptest::prelude::*;
use support::bytes::{check_codec, check_connection};

fn corpus(target: &str) -> Vec<Vec<u8>> {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/corpus").join(target);
    let files = fs::read_dir(directory).unwrap().map(|file| file.unwrap().path());
    let corpus: Vec<_> = files.map(|file| fs::read(file).unwrap()).collect();
    assert!(!corpus.is_empty(), "the corpus of {target} is gone");
    corpus
}

#[test]
fn the_corpus_of_the_codec_holds() {
    corpus("codec").iter().for_each(|input| check_codec(input));
}

#[test]
fn the_corpus_of_connections_holds() {
    corpus("connection").iter().for_each(|input| check_connection(input));
}

const METHODS: [&str; 25] = [
    "initialize",
    "shutdown",
    "exit",
    "prompt",
    "continue",
    "steer",
    "followUp",
    "abort",
    "waitForIdle",
    "removeQueued",
    "clearQueues",
    "getState",
    "getMessages",
    "subscribe",
    "unsubscribe",
    "setConfig",
    "listModels",
    "reset",
    "createSession",
    "listSessions",
    "closeSession",
    "health",
    "$/cancelRequest",
    "initialized",
    "nonsense",
];

const FIELDS: [&str; 24] = [
    r#""input":"hello""#,
    r#""input":[{"type":"text","text":"hi\u2028"}]"#,
    r#""input":"run ls""#,
    r#""input":"""#,
    r#""clientMessageId":"a""#,
    r#""onBusy":"steer""#,
    r#""onBusy":"followUp""#,
    r#""whenIdle":"hold""#,
    r#""whenIdle":"prompt""#,
    r#""expectedRunId":1"#,
    r#""runId":1"#,
    r#""timeoutMs":5"#,
    r#""messageId":"m2""#,
    r#""which":"steering""#,
    r#""messages":"tail""#,
    r#""limit":1"#,
    r#""fromSeq":3"#,
    r#""snapshot":true"#,
    r#""exclude":["text_delta"]"#,
    r#""subscription":"s1""#,
    r#""maxTurns":1"#,
    r#""sessionId":"b""#,
    r#""scope":"daemon""#,
    r#""id":"2""#,
];

const IDS: [&str; 8] = ["1", "1", "\"2\"", "2.5", "1e400", "null", "{}", "\"\\ud800\u{2028}\""];

/// What no grammar of calls has in it.
const NOISE: [&str; 12] = [
    "",
    " ",
    "{",
    "[]",
    "[1]",
    "null",
    "\"x\"",
    r#"{"id":1}"#,
    r#"{"id":1,"result":1}"#,
    "\u{feff}{}",
    r#"{"method":"exit"}"#,
    "{\"id\":1,\"method\":\"health\"}\0",
];

fn message() -> impl Strategy<Value = String> {
    let call = (
        proptest::option::weighted(0.9, proptest::sample::select(&IDS[..])),
        proptest::sample::select(&METHODS[..]),
        proptest::collection::vec(proptest::sample::select(&FIELDS[..]), 0..3),
    );
    let call = call.prop_map(|(id, method, fields)| {
        let id = id.map(|id| format!(r#""id":{id},"#)).unwrap_or_default();
        format!(r#"{{{id}"method":"{method}","params":{{{}}}}}"#, fields.join(","))
    });
    prop_oneof![
        12 => call,
        1 => proptest::sample::select(&NOISE[..]).prop_map(str::to_owned),
        1 => (2040_usize..2060).prop_map(|length| format!(r#"{{"id":"{}"}}"#, "x".repeat(length))),
    ]
}

fn input(cut: u8, with_headers: bool, messages: &[String]) -> Vec<u8> {
    let framed = messages.iter().map(|message| match with_headers {
        true => format!("Content-Length: {}\r\n\r\n{message}", message.len()),
        false => format!("{message}\n"),
    });
    let mut input = vec![cut];
    input.extend(framed.collect::<String>().into_bytes());
    input
}

proptest! {
    #[test]
    fn conversations_are_answered_call_by_call(
        cut in any::<u8>(),
        with_headers in any::<bool>(),
        messages in proptest::collection::vec(message(), 1..24),
    ) {
        check_connection(&input(cut, with_headers, &messages));
    }

    #[test]
    fn broken_conversations_harm_nobody(
        cut in any::<u8>(),
        with_headers in any::<bool>(),
        messages in proptest::collection::vec(message(), 1..8),
        hits in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..6),
    ) {
        let mut bytes = input(cut, with_headers, &messages);
        for (at, byte) in hits {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        check_codec(&bytes);
        check_connection(&bytes);
    }
}
