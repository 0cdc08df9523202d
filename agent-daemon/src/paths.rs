//! Where the user's files are, after the XDG base directory specification.
//!
//! Owns: the default paths of configuration, socket and token, which daemon and client must agree
//! on. Never: creates anything.

use std::path::PathBuf;

use etcetera::BaseStrategy;

/// The name of our directory inside each of the user's.
const OURS: &str = "agent-daemon";

/// The user's directories.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Directories {
    /// Usually `~/.config`.
    pub config: PathBuf,
    /// Usually `~/.local/state`.
    pub state: PathBuf,
    /// Usually `/run/user/UID`; not everywhere.
    pub runtime: Option<PathBuf>,
}

/// The user has no home directory, so that there is no default path.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("there is no home directory; set HOME, or name the paths with --config and --listen")]
pub struct NoHome;

impl Directories {
    /// Those of the user who runs this process.
    ///
    /// # Errors
    /// There is no home directory.
    pub fn of_user() -> Result<Self, NoHome> {
        let strategy = etcetera::choose_base_strategy().map_err(|_| NoHome)?;
        let config = strategy.config_dir();
        let state = strategy.state_dir().unwrap_or_else(|| strategy.data_dir());
        // A variable can outlive the login that it belonged to.
        let runtime = strategy.runtime_dir().filter(|path| path.is_dir());
        Ok(Directories { config, state, runtime })
    }

    /// The configuration that is read when none is named.
    pub fn config_file(&self) -> PathBuf {
        self.config.join(OURS).join("config.toml")
    }

    /// The socket that a daemon listens on when none is named.
    pub fn socket(&self) -> PathBuf {
        self.private().join("daemon.sock")
    }

    /// The token's file when none is named.
    pub fn token(&self) -> PathBuf {
        self.private().join("token")
    }

    /// What a daemon in the background says goes here.
    pub fn log_file(&self) -> PathBuf {
        self.private().join("daemon.log")
    }

    /// Our own directory for what nobody else may see.
    fn private(&self) -> PathBuf {
        self.runtime.as_ref().unwrap_or(&self.state).join(OURS)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn socket_and_token_are_in_the_runtime_directory_or_else_under_the_state() {
        let mut directories = Directories {
            config: "/h/.config".into(),
            state: "/h/.local/state".into(),
            runtime: Some("/run/user/7".into()),
        };
        assert_eq!(directories.socket(), PathBuf::from("/run/user/7/agent-daemon/daemon.sock"));
        directories.runtime = None;
        assert_eq!(directories.token(), PathBuf::from("/h/.local/state/agent-daemon/token"));
        assert_eq!(directories.config_file(), PathBuf::from("/h/.config/agent-daemon/config.toml"));
    }
}
