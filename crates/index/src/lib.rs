//! The global index: where every chunk of a repository lies, and what is known of every container.
//!
//! It is a storage engine of immutable objects. A numbered manifest ([`snapshot`]) names the runs of which the tables consist;
//! a pass of the G-node writes new runs and publishes the next number, at which all its changes appear at once, or none.
//!
//! What flows in: records of fixed or variable width, sorted or not. What flows out: records by key, in order of key, newest
//! first to win. Nothing here decides what a record means for a version, or what is deleted (`gnode`).
//!
//! Carries `DESIGN.md` section 5. Above this crate: `gnode`, and `lnode` for reading. Below: `store`, `format`.

mod compaction;
mod cursor;
mod error;
mod io;
mod layout;
mod lookup;
mod merge;
mod partition;
mod scan;
pub mod snapshot;
mod sorter;
pub mod tables;
mod writer;

pub use compaction::{Compaction, TIER_RATIO, compact};
pub use cursor::Cursor;
pub use error::IndexError;
pub use io::IndexIo;
pub use layout::layout_of;
pub use lookup::{LookupCost, LookupOptions, SortedLookup, TableReader};
pub use merge::{Merge, Tombstones};
pub use partition::{in_parallel, partitions};
pub use scan::{Readahead, RunScan};
pub use snapshot::{FaultyIndex, IndexSnapshot, Newest, Published, publish};
pub use sorter::{Sorted, Sorter};
pub use tables::{Changes, Chunks, Containers, Holes, Records, Streams, TableView, TypedTable};
pub use writer::{OBJECT_TARGET, PassRuns, RunWriter};
