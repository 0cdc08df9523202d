//! What a user may say in one message (3.5).
//!
//! Owns: its bounds, and the images that are taken.
//! Never: decodes an image; the model does.

use agent_core::Block;
use base64::{Engine, engine::general_purpose::STANDARD};

use crate::error::{EMPTY_INPUT, RpcError};

/// The most bytes of text in one message.
pub(super) const MAX_TEXT: u64 = 1 << 20;
/// The most bytes of images in one message, decoded.
pub(super) const MAX_IMAGES: u64 = 20 << 20;
/// The most blocks of one message.
const MAX_BLOCKS: usize = 1_024;
/// The kinds of images that models read.
const MIME_TYPES: [&str; 4] = ["image/png", "image/jpeg", "image/gif", "image/webp"];

/// Checks what a user says, and drops blocks of nothing but white space, which some providers
/// refuse and which no model would be sent.
///
/// # Errors
/// The field that is wrong, or that there is too much.
pub(super) fn checked(content: Vec<Block>) -> Result<Vec<Block>, RpcError> {
    if content.len() > MAX_BLOCKS {
        let problem = format!("{} blocks; at most {MAX_BLOCKS} are taken", content.len());
        return Err(RpcError::invalid_param("input", problem));
    }
    let (mut text_bytes, mut image_bytes) = (0, 0);
    for (index, block) in content.iter().enumerate() {
        match block {
            Block::Text { text } => text_bytes += text.len() as u64,
            Block::Image { mime_type, data } => {
                check_mime_type(mime_type).map_err(|problem| wrong(index, "mimeType", problem))?;
                image_bytes += decoded_length(data);
            }
            // `Content` reads nothing else.
            Block::Thinking { .. } | Block::ToolCall(_) => {}
        }
    }
    within(MAX_TEXT, text_bytes)?;
    // Before the look at every byte of it.
    within(MAX_IMAGES, image_bytes)?;
    for (index, block) in content.iter().enumerate() {
        if let Block::Image { data, .. } = block {
            check_base64(data).map_err(|problem| wrong(index, "data", problem))?;
        }
    }
    let mut content = content;
    content.retain(|block| !block.is_blank());
    match content.is_empty() {
        true => Err(RpcError::invalid_param("input", EMPTY_INPUT)),
        false => Ok(content),
    }
}

fn within(max_bytes: u64, actual_bytes: u64) -> Result<(), RpcError> {
    match actual_bytes > max_bytes {
        true => Err(RpcError::InputTooLarge { max_bytes, actual_bytes }),
        false => Ok(()),
    }
}

fn wrong(index: usize, field: &str, problem: String) -> RpcError {
    RpcError::invalid_param(&format!("input[{index}].{field}"), problem)
}

fn check_mime_type(mime_type: &str) -> Result<(), String> {
    match MIME_TYPES.contains(&mime_type) {
        true => Ok(()),
        false => Err(format!("expected one of {}", MIME_TYPES.join(", "))),
    }
}

fn decoded_length(base64: &str) -> u64 {
    let padding = base64.bytes().rev().take(2).take_while(|byte| *byte == b'=').count();
    (base64.len() / 4 * 3).saturating_sub(padding) as u64
}

/// Whether it is base64, a few kilobytes at a time: an image may have 20 MiB.
fn check_base64(data: &str) -> Result<(), String> {
    const CHUNK: usize = 4_096;
    let wrong = || "expected base64 with padding, without line ends or a data: prefix".to_owned();
    if data.is_empty() {
        return Err("it is empty; expected the image in base64".to_owned());
    }
    let mut decoded = [0; CHUNK / 4 * 3];
    let mut chunks = data.as_bytes().chunks(CHUNK).peekable();
    while let Some(chunk) = chunks.next() {
        STANDARD.decode_slice(chunk, &mut decoded).map_err(|_| wrong())?;
        if chunks.peek().is_some() && chunk.ends_with(b"=") {
            return Err(wrong());
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn refused(content: Vec<Block>) -> String {
        checked(content).unwrap_err().to_string()
    }

    #[test]
    fn what_is_too_large_is_refused_with_both_numbers() {
        let text = |length: usize| vec![Block::text("x".repeat(length))];
        assert!(checked(text(1 << 20)).is_ok());
        assert_eq!(
            checked(text((1 << 20) + 1)),
            Err(RpcError::InputTooLarge { max_bytes: 1 << 20, actual_bytes: (1 << 20) + 1 })
        );
        let image =
            |length: usize| vec![Block::image("image/png", STANDARD.encode(vec![0; length]))];
        assert!(checked(image(20 << 20)).is_ok());
        assert_eq!(
            checked(image((20 << 20) + 1)),
            Err(RpcError::InputTooLarge { max_bytes: 20 << 20, actual_bytes: (20 << 20) + 1 })
        );
    }

    #[test]
    fn a_wrong_image_is_named() {
        let image = |mime_type: &str, data: &str| {
            refused(vec![Block::text("see"), Block::image(mime_type, data)])
        };
        assert_eq!(
            image("image/tiff", "AA=="),
            "invalid params: `input[1].mimeType`: expected one of image/png, image/jpeg, \
             image/gif, image/webp"
        );
        let late = format!("{}QQ==", "A".repeat(4_096)).replace("AAAAQQ==", "AA==QQ==");
        for data in ["A", "AA", "data:image/png;base64,AA==", "AA==\n", "AA==AA==", &late] {
            let error = image("image/png", data);
            assert!(
                error.starts_with("invalid params: `input[1].data`: expected base64"),
                "{data}"
            );
        }
        assert!(image("image/png", "").contains("`input[1].data`: it is empty"));
    }

    #[test]
    fn empty_input_is_refused_and_empty_text_beside_something_is_dropped() {
        let blank = " \t\r\n\u{a0}\u{2003}\u{2028}\u{3000}\u{feff}\u{200b}\0";
        for nothing in [
            vec![],
            vec![Block::text("")],
            vec![Block::text(blank)],
            vec![Block::text(" "), Block::text("\n")],
        ] {
            assert!(refused(nothing).contains("`input`: it is empty"));
        }
        let picture = Block::image("image/png", "AA==");
        let said = checked(vec![Block::text(""), Block::text(" x\n"), Block::text(blank)]);
        assert_eq!(said.unwrap(), [Block::text(" x\n")]);
        let said = checked(vec![Block::text(blank), picture.clone()]);
        assert_eq!(said.unwrap(), [picture]);
    }
}
