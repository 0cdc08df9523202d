//! Typed calls to a daemon, over any reader and writer.
//!
//! Owns: one connection. Never: gives up on an answer by itself (`waitForIdle` may wait for a day), or
//! lets a slow reader of events hold up the answers.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use agent_protocol::{
    ClientInfo, ErrorData, Initialize, InitializeParams, InitializeResult, Method,
    PROTOCOL_VERSION, RpcError, Subscribe, SubscribeParams, Unsubscribe,
};
use jsonrpsee::{
    core::{
        client::{
            self as rpc, ClientBuilder, ClientT, Subscription, SubscriptionClientT,
            SubscriptionCloseReason, TransportReceiverT, TransportSenderT,
        },
        traits::ToRpcParams,
    },
    types::ErrorObjectOwned,
};
use rustix::process::Pid;
use serde::{Serialize, de::DeserializeOwned};
use serde_json::value::{RawValue, to_raw_value};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    sync::{OwnedSemaphorePermit, Semaphore, mpsc},
};

use crate::transport::{LineReceiver, LineSender};

/// How we introduce ourselves; `origin.client` of what we send.
pub const NAME: &str = "agent-client";

/// How many frames jsonrpsee keeps before it ends the subscription. Ours is the buffer that counts.
const FRAMES_IN_RPC: usize = 4096;
/// How many frames wait for whoever reads a [`Frames`].
const FRAMES_WAITING: usize = 65_536;
/// How many bytes of them. Beyond it the subscription ends, and the past is asked for again.
const BYTES_WAITING: usize = 64 << 20;
/// What a call's JSON has besides its params.
const ENVELOPE_BYTES: usize = 256;

/// A connection that has been greeted.
pub struct Client {
    rpc: rpc::Client,
    server: InitializeResult,
    process: Option<Pid>,
}

/// What a call came to instead of its result.
#[derive(Debug, thiserror::Error)]
pub enum CallError {
    /// The daemon refused it.
    #[error("{}", .0.message())]
    Refused(ErrorObjectOwned),
    /// The connection ended first; whether the call took effect is not known.
    #[error("{0}")]
    Lost(String),
    /// The answer does not have the shape that this version expects.
    #[error("the answer of `{method}` cannot be read: {problem}; is the daemon another version?")]
    Shape {
        /// The method.
        method: String,
        /// What does not fit.
        problem: String,
    },
    /// The params have no JSON form, or too much of it.
    #[error("`{method}` was not sent: {problem}")]
    NotSent {
        /// The method.
        method: String,
        /// Why.
        problem: String,
    },
}

impl CallError {
    /// The daemon's reason, where it is one of the protocol's.
    pub fn reason(&self) -> Option<RpcError> {
        let CallError::Refused(error) = self else { return None };
        let details: ErrorData = serde_json::from_str(error.data()?.get()).ok()?;
        Some(details.error)
    }
}

