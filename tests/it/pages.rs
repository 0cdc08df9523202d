//! The pages that people write clients from are true: each method, event, frame, error, setting and
//! client in them is the one in the code, and none is missing.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
};

use agent_protocol::{RpcError, schema::protocol};
use serde_json::{Map, Value, json};
use support::process::{Home, finished, repository};

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
fn the_configuration_page_names_every_key_and_flag_and_its_example_is_taken() {
    let page = page("agent-daemon/CONFIGURATION.md");
    let (_, example) = page.split_once("```toml\n").unwrap();
    let example = example.split_once("```").unwrap().0;
    let named: BTreeSet<String> =
        rows(section(&page, "Keys")).into_iter().map(|row| row.0).collect();
    let table: toml::Table = example.parse().unwrap();
    let mut given = BTreeSet::new();
    keys(&toml::Value::Table(table), "", &mut given);
    assert_eq!(named, given, "the rows, and the keys of the example");

    // Every key that the daemon takes is in the example: what it says of one that it does not know.
    for (table, known) in
        [("session", "session"), ("tools", "tools"), ("limits", "limits"), ("retry", "retry")]
    {
        let told = refusal(&format!("[{table}]\nno_such_key = 1\n"));
        for key in told.split('`').skip(1).step_by(2).filter(|word| is_key(word)) {
            let key = format!("{known}.{key}");
            assert!(key.ends_with("no_such_key") || named.contains(&key), "{key} has no row");
        }
        assert!(told.matches('`').count() > 4, "{told}");
    }
    let home = Home::new();
    home.configure(example);
    let daemon = finished(home.daemon_command(&["--stdio"]).env("LOCAL_API_KEY", "k"));
    assert_eq!(daemon.status.code(), Some(0), "{}", String::from_utf8_lossy(&daemon.stderr));

    let help = finished(&mut home.daemon_command(&["--help"]));
    let help = String::from_utf8(help.stdout).unwrap();
    let flags = help.split_whitespace().filter(|word| word.starts_with("--"));
    let flags = flags.map(|word| word.trim_matches(|c: char| !c.is_alphanumeric() && c != '-'));
    for flag in flags.filter(|flag| !["--help", "--version", "--stdio"].contains(flag)) {
        assert!(page.contains(&format!("| `{flag}")), "{flag} has no row");
    }
}

/// The paths of all keys: what a table's users name themselves is `*`, an item of a list `[]`.
fn keys(value: &toml::Value, path: &str, found: &mut BTreeSet<String>) {
    let toml::Value::Table(table) = value else {
        found.insert(path.to_owned());
        return;
    };
    for (name, value) in table {
        let name = if path == "providers" { "*" } else { name };
        let path = if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") };
        match value {
            toml::Value::Array(items) if items.iter().any(toml::Value::is_table) => {
                found.insert(path.clone());
                items.iter().for_each(|item| keys(item, &format!("{path}[]"), found));
            }
            toml::Value::Table(_) if path.ends_with(".headers") => {
                found.insert(path);
            }
            value => keys(value, &path, found),
        }
    }
}

fn is_key(word: &str) -> bool {
    word.chars().all(|c| c.is_ascii_lowercase() || c == '_')
}

/// What the daemon says of a configuration that it does not take.
fn refusal(configuration: &str) -> String {
    let home = Home::new();
    home.configure(configuration);
    let refused = finished(&mut home.daemon_command(&["--stdio"]));
    assert_eq!(refused.status.code(), Some(2));
    String::from_utf8(refused.stderr).unwrap()
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
