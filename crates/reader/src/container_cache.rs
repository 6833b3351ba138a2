//! Full vision: containers for a reader in stream order, each read once if there is room for what is needed again.
//!
//! `future_uses` knows the future of every container, `eviction` decides by it, `reader` carries that out with a memory tier, a disk
//! tier (`disk_tier`) and requests ahead, container by container or piece by piece (`partial_read`). `read_plan` says when parts of a
//! container are read instead of the whole; restores to files, which go by container, ask it as well. Carries SlimStore section V-A, with exact knowledge in place of its counting filter.

mod disk_tier;
mod eviction;
mod fetching;
mod future_uses;
mod open_frames;
mod partial_read;
pub mod read_plan;
mod reader;

pub use fetching::{FetchCounters, FetchOptions, FetchReport};
pub(crate) use reader::Containers;
