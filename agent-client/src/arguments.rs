//! The command line.
//!
//! Owns: the names and meanings of commands and options. Never: does anything about them, or
//! suggests a command that loses something to someone who meant another.

use std::{ffi::OsString, path::PathBuf};

use agent_protocol::{MessagesWanted, NoRun, OnBusy};
use clap::{
    Args, Parser, Subcommand, ValueEnum,
    error::{ContextKind, ContextValue, ErrorKind},
};

/// Talks to an agent that many clients can share. Without --session it is the one of the current
/// directory, which the first prompt makes; looking at it makes nothing.
#[derive(Debug, Parser)]
#[command(name = "agent-client", version, after_help = EXIT_STATUSES)]
pub struct Arguments {
    #[command(flatten)]
    pub connection: ConnectionArguments,
    /// The session, in place of the current directory's
    #[arg(long, global = true, value_name = "ID", help_heading = "Session and output")]
    pub session: Option<String>,
    /// Print exactly what the daemon sends, one JSON text per line
    #[arg(long, global = true, help_heading = "Session and output")]
    pub json: bool,
    #[command(subcommand)]
    pub command: Command,
}

const EXIT_STATUSES: &str = "\
Exit status: 0 done, or the run ended by itself; 10 the run failed, 11 it was aborted, 12 it came to \
a limit; 13 busy, 14 not running; 124 time-out; 1 refused, 2 usage, 3 no daemon.";

/// Where the daemon is. Without any of these it is at the user's default socket, and started there
/// when it does not run.
#[derive(Debug, Args)]
#[command(next_help_heading = "Connection")]
pub struct ConnectionArguments {
    /// The Unix socket of a daemon, which is started there when it does not run
    #[arg(long, global = true, value_name = "PATH", env = "AGENT_DAEMON_SOCKET")]
    pub socket: Option<PathBuf>,
    /// The address of a daemon on TCP
    #[arg(long, global = true, value_name = "HOST:PORT", conflicts_with_all = ["ws", "stdio"])]
    pub tcp: Option<String>,
    /// The address of a daemon on WebSocket, ws://HOST:PORT
    #[arg(long, global = true, value_name = "URL", conflicts_with = "stdio")]
    pub ws: Option<String>,
    /// A shell's command line that speaks the protocol on its stdin and stdout
    #[arg(long, global = true, value_name = "CMD")]
    pub stdio: Option<String>,
    /// The file with the token for --tcp and --ws
    #[arg(long, global = true, value_name = "FILE")]
    pub token_file: Option<PathBuf>,
    /// Let --tcp and --ws lead to other machines, which are sent the token and all that is said
    #[arg(long, global = true)]
    pub allow_remote: bool,
    /// Do not start a daemon when there is none
    #[arg(long, global = true)]
    pub no_start: bool,
}

#[derive(Debug, Subcommand)]
pub enum Command {
    /// Send a prompt, show the answer as it comes, and wait for its end; Ctrl-C aborts the run
    Prompt(PromptArguments),
    /// Say something that the run takes in before its next model request
    Steer(QueueArguments),
    /// Say what is to be done when the run would otherwise stop
    #[command(alias = "followUp")]
    FollowUp(QueueArguments),
    /// End the active run
    Abort {
        /// Only this run
        #[arg(long, value_name = "N")]
        run: Option<u64>,
    },
    /// Wait until the agent is idle
    #[command(alias = "waitForIdle")]
    WaitForIdle {
        /// Only until this run has settled
        #[arg(long, value_name = "N")]
        run: Option<u64>,
        /// At most so many seconds
        #[arg(long, value_name = "S", value_parser = seconds)]
        timeout: Option<u64>,
    },
    /// Show what the agent is doing
    State {
        /// How much of the transcript --json has
        #[arg(long, value_enum, default_value_t = Wanted::Tail)]
        messages: Wanted,
    },
    /// Show the transcript
    Messages {
        /// From this message on, counted from 0
        #[arg(long, value_name = "N", conflicts_with = "last")]
        from: Option<usize>,
        /// Only the newest
        #[arg(long, value_name = "N")]
        last: Option<usize>,
    },
    /// Follow what happens, until interrupted; where there is no session yet, wait for one
    Events {
        /// Begin after this event, as far as it is still held
        #[arg(long, value_name = "SEQ")]
        from: Option<u64>,
    },
    /// A live view of the session with an input line
    Attach,
    /// List the sessions
    Sessions,
    /// Make a session, and print its id
    New {
        /// Its id, in place of one made up
        id: Option<String>,
        /// Its directory, in place of the current one
        #[arg(long, value_name = "DIR")]
        cwd: Option<PathBuf>,
        /// Its model
        #[arg(long, value_name = "PROVIDER/ID")]
        model: Option<String>,
    },
    /// Close the session; its run is aborted
    Close,
    /// List the models
    Models,
    /// Show the settings, or change some
    Config {
        /// What to change, such as model=offline/demo or steeringMode=all
        #[arg(value_name = "KEY=VALUE")]
        settings: Vec<String>,
    },
    /// Empty the transcript
    Reset,
    /// Call any method of the protocol, and print its result
    Call {
        /// Its name
        method: String,
        /// Its params, a JSON object; `-` reads them from stdin
        params: Option<String>,
    },
    /// End the daemon, with all its sessions
    Shutdown,
}

