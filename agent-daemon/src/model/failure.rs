//! What went wrong with a request, told so that a person can do something about it.
//!
//! Owns: sorting statuses, reported failures and broken connections into the kinds of
//! [`ModelError`], and the text: model, what the server said, what to do.
//! Never: repeats a secret, a page's markup or more than a paragraph of foreign text; retries.

use std::{error::Error, time::Duration};

use agent_core::{ModelError, ModelErrorKind};
use reqwest::{StatusCode, header::HeaderMap};
use serde_json::Value;

use super::{
    foreign_text, json_text,
    provider::Provider,
    proxy::Proxy,
    reported::Reported,
    retry_after::{retry_after, retry_delay},
    stream_failure::{Shape, StreamFailure},
};

/// The model that was asked, for the text of a failure.
#[derive(Clone, Copy, Debug)]
pub(super) struct Asked<'a> {
    /// `PROVIDER/ID`.
    pub(super) name: &'a str,
    pub(super) provider: &'a Provider,
    /// What stands between the model's server and us.
    pub(super) proxy: Option<&'a Proxy>,
}

impl Asked<'_> {
    /// The server answered with a status that is no success.
    pub(super) fn answered(
        &self,
        status: StatusCode,
        headers: &HeaderMap,
        body: &[u8],
    ) -> ModelError {
        let json = json_of(body);
        let reported = json.as_ref().and_then(Reported::from_json).unwrap_or_else(|| Reported {
            message: foreign_text::words_of_page(&String::from_utf8_lossy(body)),
            ..Reported::default()
        });
        let reason = status.canonical_reason().unwrap_or(match status.as_u16() {
            529 => "Overloaded",
            _ => "",
        });
        let title = format!("{} {reason}", status.as_u16()).trim_end().to_owned();
        let location = headers.get("location").and_then(|value| value.to_str().ok());
        let mut error = self.reported(
            format!("answered {title}"),
            Reported { status: Some(status.as_u16()), ..reported },
            location,
        );
        error.retry_after = retry_after(headers, std::time::SystemTime::now())
            .or_else(|| retry_delay(json.as_ref()?));
        // It may be the proxy's own answer, if it is not only passing bytes on.
        if let Some(proxy) = self.proxy.filter(|_| self.provider.url.scheme() == "http")
            && matches!(status.as_u16(), 407 | 502..=504)
        {
            error.message += &format!(" It came through {proxy}.");
        }
        if let Some(id) = request_id(headers) {
            error.message += &format!(" (request {})", self.bounded(id, 100));
        }
        error
    }

    /// What a decoder found in an answer that came in one piece.
    pub(super) fn in_page(
        &self,
        failure: StreamFailure,
        headers: &HeaderMap,
        body: &[u8],
    ) -> ModelError {
        let delay = || retry_after(headers, std::time::SystemTime::now());
        let mut error = self.in_stream(failure);
        error.retry_after = delay().or_else(|| retry_delay(&json_of(body)?));
        error
    }

    /// What a decoder found in the stream.
    pub(super) fn in_stream(&self, failure: StreamFailure) -> ModelError {
        match failure {
            StreamFailure::Malformed(what) => ModelError::new(
                ModelErrorKind::Malformed,
                format!(
                    "{} sent a stream that does not follow the {} protocol: {}. {}",
                    self.name,
                    self.provider.api.name,
                    self.bounded(&what, SHOWN),
                    self.check_address(),
                ),
            ),
            StreamFailure::Truncated => ModelError::new(
                ModelErrorKind::Truncated,
                format!(
                    "{} broke off in the middle of its answer: the stream from {} ended early. \
                     Try again; if it stays so, look at the server's log.",
                    self.name, self.provider.shown_url,
                ),
            ),
            StreamFailure::Reported(reported) => {
                self.reported("reported a failure in its answer".to_owned(), reported, None)
            }
            StreamFailure::OtherApi(shape) => {
                ModelError::new(ModelErrorKind::Malformed, self.other_api(shape))
            }
            StreamFailure::Withheld(why) => ModelError::new(
                ModelErrorKind::Provider,
                format!(
                    "{} withheld its answer: {}. Say it differently, or choose another model.",
                    self.name,
                    self.bounded(&why, SHOWN),
                ),
            ),
        }
    }

    fn reported(&self, what: String, reported: Reported, location: Option<&str>) -> ModelError {
        let said = self.bounded(&reported.message, SHOWN);
        let said = if said.is_empty() { said } else { format!(": {said}") };
        let (kind, advice) = self.kind_and_advice(&reported, location);
        let stop = if said.ends_with(['.', '!', '?']) { "" } else { "." };
        let message = format!("{} {what}{said}{stop} {advice}", self.name);
        ModelError::new(kind, message.trim_end())
    }

    fn kind_and_advice(
        &self,
        reported: &Reported,
        location: Option<&str>,
    ) -> (ModelErrorKind, String) {
        // Not for 429: "tokens per minute" also speaks of too many tokens, and passes.
        if reported.status != Some(429) && reported.is_context_overflow() {
            let advice = "The conversation does not fit the model's context window any more: reset \
                          the session, send less, or choose a model with a larger window.";
            return (ModelErrorKind::ContextOverflow, advice.to_owned());
        }
        if reported.is_quota() {
            let advice = "The account's quota is used up: check its plan and billing.";
            return (ModelErrorKind::Provider, advice.to_owned());
        }
        match reported.status {
            Some(status) => (ModelErrorKind::Status(status), self.advice(status, location)),
            None => (ModelErrorKind::Provider, String::new()),
        }
    }

    fn advice(&self, status: u16, location: Option<&str>) -> String {
        let key = match &self.provider.key_variable {
            Some(variable) => format!("the key in the environment variable {variable}"),
            None => "the key".to_owned(),
        };
        match status {
            300..=399 => format!(
                "It redirects to {}: set the final address in {}.",
                location.map_or("another address".to_owned(), |to| self.bounded(to, 200)),
                self.provider.address_setting,
            ),
            401 if self.provider.key_variable.is_none() => format!(
                "It wants a key: name the environment variable that holds it in `api_key_env` of \
                 [providers.{}].",
                self.provider.name,
            ),
            401 => format!("Check {key}."),
            402 => "Check the account's billing.".to_owned(),
            403 => format!("Check that {key} may use this model."),
            404 | 405 => format!("Check the model's name. {}", self.check_address()),
            407 => {
                "The proxy wants a user and a password: http://USER:PASSWORD@HOST:PORT.".to_owned()
            }
            408 | 409 | 500..=502 | 504 => "This often passes: try again.".to_owned(),
            413 => "Send less, or reset the session.".to_owned(),
            429 => "Too many requests: wait and try again.".to_owned(),
            503 | 529 => "The server is busy or starting: wait and try again.".to_owned(),
            _ => String::new(),
        }
    }

    fn check_address(&self) -> String {
        format!(
            "Check that {} ({}) is the address of the {} API.",
            self.provider.address_setting, self.provider.shown_url, self.provider.api.name,
        )
    }

    fn other_api(&self, shape: Shape) -> String {
        let (answer, advice) = match shape {
            Shape::Spoken(api) => (
                format!("the {api} API"),
                format!("Set `api = \"{api}\"` in [providers.{}]", self.provider.name),
            ),
            Shape::Other(name) => (name.to_owned(), "Such answers are not understood".to_owned()),
        };
        format!(
            "{} answered as {answer} does. {advice}, or see that {} ({}) is the address of the {} \
             API.",
            self.name,
            self.provider.address_setting,
            self.provider.shown_url,
            self.provider.api.name,
        )
    }

    /// The connection could not be made, or was lost.
    pub(super) fn lost(&self, error: &reqwest::Error, answering: bool) -> ModelError {
        let cause = self.bounded(&root_cause(error), SHOWN);
        let url = &self.provider.shown_url;
        let setting = &self.provider.address_setting;
        let tls = tls_error(error);
        let kind = match tls {
            // Nothing that passes.
            Some(rustls::Error::InvalidCertificate(_)) => ModelErrorKind::Provider,
            _ => ModelErrorKind::Connection,
        };
        let through = self.through();
        let message = if answering {
            format!("{} broke off: the connection to {url}{through} was lost ({cause}).", self.name)
        } else if let Some(proxy) = self.proxy.filter(|_| error.is_connect() && tls.is_none()) {
            self.no_proxy(proxy, error, &cause)
        } else if tls.is_some() {
            format!(
                "{}: no secure connection to {url}: {cause}. Check that {setting} begins with \
                 {} and that the server's certificate is trusted.",
                self.name, "http:// or https:// as the server wants it",
            )
        } else if error.is_connect() && error.is_timeout() {
            format!(
                "{}: no connection to {url} in time. Check {setting} and the network.",
                self.name
            )
        } else if error.is_connect() {
            format!(
                "{}: cannot connect to {url}: {cause}. Is the server running there? {setting} says \
                 where it is.",
                self.name,
            )
        } else {
            format!(
                "{}: the connection to {url}{through} was lost before an answer: {cause}.",
                self.name
            )
        };
        ModelError::new(kind, message)
    }

    fn through(&self) -> String {
        self.proxy.map_or_else(String::new, |proxy| format!(" through {proxy}"))
    }

    fn no_proxy(&self, proxy: &Proxy, error: &reqwest::Error, cause: &str) -> String {
        let what = match cause {
            _ if error.is_timeout() => format!("no connection to {proxy} in time"),
            // In the words of the HTTP library, when the proxy was there and said no.
            no if no.starts_with("tunnel error")
                || no.starts_with("SOCKS error") && !no.ends_with("underlying connection") =>
            {
                format!("{proxy} makes no connection to {}: {no}", self.provider.shown_url)
            }
            cause => format!("cannot connect to {proxy}: {cause}"),
        };
        format!(
            "{}: {what}. Is that proxy right? To go without it, unset {} or name the server's host \
             in NO_PROXY.",
            self.name, proxy.variable,
        )
    }

    /// Nothing, or nothing of use, arrived for too long.
    pub(super) fn stalled(&self, what: &str, limit: Duration) -> ModelError {
        let message = format!(
            "{}: {what} {}{} for {}. Try again; if it stays so, look at the server, or \
             give it longer with `model_idle_timeout_ms` in [limits].",
            self.name,
            self.provider.shown_url,
            self.through(),
            shown_delay(limit),
        );
        ModelError::new(ModelErrorKind::Stalled, message)
    }

    /// The server answered with success, but with something else.
    pub(super) fn not_an_answer(&self, content_type: &str, body: &[u8]) -> ModelError {
        let words = foreign_text::words_of_page(&String::from_utf8_lossy(body));
        let kind = match content_type {
            "" => "something".to_owned(),
            kind => self.bounded(kind, 60),
        };
        let message = format!(
            "{} answered with {kind}, not with an answer: {}. {}",
            self.name,
            self.bounded(words.trim_end().trim_end_matches('.'), SHOWN),
            self.check_address(),
        );
        ModelError::new(ModelErrorKind::Malformed, message)
    }

    /// Foreign text, fit to be shown.
    fn bounded(&self, text: &str, limit: usize) -> String {
        // Secrets go before the cut, which might leave the better half of one.
        let clean = self.provider.secrets.redact(&foreign_text::clean(text));
        foreign_text::cut(&clean, limit)
    }
}

