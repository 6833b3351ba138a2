//! Containers for a reader in stream order: each is read once if there is room for everything
//! needed again.
//!
//! `future_uses` knows the future of every container, and `eviction` decides by it. `reader`
//! executes the decisions with a memory tier, a disk tier (`disk_tier`) and requests ahead, by
//! container or by piece (`partial_read`). `read_plan` decides when parts of a container are read
//! instead of the whole. Restores to files, which go by container, use it as well. Implements
//! section V-A of SlimStore, with exact knowledge in place of its counting filter.

pub(crate) mod disk_tier;
mod eviction;
mod fetching;
mod future_uses;
mod open_frames;
mod partial_read;
pub mod read_plan;
mod reader;

pub use fetching::{FetchCounters, FetchOptions, FetchReport};
pub(crate) use open_frames::Opened;
pub(crate) use reader::Containers;
