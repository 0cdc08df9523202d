//! Whose socket, directory and port it is: neither side trusts another user's (W6).

use std::{
    fs::{self, Permissions},
    io::Read,
    os::unix::{
        fs::{PermissionsExt, lchown, symlink},
        net::UnixListener,
    },
    path::{Path, PathBuf},
    process::Command,
    thread,
};

use support::process::{Daemon, Home, binary, finished, needed, program};

/// Who uses the programs, and who would like to hear what is said.
const VICTIM: u32 = 65534;
const ATTACKER: u32 = 65533;

/// A home with places of several users, for tests that root alone can do.
struct Users {
    home: Home,
    setpriv: PathBuf,
}

impl Users {
    fn new(test: &str) -> Option<Self> {
        let can_switch = match rustix::process::geteuid().is_root() {
            true => program("setpriv"),
            false => Err("only root can become somebody else".to_owned()),
        };
        let setpriv = needed(test, can_switch)?;
        let home = Home::new();
        fs::set_permissions(home.path(""), Permissions::from_mode(0o755)).unwrap();
        let users = Users { home, setpriv };
        let programs = users.place("programs", 0, 0o755);
        for name in ["agent-daemon", "agent-client"] {
            fs::copy(binary(name), programs.join(name)).unwrap();
        }
        for uid in [VICTIM, ATTACKER] {
            users.place(&uid.to_string(), uid, 0o700);
        }
        Some(users)
    }

    /// Makes a directory that belongs to somebody.
    fn place(&self, name: &str, uid: u32, mode: u32) -> PathBuf {
        let path = self.home.path(name);
        fs::create_dir(&path).unwrap();
        fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
        lchown(&path, Some(uid), Some(uid)).unwrap();
        path
    }

    /// One of the programs, started by somebody who has all that belongs to a user.
    fn command(&self, uid: u32, program: &str, arguments: &[&str]) -> Command {
        let id = uid.to_string();
        let mut command = self.home.command(&self.setpriv);
        command
            .args(["--reuid", &id, "--regid", &id, "--clear-groups"])
            .arg(self.home.path("programs").join(program))
            .args(arguments)
            .current_dir(self.home.path(&id));
        for name in
            ["HOME", "XDG_CONFIG_HOME", "XDG_STATE_HOME", "XDG_RUNTIME_DIR", "XDG_CACHE_HOME"]
        {
            command.env(name, self.home.path(&id));
        }
        command
    }
}

/// The exit status and what was said on stderr.
fn outcome(mut command: Command) -> (Option<i32>, String) {
    let output = finished(&mut command);
    (output.status.code(), String::from_utf8(output.stderr).unwrap())
}

#[track_caller]
fn is_refused((status, said): (Option<i32>, String), expected: i32, because: &str) {
    assert!(said.contains(because), "{said}");
    assert_eq!(status, Some(expected), "{said}");
}

fn listen(socket: &Path) -> [String; 2] {
    ["--listen".to_owned(), format!("unix:{}", socket.display())]
}

#[test]
fn a_directory_that_others_can_write_to_is_refused_by_both_sides() {
    let home = Home::new();
    let open = home.path("open");
    fs::create_dir_all(open.join("inner")).unwrap();
    fs::set_permissions(&open, Permissions::from_mode(0o777)).unwrap();
    symlink(&open, home.path("link")).unwrap();
    for socket in [open.join("x.sock"), open.join("inner/x.sock"), home.path("link/x.sock")] {
        let listen = listen(&socket);
        let daemon = home.daemon_command(&[&listen[0], &listen[1]]);
        is_refused(outcome(daemon), 2, "other users can write to it");
        // One that could be started is not.
        let client = home.client_command(&["--socket", socket.to_str().unwrap(), "state"]);
        is_refused(outcome(client), 3, "other users can write to it");
        let listener = UnixListener::bind(&socket).unwrap();
        let client = home.client_command(&["--socket", socket.to_str().unwrap(), "state"]);
        is_refused(outcome(client), 3, "other users can write to it");
        drop(listener);
        fs::remove_file(&socket).unwrap();
    }
    assert_eq!(fs::read_dir(&open).unwrap().count(), 1, "nothing was made there");
    // The token would be sent to whoever put it there.
    let token = open.join("token");
    let daemon = home.daemon_command(&[
        "--listen",
        "tcp:127.0.0.1:0",
        "--token-file",
        token.to_str().unwrap(),
    ]);
    is_refused(outcome(daemon), 2, "other users can write to it");
    // As in /tmp, what is ours stays ours there.
    fs::set_permissions(&open, Permissions::from_mode(0o1777)).unwrap();
    let socket = open.join("inner/x.sock");
    let socket = socket.to_str().unwrap();
    let (status, said) = outcome(home.client_command(&["--socket", socket, "state"]));
    assert_eq!(status, Some(0), "{said}");
    let (status, said) = outcome(home.client_command(&["--socket", socket, "shutdown"]));
    assert_eq!(status, Some(0), "{said}");
}

