//! Which session is meant.
//!
//! Owns: the rule that without a name it is the one of the current directory, and that only what
//! writes makes it. Never: makes up ids but for `new`.

use std::{
    fmt,
    hash::{BuildHasher, Hasher, RandomState},
    path::Path,
};

use agent_protocol::{
    CreateSession, CreateSessionParams, ListSessions, SessionParams, harmless::one_line,
};

use crate::client::{CallError, Client};

/// A session, as the user names it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SessionChoice {
    /// By its id.
    Id(String),
    /// By its directory, an absolute path.
    Directory(String),
}

impl SessionChoice {
    /// The session's id, for a command that writes: the session of a directory is made on first
    /// use.
    ///
    /// # Errors
    /// The daemon cannot make it.
    pub async fn id(&self, client: &Client) -> Result<String, CallError> {
        match self {
            SessionChoice::Id(id) => Ok(id.clone()),
            SessionChoice::Directory(path) => {
                let cwd = Some(path.clone());
                let params = CreateSessionParams { cwd, ..CreateSessionParams::default() };
                Ok(client.call::<CreateSession>(&params).await?.session_id)
            }
        }
    }

    /// The session's id, for a command that reads: none where a directory has no session. An id
    /// that the user names is taken at its word.
    ///
    /// # Errors
    /// The connection is lost.
    pub async fn existing(&self, client: &Client) -> Result<Option<String>, CallError> {
        let path = match self {
            SessionChoice::Id(id) => return Ok(Some(id.clone())),
            SessionChoice::Directory(path) => path,
        };
        // The daemon knows directories by their real paths, and it may see other ones than we do.
        let real = std::fs::canonicalize(path).ok();
        let is_it = |cwd: &str| cwd == path || real.as_deref() == Some(Path::new(cwd));
        let all = client.call::<ListSessions>(&SessionParams::default()).await?.sessions;
        // Oldest first, as the daemon chooses.
        Ok(all.into_iter().find(|session| is_it(&session.cwd)).map(|session| session.session_id))
    }
}

impl fmt::Display for SessionChoice {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SessionChoice::Id(id) => write!(formatter, "session {}", one_line(id)),
            SessionChoice::Directory(path) => write!(formatter, "session of {}", one_line(path)),
        }
    }
}

/// An id for a new session in a directory: its name, and something that no other has.
pub fn new_session_id(directory: &Path) -> String {
    let name = directory.file_name().map(|name| name.to_string_lossy().into_owned());
    let name: String = name
        .unwrap_or_default()
        .chars()
        .filter(|letter| letter.is_ascii_alphanumeric() || matches!(letter, '-' | '_' | '.'))
        .take(32)
        .collect();
    let name = if name.is_empty() { "session" } else { &name };
    format!("{name}-{:04x}", random() & 0xffff)
}

/// An id for a message, so that sending it twice is harmless.
pub fn new_message_id() -> String {
    format!("{:016x}{:016x}", random(), random())
}

// The standard library seeds each of these anew; nothing here needs to be unguessable.
fn random() -> u64 {
    RandomState::new().build_hasher().finish()
}
