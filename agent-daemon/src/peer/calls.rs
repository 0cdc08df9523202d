//! One connection's calls: from a frame to an answer in the outbox.
//!
//! Owns: the order in which calls take effect (W1.5), the calls that wait aside (W1.6), and their
//! cancellation.
//! Never: spawns a call that need not wait. Whatever a method does that takes its turn is done
//! before the next frame is looked at.

use std::{any::Any, panic::AssertUnwindSafe, sync::Arc};

use agent_protocol::{
    CANCEL_REQUEST, EXIT, Initialize, Method, Order, RpcError,
    codec::{RawMessage, one_line},
};
use futures_util::{FutureExt, future::BoxFuture};
use jsonrpsee::{
    ConnectionId, Extensions, MethodCallback, MethodResponse, ResponsePayload,
    types::{ErrorObjectOwned, Id, Params},
};
use tokio::task::{AbortHandle, JoinSet};
use tokio_util::sync::CancellationToken;
use tracing::Instrument;

use crate::peer::{
    caller::Caller,
    request::{Incoming, Request, names_id, parse},
};

/// How many messages a peer may send before it shows the token that it needs.
const STRANGE_MESSAGES: u32 = 32;

/// How every answer of the method table begins; the caller's own id takes the place of the null.
const NULL_ID_HEAD: &str = r#"{"jsonrpc":"2.0","id":null,"#;

/// One connection's calls.
pub(crate) struct Calls {
    caller: Arc<Caller>,
    tasks: JoinSet<()>,
    waiting: Vec<WaitingCall>,
    /// Messages of a peer that has not shown its token.
    strange_messages: u32,
}

struct WaitingCall {
    id: String,
    method: &'static str,
    cancel: CancellationToken,
    task: AbortHandle,
}

/// Whether the peer goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Then {
    GoOn,
    /// It said `exit`.
    Exit,
    /// It has no token, and has to go.
    TurnAway,
    /// It closed its WebSocket.
    Close,
}

impl Calls {
    pub(crate) fn new(caller: Arc<Caller>) -> Self {
        Calls { caller, tasks: JoinSet::new(), waiting: Vec::new(), strange_messages: 0 }
    }

    /// Carries out what a message asks for. Dropped in between, the call has had no effect.
    pub(crate) async fn take(&mut self, message: RawMessage<'_>) -> Then {
        let then = self.take_in(message).await;
        if !self.caller.is_authorized() {
            self.strange_messages += 1;
        }
        let is_too_much = self.strange_messages > STRANGE_MESSAGES && !self.caller.is_authorized();
        match then {
            Then::GoOn if self.caller.is_turned_away() || is_too_much => Then::TurnAway,
            then => then,
        }
    }

    async fn take_in(&mut self, message: RawMessage<'_>) -> Then {
        let text = match message {
            RawMessage::Text(text) => text,
            RawMessage::NotText => {
                let problem = "it is not text in UTF-8".to_owned();
                self.refuse("null", RpcError::ParseError { problem });
                return Then::GoOn;
            }
            RawMessage::TooLarge { limit } => {
                self.refuse("null", RpcError::MessageTooLarge { limit: limit as u64 });
                return Then::GoOn;
            }
            RawMessage::Ping(payload) => {
                self.caller.outbox.pong(payload);
                return Then::GoOn;
            }
            RawMessage::Close => return Then::Close,
        };
        match parse(text) {
            Incoming::StrayAnswer => Then::GoOn,
            Incoming::Refused { id, error } => {
                self.refuse(id, error);
                Then::GoOn
            }
            Incoming::Request(request) => self.request(&request).await,
        }
    }

    async fn request(&mut self, request: &Request<'_>) -> Then {
        match &*request.method {
            EXIT => {
                self.acknowledge(request.id);
                return Then::Exit;
            }
            CANCEL_REQUEST => {
                self.cancel(request.params);
                self.acknowledge(request.id);
            }
            method if !self.caller.is_authorized() && method != Initialize::NAME => {
                request.id.inspect(|id| self.refuse(id, RpcError::Unauthorized));
            }
            _ => self.call(request).await,
        }
        Then::GoOn
    }

