//! The real programs, as processes, and what talks to them from outside.
//!
//! Owns: private surroundings for each test, so that nothing of the user's is read and nothing is
//! left behind. Never: waits without a limit.

mod attached;
mod binaries;
mod daemon;
mod home;
mod model_server;
mod peer;
mod stock;

use std::{
    thread::sleep,
    time::{Duration, Instant},
};

pub use attached::{Attached, Pty};
pub use binaries::{binary, repository};
pub use daemon::{Daemon, exit_of, finished};
pub use home::Home;
pub use model_server::{ModelCall, ModelServer};
pub use peer::{Peer, story};
pub use stock::{needed, node_modules, program, python};

/// How long anything may take that is bound to happen. Long, since the machine may be crowded.
pub const PATIENCE: Duration = Duration::from_secs(120);

/// What comes of something outside our control, which sends us no event when it changes.
///
/// # Panics
/// It takes longer than [`PATIENCE`].
pub fn eventually<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let start = Instant::now();
    loop {
        if let Some(seen) = look() {
            return seen;
        }
        assert!(start.elapsed() < PATIENCE, "waited in vain for {what}");
        sleep(Duration::from_millis(10));
    }
}
