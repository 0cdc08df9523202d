//! A call's arguments as they were meant.
//!
//! Owns: the slips of models that have exactly one meaning, in the text of the arguments and, guided
//! by the tool's schema, in their values.
//! Never: touches a value that its schema admits, chooses between two meanings, or decides what may
//! run: what comes of it is validated like anything else.

use std::fmt::{self, Write};

use serde_json::{Map, Number, Value};

use crate::pure::nesting::{MAX_DEPTH, is_shallow};

/// Why something cannot be a call's arguments; ends a sentence that begins with them.
#[derive(Debug, thiserror::Error)]
pub(crate) enum NoObject {
    #[error("are not JSON: {0}")]
    Broken(Broken),
    #[error("are a JSON {0} and not an object")]
    Other(&'static str),
    #[error("nest deeper than {MAX_DEPTH} levels")]
    TooDeep,
}

/// Where and why a text is not JSON.
#[derive(Debug)]
pub(crate) struct Broken {
    cause: serde_json::Error,
    /// The place counts in the text with its raw control characters escaped.
    escaped: bool,
}

impl fmt::Display for Broken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let how =
            if self.escaped { " (its raw control characters counted as escapes)" } else { "" };
        write!(f, "{}{how}", self.cause)
    }
}

/// The object that the text of a call's arguments stands for. None at all, or `null`, is an empty one;
/// one that was encoded once more is decoded; line ends and tabs may stand raw within its strings.
pub(crate) fn object_in(text: &str) -> Result<Value, NoObject> {
    match text.trim().is_empty() {
        true => Ok(Value::Object(Map::new())),
        false => checked(decode(text).map_err(NoObject::Broken)?),
    }
}

/// The value itself if it can be a call's arguments.
pub(crate) fn checked(value: Value) -> Result<Value, NoObject> {
    match value {
        Value::Object(_) if !is_shallow(&value) => Err(NoObject::TooDeep),
        Value::Object(_) => Ok(value),
        Value::Null => Ok(Value::Object(Map::new())),
        Value::Bool(_) => Err(NoObject::Other("boolean")),
        Value::Number(_) => Err(NoObject::Other("number")),
        Value::String(_) => Err(NoObject::Other("string")),
        Value::Array(_) => Err(NoObject::Other("array")),
    }
}

/// Why a string that should have been a list or an object is none; nothing if it is plain text.
pub(crate) fn broken_within(text: &str) -> Option<Broken> {
    decode(text).err().filter(|_| looks_encoded(text))
}

/// Gives each value within that its schema does not admit the one meaning that the schema leaves it:
/// an optional `null` is left out, a string that holds a number, a boolean, a list or an object is that,
/// and one object where a list of objects is wanted is a list of one.
pub(crate) fn fit(value: &mut Value, schema: &Value) {
    if let Some(meant) = meaning(value, schema) {
        *value = meant;
    }
    match value {
        Value::Object(fields) => fit_fields(fields, schema),
        Value::Array(items) => {
            if let Some(schema) = schema.get("items") {
                items.iter_mut().for_each(|item| fit(item, schema));
            }
        }
        _ => {}
    }
}

fn fit_fields(fields: &mut Map<String, Value>, schema: &Value) {
    let Some(Value::Object(properties)) = schema.get("properties") else { return };
    let required = schema.get("required").and_then(Value::as_array);
    let is_required = |name: &str| required.is_some_and(|names| names.iter().any(|it| it == name));
    fields.retain(|name, value| match properties.get(name) {
        Some(property) if value.is_null() => is_required(name) || admits_null(property),
        _ => true,
    });
    for (name, value) in fields {
        if let Some(property) = properties.get(name) {
            fit(value, property);
        }
    }
}

/// What a value stands for that is not of a type that is wanted, if that is certain.
fn meaning(value: &Value, schema: &Value) -> Option<Value> {
    if admits(schema, value) {
        return None;
    }
    let meant = match value {
        Value::String(text) => decode(text).ok().filter(|meant| is_exact(text, meant))?,
        other => other.clone(),
    };
    if admits(schema, &meant) {
        return Some(meant);
    }
    let items = schema.get("items").filter(|items| items.get("type").is_some())?;
    let is_one_of_a_list = meant.is_object() && admits(items, &meant);
    let list = Value::Array(vec![meant]);
    (is_one_of_a_list && admits(schema, &list)).then_some(list)
}

/// Whether a value is of a type that the schema wants. (What else a schema says is the validator's.)
fn admits(schema: &Value, value: &Value) -> bool {
    let is_a = |name: &Value| match name.as_str() {
        Some("null") => value.is_null(),
        Some("boolean") => value.is_boolean(),
        Some("number") => value.is_number(),
        Some("integer") => value.as_number().is_some_and(is_whole),
        Some("string") => value.is_string(),
        Some("array") => value.is_array(),
        Some("object") => value.is_object(),
        _ => true,
    };
    match schema.get("type") {
        None => true,
        Some(Value::Array(names)) => names.iter().any(is_a),
        Some(name) => is_a(name),
    }
}

