//! What a directory holds, for someone who took it for a file.

use std::path::Path;

/// So many entries are listed.
const MAX_ENTRIES: usize = 200;

/// So many are looked at, to list the first ones in order.
const MAX_SEEN: usize = 20_000;

/// Says that the path is a directory, and lists its entries; directories end in `/`.
pub(super) fn describe(directory: &Path, named: &str) -> String {
    let entries = match std::fs::read_dir(directory) {
        Ok(entries) => entries,
        Err(error) => return format!("{named} is a directory and cannot be listed: {error}."),
    };
    let mut names: Vec<String> = entries
        .take(MAX_SEEN)
        .filter_map(|entry| {
            let entry = entry.ok()?;
            let name = entry.file_name().to_string_lossy().into_owned();
            let is_directory = entry.file_type().is_ok_and(|kind| kind.is_dir());
            Some(if is_directory { name + "/" } else { name })
        })
        .collect();
    if names.is_empty() {
        return format!("{named} is a directory, and empty.");
    }
    names.sort();
    let more = names.len().saturating_sub(MAX_ENTRIES);
    names.truncate(MAX_ENTRIES);
    let mut text = format!("{named} is a directory. Read one of its files:\n{}", names.join("\n"));
    if more > 0 {
        text.push_str(&format!("\n[{more} more; list them with bash.]"));
    }
    text
}
