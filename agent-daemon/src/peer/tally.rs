//! What strangers can make happen as often as they like, said once a minute.
//!
//! Owns: how often each of it happened since the log last said so. Never: lets anybody fill the log.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

/// How often the log says how many.
const PERIOD: Duration = Duration::from_secs(60);

/// Counts, by what happened. What happens first is said at once.
#[derive(Clone, Debug, Default)]
pub(crate) struct Tally(Arc<Mutex<Counts>>);

#[derive(Debug, Default)]
struct Counts {
    /// What the log has not said yet.
    untold: BTreeMap<&'static str, u64>,
    /// Whether a task will say it.
    is_waiting: bool,
}

impl Tally {
    /// Counts one more. Needs a runtime.
    pub(crate) fn note(&self, what: &'static str) {
        let mut counts = self.counts();
        if counts.is_waiting {
            *counts.untold.entry(what).or_default() += 1;
            return;
        }
        counts.is_waiting = true;
        drop(counts);
        tracing::warn!("turned somebody away: {what}");
        tokio::spawn(self.clone().tell());
    }

    /// Says how many there were, each minute in which there were some.
    async fn tell(self) {
        loop {
            tokio::time::sleep(PERIOD).await;
            let untold = {
                let mut counts = self.counts();
                counts.is_waiting = !counts.untold.is_empty();
                std::mem::take(&mut counts.untold)
            };
            if untold.is_empty() {
                return;
            }
            let told = untold.iter().map(|(what, count)| format!("{count} × {what}"));
            let told = told.collect::<Vec<_>>().join(", ");
            tracing::warn!("turned away in the last minute: {told}");
        }
    }

    fn counts(&self) -> MutexGuard<'_, Counts> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::io::{self, Write};

    use tracing_subscriber::fmt::MakeWriter;

    use super::*;

    #[derive(Clone, Default)]
    struct Log(Arc<Mutex<Vec<u8>>>);

    impl Write for Log {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().write(bytes)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    impl MakeWriter<'_> for Log {
        type Writer = Log;

        fn make_writer(&self) -> Log {
            self.clone()
        }
    }

    #[tokio::test(start_paused = true)]
    async fn the_first_is_said_at_once_and_the_others_once_a_minute_with_their_number() {
        let log = Log::default();
        let subscriber = tracing_subscriber::fmt()
            .with_writer(log.clone())
            .without_time()
            .with_target(false)
            .with_ansi(false)
            .finish();
        let _here = tracing::subscriber::set_default(subscriber);
        let said = || String::from_utf8(std::mem::take(&mut *log.0.lock().unwrap())).unwrap();
        let tally = Tally::default();
        tally.note("a wrong token");
        assert_eq!(said(), " WARN turned somebody away: a wrong token\n");
        for _ in 0..9_999 {
            tally.note("a wrong token");
        }
        tally.note("no token");
        assert_eq!(said(), "");
        tokio::time::sleep(PERIOD * 3).await;
        assert_eq!(
            said(),
            " WARN turned away in the last minute: 9999 × a wrong token, 1 × no token\n"
        );
        tally.note("no token");
        assert_eq!(said(), " WARN turned somebody away: no token\n");
    }
}
