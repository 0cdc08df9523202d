//! The token that peers over TCP and WebSocket must show.
//!
//! Owns: the secret, in memory and in its file.
//! Never: shows it by chance. It has no `Display`, and its `Debug` says nothing.

use std::{
    fmt,
    fs::{self, File, OpenOptions},
    io::{self, Read, Write},
    os::unix::fs::{MetadataExt, OpenOptionsExt},
    path::{Path, PathBuf},
};

use crate::local::place::is_ours_or_roots;

const BYTES: usize = 32;

/// 32 random bytes, in hex.
#[derive(Clone)]
pub struct Token {
    // Invariant: `2 * BYTES` hex digits in lower case.
    hex: String,
}

/// The token's file cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum TokenError {
    /// Reading or writing failed.
    #[error("cannot use the token file {}: {source}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// Others can read or change it.
    #[error("the token file {} must be ours alone; run `chmod 600` on it or remove it", .0.display())]
    Open(PathBuf),
    /// It does not hold a token.
    #[error("the token file {} does not hold 64 hex digits; remove it to get a new one", .0.display())]
    Malformed(PathBuf),
}

impl Token {
    /// Reads the token from its file, or makes both.
    ///
    /// # Errors
    /// The file cannot be read or made, others can read it, or it holds something else.
    pub fn at(path: &Path) -> Result<Self, TokenError> {
        let io = |source| TokenError::Io { path: path.to_owned(), source };
        match open(path) {
            Ok(file) => Token::read(file, path),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                Token::make(path).or_else(|error| match error.kind() {
                    // Another daemon was faster; its token is as good.
                    io::ErrorKind::AlreadyExists => Token::read(open(path).map_err(io)?, path),
                    _ => Err(io(error)),
                })
            }
            Err(error) => Err(io(error)),
        }
    }

    /// Reads a token that a daemon has made.
    ///
    /// # Errors
    /// There is no such file, others can read it, or it holds something else.
    pub fn existing(path: &Path) -> Result<Self, TokenError> {
        let file = open(path).map_err(|source| TokenError::Io { path: path.to_owned(), source })?;
        Token::read(file, path)
    }

    /// The token itself, for `initialize` and for nothing else.
    pub fn secret(&self) -> &str {
        &self.hex
    }

    fn read(mut file: File, path: &Path) -> Result<Self, TokenError> {
        let io = |source| TokenError::Io { path: path.to_owned(), source };
        let metadata = file.metadata().map_err(io)?;
        if !metadata.is_file() {
            return Err(TokenError::Malformed(path.to_owned()));
        }
        let is_ours = metadata.uid() == rustix::process::geteuid().as_raw();
        // A symlink that somebody else has put there could name any file of ours.
        let link = fs::symlink_metadata(path).map_err(io)?;
        if !is_ours || !is_ours_or_roots(link.uid()) || metadata.mode() & 0o077 != 0 {
            return Err(TokenError::Open(path.to_owned()));
        }
        let mut text = String::new();
        let read = Read::by_ref(&mut file).take(1024).read_to_string(&mut text);
        read.map_err(|_| TokenError::Malformed(path.to_owned()))?;
        Token::from_hex(text.trim()).ok_or_else(|| TokenError::Malformed(path.to_owned()))
    }

    /// Makes the file whole or not at all, so that nobody reads half a token.
    fn make(path: &Path) -> io::Result<Self> {
        let mut bytes = [0; BYTES];
        File::open("/dev/urandom")?.read_exact(&mut bytes)?;
        let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        let draft = path.with_extension(format!("{}.tmp", std::process::id()));
        let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&draft)?;
        let made = file
            .write_all(format!("{hex}\n").as_bytes())
            .and_then(|()| file.sync_all())
            .and_then(|()| fs::hard_link(&draft, path));
        fs::remove_file(&draft)?;
        made.map(|()| Token { hex })
    }

    fn from_hex(hex: &str) -> Option<Self> {
        let is_hex = hex.len() == 2 * BYTES && hex.bytes().all(|digit| digit.is_ascii_hexdigit());
        is_hex.then(|| Token { hex: hex.to_ascii_lowercase() })
    }

    /// Whether this is the token. Takes the same time for every text of the right length.
    pub fn is(&self, shown: &str) -> bool {
        let shown = shown.as_bytes();
        let differences = self.hex.bytes().zip(shown.iter().chain(std::iter::repeat(&0)));
        let difference = differences.fold(0, |sum, (mine, theirs)| {
            // Kept from being optimised into an early return.
            std::hint::black_box(sum | (mine ^ theirs.to_ascii_lowercase()))
        });
        difference == 0 && shown.len() == self.hex.len()
    }
}

/// Opens the file without waiting for anybody, should it be a pipe.
fn open(path: &Path) -> io::Result<File> {
    let flags = rustix::fs::OFlags::NONBLOCK.bits() as i32;
    OpenOptions::new().read(true).custom_flags(flags).open(path)
}

impl fmt::Debug for Token {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("Token(…)")
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn what_is_no_file_or_is_named_by_somebody_s_link_holds_no_token() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("token");
        let mode = rustix::fs::Mode::from_raw_mode(0o600);
        let kind = rustix::fs::FileType::Fifo;
        rustix::fs::mknodat(rustix::fs::CWD, &path, kind, mode, 0).unwrap();
        assert!(matches!(Token::at(&path), Err(TokenError::Malformed(_))));
        fs::remove_file(&path).unwrap();
        let target = directory.path().join("real");
        let made = Token::at(&target).unwrap();
        std::os::unix::fs::symlink(&target, &path).unwrap();
        assert!(Token::at(&path).unwrap().is(made.secret()));
        // Only the superuser can play a stranger.
        if std::os::unix::fs::lchown(&path, Some(65_534), None).is_ok() {
            assert!(matches!(Token::at(&path), Err(TokenError::Open(_))));
        }
    }

    #[test]
    fn a_token_is_made_once_and_is_ours_alone() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("token");
        let token = Token::at(&path).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o600);
        assert!(Token::at(&path).unwrap().is(&token.hex));
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 1);
        assert_eq!(format!("{token:?}"), "Token(…)");
    }

    #[test]
    fn only_the_whole_token_is_the_token() {
        let token = Token::from_hex(&"0a".repeat(32)).unwrap();
        assert!(token.is(&"0a".repeat(32)));
        assert!(token.is(&"0A".repeat(32)));
        for wrong in ["", "0a", &"0a".repeat(33), &"0b".repeat(32), &"\0".repeat(64)] {
            assert!(!token.is(wrong), "{wrong:?}");
        }
    }

    #[test]
    fn a_file_that_others_can_read_or_that_holds_no_token_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("token");
        fs::write(&path, "0a".repeat(32)).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
        assert!(matches!(Token::at(&path), Err(TokenError::Open(_))));
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
        assert!(Token::at(&path).is_ok());
        fs::write(&path, "secret").unwrap();
        assert!(matches!(Token::at(&path), Err(TokenError::Malformed(_))));
    }
}
