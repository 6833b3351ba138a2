//! Writing containers and recipes: what a backup and everything that lays versions out anew have in common.
//!
//! ```text
//! chunks --> Packer --frames--> Pool (CPU) --containers--> Uploads --> store
//! segments --> NodeWriter --new nodes--> Packer of metadata
//! ```
//!
//! Nothing here commits: what is written belongs to a job, and counts when that job's register does.

pub(crate) mod holding;
pub(crate) mod node_writer;
pub(crate) mod packer;
pub(crate) mod pool;
pub(crate) mod uploads;

pub use holding::Holding;
pub(crate) use holding::{container_table, holdings};
pub(crate) use node_writer::{CompareStored, MetaSink, NodeWriter, Usage, uses_of};
pub use packer::LANES_MAX;
pub(crate) use packer::{Destination, Packer};
pub(crate) use pool::{Pool, PoolHandle, Worker};
pub(crate) use uploads::{StopUploads, Uploads};
