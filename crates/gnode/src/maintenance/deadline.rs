//! [`Deadline`]: one for the whole round, however often a step is repeated.

use std::time::Duration;

use larder_job::Clock;

/// The moment after which nothing more starts.
#[derive(Clone, Copy)]
pub(super) struct Deadline<'a> {
    clock: &'a dyn Clock,
    started_ms: u64,
    most: Option<Duration>,
}

impl<'a> Deadline<'a> {
    /// That much time after a moment in milliseconds since the epoch; `None`: there is no end.
    pub(super) fn new(clock: &'a dyn Clock, started_ms: u64, most: Option<Duration>) -> Self {
        Self { clock, started_ms, most }
    }

    /// How much time is left; `None`: as much as it takes.
    pub(super) fn left(&self) -> Option<Duration> {
        let most = self.most?;
        let passed = self.clock.now_ms().saturating_sub(self.started_ms);
        Some(most.saturating_sub(Duration::from_millis(passed)))
    }

    /// Whether nothing more starts.
    pub(super) fn is_over(&self) -> bool {
        self.left().is_some_and(|left| left.is_zero())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A clock that stands still.
    struct At(u64);

    impl Clock for At {
        fn now_ms(&self) -> u64 {
            self.0
        }
    }

    #[test]
    fn every_step_has_the_time_that_the_steps_before_left() {
        let left = |now_ms, most| Deadline::new(&At(now_ms), 1000, most).left();
        let most = Some(Duration::from_secs(5));
        let all = [1000, 4000, 6000, 10_000].map(|now_ms| left(now_ms, most));
        assert_eq!(all, [5, 2, 0, 0].map(|seconds| Some(Duration::from_secs(seconds))));
        // The clock was set back.
        assert_eq!(left(0, most), most);
        assert_eq!(left(1_000_000, None), None);
    }

    #[test]
    fn a_deadline_is_over_when_no_time_is_left() {
        let is_over = |now_ms, most| Deadline::new(&At(now_ms), 0, most).is_over();
        assert!(is_over(0, Some(Duration::ZERO)) && is_over(10, Some(Duration::from_millis(10))));
        assert!(!is_over(9, Some(Duration::from_millis(10))) && !is_over(u64::MAX, None));
    }
}
