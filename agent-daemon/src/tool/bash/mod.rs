//! The `bash` tool: runs a command.
//!
//! Owns: what a call asks for, and how the result is told. [`run`] watches the command,
//! [`processes`] starts and ends it, [`output`] keeps what it says.
//! Never: returns while something of the command still runs, unless that cannot be killed.

use std::{
    io,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use agent_core::{BoxFuture, Tool, ToolContext, ToolError, ToolOutput, ToolSpec};
use serde::Deserialize;
use serde_json::{Number, Value, json};

use tokio::net::unix::pipe;

use super::{
    arguments::parse,
    editor,
    kind::{Kind, Rule},
    policy::{BashPolicy, BuiltIn, ToolPolicy},
    text::grouped,
    workspace::Workspace,
};
use output::Output;
use processes::{CommandEnding, Launch, Processes};
use run::{Cause, Patience, Ran};
use stall::Standstill;

mod activity;
mod clean;
mod guard;
mod output;
mod process_tree;
mod processes;
mod run;
mod signal_name;
mod stall;
mod supervised;
pub mod supervisor;
mod tail;

/// What the system takes as one argument, which the command becomes.
const MAX_COMMAND: usize = 128 * 1024 - 1;

/// All about it.
pub(super) static KIND: Kind = Kind {
    make: |workspace| Arc::new(Bash::new(workspace)),
    is_offered: |policy| policy.bash == BashPolicy::Allow,
    rules: &[
        Rule::always(
            "After a change run what tells whether it works, such as the tests, and read what it \
             says.",
        ),
        Rule::always(
            "Commands have no input and no terminal: give flags instead of answering questions. \
             What they leave in the background ends with them.",
        ),
    ],
};

/// Runs a command.
pub(super) struct Bash {
    spec: ToolSpec,
    workspace: Arc<Workspace>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Arguments {
    command: String,
    timeout: Option<Number>,
}

impl Bash {
    pub(super) fn new(workspace: Arc<Workspace>) -> Self {
        Bash { spec: spec(workspace.policy()), workspace }
    }

    async fn run(
        &self,
        arguments: Arguments,
        context: ToolContext,
    ) -> Result<ToolOutput, ToolError> {
        let policy = self.workspace.policy();
        if !policy.allows(BuiltIn::Bash) || !(KIND.is_offered)(policy) {
            return Err(ToolError::new(
                "The command was not run: this session may run none. Whoever configures the daemon \
                 can change `bash` or `allow` in the `[tools]` table.",
            ));
        }
        let patience = patience(arguments.timeout, self.workspace.policy())?;
        check(&arguments.command)?;
        if context.signal.is_cancelled() {
            return Err(ToolError::new("The command was not run: the run was aborted before."));
        }
        let (processes, pipe, is_gone) = self.start(&arguments.command).await?;
        let output = Output::new(self.workspace.outputs().clone());
        let ran = run::watch(processes, pipe, output, patience, &context).await;
        report(ran, is_gone.then(|| self.workspace.directory()))
    }

    /// Starts a command in the session's directory, or in none if that is gone: then it can go where
    /// it wants and make the directory again, and no relative path hits what it did not mean.
    async fn start(&self, command: &str) -> Result<(Processes, pipe::Receiver, bool), ToolError> {
        let directory = self.workspace.directory();
        let is_gone = is_gone(directory);
        let started = match is_gone {
            true => self.start_nowhere(command).await,
            false => self.launch(command, directory, None).await,
        };
        let (processes, pipe) = started.map_err(|error| {
            let place = directory.display();
            ToolError::new(match is_gone {
                true => format!("The command was not run: {place} is gone, and {error}."),
                false => format!("The command could not be started in {place}: {error}."),
            })
        })?;
        Ok((processes, pipe, is_gone))
    }

    async fn start_nowhere(&self, command: &str) -> io::Result<(Processes, pipe::Receiver)> {
        let (outermost, innermost) = tokio::task::spawn_blocking(vanishing).await??;
        self.launch(command, &innermost, Some(outermost)).await
    }

    async fn launch(
        &self,
        command: &str,
        directory: &Path,
        vanishing: Option<tempfile::TempDir>,
    ) -> io::Result<(Processes, pipe::Receiver)> {
        let outputs = self.workspace.outputs().clone();
        let editor = tokio::task::spawn_blocking(move || outputs.editor()).await?;
        let count = std::env::var("GIT_CONFIG_COUNT").ok();
        let mut variables = editor::variables(editor.as_deref(), count.as_deref());
        // Not the daemon's own, which a shell that begins nowhere would take for its place.
        variables.push(("PWD".to_owned(), self.workspace.directory().into()));
        let hidden = self.workspace.secrets_set();
        Processes::start(Launch { command, directory, vanishing, hidden, variables }).await
    }
}

/// How deep a directory is that is to vanish: `..` goes on leading to where it was.
const DEPTH: usize = 32;

/// A directory to begin in that is then removed with all above it that was made for it.
fn vanishing() -> io::Result<(tempfile::TempDir, PathBuf)> {
    let outermost = tempfile::tempdir()?;
    let mut innermost = outermost.path().to_owned();
    innermost.extend(std::iter::repeat_n("gone", DEPTH));
    std::fs::create_dir_all(&innermost)?;
    Ok((outermost, innermost))
}

/// Whether there is nothing any more at a path that was a directory.
fn is_gone(directory: &Path) -> bool {
    match std::fs::metadata(directory) {
        Ok(metadata) => !metadata.is_dir(),
        Err(error) => {
            matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory)
        }
    }
}

fn spec(policy: &ToolPolicy) -> ToolSpec {
    let most = grouped(policy.bash_max_timeout.get().into());
    let otherwise = match policy.bash_stall {
        0 => "no limit if left out".to_owned(),
        stall => format!("if left out, when it has said and done nothing for {stall}"),
    };
    ToolSpec {
        name: "bash".into(),
        description: "Runs a command with bash in the session's directory and shows its output, \
                      standard output and error together: the last 2,000 lines or 50 KiB, with all \
                      of it in a file if it is longer. There is no input, no terminal and no editor. \
                      When the command ends, what it left running in the background ends too."
            .into(),
        // Without the limits of `timeout`: what is wrong with one we can say better.
        parameters: json!({
            "type": "object",
            "properties": {
                "command": { "type": "string", "minLength": 1, "description": "What to run." },
                "timeout": {
                    "type": "number",
                    "description": format!(
                        "Seconds after which the command is ended, at most {most}; {otherwise}."
                    )
                }
            },
            "required": ["command"]
        }),
    }
}

impl Tool for Bash {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    fn call<'a>(
        &'a self,
        arguments: Value,
        context: ToolContext,
    ) -> BoxFuture<'a, Result<ToolOutput, ToolError>> {
        Box::pin(async move { self.run(parse(arguments)?, context).await })
    }
}

