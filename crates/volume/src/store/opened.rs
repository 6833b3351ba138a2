//! The state of an opened store.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize};

use larder_chunking::{Chunker, Fingerprinter, RunMac};
use larder_format::compress::{Compression, Compressor};
use larder_format::container::CONTAINER_TARGET;
use larder_format::ids::{JobId, PageRunId};
use larder_format::keys::Keys;
use larder_format::volume_manifest::{SnapshotEntry, VolumeEntry, VolumeManifest};
use larder_format::volume_map::{Mapping, Place};
use parking_lot::{Condvar, Mutex, RwLock};

use super::catalog::Catalog;
use super::containers::{Containers, OpenContainer};
use super::entropy::Entropy;
use super::interrupts::Interrupts;
use super::log::Log;
use super::problems::{DamagedRuns, Problems};
use super::turns::Turns;
use crate::chain::{Chain, Counter, FilterCounts, FilterKind, FilterSet};
use crate::counters::Counters;
use crate::dirty::Dirty;
use crate::disk::{Disk, DiskFile};
use crate::error::VolumeError;
use crate::index::{Memtables, PageCache, Removals, Runs};
use crate::lower::Lower;
use crate::spare_blocks::SpareBlocks;

/// Memory and limits of an opened store.
#[derive(Debug, Clone)]
pub struct Options {
    /// Bytes of writes that may wait for a commit. Further writers wait.
    pub write_buffer: usize,
    /// Bytes of waiting writes at which a commit begins.
    pub commit_at: usize,
    /// Bytes of the memory tables at which they become runs.
    pub tables: usize,
    /// Bytes of opened pages of runs.
    pub pages: usize,
    /// Bytes of opened frames.
    pub frames: usize,
    /// Bytes of the filters of runs. The largest that have no room are dropped, and cost reads.
    pub index_memory: usize,
    /// Bytes of fingerprints of containers that were hit lately.
    pub known_containers: usize,
    /// Which filters look for chunks that are stored already.
    pub filters: FilterSet,
    /// Threads that a commit works with.
    pub threads: usize,
    /// Bytes of data of one record of the log.
    pub batch: usize,
    /// Bytes of frames at which a container is full: at most 8 MiB.
    pub container: u64,
    /// How new chunks are compressed.
    pub compression: Compression,
    /// Whether a commit prepares the next record while the last one is synced.
    pub overlap: bool,
    /// Free bytes of the file system below which writes are refused; `None`: 5 percent, at most
    /// 4 GiB.
    pub reserve: Option<u64>,
    /// Opens a store whose log is damaged, with the state before the damage.
    pub accept_loss: bool,
}

impl Options {
    /// Shares of a memory limit in bytes.
    pub fn of_memory(memory: usize) -> Self {
        Self {
            write_buffer: memory / 8,
            commit_at: (memory / 32).min(16 << 20),
            tables: memory / 8,
            pages: memory / 8,
            frames: memory / 8,
            index_memory: memory / 8 * 3,
            known_containers: memory / 16,
            filters: FilterSet::default(),
            threads: std::thread::available_parallelism().map_or(1, std::num::NonZero::get),
            // A batch waits for the disk once, so it should have work for as long as a sync takes.
            batch: (memory / 32).clamp(1 << 20, 16 << 20),
            container: CONTAINER_TARGET as u64,
            compression: Compression::DEFAULT,
            overlap: true,
            reserve: None,
            accept_loss: false,
        }
    }
}

impl Default for Options {
    fn default() -> Self {
        Self::of_memory(512 << 20)
    }
}

/// Blocks that wait for a commit.
#[derive(Default)]
pub(crate) struct Pending {
    pub(crate) blocks: BTreeMap<(u32, u64), Arc<Dirty>>,
    pub(crate) bytes: usize,
    /// Blocks whose bytes are counted.
    pub(crate) counted: usize,
}

/// Blocks that wait because their commit must read them and cannot.
#[derive(Debug, Default)]
pub(crate) struct Waiting {
    /// Their volumes.
    pub(crate) volumes: BTreeSet<u32>,
    /// Their bytes of the write buffer.
    pub(crate) bytes: usize,
}

/// What readers and writers see.
pub(crate) struct State {
    pub(crate) catalog: Arc<Catalog>,
    /// Content outside of the store that volumes lie over.
    pub(crate) lowers: HashMap<u32, Arc<dyn Lower>>,
    /// Written since the last commit began.
    pub(crate) active: Pending,
    /// In a commit now.
    pub(crate) sealing: Pending,
    pub(crate) tables: Memtables,
    pub(crate) runs: Arc<Runs>,
    /// Writes that were acknowledged.
    pub(crate) accepted: u64,
    /// Of these, writes that are durable.
    pub(crate) committed: u64,
    /// Writes are refused: the file system is full.
    pub(crate) is_full: bool,
    /// Why nothing can be written any more.
    pub(crate) stopped: Option<String>,
    /// Blocks that the last commit could not read.
    pub(crate) unreadable: Waiting,
    /// Slots of the log, those in use, and bytes of each: as of the last commit.
    pub(crate) log_use: (u64, u64, u64),
}

/// What the one commit at a time needs.
pub(crate) struct Committer {
    pub(crate) log: Log,
    pub(crate) container: Option<OpenContainer>,
    pub(crate) next_container: u32,
    pub(crate) next_version: u64,
    /// Containers whose tables are written and not synced.
    pub(crate) tables: Vec<Arc<dyn DiskFile>>,
    /// One for each thread.
    pub(crate) compressors: Vec<Compressor>,
    pub(crate) chain: Chain,
    /// Room for the bytes of batches, kept so that its pages are not taken and cleared every time.
    pub(crate) rooms: Vec<Vec<u8>>,
    /// The manifest that counts.
    pub(crate) manifest: VolumeManifest,
}

