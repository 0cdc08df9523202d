//! All models that there are: those of the configuration, those of the environment, and the
//! built-in one.
//!
//! Owns: finding a model by its name `PROVIDER/ID`, saying why one cannot be used, and the list for
//! people.
//! Never: asks a provider for anything; making a catalog opens no connection and reads no file.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use agent_core::Model;
use agent_protocol::ModelDescription;

use super::{
    anthropic_messages,
    http::Http,
    model_config::ModelConfig,
    offline::{self, OfflineModel},
    openai_completions, openai_responses,
    provider::{Provider, ProviderConfig},
    proxy::Proxies,
    remote::RemoteModel,
    unavailable::ModelUnavailable,
    wire_format::WireFormat,
};

/// The models by provider.
pub struct ModelCatalog {
    providers: BTreeMap<String, CatalogEntry>,
    http: Arc<Http>,
}

/// One provider, usable or not.
struct CatalogEntry {
    config: ProviderConfig,
    /// Made from the environment, without a list of models.
    is_implicit: bool,
    /// The provider, or why it cannot be asked.
    provider: Result<Arc<Provider>, String>,
}

/// How long a connection may be silent unless told otherwise. A local server may read a long
/// prompt for minutes.
const IDLE_TIMEOUT: Duration = Duration::from_secs(300);

/// The built-in model's provider.
const OFFLINE: &str = "offline";

/// A provider that the environment alone can make.
struct Implicit {
    name: &'static str,
    key: &'static str,
    address: &'static str,
    default_address: &'static str,
    /// What it speaks.
    api: &'static WireFormat,
    /// The host that is surely it.
    host: &'static str,
    /// What is surely spoken at any other host.
    api_elsewhere: &'static WireFormat,
}

const IMPLICIT: [Implicit; 2] = [
    Implicit {
        name: "openai",
        key: "OPENAI_API_KEY",
        address: "OPENAI_BASE_URL",
        default_address: "https://api.openai.com/v1",
        // OpenAI itself keeps the thoughts of its models only in the newer API; what else answers at
        // an `OPENAI_BASE_URL` speaks the older one.
        api: &openai_responses::FORMAT,
        host: "//api.openai.com",
        api_elsewhere: &openai_completions::FORMAT,
    },
    Implicit {
        name: "anthropic",
        key: "ANTHROPIC_API_KEY",
        address: "ANTHROPIC_BASE_URL",
        default_address: "https://api.anthropic.com",
        api: &anthropic_messages::FORMAT,
        host: "//api.anthropic.com",
        api_elsewhere: &anthropic_messages::FORMAT,
    },
];

impl ModelCatalog {
    /// The configured providers, and those that the environment makes unless one of that name is
    /// configured. What is wrong with one shows when it is asked for.
    pub fn new(
        configured: BTreeMap<String, ProviderConfig>,
        env: &dyn Fn(&str) -> Option<String>,
    ) -> Self {
        let mut providers = BTreeMap::new();
        let proxies = Arc::new(Proxies::new(env));
        let usable = |name: &str, config: &ProviderConfig, setting: String| {
            let provider = Provider::new(name, config, setting, env)?;
            proxies.route(&provider.url)?;
            Ok(Arc::new(provider))
        };
        for (name, config) in configured {
            let setting = format!("base_url of [providers.{name}]");
            let provider = usable_name(&name).and_then(|()| usable(&name, &config, setting));
            providers.insert(name, CatalogEntry { config, is_implicit: false, provider });
        }
        for implicit in &IMPLICIT {
            if let Some(config) = implicit.config(env) {
                providers.entry(implicit.name.to_owned()).or_insert_with(|| {
                    let setting = implicit.address.to_owned();
                    let provider = usable(implicit.name, &config, setting);
                    CatalogEntry { config, is_implicit: true, provider }
                });
            }
        }
        ModelCatalog { providers, http: Arc::new(Http::new(IDLE_TIMEOUT, proxies)) }
    }

    /// The same catalog with another limit for silence on a connection.
    pub(crate) fn with_idle_timeout(mut self, limit: Duration) -> Self {
        self.http = Arc::new(Http::new(limit, self.http.proxies.clone()));
        self
    }

    /// The model with the name `PROVIDER/ID`. An ID may contain slashes.
    ///
    /// # Errors
    /// There is none, or it cannot be used; the reason says what to do.
    pub fn get(&self, name: &str) -> Result<Arc<dyn Model>, ModelUnavailable> {
        self.find(name).map_err(|reason| ModelUnavailable { model: name.to_owned(), reason })
    }

