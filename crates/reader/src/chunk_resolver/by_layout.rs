//! The way from recipes to chunks: one resolver for each layout, chosen once for a version.
//!
//! Recipes of the layout `standard` record the places of chunks. Recipes of the layout `lifecycle`
//! only name chunks, and the extents of the index tell their places. No other code of this crate
//! distinguishes layouts.
//!
//! Not here: chunks whose containers are gone, which [`Moved`] redirects in both layouts alike.

use std::fmt;

use larder_format::ChunkRef;
use larder_format::container::{CONTAINER_TARGET, LIFECYCLE_PAYLOAD, PAYLOAD_TARGET_MAX};
use larder_format::ids::{ContainerId, ContainerKind};
use larder_format::layout::Layout;
use larder_format::manifest::{ContainerUsage, Manifest};
use larder_format::recipe::SegmentRef;
use larder_format::segment::ChunkRecord;
use larder_store::RepositoryError;

use super::Moved;
use crate::container_sizes::{Measure, Sum};
use crate::presence::{Look, Missing};

/// See the module header.
pub(crate) trait ChunkResolver: fmt::Debug + Send + Sync {
    /// The version of this manifest will be read.
    fn expect(&self, moved: &Moved, manifest: &Manifest);

    /// Whether a container in the manifest's table is an object that the version reads. Else it
    /// only names chunks.
    fn is_object(&self, container: &ContainerId) -> bool;

    /// Sets chunks, as recipes name them, to their places. Chunks of missing containers are not
    /// redirected.
    fn place(&self, moved: &Moved, chunks: &mut dyn Iterator<Item = &mut ChunkRef>) -> Result<(), RepositoryError>;

    /// Sets a chunk as a recipe has it to the place from which it can be read.
    fn locate(&self, moved: &Moved, chunk: &mut ChunkRef) -> Result<(), RepositoryError>;

    /// A chunk was not at the place that [`Self::locate`] gave. Returns whether it may give another
    /// one now.
    fn relocates(&self, moved: &Moved, missed: &ChunkRef) -> Result<bool, RepositoryError>;

    /// Containers with chunks of these ones, beside those that the recipes name.
    fn other_places(&self, moved: &Moved, named: Vec<ContainerId>) -> Result<Vec<ContainerId>, RepositoryError>;

    /// Whether any record of a segment may be in a container that is gone, by its row in the recipe
    /// node.
    fn may_have_gone(&self, moved: &Moved, row: &SegmentRef) -> bool;

    /// The same of a segment whose records were read and placed.
    fn has_gone(&self, moved: &Moved, row: &SegmentRef, records: &[ChunkRecord]) -> bool;

    /// Reports the missing containers among those that the version needs.
    fn missing(&self, look: &dyn Look) -> Result<Missing, RepositoryError>;

    /// The size of a full container, computed from the sums of all data containers that the version
    /// names.
    fn full_container(&self, sum: Sum) -> Measure;

    /// Bytes on disk that count as room for whole containers, out of the bytes of the cache.
    fn disk_for_whole(&self, cache_disk: u64) -> u64;

    /// Sorts containers, given in the order of their first use, into the best order of reading.
    fn reading_order(&self) -> ReadingOrder;
}

/// Sorts containers into the best order of reading.
pub type ReadingOrder = fn(&mut [ContainerId]);

/// The resolver for the recipes of a version.
pub(crate) fn of_version(manifest: &Manifest) -> &'static dyn ChunkResolver {
    match manifest.summary.layout {
        Layout::Standard => &RecordedPlaces,
        Layout::Lifecycle => &ExtentPlaces,
    }
}

/// Divides containers of recipes or manifests in two: objects that hold the chunks, and containers
/// that only name them.
pub(crate) fn objects_and_names<T>(
    resolver: &dyn ChunkResolver,
    all: impl IntoIterator<Item = T>,
    container: impl Fn(&T) -> ContainerId,
) -> (Vec<T>, Vec<T>) {
    all.into_iter().partition(|one| resolver.is_object(&container(one)))
}

/// The containers in the table of a version that are objects which it reads. The others only name
/// chunks.
pub fn objects_of(manifest: &Manifest) -> Vec<&ContainerUsage> {
    objects_and_names(of_version(manifest), &manifest.containers, |usage| usage.container).0
}

/// The layout `standard`: chunks are where records say.
#[derive(Debug)]
pub(crate) struct RecordedPlaces;

impl ChunkResolver for RecordedPlaces {
    fn expect(&self, _: &Moved, _: &Manifest) {}

    fn is_object(&self, _: &ContainerId) -> bool {
        true
    }

    fn place(&self, _: &Moved, _: &mut dyn Iterator<Item = &mut ChunkRef>) -> Result<(), RepositoryError> {
        Ok(())
    }

    fn locate(&self, _: &Moved, _: &mut ChunkRef) -> Result<(), RepositoryError> {
        Ok(())
    }

    fn relocates(&self, _: &Moved, _: &ChunkRef) -> Result<bool, RepositoryError> {
        Ok(false)
    }

    fn other_places(&self, _: &Moved, _: Vec<ContainerId>) -> Result<Vec<ContainerId>, RepositoryError> {
        Ok(Vec::new())
    }

    fn may_have_gone(&self, moved: &Moved, row: &SegmentRef) -> bool {
        row.uses.iter().any(|used| moved.is_gone(&used.container))
    }

    fn has_gone(&self, moved: &Moved, row: &SegmentRef, _: &[ChunkRecord]) -> bool {
        self.may_have_gone(moved, row)
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

/// The layout `lifecycle`: the extents of the index tell the places of chunks.
#[derive(Debug)]
pub(crate) struct ExtentPlaces;

impl ChunkResolver for ExtentPlaces {
    fn expect(&self, moved: &Moved, manifest: &Manifest) {
        moved.expect(manifest.containers.iter().map(|usage| usage.container));
    }

    fn is_object(&self, container: &ContainerId) -> bool {
        container.kind == ContainerKind::Meta
    }

    fn place(&self, moved: &Moved, chunks: &mut dyn Iterator<Item = &mut ChunkRef>) -> Result<(), RepositoryError> {
        moved.arrange(chunks)
    }

    fn locate(&self, moved: &Moved, chunk: &mut ChunkRef) -> Result<(), RepositoryError> {
        moved.place([chunk])
    }

    fn relocates(&self, moved: &Moved, missed: &ChunkRef) -> Result<bool, RepositoryError> {
        Ok(missed.container.kind == ContainerKind::Data && moved.learn([missed.container])?)
    }

    fn other_places(&self, moved: &Moved, named: Vec<ContainerId>) -> Result<Vec<ContainerId>, RepositoryError> {
        moved.places(named)
    }

    /// The row has only names, and the records are not known yet.
    fn may_have_gone(&self, _: &Moved, _: &SegmentRef) -> bool {
        true
    }

    fn has_gone(&self, moved: &Moved, _: &SegmentRef, records: &[ChunkRecord]) -> bool {
        moved.has_gone() && records.iter().any(|record| moved.is_gone(&record.chunk.container))
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

    /// The order of writing: containers are in the order of their categories, and a slow disk reads
    /// forward.
    fn reading_order(&self) -> ReadingOrder {
        <[ContainerId]>::sort_unstable
    }
}
