//! From the bytes that a terminal sends to the keys that were pressed. Pure.
//!
//! Owns: bytes that are not a whole key yet. Never: takes pasted text for keys.

/// How much text may be pasted at once; what is more is cut off. The protocol takes 1 MiB.
const MAX_PASTE_BYTES: usize = 2 << 20;
/// How long an escape sequence can be.
const MAX_SEQUENCE_BYTES: usize = 32;
const PASTE_END: &[u8] = b"\x1b[201~";

/// What was pressed, by what it is for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Key {
    /// Text, typed or pasted.
    Text(String),
    Enter,
    NewLine,
    Backspace,
    Delete,
    Left,
    Right,
    WordLeft,
    WordRight,
    Home,
    End,
    Up,
    Down,
    DeleteWord,
    DeleteToStart,
    DeleteToEnd,
    /// Ctrl-C.
    Interrupt,
    /// Ctrl-D.
    EndOfInput,
    /// Ctrl-L.
    Redraw,
    /// Ctrl-Z.
    Suspend,
}

/// Finds the keys in a stream of bytes.
#[derive(Debug, Default)]
pub struct Keys {
    pending: Vec<u8>,
    is_pasting: bool,
}

/// What the pending bytes begin with.
enum Found {
    Key(Key, usize),
    /// So many bytes mean nothing.
    Nothing(usize),
    PasteBegins(usize),
    /// More has to come.
    Part,
}

impl Keys {
    /// The keys that are complete with these bytes.
    pub fn feed(&mut self, bytes: &[u8]) -> Vec<Key> {
        self.pending.extend_from_slice(bytes);
        let mut keys: Vec<Key> = Vec::new();
        while !self.pending.is_empty() {
            let found = if self.is_pasting { self.pasted() } else { first(&self.pending) };
            let used = match found {
                Found::Part => break,
                Found::Nothing(used) => used,
                Found::PasteBegins(used) => {
                    self.is_pasting = true;
                    used
                }
                Found::Key(key, used) => {
                    match (keys.last_mut(), key) {
                        // One key for what was typed fast, so that it is drawn once.
                        (Some(Key::Text(text)), Key::Text(more)) => text.push_str(&more),
                        (_, key) => keys.push(key),
                    }
                    used
                }
            };
            self.pending.drain(..used);
        }
        keys
    }

    fn pasted(&mut self) -> Found {
        let end = self.pending.windows(PASTE_END.len()).position(|bytes| bytes == PASTE_END);
        let Some(end) = end else {
            if self.pending.len() > MAX_PASTE_BYTES {
                // Its end may still be cut in two.
                let surplus = self.pending.len() - PASTE_END.len();
                self.pending.drain(MAX_PASTE_BYTES - PASTE_END.len()..surplus);
            }
            return Found::Part;
        };
        self.is_pasting = false;
        let text = String::from_utf8_lossy(&self.pending[..end]);
        let text = text.replace("\r\n", "\n").replace('\r', "\n");
        Found::Key(Key::Text(text), end + PASTE_END.len())
    }
}

fn first(bytes: &[u8]) -> Found {
    match bytes[0] {
        0x1b => escape(bytes),
        byte if byte < b' ' || byte == 0x7f => match control(byte) {
            Some(key) => Found::Key(key, 1),
            None => Found::Nothing(1),
        },
        byte => letter(byte, bytes),
    }
}

fn control(byte: u8) -> Option<Key> {
    Some(match byte {
        b'\r' => Key::Enter,
        b'\n' => Key::NewLine,
        b'\t' => Key::Text("\t".to_owned()),
        0x7f | 0x08 => Key::Backspace,
        byte => match byte + b'@' {
            b'A' => Key::Home,
            b'B' => Key::Left,
            b'C' => Key::Interrupt,
            b'D' => Key::EndOfInput,
            b'E' => Key::End,
            b'F' => Key::Right,
            b'K' => Key::DeleteToEnd,
            b'L' => Key::Redraw,
            b'N' => Key::Down,
            b'P' => Key::Up,
            b'U' => Key::DeleteToStart,
            b'W' => Key::DeleteWord,
            b'Z' => Key::Suspend,
            _ => return None,
        },
    })
}

fn letter(lead: u8, bytes: &[u8]) -> Found {
    let length = match lead {
        0x20..0x80 => 1,
        0xc2..0xe0 => 2,
        0xe0..0xf0 => 3,
        0xf0..0xf5 => 4,
        _ => return Found::Nothing(1),
    };
    match bytes.get(..length).map(std::str::from_utf8) {
        Some(Ok(text)) => Found::Key(Key::Text(text.to_owned()), length),
        Some(Err(_)) => Found::Nothing(1),
        None => Found::Part,
    }
}

