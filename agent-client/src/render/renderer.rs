//! Events as text for people. Pure.
//!
//! Owns: what of the message that is being streamed has been shown, so that after a gap only the
//! rest is. Never: writes anything, or lets text through that a terminal would obey.

use agent_core::{
    AssistantMessage, Block, Event, EventKind, Message, Partial, PartialBlock, Source,
};
use agent_protocol::harmless::{harmless, one_line};

use crate::render::{
    piece::{Piece, Tone},
    sentences::{changed, ended, queue_name, queued_text, result_lines, retry, said},
    summary,
};

/// Turns events into pieces, one after another.
#[derive(Debug, Default)]
pub struct Renderer {
    /// Whether prompts are shown; whoever has just typed one need not see it again.
    shows_prompts: bool,
    stream: Stream,
    calls: Vec<ShownCall>,
    /// The call that the newest line speaks of.
    latest: Option<String>,
    /// What happened beside the answer that is being streamed; it would cut a sentence in two.
    beside: Vec<Piece>,
}

/// The message that is being streamed.
#[derive(Debug, Default)]
struct Stream {
    /// The block that grew last.
    block: Option<usize>,
    /// How many bytes of each block have been shown.
    shown: Vec<usize>,
}

/// A call of the present turn.
#[derive(Debug)]
struct ShownCall {
    id: String,
    tool: String,
    summary: String,
    is_told: bool,
}

