//! What is piped in.
//!
//! Owns: when stdin is input, and for how long it is waited for. Never: drops what was piped in
//! without a word, or reads without a bound.

use std::{
    io::{self, IsTerminal, Read},
    time::Duration,
};

use rustix::fs::FileType;
use tokio::{
    sync::mpsc,
    time::{Instant, sleep, sleep_until},
};

use crate::{exit::Failure, output::remark};

/// For how long stdin may say nothing before the user hears what we wait for.
const SILENCE: Duration = Duration::from_secs(1);
/// For how long it may give nothing at all when there is something else to say. Whoever starts us
/// from a service or a script may have left a pipe open that nobody will ever write to.
const PATIENCE: Duration = Duration::from_secs(10);
/// How much is read at once.
const PIECE_BYTES: usize = 64 << 10;
/// How many pieces may wait for us; the rest waits in the pipe.
const PIECES_WAITING: usize = 4;

type Pieces = mpsc::Receiver<io::Result<Vec<u8>>>;

/// Whether something can be piped in: not from a terminal, from `/dev/null`, or where stdin was
/// closed, which the standard library makes the same.
pub(super) fn is_piped() -> bool {
    let Ok(stdin) = rustix::fs::fstat(io::stdin()) else { return false };
    let is_device = FileType::from_raw_mode(stdin.st_mode) == FileType::CharacterDevice;
    let is_null = || rustix::fs::stat("/dev/null").is_ok_and(|null| null.st_rdev == stdin.st_rdev);
    !(is_device && (io::stdin().is_terminal() || is_null()))
}

/// All of stdin, however long it takes, without the line ends that every command puts at the end.
///
/// # Errors
/// It cannot be read, is longer, or is no text.
pub(super) async fn whole(max_bytes: usize) -> Result<String, Failure> {
    // Who types sees that we wait.
    let say = |text: &str| {
        if is_piped() {
            remark(text)
        }
    };
    text(read(pieces(), max_bytes, None, say).await?)
}

/// What is piped in beside something else to say; empty if that is nothing.
///
/// # Errors
/// As [`whole`].
pub(super) async fn beside(max_bytes: usize) -> Result<String, Failure> {
    if !is_piped() {
        return Ok(String::new());
    }
    text(read(pieces(), max_bytes, Some(PATIENCE), remark).await?)
}

/// Reads to the end; with `patience`, only if something comes before it is over.
async fn read(
    mut pieces: Pieces,
    max_bytes: usize,
    patience: Option<Duration>,
    say: impl Fn(&str),
) -> Result<Vec<u8>, Failure> {
    let (mut bytes, mut has_said) = (Vec::new(), false);
    let patience = patience.map(|patience| (patience, Instant::now() + patience));
    loop {
        let left = patience.filter(|_| bytes.is_empty());
        let piece = tokio::select! {
            biased;
            piece = pieces.recv() => piece,
            () = sleep(SILENCE), if !has_said => {
                has_said = true;
                say(waiting(&bytes));
                continue;
            }
            patience = over(left) => {
                let seconds = patience.as_secs();
                say(&format!(
                    "agent-client: nothing came from stdin in {seconds} s, so it is left out; \
                     `-` in place of the text waits for it"
                ));
                return Ok(bytes);
            }
        };
        match piece {
            None => return Ok(bytes),
            Some(Ok(piece)) => bytes.extend(piece),
            Some(Err(error)) => return Err(Failure::Usage(format!("cannot read stdin: {error}"))),
        }
        if bytes.len() > max_bytes {
            let most = max_bytes >> 20;
            return Err(Failure::Usage(format!(
                "stdin has more than {most} MiB, which is the most that can be sent"
            )));
        }
    }
}

/// Waits until a patience is over, and says how long it was.
async fn over(patience: Option<(Duration, Instant)>) -> Duration {
    match patience {
        Some((patience, end)) => {
            sleep_until(end).await;
            patience
        }
        None => std::future::pending().await,
    }
}

fn waiting(bytes: &[u8]) -> &'static str {
    match bytes.is_empty() {
        true => "agent-client: waiting for stdin; `</dev/null` says that nothing is piped in",
        false => "agent-client: waiting for the end of stdin",
    }
}

