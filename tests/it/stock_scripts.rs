//! Five clients that we did not write tell the same story (`tests/stock`).

use std::{path::Path, process::Command};

use expect_test::{Expect, expect};
use serde_json::json;
use support::process::{
    Daemon, Home, binary, finished, needed, node_modules, program, python, repository,
};

pub(crate) const NODE: &[&str] = &["vscode-jsonrpc@8.2.1"];
const PYTHON: &[&str] = &["pygls==2.1.1", "python-lsp-jsonrpc==1.1.2"];

/// What everybody sees, whatever the library: one run with one tool, and four refusals.
fn expected() -> Expect {
    expect![[r#"
        initialize: agent-daemon 1
        prompt: started 1
        prompt: 1001 busy 1
        nonsense: -32601 methodNotFound
        steer: -32602 invalidParams expectedRunID
        waitForIdle: idle stop
        getState: idle user assistant toolResult assistant
        result: hello 你好 🦀
        events: run_start turn_start message_start text_delta tool_call_delta message_end tool_start tool_end message_end turn_end turn_start message_start text_delta message_end turn_end run_end
        gaps: 0
        shutdown: null
        exit: 0
    "#]]
}

/// The story of a script that starts `agent-daemon --stdio` itself.
fn check(command: &mut Command) {
    let output = finished(command);
    let (stdout, stderr) =
        (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{}\n{stdout}\n{stderr}", output.status);
    expected().assert_eq(&stdout);
}

pub(crate) fn script(name: &str) -> std::path::PathBuf {
    repository().join("tests/stock").join(name)
}

pub(crate) fn daemon() -> [String; 2] {
    [binary("agent-daemon").display().to_string(), "--stdio".to_owned()]
}

fn node(home: &Home, modules: &Path) -> Command {
    let mut command = home.command("node");
    command.env("NODE_PATH", modules).arg(script("vscode.js"));
    command
}

#[test]
fn vscode_jsonrpc_over_stdio() {
    let Some(modules) = needed("vscode-jsonrpc", node_modules(NODE)) else { return };
    let home = Home::new();
    check(node(&home, &modules).arg("stdio").args(daemon()));
}

#[test]
fn vscode_jsonrpc_over_the_unix_socket() {
    let Some(modules) = needed("vscode-jsonrpc", node_modules(NODE)) else { return };
    let home = Home::new();
    let mut daemon: Daemon = home.daemon();
    let output = finished(node(&home, &modules).arg("unix").arg(home.socket()));
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{stderr}\n{}", daemon.said());
    // There the end of the connection is all that it can see.
    let story = String::from_utf8_lossy(&output.stdout).replace("exit: closed", "exit: 0");
    expected().assert_eq(&story);
    assert_eq!(daemon.exit().code(), Some(0));
}

#[test]
fn pygls_over_stdio() {
    let Some(python) = needed("pygls", python(PYTHON)) else { return };
    let home = Home::new();
    check(home.command(python).arg(script("pygls_client.py")).args(daemon()));
}

#[test]
fn python_lsp_jsonrpc_over_stdio() {
    let Some(python) = needed("python-lsp-jsonrpc", python(PYTHON)) else { return };
    let home = Home::new();
    check(home.command(python).arg(script("lsp_jsonrpc.py")).args(daemon()));
}

#[test]
fn neovim_over_stdio() {
    let Some(neovim) = needed("Neovim", program("nvim")) else { return };
    let home = Home::new();
    let load = format!("luafile {}", script("neovim.lua").display());
    let mut command = home.command(neovim);
    command.args(["--headless", "--clean", "-c", &load]).env("DAEMON", json!(daemon()).to_string());
    check(&mut command);
}

#[test]
fn emacs_over_stdio() {
    let Some(emacs) = needed("Emacs", program("emacs")) else { return };
    let home = Home::new();
    let mut command = home.command(emacs);
    command.args(["--batch", "--quick", "--load"]).arg(script("emacs.el")).args(daemon());
    check(&mut command);
}
