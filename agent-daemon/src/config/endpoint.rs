//! Where a daemon listens: the values of `--listen`.

use std::{
    fmt,
    net::{Ipv4Addr, SocketAddr},
    path::PathBuf,
    str::FromStr,
};

/// One listening address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Endpoint {
    /// `unix:PATH`.
    Unix(PathBuf),
    /// `tcp:ADDRESS:PORT`.
    Tcp(SocketAddr),
    /// `ws:ADDRESS:PORT`.
    WebSocket(SocketAddr),
}

impl Endpoint {
    /// The name of its transport in `initialize`'s answer.
    pub fn transport(&self) -> &'static str {
        match self {
            Endpoint::Unix(_) => "unix",
            Endpoint::Tcp(_) => "tcp",
            Endpoint::WebSocket(_) => "ws",
        }
    }
}

impl FromStr for Endpoint {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.split_once(':') {
            Some(("unix", path)) if !path.is_empty() => Ok(Endpoint::Unix(path.into())),
            Some(("tcp", address)) => address_of(address).map(Endpoint::Tcp),
            Some(("ws", address)) => address_of(address).map(Endpoint::WebSocket),
            _ => Err("expected unix:PATH, tcp:ADDRESS:PORT or ws:ADDRESS:PORT".to_owned()),
        }
    }
}

impl fmt::Display for Endpoint {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Endpoint::Unix(path) => write!(out, "unix:{}", path.display()),
            Endpoint::Tcp(address) => write!(out, "tcp:{address}"),
            Endpoint::WebSocket(address) => write!(out, "ws:{address}"),
        }
    }
}

fn address_of(text: &str) -> Result<SocketAddr, String> {
    // The one name that needs no resolver and means the same everywhere.
    if let Some(port) = text.strip_prefix("localhost:").and_then(|port| port.parse().ok()) {
        return Ok((Ipv4Addr::LOCALHOST, port).into());
    }
    text.parse().map_err(|_| format!("`{text}` is no address with a port, such as 127.0.0.1:7000"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_reads_as_it_is_written() {
        const CASES: &[(&str, &str)] = &[
            ("unix:/run/x.sock", "unix:/run/x.sock"),
            ("tcp:127.0.0.1:0", "tcp:127.0.0.1:0"),
            ("ws:localhost:80", "ws:127.0.0.1:80"),
            ("tcp:[::1]:9", "tcp:[::1]:9"),
            ("unix:", "expected unix:PATH, tcp:ADDRESS:PORT or ws:ADDRESS:PORT"),
            ("/run/x.sock", "expected unix:PATH, tcp:ADDRESS:PORT or ws:ADDRESS:PORT"),
            ("tcp:7000", "`7000` is no address with a port, such as 127.0.0.1:7000"),
            ("ws:host:1", "`host:1` is no address with a port, such as 127.0.0.1:7000"),
        ];
        for (text, expected) in CASES {
            let read = text.parse::<Endpoint>().map(|endpoint| endpoint.to_string());
            assert_eq!(read.unwrap_or_else(|problem| problem), *expected, "{text}");
        }
    }
}
