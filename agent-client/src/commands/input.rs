//! What the user says: the command line, what is piped in, and pictures.

use std::path::Path;

use agent_core::Block;
use agent_protocol::Content;
use base64::{Engine, engine::general_purpose::STANDARD};

use crate::{arguments::InputArguments, commands::stdin, exit::Failure};

/// The most text that a message may have (W3.5).
const MAX_TEXT_BYTES: usize = 1 << 20;

/// Puts a message together.
pub(super) async fn content(arguments: InputArguments) -> Result<Content, Failure> {
    let InputArguments { text, image } = arguments;
    // First of all, since it may take stdin a while to say that all is well.
    let pictures = image.iter().map(|path| picture(path)).collect::<Result<Vec<_>, _>>()?;
    let text = match text.as_slice() {
        [dash] if dash == "-" => stdin::whole(MAX_TEXT_BYTES).await?,
        // There is nothing else to say.
        [] if pictures.is_empty() && stdin::is_piped() => stdin::whole(MAX_TEXT_BYTES).await?,
        words => joined(words.join(" "), stdin::beside(MAX_TEXT_BYTES).await?),
    };
    let text = (!text.trim().is_empty()).then(|| Block::text(text));
    let blocks: Vec<_> = text.into_iter().chain(pictures).collect();
    if blocks.is_empty() {
        return Err(Failure::Usage("there is nothing to say: give a TEXT, or pipe one in".into()));
    }
    Ok(Content(blocks))
}

/// What is asked comes first, and what it is about after an empty line.
fn joined(text: String, piped: String) -> String {
    match (text.trim().is_empty(), piped.trim().is_empty()) {
        (_, true) => text,
        (true, false) => piped,
        (false, false) => format!("{text}\n\n{piped}"),
    }
}

fn picture(path: &Path) -> Result<Block, Failure> {
    let name = path.display();
    let bytes = std::fs::read(path);
    let bytes = bytes.map_err(|error| Failure::Usage(format!("cannot read {name}: {error}")))?;
    let mime_type = mime_type(&bytes).ok_or_else(|| {
        Failure::Usage(format!("{name} is no picture that models take: PNG, JPEG, GIF or WebP"))
    })?;
    Ok(Block::image(mime_type, STANDARD.encode(bytes)))
}

// By what it is, whatever its name says.
fn mime_type(bytes: &[u8]) -> Option<&'static str> {
    match bytes {
        [0x89, b'P', b'N', b'G', ..] => Some("image/png"),
        [0xff, 0xd8, 0xff, ..] => Some("image/jpeg"),
        [b'G', b'I', b'F', b'8', ..] => Some("image/gif"),
        [b'R', b'I', b'F', b'F', _, _, _, _, b'W', b'E', b'B', b'P', ..] => Some("image/webp"),
        _ => None,
    }
}
