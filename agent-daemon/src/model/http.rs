//! The one HTTP client that all providers share.
//!
//! Owns: connecting (10 s), silence on an open connection, proxies, TLS, and how much of a body is
//! read. Dropping a request or its answer closes the connection.
//! Never: limits how long an answer takes as a whole; follows redirects, which would carry a key to
//! an address that nobody configured; retries.

use std::{
    sync::{Arc, OnceLock},
    time::Duration,
};

use reqwest::{Client, Response, Url, header::HeaderMap, redirect};
use tokio::time::timeout;

/// Why a request came to nothing, before or in its answer.
#[derive(Debug)]
pub(super) enum Interrupted {
    /// No connection, or it was lost.
    Lost(reqwest::Error),
    /// Nothing arrived for this long.
    Stalled(Duration),
}

/// How long to wait, and the connections.
#[derive(Debug)]
pub(super) struct Http {
    /// How long nothing may arrive, before the answer's head and between its pieces.
    pub(super) idle_timeout: Duration,
    // Built at first use: reading the system's certificates takes longer than all the rest of the
    // daemon's start, and servers on plain HTTP never need them.
    plain: OnceLock<Client>,
    secure: OnceLock<Client>,
    loopback: OnceLock<Client>,
    secure_loopback: OnceLock<Client>,
}

/// How much of a body that is no stream is read.
pub(super) const LONGEST_PAGE: usize = 64 * 1024;

/// More lines than this in an answer's head break the request off.
const MOST_HEADERS: usize = 100;

const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

impl Http {
    pub(super) fn new(idle_timeout: Duration) -> Self {
        Http {
            idle_timeout,
            plain: OnceLock::new(),
            secure: OnceLock::new(),
            loopback: OnceLock::new(),
            secure_loopback: OnceLock::new(),
        }
    }

    /// Sends a request and waits for the head of its answer.
    pub(super) async fn post(
        self: &Arc<Self>,
        url: &Url,
        headers: HeaderMap,
        body: Vec<u8>,
    ) -> Result<Answer, Interrupted> {
        let client = self.client(url).await.map_err(Interrupted::Lost)?;
        let sent = client.post(url.clone()).headers(headers).body(body).send();
        match timeout(self.idle_timeout, sent).await {
            Ok(Ok(response)) => Ok(Answer { response }),
            Ok(Err(error)) => Err(Interrupted::Lost(error.without_url())),
            Err(_) => Err(Interrupted::Stalled(self.idle_timeout)),
        }
    }

    async fn client(self: &Arc<Self>, url: &Url) -> Result<Client, reqwest::Error> {
        let secure = url.scheme() == "https";
        let loopback = is_loopback(url);
        if let Some(client) = self.slot(secure, loopback).get() {
            return Ok(client.clone());
        }
        if !secure {
            return self.build(secure, loopback);
        }
        let http = self.clone();
        // Certificates are read from disk.
        tokio::task::spawn_blocking(move || http.build(secure, loopback))
            .await
            .expect("building a client does not panic")
    }

    fn slot(&self, secure: bool, loopback: bool) -> &OnceLock<Client> {
        match (secure, loopback) {
            (false, false) => &self.plain,
            (true, false) => &self.secure,
            (false, true) => &self.loopback,
            (true, true) => &self.secure_loopback,
        }
    }

    fn build(&self, secure: bool, loopback: bool) -> Result<Client, reqwest::Error> {
        // An error means that somebody has chosen one already.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let mut builder = Client::builder()
            .user_agent(concat!("agent-daemon/", env!("CARGO_PKG_VERSION")))
            .redirect(redirect::Policy::none())
            .referer(false)
            .connect_timeout(CONNECT_TIMEOUT)
            .http1_max_headers(MOST_HEADERS);
        if loopback {
            // A proxy elsewhere cannot reach our loopback.
            builder = builder.no_proxy();
        }
        if !secure {
            builder = builder.tls_certs_only([]);
        }
        let client = builder.build()?;
        Ok(self.slot(secure, loopback).get_or_init(|| client).clone())
    }
}

fn is_loopback(url: &Url) -> bool {
    match url.host_str() {
        Some("localhost") => true,
        Some(host) => host
            .trim_matches(['[', ']'])
            .parse::<std::net::IpAddr>()
            .is_ok_and(|address| address.is_loopback()),
        None => false,
    }
}

/// An answer whose head has arrived.
#[derive(Debug)]
pub(super) struct Answer {
    response: Response,
}

impl Answer {
    pub(super) fn status(&self) -> reqwest::StatusCode {
        self.response.status()
    }

    pub(super) fn headers(&self) -> &HeaderMap {
        self.response.headers()
    }

    /// The kind of body, such as `text/event-stream`; empty where the server does not say.
    pub(super) fn content_type(&self) -> String {
        let value = self.headers().get("content-type").and_then(|value| value.to_str().ok());
        let kind = value.and_then(|value| value.split(';').next()).unwrap_or_default();
        kind.trim().to_ascii_lowercase()
    }

    /// The next piece of the body; none at its end.
    pub(super) async fn piece(&mut self, limit: Duration) -> Result<Option<Vec<u8>>, Interrupted> {
        match timeout(limit, self.response.chunk()).await {
            Ok(Ok(piece)) => Ok(piece.map(Vec::from)),
            Ok(Err(error)) => Err(Interrupted::Lost(error.without_url())),
            Err(_) => Err(Interrupted::Stalled(limit)),
        }
    }

    /// The body, or as much of it as fits. A page that is interrupted ends there: its status has
    /// told the main thing already.
    pub(super) async fn page(&mut self, most: usize, idle: Duration) -> Vec<u8> {
        let mut page = Vec::new();
        while let Ok(Some(piece)) = self.piece(idle).await {
            page.extend_from_slice(&piece);
            if page.len() > most {
                // Cut well before the limit, which may have left half a secret.
                page.truncate(most - most / 16);
                break;
            }
        }
        page
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn loopback_is_recognised() {
        for (url, expected) in [
            ("http://localhost:8080/v1", true),
            ("http://127.0.0.1/v1", true),
            ("http://127.8.9.1/v1", true),
            ("http://[::1]:80/v1", true),
            ("http://192.168.1.4/v1", false),
            ("https://api.example.com/v1", false),
            ("https://localhost.example.com/v1", false),
        ] {
            assert_eq!(is_loopback(&url.parse().unwrap()), expected, "{url}");
        }
    }
}