/// What the user says.
#[derive(Debug, Args)]
pub struct InputArguments {
    /// What to say; what is piped in follows it. `-` alone is what is piped in, however long that
    /// takes
    #[arg(value_name = "TEXT")]
    pub text: Vec<String>,
    /// A picture to go with it (PNG, JPEG, GIF or WebP); can be given several times
    #[arg(long, value_name = "FILE")]
    pub image: Vec<PathBuf>,
}

#[derive(Debug, Args)]
pub struct PromptArguments {
    #[command(flatten)]
    pub input: InputArguments,
    /// The session's model from now on, as PROVIDER/ID; see `agent-client models`
    #[arg(long, value_name = "PROVIDER/ID")]
    pub model: Option<String>,
    /// Print the run's number and return
    #[arg(long)]
    pub detach: bool,
    /// What to do with it while a run is active
    #[arg(long, value_enum, default_value_t = BusyArgument::Reject)]
    pub on_busy: BusyArgument,
}

#[derive(Debug, Args)]
pub struct QueueArguments {
    #[command(flatten)]
    pub input: InputArguments,
    /// Only if this run is the active one
    #[arg(long, value_name = "N")]
    pub run: Option<u64>,
    /// What to do with it when no run is active [default: the session's setting]
    #[arg(long, value_enum)]
    pub when_idle: Option<IdleArgument>,
}

/// See [`OnBusy`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum BusyArgument {
    Reject,
    Steer,
    #[value(name = "followUp", alias = "follow-up")]
    FollowUp,
}

/// See [`NoRun`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum IdleArgument {
    Reject,
    Hold,
    Prompt,
}

/// See [`MessagesWanted`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Wanted {
    None,
    Tail,
    All,
}

impl From<BusyArgument> for OnBusy {
    fn from(busy: BusyArgument) -> Self {
        match busy {
            BusyArgument::Reject => OnBusy::Reject,
            BusyArgument::Steer => OnBusy::Steer,
            BusyArgument::FollowUp => OnBusy::FollowUp,
        }
    }
}

impl From<IdleArgument> for NoRun {
    fn from(idle: IdleArgument) -> Self {
        match idle {
            IdleArgument::Reject => NoRun::Reject,
            IdleArgument::Hold => NoRun::Hold,
            IdleArgument::Prompt => NoRun::Prompt,
        }
    }
}

impl From<Wanted> for MessagesWanted {
    fn from(wanted: Wanted) -> Self {
        match wanted {
            Wanted::None => MessagesWanted::None,
            Wanted::Tail => MessagesWanted::Tail,
            Wanted::All => MessagesWanted::All,
        }
    }
}

/// The commands after which something is gone: a run, a session, a transcript, a daemon.
const LOSING: &[&str] = &["abort", "close", "reset", "shutdown"];

