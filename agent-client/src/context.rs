//! What every command needs: which daemon, which session, which kind of output.
//!
//! Never: makes a session or a daemon for somebody who only reads.

use std::{fmt, path::PathBuf, sync::Arc};

use agent_client_library::{
    client::{CallError, Client},
    connect::{ConnectError, Connector, Destination, Dial},
    session::SessionChoice,
};
use agent_protocol::local::paths::check_socket_path;
use serde::{Serialize, de::DeserializeOwned};
use serde_json::value::RawValue;

use crate::{
    arguments::ConnectionArguments,
    exit::{Exit, Failure},
    output::{line, remark, write},
    start,
};

/// A session that is there, by its id, or why there is none.
pub type Existing = Result<(Arc<Client>, String), NoSession>;

/// A directory whose session nobody has made yet.
#[derive(Debug)]
pub struct NoSession {
    choice: SessionChoice,
    has_daemon: bool,
}

impl fmt::Display for NoSession {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let daemon = if self.has_daemon { "" } else { ", and no daemon is running" };
        write!(formatter, "there is no {} yet{daemon}; the first prompt makes it", self.choice)
    }
}

/// What every command needs.
pub struct Context {
    pub connector: Arc<Connector>,
    pub may_start: bool,
    session: Option<String>,
    pub json: bool,
}

impl Context {
    /// What these arguments ask for.
    pub fn new(
        connection: ConnectionArguments,
        session: Option<String>,
        json: bool,
    ) -> Result<Self, Failure> {
        let ConnectionArguments { socket, tcp, ws, stdio, token_file, allow_remote, no_start } =
            connection;
        let endpoint = match (tcp, ws, stdio, socket) {
            (Some(address), ..) => Destination::Tcp(address),
            (_, Some(url), ..) => Destination::WebSocket(url),
            (_, _, Some(command), _) => Destination::Stdio(command),
            // The daemon may have another directory than we have.
            (.., Some(path)) => Destination::Unix(socket_path(path)?),
            _ => Destination::of_user().map_err(ConnectError::from)?,
        };
        let connector = Connector::new(endpoint, token_file).with_allow_remote(allow_remote);
        let connector = Arc::new(connector);
        Ok(Context { connector, may_start: !no_start, session, json })
    }

    /// Connects, and starts a daemon where that is wanted.
    pub async fn connect(&self) -> Result<Arc<Client>, Failure> {
        match self.may_start {
            true => start::connect_or_start(&self.connector).await,
            false => self.connector.connect().await.map_err(Failure::from),
        }
    }

    /// The session that the user means.
    pub fn choice(&self) -> Result<SessionChoice, Failure> {
        match &self.session {
            Some(id) => Ok(SessionChoice::Id(id.clone())),
            None => Ok(SessionChoice::Directory(utf8(std::env::current_dir()?)?)),
        }
    }

    /// Connects, and finds the session's id, or makes the session.
    pub async fn session(&self) -> Result<(Arc<Client>, Option<String>), Failure> {
        let client = self.connect().await?;
        let id = self.choice()?.id(&client).await?;
        Ok((client, Some(id)))
    }

    /// Connects, if there is a daemon. For commands that have nothing to do without one.
    pub async fn running(&self) -> Result<Option<Arc<Client>>, Failure> {
        match self.connector.connect().await {
            // Who forbids to start one wants to know that there is none.
            Err(error) if self.may_start && error.is_absence() => Ok(None),
            connected => Ok(Some(connected?)),
        }
    }

    /// The session that the user means, if it is there. Reading it makes neither it nor a daemon.
    pub async fn existing(&self) -> Result<Existing, Failure> {
        let choice = self.choice()?;
        let Some(client) = self.running().await? else {
            return match choice {
                SessionChoice::Id(_) => {
                    Err(Failure::Lost(format!("there is no {choice}: no daemon is running")))
                }
                SessionChoice::Directory(_) => Ok(Err(NoSession { choice, has_daemon: false })),
            };
        };
        Ok(match choice.existing(&client).await? {
            Some(id) => Ok((client, id)),
            None => Err(NoSession { choice, has_daemon: true }),
        })
    }

    /// Says that there is no session to read from, beside what programs get to read.
    pub fn nothing(&self, none: &NoSession, json: Option<&str>) -> Result<Exit, Failure> {
        if let Some(json) = json.filter(|_| self.json) {
            line(json)?;
        }
        remark(&format!("agent-client: {none}"));
        Ok(Exit::Done)
    }

    /// Connects again, after the connection was lost.
    pub async fn reconnect(&self) -> Result<Arc<Client>, Failure> {
        (self.dial())().await.map_err(|error| match error {
            error if error.is_absence() => Failure::Gone("the daemon is gone".to_owned()),
            error => error.into(),
        })
    }

    /// How to connect again.
    pub fn dial(&self) -> Dial {
        self.connector.dial()
    }

    /// Calls a method and prints its result: as it came for programs, else by `show`.
    pub async fn print<T: DeserializeOwned>(
        &self,
        client: &Client,
        method: &str,
        params: &impl Serialize,
        show: impl FnOnce(T) -> String,
    ) -> Result<Exit, Failure> {
        let json: Box<RawValue> = client.call_json(method, params).await?;
        if self.json {
            line(json.get())?;
        } else {
            let result = serde_json::from_str(json.get()).map_err(|problem| {
                let (method, problem) = (method.to_owned(), problem.to_string());
                CallError::Shape { method, problem }
            })?;
            write(&show(result))?;
        }
        Ok(Exit::Done)
    }

    /// Calls a method for its effect, and says what that is beside stdout.
    pub async fn tell<T: DeserializeOwned>(
        &self,
        client: &Client,
        method: &str,
        params: &impl Serialize,
        told: impl FnOnce(T) -> String,
    ) -> Result<Exit, Failure> {
        self.print(client, method, params, |result| {
            remark(&told(result));
            String::new()
        })
        .await
    }
}

fn socket_path(path: PathBuf) -> Result<PathBuf, Failure> {
    let path = std::path::absolute(path)?;
    let checked = check_socket_path(&path);
    checked.map_err(|error| Failure::Usage(format!("--socket: {error}")))?;
    Ok(path)
}

/// A path as the wire can say it.
pub fn utf8(path: PathBuf) -> Result<String, Failure> {
    path.into_os_string().into_string().map_err(|path| {
        Failure::Usage(format!("{path:?} is not UTF-8, and the protocol can only say what is"))
    })
}
