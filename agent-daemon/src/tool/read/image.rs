//! Which files are images that a model can be shown.

/// So many bytes at the beginning decide.
pub(super) const MAGIC_BYTES: u64 = 12;

/// The largest image that is shown; what providers accept, before base64.
pub(super) const MAX_BYTES: u64 = 5 * 1024 * 1024;

/// The type of an image by its first bytes, whatever its name says.
pub(super) fn mime_type(head: &[u8]) -> Option<&'static str> {
    match head {
        [0x89, b'P', b'N', b'G', b'\r', b'\n', 0x1a, b'\n', ..] => Some("image/png"),
        [0xff, 0xd8, 0xff, ..] => Some("image/jpeg"),
        [b'G', b'I', b'F', b'8', b'7' | b'9', b'a', ..] => Some("image/gif"),
        [b'R', b'I', b'F', b'F', _, _, _, _, b'W', b'E', b'B', b'P', ..] => Some("image/webp"),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn images_are_known_by_their_bytes() {
        const CASES: &[(&[u8], Option<&str>)] = &[
            (b"\x89PNG\r\n\x1a\n\0\0\0\r", Some("image/png")),
            (b"\xff\xd8\xff\xe0\0\x10JFIF", Some("image/jpeg")),
            (b"GIF87a", Some("image/gif")),
            (b"GIF89a\x01\0", Some("image/gif")),
            (b"RIFF\x10\0\0\0WEBPVP8 ", Some("image/webp")),
            (b"RIFF\x10\0\0\0WAVEfmt ", None),
            (b"GIF of the week", None),
            (b"\x89PNG\n\x1a\n", None),
            (b"<svg>", None),
            (b"", None),
        ];
        for (head, mime) in CASES {
            assert_eq!(mime_type(head), *mime, "{head:?}");
        }
    }
}
