//! Listening sockets, and a connection for everybody whom they let in.
//!
//! Owns: that accepting goes on whatever happens to one of them, and that no more are served than
//! there are places.
//! Never: lets a peer take part before its transport has said that it may.

use std::{io, net::SocketAddr, sync::Arc, time::Duration};

use tokio::{
    net::{TcpListener, TcpStream, UnixStream},
    sync::OwnedSemaphorePermit,
    task::JoinSet,
};

use crate::{
    peer::{
        connection::{Connection, Ending},
        server::Server,
        strangers::Seat,
        transport::Transport,
    },
    transport::{
        unix::{UnixSocket, UnixSocketError, hung_up},
        websocket::{WebSocketRules, shake_hands},
    },
};

/// How long to wait when the system has no descriptor left for a new connection.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// A socket that others can connect to.
#[derive(Debug)]
pub struct Listener {
    kind: Kind,
}

#[derive(Debug)]
enum Kind {
    Unix(UnixSocket),
    Tcp(TcpListener),
    WebSocket(TcpListener, Arc<WebSocketRules>),
}

/// A peer, with what lets it be served.
enum Accepted {
    Unix(UnixStream, OwnedSemaphorePermit),
    Tcp(TcpStream, Seat),
    WebSocket(TcpStream, Seat, Arc<WebSocketRules>),
}

/// A socket cannot be listened on.
#[derive(Debug, thiserror::Error)]
pub enum ListenError {
    /// A Unix socket.
    #[error(transparent)]
    Unix(#[from] UnixSocketError),
    /// The address is not this machine's own.
    #[error(
        "{0} can be reached from other machines; listen on 127.0.0.1 or [::1], or say \
         --allow-remote"
    )]
    Remote(SocketAddr),
    /// The system refuses.
    #[error("cannot listen on {address}: {source}")]
    Io {
        /// The address.
        address: SocketAddr,
        /// What the system said.
        source: io::Error,
    },
}

impl Listener {
    /// Listens on a Unix socket.
    pub fn unix(socket: UnixSocket) -> Self {
        Listener { kind: Kind::Unix(socket) }
    }

    /// Listens on TCP; port 0 picks one.
    ///
    /// # Errors
    /// The address is not loopback and `allow_remote` is not set, or the system refuses.
    pub async fn tcp(address: SocketAddr, allow_remote: bool) -> Result<Self, ListenError> {
        Ok(Listener { kind: Kind::Tcp(bind_tcp(address, allow_remote).await?) })
    }

    /// Listens for WebSockets; port 0 picks one.
    ///
    /// # Errors
    /// The address is not loopback and the rules do not allow others, or the system refuses.
    pub async fn web_socket(
        address: SocketAddr,
        rules: WebSocketRules,
    ) -> Result<Self, ListenError> {
        let listener = bind_tcp(address, rules.allow_remote).await?;
        Ok(Listener { kind: Kind::WebSocket(listener, Arc::new(rules)) })
    }

    /// The address as a client is to be told, as `tcp:127.0.0.1:4000`.
    pub fn address(&self) -> String {
        let of_tcp = |listener: &TcpListener| match listener.local_addr() {
            Ok(address) => address.to_string(),
            Err(error) => error.to_string(),
        };
        match &self.kind {
            Kind::Unix(socket) => format!("unix:{}", socket.path().display()),
            Kind::Tcp(listener) => format!("tcp:{}", of_tcp(listener)),
            Kind::WebSocket(listener, _) => format!("ws:{}", of_tcp(listener)),
        }
    }

    /// How its peers reach us.
    pub fn transport(&self) -> Transport {
        match self.kind {
            Kind::Unix(_) => Transport::Unix,
            Kind::Tcp(_) => Transport::Tcp,
            Kind::WebSocket(..) => Transport::WebSocket,
        }
    }

