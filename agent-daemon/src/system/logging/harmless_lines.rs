//! Log lines that no terminal obeys.
//!
//! Owns: that what a field holds stays text on its line, whoever gave it its name. Never: anything
//! about the line's own words and colours.

use std::{
    fmt::{self, Debug},
    io::{self, Write},
};

use agent_protocol::harmless::{harmless_json, harmless_line};
use tracing::field::Field;
use tracing_subscriber::{
    field::MakeExt,
    fmt::{
        FormatFields, MakeWriter,
        format::{Writer, debug_fn},
    },
};

/// The fields of a line for people: as the library writes them, each value made harmless.
pub(super) fn harmless_fields() -> impl for<'w> FormatFields<'w> + Send + Sync + 'static {
    debug_fn(write).delimited(" ")
}

fn write(out: &mut Writer<'_>, field: &Field, value: &dyn Debug) -> fmt::Result {
    let value = format!("{value:?}");
    let value = harmless_line(&value);
    match (field.name(), out.has_ansi_escapes()) {
        ("message", _) => out.write_str(&value),
        (name, false) => write!(out, "{name}={value}"),
        (name, true) => write!(out, "\x1b[3m{name}\x1b[0m\x1b[2m=\x1b[0m{value}"),
    }
}

/// A writer of JSON texts that makes them harmless. Each write has to be of a whole one.
pub(super) struct HarmlessJson<W>(pub(super) W);

impl<'a, W: MakeWriter<'a>> MakeWriter<'a> for HarmlessJson<W> {
    type Writer = HarmlessJson<W::Writer>;

    fn make_writer(&'a self) -> Self::Writer {
        HarmlessJson(self.0.make_writer())
    }
}

impl<W: Write> Write for HarmlessJson<W> {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        match std::str::from_utf8(line) {
            Ok(json) => self.0.write_all(harmless_json(json).as_bytes())?,
            Err(_) => self.0.write_all(line)?,
        }
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}
