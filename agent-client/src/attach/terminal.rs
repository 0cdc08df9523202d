//! The terminal in raw mode.
//!
//! Owns: its settings from before, which it gets back however we leave: at the end, in a panic,
//! and for the time of a Ctrl-Z.

use std::{
    io::{self, IsTerminal, Write},
    sync::{Mutex, Once, PoisonError},
};

use rustix::{
    process::{Signal, getpid, kill_process},
    termios::{self, OptionalActions, Termios},
};
use tokio::sync::mpsc;

/// How much is read at once.
const READ_BYTES: usize = 4096;
/// How many reads may wait for us; the rest waits in the terminal.
const READS_WAITING: usize = 16;

const PASTE_MARKS_ON: &[u8] = b"\x1b[?2004h";
const PASTE_MARKS_OFF: &[u8] = b"\x1b[?2004l";

/// What is to be put back. Outside of [`Terminal`], since a panic does not know it.
static BEFORE: Mutex<Option<Termios>> = Mutex::new(None);

/// The process's terminal, while it is in raw mode.
pub struct Terminal {
    _private: (),
}

impl Terminal {
    /// Whether there is one, for input and for output.
    pub fn is_there() -> bool {
        io::stdin().is_terminal() && io::stdout().is_terminal()
    }

    /// Enters raw mode.
    pub fn enter() -> io::Result<Self> {
        static RESTORE_IN_A_PANIC: Once = Once::new();
        RESTORE_IN_A_PANIC.call_once(|| {
            let report = std::panic::take_hook();
            std::panic::set_hook(Box::new(move |panic| {
                restore();
                report(panic);
            }));
        });
        raw()?;
        Ok(Terminal { _private: () })
    }

    /// Columns and rows.
    pub fn size(&self) -> (usize, usize) {
        let size = termios::tcgetwinsize(io::stdout());
        let size = size.map(|size| (usize::from(size.ws_col), usize::from(size.ws_row)));
        // Zero is what a terminal without a size says.
        size.ok().filter(|size| size.0 > 0 && size.1 > 0).unwrap_or((80, 24))
    }

    /// Writes to it.
    pub fn write(&self, text: &str) -> io::Result<()> {
        let mut stdout = io::stdout().lock();
        stdout.write_all(text.as_bytes())?;
        stdout.flush()
    }

    /// Gives the terminal back to the shell until the user wants us again.
    pub fn suspend(&self) -> io::Result<()> {
        restore();
        kill_process(getpid(), Signal::TSTP)?;
        raw()
    }

    /// What is typed. A thread waits for it: there is no other way that works for every terminal and
    /// leaves the shell's settings of it alone.
    pub fn input(&self) -> mpsc::Receiver<Vec<u8>> {
        let (sender, receiver) = mpsc::channel(READS_WAITING);
        std::thread::spawn(move || {
            let mut bytes = [0; READ_BYTES];
            loop {
                match rustix::io::read(io::stdin(), &mut bytes) {
                    Ok(0) => return,
                    Ok(read) => {
                        if sender.blocking_send(bytes[..read].to_vec()).is_err() {
                            return;
                        }
                    }
                    Err(rustix::io::Errno::INTR) => {}
                    Err(_) => return,
                }
            }
        });
        receiver
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        restore();
    }
}

fn raw() -> io::Result<()> {
    let before = termios::tcgetattr(io::stdin())?;
    let mut raw = before.clone();
    raw.make_raw();
    // Whatever else writes lines should still begin them at the left.
    raw.output_modes = before.output_modes;
    termios::tcsetattr(io::stdin(), OptionalActions::Flush, &raw)?;
    *BEFORE.lock().unwrap_or_else(PoisonError::into_inner) = Some(before);
    let mut stdout = io::stdout().lock();
    stdout.write_all(PASTE_MARKS_ON)?;
    stdout.flush()
}

fn restore() {
    let before = BEFORE.lock().unwrap_or_else(PoisonError::into_inner).take();
    if let Some(before) = before {
        // The terminal may be gone; then there is nothing to restore.
        let _ = io::stdout().write_all(PASTE_MARKS_OFF);
        let _ = io::stdout().flush();
        let _ = termios::tcsetattr(io::stdin(), OptionalActions::Drain, &before);
    }
}
