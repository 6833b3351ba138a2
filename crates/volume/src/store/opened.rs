//! The state of an opened store.

use std::collections::BTreeMap;
use std::sync::Arc;

use larder_chunking::{Chunker, Fingerprinter, RunMac};
use larder_format::compress::Compressor;
use larder_format::ids::JobId;
use larder_format::keys::Keys;
use larder_format::volume_manifest::{VolumeEntry, VolumeManifest};
use larder_format::volume_map::Mapping;
use parking_lot::{Condvar, Mutex};

use super::containers::{Containers, OpenContainer};
use super::entropy::Entropy;
use super::log::Log;
use crate::dirty::Dirty;
use crate::disk::Disk;
use crate::error::VolumeError;
use crate::index::{Memtables, PageCache, Runs};

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
    /// Free bytes of the file system below which writes are refused; `None`: 5 percent, at most
    /// 4 GiB.
    pub reserve: Option<u64>,
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
            reserve: None,
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

/// What readers and writers see.
pub(crate) struct State {
    pub(crate) volumes: Vec<VolumeEntry>,
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
}

/// What the one commit at a time needs.
pub(crate) struct Committer {
    pub(crate) log: Log,
    pub(crate) container: Option<OpenContainer>,
    pub(crate) next_container: u32,
    pub(crate) next_version: u64,
    pub(crate) compressor: Compressor,
    /// The manifest that counts.
    pub(crate) manifest: VolumeManifest,
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
    pub(crate) state: Mutex<State>,
    /// A commit ended, or writes wait for one.
    pub(crate) changed: Condvar,
    pub(crate) committer: Mutex<Committer>,
}

impl std::fmt::Debug for Store {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Store").field("id", &self.id).finish_non_exhaustive()
    }
}

impl Store {
    /// All volumes.
    pub fn volumes(&self) -> Vec<VolumeEntry> {
        self.state.lock().volumes.clone()
    }

    /// The volume of a name.
    pub fn volume(&self, name: &str) -> Result<VolumeEntry, VolumeError> {
        let state = self.state.lock();
        let found = state.volumes.iter().find(|volume| volume.name == name).cloned();
        found.ok_or_else(|| VolumeError::NoVolume(name.to_owned()))
    }

    /// The durable content of a block, as far as commits know it.
    pub(crate) fn mapping(&self, volume: u32, block: u64) -> Result<Mapping, VolumeError> {
        let runs = {
            let state = self.state.lock();
            if let Some((_, mapping)) = state.tables.blocks.get(&(volume, block)) {
                return Ok(mapping.clone());
            }
            state.runs.clone()
        };
        runs.block(&self.pages, volume, block)
    }

    pub(crate) fn mac_of(&self, block: &[u8]) -> [u8; 16] {
        let mut mac = self.mac.clone();
        mac.update(block);
        mac.finish()
    }
}
