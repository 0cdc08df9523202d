//! The errors of the wire, each with its code and its data.
//!
//! Owns: the code table. Never: a number or a `kind` anywhere else.

use agent_core::{
    Busy, ContinueError, MAX_QUEUED_BYTES, MAX_QUEUED_MESSAGES, QueueFull, RunId, SubmitError,
    WrongRun,
};
use jsonrpsee::types::ErrorObjectOwned;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What is wrong with input that says nothing.
const EMPTY_INPUT: &str = "it is empty or nothing but white space; expected text or an image";

/// What a call may be refused with. Its text is for people and says what to do; clients branch on
/// the code or on `data.kind`.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "kind", rename_all = "camelCase", rename_all_fields = "camelCase")]
pub enum RpcError {
    /// The bytes of a message are no JSON.
    #[error("this is not JSON: {problem}")]
    ParseError {
        /// What is wrong with the text, and where.
        problem: String,
    },
    /// A message is JSON and no request.
    #[error("this is not a JSON-RPC 2.0 request: {problem}")]
    InvalidRequest {
        /// Why the message is no request.
        problem: String,
    },
    /// There is no method of that name.
    #[error("there is no method `{method}`; `getSchema` lists all of them")]
    MethodNotFound {
        /// The name that was asked for.
        method: String,
    },
    /// A parameter is missing, unknown or of the wrong shape.
    #[error("{}", invalid_params(.field.as_deref(), .problem))]
    InvalidParams {
        /// The path of the parameter, such as `clientInfo.name`; absent where it cannot be told.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        field: Option<String>,
        /// What is wrong with the parameter, and what was expected.
        problem: String,
    },
    /// The daemon has a bug.
    #[error("the daemon failed: {problem}; its log says more")]
    InternalError {
        /// What failed.
        problem: String,
    },
    /// The message is a batch, and batches are not taken.
    #[error("batches are not supported: send the calls one after another, without waiting")]
    BatchUnsupported {
        /// The most calls that a batch may have: 0.
        limit: u64,
    },
    /// The connection has all the subscriptions that it may have.
    #[error("this connection has {limit} subscriptions already; unsubscribe one first")]
    TooManySubscriptions {
        /// The most subscriptions that a connection may have.
        limit: u64,
    },
    /// The connection has all the waiting calls that it may have.
    #[error("{limit} calls of this connection are waiting already; wait for one or cancel it")]
    TooManyWaiting {
        /// The most waiting calls that a connection may have.
        limit: u64,
    },
    /// The daemon has all the sessions that it may have.
    #[error("there are {limit} sessions already; close one with `closeSession` first")]
    TooManySessions {
        /// The most sessions that a daemon may have.
        limit: u64,
    },
    /// The message is longer than what is read, and was skipped.
    #[error(
        "the message is longer than the {limit} bytes that are taken; see `limits.max_message_bytes`"
    )]
    MessageTooLarge {
        /// The longest message that is read, in bytes.
        limit: u64,
    },
    /// The client cancelled the call by `$/cancelRequest`.
    #[error("the call was cancelled")]
    RequestCancelled,
    /// A run is active, so no other can start.
    #[error(
        "Agent is busy: run {run_id} is active; wait for it, abort it, steer it or follow it up"
    )]
    Busy {
        /// The run that is active.
        run_id: RunId,
    },
    /// No run is active that could take the message.
    #[error(
        "no run is active that could take the message; use `prompt`, or `whenIdle` \"prompt\" or \
         \"hold\""
    )]
    NotRunning,
    /// The transcript ends with an answer and nothing is queued.
    #[error(
        "there is nothing to continue: the transcript ends with an answer and nothing is queued"
    )]
    NothingToContinue,
    /// The call meant a run that is not active. Nothing was changed.
    #[error(
        "run {expected} is not active{}; nothing was changed",
        .actual.map_or_else(String::new, |run| format!(", run {run} is"))
    )]
    WrongRun {
        /// The run that was meant.
        expected: RunId,
        /// The run that is active; null for none.
        actual: Option<RunId>,
    },
    /// There is no session of that id.
    #[error(
        "there is no session `{session_id}`; `listSessions` lists them, `createSession` makes one"
    )]
    SessionNotFound {
        /// The id that was asked for.
        session_id: String,
    },
    /// There is a session of that id already.
    #[error("there is a session `{session_id}` already; use it, or another id")]
    SessionExists {
        /// The id that was asked for.
        session_id: String,
    },
    /// What the user says is larger than what is taken.
    #[error(
        "the input is too large: {actual_bytes} bytes where at most {max_bytes} are taken (a message \
         may have 1 MiB of text and 20 MiB of images)"
    )]
    InputTooLarge {
        /// The most bytes that are taken, of text or of images.
        max_bytes: u64,
        /// The bytes of it that were sent.
        actual_bytes: u64,
    },
    /// The `clientMessageId` was used before, for other content.
    #[error(
        "this `clientMessageId` was used before, for message {message_id} with other content; \
         give each message an id of its own"
    )]
    IdempotencyConflict {
        /// The id of the message that was sent with it before.
        message_id: String,
    },
    /// `fromSeq` is the number of an event that has not happened yet.
    #[error("`fromSeq` is ahead of the head, {head_seq}; subscribe with `snapshot: true`")]
    SeqOutOfRange {
        /// The number of the oldest event that can be replayed.
        oldest_seq: u64,
        /// The number of the newest event.
        head_seq: u64,
    },
    /// The client speaks a version of the protocol that the daemon does not.
    #[error("this protocol version is not spoken here; supported: {supported:?}")]
    UnsupportedProtocolVersion {
        /// The versions that the daemon speaks.
        supported: Vec<u32>,
    },
    /// The caller has not shown the token that it needs.
    #[error("not authorised: call `initialize` with the daemon's token first")]
    Unauthorized,
    /// The daemon is about to end and takes no more work.
    #[error("the daemon is shutting down and takes no more work; start it again")]
    ShuttingDown,
    /// The model cannot be used.
    #[error("the model `{model}` cannot be used: {reason}")]
    ModelUnavailable {
        /// The model, as it was asked for.
        model: String,
        /// Why the model cannot be used, and what to do.
        reason: String,
    },
    /// The queue has no room for the message.
    #[error(
        "the queue is full: at most {max_messages} messages and {max_bytes} bytes; wait for the run \
         to take some, or call `clearQueues`"
    )]
    QueueFull {
        /// The most messages that a queue may hold.
        max_messages: u64,
        /// The most bytes that a queue may hold.
        max_bytes: u64,
    },
}

