//! The WebSocket handshake, and whom it turns away (W6).
//!
//! Owns: the rules that keep a web page out: which `Origin` and which `Host` may shake hands.
//! Never: reads a message. A web page that gets this far still has no token.

use std::{io, net::Ipv4Addr, sync::Arc};

use agent_protocol::codec::websocket::{self as codec, WebSocketDecoder};
use futures_util::{FutureExt, future::BoxFuture};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::{TcpListener, TcpStream},
};
use tokio_tungstenite::{
    accept_hdr_async,
    tungstenite::{
        Error,
        handshake::server::{ErrorResponse, Request, Response},
        http::{HeaderMap, StatusCode, header},
    },
};

use crate::{
    peer::{server::Server, strangers::Seat, transport::Transport},
    transport::{
        socket::{Bind, Listened, Rules, Serving, Socket},
        tcp,
    },
};

/// Peers over a WebSocket.
pub(crate) static WEB_SOCKET: Transport = Transport {
    name: "ws",
    needs_token: true,
    is_parent: false,
    decoder: |max_message_bytes| Box::new(WebSocketDecoder::new(max_message_bytes)),
    farewell: codec::close,
};

/// Its row.
pub(super) static LISTENED: Listened = Listened {
    transport: &WEB_SOCKET,
    form: "ws:ADDRESS:PORT",
    bind: Bind::OnNetwork(|address, rules| {
        async move {
            let listener = tcp::bind(address, rules).await?;
            let rules = Arc::new(rules.clone());
            Ok(Box::new(WebSocketSocket { listener, rules }) as Box<dyn Socket>)
        }
        .boxed()
    }),
};

#[derive(Debug)]
struct WebSocketSocket {
    listener: TcpListener,
    rules: Arc<Rules>,
}

impl Socket for WebSocketSocket {
    fn address(&self) -> String {
        tcp::address(&WEB_SOCKET, &self.listener)
    }

    fn accept<'a>(&'a self, server: &'a Arc<Server>) -> BoxFuture<'a, io::Result<Serving>> {
        async move {
            let (stream, seat) = tcp::accept(&self.listener, server).await?;
            Ok(serve(server.clone(), stream, seat, self.rules.clone()).boxed())
        }
        .boxed()
    }
}

async fn serve(server: Arc<Server>, stream: TcpStream, seat: Seat, rules: Arc<Rules>) {
    let shaken = tokio::select! {
        shaken = shake_hands(stream, &rules) => shaken,
        () = seat.over() => return,
        () = server.stop.cancelled() => return,
    };
    match shaken {
        Ok(stream) => tcp::serve(server, stream, seat, &WEB_SOCKET).await,
        Err(error) => {
            tracing::debug!(%error, "turned a WebSocket client away");
            server.strangers.note("a WebSocket that may not shake hands");
        }
    }
}

/// Why somebody was turned away.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
enum Stranger {
    #[error("this Origin is not allowed here; list it in the daemon's allowed origins\n")]
    Origin,
    #[error("this Host is not the local machine\n")]
    Host,
}

impl Rules {
    fn check(&self, headers: &HeaderMap) -> Result<(), Stranger> {
        for origin in headers.get_all(header::ORIGIN) {
            let is_allowed =
                |allowed: &String| allowed.as_bytes().eq_ignore_ascii_case(origin.as_bytes());
            if !self.allowed_origins.iter().any(is_allowed) {
                return Err(Stranger::Origin);
            }
        }
        // A page can have its own name resolve to 127.0.0.1; the name then says so.
        let mut hosts = headers.get_all(header::HOST).iter();
        let (host, more) = (hosts.next().and_then(|host| host.to_str().ok()), hosts.next());
        match host {
            Some(host) if more.is_none() && (self.allow_remote || is_loopback(host)) => Ok(()),
            _ => Err(Stranger::Host),
        }
    }
}

/// Whether a `Host`, with or without a port, is this machine's own name for itself.
fn is_loopback(host: &str) -> bool {
    let name = match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|digit| digit.is_ascii_digit()) => name,
        _ => host,
    };
    name.eq_ignore_ascii_case("localhost")
        || name == "[::1]"
        || name.parse::<Ipv4Addr>().is_ok_and(|address| address.is_loopback())
}

/// Shakes hands, and gives the stream back for the messages.
async fn shake_hands<S>(stream: S, rules: &Rules) -> Result<S, Box<Error>>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    #[allow(clippy::result_large_err)] // The library's own signature.
    let check = |request: &Request, response: Response| -> Result<Response, ErrorResponse> {
        rules.check(request.headers()).map(|()| response).map_err(|stranger| {
            let mut refusal = ErrorResponse::new(Some(stranger.to_string()));
            *refusal.status_mut() = StatusCode::FORBIDDEN;
            refusal
        })
    };
    // The library reads nothing behind the request, so that nothing is lost here.
    Ok(accept_hdr_async(stream, check).await.map_err(Box::new)?.into_inner())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use tokio::io::{AsyncReadExt, AsyncWriteExt, duplex};

    use super::*;

    async fn status(rules: &Rules, headers: &str) -> String {
        let (mut client, server) = duplex(4096);
        let request = format!(
            "GET / HTTP/1.1\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
             Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\
             {headers}\r\n"
        );
        client.write_all(request.as_bytes()).await.unwrap();
        let accepted = shake_hands(server, rules).await;
        let accepted = accepted.inspect_err(|error| assert!(matches!(**error, Error::Http(_))));
        let mut answer = [0; 12];
        client.read_exact(&mut answer).await.unwrap();
        drop(accepted);
        String::from_utf8_lossy(&answer[9..]).into_owned()
    }

    #[tokio::test]
    async fn strangers_are_turned_away() {
        let rules = Rules {
            allowed_origins: vec!["https://editor.example".to_owned()],
            allow_remote: false,
        };
        let rows = [
            ("Host: 127.0.0.1:4000\r\n", "101"),
            ("Host: 127.8.9.1\r\n", "101"),
            ("Host: LocalHost:1\r\n", "101"),
            ("Host: [::1]:1\r\n", "101"),
            ("Host: localhost\r\nOrigin: https://editor.example\r\n", "101"),
            ("Host: localhost\r\nOrigin: HTTPS://Editor.example\r\n", "101"),
            ("Host: localhost\r\nOrigin: http://editor.example\r\n", "403"),
            ("Host: localhost\r\nOrigin: https://editor.example.evil.example\r\n", "403"),
            ("Host: localhost\r\nOrigin: http://localhost:1\r\n", "403"),
            ("Host: localhost\r\nOrigin: null\r\n", "403"),
            ("Host: localhost\r\nOrigin:\r\n", "403"),
            (
                "Host: localhost\r\nOrigin: https://editor.example\r\nOrigin: http://evil.example\r\n",
                "403",
            ),
            ("Host: evil.example\r\n", "403"),
            ("Host: evil.example:4000\r\n", "403"),
            ("Host: 127.0.0.1.evil.example\r\n", "403"),
            ("Host: localhost.evil.example\r\n", "403"),
            ("Host: 10.0.0.1\r\n", "403"),
            ("Host: localhost\r\nHost: evil.example\r\n", "403"),
            ("", "403"),
        ];
        for (headers, expected) in rows {
            assert_eq!(status(&rules, headers).await, expected, "{headers:?}");
        }
        let remote = Rules { allow_remote: true, ..rules };
        assert_eq!(status(&remote, "Host: build.example:4000\r\n").await, "101");
        let origin = "Host: build.example\r\nOrigin: http://evil.example\r\n";
        assert_eq!(status(&remote, origin).await, "403");
    }
}
