//! One model as the configuration describes it. Plain data.

use serde::{Deserialize, Deserializer, Serialize, de::Error as _};

/// One entry of a provider's `models`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ModelConfig {
    /// The provider's own name of it.
    #[serde(deserialize_with = "filled")]
    pub id: String,
    /// How many tokens fit.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "at_least_one")]
    pub context_window: Option<u64>,
    /// How many tokens one answer may have.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "at_least_one")]
    pub max_output_tokens: Option<u64>,
    /// Whether it sees pictures.
    #[serde(default)]
    pub images: bool,
    /// Whether it can be told how much to think.
    #[serde(default)]
    pub thinking: bool,
}

fn filled<'de, D: Deserializer<'de>>(deserializer: D) -> Result<String, D::Error> {
    let text = String::deserialize(deserializer)?;
    if text.trim().is_empty() { Err(D::Error::custom("it must not be empty")) } else { Ok(text) }
}

fn at_least_one<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<u64>, D::Error> {
    match u64::deserialize(deserializer)? {
        0 => Err(D::Error::custom("it must be at least 1; leave it out if it is not known")),
        number => Ok(Some(number)),
    }
}
