//! The filter chain of a store: which chunks of a commit are stored already, and where.
//!
//! The rules are those of `larder_dedup::chain` (dedupv1, section III-B). A commit asks about all
//! of its chunks, in rounds of [`ROUND`]. So the reads of a round are in flight together, and what
//! one round loads answers the next one.
//!
//! | filter  | answers        | what it looks at                                                 |
//! |---------|----------------|------------------------------------------------------------------|
//! | `zero`  | existing       | the bytes of the chunk: zeros are not stored                     |
//! | `mac`   | existing       | whole blocks, before they are cut: the MAC of the old content    |
//! | `bloom` | weak, none     | memory tables and the filters of the runs                        |
//! | `block` | strong, weak   | tags in the old mapping of the block and of the block before     |
//! | `cache` | strong, weak   | fingerprints of containers that were hit lately                  |
//! | `index` | strong, none   | memory tables, then the runs, the newest first                   |
//! | `bytes` | existing       | the stored bytes                                                 |
//!
//! An answer names no container that retired or is about to. One commit runs at a time, and uses an
//! answer before it ends. The holder of the committer's lock sees no answer in use. So collection
//! needs no in-combat set beside that lock.

mod block;
mod bloom;
mod bytes;
mod cache;
mod counts;
mod index;
mod set;
mod zero;

use std::sync::Arc;

use larder_dedup::chain::batch::{self, BatchFilter, Open};
use larder_format::volume_map::{Mapping, Place};

use self::block::BlockTags;
use self::bloom::RunFilters;
use self::bytes::ByteComparison;
use self::cache::{Cache, KnownContainers, LoadHit};
use self::counts::Kind;
use self::index::ChunkIndex;
use self::zero::Zeros;
use crate::error::VolumeError;
use crate::index::{KeyMap, PageCache, Runs};

pub(crate) use counts::Counter;
pub use counts::FilterCounts;
pub(crate) use counts::Kind as VerdictKind;
pub use set::{FilterKind, FilterSet, UnknownFilter};
pub(crate) use zero::is_zeros;

/// Chunks that are asked about together.
const ROUND: usize = 256;

/// First 20 bytes of a fingerprint.
pub(crate) type Key = [u8; 20];

/// A question: is this chunk stored?
pub(crate) struct Asked<'a> {
    pub(crate) key: Key,
    pub(crate) bytes: &'a [u8],
    /// The old content of the block where the chunk goes, and of the block before that one.
    pub(crate) old: [Option<&'a Mapping>; 2],
}

/// Where a chunk is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Answer {
    /// It is zeros, and stored nowhere.
    Zeros,
    /// In a container.
    At(Place),
}

/// A chunk of a container: its key, and its offset in the payload.
pub(crate) type Entry = (Key, u32);

/// What filters look at. It does not change while a commit holds the committer.
pub(crate) trait Stored {
    /// Places of chunks in the memory tables, if blocks may name them.
    fn in_memory(&self, keys: &mut dyn Iterator<Item = Key>) -> Vec<Option<Place>>;

    /// The runs of the manifest.
    fn runs(&self) -> &Runs;

    /// Opened pages.
    fn pages(&self) -> &PageCache;

    /// The chunks of a container. `None` while commits append to it, because memory tables have
    /// its chunks, and if blocks may not name them.
    fn chunks_of(&self, container: u32) -> Result<Option<Vec<Entry>>, VolumeError>;

    /// Whether a block may name a place. Not if its container retired or is about to: the chunk
    /// is new then.
    fn may_name(&self, place: Place) -> bool;

    /// The first bytes of what is stored at a place, at most as many as the chunk has.
    fn bytes_at(&self, place: Place, length: usize) -> Result<Vec<u8>, VolumeError>;
}

/// Chunks that a commit has placed, and that the memory tables do not have yet.
type Recent = KeyMap<Place>;

/// The chain of a store. It belongs to the committer.
pub(crate) struct Chain {
    counters: Arc<Vec<Counter>>,
    recent: Recent,
    containers: KnownContainers,
}

