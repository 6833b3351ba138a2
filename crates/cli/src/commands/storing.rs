//! The most that a backup or a copy takes, if all that it stores is new and cannot be compressed.

use larder_format::container::CONTAINER_TARGET;
use larder_store::StoreStats;

/// Bytes of metadata for one entry, at most: its path, times, owners and attributes as usual.
const ENTRY_BYTES: u64 = 4096;
/// Bytes of a backup without any data: lease, manifest, tables.
const FIXED_BYTES: u64 = 1 << 20;
/// Requests of a backup without any data, at most.
const FIXED_REQUESTS: u64 = 64;
/// Bytes that finding duplicates may read: filters and rows of the index, heads of manifests.
const LOOK_UPS_BYTES: u64 = 64 << 20;

/// What one new version may have to store.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Storing {
    /// Bytes of data.
    pub(super) bytes: u64,
    /// Entries of any kind.
    pub(super) entries: u64,
    /// Versions in the repository.
    pub(super) versions: u64,
    /// Bytes of the metadata containers of the version that is followed.
    pub(super) base_metadata_bytes: u64,
}

impl Storing {
    /// Bytes that are stored.
    pub(super) fn most_stored(&self) -> u64 {
        // Records, sums and padding take about a fiftieth. Small chunks take more.
        self.bytes + self.bytes / 16 + self.entries * ENTRY_BYTES + FIXED_BYTES
    }

    /// Requests and bytes of them. `taken`: those of opening the repository and of looking at it.
    pub(super) fn most(&self, taken: &StoreStats) -> StoreStats {
        let containers = self.most_stored().div_ceil(CONTAINER_TARGET as u64);
        StoreStats {
            creates: 4 * containers + FIXED_REQUESTS,
            reads: 4 * (taken.reads + taken.sizes) + 2 * self.versions + containers + FIXED_REQUESTS,
            lists: 4 * taken.lists + FIXED_REQUESTS,
            deletes: FIXED_REQUESTS,
            bytes_up: self.most_stored(),
            bytes_down: 2 * taken.bytes_down + 2 * self.base_metadata_bytes + LOOK_UPS_BYTES,
            ..StoreStats::default()
        }
    }
}
