//! The line that the user is writing, and those before it. Pure.
//!
//! Owns: the text, the cursor and the history. Never: puts the cursor inside a character, as the
//! reader sees characters.

use agent_protocol::harmless::harmless;
use unicode_segmentation::UnicodeSegmentation;
use unicode_width::UnicodeWidthStr;

use crate::attach::keys::Key;

/// How many lines are remembered.
const MAX_HISTORY: usize = 200;

/// A line that is being written.
#[derive(Debug, Default)]
pub struct Line {
    text: String,
    // Invariant: an offset into `text`, between two grapheme clusters.
    cursor: usize,
    history: Vec<String>,
    /// The place in the history that is shown, and what was being written before.
    recalled: Option<(usize, String)>,
}

/// The line as rows of a screen.
#[derive(Debug, PartialEq, Eq)]
pub struct Rows {
    /// Each at most as wide as asked for.
    pub rows: Vec<String>,
    /// The cursor's row.
    pub row: usize,
    /// The cursor's column.
    pub column: usize,
}

impl Line {
    /// What is written.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Begins with this text instead.
    pub fn set(&mut self, text: String) {
        self.cursor = text.len();
        self.text = text;
    }

    /// Takes the line, for the history, too.
    pub fn take(&mut self) -> String {
        let text = std::mem::take(&mut self.text);
        self.cursor = 0;
        self.recalled = None;
        if !text.trim().is_empty() && self.history.last() != Some(&text) {
            if self.history.len() >= MAX_HISTORY {
                self.history.remove(0);
            }
            self.history.push(text.clone());
        }
        text
    }

    /// Edits. Keys that are not about text change nothing.
    pub fn press(&mut self, key: &Key) {
        match key {
            Key::Text(text) => self.insert(text),
            Key::NewLine => self.insert("\n"),
            Key::Backspace => self.delete(self.left()..self.cursor),
            Key::Delete => self.delete(self.cursor..self.right()),
            Key::DeleteWord => self.delete(self.word_left()..self.cursor),
            Key::DeleteToStart => self.delete(0..self.cursor),
            Key::DeleteToEnd => self.delete(self.cursor..self.text.len()),
            Key::Left => self.cursor = self.left(),
            Key::Right => self.cursor = self.right(),
            Key::WordLeft => self.cursor = self.word_left(),
            Key::WordRight => self.cursor = self.word_right(),
            Key::Home => self.cursor = 0,
            Key::End => self.cursor = self.text.len(),
            Key::Up => self.recall_older(),
            Key::Down => self.recall_newer(),
            Key::Enter
            | Key::Interrupt
            | Key::EndOfInput
            | Key::Redraw
            | Key::Suspend
            | Key::Resized => {}
        }
    }

    /// Lays the line out behind a mark.
    pub fn rows(&self, mark: &str, width: usize) -> Rows {
        let mut layout = Rows { rows: vec![mark.to_owned()], row: 0, column: 0 };
        let mut column = mark.width();
        for (offset, cluster) in self.text.grapheme_indices(true) {
            if offset == self.cursor {
                (layout.row, layout.column) = (layout.rows.len() - 1, column);
            }
            let shown = shown(cluster);
            if column + shown.width() > width {
                layout.rows.push(String::new());
                column = 0;
                if offset == self.cursor {
                    (layout.row, layout.column) = (layout.rows.len() - 1, 0);
                }
            }
            column += shown.width();
            layout.rows.last_mut().expect("there is one from the start").push_str(shown);
        }
        if self.cursor == self.text.len() {
            if column >= width {
                layout.rows.push(String::new());
                column = 0;
            }
            (layout.row, layout.column) = (layout.rows.len() - 1, column);
        }
        layout
    }

    fn insert(&mut self, text: &str) {
        self.text.insert_str(self.cursor, text);
        self.cursor += text.len();
        // What was inserted may have joined its neighbour: an accent, a skin colour.
        if !self.is_boundary(self.cursor) {
            self.cursor = self.right();
        }
    }

    fn delete(&mut self, range: std::ops::Range<usize>) {
        self.cursor = range.start;
        self.text.drain(range);
        if !self.is_boundary(self.cursor) {
            self.cursor = self.right();
        }
    }

    fn is_boundary(&self, offset: usize) -> bool {
        offset == self.text.len() || self.text.grapheme_indices(true).any(|(at, _)| at == offset)
    }

    fn left(&self) -> usize {
        let before = self.text[..self.cursor].graphemes(true).next_back();
        self.cursor - before.map_or(0, str::len)
    }

    fn right(&self) -> usize {
        let clusters = self.text.grapheme_indices(true);
        let ends = clusters.map(|(at, cluster)| at + cluster.len());
        ends.into_iter().find(|end| *end > self.cursor).unwrap_or(self.text.len())
    }

