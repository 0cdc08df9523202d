//! From what a terminal sends to the keys that were pressed, by what they are for here.
//!
//! Owns: which key means what. Never: reads bytes; crossterm does, and knows the terminals.

use std::{io, task::Poll};

use crossterm::event::{Event, EventStream, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use futures_util::StreamExt;

/// How much text may be pasted at once; what is more is cut off. The protocol takes 1 MiB.
const MAX_PASTE_BYTES: usize = 2 << 20;
/// How many events are taken at once, however many there are.
const MAX_EVENTS: usize = 4096;

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
    /// The terminal has another size.
    Resized,
}

/// The keys of the process's terminal.
#[derive(Default)]
pub struct Keys {
    events: EventStream,
}

impl Keys {
    /// The keys that are there, as soon as anything was pressed: none, if that means nothing. May be
    /// dropped while it waits.
    ///
    /// # Errors
    /// The terminal cannot be read.
    pub async fn next(&mut self) -> io::Result<Vec<Key>> {
        // All that is there in one go, so that it is drawn once. Looked for with the waker of who
        // waits: the stream keeps the first one that it is shown until there is an event.
        std::future::poll_fn(|context| {
            let mut keys = Vec::new();
            for number in 0..MAX_EVENTS {
                match self.events.poll_next_unpin(context) {
                    Poll::Ready(Some(event)) => push(&mut keys, key(event?)),
                    Poll::Ready(None) => {
                        return Poll::Ready(Err(io::ErrorKind::UnexpectedEof.into()));
                    }
                    Poll::Pending if number == 0 => return Poll::Pending,
                    Poll::Pending => break,
                }
            }
            Poll::Ready(Ok(keys))
        })
        .await
    }
}

/// One key for what was typed fast.
fn push(keys: &mut Vec<Key>, key: Option<Key>) {
    match (keys.last_mut(), key) {
        (Some(Key::Text(text)), Some(Key::Text(more))) => text.push_str(&more),
        (_, Some(key)) => keys.push(key),
        (_, None) => {}
    }
}

/// The key of an event; none if it means nothing here.
fn key(event: Event) -> Option<Key> {
    match event {
        Event::Key(KeyEvent { kind: KeyEventKind::Release, .. }) => None,
        Event::Key(KeyEvent { code: KeyCode::Char(letter), modifiers, .. }) => {
            character(letter, modifiers)
        }
        Event::Key(KeyEvent { code, modifiers, .. }) => named(code, modifiers),
        Event::Paste(text) => Some(Key::Text(pasted(text))),
        Event::Resize(..) => Some(Key::Resized),
        Event::FocusGained | Event::FocusLost | Event::Mouse(_) => None,
    }
}

fn named(code: KeyCode, modifiers: KeyModifiers) -> Option<Key> {
    // Terminals do not agree on which of them goes with words.
    let is_plain = modifiers.is_empty();
    Some(match code {
        KeyCode::Enter if is_plain => Key::Enter,
        KeyCode::Enter => Key::NewLine,
        KeyCode::Tab if is_plain => Key::Text("\t".to_owned()),
        KeyCode::Backspace if is_plain => Key::Backspace,
        KeyCode::Backspace => Key::DeleteWord,
        KeyCode::Delete => Key::Delete,
        KeyCode::Left if is_plain => Key::Left,
        KeyCode::Left => Key::WordLeft,
        KeyCode::Right if is_plain => Key::Right,
        KeyCode::Right => Key::WordRight,
        KeyCode::Home => Key::Home,
        KeyCode::End => Key::End,
        KeyCode::Up => Key::Up,
        KeyCode::Down => Key::Down,
        _ => return None,
    })
}

fn character(letter: char, modifiers: KeyModifiers) -> Option<Key> {
    let (is_control, is_alt) =
        (modifiers.contains(KeyModifiers::CONTROL), modifiers.contains(KeyModifiers::ALT));
    match (is_control, is_alt) {
        (true, false) => control(letter),
        (false, true) => match letter {
            'b' => Some(Key::WordLeft),
            'f' => Some(Key::WordRight),
            _ => None,
        },
        (true, true) => match letter {
            'h' => Some(Key::DeleteWord),
            'j' => Some(Key::NewLine),
            _ => None,
        },
        (false, false) if modifiers.difference(KeyModifiers::SHIFT).is_empty() => {
            Some(Key::Text(letter.to_string()))
        }
        (false, false) => None,
    }
}

