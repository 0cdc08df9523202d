//! The screen of `attach`: output that scrolls by, and below it a status line and the input line.
//! Pure: what is to be written to the terminal is a text.
//!
//! Owns: what stands below the last line that is complete, and where in it the cursor is. Never:
//! touches what has scrolled by, so that the terminal's own history is the transcript.

use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

use crate::{attach::line::Rows, render::screen::paint};

/// How many columns a tab can take.
const TAB_COLUMNS: usize = 8;

/// What is below the output.
#[derive(Debug)]
pub struct Footer {
    /// One line about the session.
    pub status: String,
    /// The line that is being written.
    pub input: Rows,
}

/// The lower end of the screen.
#[derive(Debug)]
pub struct View {
    columns: usize,
    rows: usize,
    has_colors: bool,
    /// The output's last row, while it is not complete, with its colours.
    tail: String,
    tail_columns: usize,
    /// The colours that are on.
    style: String,
    /// How many rows above the cursor the output's last row is, or the footer if that is complete.
    cursor_row: usize,
    /// How wide the rows are that stand above the cursor, for when the terminal wraps them anew.
    widths: Vec<usize>,
    /// Whether the output's last row may have other columns than we know.
    is_moved: bool,
}

impl View {
    /// For a terminal whose cursor is at the beginning of a row.
    pub fn new(columns: usize, rows: usize, has_colors: bool) -> Self {
        View {
            columns: columns.max(8),
            rows: rows.max(4),
            has_colors,
            tail: String::new(),
            tail_columns: 0,
            style: String::new(),
            cursor_row: 0,
            widths: Vec::new(),
            is_moved: false,
        }
    }

    /// How wide the input line may be.
    pub fn columns(&self) -> usize {
        self.columns
    }

    /// The terminal has another size.
    pub fn resize(&mut self, columns: usize, rows: usize) {
        (self.columns, self.rows) = (columns.max(8), rows.max(4));
        // What was drawn is wrapped anew by the terminal, and the cursor moved with it.
        self.cursor_row =
            self.widths.iter().map(|width| width.saturating_sub(1) / self.columns + 1).sum();
        self.is_moved = true;
    }

    /// Writes output above the footer. Its lines end in `\n`, and colours are all it may contain.
    pub fn print(&mut self, output: &str, footer: &Footer) -> String {
        // Going on behind the tail leaves the terminal's own wrapping alone, so that a long line
        // can be copied as one. Behind a full row there is no place to go to.
        let mut screen = if self.is_moved || self.tail_columns >= self.columns {
            let screen = self.to_column(0);
            self.rewrite(screen)
        } else {
            self.to_column(self.tail_columns) + &self.style
        };
        self.is_moved = false;
        self.write(output, &mut screen);
        self.footer(footer, &mut screen);
        screen
    }

    /// The screen was cleared.
    pub fn forget(&mut self) {
        self.cursor_row = 0;
        self.widths.clear();
        self.is_moved = true;
    }

    /// Takes the footer away, for good or for a while.
    pub fn clear(&mut self) -> String {
        let mut screen = self.to_column(0) + &std::mem::take(&mut self.tail);
        if std::mem::take(&mut self.tail_columns) > 0 {
            screen.push_str("\r\n");
        }
        self.style.clear();
        self.widths.clear();
        self.cursor_row = 0;
        screen
    }

    /// Clears all from this column of the output's last row on.
    fn to_column(&self, column: usize) -> String {
        let mut screen = String::from("\r");
        if self.cursor_row > 0 {
            screen.push_str(&format!("\x1b[{}A", self.cursor_row));
        }
        if column > 0 {
            screen.push_str(&format!("\x1b[{column}C"));
        }
        screen.push_str("\x1b[J");
        screen
    }

    fn rewrite(&mut self, mut screen: String) -> String {
        let tail = std::mem::take(&mut self.tail);
        self.tail_columns = 0;
        self.style.clear();
        self.write(&tail, &mut screen);
        screen
    }

