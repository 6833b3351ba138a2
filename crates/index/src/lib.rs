//! The global index: the place of every chunk of a repository, and the facts of every container.
//!
//! It is a storage engine of immutable objects. A numbered manifest ([`IndexSnapshot`]) names the
//! runs of the tables. A pass of the G-node drafts the next one ([`Draft`]), writes new runs, and
//! publishes it: all its changes appear at once, or none.
//!
//! Input: records of fixed or variable width, sorted or not. Output: records by key, in order of
//! key; the newest wins. The meaning of a record for a version, and all deletions, are in `gnode`.
//!
//! Above this crate: `job`, which shares its executor, `gnode`, and `reader` and `lnode` for
//! look-ups. Below: `store`, `format`.

mod current;
mod cursor;
mod draft;
mod error;
mod executor;
mod io;
#[cfg(test)]
mod kind_tests;
mod layout;
mod lookup;
mod mark;
mod merge;
mod merge_plan;
mod partition;
mod pass;
mod publish;
mod scan;
mod snapshot;
mod sorter;
pub mod tables;
mod verify;
mod writer;

pub use current::{Current, State, Turn};
pub use cursor::Cursor;
pub use draft::Draft;
pub use error::IndexError;
pub use executor::{Executor, IndexIo, Task};
pub use layout::layout_of;
pub use lookup::{LookupCost, LookupOptions, SortedLookup, TableReader};
pub use merge::{Merge, Tombstones};
pub use merge_plan::{MergePlan, TIER_RATIO};
pub use partition::{in_parallel, partitions};
pub use pass::IndexPass;
pub use publish::{Published, publish};
pub use scan::{Readahead, RunScan};
pub use snapshot::{FaultyIndex, IndexSnapshot, Newest};
pub use sorter::{Sorted, Sorter};
pub use tables::{
    Changes, Chunks, ContainerExtents, Containers, Copies, PartitionedChanges, Records, Streams, TableView, TypedTable,
    merged,
};
pub use verify::verify_run;
pub use writer::{OBJECT_TARGET, PassRuns, RunWriter};
