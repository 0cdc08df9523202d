//! A command's bytes as plain text.
//!
//! Owns: UTF-8 over any split of the bytes, and taking out what is for terminals: colours, cursor
//! movements, titles, other control characters. Never: depends on how the bytes were cut, or lets
//! an escape sequence that is never closed swallow more than its line.

/// A sequence with more characters than this is none.
const MAX_SEQUENCE: usize = 64 * 1024;

/// Turns bytes into text, piece by piece.
#[derive(Default)]
pub(super) struct Cleaner {
    /// The beginning of a character whose end has not come yet; at most three bytes.
    pending: Vec<u8>,
    state: State,
    /// How long the current sequence is.
    length: usize,
}

/// Where in an escape sequence the text is.
#[derive(Clone, Copy, Default, PartialEq)]
enum State {
    #[default]
    Text,
    /// After ESC.
    Escape,
    /// After ESC and an intermediate character, such as in `ESC ( B`.
    Intermediate,
    /// After `ESC [`.
    Control,
    /// In a string that BEL or `ESC \` ends, such as after `ESC ]`.
    String,
}

impl Cleaner {
    /// Appends the text of some more bytes.
    pub(super) fn feed(&mut self, bytes: &[u8], text: &mut String) {
        if self.pending.is_empty() {
            return self.decode(bytes, text);
        }
        let mut whole = std::mem::take(&mut self.pending);
        whole.extend_from_slice(bytes);
        self.decode(&whole, text);
    }

    /// Appends what is left when there are no more bytes.
    pub(super) fn finish(&mut self, text: &mut String) {
        if !std::mem::take(&mut self.pending).is_empty() {
            self.character(char::REPLACEMENT_CHARACTER, text);
        }
    }

    fn decode(&mut self, mut bytes: &[u8], text: &mut String) {
        loop {
            let error = match std::str::from_utf8(bytes) {
                Ok(valid) => return self.clean(valid, text),
                Err(error) => error,
            };
            let (valid, rest) = bytes.split_at(error.valid_up_to());
            self.clean(std::str::from_utf8(valid).expect("valid up to here"), text);
            let Some(wrong) = error.error_len() else {
                self.pending = rest.to_vec();
                return;
            };
            self.character(char::REPLACEMENT_CHARACTER, text);
            bytes = &rest[wrong..];
        }
    }

    fn clean(&mut self, mut valid: &str, text: &mut String) {
        while !valid.is_empty() {
            if self.state == State::Text {
                let plain = valid.find(is_control).unwrap_or(valid.len());
                text.push_str(&valid[..plain]);
                valid = &valid[plain..];
            }
            let mut characters = valid.chars();
            if let Some(character) = characters.next() {
                self.character(character, text);
            }
            valid = characters.as_str();
        }
    }

    fn character(&mut self, character: char, text: &mut String) {
        self.length += 1;
        let next = self.after(character);
        if next == State::Text {
            // What breaks a sequence off belongs to the text again; what ends it does not.
            if self.state == State::Text || !self.ends_with(character) {
                push(character, text);
            }
        } else if self.state == State::Text {
            self.length = 0;
        }
        self.state = next;
    }

    fn after(&self, character: char) -> State {
        if self.state != State::Text && (character == '\n' || self.length > MAX_SEQUENCE) {
            return State::Text;
        }
        match (self.state, character) {
            // In a string too: `ESC \` ends it, and any other sequence breaks it off.
            (_, '\u{1b}') => State::Escape,
            (State::Text, '\u{9b}') => State::Control,
            (State::Text, '\u{90}' | '\u{98}' | '\u{9d}' | '\u{9e}' | '\u{9f}') => State::String,
            (State::Text, _) => State::Text,

            (State::Escape, '[') => State::Control,
            (State::Escape, ']' | 'P' | 'X' | '^' | '_') => State::String,
            (State::Escape, ' '..='/') => State::Intermediate,
            (State::Escape, _) => State::Text,

            (State::Intermediate, ' '..='/') => State::Intermediate,
            (State::Intermediate, _) => State::Text,

            (State::Control, ' '..='?') => State::Control,
            (State::Control, _) => State::Text,

            (State::String, '\u{7}' | '\u{9c}') => State::Text,
            (State::String, _) => State::String,
        }
    }

