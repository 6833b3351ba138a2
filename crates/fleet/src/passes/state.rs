//! How passes are shared, and what other processes did for them.

use std::collections::BTreeSet;
use std::num::NonZeroU32;
use std::time::Duration;

use larder_format::ids::AttemptId;

/// Batches that are away for each process, so that none waits for the next one.
pub(super) const AWAY_EACH: usize = 2;

/// Batches of chunks that a job has for each process, if they are large enough. The last ones come
/// back at different times, so with few of them some processes would have nothing to do.
const BATCHES_EACH: u64 = 8;

/// Uncompressed bytes of a batch at least: each ends with a container that is not full.
const BATCH_MIN: u64 = 16 << 20;

/// How passes are shared.
#[derive(Debug, Clone, Copy)]
pub struct SharedPassOptions {
    /// How many processes are expected to copy, this one among them.
    pub workers: NonZeroU32,
    /// Without a sign of life for so long, the claim of a worker is taken over. At least a second.
    pub claim: Duration,
    /// The longest time after which this process looks for results again.
    pub poll: Duration,
    /// Uncompressed bytes of containers whose chunks make a batch, at most. 64 MiB take some
    /// seconds, and a megabyte of memory while they are away.
    pub batch_bytes: u64,
}

impl SharedPassOptions {
    /// Bytes of a batch of a job, by all its bytes.
    pub(super) fn batch_of(&self, all: u64) -> u64 {
        let each = all / (u64::from(self.workers.get()) * BATCHES_EACH);
        each.max(BATCH_MIN).min(self.batch_bytes)
    }
}

/// What other processes did for passes.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SharedPassReport {
    /// Batches of segments and of chunks that were given away.
    pub tasks: u64,
    /// Batches whose results of other processes count.
    pub tasks_of_others: u64,
    /// Segments of recipes that they read.
    pub segments_of_others: u64,
    /// Chunks that they copied.
    pub chunks_of_others: u64,
    /// Bytes of these, uncompressed.
    pub bytes_of_others: u64,
    /// Processes that did them.
    pub workers: BTreeSet<AttemptId>,
    /// Whether a result was wrong, so that none of other processes counts.
    pub worker_was_wrong: bool,
}

/// What is known of all passes until now.
#[derive(Debug, Default)]
pub(super) struct State {
    pub(super) report: SharedPassReport,
    /// Tasks and segments of the marks of the present pass that others did.
    pub(super) marks: (u64, u64),
}

impl State {
    /// A worker read segments, and the keys count.
    pub(super) fn marked(&mut self, worker: AttemptId, segments: u64) {
        self.marks = (self.marks.0 + 1, self.marks.1 + segments);
        self.report.tasks_of_others += 1;
        self.report.segments_of_others += segments;
        self.report.workers.insert(worker);
    }

    /// The marks of the present pass do not count.
    pub(super) fn forget_marks(&mut self) {
        let (tasks, segments) = std::mem::take(&mut self.marks);
        self.report.tasks_of_others -= tasks;
        self.report.segments_of_others -= segments;
    }

    /// A result was wrong. The pass marks again, too, so that no mark of others counts.
    /// Nothing is shared from now on: neither of this pass, nor of what follows in its round.
    pub(super) fn worker_was_wrong(&mut self) {
        self.forget_marks();
        self.report.worker_was_wrong = true;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_small_job_has_small_batches() {
        let batch = |workers: u32, batch_bytes, all| {
            let workers = NonZeroU32::new(workers).unwrap_or(NonZeroU32::MIN);
            SharedPassOptions { workers, claim: Duration::ZERO, poll: Duration::ZERO, batch_bytes }.batch_of(all)
        };
        assert_eq!(batch(2, 64 << 20, 1 << 40), 64 << 20);
        assert_eq!(batch(2, 64 << 20, 480 << 20), 30 << 20);
        assert_eq!(batch(3, 64 << 20, 480 << 20), 20 << 20);
        assert_eq!(batch(8, 64 << 20, 480 << 20), BATCH_MIN);
        assert_eq!(batch(2, 1 << 20, 480 << 20), 1 << 20);
        assert_eq!(batch(u32::MAX, 64 << 20, 0), BATCH_MIN);
    }
}
