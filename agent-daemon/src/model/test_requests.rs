//! Models and requests for the tests of this directory.

use std::{sync::Arc, time::Duration};

use agent_core::{CancelSignal, Message, ModelRequest, ThinkingLevel, ToolSpec};
use serde_json::{Value, json};

use super::{
    http::Http,
    model_config::ModelConfig,
    provider::{Provider, ProviderConfig},
    proxy::Proxies,
    remote::RemoteModel,
    wire_format::WireFormat,
};

/// The model `p/m` at an address, with a key.
pub(super) fn model_at(
    api: &'static WireFormat,
    base_url: &str,
    config: ModelConfig,
) -> RemoteModel {
    let provider = ProviderConfig {
        api,
        base_url: base_url.to_owned(),
        api_key_env: Some("P_KEY".to_owned()),
        headers: None,
        models: Vec::new(),
    };
    let env = |_: &str| Some(KEY.to_owned());
    let setting = "base_url of [providers.p]".to_owned();
    let provider =
        Provider::new("p", &provider, setting, &env).expect("a test's provider is right");
    RemoteModel {
        name: "p/m".to_owned(),
        provider: Arc::new(provider),
        config: ModelConfig { id: "m".to_owned(), ..config },
        http: Arc::new(http(Duration::from_secs(300), &|name| std::env::var(name).ok())),
    }
}

/// Connections with a limit for silence, and with the proxies of an environment.
pub(super) fn http(idle_timeout: Duration, env: &dyn Fn(&str) -> Option<String>) -> Http {
    Http::new(idle_timeout, Arc::new(Proxies::new(env)))
}

/// What no error may show.
pub(super) const KEY: &str = "key-0123456789";

pub(super) fn thinking_model(api: &'static WireFormat) -> RemoteModel {
    thinking_model_at(api, "http://127.0.0.1:9", "m")
}

/// The model `p/m`, which its server at an address knows by an id.
pub(super) fn thinking_model_at(api: &'static WireFormat, base_url: &str, id: &str) -> RemoteModel {
    let config = ModelConfig { thinking: true, ..ModelConfig::default() };
    let mut model = model_at(api, base_url, config);
    model.config.id = id.to_owned();
    model
}

pub(super) fn seeing_model(api: &'static WireFormat) -> RemoteModel {
    model_at(api, "http://127.0.0.1:9", ModelConfig { images: true, ..ModelConfig::default() })
}

pub(super) fn request(messages: impl IntoIterator<Item = Message>) -> ModelRequest {
    request_of("", messages, [])
}

pub(super) fn request_of(
    system_prompt: &str,
    messages: impl IntoIterator<Item = Message>,
    tools: impl IntoIterator<Item = ToolSpec>,
) -> ModelRequest {
    ModelRequest {
        system_prompt: system_prompt.into(),
        messages: messages.into_iter().map(Arc::new).collect(),
        tools: tools.into_iter().collect(),
        thinking_level: ThinkingLevel::Off,
        signal: CancelSignal::never(),
    }
}

pub(super) fn bash() -> ToolSpec {
    tool("bash", &["command"])
}

/// A tool whose arguments are all required strings.
pub(super) fn tool(name: &str, arguments: &[&str]) -> ToolSpec {
    let properties: serde_json::Map<_, _> =
        arguments.iter().map(|name| ((*name).to_owned(), json!({ "type": "string" }))).collect();
    ToolSpec {
        name: name.to_owned(),
        description: format!("The {name} tool."),
        parameters: json!({ "type": "object", "properties": properties, "required": arguments }),
    }
}

/// The entries of a list, one a line.
pub(super) fn lines(list: &Value) -> String {
    list.as_array().into_iter().flatten().map(|entry| format!("{entry}\n")).collect()
}
