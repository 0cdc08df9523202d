//! Reaching the daemon: which address, with which token, and starting one where there is none.
//!
//! Owns: the child process of `--stdio`. Never: starts a second daemon for a connection that was
//! lost: the session that is meant went with the first.

use std::{
    io,
    path::{Path, PathBuf},
    process::Stdio,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use agent_daemon::paths::{Directories, NoHome};
use futures_util::{FutureExt, StreamExt, future::BoxFuture};
use tokio::{
    net::{TcpStream, UnixStream},
    process::{Child, Command},
    time::timeout,
};
use tokio_tungstenite::tungstenite::{self, client::IntoClientRequest, protocol::WebSocketConfig};

use crate::{
    client::{CallError, Client},
    start::{self, StartError},
    transport::{SocketReceiver, SocketSender},
};

/// How long a daemon may take to be reached and to answer `initialize`.
const PATIENCE: Duration = Duration::from_secs(30);
/// How long a child may take to settle its runs when we leave. The daemon gives itself 10 s.
const CHILD_PATIENCE: Duration = Duration::from_secs(12);
/// How much a daemon says on stderr.
const LOG_VARIABLE: &str = "AGENT_DAEMON_LOG";
/// As long as the longest message that is read over bytes.
const MAX_MESSAGE_BYTES: usize = 1 << 30;

/// Makes a new connection when one is lost.
pub type Dial =
    Arc<dyn Fn() -> BoxFuture<'static, Result<Arc<Client>, ConnectError>> + Send + Sync>;

/// Where a daemon is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Endpoint {
    /// A Unix socket.
    Unix(PathBuf),
    /// `HOST:PORT`.
    Tcp(String),
    /// `ws://HOST:PORT`.
    WebSocket(String),
    /// A shell's command line that speaks the protocol on its stdin and stdout.
    Stdio(String),
}

/// Knows how to reach one daemon.
pub struct Connector {
    endpoint: Endpoint,
    token_file: Option<PathBuf>,
    child: Mutex<Option<Child>>,
}

