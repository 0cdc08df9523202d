//! Text that a terminal cannot take for anything but text.
//!
//! Owns: what becomes of control characters. Models, tools and files write what they like; on the
//! way to a screen none of it may move the cursor, change a title, answer for the user or turn the
//! reading direction around.

use std::borrow::Cow;

/// The text with everything that would not be shown as itself made visible. Line feeds and tabs
/// stay; carriage returns go.
pub fn harmless(text: &str) -> Cow<'_, str> {
    let Some(first) = text.find(is_harmful) else { return Cow::Borrowed(text) };
    let (clean, rest) = text.split_at(first);
    let mut shown = String::with_capacity(text.len() + 16);
    shown.push_str(clean);
    for letter in rest.chars() {
        match letter {
            '\r' => {}
            '\u{7f}' => shown.push('␡'),
            letter if letter < ' ' && is_harmful(letter) => {
                // The pictures of control characters stand in their order.
                shown.extend(char::from_u32(0x2400 + letter as u32));
            }
            letter if is_harmful(letter) => {
                shown.push_str(&format!("<U+{:04X}>", letter as u32));
            }
            letter => shown.push(letter),
        }
    }
    Cow::Owned(shown)
}

/// The text on one line: each run of white space is one blank.
pub fn one_line(text: &str) -> String {
    let words: Vec<_> = text.split_whitespace().collect();
    harmless(&words.join(" ")).into_owned()
}

/// What a terminal would show of a line that was written over and over, as progress bars are.
pub fn last_written(line: &str) -> &str {
    let line = line.trim_end_matches('\r');
    line.rsplit('\r').next().unwrap_or(line)
}

fn is_harmful(letter: char) -> bool {
    match letter {
        '\n' | '\t' => false,
        letter if letter.is_control() => true,
        // Embeddings, overrides and isolates reorder what follows, up to the end of the line.
        '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' => true,
        // Line ends, for some.
        '\u{2028}' | '\u{2029}' => true,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_characters_become_visible_and_text_stays() {
        for (text, expected) in [
            ("", ""),
            ("plain\n\ttext", "plain\n\ttext"),
            ("naïve 日本語 👩‍👩‍👧 עברית", "naïve 日本語 👩‍👩‍👧 עברית"),
            ("\x1b[31mred\x1b[0m", "␛[31mred␛[0m"),
            ("\x1b]0;title\x07", "␛]0;title␇"),
            ("a\0b\x08c\x7f", "a␀b␈c␡"),
            ("one\r\ntwo\rthree", "one\ntwothree"),
            ("\u{9b}31m", "<U+009B>31m"),
            ("user\u{202e}gnp.exe", "user<U+202E>gnp.exe"),
            ("\u{2066}x\u{2069}", "<U+2066>x<U+2069>"),
            ("a\u{2028}b", "a<U+2028>b"),
        ] {
            assert_eq!(harmless(text), expected, "{text:?}");
        }
    }

    #[test]
    fn a_line_that_was_written_over_shows_its_last_state() {
        assert_eq!(last_written(" 10%\r 50%\r100%\r"), "100%");
        assert_eq!(last_written("plain"), "plain");
        assert_eq!(last_written(""), "");
    }

    #[test]
    fn a_summary_has_one_line() {
        assert_eq!(one_line("  a\n\n b\t\x1bc "), "a b ␛c");
    }
}
