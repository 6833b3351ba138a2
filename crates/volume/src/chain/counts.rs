//! What each filter was asked and answered, for statistics (dedupv1, figures 4 and 5).

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use larder_dedup::chain::Verdict;

use super::FilterKind;

/// Questions to a filter and its answers since the store was opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FilterCounts {
    /// Its name, as `--filters` has it.
    pub name: &'static str,
    /// Chunks, or whole blocks for `mac`.
    pub asked: u64,
    /// Stored, for certain.
    pub existing: u64,
    /// Stored, by the fingerprint.
    pub strong: u64,
    /// Not known.
    pub weak: u64,
    /// Not stored.
    pub non_existing: u64,
    /// Time in the filter in nanoseconds, waiting for the disk included.
    pub nanos: u64,
}

/// The kind of a verdict.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Existing,
    Strong,
    Weak,
    NonExisting,
}

impl Kind {
    pub(super) fn of<A>(verdict: &Verdict<A>) -> Self {
        match verdict {
            Verdict::Existing(_) => Self::Existing,
            Verdict::StrongMaybe(_) => Self::Strong,
            Verdict::WeakMaybe => Self::Weak,
            Verdict::NonExisting => Self::NonExisting,
        }
    }
}

/// The counters of a filter. Threads share it.
pub(crate) struct Counter {
    pub(crate) kind: FilterKind,
    asked: AtomicU64,
    /// By [`Kind`].
    verdicts: [AtomicU64; 4],
    nanos: AtomicU64,
}

impl Counter {
    pub(super) fn new(kind: FilterKind) -> Self {
        Self { kind, asked: AtomicU64::new(0), verdicts: Default::default(), nanos: AtomicU64::new(0) }
    }

    /// Measures `ask`, which answers `asked` questions.
    pub(crate) fn measured<T>(&self, asked: usize, ask: impl FnOnce() -> T) -> T {
        let begin = Instant::now();
        let answered = ask();
        self.nanos.fetch_add(begin.elapsed().as_nanos() as u64, Ordering::Relaxed);
        self.asked.fetch_add(asked as u64, Ordering::Relaxed);
        answered
    }

    /// Notes verdicts.
    pub(crate) fn note(&self, verdicts: impl Iterator<Item = Kind>) {
        let mut counts = [0u64; 4];
        verdicts.for_each(|kind| counts[kind as usize] += 1);
        for (total, count) in self.verdicts.iter().zip(counts).filter(|(_, count)| *count > 0) {
            total.fetch_add(count, Ordering::Relaxed);
        }
    }

    pub(crate) fn counts(&self) -> FilterCounts {
        let [existing, strong, weak, non_existing] = [0, 1, 2, 3].map(|at| self.verdicts[at].load(Ordering::Relaxed));
        FilterCounts {
            name: self.kind.name(),
            asked: self.asked.load(Ordering::Relaxed),
            existing,
            strong,
            weak,
            non_existing,
            nanos: self.nanos.load(Ordering::Relaxed),
        }
    }
}
