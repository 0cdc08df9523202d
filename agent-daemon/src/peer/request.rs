//! Text to request (W1.4).
//!
//! Owns: what counts as a request, and which id the answer to something else carries.
//! Never: looks into parameters, or recurses: nesting is bounded before anything is parsed.

use std::{borrow::Cow, fmt};

use agent_protocol::RpcError;
use serde::{
    Deserialize, Deserializer,
    de::{IgnoredAny, MapAccess, Visitor},
};
use serde_json::value::RawValue;

/// How deep arrays and objects may be nested in one message.
pub(crate) const MAX_DEPTH: usize = 128;

/// What a message turned out to be.
#[derive(Debug)]
pub enum Incoming<'a> {
    /// A call, or, without an id, a notification.
    Request(Request<'a>),
    /// An answer to a question that we never asked.
    StrayAnswer,
    /// Neither.
    Refused {
        /// The id to answer with, as JSON text.
        id: &'a str,
        /// What to answer.
        error: RpcError,
    },
}

/// One call.
#[derive(Debug)]
pub struct Request<'a> {
    /// JSON text, to be echoed as it came: a string, any number, or null. None: not to be answered.
    pub id: Option<&'a str>,
    /// The method's name.
    pub method: Cow<'a, str>,
    /// JSON text, unless absent or null.
    pub params: Option<&'a str>,
}

/// Reads one message.
pub fn parse(text: &str) -> Incoming<'_> {
    if exceeds_depth(text, MAX_DEPTH) {
        return not_json(format!("arrays and objects are nested deeper than {MAX_DEPTH}"));
    }
    if text.trim_start().starts_with('{') {
        return match serde_json::from_str::<Members<'_>>(text) {
            Ok(members) => members.judge(),
            Err(error) => not_json(error.to_string()),
        };
    }
    match serde_json::from_str::<&RawValue>(text) {
        Err(error) => not_json(error.to_string()),
        Ok(value) if !value.get().starts_with('[') => no_request("null", "it is not an object"),
        Ok(array) if is_empty_array(array) => no_request("null", "an empty array asks nothing"),
        Ok(_) => Incoming::Refused { id: "null", error: RpcError::BatchUnsupported { limit: 0 } },
    }
}

/// The id that a `$/cancelRequest` names, and whether it is `id`.
pub(crate) fn names_id(params: Option<&str>, id: &str) -> bool {
    #[derive(Deserialize)]
    struct CancelParams<'a> {
        #[serde(borrow)]
        id: &'a RawValue,
    }
    // Not from an array: a derived struct would take that, too.
    let object = params.filter(|params| params.starts_with('{'));
    let Some(Ok(params)) = object.map(serde_json::from_str::<CancelParams<'_>>) else {
        return false;
    };
    let value = |text: &str| serde_json::from_str::<serde_json::Value>(text).ok();
    params.id.get() == id || (value(id).is_some() && value(id) == value(params.id.get()))
}

fn not_json(problem: String) -> Incoming<'static> {
    Incoming::Refused { id: "null", error: RpcError::ParseError { problem } }
}

fn no_request<'a>(id: &'a str, problem: &str) -> Incoming<'a> {
    Incoming::Refused { id, error: RpcError::InvalidRequest { problem: problem.to_owned() } }
}

fn is_empty_array(array: &RawValue) -> bool {
    array.get()[1..].trim_start().starts_with(']')
}

/// Whether brackets outside strings nest deeper than `max`. Exact for JSON; anything else is
/// refused with the same code.
fn exceeds_depth(text: &str, max: usize) -> bool {
    let (mut depth, mut in_string, mut escaped) = (0_usize, false, false);
    for byte in text.bytes() {
        match byte {
            _ if escaped => escaped = false,
            b'\\' if in_string => escaped = true,
            b'"' => in_string = !in_string,
            _ if in_string => {}
            b'{' | b'[' => depth += 1,
            b'}' | b']' => depth = depth.saturating_sub(1),
            _ => {}
        }
        if depth > max {
            return true;
        }
    }
    false
}

