//! `attach`: a live view of a session with an input line.
//!
//! Owns: what Enter and Ctrl-C mean at each moment. Never: waits for an answer while keys or events
//! come; calls are futures beside them.

use std::{
    io::{self, Write},
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use agent_client_library::{
    fold::Missed,
    mirror::{Beginning, Change, Mirror, MirrorError, News},
    session::new_message_id,
};
use agent_core::{AgentState, Event, EventKind, Queued, RunId, Undelivered, text_of};
use agent_protocol::{MessagesWanted, harmless::one_line};
use futures_util::{StreamExt, stream::FuturesUnordered};
use tokio::{
    signal::unix::{Signal, SignalKind, signal},
    time::sleep,
};

use crate::{
    attach::{
        input::{CallOutcome, PendingCall, Said, parse},
        keys::{Key, Keys},
        line::Line,
        status::Status,
        terminal::Terminal,
        view::{Footer, View},
    },
    context::Context,
    exit::{Exit, Failure},
    follower::Follower,
    output::remark,
    render::{
        piece::{Piece, Tone},
        renderer::Renderer,
        screen::{Screen, wants_colors},
        state::told,
    },
};

mod input;
mod keys;
mod line;
mod status;
mod terminal;
mod view;

/// For how long a lost daemon is looked for. People leave by themselves when they are tired of it.
const PATIENCE: Duration = Duration::from_secs(60);
/// For how long we wait to be stopped after a Ctrl-Z. Without a shell to continue us we never are.
const STOPS_WITHIN: Duration = Duration::from_millis(100);
/// What is before the text that is being written.
const MARK: &str = "› ";

const HELP: &str = "Enter prompts, or steers while a run is active · /follow-up TEXT · /abort · \
                    /state · /quit · Ctrl-C aborts, and leaves at idle · Alt-Enter for a new line";

/// Shows the session until the user leaves it.
pub(crate) async fn attach(context: &Context) -> Result<Exit, Failure> {
    if !Terminal::is_there() {
        let hint = "attach needs a terminal; `events` follows a session without one, and `prompt` \
                    and `steer` speak to it";
        return Err(Failure::Usage(hint.to_owned()));
    }
    let client = context.connect().await?;
    let beginning = Beginning::Snapshot(MessagesWanted::Tail);
    let mut mirror = Mirror::new(client, context.dial(), context.choice()?, beginning).await?;
    mirror.set_patience(PATIENCE);
    Attached::new(mirror)?.until_left().await
}

/// A session on a terminal.
struct Attached {
    follower: Follower,
    terminal: Terminal,
    view: View,
    line: Line,
    output: Output,
    calls: FuturesUnordered<PendingCall>,
    is_connected: bool,
    /// The run that the user has told to end.
    aborting: Option<RunId>,
    /// Our own messages, by their ids for the daemon.
    sent: Vec<String>,
    /// Whether the shell has the terminal, or is about to.
    is_suspended: bool,
}

/// Why the view ends.
enum Leave {
    Wanted,
    Because(Exit, String),
}

impl Attached {
    fn new(mirror: Mirror) -> io::Result<Self> {
        let terminal = Terminal::enter()?;
        let (columns, rows) = terminal.size();
        let has_colors = wants_colors(&io::stdout());
        Ok(Attached {
            follower: Follower::new(mirror, Renderer::with_prompts()),
            terminal,
            view: View::new(columns, rows, has_colors),
            line: Line::default(),
            output: Output::new(has_colors),
            calls: FuturesUnordered::new(),
            is_connected: true,
            aborting: None,
            sent: Vec::new(),
            is_suspended: false,
        })
    }

    async fn until_left(mut self) -> Result<Exit, Failure> {
        let mut keys = Keys::default();
        let mut continued = signal(SignalKind::from_raw(rustix::process::Signal::CONT.as_raw()))?;
        let mut hung_up = signal(SignalKind::hangup())?;
        let mut terminated = signal(SignalKind::terminate())?;
        let leave = loop {
            self.draw()?;
            let left = tokio::select! {
                change = self.follower.next() => match change {
                    Ok(change) => self.changed(change).await?,
                    Err(MirrorError::Connect(error)) if error.is_absence() => {
                        let why = "the daemon is gone; the next command starts a new one";
                        Some(Leave::Because(Exit::NoConnection, why.to_owned()))
                    }
                    Err(error) => {
                        self.leave()?;
                        return Err(error.into());
                    }
                },
                keys = keys.next() => self.pressed(keys?)?,
                Some(outcome) = self.calls.next() => { self.answered(outcome); None }
                _ = continued.recv() => { self.resume()?; None }
                () = self.terminal.gone() => Some(Leave::Wanted),
                _ = hung_up.recv() => Some(Leave::Wanted),
                _ = terminated.recv() => Some(Leave::Wanted),
            };
            if let Some(leave) = left {
                break leave;
            }
            if self.is_suspended {
                self.until_continued(&mut continued).await?;
            }
        };
        self.draw()?;
        self.leave()?;
        match leave {
            Leave::Wanted => Ok(Exit::Done),
            Leave::Because(exit, why) => {
                remark(&format!("agent-client: {why}"));
                Ok(exit)
            }
        }
    }

    /// Waits until the shell continues us.
    async fn until_continued(&mut self, continued: &mut Signal) -> Result<(), Failure> {
        tokio::select! {
            biased;
            _ = continued.recv() => {}
            () = sleep(STOPS_WITHIN) => {}
        }
        self.resume()
    }

    /// Takes the terminal again. What is on the screen is not ours to touch: the shell has written
    /// there.
    fn resume(&mut self) -> Result<(), Failure> {
        self.is_suspended = false;
        self.terminal.resume()?;
        self.resized();
        self.view.forget();
        Ok(())
    }

    fn pressed(&mut self, keys: Vec<Key>) -> Result<Option<Leave>, Failure> {
        for key in keys {
            match key {
                Key::Enter => {
                    let text = self.line.take();
                    if let Some(leave) = self.entered(&text) {
                        return Ok(Some(leave));
                    }
                }
                Key::Interrupt => match self.active_run() {
                    Some(run_id) if self.aborting != Some(run_id) => self.abort(run_id),
                    _ => return Ok(Some(Leave::Wanted)),
                },
                Key::EndOfInput if self.line.text().is_empty() => return Ok(Some(Leave::Wanted)),
                Key::EndOfInput => self.line.press(&Key::Delete),
                Key::Redraw => {
                    self.terminal.write("\x1b[H\x1b[2J")?;
                    self.view.forget();
                }
                Key::Suspend => {
                    self.leave()?;
                    self.terminal.suspend()?;
                    self.is_suspended = true;
                }
                Key::Resized => self.resized(),
                key => self.line.press(&key),
            }
        }
        Ok(None)
    }

    /// What the user has entered takes effect.
    fn entered(&mut self, text: &str) -> Option<Leave> {
        match parse(text) {
            Said::Nothing => {}
            Said::Prompt(text) => self.send(|call, id| call.prompt(text, id)),
            Said::FollowUp(text) => self.send(|call, id| call.follow_up(text, id)),
            Said::Abort => match self.active_run() {
                Some(run_id) => self.abort(run_id),
                None => self.note(Tone::Faint, "no run is active"),
            },
            Said::State => {
                let seq = self.follower.mirror().cursor().seq;
                let state = self.follower.mirror().state();
                let text = state.map(|state| told(seq, self.follower.mirror().session_id(), state));
                text.unwrap_or_default().lines().for_each(|line| self.note(Tone::Faint, line));
            }
            Said::Help => self.note(Tone::Faint, HELP),
            Said::Quit => return Some(Leave::Wanted),
            Said::Unknown(command) => {
                self.note(Tone::Warning, &format!("there is no {command}: {HELP}"));
                self.line.set(text.to_owned());
            }
        }
        None
    }

    fn send(&mut self, call: impl FnOnce(input::Session, String) -> PendingCall) {
        let id = new_message_id();
        if self.sent.len() >= 256 {
            self.sent.remove(0);
        }
        self.sent.push(id.clone());
        self.calls.push(call(self.session(), id));
    }

    fn abort(&mut self, run_id: RunId) {
        self.aborting = Some(run_id);
        self.calls.push(self.session().abort(run_id));
    }

    fn session(&self) -> input::Session {
        let id = self.follower.mirror().session_id().to_owned();
        input::Session { client: self.follower.mirror().client().clone(), id }
    }

    fn answered(&mut self, outcome: CallOutcome) {
        if let Err((error, text)) = outcome {
            self.note(Tone::Error, &one_line(&error.to_string()));
            self.give_back(&text);
        }
    }

    /// A text that was not taken is there to be sent again, unless another is being written.
    fn give_back(&mut self, text: &str) {
        if self.line.text().is_empty() {
            self.line.set(text.to_owned());
        }
    }

    async fn changed(&mut self, change: Change) -> Result<Option<Leave>, Failure> {
        let Change::News { news, .. } = change else {
            self.is_connected = false;
            self.note(Tone::Warning, "the connection is lost; trying again");
            return Ok(None);
        };
        if !std::mem::replace(&mut self.is_connected, true) {
            self.note(Tone::Faint, "connected again");
        }
        match news {
            News::Event(event) => self.event(&event),
            News::Snapshot(missed) => self.snapshot(missed).await,
            News::Closed => {
                let why = "the session was closed".to_owned();
                return Ok(Some(Leave::Because(Exit::Done, why)));
            }
            News::Ending(reason) => {
                let why = format!("the daemon has ended: {}", one_line(&reason));
                return Ok(Some(Leave::Because(Exit::NoConnection, why)));
            }
            News::Resumed | News::Lagged => {}
        }
        Ok(None)
    }

    fn event(&mut self, event: &Event) {
        let pieces = self.follower.event(event);
        self.output.show(&pieces);
        if let EventKind::RunEnd { undelivered, .. } = &event.kind {
            self.aborting = None;
            if let Some(text) = self.own(undelivered) {
                self.give_back(&text);
            }
        }
    }

    /// What we sent and the run did not take.
    fn own(&self, undelivered: &Undelivered) -> Option<String> {
        let is_own = |queued: &Queued| {
            let origin = queued.origin.as_ref();
            let id = origin.and_then(|origin| origin.client_message_id.as_ref());
            id.is_some_and(|id| self.sent.contains(id))
        };
        let all = undelivered.steering.iter().chain(&undelivered.follow_up);
        let texts: Vec<_> =
            all.filter(|queued| is_own(queued)).map(|queued| text_of(&queued.content)).collect();
        (!texts.is_empty()).then(|| texts.join("\n"))
    }

    async fn snapshot(&mut self, missed: Missed) {
        match missed {
            Missed::Events => {
                // Shown once it is there; the connection may break before.
                match self.follower.missed().await {
                    Ok(pieces) => self.output.show(&pieces),
                    Err(error) => {
                        self.note(Tone::Warning, &format!("something is missing: {error}"))
                    }
                }
            }
            Missed::Nothing => self.whole(),
            Missed::Agent => {
                self.note(Tone::Warning, "the daemon was restarted; this is a new agent");
                self.whole();
            }
        }
    }

    fn whole(&mut self) {
        let Some(state) = self.follower.mirror().state() else { return };
        let model = one_line(&state.config.model);
        let session = one_line(self.follower.mirror().session_id());
        let earlier = state.messages_from.filter(|from| *from > 0);
        self.note(Tone::Faint, &format!("session {session} on {model}; /help lists the commands"));
        if let Some(earlier) = earlier {
            self.note(Tone::Faint, &format!("… {earlier} earlier messages"));
        }
        let pieces = self.follower.whole();
        self.output.show(&pieces);
    }

    fn active_run(&self) -> Option<RunId> {
        self.follower.mirror().state().and_then(AgentState::active_run)
    }

    fn note(&mut self, tone: Tone, text: &str) {
        self.output.show(&[Piece::Line(tone, text.to_owned())]);
    }

    fn draw(&mut self) -> Result<(), Failure> {
        let input = self.line.rows(MARK, self.view.columns());
        let footer = Footer { status: self.status(), input };
        let screen = self.view.print(&self.output.take(), &footer);
        Ok(self.terminal.write(&screen)?)
    }

    fn status(&self) -> String {
        let session = self.follower.mirror().session_id();
        let (is_connected, aborting) = (self.is_connected, self.aborting);
        Status { session, is_connected, aborting }.line(self.follower.mirror().state())
    }

    fn resized(&mut self) {
        let (columns, rows) = self.terminal.size();
        self.view.resize(columns, rows);
    }

    fn leave(&mut self) -> io::Result<()> {
        let screen = self.view.clear();
        self.terminal.write(&screen)
    }
}

/// Pieces as the text that goes above the footer.
struct Output {
    screen: Screen,
    text: Shared,
}

/// Both of a screen's streams.
#[derive(Clone, Default)]
struct Shared(Arc<Mutex<Vec<u8>>>);

impl Output {
    fn new(has_colors: bool) -> Self {
        let text = Shared::default();
        let (answers, notes) = (Box::new(text.clone()), Box::new(text.clone()));
        Output { screen: Screen::new(answers, notes, true, has_colors), text }
    }

    fn show(&mut self, pieces: &[Piece]) {
        self.screen.show(pieces).expect("writing to memory does not fail");
    }

    fn take(&mut self) -> String {
        let bytes =
            std::mem::take(&mut *self.text.0.lock().unwrap_or_else(PoisonError::into_inner));
        String::from_utf8(bytes).expect("pieces are text")
    }
}

impl Write for Shared {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
