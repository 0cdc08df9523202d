//! Running code that is not ours: models, tools, hooks and listeners.
//!
//! Owns: panics as values, tasks that end with their owner, and the knowledge of which agents'
//! code the current task is running, so that waiting for oneself is an error and not a hang (C5.5).

use std::{
    any::Any,
    future::{Future, poll_fn},
    panic::AssertUnwindSafe,
    pin::pin,
    sync::Arc,
    time::Duration,
};

use futures_util::FutureExt;
use tokio::{
    runtime::{Handle, RuntimeFlavor},
    sync::oneshot,
    task::JoinHandle,
};

tokio::task_local! {
    static RUNNING_FOR: Arc<Nesting>;
}

/// The agents whose code the current task runs, innermost first.
struct Nesting {
    agent: AgentId,
    outer: Option<Arc<Nesting>>,
}

/// Tells agents of one process apart.
pub(crate) type AgentId = usize;

/// Runs a future as code of this agent.
pub(crate) fn as_code_of<F: Future>(agent: AgentId, future: F) -> impl Future<Output = F::Output> {
    let outer = RUNNING_FOR.try_with(Arc::clone).ok();
    RUNNING_FOR.scope(Arc::new(Nesting { agent, outer }), future)
}

/// Whether the current task runs code of this agent.
pub(crate) fn is_code_of(agent: AgentId) -> bool {
    RUNNING_FOR
        .try_with(|nesting| {
            let mut innermost = Some(nesting);
            while let Some(nesting) = innermost {
                if nesting.agent == agent {
                    return true;
                }
                innermost = nesting.outer.as_ref();
            }
            false
        })
        .unwrap_or(false)
}

/// Turns a panic of a future, or of dropping what is left of it, into its message.
pub(crate) async fn catch_panic<F: Future>(future: F) -> Result<F::Output, String> {
    let mut future = pin!(Some(future));
    let running = future.as_mut().as_pin_mut().expect("it is taken out only below");
    let result = AssertUnwindSafe(running).catch_unwind().await;
    let dropped = std::panic::catch_unwind(AssertUnwindSafe(|| future.set(None)));
    let result = result.and_then(|value| dropped.map(|()| value));
    result.map_err(|panic| panic_message(&*panic))
}

/// Polls code that is not ours where it can do no harm: a poll that blocks or spins keeps its
/// thread, and everything else moves to another.
///
/// Without it, a model that wakes its run and then spins would keep the run waiting for ever: a
/// worker's newest task cannot be stolen from it. On a runtime of one thread there is no other to
/// move to, and code that does not yield stops everything.
pub(crate) fn aside<F: Future>(future: F) -> impl Future<Output = F::Output> {
    let mut future = Box::pin(future);
    poll_fn(move |context| {
        let mut poll = || future.as_mut().poll(context);
        match Handle::current().runtime_flavor() {
            RuntimeFlavor::MultiThread => tokio::task::block_in_place(poll),
            _ => poll(),
        }
    })
}

/// How long a first step is waited for. One that takes longer blocks or spins.
const FIRST_STEP_TIME: Duration = Duration::from_millis(500);

/// The same future, and what ends when it has been polled once, dropped, or takes too long.
pub(crate) fn first_step<F: Future>(
    future: F,
) -> (impl Future<Output = F::Output>, impl Future<Output = ()>) {
    let (taken, step) = oneshot::channel::<()>();
    let (mut future, mut taken) = (Box::pin(future), Some(taken));
    let future = poll_fn(move |context| {
        let poll = future.as_mut().poll(context);
        drop(taken.take());
        poll
    });
    (future, async { drop(tokio::time::timeout(FIRST_STEP_TIME, step).await) })
}

fn panic_message(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or("no message".into())
}

/// A task that is aborted when its owner goes.
pub(crate) struct OwnedTask<T>(JoinHandle<T>);

impl<T: Send + 'static> OwnedTask<T> {
    pub(crate) fn spawn(
        runtime: &Handle,
        future: impl Future<Output = T> + Send + 'static,
    ) -> Self {
        OwnedTask(runtime.spawn(future))
    }

    /// What the task came to; none when it panicked or the runtime is gone. Safe to drop.
    pub(crate) async fn join(&mut self) -> Option<T> {
        (&mut self.0).await.ok()
    }
}

impl<T> Drop for OwnedTask<T> {
    fn drop(&mut self) {
        self.0.abort();
    }
}
