//! The log, on stderr or in a file that takes stderr's place.
//!
//! Owns: its level, its shape and the thread that writes it.
//! Never: lets a name or a message through that a terminal would obey, or makes the daemon wait for
//! whoever should read stderr; what does not fit is counted and dropped. Never stdout, which is the
//! protocol's.

use std::{
    io::{self, IsTerminal, Write},
    path::PathBuf,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering},
        mpsc::{self, Receiver, SyncSender},
    },
    time::Duration,
};

use self::{
    file::LogFile,
    harmless_lines::{HarmlessJson, harmless_fields},
};
use agent_protocol::harmless::{harmless, harmless_json};
use clap::ValueEnum;
use tracing_subscriber::{EnvFilter, fmt::MakeWriter};

mod file;
mod harmless_lines;

/// How many lines may wait to be written.
const WAITING_LINES: usize = 1_024;

/// How long the end of the process waits for the last lines.
const LAST_LINES: Duration = Duration::from_millis(200);

/// The shape of the log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum LogFormat {
    /// For people.
    #[default]
    Text,
    /// One JSON object per line.
    Json,
}

/// What is logged, and in which shape.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogSettings {
    // Invariant: `EnvFilter` takes it.
    filter: String,
    format: LogFormat,
    file: Option<PathBuf>,
}

impl LogSettings {
    /// Settings for a level, or for a list of `TARGET=LEVEL`.
    ///
    /// # Errors
    /// What was expected.
    pub fn new(level: &str, format: LogFormat) -> Result<Self, String> {
        let level = level.trim();
        if ["off", "error", "warn", "info", "debug", "trace"].contains(&level) {
            return Ok(LogSettings { filter: of_ours(level), format, file: None });
        }
        if !level.contains('=') || EnvFilter::builder().parse(level).is_err() {
            return Err(format!(
                "`{level}` is no log level; use error, warn, info, debug, trace, off, or a list \
                 such as agent_daemon=debug,agent_core=trace"
            ));
        }
        Ok(LogSettings { filter: level.to_owned(), format, file: None })
    }

    /// The same in this file in place of stderr, if one is given.
    pub(crate) fn with_file(self, file: Option<PathBuf>) -> Self {
        LogSettings { file, ..self }
    }

    /// Says something that the log's level must not hide, such as an address.
    pub(crate) fn announce(&self, message: &str) {
        let line = match self.format {
            LogFormat::Text => format!("agent-daemon: {}", harmless(message)),
            LogFormat::Json => {
                let line = serde_json::json!({ "level": "INFO", "fields": { "message": message } });
                harmless_json(&line.to_string()).into_owned()
            }
        };
        // stderr may be gone; then there is nobody to tell.
        let _ = writeln!(io::stderr(), "{line}");
    }

    /// Starts the log of this process. The first call counts; a program that embeds the daemon may
    /// have a log of its own. With a file, stderr is that file from now on.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn start(&self) -> Result<LogGuard, String> {
        let out: Box<dyn Write + Send> = match &self.file {
            None => Box::new(io::stderr()),
            Some(path) => {
                let file = LogFile::in_place_of_stderr(path.clone());
                Box::new(file.map_err(|error| format!("--log-file {}: {error}", path.display()))?)
            }
        };
        let (writer, guard) = LogWriter::start(out);
        let filter = EnvFilter::new(&self.filter);
        let builder = tracing_subscriber::fmt().with_env_filter(filter).with_writer(writer);
        let started = match self.format {
            LogFormat::Text => builder
                .with_ansi(io::stderr().is_terminal())
                .fmt_fields(harmless_fields())
                .try_init(),
            LogFormat::Json => builder.json().with_ansi(false).map_writer(HarmlessJson).try_init(),
        };
        // Not an error: whoever embeds us sees our events in its own log.
        drop(started);
        Ok(guard)
    }
}

/// A level of ours. Libraries may show what they send, so they are not asked.
fn of_ours(level: &str) -> String {
    match level {
        "off" => "off".to_owned(),
        level => format!("error,agent_daemon={level},agent_core={level}"),
    }
}

/// The way to the thread; none once the log has ended.
type Lines = Arc<Mutex<Option<SyncSender<Vec<u8>>>>>;

/// Keeps the log's thread; dropped, it gives the last lines a moment.
pub struct LogGuard {
    written: Receiver<()>,
    lines: Lines,
}

impl Drop for LogGuard {
    fn drop(&mut self) {
        // The thread ends when nobody can send any more.
        if let Ok(mut lines) = self.lines.lock() {
            lines.take();
        }
        let _ = self.written.recv_timeout(LAST_LINES);
    }
}

/// Hands lines to the thread.
#[derive(Clone)]
struct LogWriter {
    lines: Lines,
    dropped: Arc<AtomicU64>,
}

impl LogWriter {
    fn start(mut out: Box<dyn Write + Send>) -> (Self, LogGuard) {
        let (lines, waiting) = mpsc::sync_channel::<Vec<u8>>(WAITING_LINES);
        let (done, written) = mpsc::sync_channel(1);
        let lines = Arc::new(Mutex::new(Some(lines)));
        let dropped = Arc::new(AtomicU64::new(0));
        let writer = LogWriter { lines: lines.clone(), dropped: dropped.clone() };
        std::thread::Builder::new()
            .name("log".to_owned())
            .spawn(move || {
                while let Ok(line) = waiting.recv() {
                    // stderr may be gone, or the disk full; then there is nobody to tell.
                    let _ = out.write_all(&line);
                    let lost = dropped.swap(0, Ordering::Relaxed);
                    if lost > 0 {
                        let _ = out.write_all(
                            format!("{lost} lines of log were dropped: it is slow\n").as_bytes(),
                        );
                    }
                }
                let _ = done.send(());
            })
            .expect("the system can start a thread while the process starts");
        (writer, LogGuard { written, lines })
    }
}

impl<'a> MakeWriter<'a> for LogWriter {
    type Writer = LogWriter;

    fn make_writer(&'a self) -> LogWriter {
        self.clone()
    }
}

impl Write for LogWriter {
    // The subscriber writes one whole line at a time.
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        let lines = self.lines.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        if let Some(lines) = &*lines
            && lines.try_send(line.to_vec()).is_err()
        {
            self.dropped.fetch_add(1, Ordering::Relaxed);
        }
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_level_is_ours_alone_and_a_list_is_taken_as_it_is() {
        let filter = |level| LogSettings::new(level, LogFormat::Text).map(|log| log.filter);
        assert_eq!(filter("debug").unwrap(), "error,agent_daemon=debug,agent_core=debug");
        assert_eq!(filter("off").unwrap(), "off");
        assert_eq!(filter("hyper=trace").unwrap(), "hyper=trace");
        assert!(filter("loud").unwrap_err().starts_with("`loud` is no log level; use error"));
        assert!(filter("agent_daemon=loud").is_err());
    }
}