/// Why a daemon cannot be reached.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    /// Nobody listens.
    #[error(
        "no daemon listens on {path} ({problem}); start one with `agent-daemon --listen unix:{path}`, \
         or leave out --no-start"
    )]
    NoDaemon {
        /// The socket.
        path: String,
        /// What the system says.
        problem: io::Error,
    },
    /// The address does not lead to a daemon.
    #[error("cannot connect to {address}: {problem}")]
    Unreachable {
        /// Where to.
        address: String,
        /// What the system says.
        problem: String,
    },
    /// It accepted the connection and then said nothing.
    #[error("{address} does not answer; is it an agent-daemon?")]
    Silent {
        /// Where to.
        address: String,
    },
    /// It refused us, or is something else.
    #[error("{address} does not let us in: {problem}")]
    Greeting {
        /// Where to.
        address: String,
        /// Why.
        problem: CallError,
    },
    /// The token cannot be read.
    #[error(
        "cannot read the daemon's token from {path}: {problem}; --token-file names another file"
    )]
    Token {
        /// The file.
        path: String,
        /// What the system says.
        problem: io::Error,
    },
    /// The daemon could not be started.
    #[error(transparent)]
    Start(#[from] StartError),
    /// The command of `--stdio` has ended, and what it held is gone.
    #[error("the command of --stdio has ended")]
    ChildEnded,
    /// Neither a default nor a name for a path.
    #[error(transparent)]
    NoHome(#[from] NoHome),
}

impl ConnectError {
    /// Whether there is no daemon, as opposed to one that cannot be used.
    pub fn is_absence(&self) -> bool {
        matches!(self, ConnectError::NoDaemon { .. } | ConnectError::ChildEnded)
    }

    /// Whether trying again soon may help.
    pub fn is_passing(&self) -> bool {
        match self {
            ConnectError::NoDaemon { .. } | ConnectError::Unreachable { .. } => true,
            ConnectError::Greeting { problem, .. } => matches!(problem, CallError::Lost(_)),
            _ => false,
        }
    }
}

impl Endpoint {
    /// The default socket.
    ///
    /// # Errors
    /// The user has no home directory.
    pub fn of_user() -> Result<Self, NoHome> {
        Ok(Endpoint::Unix(Directories::of_user()?.socket()))
    }

    /// As it may be named to the user.
    pub fn address(&self) -> String {
        match self {
            Endpoint::Unix(path) => path.display().to_string(),
            Endpoint::Tcp(address) => format!("tcp:{address}"),
            // What follows a `?` may be a secret.
            Endpoint::WebSocket(url) => url.split('?').next().unwrap_or_default().to_owned(),
            Endpoint::Stdio(command) => format!("`{command}`"),
        }
    }
}

impl Connector {
    /// For an endpoint, and a file with the token in place of the default one.
    pub fn new(endpoint: Endpoint, token_file: Option<PathBuf>) -> Self {
        Connector { endpoint, token_file, child: Mutex::new(None) }
    }

    /// Connects, without starting a daemon.
    ///
    /// # Errors
    /// There is none, or it does not let us in.
    pub async fn connect(&self) -> Result<Arc<Client>, ConnectError> {
        let address = self.endpoint.address();
        let connected = timeout(PATIENCE, self.greet()).await;
        connected.unwrap_or(Err(ConnectError::Silent { address })).map(Arc::new)
    }

    /// Connects, and starts a daemon in the background where a Unix socket has none.
    ///
    /// # Errors
    /// As [`connect`](Connector::connect), or the daemon does not start.
    pub async fn connect_or_start(&self) -> Result<Arc<Client>, ConnectError> {
        match (self.connect().await, &self.endpoint) {
            (Err(ConnectError::NoDaemon { .. }), Endpoint::Unix(path)) => {
                start::start(path, || self.connect()).await
            }
            (connected, _) => connected,
        }
    }

    /// For a connection that was lost.
    pub fn dial(self: &Arc<Self>) -> Dial {
        let connector = self.clone();
        Arc::new(move || {
            let connector = connector.clone();
            async move {
                match connector.endpoint {
                    Endpoint::Stdio(_) => Err(ConnectError::ChildEnded),
                    _ => connector.connect().await,
                }
            }
            .boxed()
        })
    }

    /// Lets the child of `--stdio` end by itself, now that its stdin is closed. The clients have to
    /// be dropped before.
    pub async fn finish(&self) {
        let child = self.child.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(mut child) = child
            && timeout(CHILD_PATIENCE, child.wait()).await.is_err()
        {
            // It has had its time; dropping it kills what is left.
            tracing::warn!("the command of --stdio does not end");
        }
    }

    async fn greet(&self) -> Result<Client, ConnectError> {
        let address = self.endpoint.address();
        let client = match &self.endpoint {
            Endpoint::Unix(path) => {
                let (reader, writer) = unix(path).await?.into_split();
                Client::over(reader, writer, None).await
            }
            Endpoint::Tcp(to) => {
                let (reader, writer) = tcp(to).await?.into_split();
                let token = self.token()?;
                Client::over(reader, writer, Some(token)).await
            }
            Endpoint::WebSocket(url) => {
                let (sink, stream) = web_socket(url).await?.split();
                let token = self.token()?;
                Client::greet(SocketSender(sink), SocketReceiver(stream), Some(token)).await
            }
            Endpoint::Stdio(command) => {
                let mut child = spawn(command).map_err(|error| unreachable_at(&address, error))?;
                let reader = child.stdout.take().expect("its stdout is piped");
                let writer = child.stdin.take().expect("its stdin is piped");
                *self.child.lock().unwrap_or_else(PoisonError::into_inner) = Some(child);
                Client::over(reader, writer, None).await
            }
        };
        client.map_err(|problem| ConnectError::Greeting { address, problem })
    }

    fn token(&self) -> Result<String, ConnectError> {
        let path = match &self.token_file {
            Some(path) => path.clone(),
            None => Directories::of_user()?.token(),
        };
        let token = std::fs::read_to_string(&path);
        let token = token
            .map_err(|problem| ConnectError::Token { path: path.display().to_string(), problem })?;
        Ok(token.trim().to_owned())
    }
}

async fn unix(path: &Path) -> Result<UnixStream, ConnectError> {
    UnixStream::connect(path).await.map_err(|problem| {
        let address = path.display().to_string();
        match problem.kind() {
            io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused => {
                ConnectError::NoDaemon { path: address, problem }
            }
            _ => unreachable_at(&address, problem),
        }
    })
}

async fn tcp(address: &str) -> Result<TcpStream, ConnectError> {
    let stream = TcpStream::connect(address).await;
    let stream = stream.map_err(|problem| unreachable_at(&format!("tcp:{address}"), problem))?;
    // A message is written whole; waiting for more to go with it only costs time.
    stream.set_nodelay(true).map_err(|problem| unreachable_at(address, problem))?;
    Ok(stream)
}

async fn web_socket(
    url: &str,
) -> Result<tokio_tungstenite::WebSocketStream<TcpStream>, ConnectError> {
    let request = url.into_client_request().map_err(|problem| unreachable_at(url, problem))?;
    let uri = request.uri();
    let (Some("ws"), Some(host)) = (uri.scheme_str(), uri.host()) else {
        return Err(unreachable_at(url, "the address has to be ws://HOST:PORT"));
    };
    let stream = tcp(&format!("{host}:{}", uri.port_u16().unwrap_or(80))).await?;
    let limits = WebSocketConfig::default()
        .max_message_size(Some(MAX_MESSAGE_BYTES))
        .max_frame_size(Some(MAX_MESSAGE_BYTES));
    let opened = tokio_tungstenite::client_async_with_config(request, stream, Some(limits)).await;
    opened.map(|(socket, _)| socket).map_err(|problem| match problem {
        tungstenite::Error::Http(answer) => {
            unreachable_at(url, format!("the answer is HTTP {}", answer.status()))
        }
        other => unreachable_at(url, other),
    })
}

fn spawn(command: &str) -> io::Result<Child> {
    let mut shell = Command::new("sh");
    if std::env::var_os(LOG_VARIABLE).is_none() {
        // Its stderr is the user's screen.
        shell.env(LOG_VARIABLE, "warn");
    }
    shell
        .args(["-c", command])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::inherit())
        // A group of its own: Ctrl-C is for us, and we abort the run over the protocol.
        .process_group(0)
        .kill_on_drop(true)
        .spawn()
}

fn unreachable_at(address: &str, problem: impl ToString) -> ConnectError {
    ConnectError::Unreachable { address: address.to_owned(), problem: problem.to_string() }
}
