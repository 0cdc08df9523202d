//! The Unix socket (W6).
//!
//! Owns: the socket file and the lock beside it, which is held for as long as the daemon lives, so
//! that of several daemons started at once exactly one serves, and that they are made again when
//! somebody has removed them: nobody would find us, and the next client would start a second daemon.
//! Never: removes a file that is not a socket, or a socket that somebody answers.

use std::{
    fs::{self, File, OpenOptions},
    io::{self, Read, Seek, Write},
    os::{
        fd::{AsFd, OwnedFd},
        unix::{
            fs::{FileTypeExt, MetadataExt, OpenOptionsExt, PermissionsExt},
            net::UnixStream as StdUnixStream,
        },
    },
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
    thread,
    time::Duration,
};

use agent_protocol::local::place::make_private_directory;
use futures_util::{FutureExt, future::BoxFuture};
use tokio::{
    io::Interest,
    net::{UnixListener, UnixStream},
    time::{Instant, sleep_until},
};

use crate::{
    peer::{connection::Connection, server::Server, tally::Tally, transport::Transport},
    transport::socket::{Bind, Binding, Listened, Serving, Socket, UnixSocketError},
};

/// Peers over a Unix socket: processes of the same user.
pub static UNIX: Transport = Transport::plain("unix");

/// Its row.
pub(super) static LISTENED: Listened =
    Listened { transport: &UNIX, form: "unix:PATH", bind: Bind::OnDisk(bind) };

pub(super) fn bind(path: &Path) -> Binding<'_> {
    async { Ok(Box::new(UnixSocket::bind(path)?) as Box<dyn Socket>) }.boxed()
}

/// A daemon that was just started may not have written its process id yet.
const PID_TRIES: u32 = 50;
const PID_PAUSE: Duration = Duration::from_millis(10);

/// So often is looked whether the socket is still where it was made.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// A socket that is ours.
#[derive(Debug)]
pub(crate) struct UnixSocket {
    path: PathBuf,
    tally: Tally,
    kept: Mutex<OnDisk>,
}

/// What a socket is in the file system, for now.
#[derive(Debug)]
struct OnDisk {
    bound: Arc<Bound>,
    lock: Lock,
    looked: Instant,
    /// Said once, not with every look.
    is_missing: bool,
}

/// A listener and its file.
#[derive(Debug)]
struct Bound {
    listener: UnixListener,
    path: PathBuf,
    // Invariant: device and inode of the file that we bound, so that another's is not removed.
    identity: Identity,
}

/// Device and inode.
type Identity = (u64, u64);

impl UnixSocket {
    /// Binds the socket: mode 0600, and its directory, if it has to be made, 0700. Needs a runtime.
    ///
    /// # Errors
    /// Another daemon serves it, something else has its name, or the system refuses.
    pub(crate) fn bind(path: &Path) -> Result<Self, UnixSocketError> {
        let io = |source| UnixSocketError::Io { path: path.to_owned(), source };
        let path = std::path::absolute(path).map_err(io)?;
        let directory = path.parent().unwrap_or(Path::new("/"));
        make_private_directory(directory)?;
        let lock = Lock::take(&path)?;
        let bound = Bound::new(&path)?.into();
        let kept = OnDisk { bound, lock, looked: Instant::now(), is_missing: false };
        Ok(UnixSocket { path, tally: Tally::default(), kept: kept.into() })
    }

    /// The next peer of our own user; others are turned away.
    async fn next(&self) -> io::Result<UnixStream> {
        loop {
            let (bound, looked) = self.bound();
            let stream = tokio::select! {
                accepted = bound.listener.accept() => accepted?.0,
                () = sleep_until(looked + LOOK_EVERY) => {
                    self.look_after();
                    continue;
                }
            };
            match stream.peer_cred() {
                Ok(peer) if peer.uid() == rustix::process::geteuid().as_raw() => return Ok(stream),
                Ok(peer) => {
                    tracing::debug!(uid = peer.uid(), "turned another user away");
                    self.tally.note("another user on the Unix socket");
                }
                Err(error) => {
                    tracing::debug!(%error, "turned away a peer that has no user");
                    self.tally.note("a peer on the Unix socket that has no user");
                }
            }
        }
    }

    fn bound(&self) -> (Arc<Bound>, Instant) {
        let kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        (kept.bound.clone(), kept.looked)
    }

    /// Makes the socket again if somebody has removed it. What he put in its place stays.
    fn look_after(&self) {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        kept.looked = Instant::now();
        let is_there = identity(&self.path);
        if !is_there.is_err_and(|error| error.kind() == io::ErrorKind::NotFound) {
            return;
        }
        match kept.bind_again(&self.path) {
            Ok(()) => tracing::warn!(path = %self.path.display(), "made the removed socket again"),
            Err(error) if !kept.is_missing => {
                tracing::warn!(%error, "the socket was removed and cannot be made again");
            }
            Err(_) => {}
        }
    }
}

