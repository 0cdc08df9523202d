//! Pictures as they come in, from clients and from `read` alike.
//!
//! Owns: what every provider takes. One that is refused stays in the transcript, and each later
//! request would fail with it: so each is decoded once, given the type that its bytes have, and made
//! smaller where it is too large.
//! Never: changes a picture that fits; decodes on a thread of the runtime, two at once, or one that
//! would unfold to more memory than [`MAX_PIXELS`] take.

use std::{io::Cursor, sync::Arc};

use agent_core::Block;
use base64::{Engine, prelude::BASE64_STANDARD};
use image::{
    DynamicImage, ImageDecoder, ImageError, ImageFormat, ImageReader, Limits, metadata::Orientation,
};
use tokio::sync::Semaphore;

mod smaller;

#[cfg(test)]
pub(crate) mod tests;

/// So many bytes at the beginning tell the type.
pub(crate) const MAGIC_BYTES: u64 = 12;

/// The most bytes of a picture that are looked at.
pub(crate) const MAX_BYTES: u64 = 20 << 20;

/// The largest picture that is sent, in bytes of base64: what Anthropic takes.
const MAX_BASE64: usize = 5 << 20;

/// The longest side of a picture that is sent, in pixels: what Anthropic takes among more than
/// twenty, and whether more will come nobody knows. Models see no more of a larger one.
const MAX_SIDE: u32 = 2_000;

/// The largest picture that is decoded: 64 million pixels, more than a camera of today gives. Up to
/// nine bytes of memory for each.
const MAX_PIXELS: u64 = 64_000_000;
/// The most memory that a decoder may ask for, in bytes, where it asks.
const MAX_ALLOCATION: u64 = 512 << 20;

/// One at a time: a large picture takes half a gigabyte for half a second.
static DECODING: Semaphore = Semaphore::const_new(1);

/// A picture that every provider takes.
#[derive(Debug)]
pub(crate) struct Picture {
    /// Its type, and its bytes in base64.
    pub(crate) block: Block,
    pub(crate) mime_type: &'static str,
    /// How many bytes it has, without base64.
    pub(crate) bytes: usize,
    /// Width and height in pixels, as it is seen.
    pub(crate) sides: (u32, u32),
    /// Its sides before it was made smaller, if it was.
    pub(crate) shrunk_from: Option<(u32, u32)>,
}

