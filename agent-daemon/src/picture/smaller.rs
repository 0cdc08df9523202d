//! A picture made small enough. Pure.
//!
//! Owns: how far it shrinks, and as what it is written again.
//! Never: enlarges one; keeps what is not seen of it, such as where it was taken.

use std::io::Cursor;

use image::{
    DynamicImage, ImageFormat, ImageResult, Rgb, RgbImage, codecs::jpeg::JpegEncoder,
    imageops::FilterType, metadata::Orientation,
};

use super::base64_length;

/// A picture that was written again.
pub(super) struct Smaller {
    pub(super) format: ImageFormat,
    pub(super) bytes: Vec<u8>,
    pub(super) sides: (u32, u32),
}

/// Good enough to read small print, and hardly larger than what may be seen.
const QUALITY: u8 = 85;

/// Makes a picture fit, by its sides and then by its bytes: of several forms the first that fits is
/// taken, and of several sizes the largest. An animation becomes its first image.
///
/// # Errors
/// It cannot be written.
pub(super) fn fit(
    pixels: DynamicImage,
    orientation: Orientation,
    format: ImageFormat,
    max_side: u32,
    max_base64: usize,
) -> ImageResult<Smaller> {
    // What says how it is to be turned is not kept, so it is turned now.
    let mut pixels = eight_bits(scaled(pixels, max_side));
    pixels.apply_orientation(orientation);
    loop {
        // PNG keeps the sharp edges of text; of a photograph it would be no smaller.
        let forms = if format == ImageFormat::Jpeg { &FORMS[1..] } else { &FORMS[..] };
        for (format, write) in forms {
            let bytes = write(&pixels)?;
            if base64_length(bytes.len()) <= max_base64 {
                let sides = (pixels.width(), pixels.height());
                return Ok(Smaller { format: *format, bytes, sides });
            }
        }
        let side = pixels.width().max(pixels.height()) * 3 / 4;
        pixels = scaled(pixels, side.max(1));
    }
}

type Form = (ImageFormat, fn(&DynamicImage) -> ImageResult<Vec<u8>>);

const FORMS: [Form; 2] = [(ImageFormat::Png, png), (ImageFormat::Jpeg, jpeg)];

fn png(pixels: &DynamicImage) -> ImageResult<Vec<u8>> {
    let mut bytes = Cursor::new(Vec::new());
    pixels.write_to(&mut bytes, ImageFormat::Png)?;
    Ok(bytes.into_inner())
}

fn jpeg(pixels: &DynamicImage) -> ImageResult<Vec<u8>> {
    let mut bytes = Vec::new();
    on_white(pixels).write_with_encoder(JpegEncoder::new_with_quality(&mut bytes, QUALITY))?;
    Ok(bytes)
}

/// JPEG knows no transparency, and what is transparent is black as a rule.
fn on_white(pixels: &DynamicImage) -> RgbImage {
    let Some(transparent) = pixels.as_rgba8() else { return pixels.to_rgb8() };
    RgbImage::from_fn(transparent.width(), transparent.height(), |x, y| {
        let [colour @ .., alpha] = transparent.get_pixel(x, y).0.map(u32::from);
        Rgb(colour.map(|value| ((value * alpha + 255 * (255 - alpha)) / 255) as u8))
    })
}

fn eight_bits(pixels: DynamicImage) -> DynamicImage {
    match pixels.color().has_alpha() {
        true => DynamicImage::ImageRgba8(pixels.into_rgba8()),
        false => DynamicImage::ImageRgb8(pixels.into_rgb8()),
    }
}

fn scaled(pixels: DynamicImage, side: u32) -> DynamicImage {
    let longest = pixels.width().max(pixels.height());
    if longest <= side {
        return pixels;
    }
    // The good filter takes 16 bytes for each pixel of a side's worth of lines, and seconds for
    // those of a camera; averages do as well for the first part of the way.
    let [width, height] = [pixels.width(), pixels.height()].map(|old| {
        let new = (u64::from(old) * u64::from(side) + u64::from(longest) / 2) / u64::from(longest);
        (new as u32).max(1)
    });
    let coarse = if longest > 2 * side { pixels.thumbnail(2 * side, 2 * side) } else { pixels };
    coarse.resize_exact(width, height, FilterType::CatmullRom)
}
