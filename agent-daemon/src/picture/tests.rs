#![allow(clippy::unwrap_used)]

use std::time::Duration;

use image::{RgbImage, Rgba, RgbaImage};

use super::*;

/// A picture of one colour.
pub(crate) fn png(width: u32, height: u32) -> Vec<u8> {
    written(&plain(width, height), ImageFormat::Png)
}

fn plain(width: u32, height: u32) -> DynamicImage {
    DynamicImage::ImageRgb8(RgbImage::from_pixel(width, height, image::Rgb([200, 30, 30])))
}

/// What no compression makes smaller.
fn noise(width: u32, height: u32) -> DynamicImage {
    let mut random = fastrand::Rng::with_seed(7);
    let mut bytes = vec![0; (width * height * 3) as usize];
    random.fill(&mut bytes);
    DynamicImage::ImageRgb8(RgbImage::from_raw(width, height, bytes).unwrap())
}

fn written(pixels: &DynamicImage, format: ImageFormat) -> Vec<u8> {
    let mut bytes = Cursor::new(Vec::new());
    pixels.write_to(&mut bytes, format).unwrap();
    bytes.into_inner()
}

fn bytes_of(picture: &Picture) -> Vec<u8> {
    let Block::Image { mime_type, data } = &picture.block else { panic!("{picture:?}") };
    assert_eq!(mime_type, picture.mime_type);
    assert!(data.len() <= MAX_BASE64, "{}", data.len());
    let bytes = BASE64_STANDARD.decode(&**data).unwrap();
    assert_eq!(bytes.len(), picture.bytes);
    bytes
}

fn taken(bytes: &[u8]) -> Picture {
    examine(bytes.to_vec(), None).unwrap()
}

fn refused(bytes: &[u8]) -> String {
    format!("it {}", examine(bytes.to_vec(), None).unwrap_err())
}

const FORMATS: [(ImageFormat, &str); 4] = [
    (ImageFormat::Png, "image/png"),
    (ImageFormat::Jpeg, "image/jpeg"),
    (ImageFormat::Gif, "image/gif"),
    (ImageFormat::WebP, "image/webp"),
];

#[test]
fn a_picture_that_fits_stays_byte_for_byte() {
    for (format, mime_type) in FORMATS {
        for (width, height) in [(1, 1), (2_000, 3), (3, 2_000)] {
            let bytes = written(&plain(width, height), format);
            let picture = taken(&bytes);
            assert_eq!((picture.mime_type, picture.sides), (mime_type, (width, height)));
            assert_eq!(picture.shrunk_from, None);
            assert!(bytes_of(&picture) == bytes, "{mime_type} {width} x {height} was changed");
        }
    }
}

#[test]
fn a_picture_with_a_long_side_becomes_smaller() {
    for (format, _) in FORMATS {
        for (sides, expected) in [
            ((2_001, 1_000), (2_000, 1_000)),
            ((30, 2_001), (30, 2_000)),
            ((9_000, 3), (2_000, 1)),
            ((40, 6_000), (13, 2_000)),
        ] {
            let picture = taken(&written(&plain(sides.0, sides.1), format));
            assert_eq!((picture.sides, picture.shrunk_from), (expected, Some(sides)), "{format:?}");
            let again = taken(&bytes_of(&picture));
            assert_eq!((again.sides, again.shrunk_from), (expected, None), "{format:?}");
            let kept = if format == ImageFormat::Jpeg { "image/jpeg" } else { "image/png" };
            assert_eq!(picture.mime_type, kept);
        }
    }
}

#[test]
fn a_picture_of_too_many_bytes_becomes_smaller() {
    let bytes = written(&noise(1_400, 1_300), ImageFormat::Png);
    assert!(base64_length(bytes.len()) > MAX_BASE64);
    let picture = taken(&bytes);
    assert_eq!((picture.mime_type, picture.sides), ("image/jpeg", (1_400, 1_300)));
    assert_eq!(taken(&bytes_of(&picture)).sides, (1_400, 1_300));
    // One that does not fit in any form loses pixels, too.
    let smaller =
        smaller::fit(noise(400, 300), Orientation::NoTransforms, ImageFormat::Png, 400, 40_000);
    let smaller = smaller.unwrap();
    assert!(base64_length(smaller.bytes.len()) <= 40_000);
    assert!(
        smaller.sides.0 < 400 && smaller.sides.0.abs_diff(smaller.sides.1 * 4 / 3) <= 1,
        "{:?}",
        smaller.sides
    );
}

/// Left half red, right half blue.
fn halves(width: u32, height: u32) -> DynamicImage {
    DynamicImage::ImageRgb8(RgbImage::from_fn(width, height, |x, _| {
        image::Rgb(if x < width / 2 { [255, 0, 0] } else { [0, 0, 255] })
    }))
}

/// Says to be turned clockwise by a quarter, as telephones do.
fn turned(jpeg: &[u8]) -> Vec<u8> {
    let exif =
        b"\xff\xe1\0\x22Exif\0\0MM\0\x2a\0\0\0\x08\0\x01\x01\x12\0\x03\0\0\0\x01\0\x06\0\0\0\0\0\0";
    [&jpeg[..2], exif, &jpeg[2..]].concat()
}

