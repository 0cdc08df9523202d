//! One run, shown as it happens, to its end.
//!
//! Owns: what becomes of the run's exit status when the connection, the daemon or the session goes
//! away in the middle. Never: shows another run's events.

use std::collections::VecDeque;

use agent_core::{Event, EventKind, LastRun, RunId};
use agent_protocol::{Abort, AbortParams, Control, Frame, WaitForIdle, WaitForIdleParams};

use super::{interrupts::Interrupts, line};
use crate::{
    catch_up::{missed, transcript_len},
    exit::{Exit, Failure},
    fold::{Missed, Step},
    mirror::{Change, Mirror, MirrorError},
    render::{Piece, Renderer, Tone},
    screen::Screen,
};

/// One run that is being shown.
pub(super) struct FollowRun {
    mirror: Mirror,
    run_id: RunId,
    json: bool,
    /// Whether we were there when it began.
    from_start: bool,
    renderer: Renderer,
    screen: Screen,
    /// How many messages the transcript had after the newest change that was shown.
    messages: usize,
    is_aborting: bool,
}

impl FollowRun {
    pub(super) fn new(mirror: Mirror, run_id: RunId, json: bool, from_start: bool) -> Self {
        FollowRun {
            mirror,
            run_id,
            json,
            from_start,
            renderer: Renderer::default(),
            screen: Screen::of_process(),
            messages: 0,
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
                    change = self.mirror.next() => change.map_err(|error| self.gone(error))?,
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
            self.messages = self.mirror.state().map_or(0, transcript_len);
        }
    }

    async fn show(&mut self, change: Change) -> Result<Option<Exit>, Failure> {
        let (step, frame, json) = match change {
            Change::Frame { step, frame, json } => (step, frame, json),
            Change::Disconnected => {
                self.screen.note(Tone::Warning, "the connection is lost; trying again")?;
                return Ok(None);
            }
        };
        match (step, &frame) {
            (Step::Event, Frame::Event(frame)) if frame.event.run_id == Some(self.run_id) => {
                if self.json {
                    line(json.get())?;
                }
                self.event(&frame.event)
            }
            (Step::Snapshot(Missed::Nothing), _) => {
                self.joined()?;
                Ok(None)
            }
            (Step::Snapshot(Missed::Events), _) => {
                if self.json {
                    line(json.get())?;
                }
                self.abort();
                self.catch_up().await
            }
            (Step::Snapshot(Missed::Agent), _) => Err(self.lost("the daemon was restarted")),
            (Step::Begun, _) => {
                self.abort();
                Ok(None)
            }
            (Step::Lagged, _) if self.json => {
                line(json.get())?;
                Ok(None)
            }
            (Step::Closed, _) => Err(self.lost("the session was closed")),
            (Step::ShuttingDown, Frame::Control(frame)) => match &frame.control {
                Control::ServerShutdown { reason } => {
                    Err(self.lost(&format!("the daemon has ended ({reason})")))
                }
                _ => Ok(None),
            },
            _ => Ok(None),
        }
    }

    fn event(&mut self, event: &Event) -> Result<Option<Exit>, Failure> {
        if !self.json {
            self.screen.show(&self.renderer.event(event))?;
        }
        match event.kind {
            EventKind::RunEnd { reason, .. } => Ok(Some(Exit::of_run(reason))),
            _ => Ok(None),
        }
    }

    /// We came in the middle of the run: what of the present answer there is.
    fn joined(&mut self) -> Result<(), Failure> {
        let state = self.mirror.state().filter(|_| !self.from_start && !self.json);
        if let Some(partial) = state.and_then(|state| state.partial.as_ref()) {
            self.screen.show(&self.renderer.partial(partial))?;
        }
        Ok(())
    }

    /// Events are lost for good: shows what they came to.
    async fn catch_up(&mut self) -> Result<Option<Exit>, Failure> {
        if !self.json {
            let pieces = missed(&self.mirror, self.messages, &mut self.renderer).await?;
            self.screen.show(&pieces)?;
        }
        let state = self.mirror.state();
        if state.is_some_and(|state| state.active_run() == Some(self.run_id)) {
            return Ok(None);
        }
        let params = WaitForIdleParams {
            run_id: Some(self.run_id),
            session_id: Some(self.mirror.session_id().to_owned()),
            ..WaitForIdleParams::default()
        };
        let answer = self.mirror.client().call::<WaitForIdle>(&params).await?;
        let last_run = answer.last_run.as_deref();
        self.screen.show(&how_it_ended(last_run))?;
        Ok(Some(Exit::of_last_run(last_run)))
    }

    /// Sends the abort that the user wants. Harmless when it was sent before.
    fn abort(&self) {
        if !self.is_aborting {
            return;
        }
        let client = self.mirror.client().clone();
        let params = AbortParams {
            expected_run_id: Some(self.run_id),
            session_id: Some(self.mirror.session_id().to_owned()),
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
        pieces.extend(crate::render::end(last_run.reason, last_run.error_message.as_deref()));
    }
    pieces
}