/// Why a picture cannot be taken. Each text goes on after "it".
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum PictureError {
    #[error("is not base64; expected it with padding, without line ends or a data: prefix")]
    NotBase64,
    #[error("is no picture that models take: PNG, JPEG, GIF or WebP")]
    OtherType,
    #[error("is damaged or cut short, as {mime_type}: {problem}")]
    Damaged { mime_type: &'static str, problem: String },
    #[error("has {} x {} pixels; {MAX_PIXELS} are the most", .sides.0, .sides.1)]
    TooManyPixels { sides: (u32, u32) },
    #[error("could not be looked at, since the daemon is shutting down")]
    ShuttingDown,
}

/// Takes a picture in base64. One that fits stays as it is.
///
/// Safe to drop; what is being decoded is then decoded for nobody.
///
/// # Errors
/// Why it cannot be taken.
pub(crate) async fn from_base64(data: Arc<str>) -> Result<Picture, PictureError> {
    off_the_runtime(move || {
        let bytes = BASE64_STANDARD.decode(&*data).map_err(|_| PictureError::NotBase64)?;
        examine(bytes, Some(data))
    })
    .await
}

/// Takes a picture as it is in a file. One that fits stays as it is.
///
/// Safe to drop, as [`from_base64`] is.
///
/// # Errors
/// Why it cannot be taken.
pub(crate) async fn from_bytes(bytes: Vec<u8>) -> Result<Picture, PictureError> {
    off_the_runtime(move || examine(bytes, None)).await
}

/// Whether a file that begins like this is to be taken for a picture, whatever its name says.
pub(crate) fn begins(head: &[u8]) -> bool {
    format_of(head).is_some()
}

async fn off_the_runtime(
    look: impl FnOnce() -> Result<Picture, PictureError> + Send + 'static,
) -> Result<Picture, PictureError> {
    let permit = DECODING.acquire().await.expect("nobody closes it");
    let looking = tokio::task::spawn_blocking(move || {
        // Goes where the work is: whoever waits for it may leave, and it goes on.
        let _permit = permit;
        look()
    });
    match looking.await {
        Ok(looked) => looked,
        Err(error) if error.is_panic() => std::panic::resume_unwind(error.into_panic()),
        Err(_) => Err(PictureError::ShuttingDown),
    }
}

/// The type by the first bytes, if it is one that providers take.
fn format_of(head: &[u8]) -> Option<ImageFormat> {
    let format = image::guess_format(head).ok()?;
    const TAKEN: [ImageFormat; 4] =
        [ImageFormat::Png, ImageFormat::Jpeg, ImageFormat::Gif, ImageFormat::WebP];
    TAKEN.contains(&format).then_some(format)
}

/// Looks at every pixel. `base64` is what the bytes came as, if it is at hand.
fn examine(bytes: Vec<u8>, base64: Option<Arc<str>>) -> Result<Picture, PictureError> {
    let format = format_of(&bytes).ok_or(PictureError::OtherType)?;
    let damaged =
        |problem: String| PictureError::Damaged { mime_type: format.to_mime_type(), problem };
    let (pixels, orientation) = decode(&bytes, format)?;
    // Decoders of JPEG are content with half a picture; servers are not.
    if format == ImageFormat::Jpeg && memchr::memmem::rfind(&bytes, b"\xff\xd9").is_none() {
        return Err(damaged("its end is missing".to_owned()));
    }
    let sides = seen(&pixels, orientation);
    let fits = sides.0.max(sides.1) <= MAX_SIDE && base64_length(bytes.len()) <= MAX_BASE64;
    if fits {
        let data = base64.unwrap_or_else(|| BASE64_STANDARD.encode(&bytes).into());
        return Ok(picture(format, data, bytes.len(), sides, None));
    }
    drop(bytes);
    let smaller = smaller::fit(pixels, orientation, format, MAX_SIDE, MAX_BASE64);
    let smaller = smaller.map_err(|error| damaged(error.to_string()))?;
    let data = BASE64_STANDARD.encode(&smaller.bytes).into();
    Ok(picture(smaller.format, data, smaller.bytes.len(), smaller.sides, Some(sides)))
}

fn picture(
    format: ImageFormat,
    data: Arc<str>,
    bytes: usize,
    sides: (u32, u32),
    shrunk_from: Option<(u32, u32)>,
) -> Picture {
    let mime_type = format.to_mime_type();
    let block = Block::Image { mime_type: mime_type.to_owned(), data };
    Picture { block, mime_type, bytes, sides, shrunk_from }
}

fn decode(bytes: &[u8], format: ImageFormat) -> Result<(DynamicImage, Orientation), PictureError> {
    let damaged = |error: ImageError| PictureError::Damaged {
        mime_type: format.to_mime_type(),
        problem: error.to_string(),
    };
    let mut reader = ImageReader::with_format(Cursor::new(bytes), format);
    let mut limits = Limits::default();
    limits.max_alloc = Some(MAX_ALLOCATION);
    reader.limits(limits);
    let mut decoder = reader.into_decoder().map_err(damaged)?;
    let sides = decoder.dimensions();
    // By what is declared, before any of it is made room for.
    if u64::from(sides.0) * u64::from(sides.1) > MAX_PIXELS {
        return Err(PictureError::TooManyPixels { sides });
    }
    // Without one that can be read it is upright.
    let orientation = decoder.orientation().unwrap_or(Orientation::NoTransforms);
    let pixels = DynamicImage::from_decoder(decoder).map_err(damaged)?;
    Ok((pixels, orientation))
}

/// Width and height once it is turned as it says.
fn seen(pixels: &DynamicImage, orientation: Orientation) -> (u32, u32) {
    use Orientation::{Rotate90, Rotate90FlipH, Rotate270, Rotate270FlipH};
    match orientation {
        Rotate90 | Rotate270 | Rotate90FlipH | Rotate270FlipH => (pixels.height(), pixels.width()),
        _ => (pixels.width(), pixels.height()),
    }
}

fn base64_length(bytes: usize) -> usize {
    bytes.div_ceil(3) * 4
}
