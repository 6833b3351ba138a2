//! When a daemon runs a round: after others changed something, after an unfinished round, and at
//! intervals. Pure.
//!
//! Times are milliseconds since the epoch.

use std::collections::BTreeSet;
use std::time::Duration;

use larder_format::lease::Pin;

/// The longest wait after a failed or unfinished round, however many failed before it: the store
/// may be back.
const RETRY_MAX: Duration = Duration::from_secs(300);

/// Marks and generations of versions, as they were listed. New ones are work for a round. Only
/// rounds and repairs remove any.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Seen {
    /// Versions that are marked forgotten.
    pub(super) marks: BTreeSet<Pin>,
    /// Generations of versions. The first one exists when a version was added, others when it was
    /// rewritten.
    pub(super) generations: BTreeSet<(Pin, u32)>,
}

impl Seen {
    /// This, and generations that a round created itself.
    pub(super) fn and(mut self, created: impl IntoIterator<Item = (Pin, u32)>) -> Self {
        self.generations.extend(created);
        self
    }

    fn has_more_than(&self, known: &Self) -> bool {
        !self.marks.is_subset(&known.marks) || !self.generations.is_subset(&known.generations)
    }
}

/// See the module header.
#[derive(Debug)]
pub(super) struct Schedule {
    every: Duration,
    /// The wait after the first round that failed or left something.
    least: Duration,
    /// When the last round ended.
    last_ms: Option<u64>,
    /// How long the next one waits if nothing else asks for it.
    wait: Duration,
    /// How many rounds in a row failed or left something.
    left: u32,
    known: Seen,
}

impl Schedule {
    /// No round has run yet.
    pub(super) fn new(every: Duration, poll: Duration) -> Self {
        Self { every, least: poll.min(RETRY_MAX), last_ms: None, wait: Duration::ZERO, left: 0, known: Seen::default() }
    }

    /// Whether it is time for a round. It is if the clock was set back, because the age of the last
    /// round is then unknown.
    pub(super) fn is_due(&self, now_ms: u64, seen: &Seen) -> bool {
        let passed = |last_ms: u64| now_ms.checked_sub(last_ms).map(Duration::from_millis);
        let is_time = self.last_ms.and_then(passed).is_none_or(|passed| passed >= self.wait);
        is_time || seen.has_more_than(&self.known)
    }

    /// A round finished all its work. `known` is what it saw before it started and created itself.
    /// Everything else was created by others, perhaps too late for this round.
    pub(super) fn done(&mut self, now_ms: u64, known: Seen) {
        self.known = known;
        (self.last_ms, self.left, self.wait) = (Some(now_ms), 0, self.every);
    }

    /// A round failed or left something. It is repeated when there is more than there was then, or
    /// after a wait, which doubles each time.
    pub(super) fn left(&mut self, now_ms: u64, known: Seen) {
        self.known = known;
        let wait = self.least.saturating_mul(1 << self.left.min(16));
        (self.last_ms, self.left) = (Some(now_ms), self.left.saturating_add(1));
        self.wait = wait.min(RETRY_MAX).min(self.every);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use larder_format::ids::{JobId, SeriesKey};

    const SECOND: Duration = Duration::from_secs(1);
    const HOUR: Duration = Duration::from_secs(3600);
    const HOUR_MS: u64 = 3_600_000;
    const START_MS: u64 = 4_000_000_000_000;

    fn pin(number: u8) -> Pin {
        Pin { series: SeriesKey([1; 16]), job: JobId([number; 16]) }
    }

    fn seen(marks: &[u8], generations: &[(u8, u32)]) -> Seen {
        Seen {
            marks: marks.iter().map(|number| pin(*number)).collect(),
            generations: generations.iter().map(|(number, generation)| (pin(*number), *generation)).collect(),
        }
    }

    #[test]
    fn a_round_runs_first_and_then_after_every_interval() {
        let nothing = Seen::default();
        let mut schedule = Schedule::new(HOUR, SECOND);
        assert!(schedule.is_due(START_MS, &nothing));
        schedule.done(START_MS + 1000, nothing.clone());
        assert!(!schedule.is_due(START_MS + 1000 + HOUR_MS - 1, &nothing));
        assert!(schedule.is_due(START_MS + 1000 + HOUR_MS, &nothing));
    }

    #[test]
    fn a_clock_that_was_set_back_delays_nothing() {
        let nothing = Seen::default();
        let mut schedule = Schedule::new(HOUR, SECOND);
        schedule.done(START_MS, nothing.clone());
        assert!(!schedule.is_due(START_MS, &nothing) && schedule.is_due(START_MS - 1, &nothing));
        schedule.done(START_MS - 1, nothing.clone());
        assert!(!schedule.is_due(START_MS, &nothing));
    }

    #[test]
    fn changes_by_others_ask_for_a_round_and_own_changes_do_not() {
        let mut schedule = Schedule::new(HOUR, SECOND);
        schedule.done(START_MS, seen(&[1], &[(1, 0), (2, 0), (3, 0)]).and([(pin(3), 1)]));
        // It deleted the forgotten version and its mark, rewrote another one, and deleted that
        // one's old generation.
        for after in [seen(&[], &[(2, 0), (3, 0), (3, 1)]), seen(&[], &[(2, 0), (3, 1)])] {
            assert!(!schedule.is_due(START_MS, &after));
        }
        let others = [
            seen(&[], &[(2, 0), (3, 1), (4, 0)]),
            seen(&[2], &[(2, 0), (3, 1)]),
            seen(&[], &[(2, 0), (2, 1), (3, 1)]),
            // One came, and others went.
            seen(&[], &[(4, 0)]),
        ];
        for after in others {
            assert!(schedule.is_due(START_MS, &after), "{after:?}");
        }
    }

    #[test]
    fn an_unfinished_round_is_repeated_after_a_wait_that_doubles() {
        let (mut now_ms, before) = (START_MS, seen(&[], &[(1, 0)]));
        let mut schedule = Schedule::new(HOUR, 30 * SECOND);
        for seconds in [30, 60, 120, 240, 300, 300] {
            schedule.left(now_ms, before.clone());
            let due_ms = now_ms + seconds * 1000;
            assert!(!schedule.is_due(due_ms - 1, &before) && schedule.is_due(due_ms, &before), "{seconds}");
            assert!(schedule.is_due(now_ms, &seen(&[1], &[(1, 0)])), "changes by others do not wait");
            now_ms = due_ms;
        }
        let retry_max_ms = 300_000;
        for _ in 0..100 {
            schedule.left(now_ms, before.clone());
        }
        assert!(schedule.is_due(now_ms + retry_max_ms, &before));
        schedule.done(now_ms, before.clone());
        assert!(!schedule.is_due(now_ms + retry_max_ms, &before));
        schedule.left(now_ms, before.clone());
        assert!(schedule.is_due(now_ms + 30_000, &before), "the wait starts small again");
        let mut often = Schedule::new(10 * SECOND, 60 * SECOND);
        often.left(now_ms, before.clone());
        assert!(often.is_due(now_ms + 10_000, &before), "never later than a round that left nothing");
    }
}
