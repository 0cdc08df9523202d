//! One client connection: a reading side that carries out calls in order, and a writing side that
//! drains the outbox.
//!
//! Owns: the peer's bytes in both directions, and why the connection ended.
//! Never: takes a run with it. What it takes is its own: subscriptions and waiting calls.

use std::{future::Future, io, pin::Pin, sync::Arc, time::Duration};

use agent_protocol::{
    Method, Shutdown,
    codec::{FrameError, MessageDecoder},
};
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt},
    time::{sleep, timeout},
};
use tokio_util::sync::CancellationToken;
use tracing::Instrument;

use crate::{
    events::policy::SlowReaderPolicy,
    peer::{
        caller::Caller,
        calls::{Calls, Then},
        outbox::{Outbox, Outgoing},
        server::Server,
        strangers::Seat,
        transport::Transport,
    },
};

/// How long a connection that ends for its peer's fault goes on writing.
const LAST_WRITE: Duration = Duration::from_secs(2);
/// How long calls may still wait when the server stops.
const LAST_WAIT: Duration = Duration::from_secs(1);

/// Why a connection ended.
#[derive(Debug)]
pub enum Ending {
    /// The peer sends nothing more; everything that it asked for is answered.
    EndOfInput,
    /// What the peer sends cannot be told apart into messages.
    Unreadable(FrameError),
    /// The peer does not read any more.
    PeerGone(io::Error),
    /// The peer said `exit`.
    Exit {
        /// Whether a `shutdown` of this connection succeeded before.
        after_shutdown: bool,
    },
    /// [`Server::stop`] was called.
    Stopped,
    /// The peer did not show the token: not in time, another one, or others wanted its place.
    Unauthorized,
    /// The peer closed its WebSocket.
    Closed,
}

impl Ending {
    /// What a WebSocket client is told (RFC 6455, 7.4.1).
    fn close_code(&self) -> u16 {
        match self {
            Ending::EndOfInput | Ending::Exit { .. } | Ending::Closed => 1000,
            Ending::Stopped | Ending::PeerGone(_) => 1001,
            Ending::Unreadable(FrameError::Endless) => 1009,
            Ending::Unreadable(_) => 1002,
            Ending::Unauthorized => 1008,
        }
    }
}

/// Completes when the peer is gone altogether.
pub(crate) type Hangup = Pin<Box<dyn Future<Output = ()> + Send>>;

/// One connection over a stream of bytes.
pub(crate) struct Connection<R, W> {
    server: Arc<Server>,
    caller: Arc<Caller>,
    calls: Calls,
    input: ReadingSide<R>,
    output: WritingSide<W>,
    /// Completes when the peer is gone, at any time,
    hangup: Hangup,
    /// and after the end of its input.
    late_hangup: Hangup,
    /// The peer's place among the strangers, until it shows the token.
    seat: Option<Seat>,
    span: tracing::Span,
}

struct ReadingSide<R> {
    reader: R,
    decoder: Box<dyn MessageDecoder>,
}

struct WritingSide<W> {
    writer: W,
    batch: Outgoing,
    /// How much of the batch is written.
    written: usize,
    policy: SlowReaderPolicy,
    /// Makes short how long the peer may take nothing; one that goes on reading loses nothing. Not
    /// for a parent: whoever reads our pipe is the rest of a command line, and may be slow on
    /// purpose.
    stop: Option<CancellationToken>,
}

/// Serves one connection to its end.
pub async fn serve_bytes<R, W>(
    server: Arc<Server>,
    reader: R,
    writer: W,
    transport: &'static Transport,
) -> Ending
where
    R: AsyncRead + Unpin + Send,
    W: AsyncWrite + Unpin + Send,
{
    let mut connection = Connection::new(server, reader, writer, transport);
    let ending = connection.serve().await;
    connection.finish(&ending).await;
    ending
}

