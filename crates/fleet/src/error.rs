//! Errors of a batch, and of one image of it.

use std::sync::Arc;

use larder_format::ErrorKind;
use larder_format::fleet::{Stage, TaskId};
use larder_format::ids::JobId;
use larder_index::IndexError;
use larder_lnode::BackupError;
use larder_lnode::assemble::AssembleError;
use larder_store::{RepositoryError, StoreError};

use crate::nats_error::NatsError;

/// A failure of a task.
#[derive(Debug, thiserror::Error)]
pub enum FleetError {
    /// The source cannot be opened.
    #[error("{message}")]
    Source {
        /// The reason, one line.
        message: String,
    },
    /// Its bytes are not those of the first read.
    #[error(
        "the image changed between its two reads, at byte {offset} of its data; back up a snapshot of it, or stop its user"
    )]
    Changed {
        /// Where, in bytes of its data without holes.
        offset: u64,
    },
    /// The second read failed.
    #[error("cannot read it a second time: {source}")]
    Reread {
        /// The error.
        source: std::io::Error,
    },
    /// The series has another layout.
    #[error(
        "series {series:?} is in the layout lifecycle, which shares nothing with other series; use `larder backup --image`"
    )]
    Lifecycle {
        /// Its name.
        series: String,
    },
    /// The snapshot that it was compared with is gone.
    #[error("the snapshot that it was compared with was forgotten meanwhile; run the batch again")]
    BaseGone,
    /// The job that stores chunks for the batch was aborted.
    #[error("the job that stores its chunks was aborted by a pass that took it for dead; run the batch again")]
    StoreAborted,
    /// There are more chunks than numbers.
    #[error("it has more than 4,294,967,295 unknown chunks")]
    TooManyChunks,
    /// A task was decided by another process.
    #[error("task {task} of this batch was decided by another process; run the batch again")]
    Taken {
        /// The task.
        task: TaskId,
    },
    /// A worker of the batch says so.
    #[error("{why}")]
    Elsewhere {
        /// One line.
        why: String,
    },
    /// The batch cannot be worked on by this program, or with this key.
    #[error("batch {batch}: {why}")]
    NotForUs {
        /// Its id.
        batch: JobId,
        /// The reason, and what to do: one line.
        why: String,
    },
    /// The batch is over, or nothing keeps it any more.
    #[error("{}", if *is_closed { OVER } else { GONE })]
    BatchOver {
        /// Whether the process that planned it has closed its lease. Otherwise a pass took it for
        /// dead.
        is_closed: bool,
    },
    /// This process left a batch that others go on with.
    #[error("it is not decided yet: workers go on, and `larder fleet retry {batch}` reports")]
    Undecided {
        /// The batch.
        batch: JobId,
    },
    /// The server that gives tasks away.
    #[error(transparent)]
    Nats(#[from] NatsError),
    /// A chunk has no place at the end: a mistake of the program.
    #[error("a chunk of it has no place: a mistake of the program; no snapshot was made")]
    NoPlace,
    /// The folder for temporary files is full.
    #[error(transparent)]
    ScratchFull(Arc<FullScratch>),
    /// Temporary files.
    #[error("cannot use the folder for temporary files: {source}")]
    Scratch {
        /// The error.
        source: std::io::Error,
    },
    /// The image could not be scanned.
    #[error(transparent)]
    Backup(#[from] BackupError),
    /// The version could not be written.
    #[error(transparent)]
    Assemble(#[from] AssembleError),
    /// Sorting or the index failed.
    #[error(transparent)]
    Index(#[from] IndexError),
    /// The repository failed.
    #[error(transparent)]
    Repository(#[from] RepositoryError),
}

const OVER: &str = "the batch is over for all; this worker came too late";
const GONE: &str = "a pass took the batch for dead and removed it; run the batch again";

impl From<StoreError> for FleetError {
    fn from(error: StoreError) -> Self {
        Self::Repository(error.into())
    }
}

impl FleetError {
    /// How a caller can react to it.
    pub fn kind(&self) -> ErrorKind {
        match self {
            Self::Source { .. }
            | Self::Reread { .. }
            | Self::Changed { .. }
            | Self::TooManyChunks
            | Self::Undecided { .. }
            | Self::Elsewhere { .. } => ErrorKind::Resource,
            Self::Lifecycle { .. } | Self::NotForUs { .. } => ErrorKind::Precondition,
            Self::BaseGone | Self::StoreAborted | Self::BatchOver { .. } | Self::Taken { .. } => ErrorKind::LostRace,
            Self::Nats(error) => error.kind(),
            Self::NoPlace => ErrorKind::Bug,
            Self::ScratchFull(_) => ErrorKind::Full,
            Self::Scratch { source } if is_full(source) => ErrorKind::Full,
            Self::Scratch { .. } => ErrorKind::Resource,
            Self::Backup(error) => error.kind(),
            Self::Assemble(error) => error.kind(),
            Self::Index(IndexError::Spill { source, .. }) if is_full(source) => ErrorKind::Full,
            Self::Index(error) => error.kind(),
            Self::Repository(error) => error.kind(),
        }
    }

    /// The same error for another image, if the folder for temporary files is full.
    pub(crate) fn full_scratch(&self) -> Option<Self> {
        match self {
            Self::ScratchFull(full) => Some(Self::ScratchFull(full.clone())),
            _ => None,
        }
    }

    /// Whether no image of the batch can go on.
    pub(crate) fn is_of_batch(&self) -> bool {
        let is_general = matches!(
            self.kind(),
            ErrorKind::Retry | ErrorKind::Unusable | ErrorKind::Full | ErrorKind::Interrupted | ErrorKind::BadKey
        );
        is_general || matches!(self, Self::Scratch { .. } | Self::StoreAborted)
    }
}

/// Where and when the folder for temporary files became full. It says what to do.
#[derive(Debug, thiserror::Error)]
#[error(
    "host {host}, {at} (stage {stage}): the folder for temporary files {folder} is full: {free} MiB are free, and \
     some {needed} MiB are needed in all; make room there, or name another folder with --cache-dir, and back up what \
     was not saved"
)]
pub struct FullScratch {
    /// The host.
    pub host: String,
    /// The image or the partition, for people.
    pub at: String,
    /// The stage of the task.
    pub stage: Stage,
    /// The folder.
    pub folder: String,
    /// What is free there now, in MiB.
    pub free: u64,
    /// What the work in hand takes there at its most, in MiB.
    pub needed: u64,
    /// The error of the system.
    pub source: std::io::Error,
}

pub(crate) fn is_full(error: &std::io::Error) -> bool {
    matches!(error.kind(), std::io::ErrorKind::StorageFull | std::io::ErrorKind::QuotaExceeded)
}