    fn find(&self, name: &str) -> Result<Arc<dyn Model>, String> {
        if name == offline::NAME {
            return Ok(Arc::new(OfflineModel { advice: self.advice() }));
        }
        let Some((provider, id)) = name.split_once('/').filter(|(_, id)| !id.is_empty()) else {
            return Err(format!("a model's name is PROVIDER/ID, such as {}", offline::NAME));
        };
        if provider == OFFLINE {
            let only = offline::NAME;
            return Err(format!("its provider has no model `{id}`; it has only {only}"));
        }
        let Some(entry) = self.providers.get(provider) else {
            return Err(self.unknown_provider(provider));
        };
        let config = entry.model(id)?;
        let provider = entry.provider.clone()?;
        let http = self.http.clone();
        Ok(Arc::new(RemoteModel { name: name.to_owned(), provider, config, http }))
    }

    fn unknown_provider(&self, provider: &str) -> String {
        let names = self.providers.keys().map(String::as_str).filter(|name| *name != OFFLINE);
        let known: Vec<_> = names.chain([OFFLINE]).collect();
        let advice = match IMPLICIT.iter().find(|implicit| implicit.name == provider) {
            Some(implicit) => format!("set {}, or configure", implicit.key),
            None => "configure".to_owned(),
        };
        format!(
            "there is no provider `{provider}` (there are: {}); {advice} [providers.{provider}]",
            known.join(", "),
        )
    }

    /// Every model that is configured, in the order of the providers' names, the built-in one last.
    pub fn list(&self) -> Vec<ModelDescription> {
        let mut list = Vec::new();
        for (name, entry) in &self.providers {
            if entry.config.models.is_empty() {
                list.push(entry.describe(name, &entry.presumed("*")));
            }
            list.extend(entry.config.models.iter().map(|model| entry.describe(name, model)));
        }
        list.push(ModelDescription {
            id: offline::NAME.to_owned(),
            provider: OFFLINE.to_owned(),
            api: OFFLINE.to_owned(),
            context_window: None,
            max_output_tokens: None,
            images: false,
            thinking: false,
            available: true,
            reason: None,
        });
        list
    }

    /// The model for when none is chosen: the first one configured that can be used, else the
    /// built-in one.
    pub fn default_model(&self) -> String {
        let usable = self.providers.iter().filter(|(_, entry)| entry.provider.is_ok());
        let first = usable
            .flat_map(|(name, entry)| entry.config.models.iter().map(move |model| (name, model)));
        let mut names = first.map(|(name, model)| format!("{name}/{}", model.id));
        names.next().unwrap_or_else(|| offline::NAME.to_owned())
    }

    /// The names of all environment variables that hold keys, set or not, sorted: no child process
    /// of a tool may see them.
    pub(crate) fn secret_variables(&self) -> Vec<String> {
        let configured =
            self.providers.values().filter_map(|entry| entry.config.api_key_env.clone());
        let mut names: Vec<_> =
            configured.chain(IMPLICIT.iter().map(|implicit| implicit.key.to_owned())).collect();
        names.sort_unstable();
        names.dedup();
        names
    }

    /// What the built-in model says about getting a real one.
    fn advice(&self) -> String {
        let usable = self.list().into_iter().find(|model| model.available && model.api != OFFLINE);
        match usable {
            Some(model) => format!(
                "A real one is set up: `agent-client prompt --model {}` chooses it, and so does \
                 setConfig.",
                model.id.replace('*', "ID"),
            ),
            None => {
                "For a real one set OPENAI_API_KEY or ANTHROPIC_API_KEY, or describe a server in \
                     [providers.NAME] of config.toml, before the daemon starts; \
                     `agent-client prompt --model PROVIDER/ID` then chooses it."
                    .to_owned()
            }
        }
    }
}

impl CatalogEntry {
    /// What is known of a model.
    fn model(&self, id: &str) -> Result<ModelConfig, String> {
        if self.config.models.is_empty() {
            return Ok(self.presumed(id));
        }
        let known = self.config.models.iter().find(|model| model.id == id);
        known.cloned().ok_or_else(|| {
            let ids: Vec<_> = self.config.models.iter().map(|model| model.id.as_str()).collect();
            format!("its provider has no model `{id}` (it has: {})", ids.join(", "))
        })
    }

    /// What is taken for granted of a model that nobody described.
    fn presumed(&self, id: &str) -> ModelConfig {
        ModelConfig {
            id: id.to_owned(),
            context_window: None,
            max_output_tokens: None,
            // Refusing what might work would be worse than the server's own refusal.
            images: true,
            thinking: self.is_implicit && (self.config.api.thinks)(id),
        }
    }

    fn describe(&self, provider: &str, model: &ModelConfig) -> ModelDescription {
        ModelDescription {
            id: format!("{provider}/{}", model.id),
            provider: provider.to_owned(),
            api: self.config.api.name.to_owned(),
            context_window: model.context_window,
            max_output_tokens: model.max_output_tokens,
            images: model.images,
            thinking: model.thinking,
            available: self.provider.is_ok(),
            reason: self.provider.as_ref().err().cloned(),
        }
    }
}

