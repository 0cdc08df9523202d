//! The `bash` tool: runs a command.
//!
//! Owns: what a call asks for, and how the result is told. [`run`] watches the command,
//! [`processes`] starts and ends it, [`output`] keeps what it says.
//! Never: returns while something of the command still runs, unless that cannot be killed.

use std::{sync::Arc, time::Duration};

use agent_core::{BoxFuture, Tool, ToolContext, ToolError, ToolOutput, ToolSpec};
use serde::Deserialize;
use serde_json::{Number, Value, json};

use super::{BuiltIn, Workspace, arguments::parse};
use output::Output;
use processes::{Ending, Launch, Processes};
use run::{Cause, Ran};

mod clean;
mod guard;
mod output;
mod process_tree;
mod processes;
mod run;
mod signal_name;
mod supervised;
pub mod supervisor;
mod tail;

/// The longest time limit: a day.
const MAX_TIMEOUT: f64 = 86_400.0;

/// What the system takes as one argument, which the command becomes.
const MAX_COMMAND: usize = 128 * 1024 - 1;

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
        Bash { spec: spec(), workspace }
    }

    async fn run(
        &self,
        arguments: Arguments,
        context: ToolContext,
    ) -> Result<ToolOutput, ToolError> {
        if !self.workspace.policy().offers(BuiltIn::Bash) {
            return Err(ToolError::new(
                "The command was not run: this session may run none. Whoever configures the daemon \
                 can change `bash` or `allow` in the `[tools]` table.",
            ));
        }
        let limit = time_limit(arguments.timeout)?;
        check(&arguments.command)?;
        if context.signal.is_cancelled() {
            return Err(ToolError::new("The command was not run: the run was aborted before."));
        }
        let directory = self.workspace.directory();
        let launch =
            Launch { command: &arguments.command, directory, hidden: self.workspace.secrets_set() };
        let (processes, pipe) = Processes::start(launch).await.map_err(|error| {
            let place = directory.display();
            ToolError::new(format!("The command could not be started in {place}: {error}."))
        })?;
        let output = Output::new(self.workspace.temp());
        report(run::watch(processes, pipe, output, limit, &context).await, limit)
    }
}

fn spec() -> ToolSpec {
    ToolSpec {
        name: "bash".into(),
        description: "Runs a command with bash in the session's directory and shows its output, \
                      standard output and error together: the last 2,000 lines or 50 KiB, with all \
                      of it in a file if it is longer. There is no input and no terminal. When the \
                      command ends, what it left running in the background ends too."
            .into(),
        parameters: json!({
            "type": "object",
            "properties": {
                "command": { "type": "string", "minLength": 1, "description": "What to run." },
                "timeout": {
                    "type": "number", "minimum": 0, "maximum": MAX_TIMEOUT,
                    "description": "Seconds after which the command is ended; no limit if left out."
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

/// Zero is no limit at all in other tools; here it is a mistake, and said to be one.
fn time_limit(timeout: Option<Number>) -> Result<Option<Duration>, ToolError> {
    let Some(timeout) = timeout else { return Ok(None) };
    let seconds = timeout.as_f64().filter(|seconds| *seconds > 0.0 && *seconds <= MAX_TIMEOUT);
    match seconds {
        Some(seconds) => Ok(Some(Duration::from_secs_f64(seconds))),
        None => Err(ToolError::new(format!(
            "The command was not run: `timeout` is {timeout}, but must be above 0 and at most \
             86400 seconds. Leave it out for no limit."
        ))),
    }
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
fn report(ran: Ran, limit: Option<Duration>) -> Result<ToolOutput, ToolError> {
    let ending = match ran.cause {
        Some(Cause::Aborted) => Some("The run was aborted; the command was ended.".into()),
        Some(Cause::TimedOut) => Some(format!(
            "The command was ended after {} seconds, its time limit.",
            limit.unwrap_or_default().as_secs_f64()
        )),
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
    let notes: Vec<String> = [ending, left, unkillable].into_iter().flatten().collect();
    if !notes.is_empty() {
        text.push_str(if text.ends_with('\n') { "\n[" } else { "\n\n[" });
        text.push_str(&notes.join(" "));
        text.push(']');
    }
    let output = ToolOutput::text(text).with_details(json!({
        "exitCode": match ran.ending { Some(Ending::Exited(code)) => Some(code), _ => None },
        "signal": match ran.ending {
            Some(Ending::Signalled(number)) => Some(signal_name::of(number)),
            _ => None,
        },
        "timedOut": ran.cause == Some(Cause::TimedOut),
        "aborted": ran.cause == Some(Cause::Aborted),
        "truncated": ran.output.truncated,
        "fullOutputPath": ran.output.file,
        "durationMs": u64::try_from(ran.duration.as_millis()).unwrap_or(u64::MAX),
    }))?;
    if is_error { Err(output.into()) } else { Ok(output) }
}

/// How a command ended, if not well.
fn describe(ending: Ending) -> Option<String> {
    match ending {
        Ending::Exited(0) => None,
        // A shell's way to say that what it ran was ended by a signal.
        Ending::Exited(code @ 129..=192) => Some(format!(
            "Exit code {code}: something in it was ended by {}.",
            signal_name::of(code - 128)
        )),
        Ending::Exited(code) => Some(format!("Exit code {code}.")),
        Ending::Signalled(number) => {
            Some(format!("The command was ended by {}.", signal_name::of(number)))
        }
        Ending::Lost => Some("The command was killed, with the process that watched it.".into()),
    }
}

// What needs processes is in `agent-daemon/tests/tools.rs`: only a program with a `main` of its own
// can host a supervisor.
#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn a_time_limit_is_above_zero_and_at_most_a_day() {
        for (timeout, limit) in [(json!(0.5), 0.5), (json!(1), 1.0), (json!(86_400), 86_400.0)] {
            let limit = Some(Duration::from_secs_f64(limit));
            assert_eq!(time_limit(serde_json::from_value(timeout).unwrap()).unwrap(), limit);
        }
        assert_eq!(time_limit(None).unwrap(), None);
        for timeout in [json!(0), json!(0.0), json!(-1), json!(86_400.1), json!(1e300)] {
            let refused = time_limit(serde_json::from_value(timeout.clone()).unwrap()).unwrap_err();
            assert!(refused.to_string().contains("`timeout` is"), "{timeout}: {refused}");
        }
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
            (Ending::Exited(0), None),
            (Ending::Exited(1), Some("Exit code 1.")),
            (Ending::Exited(128), Some("Exit code 128.")),
            (Ending::Exited(137), Some("Exit code 137: something in it was ended by SIGKILL.")),
            (Ending::Exited(255), Some("Exit code 255.")),
            (Ending::Signalled(15), Some("The command was ended by SIGTERM.")),
            (Ending::Signalled(40), Some("The command was ended by signal 40.")),
        ];
        for (ending, told) in cases {
            assert_eq!(describe(ending).as_deref(), told);
        }
    }
}