/// Reads a command line, the program's name first.
///
/// # Errors
/// It makes no sense, or asks for help.
pub fn parse(
    line: impl IntoIterator<Item = impl Into<OsString> + Clone>,
) -> Result<Arguments, clap::Error> {
    Arguments::try_parse_from(line).map_err(without_dangerous_tips)
}

/// A tip is typed without much thought, so it must not cost anything.
fn without_dangerous_tips(mut error: clap::Error) -> clap::Error {
    if error.kind() != ErrorKind::InvalidSubcommand {
        return error;
    }
    let mut tips = match error.remove(ContextKind::SuggestedSubcommand) {
        Some(ContextValue::Strings(tips)) => tips,
        Some(ContextValue::String(tip)) => vec![tip],
        _ => Vec::new(),
    };
    let had_tips = !tips.is_empty();
    tips.retain(|tip| !LOSING.contains(&tip.as_str()));
    if !tips.is_empty() {
        error.insert(ContextKind::SuggestedSubcommand, ContextValue::Strings(tips));
    } else if had_tips {
        // What clap says of its own accord in this place speaks of the tip that is gone.
        error.remove(ContextKind::Suggested);
    }
    error
}

/// Seconds, with a fraction if need be, as milliseconds.
fn seconds(text: &str) -> Result<u64, String> {
    let seconds: f64 = text.parse().map_err(|_| "expected a number of seconds".to_owned())?;
    if !(0.0..=1e9).contains(&seconds) {
        return Err("expected seconds between 0 and 1000000000".to_owned());
    }
    Ok((seconds * 1000.0).round() as u64)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use clap::CommandFactory;

    use super::*;

    fn parse(line: &str) -> Result<Arguments, clap::Error> {
        super::parse(["agent-client"].into_iter().chain(line.split_whitespace()))
    }

    #[test]
    fn the_definition_is_sound() {
        Arguments::command().debug_assert();
    }

    #[test]
    fn commands_go_by_the_wire_s_names_too() {
        for (line, expected) in [
            ("followUp x", "FollowUp"),
            ("follow-up x", "FollowUp"),
            ("waitForIdle", "WaitForIdle"),
            ("wait-for-idle --run 3 --timeout 0.5", "WaitForIdle"),
        ] {
            let command = format!("{:?}", parse(line).unwrap().command);
            assert!(command.starts_with(expected), "{line}: {command}");
        }
    }

    #[test]
    fn options_of_the_connection_stand_before_or_after_the_command() {
        for line in ["--tcp h:1 --session s --json state", "state --json --tcp h:1 --session s"] {
            let arguments = parse(line).unwrap();
            assert_eq!(arguments.connection.tcp.as_deref(), Some("h:1"));
            assert_eq!(arguments.session.as_deref(), Some("s"));
            assert!(arguments.json);
        }
    }

    #[test]
    fn a_line_that_makes_no_sense_is_a_usage_error() {
        for line in [
            "",
            "frobnicate",
            "--tcp h:1 --ws ws://h:1 state",
            "--ws ws://h:1 --stdio x state",
            "wait-for-idle --timeout soon",
            "wait-for-idle --timeout -1",
            "wait-for-idle --timeout NaN",
            "prompt --on-busy maybe x",
            "messages --from 1 --last 2",
        ] {
            assert_eq!(parse(line).map(|_| ()).unwrap_err().exit_code(), 2, "{line}");
        }
    }

    #[test]
    fn what_loses_something_is_a_command_and_never_a_tip() {
        let command = Arguments::command();
        for name in LOSING {
            assert!(command.find_subcommand(name).is_some(), "{name}");
            for wrong in [&name[1..], &name[..name.len() - 1], &format!("{name}s")] {
                let said = parse(wrong).map(|_| ()).unwrap_err().to_string();
                assert!(!said.contains(&format!("'{name}'")), "{said}");
            }
        }
        let said = parse("promt").map(|_| ()).unwrap_err().to_string();
        assert!(said.contains("'prompt'"), "{said}");
    }

    #[test]
    fn seconds_have_fractions() {
        assert_eq!(seconds("1.5"), Ok(1500));
        assert_eq!(seconds("0"), Ok(0));
    }
}
