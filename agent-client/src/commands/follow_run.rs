//! One run, shown as it happens, to its end.
//!
//! Owns: what becomes of the run's exit status when the connection, the daemon or the session goes
//! away in the middle. Never: shows another run's events.

use std::collections::VecDeque;

use agent_client_library::{
    fold::Missed,
    mirror::{Change, Mirror, MirrorError, News},
};
use agent_core::{Event, EventKind, LastRun, RunId};
use agent_protocol::{Abort, AbortParams, WaitForIdle, WaitForIdleParams};

use crate::{
    commands::interrupts::Interrupts,
    exit::{Exit, Failure},
    follower::Follower,
    output::line,
    render::{
        piece::{Piece, Tone},
        renderer::Renderer,
        screen::Screen,
        sentences,
    },
};

/// One run that is being shown.
pub(super) struct FollowRun {
    follower: Follower,
    run_id: RunId,
    json: bool,
    /// Whether we were there when it began.
    from_start: bool,
    screen: Screen,
    is_aborting: bool,
}

impl FollowRun {
    pub(super) fn new(mirror: Mirror, run_id: RunId, json: bool, from_start: bool) -> Self {
        FollowRun {
            follower: Follower::new(mirror, Renderer::default()),
            run_id,
            json,
            from_start,
            screen: Screen::of_process(),
            is_aborting: false,
        }
    }

    /// Shows `early` and what follows it.
    pub(super) async fn until_its_end(
        mut self,
        mut early: VecDeque<Change>,
        interrupts: &Interrupts,
    ) -> Result<Exit, Failure> {
        loop {
            let change = match early.pop_front() {
                Some(change) => change,
                None => tokio::select! {
                    change = self.follower.next() => change.map_err(|error| self.gone(error))?,
                    () = interrupts.first() => {
                        self.is_aborting = true;
                        self.screen.note(Tone::Faint, "aborting; Ctrl-C again leaves at once")?;
                        self.abort();
                        continue;
                    }
                },
            };
            if let Some(exit) = self.show(change).await? {
                return Ok(exit);
            }
        }
    }

    async fn show(&mut self, change: Change) -> Result<Option<Exit>, Failure> {
        let Change::News { news, json } = change else {
            self.screen.note(Tone::Warning, "the connection is lost; trying again")?;
            return Ok(None);
        };
        let is_shown = match &news {
            News::Event(event) => event.run_id == Some(self.run_id),
            News::Snapshot(missed) => *missed == Missed::Events,
            News::Lagged => true,
            News::Resumed | News::Closed | News::Ending(_) => false,
        };
        if self.json && is_shown {
            line(json.get())?;
        }
        match news {
            News::Event(event) if is_shown => return self.event(&event),
            News::Event(_) | News::Lagged => {}
            News::Snapshot(Missed::Nothing) => self.joined()?,
            News::Snapshot(Missed::Events) => {
                self.abort();
                return self.catch_up().await;
            }
            News::Snapshot(Missed::Agent) => return Err(self.lost("the daemon was restarted")),
            News::Resumed => self.abort(),
            News::Closed => return Err(self.lost("the session was closed")),
            News::Ending(reason) => {
                return Err(self.lost(&format!("the daemon has ended ({reason})")));
            }
        }
        Ok(None)
    }

    fn event(&mut self, event: &Event) -> Result<Option<Exit>, Failure> {
        if !self.json {
            self.screen.show(&self.follower.event(event))?;
        }
        match event.kind {
            EventKind::RunEnd { reason, .. } => Ok(Some(Exit::of_run(reason))),
            _ => Ok(None),
        }
    }

    /// We came in the middle of the run: what of the present answer there is.
    fn joined(&mut self) -> Result<(), Failure> {
        if !self.from_start && !self.json {
            self.screen.show(&self.follower.unfinished())?;
        }
        Ok(())
    }

    /// Events are lost for good: shows what they came to.
    async fn catch_up(&mut self) -> Result<Option<Exit>, Failure> {
        if !self.json {
            let pieces = self.follower.missed().await?;
            self.screen.show(&pieces)?;
        }
        let state = self.follower.mirror().state();
        if state.is_some_and(|state| state.active_run() == Some(self.run_id)) {
            return Ok(None);
        }
        let params = WaitForIdleParams {
            run_id: Some(self.run_id),
            session_id: Some(self.follower.mirror().session_id().to_owned()),
            ..WaitForIdleParams::default()
        };
        let answer = self.follower.mirror().client().call::<WaitForIdle>(&params).await?;
        let last_run = answer.last_run.as_deref();
        self.screen.show(&how_it_ended(last_run))?;
        Ok(Some(Exit::of_last_run(last_run)))
    }

    /// Sends the abort that the user wants. Harmless when it was sent before.
    fn abort(&self) {
        if !self.is_aborting {
            return;
        }
        let client = self.follower.mirror().client().clone();
        let params = AbortParams {
            expected_run_id: Some(self.run_id),
            session_id: Some(self.follower.mirror().session_id().to_owned()),
            ..AbortParams::default()
        };
        // Its answer says nothing that `run_end` does not, and events come meanwhile.
        tokio::spawn(async move { client.call::<Abort>(&params).await.map(|_| ()) });
    }

    fn gone(&mut self, error: MirrorError) -> Failure {
        // What of the answer there was has its own line; that nobody sees it is no new failure.
        let _ = self.screen.show(&[Piece::AnswerEnd]);
        match error {
            MirrorError::Connect(error) if error.is_absence() => {
                Failure::Gone(format!("the daemon is gone, and run {} with it", self.run_id))
            }
            error => error.into(),
        }
    }

    fn lost(&self, why: &str) -> Failure {
        Failure::Lost(format!("{why}, and run {} with it", self.run_id))
    }
}

fn how_it_ended(last_run: Option<&LastRun>) -> Vec<Piece> {
    let mut pieces = vec![Piece::AnswerEnd];
    if let Some(last_run) = last_run {
        pieces.extend(sentences::end(last_run.reason, last_run.error_message.as_deref()));
    }
    pieces
}
