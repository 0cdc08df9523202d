//! A call's arguments as the tool's own type.
//!
//! Owns: the wording when they do not fit. Never: replaces the loop's check against the schema; it
//! is what remains for a caller without one, and for what a schema cannot say.

use agent_core::ToolError;
use serde::{Deserialize, Deserializer, de::DeserializeOwned, de::Error};
use serde_json::Value;

/// Reads the arguments.
///
/// # Errors
/// They do not fit; the error names the field.
pub(super) fn parse<T: DeserializeOwned>(arguments: Value) -> Result<T, ToolError> {
    serde_path_to_error::deserialize(arguments).map_err(|error| {
        let path = error.path().to_string();
        let place = if path == "." { String::new() } else { format!(" at `{path}`") };
        ToolError::new(format!("The arguments are wrong{place}: {}", error.inner()))
    })
}

/// A count from 1. Models write `10.0` and mean 10, and JSON Schema's `integer` agrees with them.
pub(super) fn whole_number<'de, D: Deserializer<'de>>(from: D) -> Result<Option<u64>, D::Error> {
    let Some(number) = Option::<serde_json::Number>::deserialize(from)? else { return Ok(None) };
    let whole = number.as_u64().or_else(|| {
        let float = number.as_f64().filter(|float| float.fract() == 0.0);
        // Above 2^53 a float no longer says which integer was meant.
        float.filter(|float| (1.0..=9.0e15).contains(float)).map(|float| float as u64)
    });
    match whole {
        Some(count) if count > 0 => Ok(Some(count)),
        _ => Err(D::Error::custom(format!("{number} is not a whole number from 1"))),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use serde_json::json;

    use super::*;

    #[derive(Debug, Deserialize)]
    struct Sample {
        #[serde(default, deserialize_with = "whole_number")]
        offset: Option<u64>,
    }

    #[test]
    fn whole_numbers_are_told_from_others() {
        let cases = [
            (json!({}), "None"),
            (json!({"offset": null}), "None"),
            (json!({"offset": 7}), "Some(7)"),
            (json!({"offset": 7.0}), "Some(7)"),
            (json!({"offset": 0}), "at `offset`: 0 is not a whole number from 1"),
            (json!({"offset": -3}), "at `offset`: -3 is not a whole number from 1"),
            (json!({"offset": 1.5}), "at `offset`: 1.5 is not a whole number from 1"),
            (json!({"offset": "7"}), "at `offset`: invalid type: string"),
        ];
        for (arguments, story) in cases {
            let told = match parse::<Sample>(arguments.clone()) {
                Ok(sample) => format!("{:?}", sample.offset),
                Err(error) => error.to_string(),
            };
            assert!(told.contains(story), "{arguments}: {told}");
        }
    }
}