/// Zero is no limit at all in other tools; here it is a mistake, and said to be one. Milliseconds
/// are another.
fn patience(timeout: Option<Number>, policy: &ToolPolicy) -> Result<Patience, ToolError> {
    let Some(timeout) = timeout else {
        return Ok(match policy.bash_stall {
            0 => Patience::Endless,
            stall => Patience::WhileBusy(Duration::from_secs(stall.into())),
        });
    };
    let most = policy.bash_max_timeout.get();
    let seconds = timeout.as_f64().unwrap_or(f64::INFINITY);
    if seconds > 0.0 && seconds <= most.into() {
        return Ok(Patience::Until(Duration::from_secs_f64(seconds)));
    }
    let meant = match seconds / 1_000.0 {
        meant if meant >= 1.0 && meant <= most.into() => {
            format!(" If milliseconds were meant, that is {meant}.")
        }
        _ => String::new(),
    };
    Err(ToolError::new(format!(
        "The command was not run: `timeout` is {timeout} seconds, but must be above 0 and at most {} \
         seconds.{meant} Leave it out for no fixed limit.",
        grouped(most.into())
    )))
}

fn check(command: &str) -> Result<(), ToolError> {
    let problem = if command.trim().is_empty() {
        "`command` is empty"
    } else if command.contains('\0') {
        "`command` contains a NUL character, which no program can be given"
    } else if command.len() > MAX_COMMAND {
        "`command` is longer than 128 KiB; write it to a file and run that"
    } else {
        return Ok(());
    };
    Err(ToolError::new(format!("The command was not run: {problem}.")))
}

/// The result: what the command said, and below it how it ended unless that went without saying.
/// `gone` is the directory that it should have run in.
fn report(ran: Ran, gone: Option<&Path>) -> Result<ToolOutput, ToolError> {
    let ending = match &ran.cause {
        Some(cause) => Some(why(cause)),
        None => ran.ending.and_then(describe),
    };
    let is_error = ending.is_some();
    let mut text = ran.output.text;
    if text.is_empty() {
        text.push_str("(No output.)");
    }
    let left = ran.left_running.then(|| "What it left running was ended.".to_owned());
    let unkillable =
        ran.still_running.then(|| "Some of it could not be killed and still runs.".to_owned());
    let gone = gone.map(|directory| {
        let place = directory.display();
        format!(
            "The session's directory {place} is gone, so the command ran in none, and relative \
             paths led nowhere: begin with `cd /...`, or make it again with `mkdir -p {place}`."
        )
    });
    let notes: Vec<String> = [ending, left, unkillable, gone].into_iter().flatten().collect();
    if !notes.is_empty() {
        text.push_str(if text.ends_with('\n') { "\n[" } else { "\n\n[" });
        text.push_str(&notes.join(" "));
        text.push(']');
    }
    let output = ToolOutput::text(text).with_details(json!({
        "exitCode": match ran.ending { Some(CommandEnding::Exited(code)) => Some(code), _ => None },
        "signal": match ran.ending {
            Some(CommandEnding::Signalled(number)) => Some(signal_name::of(number)),
            _ => None,
        },
        "timedOut": matches!(ran.cause, Some(Cause::TimedOut(_))),
        "stalled": matches!(ran.cause, Some(Cause::StoodStill(_))),
        "aborted": ran.cause == Some(Cause::Aborted),
        "truncated": ran.output.truncated,
        "fullOutputPath": ran.output.file,
        "durationMs": u64::try_from(ran.duration.as_millis()).unwrap_or(u64::MAX),
    }))?;
    if is_error { Err(output.into()) } else { Ok(output) }
}

