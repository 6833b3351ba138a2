//! Writing containers and recipes: the common part of a backup and every job that copies chunks.
//!
//! ```text
//! chunks --> Packer --frames--> Pool (CPU) --containers--> Uploads --> store
//! records --> RecipeWriter --segments--> NodeWriter --new nodes--> Packer of metadata
//! ```
//!
//! * [`Cutting`]: which chunker a stream gets, and chunks with their fingerprints.
//! * [`Packer`]: chunks into frames and containers. [`Pool`]: threads for CPU work. [`Uploads`]:
//!   containers on their way to the store. [`WriteBudget`]: the memory that these take.
//! * [`RecipeWriter`], [`NodeWriter`]: the recipe of one stream. [`MetaSink::store_segment`]: its
//!   segments, whole or as differences.
//! * [`container_table`]: the table of containers in a manifest.
//!
//! This crate never commits, and never reads versions. Its objects belong to a job, and count when
//! that job's register does. Above: `lnode`, `rewrite`. Below: `job`, `dedup`, `store`, `format`,
//! `chunking`.

mod container_totals;
mod cutting;
mod merging;
mod node_writer;
mod packer;
mod pool;
mod recipe_writer;
mod segment_store;
mod uploads;
mod write_budget;

pub use container_totals::{ContainerTotals, Usage, container_table, holdings};
pub use cutting::{Chunks, Cutter, Cutting, HEAD_BYTES, KnownRun};
pub use merging::Merge;
pub use node_writer::{CompareStored, MetaSink, NodeWriter, ReadBase, Sunk, uses_of};
pub use packer::{Destination, Packer};
pub use pool::{Pool, PoolHandle, Worker};
pub use recipe_writer::{RecipeWriter, tail_of};
pub use segment_store::{DIFFERENCE_PERCENT, RECORD_BYTES, StoredSegment};
pub use uploads::{StopUploads, Uploads};
pub use write_budget::{WRITERS_MAX, WriteBudget};
