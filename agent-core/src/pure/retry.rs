//! Whether a failed model request is sent again, and when.
//!
//! Owns: which failures pass and how long to wait (C5.9). Pure: chance is an argument.

use std::time::Duration;

use crate::data::outcome::{ModelError, ModelErrorKind};

/// How often and how patiently requests are sent again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RetryPolicy {
    /// How many times a request is repeated at most; 0 for never.
    pub max_retries: u32,
    /// The wait before the first repetition, without jitter; it doubles each time.
    pub base_delay: Duration,
    /// The longest wait allowed.
    pub max_delay: Duration,
}

impl Default for RetryPolicy {
    fn default() -> Self {
        RetryPolicy {
            max_retries: 3,
            base_delay: Duration::from_secs(1),
            max_delay: Duration::from_secs(30),
        }
    }
}

/// What to do about a failed request.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum RetryDecision {
    /// Send it again after this wait.
    Again(Duration),
    /// Give up, with this message.
    GiveUp(String),
}

impl RetryPolicy {
    /// Decides about a failure before any output, after `retries` repetitions. An answer with
    /// nothing in it is asked for again once at most: a model that has nothing to say will
    /// say so again. Its `retries` count such answers alone.
    ///
    /// `chance` in `0.0..1.0` spreads the waits over the upper half of the back-off, so that many
    /// clients of one provider do not come back together.
    pub(crate) fn decide(&self, error: &ModelError, retries: u32, chance: f64) -> RetryDecision {
        if !passes(error.kind) {
            return RetryDecision::GiveUp(error.message.clone());
        }
        if let Some(asked) = error.retry_after.filter(|asked| *asked > self.max_delay) {
            return RetryDecision::GiveUp(format!(
                "{}; the provider asks to wait {} s, which is longer than the {} s allowed here: \
                 try again after that",
                error.message.trim_end_matches('.'),
                asked.as_secs_f64().ceil(),
                self.max_delay.as_secs_f64(),
            ));
        }
        let most = match error.kind {
            ModelErrorKind::Empty => self.max_retries.min(1),
            _ => self.max_retries,
        };
        if retries >= most {
            return RetryDecision::GiveUp(match retries {
                0 => error.message.clone(),
                1 => format!("{} (gave up after 1 retry)", error.message),
                _ => format!("{} (gave up after {retries} retries)", error.message),
            });
        }
        let back_off = self.base_delay.saturating_mul(1 << retries.min(20)).min(self.max_delay);
        let spread = back_off.mul_f64(0.5 + chance.clamp(0.0, 1.0) / 2.0);
        RetryDecision::Again(error.retry_after.unwrap_or(spread))
    }
}

/// Whether a failure of this kind may be gone a moment later.
fn passes(kind: ModelErrorKind) -> bool {
    match kind {
        ModelErrorKind::Connection | ModelErrorKind::Truncated | ModelErrorKind::Empty => true,
        ModelErrorKind::Status(status) => {
            matches!(status, 408 | 409 | 429) || (500..600).contains(&status)
        }
        ModelErrorKind::ContextOverflow
        | ModelErrorKind::Malformed
        | ModelErrorKind::Stalled
        | ModelErrorKind::TooLong
        | ModelErrorKind::Unsupported
        | ModelErrorKind::Provider
        | ModelErrorKind::Panicked => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Kind, `Retry-After` in seconds, retries so far; then the delay in milliseconds or the end.
    const CASES: &[(ModelErrorKind, Option<u64>, u32, &str)] = &[
        (ModelErrorKind::Connection, None, 0, "750"),
        (ModelErrorKind::Connection, None, 1, "1500"),
        (ModelErrorKind::Connection, None, 2, "3000"),
        (ModelErrorKind::Connection, None, 3, "E (gave up after 3 retries)"),
        (ModelErrorKind::Truncated, None, 0, "750"),
        (ModelErrorKind::Status(408), None, 0, "750"),
        (ModelErrorKind::Status(409), None, 0, "750"),
        (ModelErrorKind::Status(429), None, 0, "750"),
        (ModelErrorKind::Status(429), Some(7), 0, "7000"),
        (ModelErrorKind::Status(429), Some(0), 0, "0"),
        (
            ModelErrorKind::Status(429),
            Some(31),
            0,
            "E; the provider asks to wait 31 s, which is longer than the 30 s allowed here: try \
             again after that",
        ),
        (ModelErrorKind::Status(500), None, 0, "750"),
        (ModelErrorKind::Status(529), None, 0, "750"),
        (ModelErrorKind::Status(400), None, 0, "E"),
        (ModelErrorKind::Status(401), Some(1), 0, "E"),
        (ModelErrorKind::Status(404), None, 0, "E"),
        (ModelErrorKind::ContextOverflow, None, 0, "E"),
        (ModelErrorKind::Malformed, None, 0, "E"),
        (ModelErrorKind::Stalled, None, 0, "E"),
        (ModelErrorKind::TooLong, None, 0, "E"),
        (ModelErrorKind::Empty, None, 0, "750"),
        (ModelErrorKind::Empty, None, 1, "E (gave up after 1 retry)"),
        (ModelErrorKind::Unsupported, None, 0, "E"),
        (ModelErrorKind::Provider, None, 0, "E"),
        (ModelErrorKind::Panicked, None, 0, "E"),
    ];

    #[test]
    fn only_what_passes_is_sent_again() {
        for (kind, retry_after, retries, expected) in CASES {
            let mut error = ModelError::new(*kind, "E");
            error.retry_after = retry_after.map(Duration::from_secs);
            let story = match RetryPolicy::default().decide(&error, *retries, 0.5) {
                RetryDecision::Again(delay) => delay.as_millis().to_string(),
                RetryDecision::GiveUp(message) => message,
            };
            assert_eq!(story, *expected, "{kind:?} {retry_after:?} {retries}");
        }
    }

    #[test]
    fn a_wait_is_between_half_the_back_off_and_all_of_it() {
        let error = ModelError::new(ModelErrorKind::Connection, "E");
        let policy = RetryPolicy { max_retries: 100, ..RetryPolicy::default() };
        for (retries, chance, expected) in [(0, 0.0, 500), (0, 1.0, 1000), (99, 1.0, 30_000)] {
            let delay = Duration::from_millis(expected);
            assert_eq!(policy.decide(&error, retries, chance), RetryDecision::Again(delay));
        }
    }
}
