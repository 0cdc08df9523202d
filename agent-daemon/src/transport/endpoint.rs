//! Where a daemon listens: the values of `--listen`.
//!
//! Owns: how an endpoint is read and written. Never: knows a transport by name; the table does.

use std::{
    fmt,
    net::{Ipv4Addr, SocketAddr},
    path::{Path, PathBuf},
    str::FromStr,
};

use agent_protocol::local::paths::{SocketPathTooLong, check_socket_path};

use crate::{
    peer::transport::Transport,
    transport::{
        LISTENED,
        acceptor::Acceptor,
        socket::{Bind, Binding, ListenError, Listened, Rules},
        unix,
    },
};

/// A transport, and where it is to be listened on.
#[derive(Clone)]
pub struct Endpoint {
    transport: &'static Transport,
    address: Address,
}

/// Where to listen, and how.
#[derive(Clone)]
enum Address {
    OnDisk(PathBuf, fn(&Path) -> Binding<'_>),
    OnNetwork(SocketAddr, for<'a> fn(SocketAddr, &'a Rules) -> Binding<'a>),
}

impl Endpoint {
    /// A Unix socket.
    pub fn unix(path: PathBuf) -> Self {
        Endpoint { transport: &unix::UNIX, address: Address::OnDisk(path, unix::bind) }
    }

    /// What is true of those who will come.
    pub fn transport(&self) -> &'static Transport {
        self.transport
    }

    /// The same, with a relative path taken from a directory.
    ///
    /// # Errors
    /// The path is too long for a socket.
    pub(crate) fn within(self, directory: &Path) -> Result<Self, SocketPathTooLong> {
        let Address::OnDisk(path, bind) = self.address else { return Ok(self) };
        let path = directory.join(path);
        check_socket_path(&path)?;
        Ok(Endpoint { address: Address::OnDisk(path, bind), ..self })
    }

    /// Begins to listen; port 0 picks one. Needs a runtime.
    ///
    /// # Errors
    /// Another daemon serves it, the rules do not allow it, or the system refuses.
    pub(crate) async fn bind(&self, rules: &Rules) -> Result<Acceptor, ListenError> {
        let socket = match &self.address {
            Address::OnDisk(path, bind) => bind(path).await,
            Address::OnNetwork(address, bind) => bind(*address, rules).await,
        };
        socket.map(Acceptor::new)
    }
}

impl FromStr for Endpoint {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (name, address) = text.split_once(':').unwrap_or_default();
        let listened = LISTENED.iter().find(|listened| listened.transport.name == name);
        let Some(Listened { transport, bind, .. }) = listened.filter(|_| !address.is_empty())
        else {
            return Err(format!("expected {}", forms()));
        };
        let address = match *bind {
            Bind::OnDisk(bind) => Address::OnDisk(address.into(), bind),
            Bind::OnNetwork(bind) => Address::OnNetwork(network(address)?, bind),
        };
        Ok(Endpoint { transport, address })
    }
}

/// Reads an address of a network, with its port.
fn network(text: &str) -> Result<SocketAddr, String> {
    // The one name that needs no resolver and means the same everywhere.
    if let Some(port) = text.strip_prefix("localhost:").and_then(|port| port.parse().ok()) {
        return Ok((Ipv4Addr::LOCALHOST, port).into());
    }
    text.parse().map_err(|_| format!("`{text}` is no address with a port, such as 127.0.0.1:7000"))
}

/// All that can be said, in words.
fn forms() -> String {
    let forms: Vec<_> = LISTENED.iter().map(|listened| listened.form).collect();
    match forms.split_last() {
        Some((last, [])) => (*last).to_owned(),
        Some((last, others)) => format!("{} or {last}", others.join(", ")),
        None => String::new(),
    }
}

impl fmt::Display for Endpoint {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.address {
            Address::OnDisk(path, _) => write!(out, "{}:{}", self.transport, path.display()),
            Address::OnNetwork(address, _) => write!(out, "{}:{address}", self.transport),
        }
    }
}

impl PartialEq for Endpoint {
    fn eq(&self, other: &Self) -> bool {
        let is_same_place = match (&self.address, &other.address) {
            (Address::OnDisk(one, _), Address::OnDisk(other, _)) => one == other,
            (Address::OnNetwork(one, _), Address::OnNetwork(other, _)) => one == other,
            _ => false,
        };
        self.transport.name == other.transport.name && is_same_place
    }
}

impl fmt::Debug for Endpoint {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{self}")
    }
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