/// Stdin, piece by piece. A thread of its own reads it, which nobody has to wait for at our end.
fn pieces() -> Pieces {
    let (sender, receiver) = mpsc::channel(PIECES_WAITING);
    std::thread::spawn(move || {
        let mut bytes = vec![0; PIECE_BYTES];
        loop {
            let piece = match io::stdin().read(&mut bytes) {
                Ok(0) => return,
                Ok(read) => Ok(bytes[..read].to_vec()),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => Err(error),
            };
            let is_last = piece.is_err();
            if sender.blocking_send(piece).is_err() || is_last {
                return;
            }
        }
    });
    receiver
}

fn text(bytes: Vec<u8>) -> Result<String, Failure> {
    match String::from_utf8(bytes) {
        Ok(text) => Ok(text.trim_end_matches(['\r', '\n']).to_owned()),
        Err(error) => {
            let place = error.utf8_error().valid_up_to();
            Err(Failure::Usage(format!(
                "what is piped in is not UTF-8 (byte {place}), and only text can be; a picture \
                 goes with --image"
            )))
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::sync::Mutex;

    use super::*;

    /// What is written to stdin: so many milliseconds after the piece before, this. Without an end
    /// it stays open.
    struct Story {
        pieces: &'static [(u64, &'static str)],
        ends: bool,
    }

    /// What came of it, the words that were said, and after how many milliseconds it was over.
    async fn told(story: Story, patience: Option<Duration>) -> (String, Vec<String>, u128) {
        let (sender, receiver) = mpsc::channel(1);
        let start = Instant::now();
        let writer = tokio::spawn(async move {
            for (pause, piece) in story.pieces {
                sleep(Duration::from_millis(*pause)).await;
                sender.send(Ok(piece.as_bytes().to_vec())).await.unwrap();
            }
            match story.ends {
                true => drop(sender),
                false => sender.closed().await,
            }
        });
        let said = Mutex::new(Vec::new());
        let say = |text: &str| said.lock().unwrap().push(text.to_owned());
        let bytes = read(receiver, 1 << 20, patience, say).await.unwrap();
        let time = start.elapsed().as_millis();
        writer.abort();
        (text(bytes).unwrap(), said.into_inner().unwrap(), time)
    }

    #[tokio::test(start_paused = true)]
    async fn what_comes_quickly_is_read_without_a_word() {
        let pieces = &[(0, "one"), (900, " two\r\n"), (900, "three\n\n")];
        let (text, said, _) = told(Story { pieces, ends: true }, Some(PATIENCE)).await;
        assert_eq!((text.as_str(), said.len()), ("one two\r\nthree", 0));
        let (text, said, _) = told(Story { pieces: &[], ends: true }, Some(PATIENCE)).await;
        assert_eq!((text.as_str(), said.len()), ("", 0));
    }

    #[tokio::test(start_paused = true)]
    async fn a_silence_is_told_once_and_what_has_begun_is_read_to_its_end() {
        let pieces = &[(9_900, "late"), (3_600_000, " and later"), (60_000, ".")];
        let (text, said, time) = told(Story { pieces, ends: true }, Some(PATIENCE)).await;
        assert_eq!((text.as_str(), time), ("late and later.", 3_669_900));
        assert_eq!(said.len(), 1, "{said:?}");
        assert!(said[0].contains("waiting for stdin;"), "{said:?}");
        let pieces = &[(0, "begun"), (1_100, "")];
        let (_, said, _) = told(Story { pieces, ends: true }, Some(PATIENCE)).await;
        assert_eq!(said, ["agent-client: waiting for the end of stdin"]);
    }

    #[tokio::test(start_paused = true)]
    async fn what_gives_nothing_is_left_with_a_warning_unless_there_is_nothing_else() {
        let open = || Story { pieces: &[], ends: false };
        let (text, said, time) = told(open(), Some(PATIENCE)).await;
        assert_eq!((text.as_str(), time, said.len()), ("", 10_000, 2), "{said:?}");
        assert!(said[1].contains("nothing came from stdin in 10 s"), "{said:?}");
        let forever = tokio::time::timeout(Duration::from_secs(86_400), told(open(), None)).await;
        assert!(forever.is_err());
    }

    #[tokio::test(start_paused = true)]
    async fn reading_has_a_bound() {
        let (sender, receiver) = mpsc::channel(64);
        for _ in 0..33 {
            sender.try_send(Ok(vec![b'x'; 1 << 15])).unwrap();
        }
        let refused = read(receiver, 1 << 20, None, |_| ()).await.unwrap_err();
        assert!(refused.to_string().contains("more than 1 MiB"), "{refused}");
        // It was given up at the first byte too many; the writer is told.
        assert!(sender.is_closed());
    }
}
