//! Keys, and keeping them out of sight.
//!
//! Owns: the values that no error, log or event may show, and taking them out of foreign text.
//! Never: shows one; `Debug` says only that there is something.

use std::fmt;

use reqwest::header::{HeaderValue, InvalidHeaderValue};

/// One value that nobody may see, such as an API key.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct Secret(String);

impl Secret {
    /// Wraps a value. Blanks around it, which come with `$(cat file)`, are not part of a key.
    pub(super) fn new(value: &str) -> Self {
        Secret(value.trim().to_owned())
    }

    /// The value in a header, marked so that the HTTP library does not show it either.
    pub(super) fn header(&self, prefix: &str) -> Result<HeaderValue, InvalidHeaderValue> {
        let mut value = HeaderValue::from_str(&format!("{prefix}{}", self.0))?;
        value.set_sensitive(true);
        Ok(value)
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("Secret(…)")
    }
}

/// All that one provider's requests carry and its errors must not repeat.
#[derive(Clone, Debug, Default)]
pub(super) struct Secrets {
    // Invariant: longest first, so that a part is not replaced before the whole.
    values: Vec<Secret>,
}

/// Shorter values are words that an error may need.
const SHORTEST: usize = 6;

/// How well-known keys begin: a server may quote one that is not ours.
const KNOWN_PREFIXES: &[&str] = &["sk-", "Bearer "];

impl Secrets {
    /// Adds a value and, since a server may repeat only a part of a header, each of its words.
    pub(super) fn add(&mut self, value: &str) {
        for part in std::iter::once(value.trim()).chain(value.split_whitespace()) {
            if part.len() >= SHORTEST {
                self.values.push(Secret(part.to_owned()));
            }
        }
        self.values.sort_by_key(|secret| std::cmp::Reverse(secret.0.len()));
        self.values.dedup();
    }

    /// The text without the secrets, and without what looks like somebody else's.
    pub(super) fn redact(&self, text: &str) -> String {
        let others = |text: String, prefix: &&str| redact_after(&text, prefix);
        let text = KNOWN_PREFIXES.iter().fold(text.to_owned(), others);
        self.values.iter().fold(text, |text, Secret(value)| text.replace(value, "[secret]"))
    }
}

/// Replaces runs of at least 16 key characters that follow a prefix.
fn redact_after(text: &str, prefix: &str) -> String {
    let mut redacted = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find(prefix) {
        let (before, found) = rest.split_at(at + prefix.len());
        redacted.push_str(before);
        let is_key = |byte: &u8| byte.is_ascii_alphanumeric() || b"-_.~+/=*".contains(byte);
        let length = found.bytes().take_while(|byte| is_key(byte)).count();
        if length >= 16 {
            redacted.push_str("[secret]");
        } else {
            redacted.push_str(&found[..length]);
        }
        rest = &found[length..];
    }
    redacted + rest
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    /// Foreign text, and what is left of it.
    const CASES: &[(&str, &str)] = &[
        ("nothing here", "nothing here"),
        ("Incorrect key: key-12345.", "Incorrect key: [secret]."),
        ("key-12345key-12345", "[secret][secret]"),
        ("Authorization: Token abcdefgh", "Authorization: [secret]"),
        ("token abcdefgh!", "token [secret]!"),
        ("sk-abcdefghijklmnopqrstuvwxyz is wrong", "sk-[secret] is wrong"),
        ("a sk-ed question", "a sk-ed question"),
        ("Bearer eyJhbGciOiJIUzI1NiJ9.e30", "Bearer [secret]"),
        ("Bearer token missing", "Bearer token missing"),
    ];

    #[test]
    fn secrets_are_taken_out_of_foreign_text() {
        let mut secrets = Secrets::default();
        secrets.add("key-12345");
        secrets.add("Token abcdefgh");
        secrets.add("de");
        for (text, expected) in CASES {
            assert_eq!(secrets.redact(text), *expected);
        }
    }

    #[test]
    fn debug_shows_nothing() {
        let mut secrets = Secrets::default();
        secrets.add("key-12345");
        assert!(!format!("{secrets:?} {:?}", Secret::new("key-12345")).contains("12345"));
        let header = Secret::new(" key-12345\n").header("Bearer ").unwrap();
        assert_eq!(format!("{header:?}"), "Sensitive");
        assert_eq!(header, "Bearer key-12345");
    }
}
