//! The pages that people write clients from are true: each method, event, frame, error, setting and
//! client in them is the one in the code, and none is missing.

use std::{collections::BTreeMap, fs};

use agent_daemon::{protocol::RpcError, schema::protocol};
use serde_json::{Map, Value, json};
use support::process::repository;

/// A page of the repository.
fn page(name: &str) -> String {
    fs::read_to_string(repository().join(name)).unwrap()
}

/// The part of a page below the heading that begins with these words, up to the next heading.
fn section<'a>(page: &'a str, heading: &str) -> &'a str {
    let start = page.find(&format!("\n## {heading}")).unwrap_or_else(|| panic!("no {heading}"));
    let body = &page[start + 4..];
    body.find("\n## ").map_or(body, |end| &body[..end])
}

/// The rows of a section's tables: what the first cell names, and the whole row.
fn rows(section: &str) -> Vec<(String, String)> {
    let named = |line: &str| {
        let cells: Vec<&str> = line.split(" | ").collect();
        let name = cells.iter().find_map(|cell| cell.split('`').nth(1));
        name.map(|name| (name.to_owned(), line.to_owned()))
    };
    section.lines().filter(|line| line.starts_with("| ")).filter_map(named).collect()
}

/// Holds a table against the code: one row for each thing, and each field named in its row.
fn check(table: &[(String, String)], things: &BTreeMap<String, Vec<String>>) {
    for (name, fields) in things {
        let found: Vec<_> = table.iter().filter(|(row, _)| row == name).collect();
        let [(_, row)] = &found[..] else { panic!("{} rows for `{name}`", found.len()) };
        let words: Vec<&str> = row.split(|c: char| !c.is_alphanumeric() && c != '_').collect();
        for field in fields {
            assert!(words.contains(&field.as_str()), "`{field}` is not in {row}");
        }
    }
    for (name, row) in table {
        assert!(things.contains_key(name), "there is no `{name}`: {row}");
    }
}

fn fields(schema: &Value) -> Vec<String> {
    let properties = schema["properties"].as_object().into_iter().flatten();
    properties.map(|(name, _)| name.clone()).collect()
}

/// The variants of a tagged type: what the tag says, and the other fields.
fn variants(schema: &Value, tag: &str) -> BTreeMap<String, Vec<String>> {
    let of = |variant: &Value| {
        let name = variant["properties"][tag]["const"].as_str().unwrap().to_owned();
        let others = fields(variant).into_iter().filter(|field| field != tag).collect();
        (name, others)
    };
    schema["oneOf"].as_array().unwrap().iter().map(of).collect()
}

fn resolve<'a>(schema: &'a Value, value: &'a Value) -> &'a Value {
    match value["$ref"].as_str() {
        Some(path) => schema.pointer(path.trim_start_matches('#')).unwrap(),
        None => value,
    }
}

#[test]
fn the_protocol_names_every_method_with_its_params_and_its_result() {
    let (schema, page) = (protocol(), page("agent-daemon/PROTOCOL.md"));
    let table = rows(section(&page, "W3."));
    // What both are is told in a rule of its own; what all methods take, above the table.
    let told_elsewhere = |method: &str, field: &String| {
        method == "initialize" || ["sessionId", "_meta"].contains(&field.as_str())
    };
    let mut methods = BTreeMap::new();
    for (name, method) in schema["methods"].as_object().unwrap() {
        let params = fields(resolve(&schema, &method["params"]));
        let params = params.into_iter().filter(|field| !told_elsewhere(name, field));
        methods.insert(name.clone(), params.collect::<Vec<_>>());
    }
    // `createSession` takes what the row above it lists.
    let settings = methods["setConfig"].clone();
    methods.get_mut("createSession").unwrap().retain(|field| !settings.contains(field));
    for name in ["prompt", "steer", "abort", "waitForIdle", "getState", "getMessages", "health"] {
        let result = fields(resolve(&schema, &schema["methods"][name]["result"]));
        methods.get_mut(name).unwrap().extend(result);
    }
    check(&table, &methods);
}

#[test]
fn the_greeting_is_told_whole() {
    let (schema, page) = (protocol(), page("agent-daemon/PROTOCOL.md"));
    let rule = section(&page, "W2.").split("- **W2.2**").next().unwrap().to_owned();
    for name in ["InitializeParams", "InitializeResult", "ServerInfo", "Capabilities"] {
        for field in fields(&schema["$defs"][name]) {
            assert!(rule.contains(&field), "`{field}` of {name} is not in W2.1");
        }
    }
}

#[test]
fn the_contract_names_every_event_with_its_fields() {
    let (schema, page) = (protocol(), page("agent-core/CONTRACT.md"));
    check(&rows(section(&page, "C3.")), &variants(&schema["$defs"]["EventFrame"], "type"));
}

#[test]
fn the_protocol_names_every_frame_that_is_no_event() {
    let (schema, page) = (protocol(), page("agent-daemon/PROTOCOL.md"));
    let (events, ..) = section(&page, "W4.").split_once("- **W4.1**").unwrap();
    for name in variants(&schema["$defs"]["ControlFrame"], "type").keys() {
        assert!(events.contains(&format!("`{name}`")), "`{name}`");
    }
}

#[test]
fn the_protocol_names_every_error_with_its_code_and_its_data() {
    let (schema, page) = (protocol(), page("agent-daemon/PROTOCOL.md"));
    let table = rows(section(&page, "W5."));
    let errors = &schema["$defs"]["ErrorData"];
    check(&table, &variants(errors, "kind"));
    for variant in errors["oneOf"].as_array().unwrap() {
        let error: RpcError = serde_json::from_value(example(variant)).unwrap();
        let kind = variant["properties"]["kind"]["const"].as_str().unwrap();
        let (_, row) = table.iter().find(|(name, _)| name == kind).unwrap();
        assert!(row.starts_with(&format!("| {} |", error.code())), "{}: {row}", error.code());
    }
}

/// Something of the shape that a variant's schema describes.
fn example(variant: &Value) -> Value {
    let value = |schema: &Value| match (&schema["const"], schema["type"].as_str()) {
        (Value::String(tag), _) => json!(tag),
        (_, Some("string")) => json!("x"),
        (_, Some("array")) => json!([1]),
        (_, Some("integer")) => json!(1),
        // Something optional, or a number with a name.
        _ if schema["$ref"].is_string() => json!(1),
        _ => Value::Null,
    };
    let properties = variant["properties"].as_object().unwrap();
    let example: Map<String, Value> =
        properties.iter().map(|(name, schema)| (name.clone(), value(schema))).collect();
    Value::Object(example)
}

#[test]
fn files_that_a_page_shows_are_the_files_that_the_tests_run() {
    let page = page("agent-daemon/PROTOCOL.md");
    let mut shown = 0;
    for part in page.split("<!-- file: ").skip(1) {
        let (name, rest) = part.split_once(" -->\n").unwrap();
        let text = rest.split_once('\n').unwrap().1.split_once("```").unwrap().0;
        let file = fs::read_to_string(repository().join("agent-daemon").join(name)).unwrap();
        assert_eq!(text, file, "{name}");
        shown += 1;
    }
    assert_eq!(shown, 1);
}
