//! The configuration file's shape.
//!
//! Owns: its tables, their defaults and the values that are allowed.
//! Never: takes a key that it does not know, or shows a value that may be a secret.

use std::{collections::BTreeMap, path::Path, sync::Arc};

use agent_core::{QueueMode, ThinkingLevel, ToolExecution, WhenIdle};
use serde::{Deserialize, Deserializer, de::Error as _};

use super::error::ConfigError;
use crate::{model::ProviderConfig, tool::ToolPolicy};

/// All that the file can say.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Settings {
    /// The model of new sessions; the built-in one if not given.
    pub model: Option<String>,
    /// Whom models can be asked of.
    pub providers: BTreeMap<String, ProviderConfig>,
    /// What new sessions begin with.
    pub session: SessionTable,
    /// What the tools may do.
    pub tools: ToolPolicy,
    /// How much and how long.
    pub limits: LimitsTable,
    /// How often failed model requests are sent again.
    pub retry: RetryTable,
    /// Who may use the WebSocket.
    pub websocket: WebSocketTable,
}

/// What new sessions begin with and `setConfig` can change later.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct SessionTable {
    /// Instructions that precede the transcript; ours if not given.
    pub system_prompt: Option<Arc<str>>,
    /// How much the model thinks.
    pub thinking_level: ThinkingLevel,
    /// How many steering messages are taken at a boundary.
    pub steering_mode: QueueMode,
    /// How many follow-ups are taken when the run would stop.
    pub follow_up_mode: QueueMode,
    /// What becomes of `steer` and `followUp` at idle.
    pub when_idle: WhenIdle,
    /// Whether calls of one batch may overlap.
    pub tool_execution: ToolExecution,
    /// The most turns that a run may have; 0 for no limit.
    pub max_turns: u32,
}

/// How much and how long.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct LimitsTable {
    /// How long tools may still take when a run was aborted.
    #[serde(deserialize_with = "between::<0, 600_000, _>")]
    pub abort_grace_ms: u64,
    /// How long a model may be silent. One whose server shows that it is still at work may take ten
    /// times as long to say something.
    #[serde(deserialize_with = "between::<1, 86_400_000, _>")]
    pub model_idle_timeout_ms: u64,
    /// The longest answer of a model that is taken: text, thoughts and calls. One that grows longer
    /// ends as an error that keeps what came.
    #[serde(deserialize_with = "between::<1_024, 1_073_741_824, _>")]
    pub max_answer_bytes: u64,
    /// The longest message that is read.
    #[serde(deserialize_with = "between::<1_024, 1_073_741_824, _>")]
    pub max_message_bytes: u64,
    /// The most sessions at one time.
    #[serde(deserialize_with = "between::<1, 10_000, _>")]
    pub max_sessions: u64,
}

/// How often failed model requests are sent again.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct RetryTable {
    /// 0 for never.
    #[serde(deserialize_with = "between::<0, 100, _>")]
    pub max_retries: u64,
    /// The first delay; doubled each time.
    #[serde(deserialize_with = "between::<1, 3_600_000, _>")]
    pub base_delay_ms: u64,
    /// The longest delay, also of those that a provider asks for.
    #[serde(deserialize_with = "between::<1, 86_400_000, _>")]
    pub max_delay_ms: u64,
}

/// Who may use the WebSocket.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct WebSocketTable {
    /// The web pages that may connect, such as `http://localhost:3000`; none unless given.
    pub allowed_origins: Vec<String>,
}

impl Default for LimitsTable {
    fn default() -> Self {
        LimitsTable {
            abort_grace_ms: 5_000,
            model_idle_timeout_ms: 300_000,
            max_answer_bytes: 16 << 20,
            max_message_bytes: 32 << 20,
            max_sessions: 256,
        }
    }
}

impl Default for RetryTable {
    fn default() -> Self {
        RetryTable { max_retries: 3, base_delay_ms: 1_000, max_delay_ms: 30_000 }
    }
}

/// Reads a file's text.
///
/// # Errors
/// What is wrong, with file, line and key.
pub(super) fn parse(path: &Path, text: &str) -> Result<Settings, ConfigError> {
    let in_file = |error: &toml::de::Error, key: Option<String>| ConfigError::InFile {
        file: path.to_owned(),
        line: error.span().map(|span| text[..span.start].matches('\n').count() + 1),
        problem: problem_of(error.message(), key.as_deref()),
        key,
    };
    let deserializer = toml::Deserializer::parse(text).map_err(|error| in_file(&error, None))?;
    let settings: Settings = serde_path_to_error::deserialize(deserializer).map_err(|error| {
        let key = Some(error.path().to_string()).filter(|key| key != ".");
        in_file(error.inner(), key)
    })?;
    if settings.retry.base_delay_ms > settings.retry.max_delay_ms {
        return Err(ConfigError::InFile {
            file: path.to_owned(),
            line: None,
            key: Some("retry.max_delay_ms".to_owned()),
            problem: format!("it must be at least base_delay_ms, {}", settings.retry.base_delay_ms),
        });
    }
    Ok(settings)
}

fn problem_of(message: &str, key: Option<&str>) -> String {
    let message = message.trim_end();
    match key.map(|key| key.split('.').collect::<Vec<_>>()).as_deref() {
        // What is wrong with a header is said without the header, which may be a key.
        Some(["providers", _, "headers", ..]) => {
            "expected a table of header names and texts".to_owned()
        }
        Some(["providers", _, "api_key", ..]) => format!(
            "{message}. A key is never in this file: put it into an environment variable and name \
             that with `api_key_env`"
        ),
        _ => message.to_owned(),
    }
}

fn between<'de, const MIN: u64, const MAX: u64, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<u64, D::Error> {
    let number = i64::deserialize(deserializer)?;
    match u64::try_from(number) {
        Ok(number) if (MIN..=MAX).contains(&number) => Ok(number),
        _ => Err(D::Error::custom(format!("{number} is not between {MIN} and {MAX}"))),
    }
}
