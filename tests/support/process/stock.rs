//! Other people's programs and packages, installed by name where they are missing.

use std::{
    fs::{self, File},
    io::Write,
    path::{Path, PathBuf},
    process::Command,
};

/// What a test needs, or nothing: then it says so and passes, unless nothing may be skipped.
///
/// # Panics
/// `AGENT_TEST_NO_SKIP` is set, and it is missing.
pub fn needed<T>(test: &str, found: Result<T, String>) -> Option<T> {
    match found {
        Ok(found) => Some(found),
        Err(reason) => {
            assert!(std::env::var_os("AGENT_TEST_NO_SKIP").is_none(), "{test}: {reason}");
            // Not by a macro, whose output nobody sees of a test that passes.
            let _ = writeln!(std::io::stderr(), "skipped: {test}: {reason}");
            None
        }
    }
}

/// A program on the path.
///
/// # Errors
/// There is none.
pub fn program(name: &str) -> Result<PathBuf, String> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let found =
        std::env::split_paths(&path).map(|path| path.join(name)).find(|path| path.is_file());
    found.ok_or_else(|| format!("there is no `{name}`"))
}

/// A directory of Node modules with these packages, `NAME@VERSION` each.
///
/// # Errors
/// Node or npm is missing, or the registry.
pub fn node_modules(packages: &[&str]) -> Result<PathBuf, String> {
    program("node")?;
    let npm = program("npm")?;
    let directory = cache().join("node");
    once(&directory, packages, || {
        let mut command = Command::new(&npm);
        command.args(["install", "--no-audit", "--no-fund", "--fetch-retries=1", "--prefix"]);
        run(command.arg(&directory).args(packages))
    })?;
    Ok(directory.join("node_modules"))
}

/// A Python that has these packages, `NAME==VERSION` each.
///
/// # Errors
/// Python is missing, or a registry.
pub fn python(packages: &[&str]) -> Result<PathBuf, String> {
    let python = program("python3")?;
    let directory = cache().join("python");
    let ours = directory.join("bin/python");
    once(&directory, packages, || {
        run(Command::new(&python).args(["-m", "venv"]).arg(&directory))?;
        let mut command = Command::new(&ours);
        command.args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check"]);
        run(command.args(["--retries=1", "--only-binary=:all:"]).args(packages))
    })?;
    Ok(ours)
}

/// Where packages are kept between runs.
fn cache() -> PathBuf {
    match std::env::var_os("AGENT_TEST_CACHE") {
        Some(path) => path.into(),
        None => {
            let tests = std::env::current_exe().expect("a process knows its program");
            let target = tests.ancestors().nth(3).expect("tests are in target/PROFILE/deps");
            target.join("tmp/stock")
        }
    }
}

/// Installs once for all tests, in this process and in others.
fn once(
    directory: &Path,
    packages: &[&str],
    install: impl FnOnce() -> Result<(), String>,
) -> Result<(), String> {
    fs::create_dir_all(directory).map_err(|error| error.to_string())?;
    let lock = File::create(directory.join("lock")).map_err(|error| error.to_string())?;
    lock.lock().map_err(|error| error.to_string())?;
    let stamp = directory.join("installed");
    let wanted = packages.join(" ");
    if fs::read_to_string(&stamp).is_ok_and(|installed| installed == wanted) {
        return Ok(());
    }
    install()?;
    fs::write(&stamp, wanted).map_err(|error| error.to_string())
}

fn run(command: &mut Command) -> Result<(), String> {
    let output = command.output().map_err(|error| format!("{command:?}: {error}"))?;
    if output.status.success() {
        return Ok(());
    }
    Err(format!("{command:?}: {}", String::from_utf8_lossy(&output.stderr).trim()))
}
