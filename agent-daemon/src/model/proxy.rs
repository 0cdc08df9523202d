//! The proxies that the environment names.
//!
//! Owns: which variable counts for an address, what a value may be, and how a proxy is named to
//! people.
//! Never: opens a connection; shows a proxy's user or password; leaves out a value that it cannot
//! use, since that would go around a proxy that somebody wants.

use std::fmt;

use hyper_util::client::proxy::matcher::Matcher;
use reqwest::Url;

/// How an address is reached.
#[derive(Clone, Copy, Debug)]
pub(super) enum Route<'a> {
    /// Without a proxy.
    Direct,
    /// As the system says; nothing is set in the environment.
    System,
    /// Through this one.
    Proxy(&'a Proxy),
}

/// One proxy.
#[derive(Clone, Debug)]
pub(super) struct Proxy {
    /// With user and password.
    pub(super) url: Url,
    /// The environment variable that names it.
    pub(super) variable: String,
}

/// What is set, by the scheme of the addresses that it is for.
pub(super) struct Proxies {
    http: Option<Result<Proxy, String>>,
    https: Option<Result<Proxy, String>>,
    /// Says no for the hosts of `NO_PROXY`.
    with_proxy: Matcher,
    /// `NO_PROXY` holds `*`, which the matcher takes for names and not for addresses.
    none_at_all: bool,
}

impl Proxies {
    /// Reads `HTTP_PROXY`, `HTTPS_PROXY`, `ALL_PROXY` and `NO_PROXY`, in capitals or not.
    pub(super) fn new(env: &dyn Fn(&str) -> Option<String>) -> Self {
        let set = |name: &str| {
            [name.to_owned(), name.to_lowercase()].into_iter().find_map(|name| {
                let value = env(&name).filter(|value| !value.trim().is_empty())?;
                Some((name, value))
            })
        };
        let for_scheme = |name: &str| set(name).or_else(|| set("ALL_PROXY"));
        let no_proxy = set("NO_PROXY").map(|(_, value)| value).unwrap_or_default();
        let read = |(variable, value): (String, String)| match proxy_url(&value) {
            Ok(url) => Ok(Proxy { url, variable }),
            Err(problem) => Err(format!(
                "the environment variable {variable} names no usable proxy: {problem}; write it as \
                 http://HOST:PORT or socks5h://HOST:PORT, or unset it"
            )),
        };
        Proxies {
            http: for_scheme("HTTP_PROXY").map(read),
            https: for_scheme("HTTPS_PROXY").map(read),
            none_at_all: no_proxy.split(',').any(|entry| entry.trim() == "*"),
            with_proxy: Matcher::builder().all("http://proxy.invalid").no(no_proxy).build(),
        }
    }

    /// How an address is reached.
    ///
    /// # Errors
    /// The proxy for it cannot be used; why, and what to do.
    pub(super) fn route(&self, url: &Url) -> Result<Route<'_>, String> {
        // A proxy elsewhere cannot reach our loopback.
        if is_loopback(url) || self.is_excluded(url) {
            return Ok(Route::Direct);
        }
        let proxy = if url.scheme() == "https" { &self.https } else { &self.http };
        match proxy {
            Some(Ok(proxy)) => Ok(Route::Proxy(proxy)),
            Some(Err(problem)) => Err(problem.clone()),
            None if self.http.is_none() && self.https.is_none() => Ok(Route::System),
            None => Ok(Route::Direct),
        }
    }

    fn is_excluded(&self, url: &Url) -> bool {
        let is_listed = |address| self.with_proxy.intercept(&address).is_none();
        self.none_at_all || url.as_str().parse().is_ok_and(is_listed)
    }
}

impl fmt::Debug for Proxies {
    /// Not derived: an address may hold a password.
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("Proxies(…)")
    }
}

impl fmt::Display for Proxy {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (scheme, host) = (self.url.scheme(), self.url.host_str().unwrap_or_default());
        let port = self.url.port_or_known_default().unwrap_or_default();
        write!(out, "the proxy {scheme}://{host}:{port} (from {})", self.variable)
    }
}

const SCHEMES: [&str; 6] = ["http", "https", "socks4", "socks4a", "socks5", "socks5h"];

