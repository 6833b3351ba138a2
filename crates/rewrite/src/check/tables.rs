//! The tables of containers with which a check compares records.
//!
//! They are read when a record needs them, and ahead for the versions that come next. Only tables
//! that are right are kept ahead: what is wrong with a container is found when a record needs it.

use std::collections::HashSet;
use std::sync::Arc;

use futures::StreamExt;
use larder_format::container::ContainerIndex;
use larder_format::ids::ContainerId;
use larder_format::manifest::Manifest;
use larder_store::Repository;
use larder_store::byte_lru::ByteLru;
use larder_store::turns::{Turn, Turns};
use parking_lot::Mutex;

/// Tables that are read at once.
const CONCURRENT_READS: usize = 16;

/// Tables of one version that are read ahead. The first version of a series has any number.
const AHEAD_MAX: usize = 32;

/// A container's chunks by their offset.
#[derive(Debug)]
pub(super) struct Index {
    pub(super) starts: Vec<u32>,
    pub(super) container: ContainerIndex,
}

impl Index {
    pub(super) fn of(container: ContainerIndex) -> Arc<Self> {
        let starts = container.chunk_refs().map(|chunk| chunk.offset).collect();
        Arc::new(Self { starts, container })
    }

    fn bytes(&self) -> usize {
        self.starts.len() * 48 + 256
    }
}

/// Bytes of memory of an entry that says that a container has no tables to compare with.
const BYTES_OF_NONE: usize = 64;

/// Tables in bounded memory. Clones are the same.
#[derive(Debug, Clone)]
pub(super) struct Tables {
    kept: Arc<Mutex<ByteLru<ContainerId, Option<Arc<Index>>>>>,
    /// Those that were asked for ahead.
    asked: Arc<Mutex<HashSet<ContainerId>>>,
    /// A record may need tables that are being read ahead.
    turns: Arc<Turns>,
}

impl Tables {
    /// Keeps at most this number of bytes.
    pub(super) fn new(memory: usize) -> Self {
        Self { kept: Arc::new(Mutex::new(ByteLru::new(memory))), asked: Arc::default(), turns: Arc::default() }
    }

    /// The tables of a container; `Some(None)`: it is known to have none to compare with.
    pub(super) fn get(&self, id: &ContainerId) -> Option<Option<Arc<Index>>> {
        self.kept.lock().get(id)
    }

    pub(super) fn put(&self, id: ContainerId, index: Option<Arc<Index>>) {
        let bytes = index.as_ref().map_or(BYTES_OF_NONE, |index| index.bytes());
        self.kept.lock().put(id, index, bytes);
    }

    /// Reads the tables of these containers that are not there, several at once.
    pub(super) async fn fetch(&self, repository: &Repository, ids: impl IntoIterator<Item = ContainerId>) {
        let reads = ids.into_iter().map(|id| async move {
            let _turn = self.turn(&id).await;
            if self.kept.lock().contains(&id) {
                return;
            }
            if let Ok(container) = repository.read_container_index(id).await {
                self.put(id, Some(Index::of(container)));
            }
        });
        futures::stream::iter(reads).buffer_unordered(CONCURRENT_READS).collect::<()>().await;
    }

    /// Waits until nobody else reads the tables of a container. Then they may be there.
    pub(super) async fn turn(&self, id: &ContainerId) -> Turn<'_> {
        self.turns.wait(id).await
    }

    /// Reads ahead the tables of containers that no version before this one had, as far as
    /// `is_there` says that they exist.
    pub(super) async fn fetch_new(
        &self,
        repository: &Repository,
        manifest: &Manifest,
        is_there: impl Fn(&ContainerId) -> bool,
    ) {
        let new: Vec<ContainerId> = {
            let mut asked = self.asked.lock();
            let ids = manifest.containers.iter().map(|usage| usage.container).filter(|id| is_there(id));
            let new: Vec<_> = ids.filter(|id| !asked.contains(id)).take(AHEAD_MAX).collect();
            asked.extend(new.iter().copied());
            new
        };
        self.fetch(repository, new).await;
    }
}
