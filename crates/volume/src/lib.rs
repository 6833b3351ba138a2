//! Volume stores: block devices that are deduplicated while they are written.
//!
//! A [`Store`] is a folder of this machine with any number of volumes. A write is acknowledged
//! when it is in memory, as by a disk with a cache. [`Store::flush`] makes it durable: new chunks
//! go into containers, and one record of the log names them and the blocks that changed.
//! `docs/volume.md` has the layout, the protocol, and what is not done yet.
//!
//! Below: `format`, `chunking`, `nbd`. Nothing here knows repositories.

mod chain;
mod counters;
pub mod device;
mod dirty;
pub mod disk;
mod error;
mod index;
mod lower;
mod spare_blocks;
mod stats;
pub mod store;
mod workers;

pub use chain::{FilterCounts, FilterKind, FilterSet, UnknownFilter};
pub use counters::{CacheStats, Phase};
pub use device::{ChangedBlocks, Hydrated, VolumeExports};
pub use error::VolumeError;
pub use lower::Lower;
pub use stats::{StoreStats, StoreUsage, TableStats, VolumeUsage};
pub use store::{
    CheckOptions, CheckReport, CollectOptions, Collected, Entropy, Loss, LostBlocks, Options, Recovery, Store,
    SystemEntropy,
};
