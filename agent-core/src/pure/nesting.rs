//! How deep JSON values may nest.
//!
//! Owns: the limit for all that others give us and that joins events.

use serde_json::Value;

/// How deep arguments and details may nest: what reads our events stops at 128 levels.
pub(crate) const MAX_DEPTH: usize = 64;

/// Whether a value nests no deeper than that.
pub(crate) fn is_shallow(value: &Value) -> bool {
    depth(value) <= MAX_DEPTH
}

/// How deep a value nests; 1 for a scalar.
fn depth(value: &Value) -> usize {
    let mut deepest = 0;
    let mut open = vec![(value, 1)];
    while let Some((value, level)) = open.pop() {
        deepest = deepest.max(level);
        match value {
            Value::Array(items) => open.extend(items.iter().map(|item| (item, level + 1))),
            Value::Object(fields) => open.extend(fields.values().map(|field| (field, level + 1))),
            _ => {}
        }
    }
    deepest
}
