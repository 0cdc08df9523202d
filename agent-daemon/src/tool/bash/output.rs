//! What a command says.
//!
//! Owns: the end of it for the model, and the file with all of it once that is too long.
//! Never: leaves the file behind unless a result names it; keeps more than the tail in memory.

use std::path::{Path, PathBuf};

use tokio::io::AsyncWriteExt;

use super::{
    super::{MAX_BYTES, MAX_LINES, boundary, counted, grouped},
    clean::Cleaner,
    tail::{Limit, Tail},
};

/// What the model gets.
const RESULT: Limit = Limit { lines: MAX_LINES, bytes: MAX_BYTES };

/// What a progress update shows.
const PROGRESS: Limit = Limit { lines: 40, bytes: 4 * 1024 };

/// The file with the whole output grows no larger, lest one command fill the disk.
const MAX_FILE: u64 = 256 * 1024 * 1024;

/// The output so far.
pub(super) struct Output {
    directory: PathBuf,
    cleaner: Cleaner,
    tail: Tail,
    spill: Spill,
}

/// Where the whole output is.
enum Spill {
    /// In the tail; it is short.
    None,
    /// In a file, which goes when this is dropped.
    File { file: tokio::fs::File, path: tempfile::TempPath, written: u64 },
    /// Nowhere: the file could not be written.
    Failed { reason: String },
}

/// The output when there will be no more.
pub(super) struct Finished {
    /// The end of it, with a notice if that is not all.
    pub(super) text: String,
    /// Whether it is not all.
    pub(super) truncated: bool,
    /// The file with all of it, which stays.
    pub(super) file: Option<PathBuf>,
}

impl Output {
    /// No output yet; a file would be made in this directory.
    pub(super) fn new(directory: &Path) -> Self {
        Output {
            directory: directory.to_owned(),
            cleaner: Cleaner::default(),
            tail: Tail::new(MAX_BYTES),
            spill: Spill::None,
        }
    }

    /// Takes some more bytes.
    pub(super) async fn feed(&mut self, bytes: &[u8]) {
        let mut text = String::with_capacity(bytes.len());
        self.cleaner.feed(bytes, &mut text);
        self.push(&text).await;
    }

    /// The last few lines, to show progress.
    pub(super) fn progress(&self) -> &str {
        self.tail.view(PROGRESS).text
    }

    /// Ends the output. A file is kept only here, so the result has to name it.
    pub(super) async fn finish(mut self) -> Finished {
        let mut text = String::new();
        self.cleaner.finish(&mut text);
        self.push(&text).await;
        let (place, file) = self.spill.close().await;
        if self.tail.fits(RESULT) {
            return Finished { text: self.tail.whole().to_owned(), truncated: false, file: None };
        }
        let view = self.tail.view(RESULT);
        let which = match view.in_line {
            true => format!(
                "The last {} of line {} of {} are shown",
                counted(view.text.len() as u64, "byte"),
                grouped(view.first),
                grouped(view.total)
            ),
            false => format!(
                "Lines {}-{} of {} are shown",
                grouped(view.first),
                grouped(view.total),
                grouped(view.total)
            ),
        };
        let gap = if view.text.ends_with('\n') { "\n" } else { "\n\n" };
        let text = format!("{}{gap}[{which}. {place}]", view.text);
        Finished { text, truncated: true, file }
    }

    async fn push(&mut self, text: &str) {
        let fitted = self.tail.fits(RESULT);
        // Both are the whole of what came before; the tail drops something only after this.
        let before = if fitted { self.tail.whole().to_owned() } else { String::new() };
        self.tail.push(text);
        if self.tail.fits(RESULT) {
            return;
        }
        if fitted {
            self.spill = Spill::begin(&self.directory).await;
            self.spill.write(&before).await;
        }
        self.spill.write(text).await;
    }
}

impl Spill {
    async fn begin(directory: &Path) -> Self {
        let directory = directory.to_owned();
        let made = tokio::task::spawn_blocking(move || {
            let builder = &mut tempfile::Builder::new();
            builder.prefix("agent-bash-").suffix(".log").tempfile_in(directory)
        });
        match made.await {
            Ok(Ok(file)) => {
                let (file, path) = file.into_parts();
                Spill::File { file: file.into(), path, written: 0 }
            }
            Ok(Err(error)) => Spill::Failed { reason: error.to_string() },
            Err(error) => Spill::Failed { reason: error.to_string() },
        }
    }

