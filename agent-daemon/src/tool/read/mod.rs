//! The `read` tool: shows a file to the model.
//!
//! Owns: telling text, images, other binary files, directories and what is not there apart, and the
//! words for each. Never: loads a file as a whole, or opens something that could block for ever.

use std::{
    fs::File,
    io::{BufReader, Read as _, Seek},
    os::unix::fs::OpenOptionsExt,
    path::Path,
    sync::Arc,
};

use agent_core::{Block, BoxFuture, Tool, ToolContext, ToolError, ToolOutput, ToolSpec};
use serde::Deserialize;
use serde_json::{Value, json};

use super::{
    arguments::{parse, whole_number},
    blocking::{self, Stop},
    kind::{Kind, Rule},
    nearest,
    text::{MAX_BYTES, MAX_LINES, counted, grouped},
    workspace::Workspace,
};
use crate::picture::{self, Picture, PictureError};
use window::{Window, WindowError, WindowSize};

mod listing;
mod window;

#[cfg(test)]
mod tests;

/// All about it.
pub(super) static KIND: Kind = Kind {
    make: |workspace| Arc::new(Read::new(workspace)),
    is_offered: |_| true,
    rules: &[
        Rule { beside: &["edit", "write"], says: "Read a file before you change it." },
        Rule {
            beside: &["bash"],
            says: "Use read rather than cat or sed to look at files, and bash to list and search \
                   (ls, find, rg, grep).",
        },
    ],
};

/// Shows a file.
pub(super) struct Read {
    spec: ToolSpec,
    workspace: Arc<Workspace>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Arguments {
    path: String,
    #[serde(default, deserialize_with = "whole_number")]
    offset: Option<u64>,
    #[serde(default, deserialize_with = "whole_number")]
    limit: Option<u64>,
}

impl Read {
    pub(super) fn new(workspace: Arc<Workspace>) -> Self {
        Read { spec: spec(), workspace }
    }
}

fn spec() -> ToolSpec {
    ToolSpec {
        name: "read".into(),
        description:
            "Shows a file. Text is shown as it is, at most 2,000 lines or 50 KiB at a time; \
                      a notice at the end says how to go on when there is more. Images (PNG, JPEG, \
                      GIF, WebP) are shown as images. Prefer this to `cat` or `sed`."
                .into(),
        parameters: json!({
            "type": "object",
            "properties": {
                "path": {
                    "type": "string",
                    "description": "The file, relative to the session's directory; `~` is the home directory."
                },
                "offset": {
                    "type": "integer", "minimum": 1,
                    "description": "The first line to show, counting from 1."
                },
                "limit": {
                    "type": "integer", "minimum": 1,
                    "description": "How many lines to show at most."
                }
            },
            "required": ["path"]
        }),
    }
}

impl Tool for Read {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    fn call<'a>(
        &'a self,
        arguments: Value,
        context: ToolContext,
    ) -> BoxFuture<'a, Result<ToolOutput, ToolError>> {
        Box::pin(async move {
            let arguments: Arguments = parse(arguments)?;
            let path = self.workspace.locate(&arguments.path);
            let named = arguments.path.clone();
            let shown = blocking::run(&context.signal, move |stop| show(&path, &arguments, stop));
            let bytes = match shown.await?? {
                Shown::Text(output) => return Ok(output),
                Shown::Picture(bytes) => bytes,
            };
            tokio::select! {
                picture = picture::from_bytes(bytes) => show_picture(&named, picture),
                () = context.signal.cancelled() => Err(ToolError::new("Reading was aborted.")),
            }
        })
    }
}

/// What is in a file.
enum Shown {
    Text(ToolOutput),
    /// A picture's bytes, to be looked at.
    Picture(Vec<u8>),
}

fn show(path: &Path, arguments: &Arguments, stop: &Stop) -> Result<Shown, ToolError> {
    let mut file = open(path, &arguments.path)?;
    let failed = |error| ToolError::new(format!("Cannot read {}: {error}.", arguments.path));
    let size = file.metadata().map_err(failed)?.len();
    let mut head = Vec::new();
    (&mut file).take(picture::MAGIC_BYTES).read_to_end(&mut head).map_err(failed)?;
    file.rewind().map_err(failed)?;
    if !picture::begins(&head) {
        return show_text(file, size, arguments, stop).map(Shown::Text);
    }
    let mut bytes = Vec::new();
    file.take(picture::MAX_BYTES + 1).read_to_end(&mut bytes).map_err(failed)?;
    if bytes.len() as u64 > picture::MAX_BYTES {
        let (size, most) = (counted(size, "byte"), grouped(picture::MAX_BYTES));
        let named = &arguments.path;
        return Err(ToolError::new(format!(
            "{named} is a picture that cannot be shown: it has {size}, and {most} are the most. \
             Make a smaller copy and read that."
        )));
    }
    Ok(Shown::Picture(bytes))
}

