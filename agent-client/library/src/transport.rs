//! Messages over a stream of bytes or over a WebSocket, as jsonrpsee's client wants them.
//!
//! Owns: what is read and not yet a whole message. Never: hands on an error whose id is null; it
//! answers no call of ours, and jsonrpsee's client would end over it.

use std::io;

use agent_protocol::codec::{
    FrameError, Framing, MAX_SKIPPED_BYTES, MessageDecoder, RawMessage, StreamDecoder, one_line,
};
use futures_util::{
    SinkExt, StreamExt,
    stream::{SplitSink, SplitStream},
};
use jsonrpsee::core::client::{ReceivedMessage, TransportReceiverT, TransportSenderT};
use serde::Deserialize;
use serde_json::Value;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio_tungstenite::{
    WebSocketStream,
    tungstenite::{self, Message},
};

/// Why nothing more comes or goes on a connection.
#[derive(Debug, thiserror::Error)]
pub enum TransportError {
    /// The peer ended it.
    #[error("the daemon closed the connection")]
    Closed,
    /// The system says so.
    #[error("the connection broke: {0}")]
    Io(#[from] io::Error),
    /// What the peer sent is not this protocol.
    #[error("this is no agent-daemon: {0}")]
    Frame(#[from] FrameError),
    /// A message that cannot be read.
    #[error("this is no agent-daemon: a message is {0}")]
    Message(&'static str),
    /// The WebSocket's own rules were broken.
    #[error("the WebSocket broke: {0}")]
    WebSocket(Box<tungstenite::Error>),
}

/// The sending half over bytes: one line for each message.
pub(crate) struct LineSender<W>(pub(crate) W);

impl<W: AsyncWrite + Unpin + Send + 'static> TransportSenderT for LineSender<W> {
    type Error = TransportError;

    async fn send(&mut self, message: String) -> Result<(), TransportError> {
        let message = one_line(message);
        let mut bytes = Vec::with_capacity(message.len() + 1);
        Framing::Lines.encode(&[&message], &mut bytes);
        self.0.write_all(&bytes).await?;
        Ok(self.0.flush().await?)
    }

    async fn close(&mut self) -> Result<(), TransportError> {
        Ok(self.0.shutdown().await?)
    }
}

/// The receiving half over bytes.
pub(crate) struct LineReceiver<R> {
    reader: R,
    decoder: StreamDecoder,
}

impl<R> LineReceiver<R> {
    pub(crate) fn new(reader: R) -> Self {
        // The daemon is trusted not to send too much: a state is as long as its transcript.
        LineReceiver { reader, decoder: StreamDecoder::new(MAX_SKIPPED_BYTES as usize) }
    }
}

impl<R: AsyncRead + Unpin + Send + 'static> TransportReceiverT for LineReceiver<R> {
    type Error = TransportError;

    async fn receive(&mut self) -> Result<ReceivedMessage, TransportError> {
        loop {
            while let Some(frame) = self.decoder.next() {
                if let Some(text) = text_of(frame?)? {
                    return Ok(ReceivedMessage::Text(text));
                }
            }
            if self.reader.read_buf(self.decoder.room()).await? == 0 {
                // A daemon that was killed may leave half a message; it says nothing.
                return Err(TransportError::Closed);
            }
        }
    }
}

fn text_of(frame: RawMessage<'_>) -> Result<Option<String>, TransportError> {
    match frame {
        RawMessage::Text(text) => Ok(answers_something(text).then(|| text.to_owned())),
        RawMessage::NotText => Err(TransportError::Message("not UTF-8")),
        RawMessage::TooLarge { .. } => Err(TransportError::Message("too long")),
        // In neither of a stream's framings.
        RawMessage::Ping(_) | RawMessage::Close => Ok(None),
    }
}

/// The sending half over a WebSocket.
pub(crate) struct SocketSender<S>(pub(crate) SplitSink<WebSocketStream<S>, Message>);

impl<S: AsyncRead + AsyncWrite + Unpin + Send + 'static> TransportSenderT for SocketSender<S> {
    type Error = TransportError;

    async fn send(&mut self, message: String) -> Result<(), TransportError> {
        Ok(self.0.send(Message::text(message)).await?)
    }

    async fn close(&mut self) -> Result<(), TransportError> {
        Ok(self.0.close().await?)
    }
}

/// The receiving half over a WebSocket.
pub(crate) struct SocketReceiver<S>(pub(crate) SplitStream<WebSocketStream<S>>);

impl<S: AsyncRead + AsyncWrite + Unpin + Send + 'static> TransportReceiverT for SocketReceiver<S> {
    type Error = TransportError;

    async fn receive(&mut self) -> Result<ReceivedMessage, TransportError> {
        loop {
            match self.0.next().await.ok_or(TransportError::Closed)?? {
                Message::Text(text) if answers_something(&text) => {
                    return Ok(ReceivedMessage::Text(text.as_str().to_owned()));
                }
                Message::Close(_) => return Err(TransportError::Closed),
                Message::Binary(_) => return Err(TransportError::Message("binary")),
                // Pings are answered by the library.
                _ => {}
            }
        }
    }
}

impl From<tungstenite::Error> for TransportError {
    fn from(error: tungstenite::Error) -> Self {
        match error {
            tungstenite::Error::ConnectionClosed | tungstenite::Error::AlreadyClosed => {
                TransportError::Closed
            }
            tungstenite::Error::Io(error) => TransportError::Io(error),
            other => TransportError::WebSocket(Box::new(other)),
        }
    }
}

/// Whether a message is an event or the answer to one of our calls.
fn answers_something(text: &str) -> bool {
    #[derive(Deserialize)]
    struct RawAnswer {
        #[serde(default, deserialize_with = "present")]
        id: Option<Value>,
    }
    fn present<'de, D: serde::Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Option<Value>, D::Error> {
        Value::deserialize(deserializer).map(Some)
    }
    // An id stands at one end or the other; most messages are not worth a second parsing.
    let bytes = text.as_bytes();
    let ends = [&bytes[..bytes.len().min(48)], &bytes[bytes.len().saturating_sub(16)..]];
    if !ends.iter().any(|end| end.windows(4).any(|word| word == b"null")) {
        return true;
    }
    let is_null = matches!(serde_json::from_str(text), Ok(RawAnswer { id: Some(Value::Null) }));
    if is_null {
        tracing::warn!(text, "an answer to nothing");
    }
    !is_null
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_answers_with_a_null_id_are_left_out() {
        for (text, expected) in [
            (r#"{"jsonrpc":"2.0","id":null,"error":{"code":-32700,"message":"x"}}"#, false),
            (r#"{"jsonrpc":"2.0","error":{"code":-32700,"message":"x"},"id":null}"#, false),
            (r#"{"jsonrpc":"2.0","id":3,"result":null}"#, true),
            (r#"{"jsonrpc":"2.0","id":4,"result":{"id":null}}"#, true),
            (r#"{"jsonrpc":"2.0","method":"event","params":null}"#, true),
            ("null", true),
        ] {
            assert_eq!(answers_something(text), expected, "{text}");
        }
    }
}