fn admits_null(schema: &Value) -> bool {
    let listed = schema.get("enum").and_then(Value::as_array);
    admits(schema, &Value::Null) && listed.is_none_or(|values| values.contains(&Value::Null))
}

fn is_whole(number: &Number) -> bool {
    !number.is_f64() || number.as_f64().is_some_and(|float| float.fract() == 0.0)
}

/// A whole number of more digits than we can hold would become another one.
fn is_exact(text: &str, meant: &Value) -> bool {
    let is_float = meant.as_number().is_some_and(Number::is_f64);
    !is_float || text.contains(['.', 'e', 'E'])
}

/// The value of JSON text, however often it was encoded.
fn decode(text: &str) -> Result<Value, Broken> {
    let mut value = parse(text)?;
    while let Value::String(inner) = &value {
        match parse(inner) {
            Ok(decoded) => value = decoded,
            Err(broken) if looks_encoded(inner) => return Err(broken),
            Err(_) => break,
        }
    }
    Ok(value)
}

fn looks_encoded(text: &str) -> bool {
    text.trim_start().starts_with(['{', '[', '"'])
}

fn parse(text: &str) -> Result<Value, Broken> {
    serde_json::from_str(text).or_else(|cause| match with_controls_escaped(text) {
        Some(mended) => {
            serde_json::from_str(&mended).map_err(|cause| Broken { cause, escaped: true })
        }
        None => Err(Broken { cause, escaped: false }),
    })
}

