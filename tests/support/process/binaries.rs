//! The programs under test, built once.

use std::{
    path::{Path, PathBuf},
    process::Command,
    sync::OnceLock,
};

/// Where the repository is.
pub fn repository() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("this crate is in the repository")
}

/// The path of `agent-daemon` or `agent-client`.
pub fn binary(name: &str) -> PathBuf {
    static DIRECTORY: OnceLock<PathBuf> = OnceLock::new();
    DIRECTORY.get_or_init(build).join(name)
}

// `cargo test` builds the programs of other packages only by chance. The whole workspace is named,
// so that features come out as they did for the tests and little is left to be compiled.
fn build() -> PathBuf {
    let tests = std::env::current_exe().expect("a process knows its program");
    let directory = tests.ancestors().nth(2).expect("tests are in PROFILE/deps").to_owned();
    let profile = match directory.file_name().and_then(|name| name.to_str()) {
        Some("debug") | None => "dev",
        Some(name) => name,
    };
    let mut command = Command::new(env!("CARGO"));
    // What cargo told this process of its package; some build scripts begin anew when it changes.
    for (name, _) in std::env::vars_os() {
        let told = ["CARGO_PKG_", "CARGO_MANIFEST_", "CARGO_CRATE_NAME", "CARGO_PRIMARY_PACKAGE"];
        if name.to_str().is_some_and(|name| told.iter().any(|start| name.starts_with(start))) {
            command.env_remove(name);
        }
    }
    let output = command
        .args(["build", "--quiet", "--workspace", "--bins", "--profile", profile])
        .arg("--target-dir")
        .arg(directory.parent().expect("a profile is in the target directory"))
        .current_dir(repository())
        .output()
        .expect("cargo runs, since it runs this");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    directory
}
