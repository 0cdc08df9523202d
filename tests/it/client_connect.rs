//! Reaching a daemon: what passes by itself is waited out, and nothing else.

use std::{
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use agent_client_library::connect::{ConnectError, Connector, Destination};
use agent_core::ScriptedModel;
use agent_protocol::{Health, SessionParams};
use support::{daemon::InMemory, must};
use tokio::{
    io::copy_bidirectional,
    net::{TcpListener, UnixListener},
};

/// A Unix socket in a directory of its own.
struct Place {
    directory: tempfile::TempDir,
}

impl Place {
    fn new() -> Self {
        Place { directory: tempfile::tempdir().unwrap() }
    }

    fn path(&self) -> PathBuf {
        self.directory.path().join("daemon.sock")
    }

    fn listen(&self) -> UnixListener {
        UnixListener::bind(self.path()).unwrap()
    }

    fn connector(&self) -> Connector {
        Connector::new(Destination::Unix(self.path()), None)
    }
}

#[tokio::test]
async fn a_daemon_that_hangs_up_before_it_greets_is_called_again() {
    let place = Place::new();
    let listener = place.listen();
    let daemon = InMemory::new(ScriptedModel::new());
    tokio::spawn(async move {
        for _ in 0..5 {
            listener.accept().await.unwrap();
        }
        let (mut stream, _) = listener.accept().await.unwrap();
        let _ = copy_bidirectional(&mut stream, &mut daemon.stream()).await;
    });
    let client = must(place.connector().connect()).await.unwrap();
    client.call::<Health>(&SessionParams::default()).await.unwrap();
}

#[tokio::test]
async fn one_that_always_hangs_up_is_told_after_six_calls() {
    let place = Place::new();
    let listener = place.listen();
    let calls = Arc::new(AtomicUsize::new(0));
    let counted = calls.clone();
    tokio::spawn(async move {
        while listener.accept().await.is_ok() {
            counted.fetch_add(1, Ordering::SeqCst);
        }
    });
    let error = must(place.connector().connect()).await.err().unwrap();
    assert!(error.to_string().contains("does not let us in"), "{error}");
    assert_eq!(calls.load(Ordering::SeqCst), 6);
}

/// As after a SIGKILL: the connection was accepted by the kernel, and nobody is there a moment later.
#[tokio::test]
async fn one_that_is_killed_while_it_is_called_is_absent() {
    let place = Place::new();
    let listener = place.listen();
    tokio::spawn(async move {
        listener.accept().await.unwrap();
        drop(listener);
    });
    let error = must(place.connector().connect()).await.err().unwrap();
    assert!(matches!(error, ConnectError::NoDaemon { .. }), "{error}");
}

#[tokio::test]
async fn a_web_socket_s_handshake_that_is_cut_is_begun_again() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("ws://{}", listener.local_addr().unwrap());
    let calls = Arc::new(AtomicUsize::new(0));
    let counted = calls.clone();
    tokio::spawn(async move {
        while listener.accept().await.is_ok() {
            counted.fetch_add(1, Ordering::SeqCst);
        }
    });
    let connector = Connector::new(Destination::WebSocket(url), None);
    let error = must(connector.connect()).await.err().unwrap();
    assert!(error.is_passing(), "{error}");
    assert_eq!(calls.load(Ordering::SeqCst), 6);
}
