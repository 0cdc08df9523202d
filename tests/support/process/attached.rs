//! `agent-client attach` on a pseudo-terminal, as a person sees it.

use std::{
    fs::File,
    io::{Read, Write},
    os::{fd::OwnedFd, unix::process::CommandExt},
    process::{Child, ExitStatus, Stdio},
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    thread::JoinHandle,
    time::{Duration, Instant},
};

use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    process::{Pid, Signal, kill_process},
    pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt},
    termios::{LocalModes, OptionalActions, Termios, Winsize, tcgetattr, tcsetattr, tcsetwinsize},
};

use super::{Home, daemon::exit_of, eventually};

/// A pseudo-terminal of 80 columns and 24 rows.
pub struct Pty {
    /// Where its keys come from, and its screen goes to.
    master: File,
    terminal: OwnedFd,
}

/// A client on a pseudo-terminal, in a process group of its own. Dropped, it is killed.
pub struct Attached {
    child: Killed,
    keyboard: File,
    /// Our own hold on the terminal, to look at its settings.
    terminal: OwnedFd,
    before: Termios,
    screen: Screen,
}

/// What is written to a terminal.
struct Screen {
    written: Arc<Mutex<String>>,
    ends: Arc<AtomicBool>,
    listener: Option<JoinHandle<()>>,
}

impl Pty {
    /// A new one.
    pub fn open() -> Self {
        let master =
            openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC).unwrap();
        grantpt(&master).unwrap();
        unlockpt(&master).unwrap();
        let name = ptsname(&master, Vec::new()).unwrap().into_string().unwrap();
        let terminal = OwnedFd::from(File::options().read(true).write(true).open(name).unwrap());
        let size = Winsize { ws_row: 24, ws_col: 80, ws_xpixel: 0, ws_ypixel: 0 };
        tcsetwinsize(&terminal, size).unwrap();
        Pty { master: File::from(master), terminal }
    }

    /// The side that programs have.
    pub fn terminal(&self) -> Stdio {
        self.terminal.try_clone().unwrap().into()
    }
}

impl Attached {
    /// Starts it, and waits until it shows the session.
    pub fn new(home: &Home) -> Self {
        let pty = Pty::open();
        let before = tcgetattr(&pty.terminal).unwrap();
        let child = home
            .client_command(&["attach"])
            .env("TERM", "xterm")
            .stdin(pty.terminal())
            .stdout(pty.terminal())
            .stderr(pty.terminal())
            // Suspended, it takes its group along.
            .process_group(0)
            .spawn()
            .unwrap();
        let Pty { master, terminal } = pty;
        let screen = Screen::of(master.try_clone().unwrap());
        let attached =
            Attached { child: Killed(child), keyboard: master, terminal, before, screen };
        attached.shows("/help lists the commands");
        attached
    }

    /// The process.
    pub fn pid(&self) -> Pid {
        Pid::from_child(&self.child.0)
    }

    /// The terminal.
    pub fn terminal(&self) -> &OwnedFd {
        &self.terminal
    }

    /// Types this, in one piece.
    pub fn types(&mut self, keys: &str) {
        self.types_bytes(keys.as_bytes());
    }

    /// Types these bytes, in one piece.
    pub fn types_bytes(&mut self, keys: &[u8]) {
        self.keyboard.write_all(keys).unwrap();
    }

    /// Presses one key, and waits until it was seen: the next one comes by itself. A key that changes
    /// nothing need not be drawn; after a second it has been read.
    pub fn presses(&mut self, key: &[u8]) {
        self.screen.written.lock().unwrap().clear();
        self.types_bytes(key);
        let begin = Instant::now();
        eventually("the key to be seen", || {
            // The lower end of the screen is cleared once for each time it is drawn.
            let is_drawn = self.written().contains("\x1b[J");
            (is_drawn || begin.elapsed() > Duration::from_secs(1)).then_some(())
        });
    }

