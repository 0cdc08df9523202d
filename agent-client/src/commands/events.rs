//! `events`: what happens in a session, as it happens.

use std::{io, sync::Arc, time::Duration};

use agent_client_library::{
    client::{CallError, Client},
    fold::Missed,
    mirror::{Beginning, Change, Mirror, MirrorError, News},
    session::SessionChoice,
};
use agent_protocol::MessagesWanted;
use tokio::time::sleep;

use crate::{
    context::Context,
    exit::{Exit, Failure},
    follower::Follower,
    output::{line, remark},
    render::{piece::Tone, renderer::Renderer, screen::Screen},
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
    let mirror = Mirror::new(client, context.dial(), choice, beginning).await?;
    let mut view = EventsView {
        follower: Follower::new(mirror, Renderer::with_prompts()),
        wants_past: from.is_some(),
        screen: Screen::of_process(),
    };
    loop {
        let change = match view.follower.next().await {
            Err(MirrorError::Connect(error)) if error.is_absence() => {
                return Err(Failure::Gone("the daemon is gone".to_owned()));
            }
            change => change?,
        };
        match (context.json, &change) {
            (true, Change::News { json, .. }) => line(json.get())?,
            (true, Change::Disconnected) => {}
            (false, change) => view.show(change)?,
        }
        match change {
            Change::News { news: News::Closed, .. } => return Ok(Exit::Done),
            Change::News { news: News::Ending(_), .. } => return Ok(Exit::NoConnection),
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

struct EventsView {
    follower: Follower,
    /// Whether the user asked for events of before.
    wants_past: bool,
    screen: Screen,
}

impl EventsView {
    fn show(&mut self, change: &Change) -> io::Result<()> {
        let Change::News { news, .. } = change else {
            return self.screen.note(Tone::Warning, "the connection is lost; trying again");
        };
        match news {
            News::Event(event) => self.screen.show(&self.follower.event(event)),
            News::Snapshot(missed) => {
                if *missed != Missed::Nothing || self.wants_past {
                    self.follower.forget();
                    let text = "events are missing here: they are not held";
                    self.screen.note(Tone::Warning, text)?;
                }
                self.screen.show(&self.follower.unfinished())
            }
            News::Closed => self.screen.note(Tone::Faint, "the session was closed"),
            News::Ending(reason) => {
                self.screen.note(Tone::Faint, format!("the daemon has ended: {reason}"))
            }
            News::Resumed | News::Lagged => Ok(()),
        }
    }
}
