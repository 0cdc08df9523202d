//! Those who have not shown the token yet.
//!
//! Owns: the small room that all of them have together, how long each may stay, and who leaves it
//! for a newcomer.
//! Never: lets a stranger take a place from a holder of the token, or a descriptor from tools and
//! models. However many are silent and however fast more of them come, whoever has the token and
//! shows it gets in.

use std::{
    collections::VecDeque,
    os::fd::{AsFd, OwnedFd},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use rustix::net::{RecvFlags, recv};
use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore},
    time::{Instant, sleep_until},
};
use tokio_util::sync::CancellationToken;

use super::tally::Tally;

/// The room.
#[derive(Debug)]
pub(crate) struct Strangers {
    places: usize,
    patience: Duration,
    /// For who is inside, and as many again who are on their way out.
    doors: Arc<Semaphore>,
    room: Mutex<Room>,
    tally: Tally,
}

#[derive(Debug, Default)]
struct Room {
    /// In the order in which they came.
    inside: VecDeque<Inside>,
    entered: u64,
}

#[derive(Debug)]
struct Inside {
    number: u64,
    /// A duplicate, to see whether anything was said that is not read yet.
    socket: Option<OwnedFd>,
    leave: CancellationToken,
}

/// A stranger's place. Dropped, it is free.
#[derive(Debug)]
pub(crate) struct Seat {
    strangers: Arc<Strangers>,
    number: u64,
    until: Instant,
    leave: CancellationToken,
    _door: OwnedSemaphorePermit,
}

impl Strangers {
    /// An empty room of so many places, for so long each.
    pub(crate) fn new(places: usize, patience: Duration) -> Arc<Self> {
        let places = places.max(1);
        Arc::new(Strangers {
            places,
            patience,
            doors: Arc::new(Semaphore::new(2 * places)),
            room: Mutex::default(),
            tally: Tally::default(),
        })
    }

    /// Waits until there is a way in. As a rule there is one: whoever has to leave does so at once.
    pub(crate) async fn door(&self) -> OwnedSemaphorePermit {
        let door = self.doors.clone().acquire_owned().await;
        door.expect("nobody closes the semaphore")
    }

    /// Gives a newcomer a place, somebody else's if need be.
    pub(crate) fn enter(self: &Arc<Self>, socket: impl AsFd, door: OwnedSemaphorePermit) -> Seat {
        let leave = CancellationToken::new();
        // Without a duplicate it counts as silent.
        let socket = socket.as_fd().try_clone_to_owned().ok();
        let mut room = self.room();
        room.entered += 1;
        let number = room.entered;
        let crowded_out = if room.inside.len() < self.places { None } else { room.crowd_out() };
        room.inside.push_back(Inside { number, socket, leave: leave.clone() });
        drop(room);
        if let Some(gone) = crowded_out {
            gone.leave.cancel();
            self.tally.note("no token, and others wanted to come in");
        }
        let until = Instant::now() + self.patience;
        Seat { strangers: self.clone(), number, until, leave, _door: door }
    }

    /// Counts somebody who was turned away, for the log.
    pub(crate) fn note(&self, what: &'static str) {
        self.tally.note(what);
    }

    fn room(&self) -> MutexGuard<'_, Room> {
        self.room.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Room {
    /// Takes out the one who has been silent for longest. Who has said something that is not read
    /// yet may have said the token, and stays while there are others.
    fn crowd_out(&mut self) -> Option<Inside> {
        let silent = self.inside.iter().position(|inside| !inside.has_spoken());
        self.inside.remove(silent.unwrap_or(0))
    }
}

impl Inside {
    fn has_spoken(&self) -> bool {
        let flags = RecvFlags::PEEK | RecvFlags::DONTWAIT;
        let waits = |socket| matches!(recv(socket, &mut [0_u8; 1], flags), Ok((_, 1..)));
        self.socket.as_ref().is_some_and(waits)
    }
}

impl Seat {
    /// Completes when the stranger has to go. Safe to drop and to wait for again.
    pub(crate) async fn over(&self) {
        tokio::select! {
            () = self.leave.cancelled() => {}
            () = sleep_until(self.until) => self.strangers.tally.note("no token in time"),
        }
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        self.strangers.room().inside.retain(|inside| inside.number != self.number);
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::io::Write;
    use std::os::unix::net::UnixStream;

    use futures_util::FutureExt;

    use super::*;

    /// Lets somebody in; gives the other end of its socket, too.
    async fn enter(strangers: &Arc<Strangers>) -> (Seat, UnixStream, UnixStream) {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let door = strangers.door().await;
        (strangers.enter(&ours, door), ours, theirs)
    }

    fn has_to_go(seat: &Seat) -> bool {
        seat.over().now_or_never().is_some()
    }

    #[tokio::test(start_paused = true)]
    async fn for_a_newcomer_goes_who_has_been_silent_for_longest() {
        let strangers = Strangers::new(3, Duration::from_secs(5));
        let (first, ..) = enter(&strangers).await;
        let (second, _ours, mut speaks) = enter(&strangers).await;
        let (third, ..) = enter(&strangers).await;
        assert!(![&first, &second, &third].into_iter().any(has_to_go));
        speaks.write_all(b"{").unwrap();
        let (_fourth, ..) = enter(&strangers).await;
        assert!(has_to_go(&first) && !has_to_go(&second) && !has_to_go(&third));
        // Its place is given away already; its door is not free before it is gone.
        drop(first);
        let (_fifth, ..) = enter(&strangers).await;
        assert!(!has_to_go(&second) && has_to_go(&third));
        // One who leaves makes room.
        drop(third);
        drop(second);
        let (sixth, ..) = enter(&strangers).await;
        assert!(!has_to_go(&sixth));
        assert_eq!(strangers.room().inside.len(), 3);
    }

    #[tokio::test(start_paused = true)]
    async fn a_stranger_has_its_time_and_those_who_leave_slowly_hold_up_no_more_than_newcomers() {
        let strangers = Strangers::new(1, Duration::from_secs(5));
        let (first, ..) = enter(&strangers).await;
        tokio::time::sleep(Duration::from_millis(4_999)).await;
        assert!(!has_to_go(&first));
        tokio::time::sleep(Duration::from_millis(1)).await;
        assert!(has_to_go(&first));
        let (_second, ..) = enter(&strangers).await;
        assert!(strangers.door().now_or_never().is_none());
        drop(first);
        assert!(strangers.door().now_or_never().is_some());
    }
}
