//! What is wrong with a setting, and where it was said.

use std::{
    io,
    path::{Path, PathBuf},
};

use agent_protocol::local::paths::NoRuntime;

/// A setting that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// The file cannot be read.
    #[error("cannot read the configuration file {}: {error}", .file.display())]
    Unreadable {
        /// The file.
        file: PathBuf,
        /// Why.
        error: io::Error,
    },
    /// The file says something that is not understood.
    #[error("{}", in_file(.file, *.line, .key.as_deref(), .problem))]
    InFile {
        /// The file.
        file: PathBuf,
        /// From 1.
        line: Option<usize>,
        /// The key's path.
        key: Option<String>,
        /// What is wrong and what was expected.
        problem: String,
    },
    /// A flag or an environment variable has an unusable value.
    #[error("{setting}: {problem}")]
    Setting {
        /// The flag or variable.
        setting: String,
        /// What is wrong and what to do.
        problem: String,
    },
    /// A default path is needed and there is none.
    #[error(transparent)]
    NoRuntime(#[from] NoRuntime),
}

fn in_file(file: &Path, line: Option<usize>, key: Option<&str>, problem: &str) -> String {
    let line = line.map_or_else(String::new, |line| format!(":{line}"));
    let key = key.map_or_else(String::new, |key| format!("`{key}`: "));
    format!("{}{line}: {key}{problem}", file.display())
}
