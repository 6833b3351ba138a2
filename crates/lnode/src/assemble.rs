//! The parts of a backup: for jobs that assemble a version of pieces that were found or stored
//! elsewhere. [`crate::backup()`] is made of them, too.
//!
//! ```text
//! announce    the lease, then the looks: versions to share with, jobs to adopt
//! Output      threads that seal, uploads that the store acknowledges
//! DataWriter      new chunks -> their places
//! RecipeOutput    recipes of one version, or of several that share segments
//! VersionWriter   segments of the base, segments of known places, one entry -> manifest
//! commit      the register, and how the lease ends
//! ```
//!
//! A version may use containers of three kinds only (`OwnersNamed` in `docs/concurrency.md`): those
//! of its own job, those in manifests of versions that its lease names, and those of jobs that it
//! adopts. [`VersionWriter`] refuses all others. The caller looks at the named ones after the
//! lease, with what [`announce()`] gives it.
//!
//! Not here: the choice of the bases, and the search for duplicates ([`mod@crate::backup`]).

mod announce;
mod commit;
mod output;
mod version;

pub use announce::{Announced, Announcement, OpenVersion, announce, may_adopt, open_version};
pub use commit::{Contents, Description, commit, commit_adopting, manifest};
pub use output::{DataWriter, Output, RecipeOutput};
pub use version::VersionWriter;

use larder_format::ErrorKind;
use larder_format::ids::ContainerId;
use larder_store::RepositoryError;
use larder_store::jobs::CommitError;

/// A version that could not be assembled.
#[derive(Debug, thiserror::Error)]
pub enum AssembleError {
    /// The job was asked to stop.
    #[error("interrupted")]
    Interrupted,
    /// No thread of the pool could be started.
    #[error("no thread could be started; is there a limit on threads or memory?")]
    NoThreads,
    /// The base has no such segment, or the version has no base, or the base is not whole.
    #[error("segment {segment} of the base cannot be taken over")]
    NotInBase {
        /// Its number in the data stream of the base.
        segment: u32,
    },
    /// A record names a container that the job may not use.
    #[error("container {container} belongs neither to the job nor to a version or job that it names")]
    NotNamed {
        /// The container.
        container: ContainerId,
    },
    /// The entry and the data stream have different lengths.
    #[error("the data stream has {stream_bytes} bytes, and its entry says {entry_bytes}")]
    OtherLength {
        /// Bytes of the data stream.
        stream_bytes: u64,
        /// Stored bytes of the entry.
        entry_bytes: u64,
    },
    /// The version could not be committed.
    #[error(transparent)]
    Commit(#[from] CommitError),
    /// The repository failed.
    #[error(transparent)]
    Repository(#[from] RepositoryError),
}

impl AssembleError {
    /// How a caller can react to it.
    pub fn kind(&self) -> ErrorKind {
        match self {
            Self::Interrupted => ErrorKind::Interrupted,
            Self::NoThreads => ErrorKind::Resource,
            Self::NotInBase { .. } | Self::NotNamed { .. } | Self::OtherLength { .. } => ErrorKind::Bug,
            Self::Commit(error) => error.kind(),
            Self::Repository(error) => error.kind(),
        }
    }
}
