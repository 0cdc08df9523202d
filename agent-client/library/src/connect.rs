//! Reaching the daemon: which address, and with which token.
//!
//! Owns: the child process of `--stdio`, and that a daemon is told nothing before it is known whose it
//! is. Never: starts one; for a connection that was lost that would be wrong, since the session that is
//! meant went with it.

use std::{
    io,
    net::SocketAddr,
    path::{Path, PathBuf},
    process::Stdio,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use agent_protocol::local::{
    paths::{Directories, NoRuntime},
    place::{PlaceError, check_directory},
    token::{Token, TokenError},
};
use futures_util::{FutureExt, StreamExt, future::BoxFuture};
use rustix::process::Pid;
use tokio::{
    net::{TcpStream, UnixStream, lookup_host},
    process::{Child, Command},
    time::{sleep, timeout},
};
use tokio_tungstenite::tungstenite::{
    self, client::IntoClientRequest, error::ProtocolError, protocol::WebSocketConfig,
};

use crate::{
    client::{CallError, Client},
    owner::{other_user_on_tcp, other_user_on_unix},
    transport::{SocketReceiver, SocketSender},
};

/// How long a daemon may take to be reached and to answer `initialize`.
const PATIENCE: Duration = Duration::from_secs(30);
/// How often a daemon is called that hangs up before it has greeted us: it was killed just now, or strangers
/// crowd its room. Nothing was asked of it by then.
const TRIES: u32 = 6;
/// How long is waited before the second try; each time twice as long.
const FIRST_PAUSE: Duration = Duration::from_millis(10);
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
pub enum Destination {
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
    endpoint: Destination,
    token_file: Option<PathBuf>,
    allow_remote: bool,
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
    #[error("{0}; --token-file names another file")]
    Token(#[from] TokenError),
    /// Somebody else can put a socket or a token of his own in its place.
    #[error(transparent)]
    Place(#[from] PlaceError),
    /// Somebody else serves there.
    #[error(
        "{address} is served by another user, uid {uid}, and was told nothing; name a daemon of \
         your own"
    )]
    Stranger {
        /// Where to.
        address: String,
        /// Who.
        uid: u32,
    },
    /// It is another machine's.
    #[error(
        "{address} is on another machine, which would be sent the token and all that is said, as \
         plain text; let `ssh -L` forward a port of 127.0.0.1 to it, or say --allow-remote"
    )]
    Remote {
        /// Where to.
        address: String,
    },
    /// The command of `--stdio` has ended, and what it held is gone.
    #[error("the command of --stdio has ended")]
    ChildEnded,
    /// Neither a default nor a name for a path.
    #[error(transparent)]
    NoRuntime(#[from] NoRuntime),
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
            _ => self.is_hang_up(),
        }
    }

    /// Whether the connection was lost before the daemon had greeted us.
    fn is_hang_up(&self) -> bool {
        matches!(self, ConnectError::Greeting { problem: CallError::Lost(_), .. })
    }
}

impl Destination {
    /// The default socket.
    ///
    /// # Errors
    /// There is no safe place for it.
    pub fn of_user() -> Result<Self, NoRuntime> {
        Ok(Destination::Unix(Directories::of_user().socket()?))
    }

    /// As it may be named to the user.
    pub fn address(&self) -> String {
        match self {
            Destination::Unix(path) => path.display().to_string(),
            Destination::Tcp(address) => format!("tcp:{address}"),
            // What follows a `?` may be a secret.
            Destination::WebSocket(url) => url.split('?').next().unwrap_or_default().to_owned(),
            Destination::Stdio(command) => format!("`{command}`"),
        }
    }
}

impl Connector {
    /// For an endpoint, and a file with the token in place of the default one.
    pub fn new(endpoint: Destination, token_file: Option<PathBuf>) -> Self {
        Connector { endpoint, token_file, allow_remote: false, child: Mutex::new(None) }
    }

    /// Whether TCP and WebSocket may lead to other machines; they may not unless this is called.
    pub fn with_allow_remote(mut self, allow_remote: bool) -> Self {
        self.allow_remote = allow_remote;
        self
    }

    /// Where the daemon is.
    pub fn endpoint(&self) -> &Destination {
        &self.endpoint
    }

    /// Connects.
    ///
    /// # Errors
    /// There is none, or it does not let us in.
    pub async fn connect(&self) -> Result<Arc<Client>, ConnectError> {
        let mut pause = FIRST_PAUSE;
        for _ in 1..TRIES {
            match self.connect_once().await {
                Err(error) if error.is_hang_up() && !self.is_child() => sleep(pause).await,
                connected => return connected,
            }
            pause *= 2;
        }
        self.connect_once().await
    }

    fn is_child(&self) -> bool {
        matches!(self.endpoint, Destination::Stdio(_))
    }

    async fn connect_once(&self) -> Result<Arc<Client>, ConnectError> {
        let address = self.endpoint.address();
        let connected = timeout(PATIENCE, self.greet()).await;
        connected.unwrap_or(Err(ConnectError::Silent { address })).map(Arc::new)
    }

