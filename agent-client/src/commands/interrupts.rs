//! Ctrl-C: the first is news, the second means now.

use std::{io, sync::Arc};

use tokio::{
    signal::unix::{SignalKind, signal},
    sync::Notify,
};

use crate::exit::Exit;

/// The user's wish to end what runs.
pub(super) struct Interrupts {
    first: Arc<Notify>,
}

impl Interrupts {
    /// From now on Ctrl-C does not end the process, unless it comes twice.
    pub(super) fn watch() -> io::Result<Self> {
        let mut signals = signal(SignalKind::interrupt())?;
        let first = Arc::new(Notify::new());
        let news = first.clone();
        // A task of its own: whoever waits for the news may be held up by a terminal that is
        // stopped, and the second Ctrl-C has to work then, too.
        tokio::spawn(async move {
            signals.recv().await;
            news.notify_one();
            signals.recv().await;
            std::process::exit(Exit::RunAborted as i32);
        });
        Ok(Interrupts { first })
    }

    /// Waits for the first Ctrl-C; never answers twice.
    pub(super) async fn first(&self) {
        self.first.notified().await;
    }
}
