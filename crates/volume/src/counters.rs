//! Counters since a store was opened.
//!
//! A counter is one relaxed atomic addition, so it costs nearly nothing. A reader sees each counter
//! at a slightly other moment. dedupv1's evaluation (section 5) reports the same kinds of numbers.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use larder_format::volume_log::Event;

/// A number that threads only raise.
#[derive(Debug, Default)]
pub(crate) struct Count(AtomicU64);

impl Count {
    pub(crate) fn add(&self, by: u64) {
        self.0.fetch_add(by, Ordering::Relaxed);
    }

    pub(crate) fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// A part of the work of commits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Phase {
    /// Looking for the mappings that blocks have, reading blocks in too many pieces, block MACs.
    Mappings,
    /// Cutting, and fingerprints.
    Cutting,
    /// Looking for chunks. Each filter has a time of its own too.
    Asking,
    /// Compressing, sealing and writing new chunks.
    Storing,
    /// Writing the record, and syncing it and the frames.
    Syncing,
    /// Memory tables become runs, and the manifest.
    Publishing,
}

impl Phase {
    /// All parts, in the order of a commit.
    pub const ALL: [Self; 6] =
        [Self::Mappings, Self::Cutting, Self::Asking, Self::Storing, Self::Syncing, Self::Publishing];

    /// A word for it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Mappings => "mappings",
            Self::Cutting => "cutting",
            Self::Asking => "asking",
            Self::Storing => "storing",
            Self::Syncing => "syncing",
            Self::Publishing => "publishing",
        }
    }
}

/// Hits and misses of a cache.
#[derive(Debug, Default)]
pub(crate) struct Looks {
    pub(crate) hits: Count,
    pub(crate) misses: Count,
}

impl Looks {
    pub(crate) fn seen(&self) -> CacheStats {
        CacheStats { hits: self.hits.get(), misses: self.misses.get() }
    }
}

/// Everything that a store counts.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    pub(crate) reads: Count,
    pub(crate) read_bytes: Count,
    pub(crate) writes: Count,
    /// Nanoseconds that writes and discards waited for room.
    pub(crate) waited: Count,
    pub(crate) written_bytes: Count,
    pub(crate) discards: Count,
    pub(crate) discarded_bytes: Count,
    pub(crate) flushes: Count,
    pub(crate) commits: Count,
    pub(crate) blocks: Count,
    pub(crate) unchanged_blocks: Count,
    pub(crate) new_chunks: Count,
    pub(crate) new_bytes: Count,
    pub(crate) sealed_bytes: Count,
    pub(crate) cut_bytes: Count,
    pub(crate) publishes: Count,
    pub(crate) nanos: [Count; Phase::ALL.len()],
}

impl Counters {
    /// Counts one record of the log, from the events of new frames.
    pub(crate) fn committed(&self, events: &[Event]) {
        self.commits.add(1);
        for event in events {
            let Event::Frames(event) = event else { continue };
            self.new_chunks.add(event.chunks.len() as u64);
            self.new_bytes.add(event.frames.iter().map(|frame| u64::from(frame.raw_len)).sum());
            self.sealed_bytes.add(event.frames.iter().map(|frame| u64::from(frame.sealed_len)).sum());
        }
    }

    /// Adds the time until the value is dropped to a part of the work.
    pub(crate) fn time(&self, phase: Phase) -> Timer<'_> {
        Timer { nanos: &self.nanos[phase as usize], start: Instant::now() }
    }

    /// Adds the time until the value is dropped to the waits of writes.
    pub(crate) fn time_wait(&self) -> Timer<'_> {
        Timer { nanos: &self.waited, start: Instant::now() }
    }
}

/// See [`Counters::time`] and [`Counters::time_wait`].
pub(crate) struct Timer<'a> {
    nanos: &'a Count,
    start: Instant,
}

impl Drop for Timer<'_> {
    fn drop(&mut self) {
        self.nanos.add(u64::try_from(self.start.elapsed().as_nanos()).unwrap_or(u64::MAX));
    }
}

/// Hits and misses of a cache since the store was opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct CacheStats {
    /// Found in memory.
    pub hits: u64,
    /// Read from disk.
    pub misses: u64,
}
