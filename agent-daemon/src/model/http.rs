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

use super::proxy::{Proxies, Proxy, Route};

/// Why a request came to nothing, before or in its answer.
#[derive(Debug)]
pub(super) enum Interruption {
    /// No connection, or it was lost.
    Lost(reqwest::Error),
    /// Nothing arrived for this long.
    Stalled(Duration),
    /// Something arrived, but no word of the model for this long.
    Mute(Duration),
}

/// How long to wait, and the connections.
#[derive(Debug)]
pub(super) struct Http {
    /// How long nothing may arrive, before the answer's head and between its pieces.
    pub(super) idle_timeout: Duration,
    pub(super) proxies: Arc<Proxies>,
    // Built at first use: reading the system's certificates takes longer than all the rest of the
    // daemon's start, and servers on plain HTTP never need them.
    plain: OnceLock<Client>,
    secure: OnceLock<Client>,
    plain_direct: OnceLock<Client>,
    secure_direct: OnceLock<Client>,
}

/// How much of a body that is no stream is read.
const LONGEST_PAGE: usize = 64 * 1024;

/// More lines than this in an answer's head break the request off.
const MOST_HEADERS: usize = 100;

const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

impl Http {
    pub(super) fn new(idle_timeout: Duration, proxies: Arc<Proxies>) -> Self {
        Http {
            idle_timeout,
            proxies,
            plain: OnceLock::new(),
            secure: OnceLock::new(),
            plain_direct: OnceLock::new(),
            secure_direct: OnceLock::new(),
        }
    }

    /// The proxy that an address is reached through, if the environment names one.
    pub(super) fn proxy(&self, url: &Url) -> Option<&Proxy> {
        match self.proxies.route(url) {
            Ok(Route::Proxy(proxy)) => Some(proxy),
            _ => None,
        }
    }

    /// Sends a request and waits for the head of its answer.
    pub(super) async fn post(
        self: &Arc<Self>,
        url: &Url,
        headers: HeaderMap,
        body: Vec<u8>,
    ) -> Result<HttpAnswer, Interruption> {
        let client = self.client(url).await.map_err(Interruption::Lost)?;
        let sent = client.post(url.clone()).headers(headers).body(body).send();
        match timeout(self.idle_timeout, sent).await {
            Ok(Ok(response)) => Ok(HttpAnswer { response }),
            Ok(Err(error)) => Err(Interruption::Lost(error.without_url())),
            Err(_) => Err(Interruption::Stalled(self.idle_timeout)),
        }
    }

    async fn client(self: &Arc<Self>, url: &Url) -> Result<Client, reqwest::Error> {
        if let Some(client) = self.slot(url).get() {
            return Ok(client.clone());
        }
        if !self.is_secure(url) {
            return self.build(url);
        }
        let (http, url) = (self.clone(), url.clone());
        // Certificates are read from disk.
        tokio::task::spawn_blocking(move || http.build(&url))
            .await
            .expect("building a client does not panic")
    }

    /// Addresses that are reached in the same way share a client.
    fn slot(&self, url: &Url) -> &OnceLock<Client> {
        let is_direct = matches!(self.proxies.route(url), Ok(Route::Direct));
        match (url.scheme() == "https", is_direct) {
            (false, false) => &self.plain,
            (true, false) => &self.secure,
            (false, true) => &self.plain_direct,
            (true, true) => &self.secure_direct,
        }
    }

    fn is_secure(&self, url: &Url) -> bool {
        url.scheme() == "https"
            || self.proxy(url).is_some_and(|proxy| proxy.url.scheme() == "https")
    }

    fn build(&self, url: &Url) -> Result<Client, reqwest::Error> {
        // An error means that somebody has chosen one already.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let mut builder = Client::builder()
            .user_agent(concat!("agent-daemon/", env!("CARGO_PKG_VERSION")))
            .redirect(redirect::Policy::none())
            .referer(false)
            .connect_timeout(CONNECT_TIMEOUT)
            .http1_max_headers(MOST_HEADERS);
        builder = match self.proxies.route(url) {
            Ok(Route::System) => builder,
            Ok(Route::Proxy(proxy)) => {
                builder.no_proxy().proxy(reqwest::Proxy::all(proxy.url.clone())?)
            }
            // A model with a proxy that cannot be used is not available.
            Ok(Route::Direct) | Err(_) => builder.no_proxy(),
        };
        if !self.is_secure(url) {
            builder = builder.tls_certs_only([]);
        }
        let client = builder.build()?;
        Ok(self.slot(url).get_or_init(|| client).clone())
    }
}

/// An answer whose head has arrived.
#[derive(Debug)]
pub(super) struct HttpAnswer {
    response: Response,
}

impl HttpAnswer {
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
    pub(super) async fn piece(&mut self, limit: Duration) -> Result<Option<Vec<u8>>, Interruption> {
        match timeout(limit, self.response.chunk()).await {
            Ok(Ok(piece)) => Ok(piece.map(Vec::from)),
            Ok(Err(error)) => Err(Interruption::Lost(error.without_url())),
            Err(_) => Err(Interruption::Stalled(limit)),
        }
    }

    /// The body, or as much of it as fits and comes in time. A page that is interrupted ends there:
    /// its status has told the main thing already.
    pub(super) async fn page(&mut self, beginning: Vec<u8>, time: Duration) -> Vec<u8> {
        let mut page = beginning;
        let read = async {
            while let Ok(Some(piece)) = self.piece(time).await {
                page.extend_from_slice(&piece);
                if page.len() > LONGEST_PAGE {
                    break;
                }
            }
        };
        // What has come counts, whole or not.
        let _ = timeout(time, read).await;
        if page.len() > LONGEST_PAGE {
            // Cut well before the limit, which may have left half a secret.
            page.truncate(LONGEST_PAGE - LONGEST_PAGE / 16);
        }
        page
    }
}
