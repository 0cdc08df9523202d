//! The daemon's life: from its sockets to its exit status.
//!
//! Owns: what ends the daemon, and the order of its end: no more work, runs settled, last words,
//! connections closed.
//! Never: takes longer than ten seconds to end, whatever a tool or a peer does.

use std::{io, process::ExitCode, sync::Arc, time::Duration};

use agent_protocol::local::{
    place::{PlaceError, make_private_directory},
    token::{Token, TokenError},
};
use futures_util::future::join;
use tokio::{
    io::{AsyncRead, AsyncWrite},
    signal::unix::{Signal, SignalKind, signal},
    task::JoinSet,
    time::{sleep, timeout},
};

use crate::{
    config::Configuration,
    methods,
    model::ModelCatalog,
    peer::{
        connection::{Connection, Ending},
        server::{Server, ServerLimits},
    },
    process::parent,
    sessions::{
        daemon::{Daemon, Stage},
        registry::Blueprint,
    },
    system::descriptors::{self, raise_limit},
    transport::{
        acceptor::Acceptor,
        socket::{ListenError, Rules},
        stdio::{STDIO, Stdio},
    },
};

/// How long the end of the daemon may take.
const END: Duration = Duration::from_secs(10);
/// How long a client whose shutdown was carried out may stay connected. One that hangs costs that,
/// and a second more for what it does not read.
const AFTER_SHUTDOWN: Duration = Duration::from_secs(1);