    async fn write(&mut self, text: &str) {
        let Spill::File { file, written, .. } = self else { return };
        let room = usize::try_from(MAX_FILE - *written).unwrap_or(usize::MAX);
        let text = &text[..boundary::floor(text, room)];
        *written += text.len() as u64;
        if let Err(error) = file.write_all(text.as_bytes()).await {
            *self = Spill::Failed { reason: error.to_string() };
        }
    }

    /// Where all of it is, in words, and the file.
    async fn close(self) -> (String, Option<PathBuf>) {
        let failed = |reason: &dyn std::fmt::Display| {
            (format!("The rest could not be kept in a file: {reason}."), None)
        };
        let (mut file, path, written) = match self {
            Spill::None => return (String::new(), None),
            Spill::Failed { reason } => return failed(&reason),
            Spill::File { file, path, written } => (file, path, written),
        };
        if let Err(error) = file.flush().await {
            return failed(&error);
        }
        let path = match path.keep() {
            Ok(path) => path,
            Err(error) => return failed(&error),
        };
        // A character that did not fit may leave the last few bytes free.
        let part = match written > MAX_FILE - 4 {
            true => format!("The first {} of it are in", counted(written, "byte")),
            false => "The whole output is in".into(),
        };
        (format!("{part} {}", path.display()), Some(path))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    async fn finished(pieces: &[&[u8]]) -> (Finished, tempfile::TempDir) {
        let scratch = tempfile::tempdir().unwrap();
        let mut output = Output::new(scratch.path());
        for piece in pieces {
            output.feed(piece).await;
        }
        (output.finish().await, scratch)
    }

    fn numbered(lines: usize) -> String {
        (1..=lines).map(|line| format!("{line}\n")).collect()
    }

    #[tokio::test]
    async fn a_short_output_is_all_there() {
        let exact = numbered(2_000);
        for text in ["", "a", "a\nb\n", "é", exact.as_str(), "x".repeat(MAX_BYTES).as_str()] {
            let (finished, scratch) = finished(&[text.as_bytes()]).await;
            assert_eq!(finished.text, text);
            assert!(!finished.truncated && finished.file.is_none());
            assert_eq!(std::fs::read_dir(scratch.path()).unwrap().count(), 0);
        }
    }

    #[tokio::test]
    async fn a_long_output_is_in_a_file() {
        let text = numbered(5_000);
        for size in [1_000, 7_919, 1 << 20] {
            let pieces: Vec<&[u8]> = text.as_bytes().chunks(size).collect();
            let (finished, _scratch) = finished(&pieces).await;
            let file = finished.file.unwrap();
            assert_eq!(std::fs::read_to_string(&file).unwrap(), text);
            let notice = format!(
                "4999\n5000\n\n[Lines 3,001-5,000 of 5,000 are shown. The whole output is in {}]",
                file.display()
            );
            assert!(finished.text.starts_with("3001\n") && finished.text.ends_with(&notice));
        }
    }

    #[tokio::test]
    async fn a_long_line_keeps_its_end() {
        let line = format!("{}end", "x".repeat(3_000_000));
        let (finished, _scratch) = finished(&[line.as_bytes()]).await;
        assert!(finished.text.contains("xend\n\n[The last 51,200 bytes of line 1 of 1 are shown."));
        assert_eq!(finished.file.unwrap().metadata().unwrap().len(), 3_000_003);
    }

    #[tokio::test]
    async fn a_dropped_output_leaves_no_file() {
        let scratch = tempfile::tempdir().unwrap();
        let mut output = Output::new(scratch.path());
        output.feed(numbered(5_000).as_bytes()).await;
        assert_eq!(std::fs::read_dir(scratch.path()).unwrap().count(), 1);
        drop(output);
        assert_eq!(std::fs::read_dir(scratch.path()).unwrap().count(), 0);
    }

    #[tokio::test]
    async fn without_room_for_a_file_the_end_is_shown_all_the_same() {
        let mut output = Output::new(Path::new("/nowhere/at/all"));
        output.feed(numbered(5_000).as_bytes()).await;
        let finished = output.finish().await;
        assert!(finished.text.starts_with("3001\n"));
        assert!(
            finished.text.contains("could not be kept in a file: No such file"),
            "{}",
            finished.text
        );
        assert!(finished.file.is_none());
    }

    #[tokio::test]
    async fn progress_is_the_last_few_lines() {
        let scratch = tempfile::tempdir().unwrap();
        let mut output = Output::new(scratch.path());
        output.feed(numbered(100).as_bytes()).await;
        assert!(output.progress().starts_with("61\n") && output.progress().ends_with("100\n"));
    }
}
