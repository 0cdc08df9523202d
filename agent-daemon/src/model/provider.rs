//! One provider: what its configuration says, and what that comes to.
//!
//! Owns: the configuration's types, the address and headers of a provider's requests, and what is
//! wrong with a provider that cannot be asked.
//! Never: sends anything.

use std::{
    collections::{BTreeMap, HashSet},
    fmt,
};

use reqwest::{
    Url,
    header::{HeaderMap, HeaderName, HeaderValue},
};
use serde::{Deserialize, Deserializer, Serialize, de::Error as _};

use super::{
    model_config::ModelConfig,
    secret::{Secret, Secrets},
    wire_format::WireFormat,
};

/// A table `[providers.NAME]` of the configuration file.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ProviderConfig {
    /// The wire format that it speaks.
    #[serde(with = "super::formats")]
    pub api: &'static WireFormat,
    /// Where it is. An OpenAI one includes `/v1`, an Anthropic one does not.
    pub base_url: String,
    /// The environment variable that holds the key; the key itself is never in a file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub api_key_env: Option<String>,
    /// Headers to send besides, or instead of, the usual ones.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub headers: Option<BTreeMap<String, String>>,
    /// The models. With none, any id is passed on to the provider.
    #[serde(default, skip_serializing_if = "Vec::is_empty", deserialize_with = "distinct")]
    pub models: Vec<ModelConfig>,
}

/// A list in which every model can be told from the others.
fn distinct<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<ModelConfig>, D::Error> {
    let models = Vec::<ModelConfig>::deserialize(deserializer)?;
    let mut ids = HashSet::new();
    match models.iter().find(|model| !ids.insert(&model.id)) {
        Some(twice) => Err(D::Error::custom(format!("`{}` is described twice", twice.id))),
        None => Ok(models),
    }
}

/// A provider that can be asked.
pub(super) struct Provider {
    /// The first half of its models' names.
    pub(super) name: String,
    pub(super) api: &'static WireFormat,
    /// Where its requests go, query included.
    pub(super) url: Url,
    /// Where it is, for people: without user, password and query.
    pub(super) shown_url: String,
    /// Which setting says where it is, for people.
    pub(super) address_setting: String,
    /// The variable that holds its key, for people.
    pub(super) key_variable: Option<String>,
    /// All headers of its requests, the key among them.
    pub(super) headers: HeaderMap,
    /// What its errors must not show.
    pub(super) secrets: Secrets,
}

impl Provider {
    /// Checks a configuration and completes it with the key from the environment.
    ///
    /// # Errors
    /// Why the provider cannot be asked, and what to do.
    pub(super) fn new(
        name: &str,
        config: &ProviderConfig,
        address_setting: String,
        env: &dyn Fn(&str) -> Option<String>,
    ) -> Result<Self, String> {
        let mut url = base_url(&config.base_url)
            .map_err(|problem| format!("{address_setting} is not usable: {problem}"))?;
        let mut secrets = Secrets::default();
        secrets.add(url.password().unwrap_or_default());
        // `api-version` and the like may be shown.
        let is_secret = |name: &str| {
            let name = name.to_lowercase();
            ["key", "token", "secret"].iter().any(|word| name.contains(word))
        };
        for (_, value) in url.query_pairs().filter(|(name, _)| is_secret(name)) {
            secrets.add(&value);
        }
        let shown_url = shown(&url);
        let base = url.path().trim_end_matches('/').to_owned();
        url.set_path(&format!("{base}{}", (config.api.path)(&base)));
        let key = match &config.api_key_env {
            None => None,
            Some(variable) => Some(key_from(variable, env)?),
        };
        if let Some((value, _)) = &key {
            secrets.add(value);
        }
        let key = key.as_ref().map(|(_, secret)| secret);
        let mut headers = usual_headers(config.api, &url, key)
            .map_err(|()| unusable_key(config.api_key_env.as_deref().unwrap_or_default()))?;
        for (header, value) in config.headers.iter().flatten() {
            secrets.add(value);
            let (header, value) = custom_header(name, header, value)?;
            headers.insert(header, value);
        }
        Ok(Provider {
            name: name.to_owned(),
            api: config.api,
            url,
            shown_url,
            address_setting,
            key_variable: config.api_key_env.clone(),
            headers,
            secrets,
        })
    }
}

impl fmt::Debug for Provider {
    /// Not derived: the address may hold a password.
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "Provider({} at {})", self.name, self.shown_url)
    }
}

fn base_url(text: &str) -> Result<Url, String> {
    let begin = "it must begin with http:// or https://";
    let url = Url::parse(text.trim()).map_err(|error| format!("{error}; {begin}"))?;
    match url.scheme() {
        "http" | "https" => Ok(url),
        _ => Err(begin.to_owned()),
    }
}

fn shown(url: &Url) -> String {
    let mut shown = url.clone();
    // Both fail only for addresses without a host, which http and https do not have.
    let _ = shown.set_username("");
    let _ = shown.set_password(None);
    shown.set_query(None);
    shown.set_fragment(None);
    shown.as_str().trim_end_matches('/').to_owned()
}

fn key_from(
    variable: &str,
    env: &dyn Fn(&str) -> Option<String>,
) -> Result<(String, Secret), String> {
    let value = env(variable).filter(|value| !value.trim().is_empty());
    let value = value.ok_or_else(|| {
        format!("the environment variable {variable}, which holds its key, is not set")
    })?;
    let secret = Secret::new(&value);
    Ok((value, secret))
}

fn unusable_key(variable: &str) -> String {
    format!("the key in the environment variable {variable} has characters that no key can have")
}

fn usual_headers(api: &WireFormat, url: &Url, key: Option<&Secret>) -> Result<HeaderMap, ()> {
    let mut headers = HeaderMap::new();
    headers.insert("content-type", HeaderValue::from_static("application/json"));
    headers.insert("accept", HeaderValue::from_static("text/event-stream, application/json"));
    if let Some(key) = key {
        headers.insert(api.key_header, key.header(api.key_prefix).map_err(|_| ())?);
    }
    for (name, value) in (api.headers)(url) {
        headers.insert(name, HeaderValue::from_static(value));
    }
    Ok(headers)
}

fn custom_header(
    provider: &str,
    header: &str,
    value: &str,
) -> Result<(HeaderName, HeaderValue), String> {
    let name = HeaderName::try_from(header)
        .map_err(|_| format!("`{header}` in [providers.{provider}.headers] is no header name"))?;
    // The value may be a key and is not repeated.
    let value = Secret::new(value).header("").map_err(|_| {
        format!("the value of `{header}` in [providers.{provider}.headers] cannot be sent")
    })?;
    Ok((name, value))
}

#[cfg(test)]
mod tests {
    use crate::model::{model_config::ModelConfig, openai_completions, test_requests::model_at};

    #[test]
    fn a_key_in_an_address_is_a_secret_however_it_is_spelled() {
        for name in ["key", "api_key", "apiKey", "API-KEY", "accessToken", "client_secret"] {
            let url = format!("https://example.com/v1?{name}=value-0123");
            let model = model_at(&openai_completions::FORMAT, &url, ModelConfig::default());
            let provider = &model.provider;
            let told = provider.secrets.redact(provider.url.as_str());
            assert!(!told.contains("value-0123"), "{told}");
        }
    }
}
