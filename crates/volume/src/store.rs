//! [`Store`]: a folder of volumes, opened by one process.
//!
//! | module       | what it has                                                    |
//! |--------------|----------------------------------------------------------------|
//! | `keys`       | configuration and keys of a store, as a repository has them    |
//! | `log`        | slots of the log: append, replay                               |
//! | `anchor`     | which record of the log is known to be durable                 |
//! | `replayed`   | what the log gives                                             |
//! | `loss`       | what a damaged log costs                                       |
//! | `lost_frames` | frames that the log names, and that are gone                  |
//! | `containers` | frames: written by a commit, read by everybody                 |
//! | `manifest`   | manifests: read the newest, publish the next                   |
//! | `background` | threads that commit and maintain                               |
//! | `ballast`    | space that is released when the file system is full            |
//! | `catalog`    | volumes and snapshots, and which versions of blocks they see   |
//! | `volumes`    | creating, cloning, resizing, deleting: one record each         |
//! | `opened`     | the state of an opened store                                   |
//! | `publish`    | memory tables become runs, and a manifest names them           |
//! | `writing`    | runs and differences of counts that are being written          |
//! | `merge`      | several runs become one, beside the commits                    |
//! | `collect`    | containers with few live chunks go                             |
//! | `interrupts` | reasons to stop merges and collection                          |
//! | `watched`    | what merges read, until they are stopped                       |
//! | `problems`   | what work in the background failed at                          |
//! | `recover`    | opening a store after any end                                  |
//! | `turns`      | a lock whose owner sees whether somebody waits                 |
//! | `check`      | looking for damage                                             |

mod anchor;
mod background;
mod ballast;
mod catalog;
mod check;
mod collect;
mod containers;
mod entropy;
mod interrupts;
mod keys;
mod log;
mod loss;
mod lost_frames;
mod manifest;
mod merge;
mod opened;
mod problems;
mod publish;
mod recover;
mod replayed;
mod turns;
mod volumes;
mod watched;
mod writing;

pub use crate::disk::CONFIG;
pub(crate) use background::COMMITS;
pub(crate) use catalog::{Catalog, view_of};
pub use check::{CheckOptions, CheckReport};
pub use collect::{CollectOptions, Collected};
pub(crate) use containers::{
    Contents, FRAME_TARGET, OpenContainer, folder as container_folder, path as container_path,
};
pub use entropy::{Entropy, SystemEntropy};
pub use keys::{LikeRepository, NewStore, StoreUnlock, unlock, unlock_with};
pub use loss::{Loss, LostBlocks};
pub(crate) use opened::{Committer, Pending, State, StopOnPanic, Waiting};
pub use opened::{Options, Store};
pub use recover::Recovery;
