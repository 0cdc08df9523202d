//! The daemon's configuration: flags over environment over file.
//!
//! Owns: where each setting comes from, and errors that name it.
//! Never: reads the process's environment itself, so that tests need not change it.

use std::{
    io,
    path::{Path, PathBuf},
};

use agent_protocol::local::paths::Directories;
use clap::Args;

use crate::{
    events::policy::SlowReaderPolicy,
    system::logging::{LogFormat, LogSettings},
    transport::endpoint::Endpoint,
};

mod error;
mod file;

pub use error::ConfigError;
pub use file::{LimitsTable, RetryTable, SessionTable, Settings, WebSocketTable};

/// The settings of the command line.
#[derive(Args, Clone, Debug, Default)]
pub struct Flags {
    /// The configuration file
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// The model of new sessions
    #[arg(long, value_name = "PROVIDER/ID")]
    pub model: Option<String>,
    /// The directory of the default session
    #[arg(long, value_name = "DIR")]
    pub cwd: Option<PathBuf>,
    /// Speak on stdin and stdout
    #[arg(long)]
    pub stdio: bool,
    /// Listen on unix:PATH, tcp:ADDRESS:PORT or ws:ADDRESS:PORT; can be given several times
    #[arg(long, value_name = "ENDPOINT")]
    pub listen: Vec<Endpoint>,
    /// Let tcp: and ws: listen where other machines can reach them
    #[arg(long)]
    pub allow_remote: bool,
    /// Where the token for tcp: and ws: is kept
    #[arg(long, value_name = "FILE")]
    pub token_file: Option<PathBuf>,
    /// error, warn, info, debug or trace
    #[arg(long, value_name = "LEVEL")]
    pub log_level: Option<String>,
    /// Write the log to FILE in place of stderr; when it is full it becomes FILE.old
    #[arg(long, value_name = "FILE")]
    pub log_file: Option<PathBuf>,
    /// The shape of the log
    #[arg(long, value_name = "FORMAT", default_value = "text")]
    pub log_format: LogFormat,
}

/// What the settings depend on besides flags and file.
pub struct Surroundings<'a> {
    /// The environment.
    pub variable: &'a dyn Fn(&str) -> Option<String>,
    /// The user's directories.
    pub directories: Directories,
    /// Where the process was started.
    pub current_dir: PathBuf,
}

/// All settings of one daemon.
#[derive(Clone, Debug, PartialEq)]
pub struct Configuration {
    /// What the file says, with the model of whoever has said more.
    pub settings: Settings,
    /// The directory of the default session; absolute, without symlinks.
    pub cwd: PathBuf,
    /// Whether to speak on stdin and stdout.
    pub stdio: bool,
    /// Where to listen.
    pub listen: Vec<Endpoint>,
    /// Whether other machines may be let in.
    pub allow_remote: bool,
    /// The user's cache directory, if there is one.
    pub cache: Option<PathBuf>,
    /// What becomes of readers that are slower than the agent.
    pub slow_readers: SlowReaderPolicy,
    /// The token's file; none when nothing that is listened on needs it.
    pub token_file: Option<PathBuf>,
    /// What is logged.
    pub log: LogSettings,
}

impl Configuration {
    /// Gathers the settings.
    ///
    /// # Errors
    /// The first setting that cannot be used.
    pub fn load(flags: Flags, around: &Surroundings<'_>) -> Result<Self, ConfigError> {
        let variable = |name: &str| (around.variable)(name).filter(|value| !value.is_empty());
        let mut settings = read_file(flags.config, around, &variable)?;
        let model = flags.model.or_else(|| variable("AGENT_DAEMON_MODEL"));
        settings.model = model.or(settings.model);
        let log = log_settings(flags.log_level, flags.log_format, &variable)?
            .with_file(flags.log_file.map(|path| around.current_dir.join(path)));
        let cwd = directory(flags.cwd.as_deref().unwrap_or(Path::new(".")), &around.current_dir)?;
        let listen = endpoints(flags.listen, flags.stdio, around, &variable)?;
        Ok(Configuration {
            settings,
            cwd,
            stdio: flags.stdio,
            allow_remote: flags.allow_remote,
            slow_readers: SlowReaderPolicy::default(),
            cache: around.directories.cache.clone(),
            token_file: token_file(flags.token_file, &listen, around)?,
            listen,
            log,
        })
    }
}