fn control(letter: char) -> Option<Key> {
    Some(match letter {
        'a' => Key::Home,
        'b' => Key::Left,
        'c' => Key::Interrupt,
        'd' => Key::EndOfInput,
        'e' => Key::End,
        'f' => Key::Right,
        // What some terminals send for Backspace.
        'h' => Key::Backspace,
        'j' => Key::NewLine,
        'k' => Key::DeleteToEnd,
        'l' => Key::Redraw,
        'n' => Key::Down,
        'p' => Key::Up,
        'u' => Key::DeleteToStart,
        'w' => Key::DeleteWord,
        'z' => Key::Suspend,
        _ => return None,
    })
}

/// Terminals end the lines of what is pasted as Enter would.
fn pasted(mut text: String) -> String {
    let most = (0..=MAX_PASTE_BYTES.min(text.len())).rev();
    text.truncate(most.into_iter().find(|at| text.is_char_boundary(*at)).unwrap_or(0));
    text.replace("\r\n", "\n").replace('\r', "\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    const NONE: KeyModifiers = KeyModifiers::NONE;
    const SHIFT: KeyModifiers = KeyModifiers::SHIFT;
    const ALT: KeyModifiers = KeyModifiers::ALT;
    const CONTROL: KeyModifiers = KeyModifiers::CONTROL;

    fn pressed(code: KeyCode, modifiers: KeyModifiers) -> Option<Key> {
        key(Event::Key(KeyEvent::new(code, modifiers)))
    }

    fn text(text: &str) -> Option<Key> {
        Some(Key::Text(text.to_owned()))
    }

    // The bytes behind these are tried on the program itself, since crossterm alone reads them.
    #[test]
    fn a_key_that_is_not_known_with_its_modifiers_means_nothing() {
        use KeyCode::*;
        for (code, modifiers, expected) in [
            (Char('a'), NONE, text("a")),
            (Char('É'), SHIFT, text("É")),
            (Char('x'), ALT, None),
            (Char('X'), ALT | SHIFT, None),
            (Char('x'), KeyModifiers::SUPER, None),
            (Char('c'), CONTROL | ALT, None),
            (Char('c'), CONTROL, Some(Key::Interrupt)),
            (Char('q'), CONTROL, None),
            (Char('b'), ALT, Some(Key::WordLeft)),
            (Esc, NONE, None),
            (Esc, ALT, None),
            (Enter, NONE, Some(Key::Enter)),
            (Enter, ALT, Some(Key::NewLine)),
            (Enter, SHIFT, Some(Key::NewLine)),
            (Tab, NONE, text("\t")),
            (Tab, ALT, None),
            (BackTab, SHIFT, None),
            (F(5), NONE, None),
            (Left, SHIFT, Some(Key::WordLeft)),
            (Up, CONTROL, Some(Key::Up)),
        ] {
            assert_eq!(pressed(code, modifiers), expected, "{code:?} {modifiers:?}");
        }
        let release = KeyEvent::new_with_kind(Char('a'), NONE, KeyEventKind::Release);
        assert_eq!(key(Event::Key(release)), None);
    }

    #[test]
    fn what_is_typed_fast_is_one_text_and_a_paste_is_bounded() {
        let mut keys = Vec::new();
        for event in [text("a"), None, text("b"), Some(Key::Enter), text("c")] {
            push(&mut keys, event);
        }
        assert_eq!(keys, [text("ab"), Some(Key::Enter), text("c")].map(Option::unwrap));
        assert_eq!(key(Event::Paste("a\r\nb\rc\n".to_owned())), text("a\nb\nc\n"));
        let long = key(Event::Paste("é".repeat(MAX_PASTE_BYTES)));
        assert!(matches!(long, Some(Key::Text(text)) if text.len() == MAX_PASTE_BYTES));
    }
}
