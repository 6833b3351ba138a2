//! Reading versions: entries in order, single entries by path, contents in order, and every chunk
//! that versions name.
//!
//! * [`VersionReader`]: one version, for listings, searches, comparisons and dumps.
//! * [`RandomReader`]: any offset of a file, for several threads: a snapshot as a device.
//! * [`Reading`]: the lease of a job that reads contents. Listings need none, and their results are
//!   hints.
//! * [`RecipeReader`], [`MetaChunks`]: recipes by segment, over a cache of metadata that several
//!   readers share.
//! * [`References`]: every chunk that versions name, for exact collection; [`ShareMarks`] gives
//!   segments to other processes.
//! * [`stats()`]: contents and costs of a set of versions.
//! * [`diff()`]: the differences between two versions.
//!
//! Chunks that are not where their records say are looked up in the index. Contents are fetched by
//! exact knowledge of their next uses. This crate never writes an object but its lease, and depends
//! on neither backup nor maintenance. Implements section V-A of the SlimStore paper. Above:
//! `lnode`, `rewrite`, `lifecycle`, `gnode`. Below: `job`, `index`, `store`, `format`.

mod chunk_resolver;
mod container_cache;
mod container_sizes;
mod data_reader;
mod diff;
mod entries;
mod extent_map;
mod first_names;
#[cfg(test)]
mod kind_tests;
mod missing;
mod presence;
mod random;
mod read_lease;
mod recipe_reader;
mod references;
mod resolved;
mod shared_marks;
mod spans;
mod stand_ins;
mod stats;
mod stored_bytes;
mod version;
mod versions_ahead;
mod visit;

pub use chunk_resolver::{Found, Moved, ReadingOrder, Sought, objects_of, without_index};
pub use container_cache::{FetchCounters, FetchOptions, FetchReport, read_plan};
pub use data_reader::{ContentReader, Reach};
pub use diff::{Change, diff, diff_with_bytes};
pub use entries::{Entries, EntriesBelow, PlacedEntry, is_at_or_below};
pub use first_names::{FirstNames, LinkedFile};
pub use missing::missing_containers;
pub use presence::Missing;
pub use random::{Contents, FrameCache, Hydrated, Piece, RandomError, RandomFile, RandomReader, Stretch};
pub use read_lease::{LeaseLost, ReadError, ReadLease, Reading, is_missing, look, look_at, pin_of};
pub use recipe_reader::{MetaChunks, Node, RecipeReader, RecordCursor, damaged};
pub use references::References;
pub use shared_marks::{MarkError, Marked, ShareMarks, SharedMarks, TakeMarks};
pub use spans::{Spans, Unshared};
pub use stand_ins::StandIns;
pub use stats::{RepositoryStats, stats};
pub use stored_bytes::StoredBytes;
pub use version::VersionReader;
pub use versions_ahead::{ReadManifest, VersionsAhead};