impl OnDisk {
    fn bind_again(&mut self, path: &Path) -> Result<(), UnixSocketError> {
        self.is_missing = true;
        let directory = path.parent().unwrap_or(Path::new("/"));
        // Ours may be made again, and not what a login made that is over.
        if directory.parent().is_some_and(Path::is_dir) {
            make_private_directory(directory)?;
        }
        if !self.lock.is_there() {
            self.lock = Lock::take(path)?;
        }
        self.bound = Bound::new(path)?.into();
        self.is_missing = false;
        Ok(())
    }
}

impl Bound {
    fn new(path: &Path) -> Result<Self, UnixSocketError> {
        let io = |source| UnixSocketError::Io { path: path.to_owned(), source };
        remove_stale(path)?;
        let listener = UnixListener::bind(path).map_err(io)?;
        let identity = fs::set_permissions(path, fs::Permissions::from_mode(0o600))
            .and_then(|()| identity(path))
            .map_err(io)?;
        Ok(Bound { listener, path: path.to_owned(), identity })
    }
}

impl Drop for Bound {
    fn drop(&mut self) {
        if identity(&self.path).is_ok_and(|now| now == self.identity) {
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// Of what has this name.
fn identity(path: &Path) -> io::Result<Identity> {
    fs::symlink_metadata(path).map(|found| (found.dev(), found.ino()))
}

impl Socket for UnixSocket {
    fn address(&self) -> String {
        format!("{UNIX}:{}", self.path.display())
    }

    fn accept<'a>(&'a self, server: &'a Arc<Server>) -> BoxFuture<'a, io::Result<Serving>> {
        async move {
            let place = server.place().await;
            let stream = self.next().await?;
            let server = server.clone();
            let serving = async move {
                let _place = place;
                serve(server, stream).await;
            };
            Ok(serving.boxed())
        }
        .boxed()
    }
}

async fn serve(server: Arc<Server>, stream: UnixStream) {
    let duplicate = stream.as_fd().try_clone_to_owned();
    let (reader, writer) = stream.into_split();
    let mut connection = Connection::new(server, reader, writer, &UNIX);
    if let Ok(duplicate) = duplicate {
        connection = connection.with_late_hangup(Box::pin(hung_up(duplicate)));
    }
    let ending = connection.serve().await;
    connection.finish(&ending).await;
}

/// Removes a socket that nobody answers, and nothing else.
fn remove_stale(path: &Path) -> Result<(), UnixSocketError> {
    let io = |source| UnixSocketError::Io { path: path.to_owned(), source };
    match fs::symlink_metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(io(error)),
        Ok(metadata) if !metadata.file_type().is_socket() => {
            return Err(UnixSocketError::NotASocket(path.to_owned()));
        }
        Ok(_) => {}
    }
    match StdUnixStream::connect(path) {
        Ok(stream) => Err(UnixSocketError::InUse { path: path.to_owned(), pid: peer_of(stream) }),
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
            fs::remove_file(path).map_err(io)
        }
        Err(error) => Err(io(error)),
    }
}

/// The process at the other end, where it can be told.
fn peer_of(stream: StdUnixStream) -> Option<u32> {
    stream.set_nonblocking(true).ok()?;
    let peer = UnixStream::from_std(stream).and_then(|stream| stream.peer_cred()).ok()?;
    u32::try_from(peer.pid()?).ok()
}

/// A file beside the socket, locked for as long as its daemon lives, with the daemon's process id.
#[derive(Debug)]
struct Lock {
    path: PathBuf,
    /// Holds the lock.
    file: File,
}

impl Lock {
    fn take(socket: &Path) -> Result<Self, UnixSocketError> {
        let mut path = socket.as_os_str().to_owned();
        path.push(".lock");
        let path = PathBuf::from(path);
        let io = |source| UnixSocketError::Io { path: path.clone(), source };
        loop {
            let mut file = OpenOptions::new()
                .read(true)
                .write(true)
                .create(true)
                .truncate(false)
                .mode(0o600)
                .custom_flags(rustix::fs::OFlags::NOFOLLOW.bits() as i32)
                .open(&path)
                .map_err(io)?;
            match file.try_lock() {
                Ok(()) if !is_of(&file, &path) => {} // Its owner ended just now and removed it.
                Ok(()) => {
                    file.set_len(0).map_err(io)?;
                    writeln!(file, "{}", std::process::id()).map_err(io)?;
                    return Ok(Lock { path, file });
                }
                Err(fs::TryLockError::WouldBlock) => {
                    let pid = pid_in(&mut file);
                    return Err(UnixSocketError::InUse { path: socket.to_owned(), pid });
                }
                Err(fs::TryLockError::Error(error)) => return Err(io(error)),
            }
        }
    }