/// The text with the control characters within its strings escaped; none if there are none. One behind
/// a backslash stays: whether it was to be kept or left out is not certain.
fn with_controls_escaped(text: &str) -> Option<String> {
    let mut mended = String::with_capacity(text.len() + 64);
    let (mut in_string, mut behind_backslash, mut found) = (false, false, false);
    for symbol in text.chars() {
        if in_string && !behind_backslash && symbol < ' ' {
            found = true;
            // Writing to a string does not fail.
            let _ = write!(mended, "\\u{:04x}", u32::from(symbol));
            continue;
        }
        if symbol == '"' && !behind_backslash {
            in_string = !in_string;
        }
        behind_backslash = in_string && symbol == '\\' && !behind_backslash;
        mended.push(symbol);
    }
    found.then_some(mended)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use proptest::{collection::vec, prelude::*};
    use serde_json::json;

    use super::*;

    fn fitted(value: &Value, schema: &Value) -> Value {
        let mut value = value.clone();
        fit(&mut value, schema);
        value
    }

    #[test]
    fn a_text_of_arguments_is_what_it_was_meant_to_be() {
        let cases = [
            ("", json!({})),
            (" \n", json!({})),
            ("null", json!({})),
            (r#"{"a":"b\n"}"#, json!({"a": "b\n"})),
            ("{\"a\":\"b\tc\r\nd\u{1}\"\n}", json!({"a": "b\tc\r\nd\u{1}"})),
            // Escaped quotes and backslashes do not end a string, and what is outside stays outside.
            ("{\t\"a\\\"\n\":\"\\\\\",\n\"b\":1}", json!({"a\"\n": "\\", "b": 1})),
            (r#""{\"a\":1}""#, json!({"a": 1})),
            (r#""\"{\\\"a\\\":1}\"""#, json!({"a": 1})),
            ("\"{\\\"a\\\":\\\"b\nc\\\"}\"", json!({"a": "b\nc"})),
        ];
        for (text, meant) in cases {
            assert_eq!(object_in(text).ok(), Some(meant), "{text}");
        }
    }

    #[test]
    fn a_text_that_is_no_arguments_is_told_with_its_cause() {
        let nested =
            |levels: usize| format!("{}1{}", r#"{"x":"#.repeat(levels), "}".repeat(levels));
        assert!(object_in(&nested(63)).is_ok());
        let cases: &[(&str, &str)] = &[
            ("{", "are not JSON: EOF while parsing an object at line 1 column 1"),
            (r#"{"a": "b"#, "are not JSON: EOF while parsing a string at line 1 column 8"),
            (r#"{"a" 1}"#, "are not JSON: expected `:` at line 1 column 6"),
            ("{\"a\":\"\n", "column 12 (its raw control characters counted as escapes"),
            ("{\"a\":\"\\\n\"}", "are not JSON: invalid escape at line 2 column 0"),
            ("{} {}", "are not JSON: trailing characters at line 1 column 4"),
            (r#""{\"a\":""#, "are not JSON: EOF while parsing a value at line 1 column 5"),
            ("[]", "are a JSON array and not an object"),
            ("7", "are a JSON number and not an object"),
            ("true", "are a JSON boolean and not an object"),
            (r#""x""#, "are a JSON string and not an object"),
            (&nested(64), "nest deeper than 64 levels"),
            (&nested(100_000), "recursion limit exceeded"),
        ];
        for (text, cause) in cases {
            let told = object_in(text).map_err(|fault| fault.to_string()).unwrap_err();
            assert!(told.contains(cause), "{text:.40}: {told}");
        }
    }

    #[test]
    fn a_value_gets_the_one_meaning_that_its_schema_leaves_it() {
        let edit = json!({ "type": "object", "properties": { "old": { "type": "string" } } });
        let schema = json!({
            "type": "object",
            "properties": {
                "text": { "type": "string" },
                "either": { "type": ["integer", "string"] },
                "maybe": { "type": ["integer", "null"] },
                "whole": { "type": "integer" },
                "number": { "type": "number" },
                "flag": { "type": "boolean" },
                "mode": { "enum": ["a", "b"] },
                "any": {},
                "names": { "type": "array", "items": { "type": "string" } },
                "edits": { "type": "array", "items": edit },
                "must": { "type": "integer" }
            },
            "required": ["must"]
        });
        let cases = [
            // What may be a string is one.
            (json!({"text": "5", "either": "5", "any": "[1]"}), None),
            (json!({"text": 5, "flag": 1, "whole": true}), None),
            (json!({"whole": null, "mode": null, "edits": null}), Some(json!({}))),
            (json!({"must": null, "maybe": null, "any": null, "other": null}), None),
            (
                json!({"whole": "5", "number": "-1.5e3", "maybe": "7"}),
                Some(json!({"whole": 5, "number": -1.5e3, "maybe": 7})),
            ),
            (json!({"whole": "5.0", "maybe": "null"}), Some(json!({"whole": 5.0, "maybe": null}))),
            (json!({"whole": "5.5", "number": "1,5", "maybe": "", "must": "0x1f"}), None),
            (json!({"whole": "05", "number": "+5", "must": "12345678901234567890123"}), None),
            (json!({"flag": "true"}), Some(json!({"flag": true}))),
            (json!({"flag": "yes", "mode": "c"}), None),
            (json!({"edits": "[{\"old\":\"5\"}]"}), Some(json!({"edits": [{"old": "5"}]}))),
            (json!({"edits": "[{\"old\":\"a\tb\"}]"}), Some(json!({"edits": [{"old": "a\tb"}]}))),
            (json!({"edits": {"old": "a"}}), Some(json!({"edits": [{"old": "a"}]}))),
            (json!({"edits": "{\"old\":\"a\"}"}), Some(json!({"edits": [{"old": "a"}]}))),
            (json!({"edits": ["{\"old\":null}"]}), Some(json!({"edits": [{}]}))),
            (json!({"edits": "[{\"old\":"}), None),
            // A list of texts, or one text: that is not certain.
            (json!({"names": "a", "edits": "a"}), None),
            (json!({"names": {"a": 1}}), None),
        ];
        for (value, meant) in cases {
            assert_eq!(fitted(&value, &schema), meant.unwrap_or(value.clone()), "{value}");
        }
    }

    /// A schema of the kinds that tools have.
    fn schema() -> impl Strategy<Value = Value> {
        const KINDS: &[&str] = &["integer", "number", "boolean", "string"];
        let leaf = prop_oneof![
            proptest::sample::select(KINDS).prop_map(|kind| json!({ "type": kind })),
            Just(json!({ "type": ["integer", "null"] })),
            Just(json!({})),
        ];
        leaf.prop_recursive(3, 12, 3, |inner| {
            let object = (vec(inner.clone(), 0..4), 0..4_usize).prop_map(|(inner, required)| {
                let names: Vec<String> = (0..inner.len()).map(|at| format!("f{at}")).collect();
                let required = &names[..required.min(names.len())];
                let properties: Map<String, Value> = names.iter().cloned().zip(inner).collect();
                json!({ "type": "object", "properties": properties, "required": required })
            });
            prop_oneof![object, inner.prop_map(|items| json!({ "type": "array", "items": items }))]
        })
    }

    fn anything() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            any::<i64>().prop_map(Value::from),
            "[0-9\\[\\]{}\"n.]{0,4}|null|true|\\{\"f0\":1\\}".prop_map(Value::from),
        ];
        leaf.prop_recursive(3, 12, 3, |inner| {
            let fields = proptest::collection::btree_map("f[0-3]", inner.clone(), 0..4);
            prop_oneof![
                vec(inner, 0..3).prop_map(Value::from),
                fields.prop_map(|fields| fields.into_iter().collect()),
            ]
        })
    }

    /// A value that the schema admits.
    fn fitting(schema: &Value) -> BoxedStrategy<Value> {
        match schema.get("type") {
            Some(Value::Array(_)) => {
                prop_oneof![Just(Value::Null), any::<i64>().prop_map(Value::from)].boxed()
            }
            Some(kind) => match kind.as_str().unwrap_or_default() {
                "integer" => any::<i64>().prop_map(Value::from).boxed(),
                "number" => (-1e9..1e9).prop_map(Value::from).boxed(),
                "boolean" => any::<bool>().prop_map(Value::from).boxed(),
                "string" => "[a5\\[\\]\"\n]{0,4}".prop_map(Value::from).boxed(),
                "array" => vec(fitting(&schema["items"]), 0..3).prop_map(Value::from).boxed(),
                _ => fitting_object(schema),
            },
            None => anything().boxed(),
        }
    }

    fn fitting_object(schema: &Value) -> BoxedStrategy<Value> {
        let required = schema["required"].as_array().map_or(0, Vec::len);
        let properties = schema["properties"].as_object().cloned().unwrap_or_default();
        let mut fields = Just(Map::new()).boxed();
        for (at, (name, property)) in properties.into_iter().enumerate() {
            let one = (fitting(&property), any::<bool>());
            fields = (fields, one)
                .prop_map(move |(mut fields, (value, given))| {
                    if at < required || given {
                        fields.insert(name.clone(), value);
                    }
                    fields
                })
                .boxed();
        }
        fields.prop_map(Value::Object).boxed()
    }

    /// The same value as a careless model writes it, with slips where `slips` says so.
    fn slipped(value: &Value, schema: &Value, slips: &mut impl Iterator<Item = bool>) -> Value {
        let mut slip = || slips.next().unwrap_or(false);
        if schema.get("type").is_none() {
            return value.clone();
        }
        match value {
            Value::Number(_) | Value::Bool(_) if slip() => Value::String(value.to_string()),
            Value::Array(items) => {
                let (alone, text) = (slip(), slip());
                let items: Vec<Value> =
                    items.iter().map(|item| slipped(item, &schema["items"], slips)).collect();
                match items.as_slice() {
                    [one] if alone && one.is_object() && schema["items"]["type"] == "object" => {
                        one.clone()
                    }
                    _ if text => Value::String(json!(items).to_string()),
                    _ => json!(items),
                }
            }
            Value::Object(fields) => {
                let (nulls, text) = (slip(), slip());
                let mut new = Map::new();
                for (name, property) in schema["properties"].as_object().into_iter().flatten() {
                    match fields.get(name) {
                        Some(value) => {
                            new.insert(name.clone(), slipped(value, property, slips));
                        }
                        None if nulls && !admits_null(property) => {
                            new.insert(name.clone(), Value::Null);
                        }
                        None => {}
                    }
                }
                match text {
                    true => Value::String(Value::Object(new).to_string()),
                    false => Value::Object(new),
                }
            }
            other => other.clone(),
        }
    }

    fn is_valid(schema: &Value, value: &Value) -> bool {
        jsonschema::is_valid(schema, value)
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn what_fits_stays_as_it_is(
            (schema, value) in schema().prop_flat_map(|schema| (Just(schema.clone()), fitting(&schema)))
        ) {
            prop_assert!(is_valid(&schema, &value));
            prop_assert_eq!(fitted(&value, &schema), value);
        }

        #[test]
        fn a_slip_is_undone(
            (schema, value) in schema().prop_flat_map(|schema| (Just(schema.clone()), fitting(&schema))),
            slips in vec(any::<bool>(), 0..40),
        ) {
            let told = slipped(&value, &schema, &mut slips.into_iter());
            prop_assert_eq!(fitted(&told, &schema), value, "{}", told);
        }

        #[test]
        fn once_is_enough(schema in schema(), value in anything()) {
            let once = fitted(&value, &schema);
            prop_assert_eq!(&fitted(&once, &schema), &once);
            if is_valid(&schema, &value) {
                prop_assert_eq!(once, value);
            }
        }

        #[test]
        fn text_that_is_json_means_what_it_says(text in "[a\\\\\"\n\t\r{\u{1f}é]{0,12}", times in 0..3) {
            let value = json!({ "x": text });
            // Raw where JSON wants an escape.
            let inner = text.replace('\\', "\\\\").replace('"', "\\\"");
            let mut told = format!("{{\"x\":\"{inner}\"}}");
            for _ in 0..times {
                told = Value::String(told).to_string();
            }
            prop_assert_eq!(object_in(&told).ok(), Some(value.clone()), "{}", told);
            prop_assert_eq!(object_in(&value.to_string()).ok(), Some(value));
        }
    }
}
