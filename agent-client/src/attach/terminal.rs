//! The terminal in raw mode.
//!
//! Owns: its settings from before, which it gets back however we leave: at the end, in a panic,
//! and for the time of a Ctrl-Z.

use std::{
    io::{self, IsTerminal, Write},
    sync::Once,
};

use crossterm::{
    event::{DisableBracketedPaste, EnableBracketedPaste},
    execute,
    terminal::{disable_raw_mode, enable_raw_mode, is_raw_mode_enabled},
};
use rustix::{
    event::{PollFd, PollFlags, poll},
    io::Errno,
    process::{Signal, kill_current_process_group},
    termios::{self, OptionalActions},
};
use tokio::sync::oneshot;

/// The process's terminal, while it is in raw mode.
pub struct Terminal {
    /// Says when it is gone.
    gone: oneshot::Receiver<()>,
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
        Ok(Terminal { gone: watch() })
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

    /// Gives the terminal back to the shell, and stops us and whoever was started with us, as Ctrl-Z
    /// does. May return a moment before that; [`resume`](Terminal::resume) comes after SIGCONT.
    pub fn suspend(&self) -> io::Result<()> {
        restore();
        Ok(kill_current_process_group(Signal::TSTP)?)
    }

    /// Enters raw mode again. Whoever had the terminal meanwhile has set it for itself, and what we
    /// found at first is still what it gets back.
    pub fn resume(&self) -> io::Result<()> {
        restore();
        raw()
    }

    /// Waits until the terminal is gone. May be dropped while it waits.
    pub async fn gone(&mut self) {
        // Only the end of the thread can come in place of its word.
        let _ = (&mut self.gone).await;
    }
}

/// Waits aside until the terminal hangs up: its window was closed, and no signal may say so. What
/// reads the keys does not tell.
fn watch() -> oneshot::Receiver<()> {
    let (sender, receiver) = oneshot::channel();
    std::thread::spawn(move || {
        let stdin = io::stdin();
        // Asked for nothing, it reports nothing else.
        let mut hung_up = [PollFd::new(&stdin, PollFlags::empty())];
        while poll(&mut hung_up, None) == Err(Errno::INTR) {}
        // We may be about to leave by ourselves.
        let _ = sender.send(());
    });
    receiver
}

impl Drop for Terminal {
    fn drop(&mut self) {
        restore();
    }
}

fn raw() -> io::Result<()> {
    let before = termios::tcgetattr(io::stdin())?;
    enable_raw_mode()?;
    let mut raw = termios::tcgetattr(io::stdin())?;
    // Whatever else writes lines should still begin them at the left.
    raw.output_modes = before.output_modes;
    termios::tcsetattr(io::stdin(), OptionalActions::Now, &raw)?;
    execute!(io::stdout(), EnableBracketedPaste)
}

fn restore() {
    if is_raw_mode_enabled().unwrap_or(true) {
        // The terminal may be gone; then there is nothing to restore.
        let _ = execute!(io::stdout(), DisableBracketedPaste);
        let _ = disable_raw_mode();
    }
}