/// Stops all writing when a commit or a publication panics. A server answers that request with an
/// error and goes on, but it is open then what is durable.
pub(crate) struct StopOnPanic<'a>(pub(crate) &'a Store);

impl Drop for StopOnPanic<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.stop(VolumeError::Stopped("a bug".into()));
        }
    }
}

/// A folder of volumes, opened by this process. Threads share it.
pub struct Store {
    pub(crate) disk: Arc<dyn Disk>,
    pub(crate) entropy: Arc<dyn Entropy>,
    pub(crate) keys: Keys,
    pub(crate) id: JobId,
    pub(crate) options: Options,
    pub(crate) chunker: Box<dyn Chunker>,
    pub(crate) fingerprinter: Fingerprinter,
    /// The MAC of nothing yet.
    pub(crate) mac: RunMac,
    pub(crate) containers: Containers,
    pub(crate) pages: PageCache,
    pub(crate) spare_blocks: SpareBlocks,
    pub(crate) state: Mutex<State>,
    /// A commit ended, or writes wait for one.
    pub(crate) changed: Condvar,
    pub(crate) committer: Turns<Committer>,
    pub(crate) counters: Counters,
    pub(crate) container_sizes: Mutex<HashMap<u32, (u64, u64)>>,
    /// One merge or collection at a time. Locked before the committer.
    pub(crate) maintenance: Mutex<()>,
    /// Containers that no new block may name: they are about to retire.
    pub(crate) closing: RwLock<BTreeSet<u32>>,
    /// Chunks of closed containers, as far as they were counted.
    pub(crate) totals: Mutex<HashMap<u32, u64>>,
    /// Volumes whose size a request changes now.
    pub(crate) resizing: Mutex<BTreeSet<u32>>,
    /// Volumes that are hydrated now: their commits give them blocks of their own, also with the
    /// content that their parents have.
    pub(crate) hydrating: Mutex<BTreeSet<u32>>,
    /// Runs of the block table behind the last merge of all of them.
    pub(crate) merged_blocks: Mutex<Vec<PageRunId>>,
    /// A volume or a snapshot was deleted since the block table was merged.
    pub(crate) has_deleted: AtomicBool,
    /// The thread that maintains the store waits with this.
    pub(crate) idle: Mutex<()>,
    pub(crate) woken: Condvar,
    /// Reasons to stop merges and rounds of collection.
    pub(crate) interrupts: Interrupts,
    /// Threads that maintain the store.
    pub(crate) maintainers: AtomicUsize,
    /// What work in the background failed at.
    pub(crate) problems: Arc<Problems>,
    pub(crate) damaged: Arc<DamagedRuns>,
    pub(crate) removals: Arc<Removals>,
    /// Bytes of the ballast, as far as this process knows.
    pub(crate) ballast: AtomicU64,
    /// Of the filters, readable while a commit runs.
    pub(crate) filter_counters: Arc<Vec<Counter>>,
}

impl std::fmt::Debug for Store {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Store").field("id", &self.id).finish_non_exhaustive()
    }
}

impl Store {
    /// All volumes.
    pub fn volumes(&self) -> Vec<VolumeEntry> {
        self.catalog().volumes().cloned().collect()
    }

    /// Hexadecimal digits that tell devices of this store from those of others.
    pub fn serial(&self) -> String {
        self.id.to_string().chars().filter(char::is_ascii_hexdigit).take(8).collect()
    }

    /// The volume of a name.
    pub fn volume(&self, name: &str) -> Result<VolumeEntry, VolumeError> {
        self.catalog().volume_named(name).cloned()
    }

    /// All snapshots, the oldest first.
    pub fn snapshots(&self) -> Vec<SnapshotEntry> {
        self.catalog().snapshots().cloned().collect()
    }

    /// The snapshot of `NAME@SNAP`.
    pub fn snapshot(&self, name: &str) -> Result<SnapshotEntry, VolumeError> {
        self.catalog().snapshot_named(name).cloned()
    }

    /// Why nothing can be written any more, if a commit failed so that its durability is open.
    pub fn stopped(&self) -> Option<String> {
        self.state.lock().stopped.clone()
    }

    pub(crate) fn catalog(&self) -> Arc<Catalog> {
        self.state.lock().catalog.clone()
    }

    /// Whether a new block may name a chunk that the index knows. Not if its container retired, is
    /// about to, or could not be read: then the chunk is a new one.
    pub(crate) fn may_name(&self, runs: &Runs, place: Place) -> bool {
        !runs.retired.contains(place.container)
            && !self.closing.read().contains(&place.container)
            && self.containers.is_readable(place.container)
    }

    /// Whether no read of what a block consists of has failed. Content that is written again must
    /// not be compared with content that is lost.
    pub(crate) fn is_readable(&self, mapping: &Mapping) -> bool {
        mapping.items.iter().filter_map(|item| item.place).all(|place| self.containers.is_readable(place.container))
    }

    /// What each filter was asked and answered since the store was opened, in their order.
    pub fn filter_counts(&self) -> Vec<FilterCounts> {
        self.filter_counters.iter().map(Counter::counts).collect()
    }

    /// The counter of a filter, if the store asks it.
    pub(crate) fn counter(&self, kind: FilterKind) -> Option<&Counter> {
        self.filter_counters.iter().find(|counter| counter.kind == kind)
    }

    pub(crate) fn mac_of(&self, block: &[u8]) -> [u8; 16] {
        let mut mac = self.mac.clone();
        mac.update(block);
        mac.finish()
    }
}