impl<R, W> Connection<R, W>
where
    R: AsyncRead + Unpin + Send,
    W: AsyncWrite + Unpin + Send,
{
    /// A connection that nothing was read from yet.
    pub(crate) fn new(
        server: Arc<Server>,
        reader: R,
        writer: W,
        transport: &'static Transport,
    ) -> Self {
        let caller = Caller::new(server.clone(), transport);
        let max_message_bytes = server.limits.max_message_bytes;
        let decoder = (transport.decoder)(max_message_bytes);
        let span = tracing::info_span!("connection", id = caller.connection(), %transport);
        let policy = server.limits.slow_readers;
        let stop = (!transport.is_parent).then(|| server.stop.clone());
        Connection {
            calls: Calls::new(caller.clone()),
            input: ReadingSide { reader, decoder },
            output: WritingSide { writer, batch: Outgoing::default(), written: 0, policy, stop },
            hangup: Box::pin(std::future::pending()),
            late_hangup: Box::pin(std::future::pending()),
            seat: None,
            server,
            caller,
            span,
        }
    }

    /// Ends the connection as soon as `hangup` completes.
    pub(crate) fn with_hangup(mut self, hangup: Hangup) -> Self {
        self.hangup = hangup;
        self
    }

    /// Looks at `hangup` only once the input has ended. A socket tells the rest by itself.
    pub(crate) fn with_late_hangup(mut self, hangup: Hangup) -> Self {
        self.late_hangup = hangup;
        self
    }

    /// Serves the peer as a stranger at first, until it shows the token.
    pub(crate) fn with_seat(mut self, seat: Seat) -> Self {
        self.seat = Some(seat);
        self
    }

    /// Serves the peer until it ends, or must be ended. At the end of the input, calls that wait
    /// are answered first. What waits for subscriptions is left to [`finish`](Self::finish).
    pub(crate) async fn serve(&mut self) -> Ending {
        let span = self.span.clone();
        let ending = self.serve_in_span().instrument(span.clone()).await;
        match self.caller.is_authorized() {
            true => span.in_scope(|| tracing::info!(?ending, "connection ended")),
            // Anybody can make many of these.
            false => span.in_scope(|| tracing::debug!(?ending, "a stranger's connection ended")),
        }
        ending
    }

    async fn serve_in_span(&mut self) -> Ending {
        tracing::debug!("connection opened");
        let Connection { server, caller, calls, input, output, hangup, late_hangup, seat, .. } =
            self;
        let outbox = &caller.outbox;
        let ending = tokio::select! {
            ending = input.run(caller, calls, late_hangup) => ending,
            // It never ends well.
            Err(error) = output.run(outbox, UntilWhen::Forever) => Ending::PeerGone(error),
            () = hangup => Ending::PeerGone(io::ErrorKind::BrokenPipe.into()),
            () = unauthorized(caller, seat) => Ending::Unauthorized,
            () = server.stop.cancelled() => Ending::Stopped,
        };
        if !matches!(ending, Ending::Stopped) {
            return ending;
        }
        tokio::select! {
            _ = timeout(LAST_WAIT, calls.settled()) => {}
            Err(error) = output.run(outbox, UntilWhen::Forever) => return Ending::PeerGone(error),
        }
        ending
    }

    /// Writes what waits for the peer and closes the connection. Sessions that have ended by now
    /// have their last word.
    pub(crate) async fn finish(mut self, ending: &Ending) {
        self.calls.abandon();
        self.caller.outbox.end_at_head();
        let last_write = match ending {
            Ending::PeerGone(_) => return,
            Ending::EndOfInput | Ending::Stopped => Duration::MAX,
            // Acts as the input's end (W1.4).
            Ending::Unreadable(_) if self.caller.transport().is_parent => Duration::MAX,
            Ending::Unreadable(_) | Ending::Exit { .. } | Ending::Unauthorized | Ending::Closed => {
                LAST_WRITE
            }
        };
        let Connection { caller, output, seat, span, .. } = &mut self;
        let written = async {
            output.run(&caller.outbox, UntilWhen::Drained).await?;
            (caller.transport().farewell)(ending.close_code(), &mut output.batch.bytes);
            output.write_batch(&caller.outbox).await?;
            output.writer.shutdown().await
        };
        let written = async {
            tokio::select! {
                biased;
                written = written.instrument(span.clone()) => written,
                () = over(seat) => Err(io::ErrorKind::TimedOut.into()),
            }
        };
        // A peer that does not take its last bytes loses them.
        if !matches!(timeout(last_write, written).await, Ok(Ok(()))) {
            span.in_scope(|| tracing::debug!("the last bytes were not taken"));
        }
    }
}

impl<R, W> Drop for Connection<R, W> {
    fn drop(&mut self) {
        // Not left to the caller's last reference: a method may have kept one.
        self.caller.outbox.close();
    }
}

/// Completes when the peer has had its time to show the token and has not. Once it has, it keeps
/// one of the places for connections.
async fn unauthorized(caller: &Caller, seat: &mut Option<Seat>) {
    let patience = caller.server().limits.authorization;
    let has_to_go = async {
        match seat.as_ref() {
            Some(seat) => seat.over().await,
            None => tokio::time::sleep(patience).await,
        }
    };
    tokio::select! {
        biased;
        () = caller.authorized() => {}
        () = has_to_go => return,
    }
    let _place = match seat.take() {
        Some(_) => Some(caller.server().place().await),
        None => None,
    };
    std::future::pending().await
}

/// Completes when a stranger has to go; never for anybody else.
async fn over(seat: &Option<Seat>) {
    match seat {
        Some(seat) => seat.over().await,
        None => std::future::pending().await,
    }
}

