//! Tests: what real servers sent, replayed through the decoders.

use std::{fs, path::PathBuf};

use agent_core::ModelEvent;

use super::{
    answer_stream::AnswerStream,
    anthropic_messages, openai_completions, openai_responses,
    sse::{SseDecoder, SseEvent},
    wire_format::WireFormat,
};

/// An answer as one line: text and thinking with their ends, calls whole, then how it ended.
pub(super) fn told(events: &[ModelEvent], end: &str) -> String {
    let mut blocks: Vec<(u32, String, String)> = Vec::new();
    for event in events {
        let (index, kind, delta) = match event {
            ModelEvent::Text { index, delta } => (*index, "text".to_owned(), delta),
            ModelEvent::Thinking { index, delta } => (*index, "thinking".to_owned(), delta),
            ModelEvent::ToolCall { index, id, name, delta } => {
                // Recorded ids are long and random; that there is one is what matters.
                let id: String = id.chars().take(4).collect();
                (*index, format!("call {id} {name}"), delta)
            }
            // The last one counts. It may come without a thought, where the provider hides it.
            ModelEvent::ThinkingSignature { index, signature } => {
                let kind = format!("thinking[{signature}]");
                match blocks.iter_mut().find(|block| block.0 == *index) {
                    Some(block) => block.1 = kind,
                    None => blocks.push((*index, kind, String::new())),
                }
                continue;
            }
        };
        match blocks.iter_mut().find(|block| block.0 == index) {
            Some(block) => block.2.push_str(delta),
            None => blocks.push((index, kind, delta.clone())),
        }
    }
    let block = |(_, kind, text): &(u32, String, String)| {
        let count = text.chars().count();
        if kind.starts_with("call") || count <= 60 {
            return format!("{kind} {}", text.replace('\n', "⏎"));
        }
        let head: String = text.chars().take(20).collect();
        let tail: String = text.chars().skip(count - 20).collect();
        format!("{kind} {head}…{count}…{tail}").replace('\n', "⏎")
    };
    let blocks: Vec<_> = blocks.iter().map(block).collect();
    [blocks.join(" | "), end.to_owned()].join(" | ")
}

/// Feeds the pieces and tells what came.
pub(super) fn decoded<'a>(
    api: &'static WireFormat,
    pieces: impl IntoIterator<Item = &'a [u8]>,
) -> String {
    let mut stream = AnswerStream::new(api);
    let mut events = Vec::new();
    for piece in pieces {
        if let Err(failure) = stream.feed(piece, &mut events) {
            return told(&events, &format!("{failure:?}"));
        }
    }
    let end = match stream.finish(&mut events) {
        Ok(end) => {
            let usage = end.usage;
            let mut line = format!("{:?} {}+{}", end.stop_reason, usage.input, usage.output);
            if usage.cache_read + usage.cache_write > 0 {
                line += &format!(" cached {}+{}", usage.cache_read, usage.cache_write);
            }
            line
        }
        Err(failure) => format!("{failure:?}"),
    };
    told(&events, &end)
}