/// What `error.data` holds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ErrorData {
    /// Whether the same call may succeed later, without anybody changing it.
    pub retryable: bool,
    /// The `kind` of the error, and the fields that belong to it.
    #[serde(flatten)]
    pub error: RpcError,
}

impl RpcError {
    /// A parameter that is wrong.
    pub fn invalid_param(field: &str, problem: impl Into<String>) -> Self {
        RpcError::InvalidParams { field: Some(field.to_owned()), problem: problem.into() }
    }

    /// Input that says nothing.
    pub fn empty_input() -> Self {
        RpcError::invalid_param("input", EMPTY_INPUT)
    }

    /// The code. Stable: append, never renumber.
    pub fn code(&self) -> i32 {
        match self {
            RpcError::ParseError { .. } => -32700,
            RpcError::InvalidRequest { .. } => -32600,
            RpcError::MethodNotFound { .. } => -32601,
            RpcError::InvalidParams { .. } => -32602,
            RpcError::InternalError { .. } => -32603,
            RpcError::BatchUnsupported { .. } => -32005,
            RpcError::TooManySubscriptions { .. }
            | RpcError::TooManyWaiting { .. }
            | RpcError::TooManySessions { .. } => -32006,
            RpcError::MessageTooLarge { .. } => -32007,
            RpcError::RequestCancelled => -32800,
            RpcError::Busy { .. } => 1001,
            RpcError::NotRunning => 1002,
            RpcError::NothingToContinue => 1003,
            RpcError::WrongRun { .. } => 1004,
            RpcError::SessionNotFound { .. } | RpcError::SessionExists { .. } => 1005,
            RpcError::InputTooLarge { .. } => 1006,
            RpcError::IdempotencyConflict { .. } => 1007,
            RpcError::SeqOutOfRange { .. } => 1008,
            RpcError::UnsupportedProtocolVersion { .. } => 1009,
            RpcError::Unauthorized => 1010,
            RpcError::ShuttingDown => 1011,
            RpcError::ModelUnavailable { .. } => 1012,
            RpcError::QueueFull { .. } => 1013,
        }
    }

