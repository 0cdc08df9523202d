//! The process: what it is to be, its runtime and its exit status.

use std::process::ExitCode;

use agent_protocol::harmless::harmless_json;

use crate::{
    arguments::{self, Arguments},
    commands,
    exit::{Exit, Failure},
    output::remark,
    start::DAEMON_ARGUMENT,
};

/// Carries out what the arguments of this process ask for.
///
/// A program that wants to be what `agent-client` is calls this first in `main`: the client starts
/// the very same program again as the daemon.
pub fn cli_main() -> ExitCode {
    // First of all: the daemon that this program can be starts it once more for each command that
    // a tool runs.
    agent_daemon::tool::supervisor::run_if_asked();
    if std::env::args_os().nth(1).is_some_and(|argument| argument == DAEMON_ARGUMENT) {
        return daemon();
    }
    let arguments: Arguments = match arguments::parse(std::env::args_os()) {
        Ok(arguments) => arguments,
        Err(error) => return misused(&error),
    };
    let json = arguments.json;
    // One thread beside this one: while we write to someone who does not read, it goes on.
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
    let result = match runtime {
        Ok(runtime) => runtime.block_on(commands::run(arguments)),
        Err(error) => Err(error.into()),
    };
    let exit = result.unwrap_or_else(|failure| complain(&failure, json));
    ExitCode::from(exit as u8)
}

fn misused(error: &clap::Error) -> ExitCode {
    match error.use_stderr() {
        // It quotes the arguments, which may be names of files.
        true => remark(error.render().to_string().trim_end()),
        // Nobody is left to tell when this fails.
        false => drop(error.print()),
    }
    ExitCode::from(error.exit_code() as u8)
}

fn complain(failure: &Failure, json: bool) -> Exit {
    match failure.object() {
        _ if failure.is_quiet() => {}
        Some(object) if json => {
            let json = serde_json::to_string(object).unwrap_or_default();
            remark(&harmless_json(&json));
        }
        _ => remark(&format!("agent-client: {failure}")),
    }
    if failure.is_about_model() && !json {
        remark(
            "The daemon reads its configuration and its keys when it starts. `agent-client shutdown` \
             ends it, and all its sessions with it.",
        );
    }
    failure.exit()
}

/// Goes on as the daemon.
fn daemon() -> ExitCode {
    let arguments = std::env::args_os().skip(2);
    agent_daemon::process::cli::background_main(
        std::iter::once("agent-daemon".into()).chain(arguments),
    )
}