    fn write(&mut self, output: &str, screen: &mut String) {
        let mut letters = output.chars();
        while let Some(letter) = letters.next() {
            match letter {
                '\n' => {
                    screen.push_str("\r\n");
                    self.new_row();
                }
                '\t' => {
                    let blanks = TAB_COLUMNS - self.tail_columns % TAB_COLUMNS;
                    (0..blanks).for_each(|_| self.put(' ', screen));
                }
                '\x1b' => {
                    let mut color = String::from(letter);
                    for letter in letters.by_ref() {
                        color.push(letter);
                        if letter == 'm' {
                            break;
                        }
                    }
                    screen.push_str(&color);
                    self.tail.push_str(&color);
                    self.style = if color == "\x1b[0m" { String::new() } else { color };
                }
                letter => self.put(letter, screen),
            }
        }
    }

    fn put(&mut self, letter: char, screen: &mut String) {
        let width = letter.width().unwrap_or(0);
        if self.tail_columns + width > self.columns {
            self.new_row();
        }
        self.tail_columns += width;
        self.tail.push(letter);
        screen.push(letter);
    }

    fn new_row(&mut self) {
        self.tail.clone_from(&self.style);
        self.tail_columns = 0;
    }

    fn footer(&mut self, footer: &Footer, screen: &mut String) {
        self.widths.clear();
        if self.tail_columns > 0 {
            screen.push_str("\x1b[0m\r\n");
            self.widths.push(self.tail_columns);
        }
        let status = fitting(&footer.status, self.columns);
        self.widths.push(status.width());
        screen.push_str(&paint(&status, "2;7", self.has_colors));
        let Rows { rows, row, column } = &footer.input;
        let (from, to) = window(rows.len(), *row, (self.rows / 2).max(2));
        for row in &rows[from..to] {
            screen.push_str("\r\n");
            screen.push_str(row);
        }
        self.widths.extend(rows[from..*row].iter().map(|row| row.width()));
        self.cursor_row = self.widths.len();
        let below = to - 1 - row;
        if below > 0 {
            screen.push_str(&format!("\x1b[{below}A"));
        }
        screen.push('\r');
        if *column > 0 {
            screen.push_str(&format!("\x1b[{column}C"));
        }
    }
}

/// The part of `total` rows that is shown: `most` of them, with this one among them.
fn window(total: usize, row: usize, most: usize) -> (usize, usize) {
    let from = (row + 1).saturating_sub(most);
    (from, total.min(from + most))
}