impl Client {
    /// Greets the daemon at the other end.
    ///
    /// ```
    /// use agent_client_library::{
    ///     client::{CallError, Client},
    ///     session::SessionChoice,
    /// };
    /// use agent_core::EventKind;
    /// use agent_protocol::{Frame, Prompt, PromptParams, SubscribeParams};
    /// use tokio::io::{AsyncRead, AsyncWrite};
    ///
    /// /// Prompts a directory's session, and prints its answer as it grows.
    /// async fn ask<R, W>(reader: R, writer: W) -> Result<(), Box<dyn std::error::Error>>
    /// where
    ///     R: AsyncRead + Unpin + Send + 'static,
    ///     W: AsyncWrite + Unpin + Send + 'static,
    /// {
    ///     let client = Client::over(reader, writer, None).await?;
    ///     let choice = SessionChoice::Directory("/home/me/project".to_owned());
    ///     let session_id = Some(choice.id(&client).await?);
    ///     let params = SubscribeParams { session_id: session_id.clone(), ..Default::default() };
    ///     let mut frames = client.subscribe(&params).await?;
    ///     let params = PromptParams { input: "hello".into(), session_id, ..Default::default() };
    ///     client.call::<Prompt>(&params).await?;
    ///     while let Some(json) = frames.next().await {
    ///         let Frame::Event(frame) = Frame::from_json(json.get())? else { continue };
    ///         match frame.event.kind {
    ///             EventKind::TextDelta { delta, .. } => print!("{delta}"),
    ///             EventKind::RunEnd { .. } => break,
    ///             _ => {}
    ///         }
    ///     }
    ///     Ok(())
    /// }
    ///
    /// // Nobody answers at these streams' other end.
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() {
    /// let ended = Client::over(tokio::io::empty(), tokio::io::sink(), None).await;
    /// assert!(matches!(ended, Err(CallError::Lost(_))));
    /// # }
    /// ```
    ///
    /// # Errors
    /// It does not answer, speaks another version, or wants a (or another) token.
    pub async fn over<R, W>(reader: R, writer: W, token: Option<String>) -> Result<Self, CallError>
    where
        R: AsyncRead + Unpin + Send + 'static,
        W: AsyncWrite + Unpin + Send + 'static,
    {
        Client::greet(LineSender(writer), LineReceiver::new(reader), token).await
    }

    pub(crate) async fn greet<S, R>(
        sender: S,
        receiver: R,
        token: Option<String>,
    ) -> Result<Self, CallError>
    where
        S: TransportSenderT + Send,
        R: TransportReceiverT + Send,
    {
        let rpc = ClientBuilder::default()
            .request_timeout(std::time::Duration::MAX)
            .max_buffer_capacity_per_subscription(FRAMES_IN_RPC)
            .build_with_tokio(sender, receiver);
        let version = Some(env!("CARGO_PKG_VERSION").to_owned());
        let params = InitializeParams {
            protocol_version: PROTOCOL_VERSION,
            client_info: ClientInfo { name: NAME.to_owned(), version },
            process_id: Some(std::process::id()),
            token,
        };
        let server =
            request(&rpc, Initialize::NAME, Params(raw(Initialize::NAME, &params)?)).await?;
        Ok(Client { rpc, server, process: None })
    }

    /// What the daemon said of itself.
    pub fn server(&self) -> &InitializeResult {
        &self.server
    }

    pub(crate) fn of_process(self, process: Option<Pid>) -> Self {
        Client { process, ..self }
    }

    /// The daemon's process, where the system has told us: on a Unix socket.
    pub fn process(&self) -> Option<u32> {
        u32::try_from(self.process?.as_raw_nonzero().get()).ok()
    }

    /// Whether calls can still be made.
    pub fn is_connected(&self) -> bool {
        self.rpc.is_connected()
    }

    /// Calls a method.
    ///
    /// # Errors
    /// It was refused, or there is no answer to read.
    pub fn call<M: Method>(
        &self,
        params: &M::Params,
    ) -> impl Future<Output = Result<M::Result, CallError>> {
        self.call_json(M::NAME, params)
    }

    /// Calls a method by name. With `Box<RawValue>` as the result it is what the daemon sent.
    ///
    /// # Errors
    /// As [`call`](Client::call).
    pub fn call_json<R: DeserializeOwned>(
        &self,
        method: &str,
        params: &impl Serialize,
    ) -> impl Future<Output = Result<R, CallError>> {
        // Made into JSON here, so that the future does not hold on to the params.
        let params = self.params(method, params);
        async move { request(&self.rpc, method, params?).await }
    }

    fn params(&self, method: &str, params: &impl Serialize) -> Result<Params, CallError> {
        let params = raw(method, params)?;
        // The daemon would answer with a null id, which nobody could take for the answer to this.
        let max = self.server.capabilities.max_message_bytes.saturating_sub(ENVELOPE_BYTES);
        let size = params.get().len();
        if size > max {
            let problem = format!("it has {size} bytes, and the daemon takes no more than {max}");
            return Err(CallError::NotSent { method: method.to_owned(), problem });
        }
        Ok(Params(params))
    }

    /// Subscribes to a session's events.
    ///
    /// # Errors
    /// As [`call`](Client::call).
    pub async fn subscribe(&self, params: &SubscribeParams) -> Result<Frames, CallError> {
        let params = Params(raw(Subscribe::NAME, params)?);
        let answer = self.rpc.subscribe(Subscribe::NAME, params, Unsubscribe::NAME).await;
        Ok(Frames::of(answer.map_err(|error| call_error(Subscribe::NAME, error))?))
    }
}

/// The frames of one subscription, in order. Dropping it unsubscribes.
pub struct Frames {
    waiting: mpsc::Receiver<Waiting>,
    /// Set before the last frame is taken.
    too_slow: Arc<AtomicBool>,
}

struct Waiting {
    frame: Box<RawValue>,
    _bytes: OwnedSemaphorePermit,
}

impl Frames {
    // A task of its own, so that a reader that is held up (by a pager, say) neither stops the
    // connection's answers nor loses what jsonrpsee's own small buffer has no room for.
    fn of(mut subscription: Subscription<Box<RawValue>>) -> Self {
        let (sender, waiting) = mpsc::channel(FRAMES_WAITING);
        let bytes = Arc::new(Semaphore::new(BYTES_WAITING));
        let too_slow = Arc::new(AtomicBool::new(false));
        let was_too_slow = too_slow.clone();
        tokio::spawn(async move {
            loop {
                let frame = tokio::select! {
                    frame = subscription.next() => frame,
                    () = sender.closed() => return,
                };
                let Some(Ok(frame)) = frame else { break };
                let size = frame.get().len().min(BYTES_WAITING) as u32;
                let Ok(permit) = bytes.clone().acquire_many_owned(size).await else { return };
                if sender.send(Waiting { frame, _bytes: permit }).await.is_err() {
                    return;
                }
            }
            let reason = subscription.close_reason();
            let lagged = matches!(reason, Some(SubscriptionCloseReason::Lagged));
            was_too_slow.store(lagged, Ordering::Release);
        });
        Frames { waiting, too_slow }
    }

