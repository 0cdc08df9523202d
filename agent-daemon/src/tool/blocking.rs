//! Work that would block the runtime, on a thread that may.
//!
//! Owns: how such work learns that nobody wants it any more. A blocking thread cannot be stopped
//! from outside, so the work looks at its [`Stop`] before each step that others would notice.
//! Never: lets the work change a file after its call was abandoned.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use agent_core::{CancelSignal, ToolError};

/// Whether the work should stop: the run was aborted, or the call's task is gone.
pub(super) struct Stop {
    signal: CancelSignal,
    abandoned: Arc<AtomicBool>,
}

impl Stop {
    /// Whether it should stop now.
    pub(super) fn requested(&self) -> bool {
        self.signal.is_cancelled() || self.abandoned.load(Ordering::Acquire)
    }
}

/// Says so when the call's task is dropped at its await.
struct AbandonOnDrop(Arc<AtomicBool>);

impl Drop for AbandonOnDrop {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Release);
    }
}

/// Runs `work` on a blocking thread and waits for it.
///
/// # Errors
/// The runtime is shutting down. A panic in the work goes on in the caller.
pub(super) async fn run<T: Send + 'static>(
    signal: &CancelSignal,
    work: impl FnOnce(&Stop) -> T + Send + 'static,
) -> Result<T, ToolError> {
    let abandoned = Arc::new(AtomicBool::new(false));
    let stop = Stop { signal: signal.clone(), abandoned: abandoned.clone() };
    let _abandon = AbandonOnDrop(abandoned);
    match tokio::task::spawn_blocking(move || work(&stop)).await {
        Ok(result) => Ok(result),
        Err(error) if error.is_panic() => std::panic::resume_unwind(error.into_panic()),
        Err(_) => Err(ToolError::new("The daemon is shutting down; nothing was done.")),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::{sync::mpsc, time::Duration};

    use agent_core::CancelSource;
    use futures_util::FutureExt;

    use super::*;

    #[tokio::test]
    async fn an_aborted_run_stops_the_work() {
        let source = CancelSource::default();
        let seen = run(&source.signal(), |stop| stop.requested()).await.unwrap();
        assert!(!seen);
        source.cancel(Duration::ZERO);
        let seen = run(&source.signal(), |stop| stop.requested()).await.unwrap();
        assert!(seen);
    }

    #[tokio::test]
    async fn a_dropped_call_stops_the_work() {
        let (dropped, after_drop) = mpsc::channel::<()>();
        let (told, answer) = mpsc::channel();
        let signal = CancelSignal::never();
        let mut call = Box::pin(run(&signal, move |stop| {
            // Ends when the other side is dropped, which is after the call was.
            let _ = after_drop.recv();
            told.send(stop.requested()).unwrap();
        }));
        assert!(call.as_mut().now_or_never().is_none());
        drop(call);
        drop(dropped);
        assert!(answer.recv().unwrap());
    }
}
