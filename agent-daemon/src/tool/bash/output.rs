//! What a command says.
//!
//! Owns: the end of it for the model, and the file with all of it once that is too long.
//! Never: leaves the file behind unless a result names it; keeps more than the tail in memory.

use std::{path::PathBuf, sync::Arc};

use tokio::io::AsyncWriteExt;

use super::{
    super::{
        boundary,
        session_outputs::{OutputFile, Room, SessionOutputs},
        text::{MAX_BYTES, MAX_LINES, counted, grouped},
    },
    clean::Cleaner,
    tail::{Limit, Tail},
};

/// What the model gets.
const RESULT: Limit = Limit { lines: MAX_LINES, bytes: MAX_BYTES };

/// What a progress update shows.
const PROGRESS: Limit = Limit { lines: 40, bytes: 4 * 1024 };

/// The output so far.
pub(super) struct Output {
    outputs: Arc<SessionOutputs>,
    cleaner: Cleaner,
    tail: Tail,
    spill: Spill,
}

/// Where the whole output is.
enum Spill {
    /// In the tail; it is short.
    None,
    /// In a file, which goes when this is dropped.
    File(Box<Spilled>),
    /// Nowhere: the file could not be written.
    Failed { reason: String },
}

struct Spilled {
    file: tokio::fs::File,
    output: OutputFile,
    written: u64,
    /// There was no room for all of it.
    is_cut: bool,
    /// How many older outputs had to go, and the newest of them.
    removed: (u64, PathBuf),
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
    /// No output yet; if it gets long it joins the session's.
    pub(super) fn new(outputs: Arc<SessionOutputs>) -> Self {
        Output {
            outputs,
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
            self.spill = Spill::begin(self.outputs.clone()).await;
            self.spill.write(&before).await;
        }
        self.spill.write(text).await;
    }
}

impl Spill {
    async fn begin(outputs: Arc<SessionOutputs>) -> Self {
        match tokio::task::spawn_blocking(move || outputs.begin()).await {
            Ok(Ok((output, file))) => Spill::File(Box::new(Spilled {
                file: file.into(),
                output,
                written: 0,
                is_cut: false,
                removed: (0, PathBuf::new()),
            })),
            Ok(Err(error)) => Spill::Failed { reason: error.to_string() },
            Err(error) => Spill::Failed { reason: error.to_string() },
        }
    }

    async fn write(&mut self, text: &str) {
        let Spill::File(spilled) = self else { return };
        if let Err(error) = spilled.write(text).await {
            *self = Spill::Failed { reason: error.to_string() };
        }
    }

    /// Where all of it is, in words, and the file.
    async fn close(self) -> (String, Option<PathBuf>) {
        let spilled = match self {
            Spill::None => return (String::new(), None),
            Spill::Failed { reason } => Err(reason),
            Spill::File(mut spilled) => match spilled.file.flush().await {
                Ok(()) => Ok(*spilled),
                Err(error) => Err(error.to_string()),
            },
        };
        match spilled {
            Ok(spilled) => spilled.keep(),
            Err(reason) => (format!("The rest could not be kept in a file: {reason}."), None),
        }
    }
}

impl Spilled {
    async fn write(&mut self, text: &str) -> std::io::Result<()> {
        let Room { bytes, removed } = self.output.room(self.written, text.len() as u64);
        if let Some(newest) = removed.last() {
            self.removed = (self.removed.0 + removed.len() as u64, newest.clone());
            let remove = move || removed.iter().for_each(|path| drop(std::fs::remove_file(path)));
            // They are big, and a session that cannot remove them is no worse off than before.
            let _ = tokio::task::spawn_blocking(remove).await;
        }
        let fits = boundary::floor(text, usize::try_from(bytes).unwrap_or(usize::MAX));
        self.is_cut |= fits < text.len();
        self.written += fits as u64;
        self.file.write_all(&text.as_bytes()[..fits]).await
    }

