//! Tests: streams of servers that cut characters, write JSON badly, or lose an event.

use super::{
    answer_stream::AnswerStream, anthropic_messages, formats::FORMATS, openai_completions,
    recorded::decoded, wire_format::WireFormat,
};

/// An answer with these deltas, as JSON texts without their quotes, in each of its parts.
fn stream(api: &'static WireFormat, deltas: &[&str]) -> Vec<String> {
    let each = |event: &str| deltas.iter().map(|delta| event.replace("DELTA", delta)).collect();
    let lines: Vec<Vec<String>> = match api.name {
        "openai-completions" => vec![
            each(r#"{"choices":[{"delta":{"reasoning":"DELTA"}}]}"#),
            each(r#"{"choices":[{"delta":{"content":"DELTA"}}]}"#),
            vec![r#"{"choices":[{"delta":{"tool_calls":[{"index":0,"id":"c","function":{"name":"ls","arguments":""}}]}}]}"#.to_owned()],
            each(r#"{"choices":[{"delta":{"tool_calls":[{"index":0,"function":{"arguments":"DELTA"}}]}}]}"#),
            vec![r#"{"choices":[{"delta":{},"finish_reason":"stop"}]}"#.to_owned()],
        ],
        "anthropic-messages" => vec![
            vec![
                r#"{"type":"content_block_start","index":0,"content_block":{"type":"thinking"}}"#.to_owned(),
                r#"{"type":"content_block_start","index":1,"content_block":{"type":"text"}}"#.to_owned(),
            ],
            each(r#"{"type":"content_block_delta","index":0,"delta":{"type":"thinking_delta","thinking":"DELTA"}}"#),
            each(r#"{"type":"content_block_delta","index":1,"delta":{"type":"text_delta","text":"DELTA"}}"#),
            vec![r#"{"type":"content_block_start","index":2,"content_block":{"type":"tool_use","id":"c","name":"ls"}}"#.to_owned()],
            each(r#"{"type":"content_block_delta","index":2,"delta":{"type":"input_json_delta","partial_json":"DELTA"}}"#),
            vec![r#"{"type":"message_delta","delta":{"stop_reason":"end_turn"}}"#.to_owned()],
        ],
        "openai-responses" => vec![
            vec![
                r#"{"type":"response.output_item.added","output_index":0,"item":{"type":"reasoning"}}"#.to_owned(),
                r#"{"type":"response.output_item.added","output_index":1,"item":{"type":"message"}}"#.to_owned(),
            ],
            each(r#"{"type":"response.reasoning_text.delta","output_index":0,"delta":"DELTA"}"#),
            each(r#"{"type":"response.output_text.delta","output_index":1,"delta":"DELTA"}"#),
            vec![r#"{"type":"response.output_item.added","output_index":2,"item":{"type":"function_call","call_id":"c","name":"ls"}}"#.to_owned()],
            each(r#"{"type":"response.function_call_arguments.delta","output_index":2,"delta":"DELTA"}"#),
            vec![r#"{"type":"response.completed","response":{}}"#.to_owned()],
        ],
        other => panic!("no stream of {other} to test with"),
    };
    lines.concat()
}

fn events(lines: &[String]) -> Vec<u8> {
    lines.iter().flat_map(|line| format!("data: {line}\n\n").into_bytes()).collect()
}

/// What an answer is whose thought, text and arguments all are this, without what tells the APIs
/// apart.
fn told(api: &'static WireFormat, bytes: &[u8]) -> String {
    let told = decoded(api, [bytes]).replace("thinking[reasoning]", "thinking");
    // Not every server says what it stopped for.
    told.replace("ToolUse", "Stop")
}

fn all(text: &str) -> String {
    format!("thinking {text} | text {text} | call c ls {text} | Stop 0+0")
}

#[test]
fn an_emoji_cut_over_two_deltas_is_whole() {
    for (deltas, expected) in [
        (&[r"a\ud83d", r"\ude00b"][..], "a😀b"),
        (&[r"\uD83D", "", r"\uDE00"], "😀"),
        (&[r"\ud83d\ude00\ud83d", r"\ude00"], "😀😀"),
        (&[r"a\ud83d", "b"], "a\u{fffd}b"),
        (&["a", r"\ude00b"], "a\u{fffd}b"),
        (&[r"a\ud83d", r"\ud83d", r"\ude00"], "a\u{fffd}😀"),
        (&["a", r"b\ud83d"], "ab\u{fffd}"),
    ] {
        for api in FORMATS {
            let bytes = events(&stream(api, deltas));
            assert_eq!(told(api, &bytes), all(expected), "{api:?} {deltas:?}");
        }
    }
}

#[test]
fn an_emoji_whose_bytes_are_cut_over_two_deltas_is_whole() {
    for api in FORMATS {
        let bytes = events(&stream(api, &["a😀|", "b"]));
        // The first two bytes of the emoji stay in one event, the other two go into the next.
        let text = String::from_utf8(bytes).expect("they are a text so far");
        for cut in 1..4 {
            let mut broken = Vec::new();
            for event in text.split_inclusive("\n\n") {
                match event.split_once("😀|") {
                    None => broken.extend_from_slice(event.as_bytes()),
                    Some((head, tail)) => {
                        let (one, two) = "😀".as_bytes().split_at(cut);
                        for part in [one, two] {
                            let head = if part == one {
                                head.to_owned()
                            } else {
                                // The same delta again, with the rest of the character only.
                                head.strip_suffix('a').unwrap_or(head).to_owned()
                            };
                            broken.extend_from_slice(head.as_bytes());
                            broken.extend_from_slice(part);
                            broken.extend_from_slice(tail.as_bytes());
                        }
                    }
                }
            }
            assert_eq!(told(api, &broken), all("a😀b"), "{api:?} cut at {cut}");
        }
    }
}

#[test]
fn control_bytes_and_numbers_that_are_none_do_not_end_an_answer() {
    for api in FORMATS {
        let lines = stream(api, &["a\u{1}\tb", "\u{1f}c"]);
        let lines: Vec<_> =
            lines.iter().map(|line| line.replacen('{', r#"{"logprob":NaN,"#, 1)).collect();
        assert_eq!(told(api, &events(&lines)), all("a\u{1}\tb\u{1f}c"), "{api:?}");
    }
}

#[test]
fn an_event_that_is_no_json_costs_only_itself() {
    for api in FORMATS {
        let mut lines = stream(api, &["a", "b"]);
        for place in (0..lines.len()).rev() {
            lines.insert(place, r#"{"cut":"#.to_owned());
        }
        let mut stream = AnswerStream::new(api);
        let mut said = Vec::new();
        assert_eq!(told(api, &events(&lines)), all("ab"), "{api:?}");
        stream.feed(&events(&lines), &mut said).expect("they are skipped");
        assert_eq!(stream.unreadable() as usize, lines.len() / 2);
    }
}

#[test]
fn a_call_of_which_a_piece_cannot_be_read_is_not_carried_out() {
    for api in FORMATS {
        let whole = stream(api, &["rm -rf build", "-old"]);
        let is_of_call = |line: &String| api.call_marks.iter().any(|mark| line.contains(mark));
        let places: Vec<_> = (0..whole.len()).filter(|at| is_of_call(&whole[*at])).collect();
        assert_eq!(places.len(), 3, "{api:?}");
        for place in places {
            let mut lines = whole.clone();
            lines[place].push(',');
            let told = decoded(api, [&events(&lines)[..]]);
            assert!(told.contains("Malformed(\"a piece of a tool call is no JSON"), "{told}");
        }
    }
}

#[test]
fn an_event_that_is_no_json_is_the_end_when_nothing_follows() {
    for api in FORMATS {
        let mut lines = stream(api, &["ab"]);
        *lines.last_mut().expect("there are some") = "{\"cut\":".to_owned();
        let bytes = events(&lines);
        let told = told(api, &bytes);
        assert!(told.contains("| Malformed(\"an event is no JSON (EOF while parsing"), "{told}");
        // One that was cut off is a cut connection.
        let told = decoded(api, [&bytes[..bytes.len() - 2]]);
        assert!(told.ends_with("| Truncated"), "{told}");
    }
}

#[test]
fn a_stream_of_nothing_but_events_that_are_no_json_comes_to_an_end() {
    let mut stream = AnswerStream::new(&openai_completions::FORMAT);
    let (mut events, mut fed) = (Vec::new(), 0);
    while stream.feed(b"data: keep-alive\n\n", &mut events).is_ok() {
        fed += 1;
    }
    assert_eq!(fed, 100);
}

#[test]
fn what_a_decoder_holds_back_is_bounded() {
    let start = |index: u32, kind: &str| {
        format!(
            "data: {{\"type\":\"content_block_start\",\"index\":{index},\"content_block\":{{\"type\":\"{kind}\"}}}}\n\n"
        )
    };
    let mut stream = AnswerStream::new(&anthropic_messages::FORMAT);
    let flood: String = (0..2001).map(|index| start(index, "text")).collect();
    let failure = stream.feed(flood.as_bytes(), &mut Vec::new());
    assert!(format!("{failure:?}").contains("more than 2000 blocks"), "{failure:?}");
    let mut stream = AnswerStream::new(&anthropic_messages::FORMAT);
    stream.feed(start(0, "thinking").as_bytes(), &mut Vec::new()).expect("a block may begin");
    let piece = format!(
        "data: {{\"type\":\"content_block_delta\",\"index\":0,\"delta\":{{\"type\":\"signature_delta\",\"signature\":\"{}\"}}}}\n\n",
        "x".repeat(1 << 20),
    );
    let (mut events, mut pieces) = (Vec::new(), 0);
    while stream.feed(piece.as_bytes(), &mut events).is_ok() {
        pieces += 1;
    }
    assert_eq!((pieces, events.len()), (4, 0));
}
