//! The command line of the daemon.
//!
//! Owns: the arguments, the runtime and the exit status.
//! Never: writes to stdout, but for what was asked for there: `schema`, `--help`, `--version`.

use std::{ffi::OsString, io::Write, path::PathBuf, process::ExitCode, time::Duration};

use agent_protocol::{harmless::harmless, local::paths::Directories, schema};
use clap::{Parser, Subcommand};

use crate::{
    config::{Configuration, Flags, Surroundings},
    process::run,
    system::{
        descriptors::keep_from_children,
        memory::{give_back, give_back_at_rest},
    },
};

/// The status for a command line or configuration that cannot be used.
const UNUSABLE: u8 = 2;

/// What is left of the runtime may take so long to end; a tool's thread may never.
const LAST_TASKS: Duration = Duration::from_millis(100);

/// Lets many clients share stateful coding agents, over JSON-RPC on stdio and sockets
#[derive(Debug, Parser)]
#[command(name = "agent-daemon", version, args_conflicts_with_subcommands = true)]
struct Cli {
    #[command(flatten)]
    flags: Flags,
    #[command(subcommand)]
    command: Option<Command>,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Print the JSON Schema of the protocol
    Schema,
}

/// Where the process stays while it serves.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Place {
    /// Where it was started.
    AsStarted,
    /// In no session, and no directory that somebody may want to unmount.
    Background,
}

/// Runs the daemon, or whatever else the arguments ask for. The first argument is the program.
///
/// A program that carries the daemon inside calls this with arguments of its own choice; see also
/// [`tool::supervisor`](crate::tool::supervisor).
pub fn cli_main<I>(arguments: I) -> ExitCode
where
    I: IntoIterator,
    I::Item: Into<OsString> + Clone,
{
    main_in(Place::AsStarted, arguments)
}

/// The same for a daemon that outlives whoever started it: in a session of its own, so that no
/// terminal takes it along, and with `/` as its directory. Relative paths are those of the directory
/// in which it was started.
pub fn background_main<I>(arguments: I) -> ExitCode
where
    I: IntoIterator,
    I::Item: Into<OsString> + Clone,
{
    // Fails for the leader of a process group only, which whoever started us by hand wanted.
    let _ = rustix::process::setsid();
    main_in(Place::Background, arguments)
}

fn main_in<I>(place: Place, arguments: I) -> ExitCode
where
    I: IntoIterator,
    I::Item: Into<OsString> + Clone,
{
    match Cli::try_parse_from(arguments) {
        Ok(Cli { command: Some(Command::Schema), .. }) => print_schema(),
        Ok(Cli { flags, command: None }) => start(flags, place),
        Err(error) => {
            // Nobody is left to tell when this fails.
            let _ = match error.use_stderr() {
                // It quotes the arguments, which may be names of files.
                true => write!(std::io::stderr(), "{}", harmless(&error.render().to_string())),
                false => error.print(),
            };
            ExitCode::from(error.exit_code() as u8)
        }
    }
}

fn print_schema() -> ExitCode {
    let mut text = format!("{:#}", schema::protocol());
    text.push('\n');
    match std::io::stdout().write_all(text.as_bytes()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(_) => ExitCode::FAILURE,
    }
}

/// Keeps the user's other processes, the commands of our own tools among them, from reading our
/// environment and memory: the keys are in there. The superuser can all the same.
fn hide_memory() {
    #[cfg(target_os = "linux")]
    // Where the system refuses, the daemon is no worse off than any other process.
    let _ = rustix::process::set_dumpable_behavior(rustix::process::DumpableBehavior::NotDumpable);
}

fn start(flags: Flags, place: Place) -> ExitCode {
    give_back();
    hide_memory();
    keep_from_children();
    let variable = |name: &str| std::env::var(name).ok();
    let current_dir = match std::env::current_dir() {
        Ok(directory) => directory,
        // It has been removed; we are about to leave it.
        Err(_) if place == Place::Background => PathBuf::from("/"),
        Err(error) => return refuse(&format!("the current directory is not usable: {error}")),
    };
    let directories = Directories::of_user();
    let around = Surroundings { variable: &variable, directories, current_dir };
    let configuration = match Configuration::load(flags, &around) {
        Ok(configuration) => configuration,
        Err(error) => return refuse(&error.to_string()),
    };
    if place == Place::Background
        && let Err(error) = std::env::set_current_dir("/")
    {
        return refuse(&format!("cannot go to /: {error}"));
    }
    let _log = match configuration.log.start() {
        Ok(log) => log,
        Err(error) => return refuse(&error),
    };
    // Runs wait for models and tools, so a few threads serve many; one more than one, so that code
    // that does not yield holds up nobody's answers.
    let threads = std::thread::available_parallelism().map_or(2, |cores| cores.get().clamp(2, 4));
    let runtime = match tokio::runtime::Builder::new_multi_thread()
        .worker_threads(threads)
        .thread_name("agent-daemon")
        .enable_all()
        .build()
    {
        Ok(runtime) => runtime,
        Err(error) => return refuse(&format!("cannot start: {error}")),
    };
    runtime.spawn(give_back_at_rest());
    let code = match runtime.block_on(run::run(configuration, &variable)) {
        Ok(code) => code,
        Err(error) => refuse(&error.to_string()),
    };
    runtime.shutdown_timeout(LAST_TASKS);
    code
}

fn refuse(problem: &str) -> ExitCode {
    // Not the log: whoever starts the daemon must see it, whatever the level.
    let _ = writeln!(std::io::stderr(), "agent-daemon: {}", harmless(problem));
    ExitCode::from(UNUSABLE)
}
