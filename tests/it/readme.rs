//! What the README tells people to type works, as it stands there.

use std::{
    fs,
    process::{Command, Stdio},
};

use support::process::{Home, binary, exit_of, finished, repository};

/// The commands that a name marks in the README.
fn block(name: &str) -> String {
    let readme = fs::read_to_string(repository().join("README.md")).unwrap();
    let mark = format!("<!-- run: {name} -->\n```sh\n");
    let (_, rest) = readme.split_once(&mark).unwrap_or_else(|| panic!("no block {name}"));
    rest.split_once("```").unwrap().0.to_owned()
}

/// A shell that carries out a block, with our programs on its path.
fn shell(home: &Home, name: &str) -> Command {
    let programs = binary("agent-client").parent().unwrap().display().to_string();
    let mut command = home.command("bash");
    command
        .args(["-euo", "pipefail", "-c", &block(name)])
        .env("PATH", format!("{programs}:{}", std::env::var("PATH").unwrap()));
    command
}

fn output(home: &Home, name: &str) -> String {
    let output = finished(&mut shell(home, name));
    let (out, err) =
        (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{name}: {}\n{out}\n{err}", output.status);
    out.into_owned()
}

#[test]
fn every_block_is_carried_out_somewhere() {
    let readme = fs::read_to_string(repository().join("README.md")).unwrap();
    let gate = fs::read_to_string(repository().join(".ci/run")).unwrap();
    let here = ["terminal-1", "terminal-2", "stop", "script", "pipe", "schema"];
    for name in readme.lines().filter_map(|line| line.strip_prefix("<!-- run: ")) {
        let name = name.trim_end_matches(" -->");
        let is_in_gate = gate.lines().any(|line| {
            let names = line.strip_prefix("mold -run tests/readme.sh ");
            names.is_some_and(|names| names.split(' ').any(|word| word == name))
        });
        assert!(here.contains(&name) || is_in_gate, "nobody runs {name}");
    }
    assert_eq!(readme.matches("```sh").count(), readme.matches("<!-- run: ").count());
}

#[test]
fn two_terminals() {
    let home = Home::new();
    fs::write(home.work().join("Cargo.toml"), "[workspace]\n").unwrap();
    let mut first = shell(&home, "terminal-1").stdout(Stdio::null()).spawn().unwrap();
    home.await_count("sleep 3", 1);
    let told = output(&home, "terminal-2");
    assert_eq!(exit_of(&mut first).code(), Some(0));
    let messages = finished(&mut home.client_command(&["messages"]));
    let messages = String::from_utf8_lossy(&messages.stdout);
    for words in ["[workspace]", "all done"] {
        assert!(messages.contains(words), "{words}:\n{messages}\n{told}");
    }
    output(&home, "stop");
    support::process::eventually("the daemon's end", || home.processes().is_empty().then_some(()));
}

#[test]
fn a_script() {
    let home = Home::new();
    let told = output(&home, "script");
    let deltas: usize = told.lines().next().unwrap().parse().unwrap();
    assert!(deltas > 10, "{told}");
    assert!(told.contains("\"status\":\"idle\""), "{told}");
    home.shut_down();
}

#[test]
fn a_pipe_into_the_daemon() {
    let home = Home::new();
    let told = output(&home, "pipe");
    assert!(told.contains("\"type\":\"run_end\""), "{told}");
    assert!(told.contains("\"status\":\"idle\""), "{told}");
}

#[test]
fn the_schema() {
    let home = Home::new();
    let schema: serde_json::Value = serde_json::from_str(&output(&home, "schema")).unwrap();
    assert!(schema.is_object());
}
