//! `config` and `reset`.

use agent_core::Config;
use agent_protocol::{
    GetState, GetStateParams, GetStateResult, MessagesWanted, Method, Reset, SeqResult,
    SessionParams, SetConfig, harmless::one_line,
};
use serde_json::{Map, Value};

use crate::{
    context::Context,
    exit::{Exit, Failure},
    output::{line, remark, write},
};

pub(super) async fn config(context: &Context, settings: Vec<String>) -> Result<Exit, Failure> {
    let mut params = change(&settings)?;
    if !params.is_empty() {
        let (client, session_id) = context.session().await?;
        params.insert("sessionId".to_owned(), session_id.into());
        return context.print(&client, SetConfig::NAME, &params, |config| shown(&config)).await;
    }
    let (client, session_id) = match context.existing().await? {
        Ok(found) => found,
        Err(none) => {
            let exit = context.nothing(&none, Some("null"))?;
            remark(&keys());
            return Ok(exit);
        }
    };
    let (messages, session_id) = (Some(MessagesWanted::None), Some(session_id));
    let params = GetStateParams { messages, session_id, ..GetStateParams::default() };
    let GetStateResult { state, .. } = client.call::<GetState>(&params).await?;
    if context.json {
        line(&serde_json::to_string(&*state.config).unwrap_or_default())?;
    } else {
        write(&shown(&state.config))?;
    }
    Ok(Exit::Done)
}

pub(super) async fn reset(context: &Context) -> Result<Exit, Failure> {
    let (client, session_id) = match context.existing().await? {
        Ok(found) => found,
        Err(none) => return context.nothing(&none, Some("null")),
    };
    let params = SessionParams { session_id: Some(session_id), ..SessionParams::default() };
    let told = |_: SeqResult| "the transcript is empty".to_owned();
    context.tell(&client, Reset::NAME, &params, told).await
}

fn change(settings: &[String]) -> Result<Map<String, Value>, Failure> {
    settings.iter().map(|setting| one(setting)).collect()
}

fn one(setting: &str) -> Result<(String, Value), Failure> {
    let (key, value) = setting.split_once('=').ok_or_else(|| {
        let example = "such as model=offline/demo";
        Failure::Usage(format!("`{setting}` is no KEY=VALUE, {example}; {}", keys()))
    })?;
    let key = camel_case(key);
    // The daemon knows the keys and their values; only two are not texts.
    let value = match key.as_str() {
        "tools" => {
            let names = value.split(',').map(str::trim).filter(|name| !name.is_empty());
            names.map(Value::from).collect()
        }
        "maxTurns" => value.parse::<u32>().map(Value::from).unwrap_or_else(|_| value.into()),
        _ => value.into(),
    };
    Ok((key, value))
}

/// The keys, for people who have no session to look at.
fn keys() -> String {
    let keys = [
        "model",
        "thinkingLevel",
        "systemPrompt",
        "tools",
        "steeringMode",
        "followUpMode",
        "whenIdle",
        "maxTurns",
        "toolExecution",
    ];
    format!("the keys are {}", keys.join(", "))
}

/// `steering-mode` and `steering_mode` are how the command line and the file write `steeringMode`.
fn camel_case(key: &str) -> String {
    let mut words = key.split(['-', '_']);
    let mut name = words.next().unwrap_or_default().to_owned();
    for word in words {
        let mut letters = word.chars();
        name.extend(letters.next().map(|letter| letter.to_ascii_uppercase()));
        name.push_str(letters.as_str());
    }
    name
}

fn shown(config: &Config) -> String {
    let fields = serde_json::to_value(config).unwrap_or_default();
    let lines = fields.as_object().into_iter().flatten().map(|(name, value)| {
        let text = match value {
            Value::String(text) => one_line(text),
            Value::Array(items) => {
                let items: Vec<_> = items.iter().filter_map(Value::as_str).map(one_line).collect();
                items.join(",")
            }
            other => other.to_string(),
        };
        format!("{name}={text}\n")
    });
    lines.collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn settings_go_by_the_wire_s_names_or_the_file_s() {
        for (setting, expected) in [
            ("model=a/b=c", r#"{"model":"a/b=c"}"#),
            ("steering-mode=all", r#"{"steeringMode":"all"}"#),
            ("follow_up_mode=all", r#"{"followUpMode":"all"}"#),
            ("maxTurns=3", r#"{"maxTurns":3}"#),
            ("maxTurns=few", r#"{"maxTurns":"few"}"#),
            ("tools=read, bash", r#"{"tools":["read","bash"]}"#),
            ("tools=", r#"{"tools":[]}"#),
        ] {
            let params = change(&[setting.to_owned()]).unwrap();
            assert_eq!(serde_json::to_string(&params).unwrap(), expected);
        }
        assert!(matches!(change(&["model".to_owned()]), Err(Failure::Usage(_))));
    }
}
