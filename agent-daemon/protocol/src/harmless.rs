//! Text that a terminal cannot take for anything but text.
//!
//! Owns: what becomes of control characters. Models, tools, files, peers and the names that they
//! give things contain what they like; on the way to a screen or a log none of it may move the
//! cursor, change a title, answer for the user, begin a line of its own or turn the reading
//! direction around. Both programs use these functions where they write, and nothing else.
//! Never: changes what is stored or sent.

use std::{borrow::Cow, fmt::Write};

/// The text with everything that would not be shown as itself made visible. Line feeds and tabs
/// stay; carriage returns go.
pub fn harmless(text: &str) -> Cow<'_, str> {
    replaced(
        text,
        |letter| is_harmful(letter) && !is_layout(letter),
        |letter, shown| {
            if letter != '\r' {
                show(letter, shown);
            }
        },
    )
}

/// The same for what has to stay on its line and keep its letters, such as a path in a log: line
/// feeds, tabs and carriage returns become visible, too.
pub fn harmless_line(text: &str) -> Cow<'_, str> {
    replaced(text, is_harmful, show)
}

/// The text on one line: each run of white space is one blank.
pub fn one_line(text: &str) -> String {
    let words: Vec<_> = text.split_whitespace().collect();
    harmless(&words.join(" ")).into_owned()
}

/// A JSON text that means the same and has none of these characters: in strings they are escaped,
/// between tokens they are white space.
pub fn harmless_json(json: &str) -> Cow<'_, str> {
    replaced(
        json,
        |letter| is_harmful(letter) && !is_layout(letter),
        |letter, shown| match letter {
            // JSON has the others below U+0020 nowhere, and this one only between tokens.
            '\r' => shown.push(' '),
            letter => write!(shown, "\\u{:04x}", letter as u32).expect("a string takes everything"),
        },
    )
}

fn replaced(
    text: &str,
    is_wanted: impl Fn(char) -> bool,
    replace: impl Fn(char, &mut String),
) -> Cow<'_, str> {
    let Some(first) = text.find(&is_wanted) else { return Cow::Borrowed(text) };
    let (clean, rest) = text.split_at(first);
    let mut shown = String::with_capacity(text.len() + 16);
    shown.push_str(clean);
    for letter in rest.chars() {
        match is_wanted(letter) {
            true => replace(letter, &mut shown),
            false => shown.push(letter),
        }
    }
    Cow::Owned(shown)
}

fn show(letter: char, shown: &mut String) {
    match letter {
        '\u{7f}' => shown.push('␡'),
        // The pictures of control characters stand in their order.
        letter if letter < ' ' => shown.extend(char::from_u32(0x2400 + letter as u32)),
        letter => write!(shown, "<U+{:04X}>", letter as u32).expect("a string takes everything"),
    }
}

fn is_layout(letter: char) -> bool {
    matches!(letter, '\n' | '\t')
}

fn is_harmful(letter: char) -> bool {
    match letter {
        letter if letter.is_control() => true,
        // Marks, embeddings, overrides and isolates reorder what is around them, as far as the
        // line's end.
        '\u{61c}' | '\u{200e}' | '\u{200f}' => true,
        '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{206f}' => true,
        // Line ends, for some.
        '\u{2028}' | '\u{2029}' => true,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use proptest::prelude::*;
    use serde_json::Value;

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
            ("\u{2066}x\u{2069}\u{200f}\u{61c}", "<U+2066>x<U+2069><U+200F><U+061C>"),
            ("a\u{2028}b", "a<U+2028>b"),
        ] {
            assert_eq!(harmless(text), expected, "{text:?}");
        }
    }

    #[test]
    fn a_line_stays_one_and_keeps_its_letters() {
        let path = "/tmp/two  blanks\n2026-12-01 ERROR forged\t\r\x1b[2K";
        assert_eq!(harmless_line(path), "/tmp/two  blanks␊2026-12-01 ERROR forged␉␍␛[2K");
        assert_eq!(one_line("  a\n\n b\t\x1bc "), "a b ␛c");
    }

    #[test]
    fn json_is_escaped_in_its_strings_and_stays_json_around_them() {
        for (json, expected) in [
            ("{\"a\": \"x\u{9b}31m\u{7f}\"}", r#"{"a": "x\u009b31m\u007f"}"#),
            ("[\"\u{202e}\u{2067}\",\r\n\t1]", "[\"\\u202e\\u2067\", \n\t1]"),
            (r#""\u001b stays""#, r#""\u001b stays""#),
        ] {
            assert_eq!(harmless_json(json), expected);
        }
    }

    proptest! {
        #[test]
        fn nothing_harmful_is_left_and_json_means_the_same(text in any::<String>()) {
            let left = |text: &str| text.chars().any(|letter| is_harmful(letter) && !is_layout(letter));
            prop_assert!(!left(&harmless(&text)));
            prop_assert!(!harmless_line(&text).contains(is_harmful));
            let value = Value::from(text);
            let json = value.to_string();
            let shown = harmless_json(&json);
            prop_assert!(!left(&shown));
            prop_assert_eq!(serde_json::from_str::<Value>(&shown).unwrap(), value);
        }
    }
}