/// Why the daemon could not start.
#[derive(Debug, thiserror::Error)]
pub(super) enum StartError {
    /// The token's file cannot be used.
    #[error(transparent)]
    Token(#[from] TokenError),
    /// The token's directory cannot be used.
    #[error(transparent)]
    Place(#[from] PlaceError),
    /// A socket cannot be listened on.
    #[error(transparent)]
    Listen(#[from] ListenError),
    /// stdin, stdout or signals cannot be had.
    #[error("cannot start: {0}")]
    System(#[from] io::Error),
}

type Parent = Connection<Box<dyn AsyncRead + Send + Unpin>, Box<dyn AsyncWrite + Send + Unpin>>;

/// What ends the daemon.
#[derive(Debug)]
enum End {
    /// The connection on stdio has ended.
    Stdio(Ending),
    /// The process that `initialize` named is gone.
    ParentGone,
    /// A client's `shutdown` was accepted, and the client has left or been answered.
    Asked,
    /// The system asked.
    Signal(&'static str),
}

/// Runs a daemon to its end.
///
/// # Errors
/// It could not start.
pub(super) async fn run(
    configuration: Configuration,
    variable: &dyn Fn(&str) -> Option<String>,
) -> Result<ExitCode, StartError> {
    raise_limit();
    let mut signals = Signals::new()?;
    let catalog = ModelCatalog::new(configuration.settings.providers.clone(), variable)
        .with_idle_timeout(Duration::from_millis(
            configuration.settings.limits.model_idle_timeout_ms,
        ));
    let name = configuration.settings.model.clone().unwrap_or_else(|| catalog.default_model());
    let model = catalog.get(&name);
    if let Err(unavailable) = &model {
        configuration.log.announce(&format!(
            "{unavailable}. Prompts are refused until another is chosen: with --model, `model` in \
             the configuration file, or setConfig."
        ));
    }
    // The token first: whoever is told the address may look for it at once.
    let token = token(&configuration)?;
    let acceptors = listen(&configuration).await?;
    let stdio = if configuration.stdio { Some(Stdio::take()?) } else { None };

    let limits = ServerLimits {
        max_message_bytes: configuration.settings.limits.max_message_bytes as usize,
        slow_readers: configuration.slow_readers,
        ..ServerLimits::within(descriptors::limit())
    };
    let blueprint = Blueprint { catalog: Arc::new(catalog), model, tools: None, configuration };
    let daemon = Arc::new(Daemon::new(blueprint));
    let server = Server::new(methods::table(daemon.clone()), limits, token);
    tracing::info!(pid = std::process::id(), model = name, "started");
    let outputs = daemon.sessions.outputs().clone();
    tokio::task::spawn_blocking(move || outputs.sweep());
    let mut listening = JoinSet::new();
    for acceptor in acceptors {
        listening.spawn(acceptor.serve(server.clone()));
    }
    let mut parent = stdio.map(|Stdio { reader, writer, hangup }| {
        Connection::new(server.clone(), reader, writer, &STDIO).with_hangup(hangup)
    });

    let end = tokio::select! {
        ending = serve(parent.as_mut()) => End::Stdio(ending),
        name = signals.next() => End::Signal(name),
        () = parent_gone(&daemon) => End::ParentGone,
        () = asked(&daemon, &server) => End::Asked,
    };
    tracing::info!(?end, "ending");
    if let End::Stdio(Ending::Unreadable(problem)) = &end {
        tracing::error!("stdin cannot be read any further: {problem}");
    }
    let code = end.code();
    let ended = async {
        wind_down(&daemon, &server, parent, end).await;
        while listening.join_next().await.is_some() {}
    };
    let code = tokio::select! {
        in_time = timeout(END, ended) => {
            if in_time.is_err() {
                tracing::warn!("not everything ended in time");
            }
            code
        }
        name = signals.next() => {
            tracing::warn!(name, "ending at once");
            ExitCode::FAILURE
        }
    };
    // Who still holds the sessions by now does not let go of them.
    daemon.sessions.outputs().remove();
    Ok(code)
}

async fn listen(configuration: &Configuration) -> Result<Vec<Acceptor>, StartError> {
    let rules = Rules {
        allow_remote: configuration.allow_remote,
        allowed_origins: configuration.settings.websocket.allowed_origins.clone(),
    };
    let mut acceptors = Vec::new();
    for endpoint in &configuration.listen {
        let acceptor = endpoint.bind(&rules).await?;
        configuration.log.announce(&format!("listening on {}", acceptor.address()));
        acceptors.push(acceptor);
    }
    Ok(acceptors)
}

fn token(configuration: &Configuration) -> Result<Option<Token>, StartError> {
    let Some(path) = &configuration.token_file else { return Ok(None) };
    if let Some(directory) = path.parent() {
        make_private_directory(directory)?;
    }
    let token = Token::at(path)?;
    configuration.log.announce(&format!("the token is in {}", path.display()));
    Ok(Some(token))
}

/// Serves the parent, or nobody for ever.
async fn serve(parent: Option<&mut Parent>) -> Ending {
    match parent {
        Some(parent) => parent.serve().await,
        None => std::future::pending().await,
    }
}

async fn parent_gone(daemon: &Daemon) {
    parent::gone(daemon.parent().await).await;
}

/// Completes when a client that shut the daemon down has gone, or was on a socket and does not go.
/// A parent that stays has something in mind.
async fn asked(daemon: &Daemon, server: &Server) {
    let overdue = async {
        daemon.reached(Stage::Settled).await;
        sleep(AFTER_SHUTDOWN).await;
    };
    tokio::select! {
        () = server.left_after_shutdown() => {}
        () = overdue => {}
    }
}

/// Lets the runs settle, says the last words and closes the connections.
async fn wind_down(daemon: &Daemon, server: &Server, parent: Option<Parent>, end: End) {
    let settle = async {
        daemon.shut_down().await;
        daemon.say_goodbye(end.reason());
        server.stop();
    };
    let Some(mut parent) = parent else { return settle.await };
    match &end {
        End::Stdio(ending) => {
            settle.await;
            parent.finish(ending).await;
        }
        End::ParentGone => {
            drop(parent);
            settle.await;
        }
        // Calls that wait for the runs' ends are answered meanwhile.
        End::Asked | End::Signal(_) => {
            let (ending, ()) = join(parent.serve(), settle).await;
            parent.finish(&ending).await;
        }
    }
}

impl End {
    fn reason(&self) -> &'static str {
        match self {
            End::Stdio(Ending::Exit { .. }) => "the parent process said exit",
            End::Stdio(_) => "stdin or stdout was closed",
            End::ParentGone => "the parent process is gone",
            End::Asked => "a client shut the daemon down",
            End::Signal(name) => name,
        }
    }

    fn code(&self) -> ExitCode {
        match self {
            End::Stdio(Ending::Exit { after_shutdown: false })
            | End::Stdio(Ending::PeerGone(_))
            | End::ParentGone => ExitCode::FAILURE,
            End::Stdio(_) | End::Asked | End::Signal(_) => ExitCode::SUCCESS,
        }
    }
}

struct Signals {
    terminate: Signal,
    interrupt: Signal,
}

impl Signals {
    fn new() -> io::Result<Self> {
        Ok(Signals {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
        })
    }

    async fn next(&mut self) -> &'static str {
        tokio::select! {
            _ = self.terminate.recv() => "SIGTERM",
            _ = self.interrupt.recv() => "SIGINT",
        }
    }
}