    /// For a connection that was lost.
    pub fn dial(self: &Arc<Self>) -> Dial {
        let connector = self.clone();
        Arc::new(move || {
            let connector = connector.clone();
            async move {
                match connector.endpoint {
                    Destination::Stdio(_) => Err(ConnectError::ChildEnded),
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
            Destination::Unix(path) => {
                let stream = unix(path).await?;
                let process = process_of(&stream);
                let (reader, writer) = stream.into_split();
                let client = Client::over(reader, writer, None).await;
                client.map(|client| client.of_process(process))
            }
            Destination::Tcp(to) => {
                let (reader, writer) = self.tcp(to).await?.into_split();
                let token = self.token()?;
                Client::over(reader, writer, Some(token)).await
            }
            Destination::WebSocket(url) => {
                let (sink, stream) = self.web_socket(url).await?.split();
                let token = self.token()?;
                Client::greet(SocketSender(sink), SocketReceiver(stream), Some(token)).await
            }
            Destination::Stdio(command) => {
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
            None => {
                let path = Directories::of_user().token()?;
                check_place(&path)?;
                path
            }
        };
        Ok(Token::existing(&path)?.secret().to_owned())
    }

    async fn tcp(&self, to: &str) -> Result<TcpStream, ConnectError> {
        let address = format!("tcp:{to}");
        let unreachable = |problem: io::Error| unreachable_at(&address, problem);
        let mut addresses: Vec<SocketAddr> = lookup_host(to).await.map_err(unreachable)?.collect();
        if !self.allow_remote {
            addresses.retain(is_this_machine);
            if addresses.is_empty() {
                return Err(ConnectError::Remote { address });
            }
        }
        // The very addresses that were looked at: a name may mean another one a moment later.
        let stream = TcpStream::connect(&addresses[..]).await.map_err(unreachable)?;
        if let Some(uid) = other_user_on_tcp(&stream).map_err(unreachable)? {
            return Err(ConnectError::Stranger { address, uid });
        }
        // A message is written whole; waiting for more to go with it only costs time.
        stream.set_nodelay(true).map_err(unreachable)?;
        Ok(stream)
    }

    async fn web_socket(
        &self,
        url: &str,
    ) -> Result<tokio_tungstenite::WebSocketStream<TcpStream>, ConnectError> {
        let request = url.into_client_request().map_err(|problem| unreachable_at(url, problem))?;
        let uri = request.uri();
        let (Some("ws"), Some(host)) = (uri.scheme_str(), uri.host()) else {
            return Err(unreachable_at(url, "the address has to be ws://HOST:PORT"));
        };
        let stream = self.tcp(&format!("{host}:{}", uri.port_u16().unwrap_or(80))).await?;
        let limits = WebSocketConfig::default()
            .max_message_size(Some(MAX_MESSAGE_BYTES))
            .max_frame_size(Some(MAX_MESSAGE_BYTES));
        let opened =
            tokio_tungstenite::client_async_with_config(request, stream, Some(limits)).await;
        opened.map(|(socket, _)| socket).map_err(|problem| match problem {
            tungstenite::Error::Http(answer) => {
                unreachable_at(url, format!("the answer is HTTP {}", answer.status()))
            }
            tungstenite::Error::Io(_)
            | tungstenite::Error::Protocol(ProtocolError::HandshakeIncomplete) => {
                let (address, problem) = (self.endpoint.address(), problem.to_string());
                ConnectError::Greeting { address, problem: CallError::Lost(problem) }
            }
            other => unreachable_at(url, other),
        })
    }
}

/// Looks at the way to a file that may not be there yet.
fn check_place(path: &Path) -> Result<(), PlaceError> {
    match check_directory(path.parent().unwrap_or(Path::new("/"))) {
        Err(error) if error.is_absence() => Ok(()),
        checked => checked,
    }
}

async fn unix(path: &Path) -> Result<UnixStream, ConnectError> {
    let address = path.display().to_string();
    check_place(path)?;
    let stream = match UnixStream::connect(path).await {
        Ok(stream) => stream,
        Err(problem) => return Err(no_socket(address, problem)),
    };
    let user = other_user_on_unix(&stream).map_err(|problem| unreachable_at(&address, problem))?;
    match user {
        Some(uid) => Err(ConnectError::Stranger { address, uid }),
        None => Ok(stream),
    }
}

/// The process that serves the socket, where it is one that we can see.
fn process_of(stream: &UnixStream) -> Option<Pid> {
    stream.peer_cred().ok()?.pid().and_then(Pid::from_raw)
}

fn no_socket(path: String, problem: io::Error) -> ConnectError {
    match problem.kind() {
        io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused => {
            ConnectError::NoDaemon { path, problem }
        }
        _ => unreachable_at(&path, problem),
    }
}

/// Whether what is sent there stays on this machine. An unspecified address means it, too.
fn is_this_machine(address: &SocketAddr) -> bool {
    let ip = address.ip().to_canonical();
    ip.is_loopback() || ip.is_unspecified()
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
