//! What commands say: results on stdout, remarks beside it.
//!
//! Never: anything on stdout but an answer, a result or JSON, or anywhere what a terminal would obey.

use std::io::{self, Write};

use agent_protocol::harmless::{harmless, harmless_json};

/// Says something beside stdout.
pub fn remark(text: &str) {
    // Whoever has closed stderr does not want to know.
    let _ = writeln!(io::stderr(), "{}", harmless(text));
}

/// Prints a JSON text as a line on stdout: the very values that were sent, though what a terminal
/// would obey is escaped. Also into a pipe, since many a pipe ends on a terminal.
pub fn line(json: &str) -> io::Result<()> {
    put(&format!("{}\n", harmless_json(json)))
}

/// Prints text on stdout.
pub fn write(text: &str) -> io::Result<()> {
    put(&harmless(text))
}

fn put(text: &str) -> io::Result<()> {
    let mut stdout = io::stdout().lock();
    stdout.write_all(text.as_bytes())?;
    stdout.flush()
}