fn fitting(text: &str, columns: usize) -> String {
    let mut shown = String::new();
    let mut width = 0;
    for letter in text.chars() {
        width += letter.width().unwrap_or(0);
        // One column stays free: some terminals wrap as soon as a row is full.
        if width >= columns {
            break;
        }
        shown.push(letter);
    }
    shown
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// As much of a terminal as we use: wrapping, scrolling, moves up and right, clearing.
    struct Terminal {
        columns: usize,
        height: usize,
        rows: Vec<Vec<char>>,
        row: usize,
        column: usize,
    }

    impl Terminal {
        fn new(columns: usize, height: usize) -> Self {
            Terminal { columns, height, rows: vec![Vec::new()], row: 0, column: 0 }
        }

        fn write(&mut self, text: &str) {
            let mut letters = text.chars();
            while let Some(letter) = letters.next() {
                match letter {
                    '\r' => self.column = 0,
                    '\n' => self.down(),
                    '\x1b' => self.escape(&mut letters),
                    letter => self.put(letter),
                }
            }
        }

        fn down(&mut self) {
            self.row += 1;
            if self.row == self.rows.len() {
                self.rows.push(Vec::new());
            }
        }

        fn put(&mut self, letter: char) {
            if self.column + letter.width().unwrap_or(0) > self.columns {
                self.column = 0;
                self.down();
            }
            let row = &mut self.rows[self.row];
            row.resize(row.len().max(self.column), ' ');
            row.truncate(self.column);
            row.push(letter);
            self.column += 1;
        }

        fn escape(&mut self, letters: &mut std::str::Chars<'_>) {
            assert_eq!(letters.next(), Some('['));
            let mut number = String::new();
            let last = loop {
                match letters.next().expect("sequences are whole") {
                    digit @ ('0'..='9' | ';') => number.push(digit),
                    last => break last,
                }
            };
            let count = number.parse().unwrap_or(1);
            match last {
                'A' => {
                    // What has scrolled by cannot be reached.
                    let top = self.rows.len().saturating_sub(self.height);
                    self.row = self.row.saturating_sub(count).max(top);
                }
                'C' => self.column += count,
                'J' => {
                    self.rows.truncate(self.row + 1);
                    self.rows[self.row].truncate(self.column);
                }
                'm' => {}
                other => panic!("{other}"),
            }
        }

        fn text(&self) -> Vec<String> {
            let rows = self.rows.iter().map(|row| row.iter().collect::<String>());
            rows.map(|row| row.trim_end().to_owned()).collect()
        }
    }

    fn footer(rows: &[&str], row: usize, column: usize) -> Footer {
        let rows = rows.iter().map(|row| (*row).to_owned()).collect();
        Footer { status: "-- status --".to_owned(), input: Rows { rows, row, column } }
    }

    /// The output as a terminal without a footer would show it.
    fn plain(output: &str, columns: usize) -> Vec<String> {
        let mut terminal = Terminal::new(columns, 1000);
        terminal.write(&output.replace('\n', "\r\n"));
        terminal.text()
    }

    #[test]
    fn output_scrolls_by_above_the_input() {
        let (mut view, mut terminal) = (View::new(20, 6, false), Terminal::new(20, 6));
        for output in ["one\n", "tw", "o\nthree", " is long and has no end", "\n"] {
            terminal.write(&view.print(output, &footer(&["> abc"], 0, 3)));
        }
        let expected = ["one", "two", "three is long and ha", "s no end", "-- status --", "> abc"];
        assert_eq!(terminal.text(), expected);
        assert_eq!((terminal.row, terminal.column), (5, 3));
        terminal.write(&view.clear());
        assert_eq!(terminal.text(), ["one", "two", "three is long and ha", "s no end", ""]);
    }

    #[test]
    fn colours_go_on_in_the_next_row_and_end_before_the_footer() {
        let mut view = View::new(10, 6, true);
        let screen = view.print("\x1b[2mthinking on\x1b[0m", &footer(&["> "], 0, 2));
        assert!(screen.contains("\x1b[0m\r\n\x1b[2;7m-- status\x1b[0m"), "{screen:?}");
        let screen = view.print("!", &footer(&["> "], 0, 2));
        assert!(screen.starts_with("\r\x1b[2A\x1b[1C\x1b[J!"), "{screen:?}");
    }

    #[test]
    fn of_a_long_input_the_rows_around_the_cursor_are_shown() {
        let (mut view, mut terminal) = (View::new(20, 6, false), Terminal::new(20, 6));
        terminal.write(&view.print("", &footer(&["1", "2", "3", "4", "5"], 3, 1)));
        assert_eq!(terminal.text(), ["-- status --", "2", "3", "4"]);
        assert_eq!((terminal.row, terminal.column), (3, 1));
        terminal.write(&view.print("", &footer(&["1", "2", "3", "4", "5"], 0, 1)));
        assert_eq!(terminal.text(), ["-- status --", "1", "2", "3"]);
        assert_eq!((terminal.row, terminal.column), (1, 1));
    }

    proptest! {
        #[test]
        fn the_output_is_what_it_would_be_without_a_footer(
            pieces in prop::collection::vec("[a-c \n]{0,30}|\x1b\\[2m[a-c\n]{0,30}\x1b\\[0m", 0..20),
            inputs in prop::collection::vec(0..4_usize, 20),
            columns in 8..30_usize,
        ) {
            let (mut view, mut terminal) = (View::new(columns, 8, true), Terminal::new(columns, 8));
            for (piece, rows) in pieces.iter().zip(inputs) {
                let rows = vec!["> x"; rows + 1];
                let row = rows.len() / 2;
                terminal.write(&view.print(piece, &footer(&rows, row, 2)));
            }
            terminal.write(&view.clear());
            let all = pieces.concat();
            let mut expected = plain(&all, columns);
            if expected.last().is_some_and(|last| !last.is_empty()) || all.ends_with(' ') {
                expected.push(String::new());
            }
            let (mut shown, mut expected) = (terminal.text(), expected);
            for rows in [&mut shown, &mut expected] {
                while rows.last().is_some_and(String::is_empty) {
                    rows.pop();
                }
            }
            prop_assert_eq!(shown, expected);
        }
    }
}
