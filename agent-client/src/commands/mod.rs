//! What the user can ask for: one short function for each command.
//!
//! Owns: what the commands have in common: which daemon, which session, which kind of output.
//! Never: anything on stdout but an answer, a result or JSON, or anywhere what a terminal would obey.

use std::{
    fmt,
    io::{self, Write},
    path::PathBuf,
    sync::Arc,
};

use agent_protocol::{
    harmless::{harmless, harmless_json},
    local::paths::check_socket_path,
};
use serde::Serialize;
use serde_json::value::RawValue;

use crate::{
    arguments::{Arguments, Command, ConnectionArguments},
    client::Client,
    connect::{Connector, Endpoint},
    exit::{Exit, Failure},
    session::SessionChoice,
};

mod call;
mod config;
mod events;
mod follow_run;
mod input;
mod interrupts;
mod prompt;
mod queue;
mod sessions;
mod shutdown;
pub(crate) mod state;
mod stdin;
mod wait;

/// A session that is there, by its id, or why there is none.
type Found = Result<(Arc<Client>, String), NoSession>;

/// A directory whose session nobody has made yet.
#[derive(Debug)]
struct NoSession {
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
pub(crate) struct Context {
    connector: Arc<Connector>,
    may_start: bool,
    session: Option<String>,
    json: bool,
}

/// Carries a command out.
///
/// # Errors
/// It could not be; the error's text is for people.
pub async fn run(arguments: Arguments) -> Result<Exit, Failure> {
    let Arguments { connection, session, json, command } = arguments;
    let context = Context::new(connection, session, json)?;
    let result = context.carry_out(command).await;
    context.connector.finish().await;
    result
}

impl Context {
    fn new(
        connection: ConnectionArguments,
        session: Option<String>,
        json: bool,
    ) -> Result<Self, Failure> {
        let ConnectionArguments { socket, tcp, ws, stdio, token_file, allow_remote, no_start } =
            connection;
        let endpoint = match (tcp, ws, stdio, socket) {
            (Some(address), ..) => Endpoint::Tcp(address),
            (_, Some(url), ..) => Endpoint::WebSocket(url),
            (_, _, Some(command), _) => Endpoint::Stdio(command),
            // The daemon may have another directory than we have.
            (.., Some(path)) => Endpoint::Unix(socket_path(path)?),
            _ => Endpoint::of_user().map_err(crate::connect::ConnectError::from)?,
        };
        let connector = Connector::new(endpoint, token_file).with_allow_remote(allow_remote);
        let connector = Arc::new(connector);
        Ok(Context { connector, may_start: !no_start, session, json })
    }

    async fn carry_out(&self, command: Command) -> Result<Exit, Failure> {
        match command {
            Command::Prompt(arguments) => prompt::prompt(self, arguments).await,
            Command::Steer(arguments) => queue::steer(self, arguments).await,
            Command::FollowUp(arguments) => queue::follow_up(self, arguments).await,
            Command::Abort { run } => queue::abort(self, run).await,
            Command::WaitForIdle { run, timeout } => wait::wait_for_idle(self, run, timeout).await,
            Command::State { messages } => state::state(self, messages).await,
            Command::Messages { from, last } => state::messages(self, from, last).await,
            Command::Events { from } => events::events(self, from).await,
            Command::Attach => crate::attach::attach(self).await,
            Command::Sessions => sessions::sessions(self).await,
            Command::New { id, cwd, model } => sessions::new(self, id, cwd, model).await,
            Command::Close => sessions::close(self).await,
            Command::Models => sessions::models(self).await,
            Command::Config { settings } => config::config(self, settings).await,
            Command::Reset => config::reset(self).await,
            Command::Call { method, params } => call::call(self, method, params).await,
            Command::Shutdown => shutdown::shutdown(self).await,
        }
    }

    /// Connects, and starts a daemon where that is wanted.
    pub(crate) async fn connect(&self) -> Result<Arc<Client>, Failure> {
        let connected = match self.may_start {
            true => self.connector.connect_or_start().await,
            false => self.connector.connect().await,
        };
        Ok(connected?)
    }

    /// The session that the user means.
    pub(crate) fn choice(&self) -> Result<SessionChoice, Failure> {
        match &self.session {
            Some(id) => Ok(SessionChoice::Id(id.clone())),
            None => Ok(SessionChoice::Directory(sessions::path(std::env::current_dir()?)?)),
        }
    }

    /// Connects, and finds the session's id, or makes the session.
    pub(crate) async fn session(&self) -> Result<(Arc<Client>, Option<String>), Failure> {
        let client = self.connect().await?;
        let id = self.choice()?.id(&client).await?;
        Ok((client, Some(id)))
    }

    /// Connects, if there is a daemon. For commands that have nothing to do without one.
    async fn running(&self) -> Result<Option<Arc<Client>>, Failure> {
        match self.connector.connect().await {
            // Who forbids to start one wants to know that there is none.
            Err(error) if self.may_start && error.is_absence() => Ok(None),
            connected => Ok(Some(connected?)),
        }
    }

    /// The session that the user means, if it is there. Reading it makes neither it nor a daemon.
    async fn existing(&self) -> Result<Found, Failure> {
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
    fn nothing(&self, none: &NoSession, json: Option<&str>) -> Result<Exit, Failure> {
        if let Some(json) = json.filter(|_| self.json) {
            line(json)?;
        }
        remark(&format!("agent-client: {none}"));
        Ok(Exit::Done)
    }

    /// Connects again, after the connection was lost.
    async fn reconnect(&self) -> Result<Arc<Client>, Failure> {
        (self.dial())().await.map_err(|error| match error {
            error if error.is_absence() => Failure::Gone("the daemon is gone".to_owned()),
            error => error.into(),
        })
    }

    /// How to connect again.
    pub(crate) fn dial(&self) -> crate::connect::Dial {
        self.connector.dial()
    }

    /// Calls a method and prints its result: as it came for programs, else by `show`.
    async fn print<T: serde::de::DeserializeOwned>(
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
                crate::client::CallError::Shape { method, problem }
            })?;
            write(&show(result))?;
        }
        Ok(Exit::Done)
    }

    /// Calls a method for its effect, and says what that is beside stdout.
    async fn tell<T: serde::de::DeserializeOwned>(
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

/// Says something beside stdout.
pub(crate) fn remark(text: &str) {
    // Whoever has closed stderr does not want to know.
    let _ = writeln!(io::stderr(), "{}", harmless(text));
}

/// Prints a JSON text as a line on stdout: the very values that were sent, though what a terminal
/// would obey is escaped. Also into a pipe, since many a pipe ends on a terminal.
fn line(json: &str) -> io::Result<()> {
    put(&format!("{}\n", harmless_json(json)))
}

/// Prints text on stdout.
fn write(text: &str) -> io::Result<()> {
    put(&harmless(text))
}

fn put(text: &str) -> io::Result<()> {
    let mut stdout = io::stdout().lock();
    stdout.write_all(text.as_bytes())?;
    stdout.flush()
}
