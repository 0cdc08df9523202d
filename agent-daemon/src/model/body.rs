//! What kind of body a server answers with, by how it begins: what its head says is often wrong.
//!
//! Owns: telling a stream of events from one piece of JSON and from a page for people. Pure.

/// A kind of body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Body {
    /// Server-sent events.
    Events,
    /// An object or a list, or lines of them.
    Json,
    /// Anything else: markup or plain text.
    Page,
}

/// How lines of server-sent events begin.
const FIELDS: [&[u8]; 5] = [b"data:", b"event:", b"id:", b"retry:", b":"];

const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

impl Body {
    /// The kind of the body that begins with these bytes; none as long as it can be several.
    pub(super) fn of(beginning: &[u8]) -> Option<Self> {
        let beginning = without_blanks(beginning);
        match beginning.first()? {
            b'{' | b'[' => Some(Body::Json),
            _ if FIELDS.iter().any(|field| beginning.starts_with(field)) => Some(Body::Events),
            _ if FIELDS.iter().any(|field| field.starts_with(beginning)) => None,
            _ if BYTE_ORDER_MARK.starts_with(beginning) => None,
            _ => Some(Body::Page),
        }
    }
}

/// What counts of a body's beginning: blanks may be sent for as long as a server is at work.
pub(super) fn without_blanks(beginning: &[u8]) -> &[u8] {
    let trimmed = beginning.trim_ascii_start();
    trimmed.strip_prefix(BYTE_ORDER_MARK).map_or(trimmed, <[u8]>::trim_ascii_start)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_body_is_known_by_its_beginning() {
        for (body, expected) in [
            ("data: {}", Some(Body::Events)),
            ("\r\n\n: ping", Some(Body::Events)),
            ("\u{feff}event: a", Some(Body::Events)),
            ("\u{feff} {\"a\":1}", Some(Body::Json)),
            ("[1]", Some(Body::Json)),
            ("<html>", Some(Body::Page)),
            ("error: no", Some(Body::Page)),
            ("upstream timed out", Some(Body::Page)),
            ("", None),
            (" \n", None),
            ("dat", None),
            ("e", None),
        ] {
            assert_eq!(Body::of(body.as_bytes()), expected, "{body:?}");
        }
        assert_eq!(Body::of(b"\xef\xbb"), None);
    }
}
