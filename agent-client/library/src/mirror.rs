//! A session as this client knows it, kept equal to the daemon's own state.
//!
//! Owns: one subscription, and taking it up again after a lost connection where it was cut.
//! Never: starts a daemon. A restarted one has another agent, and [`Missed::Agent`] says so.

use std::{sync::Arc, time::Duration};

use agent_core::{AgentState, Event};
use agent_protocol::{Control, Frame, MessagesWanted, RpcError, SubscribeParams};
use futures_util::{FutureExt, future::BoxFuture};
use serde_json::value::RawValue;
use tokio::time::{Instant, sleep};

use crate::{
    client::{CallError, Client, Frames},
    connect::{ConnectError, Dial},
    fold::{Cursor, Fold, Missed, Step},
    session::SessionChoice,
};

/// What a mirror begins with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Beginning {
    /// The state, with so much of the transcript.
    Snapshot(MessagesWanted),
    /// The events after this number, without a state.
    After(u64),
    /// The next event, without a state.
    Now,
}

/// What a mirror reports.
#[derive(Debug)]
#[allow(clippy::large_enum_variant)] // Made one at a time, and taken apart at once.
pub enum Change {
    /// The daemon has sent something, and it is folded already.
    News {
        /// What.
        news: News,
        /// The frame as it was sent.
        json: Box<RawValue>,
    },
    /// The connection is lost. The next change is what comes after it.
    Disconnected,
}

/// What a frame tells someone who has seen the ones before it.
#[derive(Debug)]
#[allow(clippy::large_enum_variant)] // As above.
pub enum News {
    /// The next event.
    Event(Event),
    /// The subscription goes on from where it was cut.
    Resumed,
    /// The state came anew.
    Snapshot(Missed),
    /// The daemon has dropped events; a snapshot follows.
    Lagged,
    /// The session was closed, and will say no more.
    Closed,
    /// The daemon is about to end, for this reason.
    Ending(String),
}

