//! Where the user's files are, after the XDG base directory specification.
//!
//! Owns: the default paths of configuration, socket, token and log, which daemon and client must
//! agree on, and how long a socket's path may be. Never: creates anything.

use std::{
    fs, io,
    os::unix::{ffi::OsStrExt, fs::MetadataExt},
    path::{Path, PathBuf},
};

use etcetera::BaseStrategy;

/// The name of our directory inside each of the user's.
const OURS: &str = "agent-daemon";
/// The socket's name in our directory.
const SOCKET: &str = "daemon.sock";

/// How many bytes the path of a socket may have.
const MAX_SOCKET_PATH: usize = if cfg!(target_os = "linux") { 107 } else { 103 };

/// The user's directories.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Directories {
    /// Usually `~/.config`; none where the user has no home.
    pub config: Option<PathBuf>,
    /// Usually `~/.local/state`; none where the user has no home.
    pub state: Option<PathBuf>,
    /// Usually `~/.cache`; none where the user has no home.
    pub cache: Option<PathBuf>,
    /// Our own directory for what nobody else may see: `agent-daemon` in `$XDG_RUNTIME_DIR`, else in
    /// `/run/user/UID`, else `/tmp/agent-daemon-UID`.
    pub runtime: Result<PathBuf, NoRuntime>,
}

/// The only place that is left for the socket is not safe.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{} cannot hold the daemon's socket: {problem}; remove it, or set XDG_RUNTIME_DIR to a directory \
     of your own, or name a socket (agent-client --socket, agent-daemon --listen)",
    path.display()
)]
pub struct NoRuntime {
    path: PathBuf,
    problem: String,
}

/// A socket's path that the system does not take.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "the path of a socket may have at most {MAX_SOCKET_PATH} bytes, and this one has {length}: {}; \
     name one in a directory near the root, such as $XDG_RUNTIME_DIR or one of your own in /tmp",
    path.display()
)]
pub struct SocketPathTooLong {
    path: PathBuf,
    length: usize,
}

/// Where runtime directories are looked for, and whose.
struct Places<'a> {
    /// `XDG_RUNTIME_DIR`.
    variable: Option<PathBuf>,
    /// The parent of those that a login makes.
    of_logins: &'a Path,
    /// Where everybody may make one.
    temporary: &'a Path,
    user: u32,
}

impl Directories {
    /// Those of the user who runs this process.
    pub fn of_user() -> Self {
        let strategy = etcetera::choose_base_strategy().ok();
        let config = strategy.as_ref().map(|user| user.config_dir());
        let state =
            strategy.as_ref().map(|user| user.state_dir().unwrap_or_else(|| user.data_dir()));
        let cache = strategy.as_ref().map(|user| user.cache_dir());
        // An empty HOME would make them relative.
        let config = config.filter(|path| path.is_absolute());
        let state = state.filter(|path| path.is_absolute());
        let cache = cache.filter(|path| path.is_absolute());
        let places = Places {
            variable: std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from),
            of_logins: Path::new("/run/user"),
            // Not TMPDIR: whoever is started otherwise must find the same.
            temporary: Path::new("/tmp"),
            user: rustix::process::geteuid().as_raw(),
        };
        Directories { config, state, cache, runtime: places.ours() }
    }

    /// The configuration that is read when none is named.
    pub fn config_file(&self) -> Option<PathBuf> {
        Some(self.config.as_ref()?.join(OURS).join("config.toml"))
    }

    /// The socket that a daemon listens on when none is named.
    ///
    /// # Errors
    /// There is no safe place for it.
    pub fn socket(&self) -> Result<PathBuf, NoRuntime> {
        Ok(self.runtime.clone()?.join(SOCKET))
    }

    /// The token's file when none is named.
    ///
    /// # Errors
    /// There is no safe place for it.
    pub fn token(&self) -> Result<PathBuf, NoRuntime> {
        Ok(self.runtime.clone()?.join("token"))
    }

    /// Where a daemon in the background may put what it says, the best place first: each socket's has
    /// a file of its own.
    pub fn log_files(&self, socket: &Path) -> Vec<PathBuf> {
        let is_default = self.socket().is_ok_and(|default| default == socket);
        let name = if is_default { "daemon.log".to_owned() } else { log_name(socket) };
        let state = self.state.as_ref().map(|state| state.join(OURS));
        state.into_iter().chain(self.runtime.clone().ok()).map(|place| place.join(&name)).collect()
    }
}