    fn word_left(&self) -> usize {
        let before = self.text[..self.cursor].trim_end();
        before
            .rfind(char::is_whitespace)
            .map_or(0, |at| at + before[at..].chars().next().map_or(0, char::len_utf8))
    }

    fn word_right(&self) -> usize {
        let after = &self.text[self.cursor..];
        let word = after.trim_start();
        let skipped = after.len() - word.len();
        self.cursor + skipped + word.find(char::is_whitespace).unwrap_or(word.len())
    }

    fn recall_older(&mut self) {
        let newer = self.recalled.as_ref().map_or(self.history.len(), |(at, _)| *at);
        let Some(at) = newer.checked_sub(1) else { return };
        let draft = match self.recalled.take() {
            Some((_, draft)) => draft,
            None => self.text.clone(),
        };
        self.recalled = Some((at, draft));
        self.set(self.history[at].clone());
    }

    fn recall_newer(&mut self) {
        let Some((at, draft)) = self.recalled.take() else { return };
        match self.history.get(at + 1).cloned() {
            Some(text) => {
                self.recalled = Some((at + 1, draft));
                self.set(text);
            }
            None => self.set(draft),
        }
    }
}

/// A cluster as it stands in a row.
fn shown(cluster: &str) -> &str {
    match cluster {
        "\n" | "\r\n" => "↵",
        "\t" => " ",
        // Pasted; a terminal would obey it.
        other if harmless(other) != other => "␦",
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(text: &str) -> Key {
        Key::Text(text.to_owned())
    }

    /// The text, with the cursor as `|`.
    fn story(keys: &[Key]) -> String {
        let mut line = Line::default();
        keys.iter().for_each(|key| line.press(key));
        let (before, after) = line.text.split_at(line.cursor);
        format!("{before}|{after}")
    }

    #[test]
    fn keys_edit() {
        use Key::*;
        let word = || text("one two  three");
        for (keys, expected) in [
            (vec![text("ab"), Left, text("c")], "ac|b"),
            (vec![text("ab"), Backspace, Backspace, Backspace], "|"),
            (vec![text("ab"), Home, Delete, End, text("c")], "bc|"),
            (vec![word(), DeleteWord], "one two  |"),
            (vec![word(), DeleteWord, DeleteWord], "one |"),
            (vec![word(), WordLeft, WordLeft], "one |two  three"),
            (vec![word(), Home, WordRight, WordRight], "one two|  three"),
            (vec![word(), WordLeft, DeleteToStart], "|three"),
            (vec![word(), WordLeft, DeleteToEnd], "one two  |"),
            (vec![text("a"), NewLine, text("b")], "a\nb|"),
            // A family, a flag and an accent are one character each.
            (vec![text("👩‍👩‍👧🇨🇭"), Left, Left], "|👩‍👩‍👧🇨🇭"),
            (vec![text("x👩‍👩‍👧"), Backspace], "x|"),
            (vec![text("e"), text("\u{301}"), Left], "|e\u{301}"),
            (vec![text("日本"), Left, Delete], "日|"),
            (vec![Left, Right, Delete, WordLeft, WordRight, Up, Down], "|"),
        ] {
            assert_eq!(story(&keys), expected, "{keys:?}");
        }
    }

    #[test]
    fn the_history_keeps_what_was_being_written() {
        let mut line = Line::default();
        for entry in ["one", "two", "two", " "] {
            line.press(&text(entry));
            line.take();
        }
        line.press(&text("draft"));
        let mut seen = Vec::new();
        for key in [Key::Up, Key::Up, Key::Up, Key::Down, Key::Down, Key::Down] {
            line.press(&key);
            seen.push(line.text.clone());
        }
        assert_eq!(seen, ["two", "one", "one", "two", "draft", "draft"]);
    }

    #[test]
    fn long_lines_are_laid_out_in_rows() {
        let rows = |written: &str, back: usize| {
            let mut line = Line::default();
            line.press(&text(written));
            (0..back).for_each(|_| line.press(&Key::Left));
            let Rows { rows, row, column } = line.rows("> ", 6);
            format!("{} @{row},{column}", rows.join("|"))
        };
        assert_eq!(rows("", 0), ">  @0,2");
        assert_eq!(rows("abc", 0), "> abc @0,5");
        assert_eq!(rows("abcd", 0), "> abcd| @1,0");
        assert_eq!(rows("abcdef", 2), "> abcd|ef @1,0");
        assert_eq!(rows("abc日", 0), "> abc|日 @1,2");
        assert_eq!(rows("abc日", 1), "> abc|日 @1,0");
        assert_eq!(rows("a\nb\x1b", 0), "> a↵b␦| @1,0");
    }
}
