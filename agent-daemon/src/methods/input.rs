//! What a user may say in one message (W3.5).
//!
//! Owns: its bounds, and which of it is wrong.
//! Never: holds up other connections; pictures are looked at elsewhere.

use agent_core::Block;
use agent_protocol::RpcError;

use crate::picture::{self, PictureError};

/// The most bytes of text in one message.
pub(super) const MAX_TEXT: u64 = 1 << 20;
/// The most bytes of images in one message, decoded.
pub(super) const MAX_IMAGES: u64 = picture::MAX_BYTES;
/// The most blocks of one message.
const MAX_BLOCKS: usize = 1_024;

/// Checks what a user says, and drops blocks of nothing but white space, which some providers
/// refuse and which no model would be sent. Pictures come out as providers take them.
///
/// Completes at once if there are none. Safe to drop.
///
/// # Errors
/// The field that is wrong, or that there is too much.
pub(super) async fn checked(mut content: Vec<Block>) -> Result<Vec<Block>, RpcError> {
    check_bounds(&content)?;
    for (index, block) in content.iter_mut().enumerate() {
        if let Block::Image { data, .. } = block {
            let taken = picture::from_base64(data.clone()).await;
            *block = taken.map_err(|error| refused(index, &error))?.block;
        }
    }
    content.retain(|block| !block.is_blank());
    match content.is_empty() {
        true => Err(RpcError::empty_input()),
        false => Ok(content),
    }
}

/// Before the look at every byte of it.
fn check_bounds(content: &[Block]) -> Result<(), RpcError> {
    if content.len() > MAX_BLOCKS {
        let problem = format!("{} blocks; at most {MAX_BLOCKS} are taken", content.len());
        return Err(RpcError::invalid_param("input", problem));
    }
    let (mut text_bytes, mut image_bytes) = (0, 0);
    for block in content {
        match block {
            Block::Text { text } => text_bytes += text.len() as u64,
            Block::Image { data, .. } => image_bytes += decoded_length(data),
            // `Content` reads nothing else.
            Block::Thinking { .. } | Block::ToolCall(_) => {}
        }
    }
    within(MAX_TEXT, text_bytes)?;
    within(MAX_IMAGES, image_bytes)
}

fn refused(index: usize, error: &PictureError) -> RpcError {
    match error {
        PictureError::ShuttingDown => RpcError::ShuttingDown,
        error => RpcError::invalid_param(&format!("input[{index}].data"), format!("it {error}")),
    }
}

fn within(max_bytes: u64, actual_bytes: u64) -> Result<(), RpcError> {
    match actual_bytes > max_bytes {
        true => Err(RpcError::InputTooLarge { max_bytes, actual_bytes }),
        false => Ok(()),
    }
}

fn decoded_length(base64: &str) -> u64 {
    let padding = base64.bytes().rev().take(2).take_while(|byte| *byte == b'=').count();
    (base64.len() / 4 * 3).saturating_sub(padding) as u64
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use base64::{Engine, engine::general_purpose::STANDARD};

    use super::*;
    use crate::picture::tests::png;

    async fn refused(content: Vec<Block>) -> String {
        checked(content).await.unwrap_err().to_string()
    }

    #[tokio::test]
    async fn what_is_too_large_is_refused_with_both_numbers() {
        let text = |length: usize| vec![Block::text("x".repeat(length))];
        assert!(checked(text(1 << 20)).await.is_ok());
        assert_eq!(
            checked(text((1 << 20) + 1)).await,
            Err(RpcError::InputTooLarge { max_bytes: 1 << 20, actual_bytes: (1 << 20) + 1 })
        );
        let image =
            |length: usize| vec![Block::image("image/png", STANDARD.encode(vec![0; length]))];
        let most = refused(image(20 << 20)).await;
        assert!(most.contains("`input[0].data`: it is no picture"), "not for its size: {most}");
        assert_eq!(
            checked(image((20 << 20) + 1)).await,
            Err(RpcError::InputTooLarge { max_bytes: 20 << 20, actual_bytes: (20 << 20) + 1 })
        );
    }

    #[tokio::test]
    async fn a_wrong_image_is_named() {
        let image = async |data: &str| {
            refused(vec![Block::text("see"), Block::image("image/png", data)]).await
        };
        for data in ["A", "AA", "data:image/png;base64,AA==", "AA==\n", "AA==AA=="] {
            let error = image(data).await;
            let expected = "invalid params: `input[1].data`: it is not base64; expected it with";
            assert!(error.starts_with(expected), "{data}: {error}");
        }
        let expected = "invalid params: `input[1].data`: it is no picture that models take: PNG, \
                        JPEG, GIF or WebP";
        for data in ["", "AA=="] {
            assert_eq!(image(data).await, expected);
        }
        let cut = STANDARD.encode(&png(9, 9)[..60]);
        let error = image(&cut).await;
        assert!(error.contains("it is damaged or cut short, as image/png: "), "{error}");
    }

    #[tokio::test]
    async fn a_picture_has_the_type_of_its_bytes() {
        let data = STANDARD.encode(png(2, 3));
        for named in ["image/png", "image/jpeg", "image/tiff", "x"] {
            let said = checked(vec![Block::image(named, data.as_str())]).await;
            assert_eq!(said.unwrap(), [Block::image("image/png", data.as_str())]);
        }
    }

    #[tokio::test]
    async fn empty_input_is_refused_and_empty_text_beside_something_is_dropped() {
        let blank = " \t\r\n\u{a0}\u{2003}\u{2028}\u{3000}\u{feff}\u{200b}\0";
        for nothing in [
            vec![],
            vec![Block::text("")],
            vec![Block::text(blank)],
            vec![Block::text(" "), Block::text("\n")],
        ] {
            assert!(refused(nothing).await.contains("`input`: it is empty"));
        }
        let picture = Block::image("image/png", STANDARD.encode(png(1, 1)));
        let said = checked(vec![Block::text(""), Block::text(" x\n"), Block::text(blank)]).await;
        assert_eq!(said.unwrap(), [Block::text(" x\n")]);
        let said = checked(vec![Block::text(blank), picture.clone()]).await;
        assert_eq!(said.unwrap(), [picture]);
    }
}