/// The members of a message that we know, unread. Of a repeated one the last counts, as in most
/// JSON parsers.
#[derive(Default)]
struct Members<'a> {
    jsonrpc: Option<&'a RawValue>,
    id: Option<&'a RawValue>,
    method: Option<&'a RawValue>,
    params: Option<&'a RawValue>,
    is_answer: bool,
}

#[derive(Deserialize)]
#[serde(rename_all = "lowercase")]
enum Name {
    Jsonrpc,
    Id,
    Method,
    Params,
    Result,
    Error,
    #[serde(other)]
    Other,
}

impl<'a> Members<'a> {
    fn judge(self) -> Incoming<'a> {
        let id = self.id.map(RawValue::get);
        let id_is_valid =
            id.is_none_or(|id| id == "null" || id.starts_with(['"', '-']) || is_digit_first(id));
        let refused = |problem| no_request(id.filter(|_| id_is_valid).unwrap_or("null"), problem);
        let Some(method) = self.method else {
            return match self.is_answer {
                true => Incoming::StrayAnswer,
                false => refused("it has no method"),
            };
        };
        let Ok(Text(method)) = serde_json::from_str(method.get()) else {
            return refused("its method is not a string");
        };
        if !id_is_valid {
            return refused("its id is neither a string nor a number");
        }
        let version = self.jsonrpc.map(|version| serde_json::from_str(version.get()));
        if version.is_some_and(|version| !matches!(version, Ok(Text(version)) if version == "2.0"))
        {
            return refused("jsonrpc is not \"2.0\"");
        }
        let params = self.params.map(RawValue::get).filter(|params| *params != "null");
        Incoming::Request(Request { id, method, params })
    }
}

fn is_digit_first(text: &str) -> bool {
    text.starts_with(|first: char| first.is_ascii_digit())
}

impl<'de> Deserialize<'de> for Members<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct MembersVisitor;

        impl<'de> Visitor<'de> for MembersVisitor {
            type Value = Members<'de>;

            fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
                out.write_str("an object")
            }

            fn visit_map<M: MapAccess<'de>>(self, mut map: M) -> Result<Members<'de>, M::Error> {
                let mut members = Members::default();
                while let Some(name) = map.next_key::<Name>()? {
                    match name {
                        Name::Jsonrpc => members.jsonrpc = Some(map.next_value()?),
                        Name::Id => members.id = Some(map.next_value()?),
                        Name::Method => members.method = Some(map.next_value()?),
                        Name::Params => members.params = Some(map.next_value()?),
                        Name::Result | Name::Error => {
                            members.is_answer = true;
                            map.next_value::<IgnoredAny>()?;
                        }
                        Name::Other => drop(map.next_value::<IgnoredAny>()?),
                    }
                }
                Ok(members)
            }
        }

        deserializer.deserialize_map(MembersVisitor)
    }
}