#[test]
fn a_picture_that_says_how_to_be_turned_is_turned_when_it_is_written_again() {
    let fits = turned(&written(&halves(40, 20), ImageFormat::Jpeg));
    let picture = taken(&fits);
    assert_eq!(picture.sides, (20, 40), "as it is seen");
    assert!(bytes_of(&picture) == fits);

    let picture = taken(&turned(&written(&halves(2_400, 1_200), ImageFormat::Jpeg)));
    assert_eq!((picture.sides, picture.shrunk_from), ((1_000, 2_000), Some((1_200, 2_400))));
    let (pixels, orientation) = decode(&bytes_of(&picture), ImageFormat::Jpeg).unwrap();
    assert_eq!(orientation, Orientation::NoTransforms, "it would be turned twice");
    let pixels = pixels.to_rgb8();
    let (above, below) = (pixels.get_pixel(500, 100).0, pixels.get_pixel(500, 1_900).0);
    assert!(above[0] > 200 && above[2] < 50 && below[0] < 50 && below[2] > 200);
}

#[test]
fn what_is_transparent_becomes_white_where_it_must_be_seen() {
    let clear = RgbaImage::from_fn(600, 400, |x, _| {
        let value = fastrand::u8(..);
        Rgba([value, value, value, if x < 300 { 0 } else { 255 }])
    });
    let clear = DynamicImage::ImageRgba8(clear);
    let small = smaller::fit(clear, Orientation::NoTransforms, ImageFormat::Png, 600, 200_000);
    let small = small.unwrap();
    assert_eq!(small.format, ImageFormat::Jpeg);
    let pixels = decode(&small.bytes, ImageFormat::Jpeg).unwrap().0.to_rgb8();
    assert!(pixels.get_pixel(10, 10).0.iter().all(|value| *value > 250));

    let large = DynamicImage::ImageRgba8(RgbaImage::from_pixel(3_000, 9, Rgba([1, 2, 3, 0])));
    let picture = taken(&written(&large, ImageFormat::Png));
    let pixels = decode(&bytes_of(&picture), ImageFormat::Png).unwrap().0;
    assert_eq!(pixels.to_rgba8().get_pixel(9, 3).0[3], 0, "PNG can be transparent");
}

#[test]
fn what_is_damaged_or_cut_short_is_refused() {
    for (format, mime_type) in FORMATS {
        let whole = written(&noise(40, 30), format);
        for end in (4..whole.len() - 12).step_by(97) {
            let told = refused(&whole[..end]);
            let damaged = format!("it is damaged or cut short, as {mime_type}: ");
            let other = end < 12 && told.starts_with("it is no picture that models take");
            assert!(other || told.starts_with(&damaged), "{mime_type} cut at {end}: {told}");
        }
    }
    for bytes in [&b""[..], b"<svg>", b"BM6\0\0\0", b"GIF of the week", b"\0\0\0\x1cftypavif"] {
        assert_eq!(refused(bytes), "it is no picture that models take: PNG, JPEG, GIF or WebP");
    }
    assert!(refused(b"GIF89a").starts_with("it is damaged or cut short, as image/gif: "));
}

#[test]
fn a_picture_that_would_unfold_to_more_than_there_is_room_for_is_not_decoded() {
    let mut bomb = png(1, 1);
    for (at, side) in [(16, 100_000_u32), (20, 90_000)] {
        bomb[at..at + 4].copy_from_slice(&side.to_be_bytes());
    }
    let mut checksum = crc32(&bomb[12..29]);
    bomb[29..33].copy_from_slice(&checksum.to_be_bytes());
    assert_eq!(refused(&bomb), "it has 100000 x 90000 pixels; 64000000 are the most");
    // As many as are taken, and then there are none.
    bomb[16..20].copy_from_slice(&8_000_u32.to_be_bytes());
    bomb[20..24].copy_from_slice(&8_000_u32.to_be_bytes());
    checksum = crc32(&bomb[12..29]);
    bomb[29..33].copy_from_slice(&checksum.to_be_bytes());
    assert!(refused(&bomb).starts_with("it is damaged or cut short, as image/png"));
}

/// As PNG has it.
fn crc32(bytes: &[u8]) -> u32 {
    !bytes.iter().fold(u32::MAX, |sum, byte| {
        (0..8).fold(sum ^ u32::from(*byte), |sum, _| {
            (sum >> 1) ^ (0xedb8_8320 & (sum & 1).wrapping_neg())
        })
    })
}

#[tokio::test]
async fn the_runtime_goes_on_while_a_picture_is_looked_at() {
    let bytes = written(&noise(1_400, 1_300), ImageFormat::Png);
    let mut looking = tokio::spawn(from_bytes(bytes));
    let mut turns = 0;
    loop {
        tokio::select! {
            biased;
            taken = &mut looking => break assert!(taken.unwrap().is_ok()),
            () = tokio::time::sleep(Duration::from_millis(1)) => turns += 1,
        }
    }
    assert!(turns > 1, "this runtime has one thread");
}
