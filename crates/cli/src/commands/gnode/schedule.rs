//! When a G-node makes a pass: for what others did, for what the last one left, and now and then. Pure.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use larder_format::lease::Pin;

/// After a pass that failed or left something the next one waits no longer than this, however often that was so: the store may be back.
const RETRY_MAX: Duration = Duration::from_secs(300);

/// Marks and generations of versions, as they were listed. What is in it and was not before is work for a pass; only passes, and people
/// who repair something, take anything out of it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Seen {
    /// Versions that are marked forgotten.
    pub(super) marks: BTreeSet<Pin>,
    /// Generations of versions: the first one is there when a version has come, others when it was rewritten.
    pub(super) generations: BTreeSet<(Pin, u32)>,
}

impl Seen {
    /// This, and generations that a pass made itself.
    pub(super) fn and(mut self, made: impl IntoIterator<Item = (Pin, u32)>) -> Self {
        self.generations.extend(made);
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
    /// The wait after the first pass that failed.
    least: Duration,
    /// When the last pass ended.
    last: Option<Instant>,
    /// How long the next one waits if nothing else asks for it.
    wait: Duration,
    /// How often in a row passes failed or left something.
    left: u32,
    known: Seen,
}

impl Schedule {
    /// Nothing was done yet.
    pub(super) fn new(every: Duration, poll: Duration) -> Self {
        Self { every, least: poll.min(RETRY_MAX), last: None, wait: Duration::ZERO, left: 0, known: Seen::default() }
    }

    /// Whether it is time for a pass.
    pub(super) fn is_due(&self, now: Instant, seen: &Seen) -> bool {
        self.last.is_none_or(|last| now.saturating_duration_since(last) >= self.wait) || seen.has_more_than(&self.known)
    }

    /// A pass did all there was to do. Known is what was seen before it began, and what it made itself: whatever else there is later came
    /// from others, who may have been too late for this pass.
    pub(super) fn done(&mut self, now: Instant, known: Seen) {
        self.known = known;
        (self.last, self.left, self.wait) = (Some(now), 0, self.every);
    }

    /// A pass failed or left something. It is made again in a while, each time in twice that, or when there is more than there was then.
    pub(super) fn left(&mut self, now: Instant, known: Seen) {
        self.known = known;
        let wait = self.least.saturating_mul(1 << self.left.min(16));
        (self.last, self.left) = (Some(now), self.left.saturating_add(1));
        self.wait = wait.min(RETRY_MAX).min(self.every);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use larder_format::ids::{JobId, SeriesKey};

    const SECOND: Duration = Duration::from_secs(1);
    const HOUR: Duration = Duration::from_secs(3600);

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
    fn a_pass_is_made_at_first_and_now_and_then() {
        let (start, nothing) = (Instant::now(), Seen::default());
        let mut schedule = Schedule::new(HOUR, SECOND);
        assert!(schedule.is_due(start, &nothing));
        schedule.done(start + SECOND, nothing.clone());
        assert!(!schedule.is_due(start + HOUR, &nothing));
        assert!(schedule.is_due(start + HOUR + SECOND, &nothing));
    }

    #[test]
    fn what_others_did_asks_for_a_pass_and_what_it_did_itself_does_not() {
        let now = Instant::now();
        let mut schedule = Schedule::new(HOUR, SECOND);
        schedule.done(now, seen(&[1], &[(1, 0), (2, 0), (3, 0)]).and([(pin(3), 1)]));
        // It removed the version that was forgotten and the mark, laid another one out again, and removed what that was.
        for after in [seen(&[], &[(2, 0), (3, 0), (3, 1)]), seen(&[], &[(2, 0), (3, 1)])] {
            assert!(!schedule.is_due(now, &after));
        }
        let others = [
            seen(&[], &[(2, 0), (3, 1), (4, 0)]),
            seen(&[2], &[(2, 0), (3, 1)]),
            seen(&[], &[(2, 0), (2, 1), (3, 1)]),
            // Whatever it was that went for it.
            seen(&[], &[(4, 0)]),
        ];
        for after in others {
            assert!(schedule.is_due(now, &after), "{after:?}");
        }
    }

    #[test]
    fn what_was_left_is_done_after_a_while_that_grows() {
        let (mut now, before) = (Instant::now(), seen(&[], &[(1, 0)]));
        let mut schedule = Schedule::new(HOUR, 30 * SECOND);
        for wait in [30, 60, 120, 240, 300, 300] {
            schedule.left(now, before.clone());
            let wait = wait * SECOND;
            assert!(!schedule.is_due(now + wait - SECOND, &before) && schedule.is_due(now + wait, &before));
            assert!(schedule.is_due(now, &seen(&[1], &[(1, 0)])), "what others do does not wait");
            now += wait;
        }
        for _ in 0..100 {
            schedule.left(now, before.clone());
        }
        assert!(schedule.is_due(now + RETRY_MAX, &before));
        schedule.done(now, before.clone());
        assert!(!schedule.is_due(now + RETRY_MAX, &before));
        schedule.left(now, before.clone());
        assert!(schedule.is_due(now + 30 * SECOND, &before), "and begins small again");
        let mut often = Schedule::new(10 * SECOND, 60 * SECOND);
        often.left(now, before.clone());
        assert!(often.is_due(now + 10 * SECOND, &before), "never later than a pass that left nothing");
    }
}