/// Why we ended a command.
fn why(cause: &Cause) -> String {
    match cause {
        Cause::Aborted => "The run was aborted; the command was ended.".into(),
        Cause::TimedOut(limit) => {
            format!("The command was ended after {} seconds, its time limit.", limit.as_secs_f64())
        }
        Cause::StoodStill(Standstill::WantsTerminal(process)) => format!(
            "The command was ended: {process} in it waits for a terminal, and there is none."
        ),
        Cause::StoodStill(Standstill::Silent(limit, stopped)) => {
            let stopped = stopped.as_ref().map(|process| format!(" {process} in it is stopped."));
            format!(
                "The command was ended: it had said and done nothing for {} seconds, as one does \
                 that waits for input or for a terminal, which it has not.{} To let one wait that \
                 long, give a `timeout`.",
                limit.as_secs(),
                stopped.unwrap_or_default()
            )
        }
    }
}

/// How a command ended, if not well.
fn describe(ending: CommandEnding) -> Option<String> {
    match ending {
        CommandEnding::Exited(0) => None,
        // A shell's way to say that what it ran was ended by a signal.
        CommandEnding::Exited(code @ 129..=192) => Some(format!(
            "Exit code {code}: something in it was ended by {}.",
            signal_name::of(code - 128)
        )),
        CommandEnding::Exited(code) => Some(format!("Exit code {code}.")),
        CommandEnding::Signalled(number) => {
            Some(format!("The command was ended by {}.", signal_name::of(number)))
        }
        CommandEnding::Lost => {
            Some("The command was killed, with the process that watched it.".into())
        }
    }
}

// What needs processes is in `agent-daemon/tests/tools.rs`: only a program with a `main` of its own
// can host a supervisor.
#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn a_time_limit_is_above_zero_and_at_most_two_hours() {
        let policy = ToolPolicy::default();
        let patience = |timeout: Value| patience(serde_json::from_value(timeout).unwrap(), &policy);
        for (timeout, limit) in [(json!(0.5), 0.5), (json!(1), 1.0), (json!(7_200), 7_200.0)] {
            let limit = Patience::Until(Duration::from_secs_f64(limit));
            assert_eq!(patience(timeout).unwrap(), limit);
        }
        for timeout in [json!(0), json!(0.0), json!(-1), json!(7_200.1), json!(1e300)] {
            let refused = patience(timeout.clone()).unwrap_err().to_string();
            let told =
                format!("`timeout` is {timeout} seconds, but must be above 0 and at most 7,200");
            assert!(refused.contains(&told), "{timeout}: {refused}");
        }
        let refused = patience(json!(30_000)).unwrap_err().to_string();
        assert!(refused.contains("If milliseconds were meant, that is 30."), "{refused}");
    }

    #[test]
    fn without_a_time_limit_a_command_may_run_while_it_is_busy() {
        let with = |stall| ToolPolicy { bash_stall: stall, ..ToolPolicy::default() };
        let busy = Patience::WhileBusy(Duration::from_secs(600));
        assert_eq!(patience(None, &ToolPolicy::default()).unwrap(), busy);
        assert_eq!(patience(None, &with(0)).unwrap(), Patience::Endless);
        let about = |policy| spec(&policy).parameters["properties"]["timeout"].to_string();
        assert!(about(with(0)).contains("at most 7,200; no limit if left out"));
        assert!(about(with(60)).contains("said and done nothing for 60."));
    }

    #[test]
    fn what_cannot_be_a_command_is_refused() {
        let long = "x".repeat(MAX_COMMAND + 1);
        for (command, told) in
            [("", "is empty"), (" \n", "is empty"), ("a\0b", "NUL"), (&long, "128 KiB")]
        {
            assert!(check(command).unwrap_err().to_string().contains(told), "{told}");
        }
        assert!(check(&long[1..]).is_ok());
    }

    #[test]
    fn an_end_is_told() {
        let cases = [
            (CommandEnding::Exited(0), None),
            (CommandEnding::Exited(1), Some("Exit code 1.")),
            (CommandEnding::Exited(128), Some("Exit code 128.")),
            (
                CommandEnding::Exited(137),
                Some("Exit code 137: something in it was ended by SIGKILL."),
            ),
            (CommandEnding::Exited(255), Some("Exit code 255.")),
            (CommandEnding::Signalled(15), Some("The command was ended by SIGTERM.")),
            (CommandEnding::Signalled(40), Some("The command was ended by signal 40.")),
        ];
        for (ending, told) in cases {
            assert_eq!(describe(ending).as_deref(), told);
        }
    }
}