fn proxy_url(value: &str) -> Result<Url, String> {
    let value = value.trim();
    let with_scheme =
        if value.contains("://") { value.to_owned() } else { format!("http://{value}") };
    let mut url = Url::parse(&with_scheme).map_err(|error| error.to_string())?;
    if !SCHEMES.contains(&url.scheme()) {
        return Err(format!("{}:// is not spoken", url.scheme()));
    }
    if url.host_str().is_none_or(str::is_empty) {
        return Err("it has no host".to_owned());
    }
    if url.scheme().starts_with("socks") && url.port().is_none() {
        url.set_port(Some(1080)).map_err(|()| "it can have no port".to_owned())?;
    }
    Ok(url)
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

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    /// How an address is reached where these are set.
    fn route(set: &[(&str, &str)], url: &str) -> String {
        let env = |name: &str| {
            let (_, value) = set.iter().find(|(set, _)| *set == name)?;
            Some((*value).to_owned())
        };
        match Proxies::new(&env).route(&url.parse().unwrap()) {
            Ok(Route::Direct) => "direct".to_owned(),
            Ok(Route::System) => "system".to_owned(),
            Ok(Route::Proxy(proxy)) => proxy.to_string(),
            Err(problem) => problem,
        }
    }

    #[test]
    fn loopback_is_reached_without_a_proxy() {
        let set = [("ALL_PROXY", "p:1")];
        for (url, is_loopback) in [
            ("http://localhost:8080/v1", true),
            ("http://127.0.0.1/v1", true),
            ("http://127.8.9.1/v1", true),
            ("http://[::1]:80/v1", true),
            ("http://192.168.1.4/v1", false),
            ("https://api.example.com/v1", false),
            ("https://localhost.example.com/v1", false),
        ] {
            assert_eq!(route(&set, url) == "direct", is_loopback, "{url}");
        }
    }

    #[test]
    fn the_first_variable_for_the_scheme_names_the_proxy() {
        let (plain, secure) = ("http://example.com/v1", "https://example.com/v1");
        for (set, url, expected) in [
            (&[][..], plain, "system"),
            (&[("HTTP_PROXY", "p:1")], plain, "the proxy http://p:1 (from HTTP_PROXY)"),
            (&[("HTTP_PROXY", "p:1")], secure, "direct"),
            (&[("https_proxy", "https://p")], secure, "the proxy https://p:443 (from https_proxy)"),
            (
                &[("HTTPS_PROXY", " "), ("all_proxy", "socks5://user:pass-0123@p")],
                secure,
                "the proxy socks5://p:1080 (from all_proxy)",
            ),
            (&[("ALL_PROXY", "p:1"), ("no_proxy", "example.com")], secure, "direct"),
            (&[("ALL_PROXY", "p:1"), ("NO_PROXY", "*")], secure, "direct"),
            (&[("ALL_PROXY", "p:1"), ("NO_PROXY", "x.org, * ")], "http://192.0.2.1:8/v1", "direct"),
            (
                &[("ALL_PROXY", "p:1"), ("NO_PROXY", "other.com")],
                secure,
                "the proxy http://p:1 (from ALL_PROXY)",
            ),
        ] {
            assert_eq!(route(set, url), expected, "{set:?} {url}");
        }
    }

    #[test]
    fn a_value_that_cannot_be_used_is_refused_by_name_and_without_its_password() {
        for (value, problem) in [
            ("ftp://user:pass-0123@p:1", "ftp:// is not spoken"),
            ("socks://p:1", "socks:// is not spoken"),
            ("http://user:pass-0123@p:port", "invalid port number"),
            ("http://", "empty host"),
            ("://p", "relative URL without a base"),
        ] {
            let told = route(&[("HTTPS_PROXY", value)], "https://example.com");
            let expected =
                format!("the environment variable HTTPS_PROXY names no usable proxy: {problem}; ");
            assert!(told.starts_with(&expected), "{told}");
            assert!(!told.contains("pass-0123"), "{told}");
            assert_eq!(route(&[("HTTPS_PROXY", value)], "https://localhost"), "direct");
        }
    }
}