impl<R: AsyncRead + Unpin> ReadingSide<R> {
    async fn run(
        &mut self,
        caller: &Caller,
        calls: &mut Calls,
        late_hangup: &mut Hangup,
    ) -> Ending {
        let ending = self.read(caller, calls).await;
        let answers_wait = match ending {
            Ending::EndOfInput => true,
            // Nothing more can be read from stdin, as at its end (W1.4).
            Ending::Unreadable(_) => caller.transport().is_parent,
            Ending::Exit { .. } => calls.waits_for(Shutdown::NAME),
            _ => false,
        };
        if answers_wait {
            tokio::select! {
                () = calls.settled() => {}
                () = late_hangup => return Ending::PeerGone(io::ErrorKind::BrokenPipe.into()),
            }
        }
        match ending {
            Ending::Exit { .. } => Ending::Exit { after_shutdown: caller.has_shut_down() },
            other => other,
        }
    }

    async fn read(&mut self, caller: &Caller, calls: &mut Calls) -> Ending {
        const EXIT: Ending = Ending::Exit { after_shutdown: false };
        loop {
            loop {
                // Before each message: what is read and not carried out yet costs no more memory.
                caller.outbox.room().await;
                self.decoder.set_max_message_bytes(max_message_bytes(caller));
                let Some(message) = self.decoder.next() else { break };
                let then = match message {
                    Ok(message) => Ok(calls.take(message).await),
                    Err(error) => Err(error),
                };
                self.decoder.framing().inspect(|framing| caller.outbox.set_framing(*framing));
                match then {
                    Err(error) => return Ending::Unreadable(error),
                    Ok(Then::Exit) => return EXIT,
                    Ok(Then::TurnAway) => return Ending::Unauthorized,
                    Ok(Then::Close) => return Ending::Closed,
                    Ok(Then::GoOn) => {}
                }
            }
            match self.reader.read_buf(self.decoder.room()).await {
                Ok(0) => break,
                Ok(_) => {}
                Err(error) => return Ending::PeerGone(error),
            }
        }
        let then = match self.decoder.finish() {
            Some(message) => Some(calls.take(message).await),
            None => None,
        };
        self.decoder.framing().inspect(|framing| caller.outbox.set_framing(*framing));
        match then {
            Some(Then::Exit) => EXIT,
            Some(Then::TurnAway) => Ending::Unauthorized,
            Some(Then::Close) => Ending::Closed,
            Some(Then::GoOn) | None => Ending::EndOfInput,
        }
    }
}

fn max_message_bytes(caller: &Caller) -> usize {
    let limits = caller.server().limits;
    match caller.is_authorized() {
        true => limits.max_message_bytes,
        false => limits.max_message_bytes.min(limits.unauthorized_message_bytes),
    }
}

/// How long an output runs.
#[derive(Clone, Copy, PartialEq, Eq)]
enum UntilWhen {
    Forever,
    /// Until nothing waits.
    Drained,
}

impl<W: AsyncWrite + Unpin> WritingSide<W> {
    /// Writes what the outbox has. Dropped in between, it can be run again and loses nothing.
    async fn run(&mut self, outbox: &Outbox, until: UntilWhen) -> io::Result<()> {
        loop {
            self.write_batch(outbox).await?;
            outbox.fill(&mut self.batch);
            if self.batch.bytes.is_empty() {
                if until == UntilWhen::Drained {
                    return Ok(());
                }
                outbox.wake().await;
            }
        }
    }

    async fn write_batch(&mut self, outbox: &Outbox) -> io::Result<()> {
        while self.written < self.batch.bytes.len() {
            let rest = &self.batch.bytes[self.written..];
            // Each piece that the peer takes gives it all the time again (W4.6).
            let stalled = stalled(&self.policy, self.stop.as_ref());
            match before(stalled, self.writer.write(rest)).await? {
                0 => return Err(io::ErrorKind::WriteZero.into()),
                taken => self.written += taken,
            }
        }
        if self.written > 0 {
            self.written = 0;
            outbox.written(&mut self.batch);
            let stalled = stalled(&self.policy, self.stop.as_ref());
            before(stalled, self.writer.flush()).await?;
        }
        Ok(())
    }
}

/// Completes when a peer that takes nothing has had its time.
async fn stalled(policy: &SlowReaderPolicy, stop: Option<&CancellationToken>) {
    let last_stall = async {
        match stop {
            Some(stop) => stop.cancelled().await,
            None => std::future::pending().await,
        }
        sleep(policy.last_stall).await;
    };
    tokio::select! {
        () = sleep(policy.stall) => {}
        () = last_stall => {}
    }
}

async fn before<T>(
    deadline: impl Future<Output = ()>,
    work: impl Future<Output = io::Result<T>>,
) -> io::Result<T> {
    tokio::select! {
        biased;
        done = work => done,
        () = deadline => Err(io::ErrorKind::TimedOut.into()),
    }
}

#[cfg(test)]
mod tests;
