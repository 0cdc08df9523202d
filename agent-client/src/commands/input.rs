//! What the user says, from the command line, from stdin and from pictures.

use std::{
    io::{self, IsTerminal, Read},
    path::Path,
};

use agent_core::Block;
use agent_daemon::protocol::Content;
use base64::{Engine, engine::general_purpose::STANDARD};

use crate::{arguments::InputArguments, exit::Failure};

/// Puts a message together.
pub(super) fn content(arguments: InputArguments) -> Result<Content, Failure> {
    let InputArguments { text, image } = arguments;
    let text = match text.as_slice() {
        [dash] if dash == "-" => stdin()?,
        [] if !io::stdin().is_terminal() && image.is_empty() => stdin()?,
        words => words.join(" "),
    };
    let mut blocks = Vec::new();
    if !text.trim().is_empty() {
        blocks.push(Block::text(text));
    }
    for path in &image {
        blocks.push(picture(path)?);
    }
    if blocks.is_empty() {
        return Err(Failure::Usage("there is nothing to say: give a TEXT, or pipe one in".into()));
    }
    Ok(Content(blocks))
}

/// All that is piped in, without the line end that every command puts there.
pub(super) fn stdin() -> Result<String, Failure> {
    let mut text = String::new();
    match io::stdin().read_to_string(&mut text) {
        Ok(_) => Ok(text.trim_end_matches(['\r', '\n']).to_owned()),
        Err(error) => Err(Failure::Usage(format!("cannot read stdin: {error}"))),
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
