//! TCP: whoever shows the token, from this machine unless others are allowed (W6).
//!
//! Owns: that a stranger takes none of the places. WebSockets come in the same way.

use std::{io, net::SocketAddr, sync::Arc};

use futures_util::{FutureExt, future::BoxFuture};
use tokio::net::{TcpListener, TcpStream};

use crate::{
    peer::{connection::Connection, server::Server, strangers::Seat, transport::Transport},
    transport::socket::{Bind, ListenError, Listened, Rules, Serving, Socket},
};

/// Peers over TCP.
pub(crate) static TCP: Transport = Transport { needs_token: true, ..Transport::plain("tcp") };

/// Its row.
pub(super) static LISTENED: Listened = Listened {
    transport: &TCP,
    form: "tcp:ADDRESS:PORT",
    bind: Bind::OnNetwork(|address, rules| {
        async move { Ok(Box::new(TcpSocket(bind(address, rules).await?)) as Box<dyn Socket>) }
            .boxed()
    }),
};

#[derive(Debug)]
struct TcpSocket(TcpListener);

impl Socket for TcpSocket {
    fn address(&self) -> String {
        address(&TCP, &self.0)
    }

    fn accept<'a>(&'a self, server: &'a Arc<Server>) -> BoxFuture<'a, io::Result<Serving>> {
        async move {
            let (stream, seat) = accept(&self.0, server).await?;
            Ok(serve(server.clone(), stream, seat, &TCP).boxed())
        }
        .boxed()
    }
}

pub(super) async fn bind(address: SocketAddr, rules: &Rules) -> Result<TcpListener, ListenError> {
    if !address.ip().is_loopback() && !rules.allow_remote {
        return Err(ListenError::Remote(address));
    }
    TcpListener::bind(address).await.map_err(|source| ListenError::Io { address, source })
}

pub(super) fn address(transport: &Transport, listener: &TcpListener) -> String {
    match listener.local_addr() {
        Ok(address) => format!("{transport}:{address}"),
        Err(error) => format!("{transport}:{error}"),
    }
}

/// The next stranger, with a seat among the others.
pub(super) async fn accept(
    listener: &TcpListener,
    server: &Server,
) -> io::Result<(TcpStream, Seat)> {
    // It takes no place; that there is one lets it hope.
    drop(server.place().await);
    let door = server.strangers.door().await;
    let (stream, _) = listener.accept().await?;
    let seat = server.strangers.enter(&stream, door);
    Ok((stream, seat))
}

pub(super) async fn serve(
    server: Arc<Server>,
    stream: TcpStream,
    seat: Seat,
    transport: &'static Transport,
) {
    // Answers are small and each is waited for.
    let _ = stream.set_nodelay(true);
    let (reader, writer) = stream.into_split();
    let mut connection = Connection::new(server, reader, writer, transport).with_seat(seat);
    let ending = connection.serve().await;
    connection.finish(&ending).await;
}
