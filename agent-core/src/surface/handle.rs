//! A run from the outside.
//!
//! Owns: that awaiting a run inside its own code is an error and not a hang (C5.5).
//! Never: keeps the run; dropping a handle changes nothing.

use std::{
    future::Future,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use tokio::sync::oneshot;

use crate::{
    data::event::RunId,
    run::{contain::is_code_of, publisher::Publisher, run_task::RunResult},
    surface::error::WaitError,
};

/// A run that was started. Awaiting it gives the result; dropping it changes nothing (C5.8).
pub struct RunHandle {
    run_id: RunId,
    seq: u64,
    publisher: Arc<Publisher>,
    result: oneshot::Receiver<RunResult>,
}

impl RunHandle {
    pub(crate) fn new(
        run_id: RunId,
        seq: u64,
        publisher: Arc<Publisher>,
        result: oneshot::Receiver<RunResult>,
    ) -> Self {
        RunHandle { run_id, seq, publisher, result }
    }

    /// The run.
    pub fn run_id(&self) -> RunId {
        self.run_id
    }

    /// The number of its `run_start`.
    pub fn seq(&self) -> u64 {
        self.seq
    }
}

impl std::fmt::Debug for RunHandle {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(out, "RunHandle({})", self.run_id)
    }
}

impl Future for RunHandle {
    type Output = Result<RunResult, WaitError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        match Pin::new(&mut self.result).poll(context) {
            Poll::Ready(result) => Poll::Ready(result.map_err(|_| WaitError::RuntimeGone)),
            // C5.5: it would wait for the very listener that is polling it.
            Poll::Pending if is_code_of(self.publisher.id()) => {
                Poll::Ready(Err(WaitError::WaitsForItself))
            }
            Poll::Pending => Poll::Pending,
        }
    }
}
