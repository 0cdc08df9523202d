//! Reading the JSON of servers that do not write it well.
//!
//! Owns: what JSON has no meaning for and yet has one: half a character as an escape, control
//! characters in texts, and numbers that are none (`NaN`, `Infinity`). The rest of such an answer
//! is sound. Pure.
//! Never: guesses where a text or an object ends.

use serde_json::Value;

use super::cut_characters;

/// The value of a text. Half characters are marks, control characters themselves, and numbers that
/// are none are null.
pub(super) fn read(text: &str) -> serde_json::Result<Value> {
    serde_json::from_str(text).or_else(|error| match mended(text) {
        Some(mended) => serde_json::from_str(&mended),
        None => Err(error),
    })
}

/// Nothing if there is nothing to mend.
fn mended(text: &str) -> Option<String> {
    let bytes = text.as_bytes();
    let mut mended = String::new();
    let (mut copied, mut at, mut in_text) = (0, 0, false);
    while let Some(byte) = bytes.get(at) {
        let (length, mend) = match (in_text, byte) {
            (_, b'"') => {
                in_text = !in_text;
                (1, None)
            }
            (true, b'\\') => escape(&text[at..]),
            (true, ..=0x1F) => (1, Some(format!("\\u{byte:04x}"))),
            (false, b'N' | b'I' | b'-') => no_number(&bytes[at..]),
            _ => (1, None),
        };
        if let Some(mend) = mend {
            mended.push_str(&text[copied..at]);
            mended.push_str(&mend);
            copied = at + length;
        }
        at += length;
    }
    (copied > 0).then(|| mended + &text[copied..])
}

/// How long an escape is, and what to write instead.
fn escape(text: &str) -> (usize, Option<String>) {
    match unit(text) {
        Some(0xD800..0xDC00)
            if matches!(text.get(ESCAPE..).and_then(unit), Some(0xDC00..0xE000)) =>
        {
            (2 * ESCAPE, None)
        }
        Some(half @ 0xD800..0xE000) => (ESCAPE, Some(cut_characters::half(half).to_string())),
        _ => (2, None),
    }
}

/// The length of `\ud83d`.
const ESCAPE: usize = 6;

/// The unit of UTF-16 that an escape at the text's start stands for.
fn unit(text: &str) -> Option<u16> {
    u16::from_str_radix(text.strip_prefix("\\u")?.get(..4)?, 16).ok()
}

/// How Python and JavaScript write what is no number.
fn no_number(bytes: &[u8]) -> (usize, Option<String>) {
    let found =
        ["NaN", "Infinity", "-Infinity"].iter().find(|name| bytes.starts_with(name.as_bytes()));
    found.map_or((1, None), |name| (name.len(), Some("null".to_owned())))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

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
            let read = read(text).ok().and_then(|value| value.as_str().map(str::to_owned));
            assert_eq!(read.map(cut_characters::whole).as_deref(), Some(expected), "{text}");
        }
    }

    #[test]
    fn control_characters_and_what_is_no_number_do_not_spoil_the_rest() {
        for (text, expected) in [
            ("\"a\u{1}\u{1f}\tb\nc\u{0}\"", json!("a\u{1}\u{1f}\tb\nc\u{0}")),
            (
                r#"{"a":NaN,"b":[-Infinity,Infinity],"c":"NaN \" Infinity"}"#,
                json!({"a":null,"b":[null,null],"c":"NaN \" Infinity"}),
            ),
            ("{\"né\":\"\u{7}é\",\"x\":-1}", json!({"né":"\u{7}é","x":-1})),
        ] {
            assert_eq!(read(text).ok(), Some(expected), "{text:?}");
        }
    }

    #[test]
    fn what_is_no_json_stays_none() {
        for text in [
            "",
            "{\"a\":\"\\ud83d\"",
            "\"\\",
            "\"\\é\\ud83d\"",
            "\"\\ud8",
            "\\ud83d",
            "\"a\u{1}",
            "NaNa",
            "Inf",
            "\u{1}{}",
            "-",
            "{\"a\":--Infinity}",
        ] {
            assert!(read(text).is_err(), "{text}");
        }
    }
}
