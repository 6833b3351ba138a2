//! Writing containers and recipes: what a backup and everything that lays versions out anew have in common.
//!
//! ```text
//! chunks --> Packer --frames--> Pool (CPU) --containers--> Uploads --> store
//! segments --> NodeWriter --new nodes--> Packer of metadata
//! ```
//!
//! Nothing here commits: what is written belongs to a job, and counts when that job's register does.

mod comparison;
pub(crate) mod holding;
pub(crate) mod node_writer;
pub(crate) mod packer;
pub(crate) mod pool;
pub(crate) mod uploads;

pub(crate) use comparison::ByteComparison;
pub use holding::Holding;
pub(crate) use holding::{container_table, holdings};
pub(crate) use node_writer::{MetaSink, NodeWriter, Usage, uses_of};
pub(crate) use packer::{Destination, LIFECYCLE_PAYLOAD, PAYLOAD_MAX, Packer};
pub(crate) use pool::{Pool, PoolHandle, Worker};
pub(crate) use uploads::{StopUploads, Uploads};
