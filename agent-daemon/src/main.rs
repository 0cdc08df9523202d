//! The program `agent-daemon`.

use std::process::ExitCode;

fn main() -> ExitCode {
    agent_daemon::tool::supervisor::run_if_asked();
    agent_daemon::process::cli::cli_main(std::env::args_os())
}