    /// Serves everybody who connects, until [`Server::stop`]; completes when the last one is gone.
    /// Dropped before, it drops them all.
    pub async fn serve(self, server: Arc<Server>) {
        let mut connections = JoinSet::new();
        let mut is_refused = false;
        loop {
            let accepted = tokio::select! {
                accepted = self.next(&server) => accepted,
                Some(_) = connections.join_next() => continue,
                () = server.stop.cancelled() => break,
            };
            match accepted {
                Ok(accepted) => {
                    is_refused = false;
                    connections.spawn(accepted.serve(server.clone()));
                    // However many wait: whoever is in already comes first.
                    tokio::task::yield_now().await;
                }
                Err(error) => {
                    // Said once, not with every attempt.
                    if !std::mem::replace(&mut is_refused, true) {
                        tracing::warn!(%error, "cannot accept a connection");
                    }
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                }
            }
        }
        // The name goes first, so that a client that comes now starts another daemon.
        drop(self);
        while connections.join_next().await.is_some() {}
    }

    /// The next peer, once there is a place for it: who is too many waits in the system's queue.
    async fn next(&self, server: &Arc<Server>) -> io::Result<Accepted> {
        let place = server.place().await;
        let listener = match &self.kind {
            Kind::Unix(socket) => return Ok(Accepted::Unix(socket.accept().await?, place)),
            Kind::Tcp(listener) | Kind::WebSocket(listener, _) => listener,
        };
        // A stranger takes none; that there is one lets it hope.
        drop(place);
        let door = server.strangers.door().await;
        let (stream, _) = listener.accept().await?;
        let seat = server.strangers.enter(&stream, door);
        Ok(match &self.kind {
            Kind::WebSocket(_, rules) => Accepted::WebSocket(stream, seat, rules.clone()),
            _ => Accepted::Tcp(stream, seat),
        })
    }
}

impl Accepted {
    async fn serve(self, server: Arc<Server>) {
        match self {
            Accepted::Unix(stream, _place) => serve_unix(server, stream).await,
            Accepted::Tcp(stream, seat) => serve_tcp(server, stream, seat, Transport::Tcp).await,
            Accepted::WebSocket(stream, seat, rules) => {
                let shaken = tokio::select! {
                    shaken = shake_hands(stream, &rules) => shaken,
                    () = seat.over() => return,
                    () = server.stop.cancelled() => return,
                };
                match shaken {
                    Ok(stream) => serve_tcp(server, stream, seat, Transport::WebSocket).await,
                    Err(error) => {
                        tracing::debug!(%error, "turned a WebSocket client away");
                        server.strangers.note("a WebSocket that may not shake hands");
                    }
                }
            }
        }
    }
}

async fn serve_tcp(server: Arc<Server>, stream: TcpStream, seat: Seat, transport: Transport) {
    // Answers are small and each is waited for.
    let _ = stream.set_nodelay(true);
    let (reader, writer) = stream.into_split();
    let mut connection = Connection::new(server, reader, writer, transport).with_seat(seat);
    let ending = connection.serve().await;
    connection.finish(&ending).await;
}

async fn serve_unix(server: Arc<Server>, stream: UnixStream) {
    use std::os::fd::AsFd;

    let duplicate = stream.as_fd().try_clone_to_owned();
    let (reader, writer) = stream.into_split();
    let mut connection = Connection::new(server, reader, writer, Transport::Unix);
    if let Ok(duplicate) = duplicate {
        connection = connection.with_late_hangup(Box::pin(hung_up(duplicate)));
    }
    let ending: Ending = connection.serve().await;
    connection.finish(&ending).await;
}

async fn bind_tcp(address: SocketAddr, allow_remote: bool) -> Result<TcpListener, ListenError> {
    if !address.ip().is_loopback() && !allow_remote {
        return Err(ListenError::Remote(address));
    }
    TcpListener::bind(address).await.map_err(|source| ListenError::Io { address, source })
}

#[cfg(test)]
mod tests;