/// Opens a regular file, and nothing else: a FIFO would block, a device may act on being opened.
fn open(path: &Path, named: &str) -> Result<File, ToolError> {
    let failed = |error: std::io::Error| {
        let more = match error.kind() {
            std::io::ErrorKind::NotFound => nearest::explain_missing(path),
            _ => String::new(),
        };
        ToolError::new(format!("Cannot read {named}: {error}.{more}"))
    };
    let metadata = std::fs::metadata(path).map_err(failed)?;
    if metadata.is_dir() {
        return Err(ToolError::new(listing::describe(path, named)));
    }
    // What the path names can change after the look; non-blocking, so that even then nothing waits.
    let flags = rustix::fs::OFlags::NONBLOCK.bits() as i32;
    let special = || {
        let advice = "only regular files, images and directories can be shown";
        ToolError::new(format!("{named} is a device, socket or pipe; {advice}."))
    };
    if !metadata.is_file() {
        return Err(special());
    }
    let file = File::options().read(true).custom_flags(flags).open(path).map_err(failed)?;
    match file.metadata().map_err(failed)?.is_file() {
        true => Ok(file),
        false => Err(special()),
    }
}

fn show_picture(
    named: &str,
    picture: Result<Picture, PictureError>,
) -> Result<ToolOutput, ToolError> {
    let Picture { block, mime_type, bytes, sides: (width, height), shrunk_from } = picture
        .map_err(|error| {
            let advice = match error {
                PictureError::TooManyPixels { .. } => "Make a smaller copy and read that.",
                _ => "Look at it with bash (file, xxd).",
            };
            ToolError::new(format!("{named} cannot be shown as a picture: it {error}. {advice}"))
        })?;
    let size = counted(bytes as u64, "byte");
    let mut note = format!("{named}: {mime_type}, {width} x {height}, {size}");
    // Whoever measures in the picture must know that it is not the file's.
    if let Some((width, height)) = shrunk_from {
        note.push_str(&format!("; made smaller, the file's is {width} x {height}"));
    }
    let output = ToolOutput { content: vec![Block::text(note + "."), block], details: None };
    output.with_details(json!({ "mimeType": mime_type, "size": bytes }))
}

fn show_text(
    file: File,
    size: u64,
    arguments: &Arguments,
    stop: &Stop,
) -> Result<ToolOutput, ToolError> {
    let named = &arguments.path;
    let first = arguments.offset.unwrap_or(1);
    let limit = arguments.limit.unwrap_or(u64::MAX).min(MAX_LINES as u64);
    let reader = BufReader::with_capacity(window::CHUNK, file);
    let wanted = WindowSize { first, lines: limit, bytes: MAX_BYTES, file: size };
    let window =
        window::cut(reader, wanted, &|| stop.requested()).map_err(|error| match error {
            WindowError::PastTheEnd { lines } => ToolError::new(format!(
                "Line {} of {named} does not exist: the file has {}.",
                grouped(first),
                counted(lines, "line"),
            )),
            WindowError::Stopped => ToolError::new("Reading was aborted."),
            WindowError::Io(error) => ToolError::new(format!("Cannot read {named}: {error}.")),
        })?;
    if let Some(kind) = window.binary_kind() {
        return Err(ToolError::new(format!(
            "{named} is {kind} of {}, which cannot be shown as text. Look at it with bash (file, \
             xxd, strings, iconv).",
            counted(size, "byte"),
        )));
    }
    describe(&window, arguments, size)
}

fn describe(window: &Window, arguments: &Arguments, size: u64) -> Result<ToolOutput, ToolError> {
    let mut text = String::from_utf8_lossy(&window.text).into_owned();
    let notices = window.notices(&arguments.path);
    if text.is_empty() {
        text.push_str("(The file is empty.)");
    } else if !notices.is_empty() {
        text.push_str(if text.ends_with('\n') { "\n" } else { "\n\n" });
        text.push_str(&notices.join("\n"));
    }
    ToolOutput::text(text).with_details(json!({
        "firstLine": window.first,
        "lastLine": window.last,
        "totalLines": window.total,
        "truncated": window.is_cut(),
        "size": size,
    }))
}
