//! Passes that several processes share: workers verify and copy chunks of containers that are
//! retired.
//!
//! The pass itself is `larder_gnode::pass`. One process makes it ([`SharedPass`]): it looks,
//! decides, publishes and deletes. It gives batches of chunks to others, does some itself, and
//! takes results. Workers do other batches (`answer`). The batch of a pass is its lease, and what
//! workers write belongs to its job. So leases, fences and the publication know nothing of workers.
//!
//! In an exact collection, workers read recipes before that (`marks`). What they say is compared
//! (`verify_marks`), and `larder_gnode` proves by itself that nothing which goes is needed.
//!
//! Containers are deleted because of a result. So it counts only if (`docs/fleet.md`, "Passes"):
//! * an operator signed it, who could make such a pass itself;
//! * the tables of the new containers, read by this process, have every chunk that was to be
//!   copied, and no other;
//! * chunks that are chosen by chance afterwards can be read. With one wrong result, none counts.

mod answer;
mod answer_marks;
mod ask;
mod given_away;
mod marks;
mod registers;
mod state;
mod verify;
mod verify_marks;

pub use answer::Copied;
pub(crate) use answer::{LeftPass, answer};
pub use ask::SharedPass;
pub use state::{SharedPassOptions, SharedPassReport};

use larder_lnode::BackupError;
use larder_rewrite::chunk_copier::RewriteError;

use crate::error::FleetError;

impl From<RewriteError> for FleetError {
    fn from(error: RewriteError) -> Self {
        match error {
            RewriteError::Repository(error) => error.into(),
            RewriteError::NoThreads => BackupError::NoThreads.into(),
            // A worker believes nobody.
            RewriteError::WorkerDied | RewriteError::WorkerWrong => BackupError::WorkerDied.into(),
            RewriteError::Interrupted => BackupError::Interrupted.into(),
        }
    }
}
