//! Whether a command still gets anywhere.
//!
//! Owns: how long it has neither said nor done anything, and what follows from that.
//! Never: looks more often than a few times a minute, but where a stall is a matter of seconds.

use std::time::Duration;

use tokio::time::Instant;

use super::activity::CommandActivity;

/// How often the processes are looked at.
const LOOK: Duration = Duration::from_secs(20);

/// Why a command gets nowhere.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Standstill {
    /// This one of its processes is stopped until it gets a terminal, and nothing else goes on.
    WantsTerminal(String),
    /// Nothing was said or done for so long; perhaps because this one of its processes is stopped.
    Silent(Duration, Option<String>),
}

/// What is known of a command's progress.
pub(super) struct Stall {
    /// How long it may say and do nothing; for ever if none.
    limit: Option<Duration>,
    seen: Option<CommandActivity>,
    /// Since when nothing was said or done.
    quiet_since: Instant,
    next_look: Instant,
}

impl Stall {
    /// A command that begins now.
    pub(super) fn new(limit: Option<Duration>) -> Self {
        let now = Instant::now();
        let mut stall = Stall { limit, seen: None, quiet_since: now, next_look: now };
        stall.plan(now);
        stall
    }

    /// When to look at its processes.
    pub(super) fn due(&self) -> Instant {
        self.next_look
    }

    /// It said something.
    pub(super) fn heard(&mut self) {
        self.quiet_since = Instant::now();
    }

    /// Takes what its processes have come to, and says whether it gets nowhere. Where nobody knows
    /// what they do, it is always getting somewhere.
    pub(super) fn looked(&mut self, activity: Option<CommandActivity>) -> Option<Standstill> {
        let now = Instant::now();
        let is_quiet = activity.is_some() && activity == self.seen;
        let said_nothing = self.quiet_since + self.interval() <= now;
        if !is_quiet {
            self.quiet_since = now;
        }
        self.seen = activity;
        self.plan(now);
        let CommandActivity { wants_terminal, stopped, .. } =
            self.seen.clone().filter(|_| is_quiet)?;
        match (wants_terminal, self.limit) {
            (Some(process), _) if said_nothing => Some(Standstill::WantsTerminal(process)),
            (_, Some(limit)) if self.quiet_since + limit <= now => {
                Some(Standstill::Silent(limit, stopped))
            }
            _ => None,
        }
    }

    fn plan(&mut self, now: Instant) {
        let end = self.limit.map(|limit| self.quiet_since + limit).filter(|end| *end > now);
        let next = now + self.interval();
        self.next_look = end.map_or(next, |end| end.min(next));
    }

    fn interval(&self) -> Duration {
        self.limit.map_or(LOOK, |limit| (limit / 8).min(LOOK))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    const MINUTES: Option<Duration> = Some(Duration::from_secs(600));

    fn at(ticks: u64) -> CommandActivity {
        CommandActivity { ticks, ..CommandActivity::default() }
    }

    /// Plays a command until it stands still or a day has gone by: when, and how often it was
    /// looked at.
    async fn play(
        limit: Option<Duration>,
        mut look: impl FnMut(Duration, &mut Stall) -> Option<CommandActivity>,
    ) -> (Option<Standstill>, u64, u32) {
        let begin = Instant::now();
        let mut stall = Stall::new(limit);
        let mut looks = 0;
        while begin.elapsed() < Duration::from_secs(86_400) {
            tokio::time::sleep_until(stall.due()).await;
            looks += 1;
            let activity = look(begin.elapsed(), &mut stall);
            if let Some(standstill) = stall.looked(activity) {
                return (Some(standstill), begin.elapsed().as_secs(), looks);
            }
        }
        (None, begin.elapsed().as_secs(), looks)
    }

    #[tokio::test(start_paused = true)]
    async fn a_command_that_says_and_does_nothing_stands_still() {
        let (standstill, seconds, looks) = play(MINUTES, |_, _| Some(at(3))).await;
        assert_eq!(standstill, Some(Standstill::Silent(Duration::from_secs(600), None)));
        // The first look only says where it began.
        assert!((600..=640).contains(&seconds), "{seconds} s");
        assert!(looks <= 33, "{looks} looks");
    }

    #[tokio::test(start_paused = true)]
    async fn one_that_says_or_does_something_now_and_then_does_not() {
        let computes = |time: Duration, _: &mut Stall| Some(at(time.as_secs() / 500));
        assert_eq!(play(MINUTES, computes).await.0, None);
        let mut said = 0;
        let speaks = |time: Duration, stall: &mut Stall| {
            if time.as_secs() / 500 > said {
                said = time.as_secs() / 500;
                stall.heard();
            }
            Some(at(3))
        };
        assert_eq!(play(MINUTES, speaks).await.0, None);
        // Nobody knows what it does, or it has a limit of its own.
        assert_eq!(play(MINUTES, |_, _| None).await.0, None);
        assert_eq!(play(None, |_, _| Some(at(3))).await.0, None);
    }

    #[tokio::test(start_paused = true)]
    async fn one_that_wants_a_terminal_does_so_soon_and_whatever_its_limit() {
        let vi = Some("vi".to_owned());
        let wants = CommandActivity { wants_terminal: vi.clone(), stopped: vi, ..at(3) };
        for limit in [MINUTES, None] {
            let (standstill, seconds, _) = play(limit, |_, _| Some(wants.clone())).await;
            assert_eq!(standstill, Some(Standstill::WantsTerminal("vi".into())));
            assert!(seconds <= 60, "{seconds} s");
        }
        // While something else in it goes on, that may wait for its turn.
        let busy = |time: Duration, _: &mut Stall| {
            Some(CommandActivity { ticks: time.as_secs(), ..wants.clone() })
        };
        assert_eq!(play(None, busy).await.0, None);
    }
}
