//! `events`: what happens in a session, as it happens.

use std::{sync::Arc, time::Duration};

use agent_protocol::{Control, Frame, MessagesWanted};
use tokio::time::sleep;

use super::{Context, line, remark};
use crate::{
    client::{CallError, Client},
    exit::{Exit, Failure},
    fold::{Missed, Step},
    mirror::{Beginning, Change, Mirror, MirrorError},
    render::{Renderer, Tone},
    screen::Screen,
    session::SessionChoice,
};

/// How often a session is looked for that is not there yet. Nobody tells those who are not
/// connected, and a directory may get its session from any client.
const LOOK_EVERY: Duration = Duration::from_millis(250);

pub(super) async fn events(context: &Context, from: Option<u64>) -> Result<Exit, Failure> {
    let (client, id, was_there) = session(context).await?;
    let beginning = match from {
        Some(seq) => Beginning::After(seq),
        // What happened before we saw that it is there is news to us, too.
        None if !was_there => Beginning::After(0),
        None if context.json => Beginning::Now,
        None => Beginning::Snapshot(MessagesWanted::None),
    };
    // By its id, since looking on makes nothing, whatever happens to the daemon meanwhile.
    let choice = SessionChoice::Id(id);
    let mut mirror = Mirror::new(client, context.dial(), choice, beginning).await?;
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

/// The session, as soon as there is one, and whether there was from the start.
async fn session(context: &Context) -> Result<(Arc<Client>, String, bool), Failure> {
    let none = match context.existing().await? {
        Ok((client, id)) => return Ok((client, id, true)),
        Err(none) => none,
    };
    remark(&format!("agent-client: {none}; waiting for it"));
    loop {
        sleep(LOOK_EVERY).await;
        match context.existing().await {
            Ok(Ok((client, id))) => return Ok((client, id, false)),
            Ok(Err(_)) => {}
            // A daemon that begins or ends just now.
            Err(Failure::Connect(error)) if error.is_passing() && context.may_start => {}
            Err(Failure::Call(CallError::Lost(_))) => {}
            Err(error) => return Err(error),
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