    fn is_there(&self) -> bool {
        is_of(&self.file, &self.path)
    }
}

impl Drop for Lock {
    fn drop(&mut self) {
        // Before the lock is let go, or a daemon that waits for it could lose its own.
        if self.is_there() {
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// Whether an open file still has this name.
fn is_of(file: &File, path: &Path) -> bool {
    let held = file.metadata().map(|held| (held.dev(), held.ino()));
    held.is_ok_and(|held| identity(path).is_ok_and(|there| there == held))
}

fn pid_in(file: &mut File) -> Option<u32> {
    for _ in 0..PID_TRIES {
        let mut text = String::new();
        file.rewind().ok()?;
        file.read_to_string(&mut text).ok()?;
        // The line's end says that all of it is there.
        if let Some(line) = text.strip_suffix('\n') {
            return line.parse().ok();
        }
        thread::sleep(PID_PAUSE);
    }
    None
}

/// Completes when the peer of a socket is gone altogether, and not only done with sending.
async fn hung_up(duplicate: OwnedFd) {
    // A registration of its own: it must not take the connection's readiness away.
    let Ok(socket) = UnixStream::from_std(StdUnixStream::from(duplicate)) else {
        return std::future::pending().await;
    };
    loop {
        match socket.ready(Interest::WRITABLE).await {
            Ok(ready) if ready.is_write_closed() => return,
            Ok(_) => {
                // Says that it is not ready, so that the next change is waited for.
                let nothing = || Err::<(), _>(io::ErrorKind::WouldBlock.into());
                let _ = socket.try_io(Interest::WRITABLE, nothing);
            }
            Err(_) => return std::future::pending().await,
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::os::unix::fs::symlink;

    use super::*;

    fn mode(path: &Path) -> u32 {
        fs::symlink_metadata(path).unwrap().mode() & 0o777
    }

    #[tokio::test]
    async fn a_socket_is_ours_alone_and_goes_with_us() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("run/agent-daemon/daemon.sock");
        let socket = UnixSocket::bind(&path).unwrap();
        assert_eq!(mode(&path), 0o600);
        assert_eq!(mode(path.parent().unwrap()), 0o700);
        let _client = UnixStream::connect(&path).await.unwrap();
        socket.next().await.unwrap();
        drop(socket);
        assert_eq!(fs::read_dir(path.parent().unwrap()).unwrap().count(), 0);
    }

    #[tokio::test]
    async fn a_live_socket_is_left_alone_and_its_owner_is_named() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("daemon.sock");
        let _first = UnixSocket::bind(&path).unwrap();
        let own_pid = std::process::id();
        let second = UnixSocket::bind(&path).unwrap_err();
        assert!(second.to_string().contains(&format!("process {own_pid}")), "{second}");
        // Also without its lock, and whatever program it is.
        fs::remove_file(directory.path().join("daemon.sock.lock")).unwrap();
        let third = UnixSocket::bind(&path).unwrap_err();
        assert!(third.to_string().contains(&format!("process {own_pid}")), "{third}");
        assert!(UnixStream::connect(&path).await.is_ok());
    }

    #[tokio::test]
    async fn of_many_at_once_exactly_one_serves() {
        let directory = tempfile::tempdir().unwrap();
        for round in 0..20 {
            let path = directory.path().join(format!("{round}.sock"));
            // What a crash leaves behind.
            drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
            let binding: Vec<_> = (0..5)
                .map(|_| {
                    let path = path.clone();
                    tokio::task::spawn_blocking(move || UnixSocket::bind(&path))
                })
                .collect();
            let mut bound = Vec::new();
            for binding in binding {
                match binding.await.unwrap() {
                    Ok(socket) => bound.push(socket),
                    Err(UnixSocketError::InUse { pid, .. }) => {
                        assert_eq!(pid, Some(std::process::id()));
                    }
                    Err(error) => panic!("{error}"),
                }
            }
            assert_eq!(bound.len(), 1);
            assert!(UnixStream::connect(&path).await.is_ok());
        }
    }

    #[tokio::test]
    async fn what_is_no_socket_is_never_removed() {
        let directory = tempfile::tempdir().unwrap();
        let path = |name: &str| directory.path().join(name);
        fs::write(path("file"), "precious").unwrap();
        fs::create_dir(path("directory")).unwrap();
        symlink(path("file"), path("link")).unwrap();
        symlink(path("nowhere"), path("dangling")).unwrap();
        for name in ["file", "directory", "link", "dangling"] {
            let error = UnixSocket::bind(&path(name)).unwrap_err();
            assert!(matches!(error, UnixSocketError::NotASocket(_)), "{name}: {error}");
        }
        assert_eq!(fs::read_to_string(path("link")).unwrap(), "precious");
    }

    #[tokio::test]
    async fn another_s_socket_in_our_place_is_not_removed() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("daemon.sock");
        let socket = UnixSocket::bind(&path).unwrap();
        fs::remove_file(&path).unwrap();
        let _other = std::os::unix::net::UnixListener::bind(&path).unwrap();
        drop(socket);
        assert!(UnixStream::connect(&path).await.is_ok());
    }

    #[tokio::test(start_paused = true)]
    async fn a_socket_that_somebody_removes_is_made_again() {
        let directory = tempfile::tempdir().unwrap();
        let own = directory.path().join("agent-daemon");
        let path = own.join("daemon.sock");
        let socket = Arc::new(UnixSocket::bind(&path).unwrap());
        for remove in [
            |path: &Path| fs::remove_file(path),
            |path: &Path| fs::remove_dir_all(path.parent().unwrap()),
        ] {
            let accepting = tokio::spawn({
                let socket = socket.clone();
                async move { socket.next().await }
            });
            remove(&path).unwrap();
            while !path.exists() {
                tokio::time::sleep(LOOK_EVERY).await;
            }
            assert_eq!((mode(&path), mode(&own)), (0o600, 0o700));
            let _client = UnixStream::connect(&path).await.unwrap();
            accepting.await.unwrap().unwrap();
            let second = UnixSocket::bind(&path).unwrap_err();
            assert!(matches!(second, UnixSocketError::InUse { pid: Some(_), .. }), "{second}");
        }
        drop(socket);
        assert_eq!(fs::read_dir(&own).unwrap().count(), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn neither_another_s_socket_nor_a_login_s_directory_is_replaced() {
        let directory = tempfile::tempdir().unwrap();
        let of_login = directory.path().join("7");
        let path = of_login.join("agent-daemon/daemon.sock");
        let socket = UnixSocket::bind(&path).unwrap();
        fs::remove_file(&path).unwrap();
        let other = std::os::unix::net::UnixListener::bind(&path).unwrap();
        socket.look_after();
        assert!(UnixStream::connect(&path).await.is_ok());
        drop(other);
        fs::remove_dir_all(&of_login).unwrap();
        socket.look_after();
        assert!(!of_login.exists());
    }

    #[tokio::test]
    async fn a_directory_that_others_can_write_to_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        fs::set_permissions(directory.path(), fs::Permissions::from_mode(0o777)).unwrap();
        let error = UnixSocket::bind(&directory.path().join("x.sock")).unwrap_err();
        assert!(matches!(error, UnixSocketError::Place(_)), "{error}");
        fs::set_permissions(directory.path(), fs::Permissions::from_mode(0o1777)).unwrap();
        assert!(UnixSocket::bind(&directory.path().join("x.sock")).is_ok());
    }

    const STRANGER: &str = "AGENT_DAEMON_TEST_STRANGER_SOCKET";

    /// Runs in a process of another user, started by the test below.
    #[test]
    fn stranger() {
        let Some(path) = std::env::var_os(STRANGER) else { return };
        let mut stream = StdUnixStream::connect(path).unwrap();
        // Turned away: the end, or an error, but nothing to read.
        assert!(matches!(stream.read(&mut [0; 1]), Ok(0) | Err(_)));
    }

    #[tokio::test]
    async fn another_user_is_turned_away_even_where_the_file_lets_him_in() {
        use std::os::unix::process::CommandExt;

        if !rustix::process::geteuid().is_root() {
            eprintln!("skipped: only root can start a process of another user");
            return;
        }
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("daemon.sock");
        let socket = UnixSocket::bind(&path).unwrap();
        fs::set_permissions(directory.path(), fs::Permissions::from_mode(0o755)).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o666)).unwrap();
        // A copy that the other user may start, whatever the way to ours looks like.
        let program = directory.path().join("stranger");
        fs::copy(std::env::current_exe().unwrap(), &program).unwrap();
        let mut stranger = tokio::process::Command::from({
            let mut command = std::process::Command::new(program);
            command.args(["--exact", "transport::unix::tests::stranger"]);
            command.env(STRANGER, &path).current_dir("/").uid(65534).gid(65534);
            command
        });
        tokio::select! {
            _ = socket.next() => panic!("he was let in"),
            status = stranger.status() => assert!(status.unwrap().success()),
        }
    }

    #[tokio::test]
    async fn a_peer_that_only_stops_sending_has_not_hung_up() {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let ours = ours.into_std().unwrap();
        let mut gone = std::pin::pin!(hung_up(ours.try_clone().unwrap().into()));
        let theirs = theirs.into_std().unwrap();
        theirs.shutdown(std::net::Shutdown::Write).unwrap();
        let early = tokio::time::timeout(Duration::from_millis(50), &mut gone).await;
        assert!(early.is_err());
        drop(theirs);
        gone.await;
    }
}
