//! The options for fetching containers, and the counts of fetches.

use std::collections::HashSet;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};

use larder_format::ids::ContainerId;
use larder_store::container_reader::OpenContainer;
use parking_lot::Mutex;

use super::future_uses::{Pieces, Unit};

/// The part of a job's memory for containers at hand and under way, in twelfths.
const MEMORY_TWELFTHS: usize = 5;

/// The default number of requests ahead: on a store with 30 ms latency more gain nothing
/// (measured).
const PREFETCH: usize = 6;

/// Options of a reading job for fetching containers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FetchOptions {
    /// Requests under way for later needs; 0 allows only requests for present needs.
    pub prefetch: usize,
    /// Bytes of containers at hand and under way; `None` = 5/12 of the job's memory.
    pub cache_memory: Option<usize>,
    /// Bytes of the disk tier, for containers that are needed again when there is no memory for
    /// them; 0 = none. Only reading in stream order needs it.
    pub cache_disk: u64,
    /// Folder for temporary files. They have no names, so nothing stays there in any case.
    pub scratch: PathBuf,
}

impl Default for FetchOptions {
    fn default() -> Self {
        Self { prefetch: PREFETCH, cache_memory: None, cache_disk: 0, scratch: std::env::temp_dir() }
    }
}

impl FetchOptions {
    /// Bytes for containers of a job that has `memory`.
    pub(crate) fn memory(&self, memory: usize) -> usize {
        self.cache_memory.unwrap_or(memory / 12 * MEMORY_TWELFTHS)
    }
}

/// Counts of fetches from data containers.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct FetchReport {
    /// Containers from which any part was read, each counted once.
    pub containers: u64,
    /// Requests for them.
    pub requests: u64,
    /// Bytes of them.
    pub bytes: u64,
    /// Repeated reads of containers or of their pieces.
    pub again: u64,
    /// Frames that were read from the disk tier.
    pub disk_hits: u64,
    /// Bytes of them.
    pub disk_read: u64,
    /// Bytes that were written to the disk tier.
    pub disk_written: u64,
    /// Bytes of contents made from them.
    pub used: u64,
    /// Chunks found through the index because their containers were retired: one hop each.
    pub redirected: u64,
    /// How often the index was asked for such chunks, many at once.
    pub look_ups: u64,
}

impl FetchReport {
    /// Bytes read for each byte of contents. Compression lowers it, unused bytes raise it; 0 when
    /// nothing was read.
    pub fn per_byte(&self) -> f64 {
        if self.used == 0 { 0.0 } else { self.bytes as f64 / self.used as f64 }
    }
}

#[derive(Debug, Default)]
struct Seen {
    containers: HashSet<ContainerId>,
    /// Pieces of containers that are read piecewise.
    units: HashSet<Unit>,
}

/// Counts; shared by threads.
#[derive(Debug, Default)]
pub struct FetchCounters {
    seen: Mutex<Seen>,
    requests: AtomicU64,
    bytes: AtomicU64,
    again: AtomicU64,
    disk_hits: AtomicU64,
    disk_read: AtomicU64,
    disk_written: AtomicU64,
    used: AtomicU64,
}

impl FetchCounters {
    /// A container was read from the store.
    pub fn read(&self, id: ContainerId, container: &OpenContainer) {
        self.read_unit(Pieces::Whole.unit(id, 0), container);
    }

    /// A container, or a piece of it, was read from the store.
    pub(crate) fn read_unit(&self, unit: Unit, container: &OpenContainer) {
        self.requests.fetch_add(u64::from(container.requests), Ordering::Relaxed);
        self.bytes.fetch_add(container.bytes_read, Ordering::Relaxed);
        let mut seen = self.seen.lock();
        seen.containers.insert(unit.container);
        if !seen.units.insert(unit) {
            self.again.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// A frame of this many bytes was read from disk.
    pub(crate) fn disk_hit(&self, bytes: u64) {
        self.disk_hits.fetch_add(1, Ordering::Relaxed);
        self.disk_read.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Counts bytes written to disk.
    pub(crate) fn disk_written(&self, bytes: u64) {
        self.disk_written.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Counts bytes of contents made.
    pub fn used(&self, bytes: u64) {
        self.used.fetch_add(bytes, Ordering::Relaxed);
    }

    /// The counts so far.
    pub(crate) fn report(&self) -> FetchReport {
        let get = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        FetchReport {
            containers: self.seen.lock().containers.len() as u64,
            requests: get(&self.requests),
            bytes: get(&self.bytes),
            again: get(&self.again),
            disk_hits: get(&self.disk_hits),
            disk_read: get(&self.disk_read),
            disk_written: get(&self.disk_written),
            used: get(&self.used),
            redirected: 0,
            look_ups: 0,
        }
    }
}