/// A part of a message that text is added to.
enum Growth<'a> {
    Text(&'a str),
    Thinking(&'a str),
}

impl Renderer {
    /// One that shows prompts, too.
    pub fn with_prompts() -> Self {
        Renderer { shows_prompts: true, ..Renderer::default() }
    }

    /// What an event looks like.
    pub fn event(&mut self, event: &Event) -> Vec<Piece> {
        let mut out = Vec::new();
        match &event.kind {
            EventKind::RunStart { messages } => {
                if self.shows_prompts {
                    messages.iter().for_each(|message| self.joined(message, &mut out));
                }
            }
            EventKind::TurnStart { .. } => self.calls.clear(),
            EventKind::MessageStart { .. } => self.stream = Stream::default(),
            EventKind::TextDelta { content_index, delta } => {
                self.grew(*content_index as usize, Growth::Text(delta), &mut out);
            }
            EventKind::ThinkingDelta { content_index, delta } => {
                self.grew(*content_index as usize, Growth::Thinking(delta), &mut out);
            }
            EventKind::MessageEnd { message, source } => match (source, &**message) {
                (Source::Model, Message::Assistant(message)) => self.answered(message, &mut out),
                // Its `tool_end` has told.
                (Source::Tool, _) => {}
                (_, message) => self.joined(message, &mut out),
            },
            EventKind::ToolStart { tool_call_id, tool_name, args } => {
                self.called(tool_call_id, tool_name, args, &mut out);
            }
            EventKind::ToolEnd { tool_call_id, result, is_error } => {
                self.returned(tool_call_id, &result.content, *is_error, &mut out);
            }
            EventKind::ToolSkipped { tool_call_id, reason } => {
                self.skipped(tool_call_id, reason, &mut out);
            }
            EventKind::QueueUpdate { queue, added: Some(queued), .. } => {
                let text = format!("{} › {}", queue_name(*queue), queued_text(queued));
                self.beside.push(Piece::Line(Tone::Faint, text));
            }
            EventKind::Retry { attempt, delay_ms, error } => {
                out.push(Piece::Line(Tone::Warning, retry(*attempt, *delay_ms, error)));
            }
            EventKind::Diagnostic { message } => {
                let text = format!("! {}", one_line(message));
                self.beside.push(Piece::Line(Tone::Warning, text));
            }
            EventKind::ConfigChanged { change } => {
                self.beside.push(Piece::Line(Tone::Faint, changed(change)));
            }
            EventKind::Reset {} => {
                out.push(Piece::Line(Tone::Faint, "the transcript was emptied".to_owned()));
            }
            EventKind::RunEnd { reason, error_message, undelivered, .. } => {
                self.stream = Stream::default();
                ended(*reason, error_message.as_deref(), undelivered, &mut out);
            }
            // Seen by their effects: arguments when the call begins, queues when they are read.
            EventKind::ToolCallDelta { .. }
            | EventKind::ToolUpdate { .. }
            | EventKind::QueueUpdate { added: None, .. }
            | EventKind::TurnEnd { .. } => {}
        }
        if self.stream.block.is_none() {
            out.append(&mut self.beside);
        }
        out
    }

    /// What a message of the transcript looks like, but for what of it has been shown already.
    pub fn message(&mut self, message: &Message) -> Vec<Piece> {
        let mut out = Vec::new();
        self.joined(message, &mut out);
        out
    }

    /// What an unfinished message looks like, but for what of it has been shown already.
    pub fn partial(&mut self, partial: &Partial) -> Vec<Piece> {
        let mut out = Vec::new();
        for (index, block) in partial.content.iter().enumerate() {
            match block {
                PartialBlock::Text(text) => {
                    self.completed(index, &text.to_string(), Growth::Text, &mut out);
                }
                PartialBlock::Thinking(text) => {
                    self.completed(index, &text.to_string(), Growth::Thinking, &mut out);
                }
                PartialBlock::ToolCall { .. } | PartialBlock::Whole(_) => {}
            }
        }
        out
    }

    /// Forgets what was shown of an unfinished message: it is not the one that comes now.
    pub fn forget(&mut self) {
        self.stream = Stream::default();
        self.calls.clear();
    }

    fn joined(&mut self, message: &Message, out: &mut Vec<Piece>) {
        match message {
            Message::User(message) => out.extend(said(message)),
            Message::Assistant(message) => {
                self.answered(message, out);
                for call in message.tool_calls() {
                    if !self.calls.iter().any(|known| known.id == call.id) {
                        self.called(&call.id, &call.name, &call.arguments, out);
                    }
                }
            }
            Message::ToolResult(message) => {
                self.returned(&message.tool_call_id, &message.content, message.is_error, out);
            }
        }
    }

    fn grew(&mut self, index: usize, growth: Growth<'_>, out: &mut Vec<Piece>) {
        let (Growth::Text(delta) | Growth::Thinking(delta)) = growth;
        if delta.is_empty() {
            return;
        }
        if self.stream.block.replace(index).is_some_and(|before| before != index) {
            out.push(Piece::AnswerEnd);
        }
        if self.stream.shown.len() <= index {
            self.stream.shown.resize(index + 1, 0);
        }
        self.stream.shown[index] += delta.len();
        let text = harmless(delta).into_owned();
        out.push(match growth {
            Growth::Text(_) => Piece::Answer(text),
            Growth::Thinking(_) => Piece::Thinking(text),
        });
    }

    /// A block is known whole: shows what is missing.
    fn completed<'a>(
        &mut self,
        index: usize,
        text: &'a str,
        growth: impl Fn(&'a str) -> Growth<'a>,
        out: &mut Vec<Piece>,
    ) {
        let shown = self.stream.shown.get(index).copied().unwrap_or(0);
        if let Some(rest) = text.get(shown..) {
            self.grew(index, growth(rest), out);
        }
    }

    fn answered(&mut self, message: &AssistantMessage, out: &mut Vec<Piece>) {
        for (index, block) in message.content.iter().enumerate() {
            match block {
                Block::Text { text } => self.completed(index, text, Growth::Text, out),
                Block::Thinking { thinking, .. } => {
                    self.completed(index, thinking, Growth::Thinking, out);
                }
                Block::Image { .. } | Block::ToolCall(_) => {}
            }
        }
        out.push(Piece::AnswerEnd);
        self.stream = Stream::default();
        self.calls.clear();
        self.latest = None;
    }

    fn called(
        &mut self,
        id: &str,
        tool: &str,
        arguments: &serde_json::Value,
        out: &mut Vec<Piece>,
    ) {
        let summary = summary::call(tool, arguments);
        out.push(Piece::Line(Tone::Tool, format!("● {summary}")));
        self.latest = Some(id.to_owned());
        let (id, tool) = (id.to_owned(), tool.to_owned());
        self.calls.push(ShownCall { id, tool, summary, is_told: false });
    }

    fn returned(&mut self, id: &str, content: &[Block], is_error: bool, out: &mut Vec<Piece>) {
        let Some(call) = self.calls.iter_mut().find(|call| call.id == id) else {
            // We came when it was running.
            out.extend(result_lines("", content, is_error));
            return;
        };
        if std::mem::replace(&mut call.is_told, true) {
            return;
        }
        // Calls run side by side: say whose result this is, unless its line is the last one.
        if self.latest.as_deref() != Some(id) {
            out.push(Piece::Line(Tone::Tool, format!("○ {}", call.summary)));
            self.latest = Some(id.to_owned());
        }
        out.extend(result_lines(&call.tool, content, is_error));
    }

    fn skipped(&mut self, id: &str, reason: &str, out: &mut Vec<Piece>) {
        let call = self.calls.iter().find(|call| call.id == id);
        let what = call.map_or("a tool call", |call| &call.summary);
        let text = format!("○ {what}: not run: {}", one_line(reason));
        out.push(Piece::Line(Tone::Warning, text));
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use agent_core::{AgentState, Config, Transcript, reduce};

    use super::*;
    use crate::render::piece::plain;

    /// Events, as the wire has them but for what all have, and the text that they come to.
    const CASES: &[(&[&str], &str)] = &[
        (
            &[
                r#""type":"run_start","messages":[{"role":"user","id":"m1","content":[{"type":"text","text":"Count.\nPlease."}],"timestamp":0}]"#,
                r#""type":"turn_start","turn":1"#,
                r#""type":"message_start","role":"assistant""#,
                r#""type":"thinking_delta","contentIndex":0,"delta":"Hm""#,
                r#""type":"thinking_delta","contentIndex":0,"delta":"m.""#,
                r#""type":"text_delta","contentIndex":1,"delta":"one ""#,
                r#""type":"text_delta","contentIndex":1,"delta":"two""#,
                r#""type":"message_end","source":"model","message":{"role":"assistant","id":"m2","content":[{"type":"thinking","thinking":"Hmm."},{"type":"text","text":"one two"}],"timestamp":0,"model":"a/b","stopReason":"stop","usage":{}}"#,
                r#""type":"turn_end","turn":1,"stopReason":"stop","usage":{}"#,
                r#""type":"run_end","reason":"stop","errorMessage":null,"undelivered":{"steering":[],"followUp":[]},"usage":{}"#,
            ],
            "› Count.\n  Please.\nHmm.\none two\n",
        ),
        // Tools that run side by side, and end in another order.
        (
            &[
                r#""type":"tool_start","toolCallId":"a","toolName":"read","args":{"path":"README.md"}"#,
                r#""type":"tool_start","toolCallId":"b","toolName":"bash","args":{"command":"ls\n-l"}"#,
                r#""type":"tool_update","toolCallId":"b","partial":{"content":[{"type":"text","text":"1"}]}"#,
                r#""type":"tool_end","toolCallId":"b","result":{"content":[{"type":"text","text":"1\n2\n3\n4\n5\n6\n7\n8"}]},"isError":false"#,
                r#""type":"tool_end","toolCallId":"a","result":{"content":[{"type":"text","text":"no such file"}]},"isError":true"#,
                r#""type":"tool_skipped","toolCallId":"c","reason":"aborted""#,
            ],
            "● read README.md\n● bash ls …\n  … 2 lines before\n  3\n  4\n  5\n  6\n  7\n  8\n\
             ○ read README.md\n  no such file\n○ a tool call: not run: aborted\n",
        ),
        (
            &[
                r#""type":"retry","attempt":2,"delayMs":1500,"error":"HTTP 529\nbusy""#,
                r#""type":"diagnostic","message":"a listener failed""#,
                r#""type":"config_changed","model":"a/b","maxTurns":3"#,
                r#""type":"reset""#,
                r#""type":"queue_update","queue":"followUp","added":{"messageId":"m","content":[{"type":"text","text":"and then"}]}"#,
                r#""type":"queue_update","queue":"followUp","removed":["m"]"#,
            ],
            "trying again in 1.5 s (retry 2): HTTP 529 busy\n! a listener failed\n\
             settings: maxTurns = 3, model = a/b\nthe transcript was emptied\nfollow-up › and then\n",
        ),
        // What happens beside an answer does not cut it in two.
        (
            &[
                r#""type":"text_delta","contentIndex":0,"delta":"half ""#,
                r#""type":"queue_update","queue":"steering","added":{"messageId":"m","content":[{"type":"text","text":"wait"}]}"#,
                r#""type":"text_delta","contentIndex":0,"delta":"and half""#,
                r#""type":"message_end","source":"model","message":{"role":"assistant","id":"m2","content":[{"type":"text","text":"half and half"}],"timestamp":0,"model":"a/b","stopReason":"stop","usage":{}}"#,
            ],
            "half and half\nsteering › wait\n",
        ),
        // A message that was steered in, with a picture.
        (
            &[
                r#""type":"message_end","source":"steering","message":{"role":"user","id":"m","content":[{"type":"text","text":"this:"},{"type":"image","mimeType":"image/png","data":""}],"timestamp":0}"#,
            ],
            "› this: [image]\n",
        ),
        // Ends, and what was not delivered.
        (
            &[
                r#""type":"text_delta","contentIndex":0,"delta":"so far""#,
                r#""type":"run_end","reason":"aborted","errorMessage":null,"undelivered":{"steering":[{"messageId":"m","content":[{"type":"text","text":"left"}]}],"followUp":[{"messageId":"n","content":[{"type":"text","text":"right"}]}]},"usage":{}"#,
            ],
            "so far\naborted\nnot delivered (steering): left\nnot delivered (follow-up): right\n",
        ),
        (
            &[
                r#""type":"run_end","reason":"error","errorMessage":"no\u001b[2J key","undelivered":{"steering":[],"followUp":[]},"usage":{}"#,
            ],
            "error: no␛[2J key\n",
        ),
        // What a model writes is text, never a command to the terminal.
        (
            &[
                r#""type":"text_delta","contentIndex":0,"delta":"a\u001b]0;x\u0007b\u202e""#,
                r#""type":"tool_start","toolCallId":"a","toolName":"ba\u001bsh","args":{}"#,
                r#""type":"tool_end","toolCallId":"a","result":{"content":[{"type":"text","text":"\u001b[31mred"}]},"isError":false"#,
            ],
            "a␛]0;x␇b<U+202E>\n● ba␛sh\n  ␛[31mred\n",
        ),
    ];

    fn event(seq: usize, fields: &str) -> Event {
        let json = format!(r#"{{"seq":{seq},"runId":1,{}}}"#, fields);
        serde_json::from_str(&json).unwrap_or_else(|error| panic!("{json}: {error}"))
    }

    #[test]
    fn events_become_lines_of_text() {
        for (lines, expected) in CASES {
            let mut renderer = Renderer::with_prompts();
            let events = lines.iter().enumerate().map(|(index, fields)| event(index + 1, fields));
            let pieces: Vec<_> = events.flat_map(|event| renderer.event(&event)).collect();
            assert_eq!(plain(&pieces), *expected);
        }
    }

    #[test]
    fn a_prompt_that_was_just_typed_is_not_repeated() {
        let mut renderer = Renderer::default();
        assert_eq!(renderer.event(&event(1, CASES[0].0[0])), []);
    }

    /// A view that misses events, and is given the state that they came to, shows the rest of what
    /// was cut and nothing twice.
    #[test]
    fn after_a_gap_only_the_rest_of_a_message_is_shown() {
        let (lines, expected) = CASES[0];
        let events: Vec<_> =
            lines.iter().enumerate().map(|(index, fields)| event(index + 1, fields)).collect();
        for cut in 0..events.len() {
            for end in cut..events.len() {
                let mut renderer = Renderer::with_prompts();
                let mut pieces = Vec::new();
                let mut state = idle();
                for event in &events[..cut] {
                    state = reduce(state, event);
                    pieces.extend(renderer.event(event));
                }
                let known = state.messages.len();
                state = events[cut..end].iter().fold(state, reduce);
                for message in state.messages.range(known, state.messages.len()) {
                    pieces.extend(renderer.message(message));
                }
                if let Some(partial) = &state.partial {
                    pieces.extend(renderer.partial(partial));
                }
                for event in &events[end..] {
                    pieces.extend(renderer.event(event));
                }
                assert_eq!(plain(&pieces), expected, "events {cut}..{end} are missing");
            }
        }
    }

    fn idle() -> AgentState {
        let config = Config { model: "a/b".to_owned(), ..Config::default() };
        AgentState::new(config, Transcript::default())
    }
}