/// How many characters of a server's words are shown.
const SHOWN: usize = 400;

fn json_of(body: &[u8]) -> Option<Value> {
    json_text::read(&String::from_utf8_lossy(body)).ok()
}

fn request_id(headers: &HeaderMap) -> Option<&str> {
    ["request-id", "x-request-id"].iter().find_map(|name| headers.get(*name)?.to_str().ok())
}

/// The innermost cause: the outer ones only say that a request was sent. Without the address,
/// which may hold a password.
fn root_cause(error: &reqwest::Error) -> String {
    let mut cause = error.source();
    let mut text = None;
    while let Some(inner) = cause {
        text = Some(inner.to_string());
        cause = inner.source();
    }
    text.unwrap_or_else(|| "no reason given".to_owned())
}

fn tls_error(error: &reqwest::Error) -> Option<&rustls::Error> {
    let mut cause = error.source();
    while let Some(inner) = cause {
        if let Some(tls) = inner.downcast_ref() {
            return Some(tls);
        }
        // An I/O error does not name what it wraps as its source.
        let wrapped = inner.downcast_ref::<std::io::Error>().and_then(std::io::Error::get_ref);
        cause = match wrapped {
            Some(wrapped) => Some(wrapped),
            None => inner.source(),
        };
    }
    None
}

fn shown_delay(delay: Duration) -> String {
    match delay.as_secs() {
        0 => format!("{} ms", delay.as_millis()),
        seconds @ 1..120 => format!("{seconds} s"),
        seconds @ 120..7200 => format!("{} minutes", seconds / 60),
        seconds => format!("{} hours", seconds / 3600),
    }
}
