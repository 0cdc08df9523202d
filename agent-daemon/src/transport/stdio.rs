//! The protocol over stdin and stdout.
//!
//! Owns: duplicates of fd 0 and fd 1, which nothing else in the process can reach: afterwards fd 0
//! is empty and fd 1 is stderr, for us and for every child.
//! Never: reads or writes through `std::io`, whose buffers others share.

use std::{
    fs::File,
    io,
    os::{
        fd::{AsFd, BorrowedFd, OwnedFd},
        unix::net::UnixStream as StdUnixStream,
    },
    thread,
};

use rustix::{
    event::{PollFd, PollFlags, poll},
    fs::{FileType, fstat},
};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::{UnixStream, unix::pipe},
    sync::oneshot,
};

use crate::peer::{connection::Hangup, transport::Transport};

/// The process that started us.
pub static STDIO: Transport = Transport { is_parent: true, ..Transport::plain("stdio") };

/// The protocol's own stdin and stdout.
pub(crate) struct Stdio {
    /// What the parent sends.
    pub reader: Box<dyn AsyncRead + Send + Unpin>,
    /// What the parent reads.
    pub writer: Box<dyn AsyncWrite + Send + Unpin>,
    /// Completes when the parent cannot read any more.
    pub hangup: Hangup,
}

impl Stdio {
    /// Takes stdin and stdout away from the rest of the process. Once only.
    ///
    /// Where they are files or terminals, tokio's blocking pool reads them, and a read cannot be
    /// cancelled: the process has to end by `exit`, not by waiting for the runtime.
    ///
    /// # Errors
    /// The system refuses a duplicate or a watching thread.
    pub(crate) fn take() -> io::Result<Self> {
        let input = io::stdin().as_fd().try_clone_to_owned()?;
        let output = io::stdout().as_fd().try_clone_to_owned()?;
        rustix::stdio::dup2_stdin(File::open("/dev/null")?)?;
        rustix::stdio::dup2_stdout(io::stderr())?;
        Stdio::new(input, output, io::stderr().as_fd())
    }

    fn new(input: OwnedFd, output: OwnedFd, stderr: BorrowedFd<'_>) -> io::Result<Self> {
        let hangup = hangup_of(output.try_clone()?)?;
        // O_NONBLOCK belongs to the open file, not to the descriptor: what stderr shares with
        // stdin or stdout must stay blocking, or log lines would fail.
        let reader: Box<dyn AsyncRead + Send + Unpin> = match kind_of(&input, stderr)? {
            FileType::Fifo => Box::new(pipe::Receiver::from_owned_fd(input)?),
            FileType::Socket => Box::new(socket(input)?),
            _ => Box::new(tokio::fs::File::from_std(input.into())),
        };
        let writer: Box<dyn AsyncWrite + Send + Unpin> = match kind_of(&output, stderr)? {
            FileType::Fifo => Box::new(pipe::Sender::from_owned_fd(output)?),
            FileType::Socket => Box::new(socket(output)?),
            _ => Box::new(tokio::fs::File::from_std(output.into())),
        };
        Ok(Stdio { reader, writer, hangup })
    }
}

/// What may be made non-blocking, and how; anything else counts as a file.
fn kind_of(fd: &OwnedFd, stderr: BorrowedFd<'_>) -> io::Result<FileType> {
    let (this, shared) = (fstat(fd)?, fstat(stderr)?);
    if (this.st_dev, this.st_ino) == (shared.st_dev, shared.st_ino) {
        return Ok(FileType::RegularFile);
    }
    Ok(FileType::from_raw_mode(this.st_mode))
}

fn socket(fd: OwnedFd) -> io::Result<UnixStream> {
    let socket = StdUnixStream::from(fd);
    socket.set_nonblocking(true)?;
    UnixStream::from_std(socket)
}

/// Watches for the moment when nobody can read what is written, without writing.
///
/// A thread rather than the runtime, since `poll` takes files and terminals too. It ends with the
/// process.
fn hangup_of(output: OwnedFd) -> io::Result<Hangup> {
    let (gone, hangup) = oneshot::channel();
    thread::Builder::new().name("stdout-watch".to_owned()).spawn(move || {
        // No events are asked for; errors and hang-ups are always reported.
        let mut fds = [PollFd::new(&output, PollFlags::empty())];
        loop {
            match poll(&mut fds, None) {
                Err(rustix::io::Errno::INTR) => {}
                Err(error) => {
                    tracing::warn!(%error, "cannot watch stdout");
                    return;
                }
                Ok(_) if fds[0].revents().is_empty() => {}
                Ok(_) => {
                    let _ = gone.send(());
                    return;
                }
            }
        }
    })?;
    Ok(Box::pin(async {
        if hangup.await.is_err() {
            std::future::pending().await
        }
    }))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::time::Duration;

    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;

    fn pipe_ends() -> (OwnedFd, OwnedFd) {
        let (reader, writer) = io::pipe().unwrap();
        (reader.into(), writer.into())
    }

    fn stderr() -> OwnedFd {
        File::open("/dev/null").unwrap().into()
    }

    async fn check(input: OwnedFd, output: OwnedFd, mut read: impl io::Read, stderr: OwnedFd) {
        let Stdio { mut reader, mut writer, .. } =
            Stdio::new(input, output, stderr.as_fd()).unwrap();
        let mut line = [0; 5];
        reader.read_exact(&mut line).await.unwrap();
        writer.write_all(&line).await.unwrap();
        writer.flush().await.unwrap();
        let mut written = [0; 5];
        read.read_exact(&mut written).unwrap();
        assert_eq!(&written, b"hello");
    }

    #[tokio::test]
    async fn pipes_sockets_and_files_will_do() {
        let (input, feed) = pipe_ends();
        let (read, output) = pipe_ends();
        io::Write::write_all(&mut File::from(feed), b"hello").unwrap();
        check(input, output, File::from(read), stderr()).await;

        let (input, mut feed) = StdUnixStream::pair().unwrap();
        let (read, output) = StdUnixStream::pair().unwrap();
        io::Write::write_all(&mut feed, b"hello").unwrap();
        check(input.into(), output.into(), read, stderr()).await;

        let directory = tempfile::tempdir().unwrap();
        let (input, output) = (directory.path().join("in"), directory.path().join("out"));
        std::fs::write(&input, "hello").unwrap();
        let (input, written) = (File::open(input).unwrap(), File::create(&output).unwrap());
        check(input.into(), written.into(), File::open(output).unwrap(), stderr()).await;
    }

    #[tokio::test]
    async fn what_stderr_shares_stays_blocking() {
        let (input, feed) = pipe_ends();
        let (read, output) = pipe_ends();
        io::Write::write_all(&mut File::from(feed), b"hello").unwrap();
        let shared = output.try_clone().unwrap();
        check(input, output, File::from(read), shared.try_clone().unwrap()).await;
        let flags = rustix::fs::fcntl_getfl(&shared).unwrap();
        assert!(!flags.contains(rustix::fs::OFlags::NONBLOCK));
    }

    #[tokio::test]
    async fn a_reader_that_goes_is_noticed_without_a_write() {
        let (read, output) = pipe_ends();
        let mut gone = hangup_of(output).unwrap();
        assert!(tokio::time::timeout(Duration::from_millis(50), &mut gone).await.is_err());
        drop(read);
        gone.await;

        let (read, output) = StdUnixStream::pair().unwrap();
        let gone = hangup_of(output.into()).unwrap();
        drop(read);
        gone.await;
    }
}