    fn keep(self) -> (String, Option<PathBuf>) {
        let limit = self.output.limit() / (1024 * 1024);
        let path = self.output.keep();
        let part = match self.is_cut {
            true => format!("The first {} of it are in", counted(self.written, "byte")),
            false => "The whole output is in".into(),
        };
        let mut place = format!("{part} {}", path.display());
        let (count, newest) = self.removed;
        if count > 0 {
            let (older, newest) = (counted(count, "older output"), newest.display());
            place.push_str(&format!(
                ". A session keeps {limit} MiB of them, so {older} went, up to {newest}"
            ));
        }
        (place, Some(path))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::path::Path;

    use super::*;
    use crate::tool::session_outputs::tests::{LIMIT, outputs};

    async fn finished(pieces: &[&[u8]]) -> (Finished, Arc<SessionOutputs>, tempfile::TempDir) {
        let (outputs, cache) = outputs();
        let mut output = Output::new(outputs.clone());
        for piece in pieces {
            output.feed(piece).await;
        }
        (output.finish().await, outputs, cache)
    }

    /// The files of the only session.
    fn logs(cache: &Path) -> Vec<PathBuf> {
        fn below(directory: &Path, logs: &mut Vec<PathBuf>) {
            for entry in std::fs::read_dir(directory).into_iter().flatten() {
                let path = entry.unwrap().path();
                match path.is_dir() {
                    true => below(&path, logs),
                    false => logs.push(path),
                }
            }
        }
        let mut logs = Vec::new();
        below(cache, &mut logs);
        logs.retain(|path| path.extension().is_some_and(|extension| extension == "log"));
        logs.sort();
        logs
    }

    fn numbered(lines: usize) -> String {
        (1..=lines).map(|line| format!("{line}\n")).collect()
    }

    #[tokio::test]
    async fn a_short_output_is_all_there() {
        let exact = numbered(2_000);
        for text in ["", "a", "a\nb\n", "é", exact.as_str(), "x".repeat(MAX_BYTES).as_str()] {
            let (finished, _outputs, cache) = finished(&[text.as_bytes()]).await;
            assert_eq!(finished.text, text);
            assert!(!finished.truncated && finished.file.is_none());
            assert_eq!(std::fs::read_dir(cache.path()).unwrap().count(), 0);
        }
    }

    #[tokio::test]
    async fn a_long_output_is_in_a_file() {
        let text = numbered(5_000);
        for size in [1_000, 7_919, 1 << 20] {
            let pieces: Vec<&[u8]> = text.as_bytes().chunks(size).collect();
            let (finished, _outputs, _cache) = finished(&pieces).await;
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
        let line = format!("{}end", "x".repeat(800_000));
        let (finished, _outputs, _cache) = finished(&[line.as_bytes()]).await;
        assert!(finished.text.contains("xend\n\n[The last 51,200 bytes of line 1 of 1 are shown."));
        assert_eq!(finished.file.unwrap().metadata().unwrap().len(), 800_003);
    }

    #[tokio::test]
    async fn a_dropped_output_leaves_no_file() {
        let (outputs, cache) = outputs();
        let mut output = Output::new(outputs.clone());
        output.feed(numbered(5_000).as_bytes()).await;
        assert_eq!(logs(cache.path()).len(), 1);
        drop(output);
        assert_eq!(logs(cache.path()).len(), 0);
    }

    #[tokio::test]
    async fn without_room_for_a_file_the_end_is_shown_all_the_same() {
        let (outputs, _cache) = outputs();
        outputs.remove();
        let mut output = Output::new(outputs);
        output.feed(numbered(5_000).as_bytes()).await;
        let finished = output.finish().await;
        assert!(finished.text.starts_with("3001\n"));
        assert!(
            finished.text.contains("could not be kept in a file: the session has ended"),
            "{}",
            finished.text
        );
        assert!(finished.file.is_none());
    }

    #[tokio::test]
    async fn a_session_keeps_so_much_and_the_result_says_what_went() {
        let (outputs, cache) = outputs();
        let mut texts = Vec::new();
        // 320 KiB each.
        let piece = format!("{}\n", "x".repeat(1023)).repeat(32);
        for _ in 0..5 {
            let mut output = Output::new(outputs.clone());
            for _ in 0..10 {
                output.feed(piece.as_bytes()).await;
            }
            texts.push(output.finish().await.text);
        }
        let logs = logs(cache.path());
        let names: Vec<_> = logs.iter().map(|path| path.file_name().unwrap()).collect();
        assert_eq!(names, ["3.log", "4.log", "5.log"]);
        let went = |text: &str| text.contains("went, up to");
        assert_eq!(
            texts.iter().map(|text| went(text)).collect::<Vec<_>>(),
            [false, false, false, true, true]
        );
        let notice = format!(
            "The whole output is in {}. A session keeps 1 MiB of them, so 1 older output went, up to {}]",
            logs[2].display(),
            logs[2].with_file_name("2.log").display()
        );
        assert!(texts[4].ends_with(&notice), "{}", &texts[4][texts[4].len() - 300..]);
    }

    #[tokio::test]
    async fn one_output_that_is_too_long_keeps_its_beginning() {
        let (outputs, _cache) = outputs();
        let mut output = Output::new(outputs.clone());
        let piece = format!("{}\n", "é".repeat(1023)).repeat(32);
        for _ in 0..LIMIT / piece.len() as u64 {
            output.feed(piece.as_bytes()).await;
        }
        output.feed(piece.as_bytes()).await;
        let finished = output.finish().await;
        let bytes = finished.file.unwrap().metadata().unwrap().len();
        assert!((LIMIT - 1..=LIMIT).contains(&bytes), "{bytes}");
        let part = format!("The first {} of it are in", counted(bytes, "byte"));
        assert!(finished.text.contains(&part), "{}", &finished.text[finished.text.len() - 300..]);
    }

    #[tokio::test]
    async fn progress_is_the_last_few_lines() {
        let mut output = Output::new(outputs().0);
        output.feed(numbered(100).as_bytes()).await;
        assert!(output.progress().starts_with("61\n") && output.progress().ends_with("100\n"));
    }
}