#[test]
fn what_another_user_has_planted_is_refused_by_both_sides() {
    let Some(users) = Users::new("planted places") else { return };
    let shared = users.place("shared", 0, 0o1777);
    let own = users.place("own", VICTIM, 0o700);
    let directory = users.place("shared/directory", ATTACKER, 0o755);
    let link = shared.join("link");
    symlink(&own, &link).unwrap();
    lchown(&link, Some(ATTACKER), Some(ATTACKER)).unwrap();
    for planted in [directory, link] {
        let socket = planted.join("x.sock");
        let listen = listen(&socket);
        let because = format!("it belongs to another user, uid {ATTACKER}");
        let daemon = users.command(VICTIM, "agent-daemon", &[&listen[0], &listen[1]]);
        is_refused(outcome(daemon), 2, &because);
        let arguments = ["--socket", socket.to_str().unwrap(), "prompt", "hello"];
        is_refused(outcome(users.command(VICTIM, "agent-client", &arguments)), 3, &because);
    }
    // His own symlink, and one of the superuser's, as `/tmp` is on some systems, are good.
    for (name, uid) in [("shared/mine", VICTIM), ("shared/system", 0)] {
        let link = users.home.path(name);
        symlink(&own, &link).unwrap();
        lchown(&link, Some(uid), Some(uid)).unwrap();
        let socket = link.join("x.sock");
        for command in ["state", "shutdown"] {
            let arguments = ["--socket", socket.to_str().unwrap(), command];
            let (status, said) = outcome(users.command(VICTIM, "agent-client", &arguments));
            assert_eq!(status, Some(0), "{name}: {said}");
        }
    }
}

#[test]
fn a_unix_socket_of_another_user_is_told_nothing() {
    let Some(users) = Users::new("another user's socket") else { return };
    // Whoever comes first has the name; here it is the superuser, and he is another one, too.
    let shared = users.place("shared", 0, 0o1777);
    let socket = shared.join("daemon.sock");
    let listener = UnixListener::bind(&socket).unwrap();
    fs::set_permissions(&socket, Permissions::from_mode(0o666)).unwrap();
    let heard = thread::spawn(move || {
        let mut heard = Vec::new();
        listener.accept().unwrap().0.read_to_end(&mut heard).unwrap();
        heard
    });
    let arguments = ["--socket", socket.to_str().unwrap(), "prompt", "a secret plan"];
    let refused = outcome(users.command(VICTIM, "agent-client", &arguments));
    is_refused(refused, 3, "is served by another user, uid 0, and was told nothing");
    assert_eq!(String::from_utf8(heard.join().unwrap()).unwrap(), "");
}

#[test]
fn a_port_of_another_user_is_told_nothing() {
    let Some(users) = Users::new("another user's port") else { return };
    let token = users.home.path(VICTIM.to_string()).join("token");
    fs::write(&token, "0a".repeat(32)).unwrap();
    fs::set_permissions(&token, Permissions::from_mode(0o600)).unwrap();
    lchown(&token, Some(VICTIM), Some(VICTIM)).unwrap();
    let start = |uid| {
        let listen = ["--listen", "tcp:127.0.0.1:0", "--listen", "ws:127.0.0.1:0"];
        let mut command = users.command(uid, "agent-daemon", &listen);
        Daemon::start(command.args(["--log-level", "trace"]))
    };
    let (mut attacker, mut own) = (start(ATTACKER), start(VICTIM));
    let token = ["--token-file", token.to_str().unwrap()];
    for (kind, address) in [("--tcp", "tcp:"), ("--ws", "ws:")] {
        let of = |daemon: &mut Daemon| match kind {
            "--ws" => format!("ws://{}", daemon.said_after(address)),
            _ => daemon.said_after(address),
        };
        let state = |to: &str| {
            let arguments = [kind, to, token[0], token[1], "state"];
            outcome(users.command(VICTIM, "agent-client", &arguments))
        };
        let refused = state(&of(&mut attacker));
        is_refused(refused, 3, &format!("is served by another user, uid {ATTACKER}"));
        // His own has another token, which is not what is tried here.
        let (_, said) = state(&of(&mut own));
        assert!(!said.contains("another user"), "{said}");
    }
    assert!(!attacker.said().contains("token, or none"), "{}", attacker.said());
}

#[test]
fn another_machine_is_told_nothing_unless_that_is_wanted() {
    let home = Home::new();
    // Addresses that nobody has.
    for to in [["--tcp", "192.0.2.1:7"], ["--tcp", "[2001:db8::1]:7"], ["--ws", "ws://192.0.2.1:7"]]
    {
        let client = home.client_command(&[to[0], to[1], "prompt", "hello"]);
        is_refused(outcome(client), 3, "--allow-remote");
    }
    let mut command = home.daemon_command(&["--listen", "tcp:127.0.0.1:0"]);
    let mut daemon = Daemon::start(&mut command);
    let address = daemon.said_after("tcp:");
    for flag in [&[][..], &["--allow-remote"]] {
        let arguments = [&["--tcp", &address, "state"], flag].concat();
        let (status, said) = outcome(home.client_command(&arguments));
        assert_eq!(status, Some(0), "{said}");
    }
    // What a file holds is sent only if it is a token, and only ours.
    let file = home.path("secret");
    fs::write(&file, "a private key").unwrap();
    let arguments = ["--tcp", &address, "--token-file", file.to_str().unwrap(), "state"];
    is_refused(outcome(home.client_command(&arguments)), 3, "chmod 600");
    fs::set_permissions(&file, Permissions::from_mode(0o600)).unwrap();
    is_refused(outcome(home.client_command(&arguments)), 3, "does not hold 64 hex digits");
}
