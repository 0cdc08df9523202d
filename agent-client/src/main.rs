//! `agent-client`: the command line of `agent-daemon`.

fn main() -> std::process::ExitCode {
    agent_client::cli_main()
}