fn escape(bytes: &[u8]) -> Found {
    match bytes.get(1) {
        None => Found::Part,
        Some(b'[') => sequence(bytes),
        Some(b'O') => match bytes.get(2) {
            None => Found::Part,
            Some(last) => {
                cursor_key(*last, false).map_or(Found::Nothing(3), |key| Found::Key(key, 3))
            }
        },
        Some(b'b') => Found::Key(Key::WordLeft, 2),
        Some(b'f') => Found::Key(Key::WordRight, 2),
        Some(0x7f | 0x08) => Found::Key(Key::DeleteWord, 2),
        Some(b'\r' | b'\n') => Found::Key(Key::NewLine, 2),
        // Escape alone, and then something else.
        Some(_) => Found::Nothing(1),
    }
}

/// `ESC [ parameters letter`.
fn sequence(bytes: &[u8]) -> Found {
    let Some(length) = bytes[2..].iter().position(|byte| (0x40..0x7f).contains(byte)) else {
        let is_too_long = bytes.len() > MAX_SEQUENCE_BYTES;
        return if is_too_long { Found::Nothing(bytes.len()) } else { Found::Part };
    };
    let (parameters, last, used) = (&bytes[2..2 + length], bytes[2 + length], length + 3);
    let key = match (parameters, last) {
        (b"200", b'~') => return Found::PasteBegins(used),
        (b"1" | b"7", b'~') => Some(Key::Home),
        (b"4" | b"8", b'~') => Some(Key::End),
        (b"3", b'~') => Some(Key::Delete),
        // With Shift, Alt or Ctrl.
        (parameters, last) => cursor_key(last, parameters.contains(&b';')),
    };
    key.map_or(Found::Nothing(used), |key| Found::Key(key, used))
}

fn cursor_key(last: u8, is_modified: bool) -> Option<Key> {
    Some(match (last, is_modified) {
        (b'A', _) => Key::Up,
        (b'B', _) => Key::Down,
        (b'C', false) => Key::Right,
        (b'C', true) => Key::WordRight,
        (b'D', false) => Key::Left,
        (b'D', true) => Key::WordLeft,
        (b'H', _) => Key::Home,
        (b'F', _) => Key::End,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(text: &str) -> Key {
        Key::Text(text.to_owned())
    }

    fn cases() -> Vec<(&'static [u8], Vec<Key>)> {
        vec![
            (b"", vec![]),
            (b"ab", vec![text("ab")]),
            ("é日👍".as_bytes(), vec![text("é日👍")]),
            (b"a\r", vec![text("a"), Key::Enter]),
            (b"\x1b[A\x1bOB\x1b[C\x1b[1;5D", vec![Key::Up, Key::Down, Key::Right, Key::WordLeft]),
            (
                b"\x1b[H\x1b[4~\x1b[3~\x1b\x7f",
                vec![Key::Home, Key::End, Key::Delete, Key::DeleteWord],
            ),
            (
                b"\x01\x05\x0b\x15\x17",
                vec![Key::Home, Key::End, Key::DeleteToEnd, Key::DeleteToStart, Key::DeleteWord],
            ),
            (b"\x03\x04\x1a\x0c", vec![Key::Interrupt, Key::EndOfInput, Key::Suspend, Key::Redraw]),
            (b"\x1b\rx\n", vec![Key::NewLine, text("x"), Key::NewLine]),
            (
                b"\x1b[200~one\r\ntwo\x03\x1b[A\x1b[201~\r",
                vec![text("one\ntwo\x03\x1b[A"), Key::Enter],
            ),
            // Nothing that we know: F5, a mouse, a stray byte.
            (b"\x1b[15~\x1b[<0;1;1M\xffz", vec![text("z")]),
            (b"\x1bx", vec![text("x")]),
        ]
    }

    #[test]
    fn keys_do_not_depend_on_how_the_bytes_arrive() {
        for (bytes, expected) in cases() {
            for cut in 0..=bytes.len() {
                let mut keys = Keys::default();
                let mut found = keys.feed(&bytes[..cut]);
                found.extend(keys.feed(&bytes[cut..]));
                let mut joined: Vec<Key> = Vec::new();
                for key in found {
                    match (joined.last_mut(), key) {
                        (Some(Key::Text(text)), Key::Text(more)) => text.push_str(&more),
                        (_, key) => joined.push(key),
                    }
                }
                assert_eq!(joined, expected, "{:?} cut at {cut}", String::from_utf8_lossy(bytes));
            }
        }
    }

    #[test]
    fn a_paste_without_an_end_is_bounded() {
        let mut keys = Keys::default();
        keys.feed(b"\x1b[200~");
        for _ in 0..5 {
            assert_eq!(keys.feed(&[b'x'; MAX_PASTE_BYTES / 2]), []);
        }
        assert!(keys.pending.len() <= MAX_PASTE_BYTES);
        let pasted = keys.feed(PASTE_END);
        assert!(matches!(&pasted[..], [Key::Text(text)] if text.len() <= MAX_PASTE_BYTES));
    }
}
