//! The cancellation of one run, as everything that works for the run sees it.
//!
//! Owns: when the run was aborted, and hence until when its grace period lasts.
//! Never: lets those who watch it fire it; only the run's owner can.

use std::{
    sync::{Arc, OnceLock},
    time::Duration,
};

use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// The read side of a run's cancellation. Cheap to clone.
///
/// It is for looking only: user code that could fire it would abort runs behind `abort`'s back.
#[derive(Clone, Debug)]
pub struct CancelSignal {
    token: CancellationToken,
    /// When the grace period ends, if it ever does; set just before the token fires.
    deadline: Arc<OnceLock<Option<Instant>>>,
}

impl CancelSignal {
    /// A signal that never fires, for calling a model or a tool without a run.
    pub fn never() -> Self {
        CancelSource::default().signal()
    }

    /// Whether the run was aborted.
    pub fn is_cancelled(&self) -> bool {
        self.token.is_cancelled()
    }

    /// Completes when the run is aborted. Safe to drop and to call again.
    pub async fn cancelled(&self) {
        self.token.cancelled().await;
    }

    /// Completes when the run was aborted and its grace period is over.
    pub async fn grace_over(&self) {
        self.token.cancelled().await;
        match self.deadline.get() {
            Some(Some(deadline)) => tokio::time::sleep_until(*deadline).await,
            // Longer than the clock can tell.
            _ => std::future::pending().await,
        }
    }
}

/// The write side, in the hands of whoever owns the run.
#[derive(Clone, Debug, Default)]
pub struct CancelSource {
    token: CancellationToken,
    deadline: Arc<OnceLock<Option<Instant>>>,
}

impl CancelSource {
    /// A signal that fires when this source does.
    pub fn signal(&self) -> CancelSignal {
        CancelSignal { token: self.token.clone(), deadline: self.deadline.clone() }
    }

    /// A source that fires when this one does, and can be fired alone.
    pub(crate) fn child(&self) -> Self {
        CancelSource { token: self.token.child_token(), deadline: self.deadline.clone() }
    }

    /// Fires. The grace period counts from the first call; more calls change nothing.
    pub fn cancel(&self, grace: Duration) {
        let _ = self.deadline.set(Instant::now().checked_add(grace));
        self.token.cancel();
    }

    /// Whether it has fired.
    pub fn is_cancelled(&self) -> bool {
        self.token.is_cancelled()
    }
}
