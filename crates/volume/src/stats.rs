//! What counters and tables say of a store at one moment.

mod usage;

use larder_format::page_run::VolumeTable;

use crate::counters::{CacheStats, Phase};
use crate::store::Store;

pub use usage::{StoreUsage, VolumeUsage};

/// The runs of one table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct TableStats {
    /// Runs on disk.
    pub runs: u64,
    /// Their records. A key may be in several runs.
    pub records: u64,
    /// Bytes of their files.
    pub bytes: u64,
}

/// A store at one moment. Numbers of requests and commits count since it was opened.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct StoreStats {
    /// Requests of clients, and their bytes.
    pub reads: u64,
    /// Bytes that clients read.
    pub read_bytes: u64,
    /// Requests to write.
    pub writes: u64,
    /// Bytes that clients wrote.
    pub written_bytes: u64,
    /// Nanoseconds that writes and discards waited for room in the write buffer, all together.
    pub waited_nanos: u64,
    /// Requests to discard or to write zeros.
    pub discards: u64,
    /// Their bytes.
    pub discarded_bytes: u64,
    /// Requests to make everything durable.
    pub flushes: u64,
    /// Commits that wrote a record of the log.
    pub commits: u64,
    /// Blocks that commits looked at.
    pub blocks: u64,
    /// Of these, whole blocks that had this content before.
    pub unchanged_blocks: u64,
    /// Chunks that were stored.
    pub new_chunks: u64,
    /// Their bytes before compression.
    pub new_bytes: u64,
    /// Their bytes in containers.
    pub sealed_bytes: u64,
    /// Bytes that were cut into chunks, new or not: all but unchanged blocks and discarded ones.
    pub cut_bytes: u64,
    /// Manifests that were published.
    pub publishes: u64,
    /// Nanoseconds of each part of the work of commits, in the order of [`Phase::ALL`].
    pub nanos: [u64; Phase::ALL.len()],
    /// Bytes of writes that wait for a commit.
    pub waiting_bytes: u64,
    /// The size of the write buffer. When it is full, further writes wait for room.
    pub waiting_most: u64,
    /// Bytes of the memory tables.
    pub table_bytes: u64,
    /// Slots of the log.
    pub log_slots: u64,
    /// Slots with records that are not in runs.
    pub log_slots_used: u64,
    /// Bytes of a slot.
    pub log_slot_bytes: u64,
    /// Runs of the table of chunks.
    pub chunk_runs: TableStats,
    /// Runs of the table of blocks.
    pub block_runs: TableStats,
    /// Runs of the table of counts.
    pub count_runs: TableStats,
    /// Pages of runs.
    pub pages: CacheStats,
    /// Opened frames.
    pub frames: CacheStats,
    /// Volumes.
    pub volumes: u64,
    /// Snapshots.
    pub snapshots: u64,
    /// Bytes of all volumes, as clients see them.
    pub logical_bytes: u64,
    /// Free bytes of the file system.
    pub free_bytes: u64,
    /// Whether writes are refused because the file system is full.
    pub is_full: bool,
    /// Why nothing can be written any more.
    pub stopped: Option<String>,
    /// What fails now: work in the background, runs that are damaged, blocks that cannot be
    /// committed. Each was told to the log once.
    pub problems: Vec<String>,
}

impl Store {
    /// The numbers of this moment. Reads no file, and waits for no commit.
    pub fn stats(&self) -> StoreStats {
        let of = &self.counters;
        let mut stats = StoreStats {
            reads: of.reads.get(),
            read_bytes: of.read_bytes.get(),
            writes: of.writes.get(),
            written_bytes: of.written_bytes.get(),
            waited_nanos: of.waited.get(),
            waiting_most: self.options.write_buffer as u64,
            discards: of.discards.get(),
            discarded_bytes: of.discarded_bytes.get(),
            flushes: of.flushes.get(),
            commits: of.commits.get(),
            blocks: of.blocks.get(),
            unchanged_blocks: of.unchanged_blocks.get(),
            new_chunks: of.new_chunks.get(),
            new_bytes: of.new_bytes.get(),
            sealed_bytes: of.sealed_bytes.get(),
            cut_bytes: of.cut_bytes.get(),
            publishes: of.publishes.get(),
            nanos: std::array::from_fn(|at| of.nanos[at].get()),
            pages: self.pages.looks.seen(),
            frames: self.containers.looks.seen(),
            // A full or broken file system is reported by writes.
            problems: self.problems.list(),
            free_bytes: self.disk.space().map_or(0, |space| space.free),
            ..StoreStats::default()
        };
        let state = self.state.lock();
        stats.waiting_bytes = (state.active.bytes + state.sealing.bytes) as u64;
        stats.table_bytes = state.tables.bytes_held() as u64;
        stats.volumes = state.catalog.volumes().count() as u64;
        stats.snapshots = state.catalog.snapshots().count() as u64;
        stats.logical_bytes = state.catalog.volumes().map(|volume| volume.size).sum();
        stats.is_full = state.is_full;
        stats.stopped = state.stopped.clone();
        (stats.log_slots, stats.log_slots_used, stats.log_slot_bytes) = state.log_use;
        for (table, found) in [
            (VolumeTable::Chunks, &mut stats.chunk_runs),
            (VolumeTable::Blocks, &mut stats.block_runs),
            (VolumeTable::Counts, &mut stats.count_runs),
        ] {
            for run in state.runs.of(table) {
                found.runs += 1;
                found.records += run.reference.records;
                found.bytes += run.reference.object_bytes;
            }
        }
        stats
    }
}