/// A string, borrowed where it has no escapes.
#[derive(Deserialize)]
struct Text<'a>(#[serde(borrow)] Cow<'a, str>);

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Message in, story out: `id method params` for a request, `id code` for a refusal.
    const CASES: &[(&str, &str)] = &[
        (r#"{"jsonrpc":"2.0","id":1,"method":"a","params":{"x":[1]}}"#, r#"1 a {"x":[1]}"#),
        (r#" {"id" : "x\u0041" , "method" : "\u0061" } "#, r#""x\u0041" a -"#),
        (r#"{"id":-1.5e3,"method":"a","params":[ 1 ]}"#, "-1.5e3 a [ 1 ]"),
        (
            r#"{"id":123456789012345678901234567890,"method":"a"}"#,
            "123456789012345678901234567890 a -",
        ),
        (r#"{"id":null,"method":"a","params":null}"#, "null a -"),
        (r#"{"method":"a","extra":{"method":"b"},"_meta":1}"#, "- a -"),
        (r#"{"method":"a","method":"b","id":1,"id":2}"#, "2 b -"),
        (r#"{"method":""}"#, "-  -"),
        (r#"{"id":1,"method":"a","params":7}"#, "1 a 7"),
        // Answers to nothing.
        (r#"{"jsonrpc":"2.0","id":1,"result":{}}"#, "stray"),
        (r#"{"id":1,"error":{"code":1}}"#, "stray"),
        (r#"{"result":null}"#, "stray"),
        // JSON, but no request.
        ("null", "null -32600"),
        ("42", "null -32600"),
        ("\"x\"", "null -32600"),
        ("true", "null -32600"),
        ("[]", "null -32600"),
        (" [ ] ", "null -32600"),
        ("{}", "null -32600"),
        (r#"{"id":7}"#, "7 -32600"),
        (r#"{"id":null}"#, "null -32600"),
        (r#"{"id":"x","method":5}"#, "\"x\" -32600"),
        (r#"{"id":"x","method":null}"#, "\"x\" -32600"),
        (r#"{"id":1,"method":"\ud800"}"#, "1 -32600"),
        (r#"{"id":{},"method":"a"}"#, "null -32600"),
        (r#"{"id":[1],"method":"a"}"#, "null -32600"),
        (r#"{"id":true,"method":"a"}"#, "null -32600"),
        (r#"{"id":1,"jsonrpc":"1.0","method":"a"}"#, "1 -32600"),
        (r#"{"id":1,"jsonrpc":2.0,"method":"a"}"#, "1 -32600"),
        // Batches.
        (r#"[{"id":1,"method":"a"}]"#, "null -32005"),
        ("[1, 2]", "null -32005"),
        // Not JSON.
        ("", "null -32700"),
        ("{", "null -32700"),
        ("[1", "null -32700"),
        ("{]", "null -32700"),
        ("nul", "null -32700"),
        ("{} {}", "null -32700"),
        ("{'a':1}", "null -32700"),
        (r#"{"id":01,"method":"a"}"#, "null -32700"),
        (r#"{"id":1,"method":"a",}"#, "null -32700"),
        (r#"{"id":1,"method":"a","params":{"x":}}"#, "null -32700"),
        ("{\"id\":1,\"method\":\"a\u{1}\"}", "null -32700"),
        ("Content-Length: 2", "null -32700"),
    ];

    fn story(text: &str) -> String {
        match parse(text) {
            Incoming::Request(Request { id, method, params }) => {
                format!("{} {method} {}", id.unwrap_or("-"), params.unwrap_or("-"))
            }
            Incoming::StrayAnswer => "stray".to_owned(),
            Incoming::Refused { id, error } => format!("{id} {}", error.code()),
        }
    }

    #[test]
    fn each_message_is_what_the_protocol_says_it_is() {
        for (text, expected) in CASES {
            assert_eq!(story(text), *expected, "{text}");
        }
    }

    #[test]
    fn nesting_is_bounded_without_recursion() {
        let nested = |depth: usize| {
            let (open, close) = ("[".repeat(depth - 1), "]".repeat(depth - 1));
            format!(r#"{{"id":1,"method":"a","params":{open}{close}}}"#)
        };
        assert!(story(&nested(MAX_DEPTH)).starts_with("1 a [["));
        assert_eq!(story(&nested(MAX_DEPTH + 1)), "null -32700");
        assert_eq!(story(&"[".repeat(1 << 20)), "null -32700");
        let brackets_in_a_string = format!(r#"{{"id":1,"method":"\"{}"}}"#, "[".repeat(1000));
        assert!(story(&brackets_in_a_string).starts_with("1 \"[["));
    }

    #[test]
    fn a_cancelled_id_is_compared_by_value() {
        assert!(names_id(Some(r#"{"id":1}"#), "1"));
        assert!(names_id(Some(r#"{"id":"\u0061"}"#), "\"a\""));
        assert!(!names_id(Some(r#"{"id":"1"}"#), "1"));
        assert!(!names_id(Some("[1]"), "1"));
        assert!(!names_id(None, "1"));
    }

    proptest! {
        #[test]
        fn no_text_makes_it_fail(text in ".{0,80}", json in "[\\[\\]{}:,\"a0 idmethod\\\\]{0,40}") {
            story(&text);
            story(&json);
        }
    }
}