    /// Whether the character is the last one of the sequence, not the first one after it.
    fn ends_with(&self, character: char) -> bool {
        match self.state {
            State::Text => false,
            State::Escape | State::Intermediate => matches!(character, '0'..='~'),
            State::Control => matches!(character, '@'..='~'),
            State::String => matches!(character, '\u{7}' | '\u{9c}'),
        }
    }
}

/// Whether a character is for terminals, or may be.
fn is_control(character: char) -> bool {
    character.is_control() && !matches!(character, '\n' | '\t' | '\r')
}

fn push(character: char, text: &mut String) {
    if !is_control(character) {
        text.push(character);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn cleaned(pieces: &[&[u8]]) -> String {
        let (mut cleaner, mut text) = (Cleaner::default(), String::new());
        for piece in pieces {
            cleaner.feed(piece, &mut text);
        }
        cleaner.finish(&mut text);
        text
    }

    #[test]
    fn what_is_for_terminals_goes() {
        const CASES: &[(&[u8], &str)] = &[
            (b"plain\ttext\r\n", "plain\ttext\r\n"),
            (b"\x1b[1;31mred\x1b[0m!", "red!"),
            (b"\x1b[38:2::1:2:3mx\x1b[m", "x"),
            (b"a\x1b[2K\x1b[1Gb", "ab"),
            (b"\x1b[?25lhidden\x1b[?25h", "hidden"),
            (b"\x1b]0;title\x07text", "text"),
            (b"\x1b]8;;http://x\x1b\\link\x1b]8;;\x1b\\", "link"),
            (b"\x1bP1$r0m\x1b\\x", "x"),
            (b"\x1b(Btext\x1b)0", "text"),
            (b"\x1b=\x1b>\x1b7\x1b8x", "x"),
            (b"\x1b c x", " x"),
            (b"\xc2\x9b31mred", "red"),
            (b"\xc2\x9d0;t\xc2\x9cx", "x"),
            (b"bell\x07 back\x08 nul\0 del\x7f vt\x0b.", "bell back nul del vt."),
            // Broken off.
            (b"\x1b", ""),
            (b"\x1b[31", ""),
            (b"\x1b]0;never closed\nnext line", "\nnext line"),
            (b"\x1b[31\nx", "\nx"),
            (b"\x1b[\xc3\xa9", "é"),
            (b"\x1b\x1b[1mx", "x"),
            (b"\x1b[3\x1b[1mx", "x"),
            // Encodings.
            ("é €𝄞".as_bytes(), "é €𝄞"),
            (b"caf\xe9 \xff", "caf\u{fffd} \u{fffd}"),
            (b"\xe2\x82", "\u{fffd}"),
            (b"\xf0\x9f\x98x", "\u{fffd}x"),
        ];
        for (bytes, text) in CASES {
            assert_eq!(cleaned(&[bytes]), *text, "{bytes:?}");
            for cut in 0..=bytes.len() {
                let (head, tail) = bytes.split_at(cut);
                assert_eq!(cleaned(&[head, tail]), *text, "{bytes:?} cut at {cut}");
            }
        }
    }

    #[test]
    fn a_string_that_is_never_closed_ends() {
        let endless = format!("\x1b]{}", "x".repeat(MAX_SEQUENCE + 100));
        assert!(cleaned(&[endless.as_bytes()]).len() >= 99);
    }

    fn bytes() -> impl Strategy<Value = Vec<u8>> {
        let interesting = prop_oneof![
            any::<u8>(),
            proptest::sample::select(b"\x1b[]m;0\\\x07\nP\xc3\xa9\xe2\x82\xac\xc2\x9b".to_vec()),
        ];
        proptest::collection::vec(interesting, 0..60)
    }

    proptest! {
        #[test]
        fn the_text_does_not_depend_on_the_pieces(bytes in bytes(), size in 1usize..9) {
            let pieces: Vec<&[u8]> = bytes.chunks(size).collect();
            prop_assert_eq!(cleaned(&pieces), cleaned(&[&bytes]));
        }

        #[test]
        fn without_control_characters_it_is_the_lossy_text(bytes in proptest::collection::vec(any::<u8>(), 0..60)) {
            let bytes: Vec<u8> = bytes.into_iter().filter(|b| *b >= 0x20 && *b != 0x7f && *b != 0xc2).collect();
            prop_assert_eq!(cleaned(&[&bytes]), String::from_utf8_lossy(&bytes));
        }
    }
}