    /// Waits until these words have been written, and forgets all before them.
    pub fn shows(&self, words: &str) {
        eventually(words, || {
            let mut written = self.screen.written.lock().unwrap();
            let end = written.find(words)? + words.len();
            written.drain(..end);
            Some(())
        });
    }

    /// What has been written and not been waited for.
    pub fn written(&self) -> String {
        self.screen.written.lock().unwrap().clone()
    }

    /// Whether keys reach the program as they are pressed.
    pub fn is_raw(&self) -> bool {
        !tcgetattr(&self.terminal).unwrap().local_modes.contains(LocalModes::ICANON)
    }

    /// Waits until the process is stopped.
    pub fn is_stopped(&self) {
        let path = format!("/proc/{}/stat", self.pid().as_raw_nonzero());
        eventually("the process to be stopped", || {
            let stat = std::fs::read_to_string(&path).unwrap();
            stat.rsplit_once(") ")?.1.starts_with('T').then_some(())
        });
    }

    /// Takes the stopped process to the foreground again, as a shell does: its own settings of the
    /// terminal were in force meanwhile.
    pub fn goes_on(&mut self) {
        tcsetattr(&self.terminal, OptionalActions::Now, &self.before).unwrap();
        self.screen.written.lock().unwrap().clear();
        kill_process(self.pid(), Signal::CONT).unwrap();
        eventually("raw mode", || self.is_raw().then_some(()));
    }

    /// Waits for the end; the terminal has to be as it was.
    pub fn leaves(&mut self) -> Option<i32> {
        let status = exit_of(&mut self.child.0).code();
        self.is_as_before();
        status
    }

    /// Closes the terminal, as a window that goes away, and waits for the end.
    pub fn loses_its_terminal(self) -> ExitStatus {
        let Attached { mut child, keyboard, screen, terminal, .. } = self;
        screen.end();
        drop((keyboard, terminal));
        exit_of(&mut child.0)
    }

    /// The terminal is as it was.
    pub fn is_as_before(&self) {
        let after = tcgetattr(&self.terminal).unwrap();
        assert_eq!(after.local_modes, self.before.local_modes);
        assert_eq!(after.input_modes, self.before.input_modes);
        assert_eq!(after.output_modes, self.before.output_modes);
    }
}

/// Killed when it goes.
struct Killed(Child);

impl Drop for Killed {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        self.ends.store(true, Ordering::Relaxed);
        if std::thread::panicking() {
            let written = self.written.lock().unwrap();
            eprintln!("the screen, since it was looked at last:\n{written:?}");
        }
    }
}

impl Screen {
    fn of(master: File) -> Self {
        let (written, ends) =
            (Arc::new(Mutex::new(String::new())), Arc::new(AtomicBool::new(false)));
        let listener = std::thread::spawn({
            let (written, ends) = (written.clone(), ends.clone());
            move || listen(master, &written, &ends)
        });
        Screen { written, ends, listener: Some(listener) }
    }

    /// Looks no longer.
    fn end(mut self) {
        self.ends.store(true, Ordering::Relaxed);
        if let Some(listener) = self.listener.take() {
            listener.join().unwrap();
        }
    }
}

fn listen(mut screen: File, written: &Mutex<String>, ends: &AtomicBool) {
    let mut bytes = [0; 4096];
    let patience = Timespec { tv_sec: 0, tv_nsec: 20_000_000 };
    while !ends.load(Ordering::Relaxed) {
        let mut wanted = [PollFd::new(&screen, PollFlags::IN)];
        if poll(&mut wanted, Some(&patience)).unwrap() == 0 {
            continue;
        }
        // An error is the end of all programs on the terminal.
        let Ok(count @ 1..) = screen.read(&mut bytes) else { return };
        let text = String::from_utf8_lossy(&bytes[..count]).into_owned();
        written.lock().unwrap().push_str(&text);
    }
}
