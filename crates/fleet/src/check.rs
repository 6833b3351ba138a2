//! Checks that several processes share: each reads ranges of containers.
//!
//! The check itself is `larder_rewrite::check`. One process makes it ([`SharedCheck`]): it looks at
//! the structure, asks for ranges, reads ranges itself, and puts everything together. Workers read
//! other ranges (`answer`) and say which containers are whole. The batch of a check is the lease of
//! its process, which protects what is read.
//!
//! A result of another process is a hint (`docs/fleet.md`, "Checks"):
//! * What is not whole is read again by the process that makes the check. So it reports the same as
//!   a check without workers.
//! * Of the others, it reads a sample again. A reader proves that it read a container
//!   ([`larder_rewrite::check::ReadProof`]). With one wrong proof, no result of others counts.

mod answer;
mod ask;
mod verify;

pub use answer::Answer;
pub(crate) use answer::{Left, answer};
pub use ask::{SharedCheck, SharedCheckOptions, SharedCheckReport};

use larder_lnode::BackupError;
use larder_rewrite::check::CheckError;

use crate::error::FleetError;

impl From<CheckError> for FleetError {
    fn from(error: CheckError) -> Self {
        match error {
            CheckError::Interrupted => BackupError::Interrupted.into(),
            CheckError::Repository(error) => error.into(),
        }
    }
}