fn log_settings(
    flag: Option<String>,
    format: LogFormat,
    variable: &dyn Fn(&str) -> Option<String>,
) -> Result<LogSettings, ConfigError> {
    let (setting, level) = match (flag, variable("AGENT_DAEMON_LOG")) {
        (Some(level), _) => ("--log-level", level),
        (None, Some(level)) => ("AGENT_DAEMON_LOG", level),
        (None, None) => ("the default", "info".to_owned()),
    };
    let refused = |problem| ConfigError::Setting { setting: setting.to_owned(), problem };
    LogSettings::new(&level, format).map_err(refused)
}

fn read_file(
    flag: Option<PathBuf>,
    around: &Surroundings<'_>,
    variable: &dyn Fn(&str) -> Option<String>,
) -> Result<Settings, ConfigError> {
    let named = flag.or_else(|| variable("AGENT_DAEMON_CONFIG").map(PathBuf::from));
    let is_named = named.is_some();
    let default = || around.directories.config_file();
    let Some(path) = named.map(|path| around.current_dir.join(path)).or_else(default) else {
        return Ok(Settings::default());
    };
    match std::fs::read_to_string(&path) {
        Ok(text) => file::parse(&path, &text),
        Err(error) if error.kind() == io::ErrorKind::NotFound && !is_named => {
            Ok(Settings::default())
        }
        Err(error) => Err(ConfigError::Unreadable { file: path, error }),
    }
}

fn directory(path: &Path, current_dir: &Path) -> Result<PathBuf, ConfigError> {
    let refused = |problem: String| ConfigError::Setting { setting: "--cwd".to_owned(), problem };
    let path = current_dir.join(path);
    let found = path
        .canonicalize()
        .map_err(|error| refused(format!("{} is not usable: {error}", path.display())))?;
    match found.is_dir() {
        true => Ok(found),
        false => Err(refused(format!("{} is not a directory", found.display()))),
    }
}

fn endpoints(
    listen: Vec<Endpoint>,
    stdio: bool,
    around: &Surroundings<'_>,
    variable: &dyn Fn(&str) -> Option<String>,
) -> Result<Vec<Endpoint>, ConfigError> {
    // With --stdio the parent is the client; a socket that nobody asked for would only be in the
    // way of the daemon that everybody else uses.
    if stdio || !listen.is_empty() {
        let listen = listen.into_iter().map(|endpoint| absolute(endpoint, "--listen", around));
        return listen.collect();
    }
    let socket = match variable("AGENT_DAEMON_SOCKET") {
        Some(path) => PathBuf::from(path),
        None => around.directories.socket()?,
    };
    Ok(vec![absolute(Endpoint::unix(socket), "AGENT_DAEMON_SOCKET", around)?])
}

fn absolute(
    endpoint: Endpoint,
    setting: &str,
    around: &Surroundings<'_>,
) -> Result<Endpoint, ConfigError> {
    endpoint.within(&around.current_dir).map_err(|error| ConfigError::Setting {
        setting: setting.to_owned(),
        problem: error.to_string(),
    })
}

fn token_file(
    flag: Option<PathBuf>,
    listen: &[Endpoint],
    around: &Surroundings<'_>,
) -> Result<Option<PathBuf>, ConfigError> {
    if !listen.iter().any(|endpoint| endpoint.transport().needs_token) {
        return Ok(None);
    }
    match flag {
        Some(path) => Ok(Some(around.current_dir.join(path))),
        None => Ok(Some(around.directories.token()?)),
    }
}

#[cfg(test)]
mod tests;
