//! The manifests of many versions, in order, several at a time and in bounded memory.
//!
//! A manifest of a small version has some kilobytes, and one of a terabyte some ten megabytes. So
//! the window is a number of manifests and a number of bytes, whichever is reached first.

use std::sync::Arc;

use futures::stream::{self, Stream, StreamExt};
use larder_format::manifest::Manifest;
use tokio::sync::Semaphore;

use crate::catalog::Version;
use crate::repository::{CONCURRENT_READS, Repository, RepositoryError};

/// Bytes of one unit of room. A semaphore counts in 32 bits.
const UNIT: u64 = 1 << 10;

/// The number of manifests that are read ahead.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ManifestWindow {
    /// At most this number, not 0.
    pub manifests: usize,
    /// At most this number of bytes, as they are stored. One that is larger is read alone.
    pub bytes: u64,
    /// Bytes that a manifest of unknown size counts for.
    pub unknown_bytes: u64,
}

impl Default for ManifestWindow {
    fn default() -> Self {
        Self { manifests: CONCURRENT_READS, bytes: 40 << 20, unknown_bytes: 10 << 20 }
    }
}

impl ManifestWindow {
    /// Units of room for a manifest of this number of bytes (0: unknown), at most all.
    fn units(&self, bytes: u64) -> u32 {
        let bytes = if bytes == 0 { self.unknown_bytes } else { bytes };
        u32::try_from(bytes.div_ceil(UNIT)).unwrap_or(u32::MAX).clamp(1, self.all_units())
    }

    fn all_units(&self) -> u32 {
        u32::try_from((self.bytes / UNIT).min(Semaphore::MAX_PERMITS as u64)).unwrap_or(u32::MAX).max(1)
    }
}

impl Repository {
    /// Reads the manifests of these versions, in their order.
    ///
    /// Room is given in that order before a read begins, and returned when its manifest is taken.
    /// So the one that is taken next always has its room. Reads that have begun hold turns of the
    /// store also while nobody polls the stream: a caller that asks for other objects in between
    /// has to poll it meanwhile.
    pub fn manifests<'a>(
        &'a self,
        versions: impl IntoIterator<Item = &'a Version, IntoIter: Send + 'a>,
        window: ManifestWindow,
    ) -> impl Stream<Item = Result<Manifest, RepositoryError>> + Send + 'a {
        let room = Arc::new(Semaphore::new(window.all_units() as usize));
        let with_room = stream::iter(versions).then(move |version| {
            let (room, units) = (room.clone(), window.units(version.manifest_bytes));
            // Never closed.
            async move { (version, room.acquire_many_owned(units).await) }
        });
        let reads = with_room.map(move |(version, room)| async move { (self.manifest(version).await, room) });
        reads.buffered(window.manifests.max(1)).map(|(manifest, _)| manifest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn room_is_for_small_ones_together_and_for_a_large_one_alone() {
        let window = ManifestWindow { manifests: 8, bytes: 100 * UNIT, unknown_bytes: 10 * UNIT };
        assert_eq!([1, UNIT, UNIT + 1, 0, 200 * UNIT].map(|bytes| window.units(bytes)), [1, 1, 2, 10, 100]);
        let none = ManifestWindow { bytes: 0, ..window };
        assert_eq!((none.all_units(), none.units(5 * UNIT)), (1, 1));
    }
}
