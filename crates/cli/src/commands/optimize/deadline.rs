//! [`Deadline`]: one for all that a command does, however often it begins again.

use std::time::{Duration, Instant};

/// When nothing more is begun.
#[derive(Debug, Clone, Copy)]
pub(super) struct Deadline {
    begun: Instant,
    most: Option<Duration>,
}

impl Deadline {
    /// So much time after that moment; without it there is no end.
    pub(super) fn new(begun: Instant, most: Option<Duration>) -> Self {
        Self { begun, most }
    }

    /// How much time is left; `None`: as much as it takes.
    pub(super) fn left(&self) -> Option<Duration> {
        self.left_at(Instant::now())
    }

    /// Whether nothing more is begun.
    pub(super) fn is_over(&self) -> bool {
        self.left().is_some_and(|left| left.is_zero())
    }

    fn left_at(&self, now: Instant) -> Option<Duration> {
        self.most.map(|most| most.saturating_sub(now.saturating_duration_since(self.begun)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_step_has_what_the_ones_before_it_left() {
        let (begun, second) = (Instant::now(), Duration::from_secs(1));
        let deadline = Deadline::new(begun, Some(5 * second));
        let left = [0, 3, 5, 9].map(|seconds| deadline.left_at(begun + seconds * second));
        assert_eq!(left, [5 * second, 2 * second, Duration::ZERO, Duration::ZERO].map(Some));
        assert!(Deadline::new(begun, Some(Duration::ZERO)).is_over());
        let endless = Deadline::new(begun, None);
        assert!(endless.left_at(begun + 1000 * second).is_none() && !endless.is_over());
    }
}
