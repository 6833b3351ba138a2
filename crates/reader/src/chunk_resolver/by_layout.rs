//! How the recipes of a version lead to its chunks: one resolver for each layout, chosen once for a version.
//!
//! Recipes of the layout `standard` record the places of chunks. Recipes of the layout `lifecycle` only name chunks, and the
//! index's extents say where these are. No other code of this crate distinguishes layouts.
//!
//! Not here: chunks whose containers are gone, which [`Moved`] redirects in both layouts alike.

use std::fmt;
use std::sync::Arc;

use larder_format::ChunkRef;
use larder_format::container::{CONTAINER_TARGET, LIFECYCLE_PAYLOAD, PAYLOAD_TARGET_MAX};
use larder_format::ids::{ContainerId, ContainerKind};
use larder_format::layout::Layout;
use larder_format::manifest::Manifest;
use larder_format::recipe::SegmentRef;
use larder_format::segment::ChunkRecord;
use larder_store::RepositoryError;

use super::Moved;
use crate::container_sizes::{Measure, Sum};
use crate::presence::{Look, Missing};

/// See the module header.
pub(crate) trait ChunkResolver: fmt::Debug + Send + Sync {
    /// Whether a container in the manifest's table is an object that the version reads. Else it only names chunks.
    fn is_object(&self, container: &ContainerId) -> bool;

    /// Sets chunks as recipes have them to their places. Those whose containers are gone are not redirected.
    fn place<'a>(&self, chunks: &mut dyn Iterator<Item = &'a mut ChunkRef>) -> Result<(), RepositoryError>;

    /// Sets a chunk as a recipe has it to the place from which it can be read.
    fn locate(&self, chunk: &mut ChunkRef) -> Result<(), RepositoryError>;

    /// A chunk was not at the place that [`Self::locate`] gave. Says whether it may give another one now.
    fn relocates(&self, missed: &ChunkRef) -> Result<bool, RepositoryError>;

    /// Containers with anything of these ones, beside those that the recipes say.
    fn other_places(&self, named: Vec<ContainerId>) -> Result<Vec<ContainerId>, RepositoryError>;

    /// Whether any record of a segment may lie in a container that is gone, by its row in the recipe node.
    fn may_have_gone(&self, row: &SegmentRef) -> bool;

    /// The same of a segment whose records were read and placed.
    fn has_gone(&self, row: &SegmentRef, records: &[ChunkRecord]) -> bool;

    /// Which containers that the version needs are missing.
    fn missing(&self, look: &dyn Look) -> Result<Missing, RepositoryError>;

    /// The size of a full container, from the sums of all data containers that the version names.
    fn full_container(&self, sum: Sum) -> Measure;

    /// Bytes on disk that count as room for whole containers, of those that the cache may take.
    fn disk_for_whole(&self, cache_disk: u64) -> u64;

    /// Brings containers, which come in the order of their first use, into the order in which they are best read.
    fn reading_order(&self) -> ReadingOrder;
}

/// Sorts containers as they are best read.
pub type ReadingOrder = fn(&mut [ContainerId]);

/// The resolver for the recipes of a version.
pub(crate) fn of_version(manifest: &Manifest, moved: &Arc<Moved>) -> Arc<dyn ChunkResolver> {
    match manifest.summary.layout {
        Layout::Standard => recorded(moved),
        Layout::Lifecycle => by_extents(manifest, moved),
    }
}

/// The resolver that takes chunks to be where records say.
pub(crate) fn recorded(moved: &Arc<Moved>) -> Arc<dyn ChunkResolver> {
    Arc::new(RecordedPlaces { moved: moved.clone() })
}

/// The resolver that asks the index's extents, of the containers that a version names and of others.
pub(crate) fn by_extents(manifest: &Manifest, moved: &Arc<Moved>) -> Arc<dyn ChunkResolver> {
    moved.expect(manifest.containers.iter().map(|usage| usage.container));
    Arc::new(ExtentPlaces { moved: moved.clone() })
}

/// The layout `standard`.
#[derive(Debug)]
struct RecordedPlaces {
    moved: Arc<Moved>,
}

impl ChunkResolver for RecordedPlaces {
    fn is_object(&self, _: &ContainerId) -> bool {
        true
    }

    fn place<'a>(&self, _: &mut dyn Iterator<Item = &'a mut ChunkRef>) -> Result<(), RepositoryError> {
        Ok(())
    }

    fn locate(&self, _: &mut ChunkRef) -> Result<(), RepositoryError> {
        Ok(())
    }

    fn relocates(&self, _: &ChunkRef) -> Result<bool, RepositoryError> {
        Ok(false)
    }

    fn other_places(&self, _: Vec<ContainerId>) -> Result<Vec<ContainerId>, RepositoryError> {
        Ok(Vec::new())
    }

    fn may_have_gone(&self, row: &SegmentRef) -> bool {
        row.uses.iter().any(|used| self.moved.is_gone(&used.container))
    }

    fn has_gone(&self, row: &SegmentRef, _: &[ChunkRecord]) -> bool {
        self.may_have_gone(row)
    }

    fn missing(&self, look: &dyn Look) -> Result<Missing, RepositoryError> {
        look.recorded()
    }

    fn full_container(&self, sum: Sum) -> Measure {
        let object = CONTAINER_TARGET as u64;
        let payload = Sum::scaled(object, sum.payload, sum.object).clamp(object, PAYLOAD_TARGET_MAX as u64);
        Measure { payload, object }
    }

    fn disk_for_whole(&self, cache_disk: u64) -> u64 {
        cache_disk
    }

    fn reading_order(&self) -> ReadingOrder {
        |_| {}
    }
}

/// The layout `lifecycle`.
#[derive(Debug)]
struct ExtentPlaces {
    moved: Arc<Moved>,
}

impl ChunkResolver for ExtentPlaces {
    fn is_object(&self, container: &ContainerId) -> bool {
        container.kind == ContainerKind::Meta
    }

    fn place<'a>(&self, chunks: &mut dyn Iterator<Item = &'a mut ChunkRef>) -> Result<(), RepositoryError> {
        self.moved.arrange(chunks)
    }

    fn locate(&self, chunk: &mut ChunkRef) -> Result<(), RepositoryError> {
        self.moved.place([chunk])
    }

    fn relocates(&self, missed: &ChunkRef) -> Result<bool, RepositoryError> {
        Ok(!self.is_object(&missed.container) && self.moved.learn([missed.container])?)
    }

    fn other_places(&self, named: Vec<ContainerId>) -> Result<Vec<ContainerId>, RepositoryError> {
        self.moved.places(named)
    }

    /// The row tells names, and the records are not known yet.
    fn may_have_gone(&self, _: &SegmentRef) -> bool {
        true
    }

    fn has_gone(&self, _: &SegmentRef, records: &[ChunkRecord]) -> bool {
        self.moved.has_gone() && records.iter().any(|record| self.moved.is_gone(&record.chunk.container))
    }

    fn missing(&self, look: &dyn Look) -> Result<Missing, RepositoryError> {
        look.by_extents()
    }

    fn full_container(&self, sum: Sum) -> Measure {
        let payload = LIFECYCLE_PAYLOAD as u64;
        Measure { payload, object: Sum::scaled(payload, sum.object, sum.payload) }
    }

    /// Versions are read in pieces of their volumes rather than from disk.
    fn disk_for_whole(&self, _: u64) -> u64 {
        0
    }

    /// As they were written: they lie in the order of their categories, and a slow disk reads forward.
    fn reading_order(&self) -> ReadingOrder {
        <[ContainerId]>::sort_unstable
    }
}
