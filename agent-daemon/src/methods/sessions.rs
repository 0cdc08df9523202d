//! What makes, shows, changes and closes sessions.

use std::sync::Arc;

use agent_core::Message;
use agent_protocol::{
    CloseSession, CloseSessionResult, Control, CreateSession, CreateSessionParams, DEFAULT_SESSION,
    GetMessages, GetMessagesParams, GetMessagesResult, GetState, GetStateParams, GetStateResult,
    ListModels, ListModelsResult, ListSessions, ListSessionsResult, MessagesWanted, Reset,
    SeqResult, SessionParams, SetConfig, SetConfigParams, TAIL_MESSAGES,
};
use futures_util::FutureExt;

use crate::{
    events::subscription::with_newest_messages,
    methods::{Handler, How, Response},
    sessions::{daemon::Daemon, registry::not_found},
};

/// How many messages a page has unless the client says so,
const PAGE: usize = 100;
/// how many at most,
const MAX_PAGE: usize = 1_000;
/// and how many bytes of content, but for its first message.
const MAX_PAGE_BYTES: usize = 8 << 20;

impl Handler for GetState {
    const HOW: How<Self> = How::AtOnce(|call, params: GetStateParams| {
        let session = call.session(&params.session_id)?;
        let now = session.agent.snapshot();
        let count = match (params.messages.unwrap_or_default(), params.limit) {
            (MessagesWanted::All, limit) => limit.unwrap_or(usize::MAX),
            (MessagesWanted::Tail, limit) => limit.unwrap_or(TAIL_MESSAGES),
            (MessagesWanted::None, _) => 0,
        };
        Ok(GetStateResult {
            seq: now.seq,
            instance_id: session.log.instance_id().to_owned(),
            session_id: session.id.to_string(),
            state: with_newest_messages(now.state, count),
        })
    });
}

impl Handler for GetMessages {
    const HOW: How<Self> = How::AtOnce(|call, params: GetMessagesParams| {
        let now = call.session(&params.session_id)?.agent.snapshot();
        let transcript = &now.state.messages;
        let from = params.from.unwrap_or(0);
        let to = from.saturating_add(params.limit.unwrap_or(PAGE).min(MAX_PAGE));
        let mut bytes = 0;
        let fits = |message: &&Arc<Message>| {
            let is_first = bytes == 0;
            bytes += 1 + message.content().iter().map(|block| block.len()).sum::<usize>();
            is_first || bytes <= MAX_PAGE_BYTES
        };
        let messages = transcript.range(from, to).take_while(fits).cloned().collect();
        Ok(GetMessagesResult { messages, total: transcript.len(), seq: now.seq })
    });
}

impl Handler for SetConfig {
    const HOW: How<Self> = How::AtOnce(|call, params: SetConfigParams| {
        let session = call.session(&params.session_id)?;
        // All is looked up before anything is changed.
        let change = session.resolve(&params, call.daemon.sessions.catalog())?;
        let (config, _) = session.agent.configure(change);
        Ok(Arc::unwrap_or_clone(config))
    });
}

impl Handler for ListModels {
    const HOW: How<Self> = How::AtOnce(|call, params: SessionParams| {
        let session = call.session(&params.session_id)?;
        let current = session.agent.snapshot().state.config.model.clone();
        let mut models = call.daemon.sessions.catalog().list();
        if let Some(unavailable) = session.unavailable()
            && models.iter().all(|model| model.id != current)
        {
            models.insert(0, unavailable.describe());
        }
        Ok(ListModelsResult { models, current })
    });
}

impl Handler for Reset {
    const HOW: How<Self> = How::AtOnce(|call, params: SessionParams| {
        let seq = call.session(&params.session_id)?.reset()?;
        Ok(SeqResult { seq })
    });
}

impl Handler for CreateSession {
    const HOW: How<Self> =
        How::AtOnce(|call, params: CreateSessionParams| call.daemon.sessions.create(&params));
}

impl Handler for ListSessions {
    const HOW: How<Self> = How::AtOnce(|call, _| {
        Ok(ListSessionsResult { sessions: call.daemon.sessions.summaries() })
    });
}

impl Handler for CloseSession {
    const HOW: How<Self> = How::Later(|daemon, _, params| close_session(daemon, params).boxed());
}

async fn close_session(daemon: Arc<Daemon>, params: SessionParams) -> Response<CloseSession> {
    let session = daemon.sessions.get(params.session_id.as_deref())?;
    if *session.id == *DEFAULT_SESSION {
        return Ok(CloseSessionResult { closed: false });
    }
    session.close(not_found(&session.id))?;
    // In a task of its own: whoever asked may go away, and a session half closed would stay so.
    let closing = tokio::spawn(async move {
        session.settle().await;
        session.remove_outputs().await;
        session.log.finish(Control::SessionClosed {});
        daemon.sessions.remove(&session);
        tracing::info!(session = %session.id, "session closed");
    });
    let closed = closing.await.is_ok();
    Ok(CloseSessionResult { closed })
}
