//! Which files are images that a model can be shown.
//!
//! Owns: what providers accept. An image that one refuses is refused here: once it is in the
//! transcript, every later request would fail with it. Never: decodes a pixel.

/// So many bytes at the beginning decide.
pub(super) const MAGIC_BYTES: u64 = 12;

/// The largest image that is shown: 5 MiB is what providers accept, and they count it in base64.
pub(super) const MAX_BYTES: u64 = 5 * 1024 * 1024 / 4 * 3;

/// No side may be longer than so many pixels.
pub(super) const MAX_SIDE: u32 = 8_000;

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

/// Width and height of a whole image of this type; none if its end is missing, or more than that.
pub(super) fn dimensions(mime_type: &str, bytes: &[u8]) -> Option<(u32, u32)> {
    let found = match mime_type {
        "image/png" => png(bytes),
        "image/jpeg" => jpeg(bytes),
        "image/gif" => gif(bytes),
        _ => webp(bytes),
    };
    found.filter(|(width, height)| *width > 0 && *height > 0)
}

fn png(bytes: &[u8]) -> Option<(u32, u32)> {
    memchr::memmem::rfind(bytes, b"IEND")?;
    let header = bytes.get(12..)?.strip_prefix(b"IHDR")?;
    let side = |at: usize| Some(u32::from_be_bytes(*header.get(at..)?.first_chunk()?));
    Some((side(0)?, side(4)?))
}

fn jpeg(bytes: &[u8]) -> Option<(u32, u32)> {
    memchr::memmem::rfind(bytes, b"\xff\xd9")?;
    let mut rest = bytes.get(2..)?;
    while let [0xff, marker, more @ ..] = rest {
        let length = usize::from(u16::from_be_bytes(*more.first_chunk()?));
        match marker {
            // Filling.
            0xff => rest = &rest[1..],
            // A frame; the others in its range are tables.
            0xc0..=0xcf if !matches!(marker, 0xc4 | 0xc8 | 0xcc) => {
                let side = |at: usize| Some(u16::from_be_bytes(*more.get(at..)?.first_chunk()?));
                return Some((side(5)?.into(), side(3)?.into()));
            }
            _ => rest = more.get(length..)?,
        }
    }
    None
}

fn gif(bytes: &[u8]) -> Option<(u32, u32)> {
    let (header, content) = bytes.split_at_checked(13)?;
    // An image, and the end.
    memchr::memchr(0x2c, content).and(memchr::memrchr(0x3b, content))?;
    let side = |at: usize| u16::from_le_bytes([header[at], header[at + 1]]);
    Some((side(6).into(), side(8).into()))
}

fn webp(bytes: &[u8]) -> Option<(u32, u32)> {
    let size = u32::from_le_bytes(*bytes.get(4..)?.first_chunk()?);
    if bytes.len() < usize::try_from(size).ok()?.saturating_add(8) {
        return None;
    }
    let (kind, body) = bytes.get(12..)?.split_at_checked(8)?;
    let number = |at: usize| Some(u32::from_le_bytes(*body.get(at..)?.first_chunk()?));
    match &kind[..4] {
        b"VP8X" => Some(((number(4)? & 0xff_ffff) + 1, (number(6)? >> 8) + 1)),
        b"VP8L" => Some(((number(1)? & 0x3fff) + 1, (number(1)? >> 14 & 0x3fff) + 1)),
        b"VP8 " => Some((number(6)? & 0x3fff, number(6)? >> 16 & 0x3fff)),
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

    #[test]
    fn a_whole_image_has_dimensions() {
        type Case = (&'static str, &'static [u8], (u32, u32));
        const CASES: &[Case] = &[
            (
                "image/png",
                b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR\0\0\x02\0\0\0\0\x07\x08\0\0\0\0crc!\0\0\0\0IEND\xaeB`\x82",
                (512, 7),
            ),
            (
                "image/jpeg",
                b"\xff\xd8\xff\xe0\0\x04JF\xff\xff\xc4\0\x03t\xff\xc2\0\x09\x08\x01\0\x02\x03\x01\x01data\xff\xd9",
                (515, 256),
            ),
            ("image/gif", b"GIF89a\x05\x01\x06\0\x80\0\0\xff\xff\xff\0\0\0,data;", (261, 6)),
            (
                "image/webp",
                b"RIFF\x16\0\0\0WEBPVP8X\x0a\0\0\0\0\0\0\0\x63\x01\0\x31\0\0",
                (356, 50),
            ),
            ("image/webp", b"RIFF\x11\0\0\0WEBPVP8L\x05\0\0\0\x2f\x63\x40\x0c\0", (100, 50)),
            (
                "image/webp",
                b"RIFF\x16\0\0\0WEBPVP8 \x0a\0\0\0\x30\x01\0\x9d\x01\x2a\x64\0\x32\0",
                (100, 50),
            ),
        ];
        for (mime, bytes, sides) in CASES {
            assert_eq!(mime_type(bytes), Some(*mime));
            assert_eq!(dimensions(mime, bytes), Some(*sides), "{mime}");
            for end in 0..bytes.len() - 4 {
                assert_eq!(dimensions(mime, &bytes[..end]), None, "{mime} cut at {end}");
            }
        }
        assert_eq!(dimensions("image/gif", b"GIF89a begins a page about it.\n"), None);
        assert_eq!(dimensions("image/jpeg", b"\xff\xd8\xff\xff\xff\xff\xff\xd9"), None);
    }
}