/// A filter, and what it counts.
struct Counted<'a> {
    filter: Box<dyn ChunkFilter + 'a>,
    counter: Option<&'a Counter>,
}

/// [`BatchFilter`] for questions of any lifetime.
trait ChunkFilter {
    fn check(&mut self, asked: &[Asked<'_>], open: &mut Open<Answer>) -> Result<(), VolumeError>;

    fn can_be_certain(&self) -> bool {
        false
    }
}

impl<'a> BatchFilter<VolumeError, Asked<'a>, Answer> for Counted<'_> {
    fn check(&mut self, asked: &[Asked<'a>], open: &mut Open<Answer>) -> Result<(), VolumeError> {
        let Some(counter) = self.counter else { return self.filter.check(asked, open) };
        counter.measured(open.len(), || self.filter.check(asked, open))?;
        counter.note(open.verdicts().iter().map(Kind::of));
        Ok(())
    }

    fn can_be_certain(&self) -> bool {
        self.filter.can_be_certain()
    }
}

impl Chain {
    /// A chain of these filters, which keeps about `memory` bytes of containers' fingerprints.
    pub(crate) fn new(filters: &FilterSet, memory: usize) -> Self {
        let counters = filters.kinds().iter().map(|kind| Counter::new(*kind)).collect();
        Self { counters: Arc::new(counters), recent: Recent::default(), containers: KnownContainers::new(memory) }
    }

    /// What its filters counted. Readable while a commit runs.
    pub(crate) fn counters(&self) -> Arc<Vec<Counter>> {
        self.counters.clone()
    }

    /// Asks about chunks. `None`: the chunk is new.
    pub(crate) fn find(
        &mut self,
        stored: &dyn Stored,
        asked: &[Asked<'_>],
    ) -> Result<Vec<Option<Answer>>, VolumeError> {
        let mut found = Vec::with_capacity(asked.len());
        let containers = parking_lot::Mutex::new(&mut self.containers);
        let mut filters = Vec::new();
        for counter in self.counters.iter() {
            let filter: Box<dyn ChunkFilter> = match counter.kind {
                // It judged whole blocks before.
                FilterKind::Mac => continue,
                FilterKind::Zero => Box::new(Zeros),
                FilterKind::Bloom => Box::new(RunFilters { stored, recent: &self.recent }),
                FilterKind::Block => Box::new(BlockTags { stored, containers: &containers }),
                FilterKind::Cache => Box::new(Cache { stored, containers: &containers }),
                FilterKind::Index => Box::new(ChunkIndex { stored, recent: &self.recent }),
                FilterKind::Bytes => Box::new(ByteComparison { stored, recent: &self.recent }),
            };
            filters.push(Counted { filter, counter: Some(counter) });
        }
        if self.counters.iter().any(|counter| counter.kind == FilterKind::Cache) {
            let filter = Box::new(LoadHit { stored, containers: &containers });
            filters.push(Counted { filter, counter: None });
        }
        for round in asked.chunks(ROUND) {
            let chain = filters.iter_mut().map(|filter| filter as &mut dyn BatchFilter<_, _, _>);
            found.extend(batch::find(chain, round)?);
        }
        Ok(found)
    }

    /// A new chunk got a place. The next batches of the commit find it there.
    pub(crate) fn update(&mut self, key: Key, place: Place) {
        if self.counters.iter().any(|counter| counter.kind == FilterKind::Index) {
            self.recent.insert(key, place);
        }
    }

    /// The memory tables have these chunks now. A commit may be long, and its memory is bounded.
    pub(crate) fn landed(&mut self, chunks: &[(Key, Place)]) {
        for (key, place) in chunks {
            if self.recent.get(key) == Some(place) {
                self.recent.remove(key);
            }
        }
    }

    /// The commit ended: what it placed is in the memory tables, or it failed and is nowhere.
    pub(crate) fn end(&mut self) {
        self.recent.clear();
    }

    /// A container is going to retire: its fingerprints leave the memory.
    pub(crate) fn forget_container(&mut self, number: u32) {
        self.containers.forget(number);
    }
}

#[cfg(test)]
mod tests;