pub(super) fn fixture(path: &str) -> Vec<u8> {
    let root: PathBuf =
        [env!("CARGO_MANIFEST_DIR"), "..", "tests", "fixtures", "wire"].iter().collect();
    fs::read(root.join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

fn recordings(directory: &str) -> Vec<(String, Vec<u8>)> {
    let root: PathBuf =
        [env!("CARGO_MANIFEST_DIR"), "..", "tests", "fixtures", "wire", directory].iter().collect();
    let mut names: Vec<String> = fs::read_dir(root)
        .expect("the fixtures are in the repository")
        .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
        .filter_map(|name| name.strip_suffix(".sse").map(str::to_owned))
        .collect();
    names.sort_unstable();
    names
        .into_iter()
        .map(|name| (name.clone(), fixture(&format!("{directory}/{name}.sse"))))
        .collect()
}

/// What each recording says: one row each, so that a new one is noticed.
const OPENAI_COMPLETIONS: &str = r#"after-tool-result: text The result is a small demo project in Rust. | Stop 69+11 cached 492+0
client-disconnect: text The story of a light…209… the ocean. Built by | Truncated
error-midstream: call oDFa bash {"command": "cargo build"} | Reported(Reported { status: Some(500), codes: ["server_error"], message: "The model produced output that does not match the expected peg-native format" })
ping-while-prompt-is-read:  | Stop 0+0
text: text The capital of France is Paris. | Stop 0+0
text-length: text The capital of France | Length 69+4
text-long: text ```python⏎def add_nu…131…d returns their sum. | Stop 1+37 cached 36+0
text-stop-sequence: text The capital of France is  | Stop 0+0
text-then-tool: text I will open c.txt now.  | call v7XK read_file {"path": "c.txt"} | ToolUse 386+38 cached 30+0
text-usage: text The capital of France is Paris. | Stop 5+8 cached 63+0
thinking-then-text: thinking[reasoning_content] The answer is: The s…119…t reaches our planet | text The Earth's atmosphe…247…n, and re-emitted in | Length 1+80 cached 29+0
thinking-then-tool: thinking[reasoning_content] ⏎You can use the fol…76…to/current/directory | call 7lIw bash {⏎  "command": "ls -l /path/to/current/directory"⏎} | ToolUse 1+78 cached 125+0
tool-arguments-cut-off: call jx5L read_file {"path": | Length 0+0
tool-auto: call 3I9v bash {"command": "ls -la src"} | ToolUse 484+29 cached 30+0
tool-auto-answered-in-text: text The capital of France is Paris. | Stop 0+0
tool-auto-second-tool: call Wo47 read_file {"path": "README.md"} | ToolUse 0+0
tool-named-object-is-ignored:  | Reported(Reported { status: Some(500), codes: ["server_error"], message: "The model produced output that does not match the expected peg-native format" })
tool-parallel-calls: call JnHw read_file {"path": "c.txt"} | call RQ5Z read_file {"path": "d.txt"} | ToolUse 357+58 cached 29+0
tool-required: call BAtg bash {⏎  "command": "ls -l | grep -i "⏎  } | ToolUse 1+28 cached 117+0
tool-required-exact-arguments: call kAMs bash {"command": "printf '%s\\n' \"héllo → 世界\""} | ToolUse 0+0
utf8-chinese: text 中国的首都是哪里？ | Stop 33+6 cached 53+0
utf8-emoji: text 🦀🦀🚀👩‍💻🇯🇵👍🏽 | Stop 92+11 cached 52+0
"#;

#[test]
fn recorded_completions_are_understood() {
    check(&openai_completions::FORMAT, "openai-compatible", OPENAI_COMPLETIONS);
}

const ANTHROPIC_MESSAGES: &str = r#"after-tool-result: text The result is a small demo project in Rust. | Stop 69+11 cached 492+0
client-disconnect: text The story of a light…252…amed Jameson in 1820 | Truncated
error-midstream: call EXrW bash {"command": "cargo build"} | Reported(Reported { status: Some(500), codes: ["server_error"], message: "The model produced output that does not match the expected peg-native format" })
text: text The capital of France is Paris. | Stop 68+8
text-long: text ```python⏎def add_nu…131…d returns their sum. | Stop 1+37 cached 36+0
text-max-tokens: text The capital of France | Length 5+4 cached 64+0
text-stop-sequence: text The capital of France is  | Stop 5+6 cached 64+0
text-then-tool: text I will open c.txt now.  | call S5nC read_file {"path": "c.txt"} | ToolUse 388+38 cached 28+0
thinking-then-text: thinking The answer is: The s…65…e Earth's atmosphere | text The Earth's atmosphe…295…he sky appears blue. | Length 1+80 cached 29+0
thinking-then-tool: thinking ⏎To list the files i…63… using bash, you can | call 8HLc bash {⏎  "command": "ls -l | grep -i "⏎  } | ToolUse 1+47 cached 125+0
tool-any: call 1xP4 bash {"command": "ls -l | grep -i "} | ToolUse 1+41 cached 117+0
tool-arguments-cut-off: call 8ybh read_file {"path": | Length 1+12 cached 172+0
tool-auto: call YcUt bash {"command": "ls -la src"} | ToolUse 22+29 cached 492+0
tool-named: call PkKZ bash {"command": "ls -l | grep -i "} | ToolUse 1+41 cached 117+0
tool-parallel-calls: call bCVd read_file {"path": "c.txt"} | ToolUse 359+30 cached 27+0
utf8-chinese: text 中国的首都是哪里？ | Stop 33+6 cached 53+0
"#;

#[test]
fn recorded_messages_are_understood() {
    check(&anthropic_messages::FORMAT, "anthropic", ANTHROPIC_MESSAGES);
}

const OPENAI_RESPONSES: &str = r#"text: text The capital of France is Paris. | Stop 68+8
tool-auto: call call bash {"command": "ls -la src"} | ToolUse 260+29 cached 31+0
"#;

#[test]
fn recorded_responses_are_understood() {
    check(&openai_responses::FORMAT, "openai-responses", OPENAI_RESPONSES);
}

#[test]
fn recorded_answers_in_one_piece_are_understood() {
    for (api, path, expected) in [
        (
            &openai_completions::FORMAT,
            "openai-compatible/not-streamed.json",
            "text The capital of France is Paris.",
        ),
        (
            &openai_completions::FORMAT,
            "openai-compatible/not-streamed-tool.json",
            "call NWek read_file {\"path\": \"README.md\"}",
        ),
        (
            &anthropic_messages::FORMAT,
            "anthropic/not-streamed-tool.json",
            "call 3jRO read_file {\"path\":\"README.md\"}",
        ),
    ] {
        let mut stream = AnswerStream::new(api);
        let mut events = Vec::new();
        stream.whole(&fixture(path), &mut events).expect("it is JSON");
        stream.finish(&mut events).expect("it is whole");
        assert_eq!(told(&events, ""), format!("{expected} | "), "{path}");
    }
}

fn check(api: &'static WireFormat, directory: &str, expected: &str) {
    let rows: String = recordings(directory)
        .iter()
        .map(|(name, bytes)| format!("{name}: {}\n", decoded(api, [bytes.as_slice()])))
        .collect();
    assert!(rows == expected, "{directory} says now:\n{rows}");
    for (name, bytes) in recordings(directory) {
        check_chunking(api, &name, &bytes);
        check_disorder(api, &bytes);
    }
}

/// A recording with any one event missing or doubled comes to some end: a server may say anything.
fn check_disorder(api: &'static WireFormat, bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    let events: Vec<&str> = text.split_inclusive("\n\n").collect();
    for number in 0..events.len().min(30) {
        let missing = [&events[..number], &events[number + 1..]].concat().concat();
        let doubled = [&events[..=number], &events[number..]].concat().concat();
        for disorder in [missing, doubled] {
            let told = decoded(api, [disorder.as_bytes()]);
            assert!(told.len() < 4 * text.len(), "{told}");
        }
    }
}

/// However a recording is cut and its lines are ended, it says the same.
fn check_chunking(api: &'static WireFormat, name: &str, bytes: &[u8]) {
    let whole = decoded(api, [bytes]);
    let text = String::from_utf8(bytes.to_vec()).expect("recordings are UTF-8");
    for (number, variant) in variants(&text).iter().enumerate() {
        for size in [1, 7, 1000] {
            let pieces = variant.as_bytes().chunks(size);
            assert_eq!(decoded(api, pieces), whole, "{name}, variant {number}, pieces of {size}");
        }
    }
    if bytes.len() < 1500 {
        for cut in 0..bytes.len() {
            let (head, tail) = bytes.split_at(cut);
            assert_eq!(decoded(api, [head, tail]), whole, "{name} cut at {cut}");
        }
    }
    // Longer ones would take minutes. But a cut can only touch the event that it is in, and the
    // decoders see whole events: so cut two events at a time, as they came at every byte, and in
    // each variant at every third.
    let events: Vec<&str> = text.split_inclusive("\n\n").collect();
    for group in events.chunks(2) {
        let group = group.concat();
        let events = sse_events(group.as_bytes(), group.len());
        for (number, variant) in variants(&group).iter().enumerate() {
            for cut in (0..variant.len()).step_by(if number == 0 { 1 } else { 3 }) {
                assert_eq!(
                    sse_events(variant.as_bytes(), cut),
                    events,
                    "{name}: {variant:?} {cut}"
                );
            }
        }
    }
}

/// The same events, differently written.
fn variants(text: &str) -> [String; 6] {
    [
        text.to_owned(),
        text.replace('\n', "\r\n"),
        text.replace('\n', "\r"),
        text.replace("\n\n", "\n: ping\n\n:\n\n"),
        format!("\u{feff}{text}"),
        text.trim_end().to_owned(),
    ]
}

fn sse_events(bytes: &[u8], cut: usize) -> Vec<SseEvent> {
    let mut decoder = SseDecoder::new(1 << 20);
    let mut events = Vec::new();
    for piece in [&bytes[..cut], &bytes[cut..]] {
        decoder.feed(piece, &mut events).expect("recorded events are small");
    }
    events.extend(decoder.finish());
    events
}