    async fn call(&mut self, request: &Request<'_>) {
        let server = self.caller.server().clone();
        let order = Order::of(&request.method).unwrap_or(Order::InTurn);
        if request.id.is_none() && order != Order::InTurn {
            return;
        }
        match server.methods.method_with_name(&request.method) {
            Some((method, MethodCallback::Sync(callback))) => {
                let span = tracing::debug_span!("call", method, id = request.id.map(shortened));
                let response = span.in_scope(|| {
                    let params = Params::new(request.params);
                    let call = || callback(Id::Null, params, usize::MAX, self.extensions());
                    std::panic::catch_unwind(AssertUnwindSafe(call))
                });
                let Some(id) = request.id else { return };
                self.caller.outbox.answer(answer_of(method, id, response));
            }
            // What is said may have pictures, which take a while to look at. Nothing overtakes them.
            Some((method, MethodCallback::Async(callback))) if order != Order::Aside => {
                let span = tracing::debug_span!("call", method, id = request.id.map(shortened));
                let params = Params::new(request.params).into_owned();
                let connection = ConnectionId(self.caller.connection() as usize);
                let extensions = self.extensions();
                let call =
                    async { callback(Id::Null, params, connection, usize::MAX, extensions).await };
                let response = AssertUnwindSafe(call).catch_unwind().instrument(span).await;
                let Some(id) = request.id else { return };
                self.caller.outbox.answer(answer_of(method, id, response));
            }
            Some((method, MethodCallback::Async(callback))) => {
                let Some(id) = request.id else { return };
                let limit = self.caller.server().limits.waiting_calls;
                if self.caller.outbox.waiting() >= limit {
                    return self.refuse(id, RpcError::TooManyWaiting { limit: limit as u64 });
                }
                let params = Params::new(request.params).into_owned();
                let connection = ConnectionId(self.caller.connection() as usize);
                let call = || callback(Id::Null, params, connection, usize::MAX, self.extensions());
                match std::panic::catch_unwind(AssertUnwindSafe(call)) {
                    Ok(response) => self.wait(id, method, response),
                    Err(panic) => self.caller.outbox.answer(answer_of(method, id, Err(panic))),
                }
            }
            _ => {
                let method = shortened(&request.method).to_owned();
                request.id.inspect(|id| self.refuse(id, RpcError::MethodNotFound { method }));
            }
        }
    }

    /// Lets a call wait aside, unless it can be answered at once.
    fn wait(
        &mut self,
        id: &str,
        method: &'static str,
        response: BoxFuture<'static, MethodResponse>,
    ) {
        let call_id = id.to_owned();
        let mut call = Box::pin(async move {
            let response = AssertUnwindSafe(response).catch_unwind().await;
            answer_of(method, &call_id, response)
        });
        if let Some(answer) = call.as_mut().now_or_never() {
            return self.caller.outbox.answer(answer);
        }
        let span = tracing::debug_span!("call", method, id = shortened(id));
        let cancel = CancellationToken::new();
        let (caller, cancelled, id) = (self.caller.clone(), cancel.clone(), id.to_owned());
        caller.outbox.expect_answer();
        let cancelled_id = id.clone();
        let answered = async move {
            let answer = tokio::select! {
                biased;
                answer = call => answer,
                () = cancelled.cancelled() => error_answer(&cancelled_id, RpcError::RequestCancelled),
            };
            caller.outbox.answer_late(answer);
        };
        while self.tasks.try_join_next().is_some() {}
        self.waiting.retain(|call| !call.task.is_finished());
        let task = self.tasks.spawn(answered.instrument(span));
        self.waiting.push(WaitingCall { id, method, cancel, task });
    }

    fn cancel(&self, params: Option<&str>) {
        let named = self.waiting.iter().filter(|call| names_id(params, &call.id));
        named.for_each(|call| call.cancel.cancel());
    }

    /// Completes when no call waits any more.
    pub(crate) async fn settled(&mut self) {
        while self.tasks.join_next().await.is_some() {}
    }

    /// Whether this method was called and is not answered yet.
    pub(crate) fn waits_for(&self, method: &str) -> bool {
        self.waiting.iter().any(|call| call.method == method && !call.task.is_finished())
    }

    /// Drops all calls that wait, unanswered.
    pub(crate) fn abandon(&mut self) {
        self.tasks.abort_all();
        self.waiting.clear();
    }

    fn acknowledge(&self, id: Option<&str>) {
        let nothing =
            || MethodResponse::response(Id::Null, ResponsePayload::success(()), usize::MAX);
        id.inspect(|id| self.caller.outbox.answer(with_id(id, &nothing())));
    }

    fn refuse(&self, id: &str, error: RpcError) {
        tracing::debug!(code = error.code(), "refused");
        self.caller.outbox.answer(error_answer(id, error));
    }

    fn extensions(&self) -> Extensions {
        let mut extensions = Extensions::new();
        extensions.insert(self.caller.clone());
        extensions
    }
}

fn answer_of(
    method: &'static str,
    id: &str,
    response: Result<MethodResponse, Box<dyn Any + Send>>,
) -> String {
    match response {
        Ok(response) => with_id(id, &response),
        // The panic hook has put the rest on stderr.
        Err(_) => {
            let problem = format!("`{method}` panicked");
            error_answer(id, RpcError::InternalError { problem })
        }
    }
}

fn error_answer(id: &str, error: RpcError) -> String {
    with_id(id, &MethodResponse::error(Id::Null, ErrorObjectOwned::from(error)))
}

/// The answer as JSON text on one line, with the caller's id as it came: jsonrpsee's own ids are
/// only some of those that JSON-RPC allows.
fn with_id(id: &str, response: &MethodResponse) -> String {
    let rest = response.as_ref().strip_prefix(NULL_ID_HEAD);
    let rest = rest.expect("the method table writes the version and the id first");
    one_line(format!(r#"{{"jsonrpc":"2.0","id":{id},{rest}"#))
}

/// What of a peer's text goes into logs and errors.
fn shortened(text: &str) -> &str {
    text.char_indices().nth(100).map_or(text, |(end, _)| &text[..end])
}
