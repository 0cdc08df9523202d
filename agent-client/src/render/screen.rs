//! The answer on stdout, everything else on stderr.
//!
//! Owns: where the cursors are, so that lines do not run into each other when both are the same
//! terminal. Never: colours what is not a terminal's, or lets anything but its own colours through
//! that a terminal would obey.

use std::{
    io::{self, IsTerminal, Write},
    os::fd::AsFd,
};

use agent_protocol::harmless::harmless;

use crate::render::piece::{Piece, Tone};

/// Where people see what happens.
pub struct Screen {
    answers: Box<dyn Write + Send>,
    notes: Box<dyn Write + Send>,
    /// Whether both are the same device.
    is_one: bool,
    has_colors: bool,
    /// Whether the answers' (or the one) device has an unfinished line.
    answer_is_open: bool,
    /// Whether the notes' device has an unfinished line.
    note_is_open: bool,
    /// Whether what is unfinished is thinking.
    is_thinking: bool,
}

impl Screen {
    /// The process's own.
    pub fn of_process() -> Self {
        let (stdout, stderr) = (io::stdout(), io::stderr());
        let is_one = is_same(&stdout, &stderr);
        let has_colors = wants_colors(&stderr);
        Screen::new(Box::new(stdout), Box::new(stderr), is_one, has_colors)
    }

    /// Two streams, and whether they are one device.
    pub fn new(
        answers: Box<dyn Write + Send>,
        notes: Box<dyn Write + Send>,
        is_one: bool,
        has_colors: bool,
    ) -> Self {
        Screen {
            answers,
            notes,
            is_one,
            has_colors,
            answer_is_open: false,
            note_is_open: false,
            is_thinking: false,
        }
    }

    /// Shows pieces.
    ///
    /// # Errors
    /// Nobody reads any more, as a rule.
    pub fn show(&mut self, pieces: &[Piece]) -> io::Result<()> {
        for piece in pieces {
            match piece {
                Piece::Answer(text) => self.answer(text)?,
                Piece::AnswerEnd => self.end_answer()?,
                Piece::Thinking(text) => self.thinking(text)?,
                Piece::Line(tone, text) => self.line(*tone, text)?,
            }
        }
        self.answers.flush()?;
        self.notes.flush()
    }

    /// Shows one line beside the answer.
    ///
    /// # Errors
    /// As [`show`](Screen::show).
    pub fn note(&mut self, tone: Tone, text: impl Into<String>) -> io::Result<()> {
        self.show(&[Piece::Line(tone, text.into())])
    }

    fn answer(&mut self, text: &str) -> io::Result<()> {
        if self.is_thinking {
            self.end_note()?;
        }
        self.answers.write_all(harmless(text).as_bytes())?;
        self.answer_is_open = !text.ends_with('\n');
        Ok(())
    }

    fn end_answer(&mut self) -> io::Result<()> {
        if std::mem::take(&mut self.answer_is_open) {
            self.answers.write_all(b"\n")?;
        }
        self.end_note()
    }

    fn thinking(&mut self, text: &str) -> io::Result<()> {
        if !self.is_thinking {
            self.begin_note()?;
            self.is_thinking = true;
            let mark = if self.has_colors { "" } else { "thinking: " };
            self.notes.write_all(mark.as_bytes())?;
        }
        self.note_is_open = !text.ends_with('\n');
        let text = paint(&harmless(text), "2", self.has_colors);
        self.notes.write_all(text.as_bytes())
    }

    fn line(&mut self, tone: Tone, text: &str) -> io::Result<()> {
        self.begin_note()?;
        let text = paint(&harmless(text), code(tone), self.has_colors);
        writeln!(self.notes, "{text}")
    }

    fn begin_note(&mut self) -> io::Result<()> {
        self.end_note()?;
        if self.is_one && std::mem::take(&mut self.answer_is_open) {
            self.answers.write_all(b"\n")?;
        }
        // Two writers on one terminal: what was said first has to get there first.
        self.answers.flush()
    }

    fn end_note(&mut self) -> io::Result<()> {
        self.is_thinking = false;
        if std::mem::take(&mut self.note_is_open) {
            self.notes.write_all(b"\n")?;
            self.notes.flush()?;
        }
        Ok(())
    }
}

/// A text in a colour, where there are colours.
pub fn paint(text: &str, code: &str, has_colors: bool) -> String {
    if has_colors { format!("\x1b[{code}m{text}\x1b[0m") } else { text.to_owned() }
}

/// The colour of a tone.
pub fn code(tone: Tone) -> &'static str {
    match tone {
        Tone::Faint => "2",
        Tone::Tool => "36",
        Tone::User => "1",
        Tone::Warning => "33",
        Tone::Error => "31",
    }
}

/// Whether a stream is a terminal that wants colours.
pub fn wants_colors(stream: &impl IsTerminal) -> bool {
    let is_set = |name| std::env::var_os(name).is_some_and(|value| !value.is_empty());
    let is_dumb = std::env::var_os("TERM").is_none_or(|term| term == "dumb");
    stream.is_terminal() && !is_set("NO_COLOR") && !is_dumb
}

fn is_same(one: &impl AsFd, other: &impl AsFd) -> bool {
    let (Ok(one), Ok(other)) = (rustix::fs::fstat(one), rustix::fs::fstat(other)) else {
        return false;
    };
    (one.st_dev, one.st_ino) == (other.st_dev, other.st_ino)
}
