//! Sentences and lines about what has happened. Pure.

use agent_core::{
    Block, ConfigChange, EndReason, QueueKind, Queued, Undelivered, UserMessage, text_of,
};
use agent_protocol::harmless::{harmless, one_line};

use crate::render::{
    piece::{Piece, Tone},
    summary,
};

pub fn result_lines(tool: &str, content: &[Block], is_error: bool) -> Vec<Piece> {
    let tone = if is_error { Tone::Error } else { Tone::Faint };
    let lines = summary::result(tool, content);
    lines.into_iter().map(|line| Piece::Line(tone, format!("  {line}"))).collect()
}

pub fn said(message: &UserMessage) -> Vec<Piece> {
    let text = text_and_images(&message.content);
    let lines = text.lines().enumerate().map(|(index, line)| {
        let mark = if index == 0 { "›" } else { " " };
        Piece::Line(Tone::User, format!("{mark} {}", harmless(line)))
    });
    lines.collect()
}

pub fn queued_text(queued: &Queued) -> String {
    one_line(&text_and_images(&queued.content))
}

pub fn text_and_images(content: &[Block]) -> String {
    let images = content.iter().filter(|block| matches!(block, Block::Image { .. })).count();
    match (text_of(content), images) {
        (text, 0) => text,
        (text, 1) => format!("{text} [image]"),
        (text, images) => format!("{text} [{images} images]"),
    }
}

pub fn queue_name(queue: QueueKind) -> &'static str {
    match queue {
        QueueKind::Steering => "steering",
        QueueKind::FollowUp => "follow-up",
    }
}

pub fn retry(attempt: u32, delay_ms: u64, error: &str) -> String {
    let seconds = delay_ms as f64 / 1000.0;
    format!("trying again in {seconds:.1} s (retry {attempt}): {}", one_line(error))
}

pub fn changed(change: &ConfigChange) -> String {
    // As on the wire, since `config` takes the same words.
    let fields = serde_json::to_value(change).unwrap_or_default();
    let settings: Vec<_> = fields
        .as_object()
        .into_iter()
        .flatten()
        .map(|(name, value)| match value.as_str() {
            Some(text) => format!("{name} = {text}"),
            None => format!("{name} = {value}"),
        })
        .collect();
    one_line(&format!("settings: {}", settings.join(", ")))
}

/// Why a run ended, unless it has just said all that it wanted to.
pub fn end(reason: EndReason, error_message: Option<&str>) -> Option<Piece> {
    let warning = |text: &str| Some(Piece::Line(Tone::Warning, text.to_owned()));
    match reason {
        EndReason::Stop => None,
        EndReason::Aborted => warning("aborted"),
        EndReason::MaxTurns => {
            warning("stopped: the limit of turns (`agent-client config maxTurns=N` sets it)")
        }
        EndReason::Length => warning("stopped: the model's output limit cut the answer off"),
        EndReason::StoppedByHook => warning("stopped by a hook"),
        EndReason::Error => {
            let because = error_message.map_or_else(|| "no reason given".to_owned(), one_line);
            Some(Piece::Line(Tone::Error, format!("error: {because}")))
        }
    }
}

pub fn ended(
    reason: EndReason,
    error_message: Option<&str>,
    undelivered: &Undelivered,
    out: &mut Vec<Piece>,
) {
    out.push(Piece::AnswerEnd);
    out.extend(end(reason, error_message));
    let steering = undelivered.steering.iter().map(|queued| (QueueKind::Steering, queued));
    let follow_up = undelivered.follow_up.iter().map(|queued| (QueueKind::FollowUp, queued));
    for (queue, queued) in steering.chain(follow_up) {
        let text = format!("not delivered ({}): {}", queue_name(queue), queued_text(queued));
        out.push(Piece::Line(Tone::Warning, text));
    }
}
