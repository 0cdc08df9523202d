//! The `edit` tool: replaces parts of a file.
//!
//! Owns: reading the file, writing it back as a whole, and what is told.
//! Never: decides what matches ([`replace`]), or writes over a change that it has not seen.

use std::{path::Path, sync::Arc};

use agent_core::{BoxFuture, Tool, ToolContext, ToolError, ToolOutput, ToolSpec};
use serde::Deserialize;
use serde_json::{Value, json};

use super::{
    arguments::parse,
    atomic_write, blocking, file_locks,
    kind::{Kind, Rule},
    nearest,
    text::counted,
    workspace::{Target, Workspace},
    written::{Outcome, Seen},
};
use replace::{EditRefusal, Replacement, Splice};

mod diff;
mod hint;
mod replace;

#[cfg(test)]
mod tests;

/// A larger file is not held in memory.
const MAX_FILE: u64 = 64 * 1024 * 1024;

/// So many places are told when all went well.
const MAX_PLACES: usize = 20;

/// All about it.
pub(super) static KIND: Kind = Kind {
    make: |workspace| Arc::new(Edit::new(workspace)),
    is_offered: |_| true,
    rules: &[Rule::always(
        "Use edit for changes: oldText must match the file exactly and occur once. Put several \
         changes of one file into one call.",
    )],
};

/// Replaces parts of a file.
pub(super) struct Edit {
    spec: ToolSpec,
    workspace: Arc<Workspace>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Arguments {
    path: String,
    edits: Vec<Replacement>,
}

impl Edit {
    pub(super) fn new(workspace: Arc<Workspace>) -> Self {
        Edit { spec: spec(), workspace }
    }

    async fn edit(
        &self,
        arguments: Arguments,
        context: ToolContext,
    ) -> Result<ToolOutput, ToolError> {
        // From before the read to after the rename, or the second of two edits undoes the first.
        let (Target(target), turn) =
            file_locks::turn(&self.workspace, &arguments.path, &context.signal).await?;
        blocking::run(&context.signal, move |stop| {
            let _turn = turn;
            carry_out(&target, &arguments, &|| stop.requested())
        })
        .await?
    }
}

fn spec() -> ToolSpec {
    ToolSpec {
        name: "edit".into(),
        description:
            "Replaces parts of a file, all or none. Each oldText must occur exactly once in \
                      the file as it is now, character by character, white space included; take \
                      enough lines around it. Replacements must not overlap. Several in one call \
                      are better than several calls."
                .into(),
        parameters: json!({
            "type": "object",
            "properties": {
                "path": {
                    "type": "string",
                    "description": "The file, relative to the session's directory; `~` is the home directory."
                },
                "edits": {
                    "type": "array", "minItems": 1,
                    "items": {
                        "type": "object",
                        "properties": {
                            "oldText": {
                                "type": "string", "minLength": 1,
                                "description": "The exact text to replace; it occurs once in the file."
                            },
                            "newText": {
                                "type": "string",
                                "description": "What comes in its place; may be empty."
                            }
                        },
                        "required": ["oldText", "newText"]
                    }
                }
            },
            "required": ["path", "edits"]
        }),
    }
}

impl Tool for Edit {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    fn call<'a>(
        &'a self,
        arguments: Value,
        context: ToolContext,
    ) -> BoxFuture<'a, Result<ToolOutput, ToolError>> {
        Box::pin(async move { self.edit(parse(arguments)?, context).await })
    }
}

fn carry_out(
    target: &Path,
    arguments: &Arguments,
    stop: &dyn Fn() -> bool,
) -> Result<ToolOutput, ToolError> {
    let named = &arguments.path;
    let (original, seen) = load(target, named)?;
    let splices = replace::plan(&original, &arguments.edits)
        .map_err(|refusals| refused(named, &original, &arguments.edits, &refusals))?;
    let new = replace::apply(&original, &splices);
    match atomic_write::replace(target, &new, Some(&seen), stop) {
        Ok(Outcome::Stopped) => Err(ToolError::new(format!(
            "{named} was not changed: the run was aborted. It is as it was before."
        ))),
        Ok(outcome) => report(named, &original, &new, &splices, &outcome),
        Err(error) => Err(ToolError::new(error.sentence(named, "changed"))),
    }
}

fn load(target: &Path, named: &str) -> Result<(Vec<u8>, Seen), ToolError> {
    let failed = |error: std::io::Error| {
        let more = match error.kind() {
            std::io::ErrorKind::NotFound => nearest::explain_missing(target),
            _ => String::new(),
        };
        ToolError::new(format!("Cannot edit {named}: {error}.{more}"))
    };
    let metadata = std::fs::metadata(target).map_err(failed)?;
    if !metadata.is_file() {
        return Err(ToolError::new(format!("Cannot edit {named}: it is not a regular file.")));
    }
    if metadata.len() > MAX_FILE {
        return Err(ToolError::new(format!(
            "Cannot edit {named}: it has {}, more than the {} that can be edited. Use bash (sed).",
            counted(metadata.len(), "byte"),
            counted(MAX_FILE, "byte"),
        )));
    }
    let original = std::fs::read(target).map_err(failed)?;
    if let [0xff, 0xfe, ..] | [0xfe, 0xff, ..] = original.as_slice() {
        return Err(ToolError::new(format!(
            "Cannot edit {named}: it is in UTF-16, and oldText would be looked for in UTF-8. Use \
             bash (iconv, or a script)."
        )));
    }
    Ok((original, Seen::of(&metadata)))
}

fn refused(
    named: &str,
    original: &[u8],
    edits: &[Replacement],
    refusals: &[EditRefusal],
) -> ToolError {
    let mut text = format!("{named} was not changed:");
    for refusal in refusals {
        let hint = match refusal {
            EditRefusal::Missing { index } => {
                hint::nearest_place(original, &edits[*index].old_text)
            }
            _ => String::new(),
        };
        text.push_str(&format!("\n- {refusal}.{hint}"));
    }
    if refusals.len() == replace::MAX_REFUSALS {
        text.push_str("\nThe rest of the call was not looked at.");
    }
    ToolError::new(text)
}

fn report(
    named: &str,
    original: &[u8],
    new: &[u8],
    splices: &[Splice],
    outcome: &Outcome,
) -> Result<ToolOutput, ToolError> {
    let named_places = splices.iter().take(MAX_PLACES);
    let lines: Vec<usize> =
        named_places.map(|splice| replace::line_of(original, splice.range.start)).collect();
    let count = counted(splices.len() as u64, "replacement");
    let noun = if lines.len() == 1 { "line" } else { "lines" };
    let mut text = format!("Edited {named}: {count}, at {noun} {}", replace::listed(&lines));
    if splices.len() > lines.len() {
        text.push_str(" and further down");
    }
    ToolOutput::text(text + "." + &outcome.remark()).with_details(json!({
        "path": named,
        "replacements": splices.len(),
        "inPlace": outcome.is_in_place(),
        "firstChangedLine": lines.first(),
        "diff": diff::unified(named, original, new),
    }))
}
