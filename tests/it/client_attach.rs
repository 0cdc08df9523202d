//! `agent-client attach` on a terminal of its own (wire protocol, section 7).

use std::{
    fs::File,
    io::{Read, Write},
    os::fd::OwnedFd,
    process::{Child, Stdio},
    sync::{Arc, Mutex},
};

use rustix::{
    process::{Pid, Signal, kill_process},
    pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt},
    termios::{LocalModes, Termios, Winsize, tcgetattr, tcsetwinsize},
};
use support::process::{Home, ModelServer, eventually, exit_of, finished};

const INTERRUPT: &str = "\x03";

/// A client on a pseudo-terminal.
struct Attached {
    child: Child,
    keyboard: File,
    /// Our own hold on the terminal, to look at its settings.
    terminal: OwnedFd,
    before: Termios,
    written: Arc<Mutex<String>>,
}

impl Attached {
    fn new(home: &Home) -> Self {
        let master = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
        grantpt(&master).unwrap();
        unlockpt(&master).unwrap();
        let name = ptsname(&master, Vec::new()).unwrap().into_string().unwrap();
        let terminal = OwnedFd::from(File::options().read(true).write(true).open(name).unwrap());
        let size = Winsize { ws_row: 24, ws_col: 80, ws_xpixel: 0, ws_ypixel: 0 };
        tcsetwinsize(&terminal, size).unwrap();
        let before = tcgetattr(&terminal).unwrap();
        let stream = || Stdio::from(terminal.try_clone().unwrap());
        let child = home
            .client_command(&["attach"])
            .env("TERM", "xterm")
            .stdin(stream())
            .stdout(stream())
            .stderr(stream())
            .spawn()
            .unwrap();
        let written = Arc::new(Mutex::new(String::new()));
        let mut screen = File::from(master.try_clone().unwrap());
        std::thread::spawn({
            let written = written.clone();
            move || {
                let mut bytes = [0; 4096];
                // Ends with an error when the terminal is closed.
                while let Ok(count @ 1..) = screen.read(&mut bytes) {
                    let text = String::from_utf8_lossy(&bytes[..count]).into_owned();
                    written.lock().unwrap().push_str(&text);
                }
            }
        });
        let attached = Attached { child, keyboard: File::from(master), terminal, before, written };
        attached.shows("/help lists the commands");
        attached
    }

    fn types(&mut self, keys: &str) {
        self.keyboard.write_all(keys.as_bytes()).unwrap();
    }

    /// Waits until these words have been written, and forgets all before them.
    fn shows(&self, words: &str) {
        eventually(words, || {
            let mut written = self.written.lock().unwrap();
            let end = written.find(words)? + words.len();
            written.drain(..end);
            Some(())
        });
    }

    /// Waits for the end; the terminal has to be as it was.
    fn leaves(&mut self) -> Option<i32> {
        let status = exit_of(&mut self.child).code();
        let after = tcgetattr(&self.terminal).unwrap();
        assert_eq!(after.local_modes, self.before.local_modes);
        assert_eq!(after.input_modes, self.before.input_modes);
        status
    }
}

impl Drop for Attached {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn enter_prompts_at_idle_and_steers_a_run_and_ctrl_c_ends_it() {
    let model = ModelServer::start();
    let home = Home::with_model(&model);
    let _daemon = home.daemon();
    let mut attached = Attached::new(&home);
    assert!(!tcgetattr(&attached.terminal).unwrap().local_modes.contains(LocalModes::ICANON));

    attached.types("Tell me a stOry\x7f\x7f\x7fory.\r");
    let mut call = model.call();
    assert_eq!(call.transcript(), ["user: Tell me a story."]);
    call.begin();
    call.say("Once upon");
    attached.shows("Once upon");
    attached.types("a short one\r");
    attached.shows("1 queued");
    attached.types(INTERRUPT);
    attached.shows("aborted");
    attached.shows("not delivered (steering): a short one");
    // It was ours, so it is there to be sent again.
    attached.shows("› a short one");
    attached.types("\r");
    let call = model.call();
    assert_eq!(call.transcript().last().unwrap(), "user: a short one");
    call.answer("The end.");
    attached.shows("The end.");
    attached.shows("idle");
    attached.types(INTERRUPT);
    assert_eq!(attached.leaves(), Some(0));
}

#[test]
fn others_messages_and_the_past_are_shown_and_a_pasted_text_is_one_message() {
    let model = ModelServer::start();
    let home = Home::with_model(&model);
    let _daemon = home.daemon();
    let prompt = |text: &str| {
        let mut command = home.client_command(&["prompt", text]);
        std::thread::spawn(move || finished(&mut command))
    };
    let before = prompt("from before");
    model.call().answer("Long ago.");
    assert!(before.join().unwrap().status.success());

    let mut attached = Attached::new(&home);
    attached.shows("› from before");
    attached.shows("Long ago.");
    let other = prompt("from elsewhere");
    attached.shows("› from elsewhere");
    model.call().answer("Hostile \u{1b}]0;title\u{7}\u{202e}.");
    attached.shows("Hostile ␛]0;title␇<U+202E>.");
    assert!(other.join().unwrap().status.success());

    attached.types("\x1b[200~two\rlines\x1b[201~\r");
    let call = model.call();
    assert_eq!(call.transcript().last().unwrap(), "user: two\nlines");
    call.answer("Both.");
    attached.shows("Both.");
    attached.types("/follow-up and more\r");
    let call = model.call();
    assert_eq!(call.transcript().last().unwrap(), "user: and more");
    call.answer("More.");
    attached.shows("More.");
    attached.types("/state\r");
    attached.shows("status     idle; run 4 ended: stop");
    attached.types("/quit\r");
    assert_eq!(attached.leaves(), Some(0));
}

#[test]
fn a_signal_and_a_lost_daemon_leave_the_terminal_as_it_was() {
    let home = Home::new();
    let daemon = home.daemon();
    let mut terminated = Attached::new(&home);
    kill_process(Pid::from_child(&terminated.child), Signal::TERM).unwrap();
    assert_eq!(terminated.leaves(), Some(0));

    let mut attached = Attached::new(&home);
    daemon.signal(Signal::TERM);
    attached.shows("the daemon has ended");
    assert_eq!(attached.leaves(), Some(3));
}

#[test]
fn without_a_terminal_attach_says_what_else_there_is() {
    let home = Home::new();
    let output = finished(&mut home.client_command(&["attach"]));
    assert_eq!(output.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&output.stderr).contains("`events`"));
}
