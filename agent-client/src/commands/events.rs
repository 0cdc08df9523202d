//! `events`: what happens in a session, as it happens.

use agent_daemon::protocol::{Control, Frame, MessagesWanted};

use super::{Context, line};
use crate::{
    exit::{Exit, Failure},
    fold::{Missed, Step},
    mirror::{Beginning, Change, Mirror, MirrorError},
    render::{Renderer, Tone},
    screen::Screen,
};

pub(super) async fn events(context: &Context, from: Option<u64>) -> Result<Exit, Failure> {
    let client = context.connect().await?;
    let beginning = match from {
        Some(seq) => Beginning::After(seq),
        None if context.json => Beginning::Now,
        None => Beginning::Snapshot(MessagesWanted::None),
    };
    let mut mirror = Mirror::new(client, context.dial(), context.choice()?, beginning).await?;
    let mut view = View {
        wants_past: from.is_some(),
        renderer: Renderer::with_prompts(),
        screen: Screen::of_process(),
    };
    loop {
        let change = match mirror.next().await {
            Err(MirrorError::Connect(error)) if error.is_absence() => {
                return Err(Failure::Gone("the daemon is gone".to_owned()));
            }
            change => change?,
        };
        if let (true, Change::Frame { json, .. }) = (context.json, &change) {
            line(json.get())?;
        }
        let step = match &change {
            Change::Frame { step, .. } => Some(*step),
            Change::Disconnected => None,
        };
        if !context.json {
            view.show(&change, &mirror)?;
        }
        match step {
            Some(Step::Closed) => return Ok(Exit::Done),
            Some(Step::ShuttingDown) => return Ok(Exit::NoConnection),
            _ => {}
        }
    }
}

struct View {
    /// Whether the user asked for events of before.
    wants_past: bool,
    renderer: Renderer,
    screen: Screen,
}

impl View {
    fn show(&mut self, change: &Change, mirror: &Mirror) -> Result<(), Failure> {
        let (step, frame) = match change {
            Change::Frame { step, frame, .. } => (*step, frame),
            Change::Disconnected => {
                return Ok(self
                    .screen
                    .note(Tone::Warning, "the connection is lost; trying again")?);
            }
        };
        match (step, frame) {
            (Step::Event, Frame::Event(frame)) => {
                self.screen.show(&self.renderer.event(&frame.event))?;
            }
            (Step::Snapshot(missed), _) => {
                if missed != Missed::Nothing || self.wants_past {
                    self.renderer.forget();
                    self.screen
                        .note(Tone::Warning, "events are missing here: they are not held")?;
                }
                if let Some(partial) = mirror.state().and_then(|state| state.partial.as_ref()) {
                    self.screen.show(&self.renderer.partial(partial))?;
                }
            }
            (Step::Closed, _) => self.screen.note(Tone::Faint, "the session was closed")?,
            (Step::ShuttingDown, Frame::Control(frame)) => {
                if let Control::ServerShutdown { reason } = &frame.control {
                    self.screen.note(Tone::Faint, format!("the daemon has ended: {reason}"))?;
                }
            }
            _ => {}
        }
        Ok(())
    }
}
