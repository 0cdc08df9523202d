//! Where a daemon listens: the values of `--listen`.
//!
//! Owns: how an endpoint is read and written. Never: knows a transport by name; the table does.

use std::{
    fmt,
    path::{Path, PathBuf},
    str::FromStr,
};

use agent_protocol::local::paths::{SocketPathTooLong, check_socket_path};

use crate::{
    peer::transport::Transport,
    transport::{
        LISTENED,
        acceptor::Acceptor,
        socket::{Address, ListenError, Listened, Rules},
        unix,
    },
};

/// A transport, and where it is to be listened on.
#[derive(Clone)]
pub struct Endpoint {
    listened: &'static Listened,
    // Invariant: read by `listened`, or what it reads.
    address: Address,
}

impl Endpoint {
    /// A Unix socket.
    pub fn unix(path: PathBuf) -> Self {
        Endpoint { listened: &unix::LISTENED, address: Address::Path(path) }
    }

    /// What is true of those who will come.
    pub fn transport(&self) -> &'static Transport {
        self.listened.transport
    }

    /// The same, with a relative path taken from a directory.
    ///
    /// # Errors
    /// The path is too long for a socket.
    pub(crate) fn within(self, directory: &Path) -> Result<Self, SocketPathTooLong> {
        let Address::Path(path) = self.address else { return Ok(self) };
        let path = directory.join(path);
        check_socket_path(&path)?;
        Ok(Endpoint { address: Address::Path(path), ..self })
    }

    /// Begins to listen; port 0 picks one. Needs a runtime.
    ///
    /// # Errors
    /// Another daemon serves it, the rules do not allow it, or the system refuses.
    pub(crate) async fn bind(&self, rules: &Rules) -> Result<Acceptor, ListenError> {
        (self.listened.bind)(&self.address, rules).await.map(Acceptor::new)
    }
}

impl FromStr for Endpoint {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (name, address) = text.split_once(':').unwrap_or_default();
        let listened = LISTENED.iter().find(|listened| listened.transport.name == name);
        match listened {
            Some(listened) if !address.is_empty() => {
                Ok(Endpoint { listened, address: (listened.address)(address)? })
            }
            _ => Err(format!("expected {}", forms())),
        }
    }
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
        write!(out, "{}:{}", self.listened.transport, self.address)
    }
}

impl PartialEq for Endpoint {
    fn eq(&self, other: &Self) -> bool {
        self.transport().name == other.transport().name && self.address == other.address
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
