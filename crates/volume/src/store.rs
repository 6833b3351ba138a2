//! [`Store`]: a folder of volumes, opened by one process.
//!
//! | module       | what it has                                                    |
//! |--------------|----------------------------------------------------------------|
//! | `keys`       | configuration and keys of a store, as a repository has them    |
//! | `log`        | slots of the log: append, replay                               |
//! | `containers` | frames: written by a commit, read by everybody                 |
//! | `manifest`   | manifests: read the newest, publish the next                   |
//! | `opened`     | the state of an opened store                                   |
//! | `publish`    | memory tables become runs, and a manifest names them           |
//! | `recover`    | opening a store after any end                                  |
//! | `check`      | looking for damage                                             |

mod check;
mod containers;
mod entropy;
mod keys;
mod log;
mod manifest;
mod opened;
mod publish;
mod recover;

pub use crate::disk::CONFIG;
pub use check::CheckReport;
pub(crate) use containers::{Contents, FRAME_TARGET, OpenContainer, path as container_path};
pub use entropy::{Entropy, SystemEntropy};
pub use keys::{NewStore, unlock};
pub use manifest::volumes;
pub(crate) use opened::{Committer, Pending, State};
pub use opened::{Options, Store};
pub use recover::Recovery;
