//! The clients that PROTOCOL.md offers to begin with do what they promise, as they stand there.

use std::{path::PathBuf, process::Command};

use expect_test::{Expect, expect};
use serde_json::json;
use support::process::{Home, finished, needed, node_modules, program, repository};

use crate::stock_scripts::{NODE, daemon, script};

/// Runs a client, and compares what it showed; the offline model's greeting apart.
fn check(command: &mut Command, expected: &Expect) {
    let output = finished(command);
    let shown = String::from_utf8_lossy(&output.stdout);
    let complaints = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{}\n{shown}\n{complaints}", output.status);
    let is_greeting = |line: &&str| line.starts_with("This is the built-in offline demo");
    let lines: Vec<&str> = shown.lines().filter(|line| !is_greeting(line)).collect();
    expected.assert_eq(lines.join("\n").trim());
}

fn client(name: &str) -> PathBuf {
    repository().join("agent-daemon/clients").join(name)
}

#[test]
fn the_minimal_client_shows_a_run() {
    let Some(python) = needed("Python", program("python3")) else { return };
    let home = Home::new();
    let mut command = home.command(python);
    check(
        command.arg(client("minimal.py")).arg("run echo hello 你好 🦀").args(daemon()),
        &expect![[r#"
            I will run `echo hello 你好 🦀`.
            [bash {"command": "echo hello \u4f60\u597d \ud83e\udd80"}]
            `echo hello 你好 🦀` printed: “hello 你好 🦀”.
            [stop]"#]],
    );
}

#[test]
fn the_minimal_client_says_what_was_refused() {
    let Some(python) = needed("Python", program("python3")) else { return };
    let home = Home::new();
    let mut command = home.command(python);
    let output = finished(command.arg(client("minimal.py")).arg("").args(daemon()));
    let complaints = String::from_utf8_lossy(&output.stderr);
    assert!(
        complaints.contains("\n-32602: ") || complaints.starts_with("-32602: "),
        "{complaints}"
    );
    assert_eq!(output.status.code(), Some(1));
}

#[test]
fn the_neovim_client_prompts_aborts_and_follows_up() {
    let Some(neovim) = needed("Neovim", program("nvim")) else { return };
    let home = Home::new();
    let load = format!("luafile {}", script("neovim_driver.lua").display());
    let mut command = home.command(neovim);
    command.args(["--headless", "--clean", "-c", &load]);
    command.env("CLIENT", client("neovim.lua")).env("DAEMON", json!(daemon()).to_string());
    check(
        &mut command,
        &expect![[r#"
            > run echo hello 你好 🦀

            I will run `echo hello 你好 🦀`.
            [bash {"command": "echo hello 你好 🦀"}]
            `echo hello 你好 🦀` printed: “hello 你好 🦀”.
            [stop]
            > run touch begun; sleep 1000
            I will run `touch begun; sleep 1000`.
            [bash {"command": "touch begun; sleep 1000"}]

            [aborted]
            > run echo again
            `touch begun; sleep 1000` failed: “(No output.)”. Now to “run echo again”: I will run `echo again`.
            [bash {"command": "echo again"}]
            `echo again` printed: “again”.
            [stop]"#]],
    );
}

#[test]
fn the_node_client_prompts_aborts_and_follows_up() {
    let Some(modules) = needed("vscode-jsonrpc", node_modules(NODE)) else { return };
    let home = Home::new();
    let mut command = home.command("node");
    command.env("NODE_PATH", modules).arg(script("extension_driver.js"));
    check(
        command.arg(client("extension.js")).args(daemon()),
        &expect![[r#"
            I will run `echo hello 你好 🦀`.
            [bash {"command":"echo hello 你好 🦀"}]
            `echo hello 你好 🦀` printed: “hello 你好 🦀”.
            [stop]
            I will run `touch begun; sleep 1000`.
            [bash {"command":"touch begun; sleep 1000"}]

            [aborted]
            `touch begun; sleep 1000` failed: “(No output.)”. Now to “run echo again”: I will run `echo again`.
            [bash {"command":"echo again"}]
            `echo again` printed: “again”.
            [stop]"#]],
    );
}