/// A name that tells sockets apart and shows which one it is: `/` is `%`, `%` is `=p`, `=` is `==`.
fn log_name(socket: &Path) -> String {
    let path = socket.to_string_lossy();
    let path = path.trim_start_matches('/').replace('=', "==").replace('%', "=p").replace('/', "%");
    format!("daemon-{path}.log")
}

/// Whether the system takes it.
///
/// # Errors
/// It is too long.
pub fn check_socket_path(path: &Path) -> Result<(), SocketPathTooLong> {
    let length = path.as_os_str().as_bytes().len();
    match length <= MAX_SOCKET_PATH {
        true => Ok(()),
        false => Err(SocketPathTooLong { path: path.to_owned(), length }),
    }
}

impl Places<'_> {
    /// Our directory in the first one that can be used. One rule for everybody whom the user starts:
    /// whether a login, cron or sudo did it, all are to find the same daemon.
    fn ours(&self) -> Result<PathBuf, NoRuntime> {
        let of_login = self.of_logins.join(self.user.to_string());
        let candidates = self.variable.iter().chain([&of_login]);
        let usable = candidates.filter(|path| self.is_usable(path)).map(|path| path.join(OURS));
        usable.into_iter().next().map_or_else(|| self.last_resort(), Ok)
    }

    /// A variable can outlive the login that it belonged to, or be another user's after `su`; and
    /// below a long path there is no room for a socket.
    fn is_usable(&self, path: &Path) -> bool {
        let is_own = |found: fs::Metadata| found.is_dir() && found.uid() == self.user;
        path.is_absolute()
            && check_socket_path(&path.join(OURS).join(SOCKET)).is_ok()
            && fs::metadata(path).is_ok_and(is_own)
    }

    /// Where everybody can write, it must not have been put there by somebody else.
    fn last_resort(&self) -> Result<PathBuf, NoRuntime> {
        let path = self.temporary.join(format!("{OURS}-{}", self.user));
        let problem = match fs::symlink_metadata(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(path),
            Err(error) => error.to_string(),
            Ok(found) if found.is_symlink() => "it is a symbolic link".to_owned(),
            Ok(found) if !found.is_dir() => "it is not a directory".to_owned(),
            Ok(found) if found.uid() != self.user => "it belongs to another user".to_owned(),
            Ok(found) if found.mode() & 0o077 != 0 => {
                format!("others can look into it (its mode is {:o}, not 700)", found.mode() & 0o777)
            }
            Ok(_) => return Ok(path),
        };
        Err(NoRuntime { path, problem })
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;

    /// A machine with places for runtime directories, and a user of its own.
    struct Machine {
        root: tempfile::TempDir,
        user: u32,
    }

    impl Machine {
        fn new() -> Self {
            Machine {
                // Not under TMPDIR, which may be long.
                root: tempfile::tempdir_in("/tmp").unwrap(),
                user: rustix::process::geteuid().as_raw(),
            }
        }

        fn path(&self, name: &str) -> PathBuf {
            self.root.path().join(name)
        }

        fn make(&self, name: &str) -> PathBuf {
            fs::create_dir_all(self.path(name)).unwrap();
            self.path(name)
        }

        fn mode(&self, name: &str, mode: u32) {
            fs::set_permissions(self.path(name), fs::Permissions::from_mode(mode)).unwrap();
        }

        /// What is found with this `XDG_RUNTIME_DIR`, as seen from the machine's root.
        fn found(&self, variable: Option<PathBuf>) -> Result<String, String> {
            let (of_logins, temporary) = (self.path("run"), self.path("tmp"));
            let places =
                Places { variable, of_logins: &of_logins, temporary: &temporary, user: self.user };
            let shown = |text: String| {
                // Not everywhere: it may be a digit of something else.
                let text = text.replace(&format!("agent-daemon-{}", self.user), "agent-daemon-UID");
                let text = text.replace(&format!("run/{}", self.user), "run/UID");
                text.replace(&format!("{}/", self.root.path().display()), "")
            };
            let found = places.ours().map(|path| shown(path.display().to_string()));
            found.map_err(|error| shown(error.to_string()))
        }
    }

    #[test]
    fn the_runtime_directory_is_the_first_that_is_ours() {
        let machine = Machine::new();
        let found = |variable: Option<PathBuf>| machine.found(variable).unwrap();
        let own = machine.make("own");
        assert_eq!(found(Some(own.clone())), "own/agent-daemon");
        assert_eq!(found(None), "tmp/agent-daemon-UID");
        machine.make(&format!("run/{}", machine.user));
        assert_eq!(found(Some(own)), "own/agent-daemon");
        for unusable in [None, Some(machine.path("gone")), Some("relative".into())] {
            assert_eq!(found(unusable.clone()), "run/UID/agent-daemon", "{unusable:?}");
        }
        let long = machine.make(&"x".repeat(100));
        assert_eq!(found(Some(long)), "run/UID/agent-daemon");
    }

    #[test]
    fn another_user_s_runtime_directory_is_not_taken() {
        let machine = Machine { user: 4_000_000_001, ..Machine::new() };
        machine.make("run/4000000001");
        let theirs = machine.make("theirs");
        assert_eq!(machine.found(Some(theirs)).unwrap(), "tmp/agent-daemon-UID");
        machine.make("tmp/agent-daemon-4000000001");
        let problem = machine.found(None).unwrap_err();
        assert!(problem.contains("agent-daemon-UID cannot hold"), "{problem}");
        assert!(problem.contains("it belongs to another user"), "{problem}");
        assert!(problem.contains("XDG_RUNTIME_DIR"), "{problem}");
    }

    #[test]
    fn the_last_resort_is_a_private_directory_and_nothing_else() {
        let machine = Machine::new();
        let name = format!("tmp/agent-daemon-{}", machine.user);
        let path = machine.make(&name);
        machine.mode(&name, 0o700);
        assert_eq!(machine.found(None).unwrap(), "tmp/agent-daemon-UID");
        machine.mode(&name, 0o750);
        assert!(machine.found(None).unwrap_err().contains("its mode is 750, not 700"));
        fs::remove_dir(&path).unwrap();
        symlink(machine.make("elsewhere"), &path).unwrap();
        assert!(machine.found(None).unwrap_err().contains("it is a symbolic link"));
        fs::remove_file(&path).unwrap();
        fs::write(&path, "").unwrap();
        assert!(machine.found(None).unwrap_err().contains("it is not a directory"));
    }

    fn directories() -> Directories {
        Directories {
            config: Some("/h/.config".into()),
            state: Some("/h/.local/state".into()),
            cache: Some("/h/.cache".into()),
            runtime: Ok("/run/user/7/agent-daemon".into()),
        }
    }

    #[test]
    fn each_socket_has_a_log_of_its_own() {
        let logs = |socket: &str| {
            let files = directories().log_files(Path::new(socket));
            files.iter().map(|file| file.display().to_string()).collect::<Vec<_>>()
        };
        assert_eq!(
            logs("/run/user/7/agent-daemon/daemon.sock"),
            ["/h/.local/state/agent-daemon/daemon.log", "/run/user/7/agent-daemon/daemon.log"]
        );
        assert_eq!(
            logs("/tmp/50%/a=b.sock")[0],
            "/h/.local/state/agent-daemon/daemon-tmp%50=p%a==b.sock.log"
        );
    }

    #[test]
    fn without_a_home_there_are_a_socket_and_a_log_all_the_same() {
        let directories = Directories { config: None, state: None, ..directories() };
        assert_eq!(directories.config_file(), None);
        let socket = directories.socket().unwrap();
        assert_eq!(
            directories.log_files(&socket),
            [PathBuf::from("/run/user/7/agent-daemon/daemon.log")]
        );
    }

    #[test]
    fn a_socket_s_path_is_measured_in_bytes() {
        let path = |length: usize| PathBuf::from(format!("/{}", "é".repeat((length - 1) / 2)));
        assert_eq!(check_socket_path(&path(MAX_SOCKET_PATH)), Ok(()));
        let problem = check_socket_path(&path(MAX_SOCKET_PATH + 2)).unwrap_err().to_string();
        let limit = format!("at most {MAX_SOCKET_PATH} bytes");
        assert!(problem.contains(&limit) && problem.contains("/tmp"), "{problem}");
    }
}
