//! The `write` tool: gives a file new content as a whole.
//!
//! Owns: what the model is told. Never: decides how the file is written; see [`super::atomic_write`].

use std::sync::Arc;

use agent_core::{BoxFuture, Tool, ToolContext, ToolError, ToolOutput, ToolSpec};
use serde::Deserialize;
use serde_json::{Value, json};

use super::{
    arguments::parse,
    atomic_write, blocking, file_locks,
    kind::{Kind, Rule},
    text::counted,
    workspace::{Target, Workspace},
    written::Outcome,
};

/// All about it.
pub(super) static KIND: Kind = Kind {
    make: |workspace| Arc::new(Write::new(workspace)),
    is_offered: |_| true,
    rules: &[Rule::always("Use write only for new files and complete rewrites.")],
};

/// Replaces a whole file.
pub(super) struct Write {
    spec: ToolSpec,
    workspace: Arc<Workspace>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Arguments {
    path: String,
    content: String,
}

impl Write {
    pub(super) fn new(workspace: Arc<Workspace>) -> Self {
        Write { spec: spec(), workspace }
    }

    async fn write(
        &self,
        arguments: Arguments,
        context: ToolContext,
    ) -> Result<ToolOutput, ToolError> {
        let Arguments { path: named, content } = arguments;
        let (Target(target), turn) =
            file_locks::turn(&self.workspace, &named, &context.signal).await?;
        blocking::run(&context.signal, move |stop| {
            let _turn = turn;
            let written =
                atomic_write::replace(&target, content.as_bytes(), None, &|| stop.requested());
            match written {
                Ok(outcome) => report(&named, &content, outcome),
                Err(error) => Err(ToolError::new(error.sentence(&named, "written"))),
            }
        })
        .await?
    }
}

fn spec() -> ToolSpec {
    ToolSpec {
        name: "write".into(),
        description: "Writes a file: creates it, with its directories, or replaces all that it \
                      holds. To change a part of a file use `edit`."
            .into(),
        parameters: json!({
            "type": "object",
            "properties": {
                "path": {
                    "type": "string",
                    "description": "The file, relative to the session's directory; `~` is the home directory."
                },
                "content": { "type": "string", "description": "All that the file shall hold." }
            },
            "required": ["path", "content"]
        }),
    }
}

impl Tool for Write {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    fn call<'a>(
        &'a self,
        arguments: Value,
        context: ToolContext,
    ) -> BoxFuture<'a, Result<ToolOutput, ToolError>> {
        Box::pin(async move { self.write(parse(arguments)?, context).await })
    }
}

fn report(named: &str, content: &str, outcome: Outcome) -> Result<ToolOutput, ToolError> {
    let lines = content.split_inclusive('\n').count() as u64;
    let size = content.len() as u64;
    let how = match outcome {
        Outcome::Created => "a new file".to_owned(),
        Outcome::Replaced { old_size, .. } => format!("in place of {}", counted(old_size, "byte")),
        Outcome::Stopped => {
            return Err(ToolError::new(format!(
                "{named} was not written: the run was aborted. It is as it was before."
            )));
        }
    };
    let (bytes, lines_told) = (counted(size, "byte"), counted(lines, "line"));
    let told = format!("Wrote {bytes} ({lines_told}) to {named}, {how}.{}", outcome.remark());
    ToolOutput::text(told).with_details(json!({
        "path": named,
        "bytes": size,
        "lines": lines,
        "created": outcome == Outcome::Created,
        "inPlace": outcome.is_in_place(),
    }))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::{os::unix::fs::symlink, path::Path, time::Duration};

    use agent_core::{CancelSignal, CancelSource};

    use super::*;

    async fn write(directory: &Path, arguments: Value, signal: CancelSignal) -> String {
        let policy = toml::from_str("write_roots = ['.']").unwrap();
        let workspace = Workspace::new(directory.into(), policy, Vec::new());
        let (context, _updates) = ToolContext::detached("1", signal);
        match Write::new(workspace.into()).call(arguments, context).await {
            Ok(output) => agent_core::text_of(&output.content),
            Err(error) => format!("ERROR {error}"),
        }
    }

    #[tokio::test]
    async fn writing_says_what_it_did() {
        let scratch = tempfile::tempdir().unwrap();
        let root = scratch.path();
        std::fs::write(root.join("real"), "old").unwrap();
        symlink("real", root.join("link")).unwrap();
        symlink("made", root.join("dangling")).unwrap();
        symlink("/etc", root.join("out")).unwrap();
        const CASES: &[(&str, &str, &str, &str)] = &[
            ("a", "one\ntwo\n", "Wrote 8 bytes (2 lines) to a, a new file.", "a"),
            ("a", "one\ntwo", "Wrote 7 bytes (2 lines) to a, in place of 8 bytes.", "a"),
            ("a", "", "Wrote 0 bytes (0 lines) to a, in place of 7 bytes.", "a"),
            ("x/y/z", "é", "Wrote 2 bytes (1 line) to x/y/z, a new file.", "x/y/z"),
            ("link", "new", "Wrote 3 bytes (1 line) to link, in place of 3 bytes.", "real"),
            ("dangling", "new", "Wrote 3 bytes (1 line) to dangling, a new file.", "made"),
            ("crlf", "a\r\n", "Wrote 3 bytes (1 line) to crlf, a new file.", "crlf"),
        ];
        for (path, content, told, place) in CASES {
            let arguments = json!({ "path": path, "content": content });
            assert_eq!(write(root, arguments, CancelSignal::never()).await, *told);
            assert_eq!(std::fs::read_to_string(root.join(place)).unwrap(), *content, "{path}");
        }
        assert!(root.join("link").is_symlink() && root.join("dangling").is_symlink());

        const REFUSED: &[(&str, &str)] = &[
            ("x", "ERROR x was not written, since it is a directory."),
            (
                "out/passwd",
                "ERROR out/passwd (which leads to /etc/passwd) was not written: it is outside",
            ),
            ("real/below", "ERROR Cannot follow the path real/below: Not a directory"),
            ("", "ERROR The path is empty"),
        ];
        for (path, told) in REFUSED {
            let arguments = json!({ "path": path, "content": "never" });
            let story = write(root, arguments, CancelSignal::never()).await;
            assert!(story.starts_with(told), "{path}: {story}");
        }
    }

    #[tokio::test]
    async fn an_aborted_write_says_truly_that_nothing_was_written() {
        let scratch = tempfile::tempdir().unwrap();
        std::fs::write(scratch.path().join("a"), "old").unwrap();
        let source = CancelSource::default();
        source.cancel(Duration::ZERO);
        let arguments = json!({ "path": "a", "content": "new" });
        let told = write(scratch.path(), arguments, source.signal()).await;
        let expected = "ERROR a was not written: the run was aborted. It is as it was before.";
        assert_eq!(told, expected);
        assert_eq!(std::fs::read_to_string(scratch.path().join("a")).unwrap(), "old");
    }
}
