//! Something to show, before anybody has decided where.

/// Something to show.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Piece {
    /// More of the answer. Goes on where the last one ended.
    Answer(String),
    /// The answer so far is complete: what follows begins a line.
    AnswerEnd,
    /// More of what the model thinks. Goes on where the last one ended.
    Thinking(String),
    /// A line of its own.
    Line(Tone, String),
}

/// What kind of line it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tone {
    /// Beside the point.
    Faint,
    /// A tool is at work.
    Tool,
    /// Somebody said it.
    User,
    /// Something is not as it should be.
    Warning,
    /// Something failed.
    Error,
}

/// Pieces as a text without colours.
pub fn plain(pieces: &[Piece]) -> String {
    let mut text = String::new();
    let end = |text: &mut String| {
        if !text.is_empty() && !text.ends_with('\n') {
            text.push('\n');
        }
    };
    for piece in pieces {
        match piece {
            Piece::Answer(more) | Piece::Thinking(more) => text.push_str(more),
            Piece::AnswerEnd => end(&mut text),
            Piece::Line(_, line) => {
                end(&mut text);
                text.push_str(line);
                text.push('\n');
            }
        }
    }
    text
}
