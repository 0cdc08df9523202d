//! Which pictures of a transcript go into a request.
//!
//! Owns: what every provider takes of them together; with more, each later request would fail. Pure.
//! Never: leaves one of the newest message out while older ones could be. What is left out stays
//! out, so that longer transcripts begin with what shorter ones gave.

use std::collections::VecDeque;

use agent_core::{Block, Transcript};

/// The most pictures of one request, in bytes of base64 together: requests have 32 MB, and one
/// message may have 28 of them in pictures.
const MAX_TOGETHER: usize = 28_000_000;
/// The most pictures of one request: what Anthropic takes.
const MAX_COUNT: usize = 100;

/// Stands where a picture was that this model cannot see.
pub(super) const UNSEEN: &str = "(a picture, left out since this model takes none)";
/// Stands where a picture was that is too large for this model.
pub(super) const TOO_LARGE: &str = "(a picture, left out since it is too large for this model)";
/// Stands where an old picture was.
const TOO_MANY: &str =
    "(a picture, left out since a request cannot have all pictures of the conversation)";

/// The pictures of one transcript, oldest first.
pub(super) struct Pictures {
    /// The largest that the model takes, in bytes of base64; 0 if it takes none.
    largest: usize,
    /// How many of those that it takes are still to be left out.
    left_out: usize,
}

impl Pictures {
    pub(super) fn of(messages: &Transcript, largest: usize) -> Self {
        let size = |block: &Block| match block {
            Block::Image { data, .. } if data.len() <= largest => Some(data.len()),
            _ => None,
        };
        let sizes = messages.iter().map(|message| message.content().iter().filter_map(size));
        Pictures { largest, left_out: left_out(sizes) }
    }

    /// Whether the next picture is sent.
    ///
    /// # Errors
    /// What stands in its place.
    pub(super) fn next(&mut self, data: &str) -> Result<(), &'static str> {
        if self.largest == 0 {
            return Err(UNSEEN);
        }
        if data.len() > self.largest {
            return Err(TOO_LARGE);
        }
        if self.left_out > 0 {
            self.left_out -= 1;
            return Err(TOO_MANY);
        }
        Ok(())
    }
}

/// How many pictures are left out, the oldest, given the sizes of each message's.
fn left_out(messages: impl Iterator<Item = impl Iterator<Item = usize>>) -> usize {
    let is_over = |part: usize, count: usize, bytes: usize| {
        count > MAX_COUNT / part || bytes > MAX_TOGETHER / part
    };
    let mut left_out = 0;
    // Those that are not left out so far: their message and their bytes.
    let (mut kept, mut bytes) = (VecDeque::new(), 0);
    for (newest, sizes) in messages.enumerate() {
        let before = kept.len();
        kept.extend(sizes.map(|size| (newest, size)).inspect(|(_, size)| bytes += size));
        if before == kept.len() || !is_over(1, kept.len(), bytes) {
            continue;
        }
        // Half of them, and not only what must be: a server's cache ends where this begins.
        while let Some((message, size)) = kept.front().copied()
            && is_over(if message < newest { 2 } else { 1 }, kept.len(), bytes)
        {
            kept.pop_front();
            bytes -= size;
            left_out += 1;
        }
    }
    left_out
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Of messages that are lists of pictures, in millions of bytes, what becomes of each.
    fn story(messages: &[&[usize]]) -> String {
        let mut left_out =
            left_out(messages.iter().map(|of| of.iter().map(|size| size * 1_000_000)));
        let mut told = |_: &usize| {
            let is_sent = left_out == 0;
            left_out = left_out.saturating_sub(1);
            if is_sent { '+' } else { '-' }
        };
        let told = messages.iter().map(|sizes| sizes.iter().map(&mut told).collect::<String>());
        told.collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn the_oldest_are_left_out_when_a_request_cannot_have_all() {
        assert_eq!(story(&[&[5; 5], &[], &[3]]), "+++++  +");
        assert_eq!(story(&[&[5; 5], &[3], &[1]]), "---++ + +", "half of it is given up at once");
        assert_eq!(story(&[&[1; 9], &[1; 9], &[1; 9], &[2]]), "--------- ------+++ +++++++++ +");
        assert_eq!(story(&[&[5], &[5, 5, 5, 5, 5, 3]]), "- ++++++", "the newest message has all");
        assert_eq!(story(&[&[1], &[5; 7]]), "- --+++++", "but not more than there can be");
        let many = format!("{}{} {}", "-".repeat(51), "+".repeat(39), "+".repeat(11));
        assert_eq!(story(&[&[0; 90], &[0; 11]]), many);
    }

    #[test]
    fn what_is_left_out_once_stays_out() {
        let mut messages: Vec<&[usize]> = Vec::new();
        let mut before = String::new();
        for _ in 0..40 {
            messages.push(&[4]);
            let now = story(&messages);
            let returns = before.chars().zip(now.chars()).any(|pair| pair == ('-', '+'));
            assert!(!returns, "{before} became {now}");
            before = now;
        }
        assert!(before.starts_with("- - -") && before.ends_with("+ + +"), "{before}");
    }
}
