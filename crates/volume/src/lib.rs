//! Volume stores: block devices that are deduplicated while they are written.
//!
//! A [`Store`] is a folder of this machine with any number of volumes. A write is acknowledged
//! when it is in memory, as by a disk with a cache. [`Store::flush`] makes it durable: new chunks
//! go into containers, and one record of the log names them and the blocks that changed.
//! `docs/volume.md` has the layout, the protocol, and what is not done yet.
//!
//! Below: `format`, `chunking`, `nbd`. Nothing here knows repositories.

pub mod device;
mod dirty;
pub mod disk;
mod error;
mod index;
pub mod store;

pub use device::VolumeExports;
pub use error::VolumeError;
pub use store::{CheckReport, Entropy, Options, Recovery, Store, SystemEntropy};