    /// Whether the same call may succeed later, without anybody changing it.
    pub fn is_retryable(&self) -> bool {
        matches!(
            self,
            RpcError::Busy { .. }
                | RpcError::QueueFull { .. }
                | RpcError::ShuttingDown
                | RpcError::TooManySubscriptions { .. }
                | RpcError::TooManyWaiting { .. }
                | RpcError::TooManySessions { .. }
        )
    }
}

impl From<RpcError> for ErrorObjectOwned {
    fn from(error: RpcError) -> Self {
        let (code, message, retryable) = (error.code(), error.to_string(), error.is_retryable());
        ErrorObjectOwned::owned(code, message, Some(ErrorData { retryable, error }))
    }
}

impl From<Busy> for RpcError {
    fn from(busy: Busy) -> Self {
        RpcError::Busy { run_id: busy.run_id }
    }
}

impl From<WrongRun> for RpcError {
    fn from(WrongRun { expected, actual }: WrongRun) -> Self {
        RpcError::WrongRun { expected, actual }
    }
}

impl From<QueueFull> for RpcError {
    fn from(_: QueueFull) -> Self {
        RpcError::QueueFull {
            max_messages: MAX_QUEUED_MESSAGES as u64,
            max_bytes: MAX_QUEUED_BYTES as u64,
        }
    }
}

impl From<SubmitError> for RpcError {
    fn from(error: SubmitError) -> Self {
        match error {
            SubmitError::EmptyInput => RpcError::empty_input(),
            SubmitError::Busy(busy) => busy.into(),
            SubmitError::NotRunning => RpcError::NotRunning,
            SubmitError::WrongRun(wrong) => wrong.into(),
            SubmitError::QueueFull(full) => full.into(),
        }
    }
}

impl From<ContinueError> for RpcError {
    fn from(error: ContinueError) -> Self {
        match error {
            ContinueError::Busy(busy) => busy.into(),
            ContinueError::NothingToContinue => RpcError::NothingToContinue,
        }
    }
}

fn invalid_params(field: Option<&str>, problem: &str) -> String {
    match field {
        Some(field) => format!("invalid params: `{field}`: {problem}"),
        None => format!("invalid params: {problem}"),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn an_error_object_says_kind_retryable_and_its_own_data() {
        let error = RpcError::WrongRun { expected: RunId(1), actual: Some(RunId(2)) };
        let object = ErrorObjectOwned::from(error.clone());
        assert_eq!(object.code(), 1004);
        assert_eq!(object.message(), "run 1 is not active, run 2 is; nothing was changed");
        assert_eq!(
            object.data().unwrap().get(),
            r#"{"retryable":false,"kind":"wrongRun","expected":1,"actual":2}"#
        );
        let read: ErrorData = serde_json::from_str(object.data().unwrap().get()).unwrap();
        assert_eq!(read, ErrorData { retryable: false, error });
    }

    #[test]
    fn an_error_without_data_of_its_own_still_says_its_kind() {
        let object = ErrorObjectOwned::from(RpcError::NotRunning);
        assert_eq!(object.data().unwrap().get(), r#"{"retryable":false,"kind":"notRunning"}"#);
    }
}
