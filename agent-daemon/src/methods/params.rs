//! The params of a call, read so that a mistake in them is named.
//!
//! Owns: the text of `-32602`. Never: ignores a field that it does not know.

use agent_protocol::{InitializeParams, PROTOCOL_VERSION, RpcError, UnsubscribeParams};
use serde::{Deserialize, de::DeserializeOwned};

/// Reads params: an object, or nothing for one without fields.
///
/// # Errors
/// [`RpcError::InvalidParams`], with the field's path and what was expected.
pub(crate) fn parse<P: DeserializeOwned>(text: Option<&str>) -> Result<P, RpcError> {
    let text = match text.map(str::trim_start) {
        None | Some("" | "null") => "{}",
        // A struct could be read from an array, too; but then nobody could add a field later.
        Some(text) if !text.starts_with('{') => {
            let problem = "params must be an object, with the parameters by name".to_owned();
            return Err(RpcError::InvalidParams { field: None, problem });
        }
        Some(text) => text,
    };
    let mut deserializer = serde_json::Deserializer::from_str(text);
    serde_path_to_error::deserialize(&mut deserializer).map_err(|error| {
        let path = error.path().to_string();
        let problem = without_position(&error.into_inner().to_string());
        let field = if path == "." { quoted(&problem) } else { Some(path) };
        RpcError::InvalidParams { field, problem }
    })
}

/// Reads the params of `unsubscribe`, which may be the array that jsonrpsee's client sends (W1.7).
///
/// # Errors
/// As [`parse`].
pub(crate) fn parse_subscription(text: Option<&str>) -> Result<UnsubscribeParams, RpcError> {
    match text.map(str::trim_start) {
        Some(text) if text.starts_with('[') => match serde_json::from_str::<[String; 1]>(text) {
            Ok([subscription]) => {
                Ok(UnsubscribeParams { subscription, ..UnsubscribeParams::default() })
            }
            Err(_) => {
                let problem = "expected an object with it, or an array of it alone: a string";
                Err(RpcError::invalid_param("subscription", problem))
            }
        },
        text => parse(text),
    }
}

/// Reads the params of `initialize`, the version before anything else: another version may have
/// another shape.
///
/// # Errors
/// [`RpcError::UnsupportedProtocolVersion`], or as [`parse`].
pub(crate) fn parse_initialize(text: Option<&str>) -> Result<InitializeParams, RpcError> {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Version {
        protocol_version: u32,
    }
    match parse::<Version>(text) {
        Ok(Version { protocol_version: PROTOCOL_VERSION }) | Err(_) => parse(text),
        Ok(_) => Err(RpcError::UnsupportedProtocolVersion { supported: vec![PROTOCOL_VERSION] }),
    }
}

/// Cuts `at line 1 column 80` off: the client did not send lines.
fn without_position(message: &str) -> String {
    message.rsplit_once(" at line ").map_or(message, |(problem, _)| problem).to_owned()
}

/// The name in "missing field `input`".
fn quoted(problem: &str) -> Option<String> {
    let rest = problem.split_once("field `")?.1;
    Some(rest.split_once('`')?.0.to_owned())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use agent_protocol::{PromptParams, QueueParams, SessionParams, SubscribeParams};

    fn refused<P: DeserializeOwned>(text: &str) -> String {
        let Err(RpcError::InvalidParams { field, problem }) = parse::<P>(Some(text)) else {
            panic!("{text} was taken");
        };
        format!("{}: {problem}", field.as_deref().unwrap_or("-"))
    }

    #[test]
    fn a_mistake_is_named_with_what_was_expected() {
        let cases: &[(String, &str)] = &[
            (refused::<PromptParams>("{}"), "input: missing field `input`"),
            (
                refused::<PromptParams>(r#"{"input":5}"#),
                "input: invalid type: integer `5`, expected a string or an array of text and \
                 image blocks",
            ),
            (
                refused::<PromptParams>(r#"{"input":[{"type":"video"}]}"#),
                "input[0].type: unknown variant `video`, expected `text` or `image`",
            ),
            (
                refused::<QueueParams>(r#"{"input":"x","expectedRunID":1}"#),
                "expectedRunID: unknown field `expectedRunID`, expected one of `input`, \
                 `expectedRunId`, `whenIdle`, `clientMessageId`, `sessionId`, `_meta`",
            ),
            (
                refused::<QueueParams>(r#"{"input":"x","whenIdle":"now"}"#),
                "whenIdle: unknown variant `now`, expected one of `reject`, `hold`, `prompt`",
            ),
            (
                refused::<QueueParams>(r#"{"input":"x","expectedRunId":-1}"#),
                "expectedRunId: invalid value: integer `-1`, expected u64",
            ),
            (
                refused::<SubscribeParams>(r#"{"include":["text_delta","runEnd"]}"#),
                "include: unknown variant `runEnd`, expected one of",
            ),
            (
                refused::<SessionParams>(r#"["main"]"#),
                "-: params must be an object, with the parameters by name",
            ),
        ];
        for (text, expected) in cases {
            assert!(text.starts_with(expected), "{text}\nshould begin with\n{expected}");
        }
    }

    #[test]
    fn no_params_are_an_object_without_fields() {
        for text in [None, Some("null"), Some(" {} ")] {
            assert_eq!(parse::<SessionParams>(text).unwrap(), SessionParams::default());
        }
    }

    #[test]
    fn a_subscription_may_come_alone_in_an_array() {
        for text in [r#"["s1"]"#, r#" {"subscription":"s1"}"#] {
            assert_eq!(parse_subscription(Some(text)).unwrap().subscription, "s1");
        }
        for text in [Some("[]"), Some("[1]"), Some(r#"["s1","s2"]"#), Some("{}"), None] {
            let error = parse_subscription(text).unwrap_err().to_string();
            assert!(error.starts_with("invalid params: `subscription`: "), "{error}");
        }
    }

    #[test]
    fn a_client_may_keep_what_it_likes_in_meta() {
        let params: SessionParams =
            parse(Some(r#"{"_meta":{"trace":[1]},"sessionId":"main"}"#)).unwrap();
        assert_eq!(params.session_id.as_deref(), Some("main"));
    }
}