/// Why there is nothing more to mirror.
#[derive(Debug, thiserror::Error)]
pub enum MirrorError {
    /// The daemon cannot be reached any more.
    #[error(transparent)]
    Connect(#[from] ConnectError),
    /// The daemon refuses the subscription.
    #[error(transparent)]
    Call(#[from] CallError),
    /// A frame does not have the shape that this version expects.
    #[error("an event cannot be read: {0}; is the daemon another version?")]
    Frame(#[from] serde_json::Error),
}

/// A session, mirrored.
pub struct Mirror {
    dial: Dial,
    choice: SessionChoice,
    patience: Duration,
    beginning: Beginning,
    link: Link,
    fold: Fold,
    // Kept here, and not in `next`, so that `next` can be dropped while it waits.
    resuming: Option<BoxFuture<'static, Result<Link, MirrorError>>>,
}

/// A subscription and what it depends on.
struct Link {
    client: Arc<Client>,
    session_id: String,
    frames: Frames,
}

impl Mirror {
    /// Subscribes. `client` is used for as long as it lasts, `dial` after it.
    ///
    /// # Errors
    /// There is no such session, or the connection is lost already.
    pub async fn new(
        client: Arc<Client>,
        dial: Dial,
        choice: SessionChoice,
        beginning: Beginning,
    ) -> Result<Self, CallError> {
        let mut fold = Fold::default();
        if let Beginning::After(seq) = beginning {
            fold.cursor.seq = seq;
        }
        let link = subscribe(client, &choice, beginning, &fold.cursor).await?;
        let patience = Duration::from_secs(3);
        Ok(Mirror { dial, choice, patience, beginning, link, fold, resuming: None })
    }

    /// For how long a lost daemon is looked for; 3 s unless this is called.
    pub fn set_patience(&mut self, patience: Duration) {
        self.patience = patience;
    }

    /// The connection as it is now.
    pub fn client(&self) -> &Arc<Client> {
        &self.link.client
    }

    /// The session.
    pub fn session_id(&self) -> &str {
        &self.link.session_id
    }

    /// The state after the newest change; none before the first snapshot.
    pub fn state(&self) -> Option<&AgentState> {
        self.fold.state.as_ref()
    }

    /// How far the state goes.
    pub fn cursor(&self) -> &Cursor {
        &self.fold.cursor
    }

    /// The next change. May be dropped while it waits.
    ///
    /// # Errors
    /// A lost daemon stays lost, or does not know the session any more.
    pub async fn next(&mut self) -> Result<Change, MirrorError> {
        loop {
            if let Some(resuming) = &mut self.resuming {
                let link = resuming.await;
                self.resuming = None;
                self.link = link?;
            }
            let Some(json) = self.link.frames.next().await else {
                if self.link.frames.were_too_fast() {
                    self.resuming = Some(self.resume(Some(self.link.client.clone())));
                    continue;
                }
                self.resuming = Some(self.resume(None));
                return Ok(Change::Disconnected);
            };
            let frame = Frame::from_json(json.get())?;
            match self.fold.step(&frame) {
                Step::Known => {}
                Step::Gap => self.resuming = Some(self.resume(Some(self.link.client.clone()))),
                step => return Ok(Change::News { news: News::of(step, frame), json }),
            }
        }
    }

    /// Subscribes again, on this connection while it lasts.
    fn resume(&self, client: Option<Arc<Client>>) -> BoxFuture<'static, Result<Link, MirrorError>> {
        let resume = Resume {
            dial: self.dial.clone(),
            client,
            choice: self.choice.clone(),
            beginning: self.beginning,
            cursor: self.fold.cursor.clone(),
        };
        let deadline = Instant::now() + self.patience;
        resume.until(deadline).boxed()
    }
}

impl News {
    fn of(step: Step, frame: Frame) -> Self {
        let control = match frame {
            Frame::Event(frame) => return News::Event(frame.event),
            Frame::Control(frame) => frame.control,
        };
        match (control, step) {
            (Control::Subscribed { .. }, Step::Snapshot(missed)) => News::Snapshot(missed),
            (Control::Subscribed { .. }, _) => News::Resumed,
            (Control::Lagged { .. }, _) => News::Lagged,
            (Control::SessionClosed {}, _) => News::Closed,
            (Control::ServerShutdown { reason }, _) => News::Ending(reason),
        }
    }
}

/// What it takes to go on where a subscription was cut.
struct Resume {
    dial: Dial,
    client: Option<Arc<Client>>,
    choice: SessionChoice,
    beginning: Beginning,
    cursor: Cursor,
}

impl Resume {
    async fn until(mut self, deadline: Instant) -> Result<Link, MirrorError> {
        let mut pause = Duration::from_millis(20);
        loop {
            match self.attempt().await {
                Err(error) if error.is_passing() && Instant::now() < deadline => {
                    sleep(pause).await;
                    pause = (pause * 2).min(Duration::from_millis(500));
                }
                result => return result,
            }
        }
    }

    async fn attempt(&mut self) -> Result<Link, MirrorError> {
        let client = match self.client.take() {
            Some(client) => client,
            None => (self.dial)().await?,
        };
        Ok(subscribe(client, &self.choice, self.beginning, &self.cursor).await?)
    }
}

/// Subscribes to what comes after the cursor.
async fn subscribe(
    client: Arc<Client>,
    choice: &SessionChoice,
    beginning: Beginning,
    cursor: &Cursor,
) -> Result<Link, CallError> {
    let session_id = choice.id(&client).await?;
    let mut params =
        SubscribeParams { session_id: Some(session_id.clone()), ..SubscribeParams::default() };
    match (&cursor.instance_id, beginning) {
        // Whoever has seen nothing yet begins as at first.
        (None, Beginning::Snapshot(_)) => params.snapshot = Some(true),
        (None, Beginning::Now) => {}
        (instance_id, _) => {
            params.from_seq = Some(cursor.seq);
            params.instance_id.clone_from(instance_id);
        }
    }
    if let Beginning::Snapshot(messages) = beginning {
        params.messages = Some(messages);
    }
    let frames = match client.subscribe(&params).await {
        // Ahead of what there is, by a number that is not the user's own: the past is another one.
        Err(error) if cursor.instance_id.is_some() && is_out_of_range(&error) => {
            (params.from_seq, params.instance_id) = (None, None);
            params.snapshot = Some(true);
            client.subscribe(&params).await?
        }
        subscribed => subscribed?,
    };
    Ok(Link { client, session_id, frames })
}

fn is_out_of_range(error: &CallError) -> bool {
    matches!(error.reason(), Some(RpcError::SeqOutOfRange { .. }))
}

impl MirrorError {
    fn is_passing(&self) -> bool {
        match self {
            MirrorError::Connect(error) => error.is_passing(),
            MirrorError::Call(error) => matches!(error, CallError::Lost(_)),
            MirrorError::Frame(_) => false,
        }
    }
}