    /// The next frame's JSON; none when the connection is lost or the reader was too slow. May be
    /// dropped while it waits.
    pub async fn next(&mut self) -> Option<Box<RawValue>> {
        self.waiting.recv().await.map(|waiting| waiting.frame)
    }

    /// Once there are no more: whether that is because they came faster than they were taken, and
    /// the connection goes on.
    pub fn were_too_fast(&self) -> bool {
        self.too_slow.load(Ordering::Acquire)
    }
}

/// Params that are JSON already.
struct Params(Box<RawValue>);

impl ToRpcParams for Params {
    fn to_rpc_params(self) -> Result<Option<Box<RawValue>>, serde_json::Error> {
        Ok(Some(self.0))
    }
}

fn raw(method: &str, params: &impl Serialize) -> Result<Box<RawValue>, CallError> {
    to_raw_value(params).map_err(|error| CallError::NotSent {
        method: method.to_owned(),
        problem: error.to_string(),
    })
}

async fn request<R: DeserializeOwned>(
    rpc: &rpc::Client,
    method: &str,
    params: Params,
) -> Result<R, CallError> {
    rpc.request(method, params).await.map_err(|error| call_error(method, error))
}

fn call_error(method: &str, error: rpc::Error) -> CallError {
    match error {
        rpc::Error::Call(object) => CallError::Refused(object),
        rpc::Error::ParseError(problem) => {
            CallError::Shape { method: method.to_owned(), problem: problem.to_string() }
        }
        rpc::Error::RestartNeeded(reason) => CallError::Lost(reason.to_string()),
        other => CallError::Lost(other.to_string()),
    }
}
