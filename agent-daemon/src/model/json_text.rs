//! Reading the JSON of servers that cut characters in half.
//!
//! Owns: escapes of half a character, which JSON has no meaning for. They come from servers that
//! count in UTF-16 and send an emoji in two pieces; the rest of such an answer is sound. Pure.

use serde_json::Value;

/// The value of a text, with U+FFFD for half characters.
pub(super) fn read(text: &str) -> serde_json::Result<Value> {
    serde_json::from_str(text).or_else(|error| match without_half_characters(text) {
        Some(mended) => serde_json::from_str(&mended),
        None => Err(error),
    })
}

/// Nothing if there are none.
fn without_half_characters(text: &str) -> Option<String> {
    let mut mended = String::new();
    let mut copied = 0;
    let mut at = 0;
    while let Some(found) = text[at..].find('\\') {
        at += found;
        at += match half(&text[at..]) {
            None => 2,
            Some(Half::First) if half(&text[at + ESCAPE..]) == Some(Half::Second) => 2 * ESCAPE,
            Some(_) => {
                mended.push_str(&text[copied..at]);
                mended.push_str("\\ufffd");
                copied = at + ESCAPE;
                ESCAPE
            }
        };
        if !text.is_char_boundary(at) {
            // A backslash before a character that cannot be escaped: no JSON anyway.
            return None;
        }
    }
    (copied > 0).then(|| mended + &text[copied..])
}

/// The length of `\ud83d`.
const ESCAPE: usize = 6;

#[derive(Debug, PartialEq)]
enum Half {
    First,
    Second,
}

/// The half character that an escape at the text's start stands for.
fn half(text: &str) -> Option<Half> {
    let digits = text.strip_prefix("\\u")?.get(..4)?;
    match u16::from_str_radix(digits, 16).ok()? {
        0xD800..=0xDBFF => Some(Half::First),
        0xDC00..=0xDFFF => Some(Half::Second),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn half_characters_do_not_spoil_the_rest() {
        for (text, expected) in [
            (r#""a\ud83d""#, "a\u{fffd}"),
            (r#""\ude00b""#, "\u{fffd}b"),
            (r#""\ud83d\ud83d\ude00\ude00""#, "\u{fffd}😀\u{fffd}"),
            (r#""\ud83d\n\uD83D é""#, "\u{fffd}\n\u{fffd} é"),
            (r#""\\ud83d \\\ud83d""#, "\\ud83d \\\u{fffd}"),
            (r#""\ud83d\u00e9""#, "\u{fffd}é"),
            (r#""fine \ud83d\ude00""#, "fine 😀"),
        ] {
            assert_eq!(read(text).ok().as_ref().and_then(Value::as_str), Some(expected), "{text}");
        }
    }

    #[test]
    fn what_is_no_json_stays_none() {
        for text in ["", "{\"a\":\"\\ud83d\"", "\"\\", "\"\\é\\ud83d\"", "\"\\ud8", "\\ud83d"] {
            assert!(read(text).is_err(), "{text}");
        }
    }
}