impl Implicit {
    /// The provider that the environment makes, if it holds a key.
    fn config(&self, env: &dyn Fn(&str) -> Option<String>) -> Option<ProviderConfig> {
        let set = |name: &str| env(name).filter(|value| !value.trim().is_empty());
        set(self.key)?;
        let base_url = set(self.address).unwrap_or_else(|| self.default_address.to_owned());
        Some(ProviderConfig {
            api: if base_url.contains(self.host) { self.api } else { self.api_elsewhere },
            base_url,
            api_key_env: Some(self.key.to_owned()),
            headers: None,
            models: Vec::new(),
        })
    }
}

fn usable_name(name: &str) -> Result<(), String> {
    if name == OFFLINE {
        return Err(format!("the provider name `{OFFLINE}` is taken by the built-in model"));
    }
    if name.contains('/') || name.trim().is_empty() {
        return Err(format!("`{name}` is no provider name: it must not be empty or contain `/`"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    const CONFIG: &str = r#"
        [local]
        api = "openai-completions"
        base_url = "http://127.0.0.1:8080/v1"
        models = [
            { id = "gemma", context_window = 32768, max_output_tokens = 4096 },
            { id = "org/gemma:2", images = true, thinking = true },
        ]
        [any]
        api = "anthropic-messages"
        base_url = "https://user:pass-0123@example.com?api_key=query-0123&api-version=2024-10-21"
        headers = { "x-team" = "blue-0123" }
        [locked]
        api = "openai-responses"
        base_url = "https://example.com/v1"
        api_key_env = "LOCKED_KEY"
        models = [{ id = "m" }]
        [nowhere]
        api = "openai-completions"
        base_url = "ftp://example.com"
        [bare]
        api = "openai-completions"
        base_url = "127.0.0.1:8080/v1"
    "#;

    fn catalog(config: &str, env: &[(&str, &str)]) -> ModelCatalog {
        let env = |name: &str| {
            env.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned())
        };
        ModelCatalog::new(toml::from_str(config).unwrap(), &env)
    }

    /// The model that a name finds, or why not.
    fn found(catalog: &ModelCatalog, name: &str) -> String {
        match catalog.get(name) {
            Ok(model) => format!("is {}", model.name()),
            Err(unavailable) => {
                assert_eq!(unavailable.model, name);
                unavailable.reason
            }
        }
    }

    #[test]
    fn a_name_finds_its_model_or_says_why_not() {
        let catalog = catalog(CONFIG, &[("ANTHROPIC_API_KEY", "a-key"), ("OPENAI_API_KEY", " ")]);
        for (name, expected) in [
            ("local/gemma", "is local/gemma"),
            ("local/org/gemma:2", "is local/org/gemma:2"),
            ("local/other", "its provider has no model `other` (it has: gemma, org/gemma:2)"),
            ("any/thing/else", "is any/thing/else"),
            ("anthropic/claude-opus-4-6", "is anthropic/claude-opus-4-6"),
            ("offline/demo", "is offline/demo"),
            ("offline/other", "its provider has no model `other`; it has only offline/demo"),
            (
                "openai/gpt-5",
                "there is no provider `openai` (there are: anthropic, any, bare, local, locked, \
                 nowhere, offline); set OPENAI_API_KEY, or configure [providers.openai]",
            ),
            (
                "other/m",
                "there is no provider `other` (there are: anthropic, any, bare, local, locked, \
                 nowhere, offline); configure [providers.other]",
            ),
            ("gemma", "a model's name is PROVIDER/ID, such as offline/demo"),
            ("local/", "a model's name is PROVIDER/ID, such as offline/demo"),
            ("locked/m", "the environment variable LOCKED_KEY, which holds its key, is not set"),
            (
                "nowhere/m",
                "base_url of [providers.nowhere] is not usable: it must begin with http:// or https://",
            ),
            (
                "bare/m",
                "base_url of [providers.bare] is not usable: relative URL without a base; it must \
                 begin with http:// or https://",
            ),
        ] {
            assert_eq!(found(&catalog, name), expected, "{name}");
        }
    }

    #[test]
    fn a_proxy_that_cannot_be_used_makes_its_models_unavailable() {
        let catalog =
            catalog(CONFIG, &[("https_proxy", "ftp://user:pass-0123@p"), ("LOCKED_KEY", "k")]);
        assert_eq!(
            found(&catalog, "any/m"),
            "the environment variable https_proxy names no usable proxy: ftp:// is not spoken; \
             write it as http://HOST:PORT or socks5h://HOST:PORT, or unset it"
        );
        assert_eq!(found(&catalog, "local/gemma"), "is local/gemma");
    }

    #[test]
    fn what_cannot_be_sent_is_noticed_without_showing_it() {
        let config = r#"
            [a]
            api = "openai-completions"
            base_url = "http://localhost/v1"
            api_key_env = "A_KEY"
            [b]
            api = "openai-completions"
            base_url = "http://localhost/v1"
            headers = { "not a name" = "x" }
            [c]
            api = "openai-completions"
            base_url = "http://localhost/v1"
            headers = { "x-token" = "secret\nvalue" }
            [offline]
            api = "openai-completions"
            base_url = "http://localhost/v1"
            ["a/b"]
            api = "openai-completions"
            base_url = "http://localhost/v1"
        "#;
        let catalog = catalog(config, &[("A_KEY", "secret\nvalue")]);
        let reasons: Vec<_> = catalog
            .list()
            .into_iter()
            .filter_map(|model| Some((model.id, model.reason?)))
            .collect();
        let expected = [
            (
                "a/*",
                "the key in the environment variable A_KEY has characters that no key can have",
            ),
            ("a/b/*", "`a/b` is no provider name: it must not be empty or contain `/`"),
            ("b/*", "`not a name` in [providers.b.headers] is no header name"),
            ("c/*", "the value of `x-token` in [providers.c.headers] cannot be sent"),
            ("offline/*", "the provider name `offline` is taken by the built-in model"),
        ];
        let expected = expected.map(|(id, reason)| (id.to_owned(), reason.to_owned()));
        assert_eq!(reasons, expected);
        assert_eq!(found(&catalog, "offline/demo"), "is offline/demo");
    }

    #[test]
    fn the_list_shows_abilities_and_what_is_missing() {
        let catalog =
            catalog(CONFIG, &[("OPENAI_API_KEY", "k"), ("OPENAI_BASE_URL", "http://h/v1")]);
        let rows: Vec<_> = catalog
            .list()
            .iter()
            .map(|model| {
                let ModelDescription { id, api, images, thinking, available, .. } = model;
                format!("{id} {api} {:?} {images} {thinking} {available}", model.context_window)
            })
            .collect();
        let expected = [
            "any/* anthropic-messages None true false true",
            "bare/* openai-completions None true false false",
            "local/gemma openai-completions Some(32768) false false true",
            "local/org/gemma:2 openai-completions None true true true",
            "locked/m openai-responses None false false false",
            "nowhere/* openai-completions None true false false",
            "openai/* openai-completions None true false true",
            "offline/demo offline None false false true",
        ];
        assert_eq!(rows, expected);
    }

    #[test]
    fn the_environment_alone_makes_providers() {
        let env = [
            ("OPENAI_API_KEY", "k"),
            ("ANTHROPIC_API_KEY", "k"),
            ("ANTHROPIC_BASE_URL", "http://h"),
        ];
        let catalog = catalog("", &env);
        let apis: Vec<_> = catalog.list().into_iter().map(|model| (model.id, model.api)).collect();
        let expected = [
            ("anthropic/*", "anthropic-messages"),
            ("openai/*", "openai-responses"),
            ("offline/demo", "offline"),
        ];
        assert_eq!(apis, expected.map(|(id, api)| (id.to_owned(), api.to_owned())));
        let addresses: Vec<_> = catalog
            .providers
            .values()
            .map(|entry| entry.provider.as_ref().unwrap().url.to_string())
            .collect();
        assert_eq!(addresses, ["http://h/v1/messages", "https://api.openai.com/v1/responses"]);
    }

    #[test]
    fn the_first_usable_model_is_the_default() {
        assert_eq!(catalog(CONFIG, &[]).default_model(), "local/gemma");
        // Which one of a provider that was not asked for its models is anybody's guess.
        assert_eq!(catalog("", &[("OPENAI_API_KEY", "k")]).default_model(), "offline/demo");
    }

    #[test]
    fn secrets_stay_where_they_are() {
        let catalog = catalog(CONFIG, &[("LOCKED_KEY", "key-0123456789")]);
        assert_eq!(
            catalog.secret_variables(),
            ["ANTHROPIC_API_KEY", "LOCKED_KEY", "OPENAI_API_KEY"]
        );
        for entry in catalog.providers.values() {
            if let Ok(provider) = &entry.provider {
                let shown = format!("{provider:?} {:?} {:?}", provider.headers, provider.secrets);
                for secret in ["key-0123456789", "blue-0123", "pass-0123"] {
                    assert!(!shown.contains(secret), "{shown}");
                }
            }
        }
        let any = catalog.providers["any"].provider.as_ref().unwrap();
        assert_eq!(
            any.secrets.redact(any.url.as_str()),
            "https://user:[secret]@example.com/v1/messages?api_key=[secret]&api-version=2024-10-21"
        );
    }
}
