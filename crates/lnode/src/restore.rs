//! Restore: a version, or a part of it, back into a file system.
//!
//! The recipe is known in advance. For a window of entries, `plan` finds the needed bytes of
//! containers and their places in files. `execute` reads each of these containers once, in any
//! order, and writes them to all places, so no cache is needed (SlimStore section V). Meanwhile the
//! next window is planned, and then its containers are requested (`run::windows`, `fetching`). A
//! container that two windows need in succession is read once, as far as memory allows (`handing`).
//! Directories are created in order before, links after, and times are set last.
//!
//! Old content of a file is compared with the recipe first (`compare_existing`): right chunks are
//! neither fetched nor written. Damage costs only the files that need the damaged data, and each is
//! named.

mod afterwards;
mod budget;
mod compare_existing;
mod execute;
mod fetching;
mod file_task;
mod handing;
mod plan;
mod planned_fetches;
mod run;

pub use run::{restore, restore_begun, restore_reading};

use std::collections::BTreeSet;

use larder_format::ErrorKind;
use larder_format::ids::ContainerId;
use larder_source::target::TargetError;
use larder_store::RepositoryError;

/// Decides which entries are wanted. Directories above wanted entries are created in any case.
pub trait Selection: Send + Sync {
    /// Whether this entry is wanted. `path` is relative to the version's root (before the subpath
    /// is taken off).
    fn wants(&self, path: &[u8], is_directory: bool) -> bool;

    /// Whether any entry below this directory may be wanted.
    fn may_want_below(&self, path: &[u8]) -> bool {
        let _ = path;
        true
    }
}

/// The scope of a restore.
#[derive(Clone, Default)]
pub struct RestoreOptions {
    /// Only this entry and the entries below it; a directory becomes the root of the target.
    pub subpath: Option<Vec<u8>>,
    /// Only these entries.
    pub selection: Option<std::sync::Arc<dyn Selection>>,
    /// Remove entries that the version does not have from restored directories.
    pub delete: bool,
    /// Remove them also when the backup could not read everything, so that the version lacks
    /// entries that were there.
    pub delete_incomplete: bool,
    /// Wait at the end until everything is on disk. Otherwise the kernel writes it at any time, as
    /// with any copy.
    pub sync: bool,
    /// Read everything again at the end and compare.
    pub verify: bool,
    /// With a target that is a dry run: count the fetches that a run would take.
    pub estimate: bool,
    /// With a target that is a dry run: name the containers that a run would read. Reads none.
    pub plan: bool,
    /// Options for fetching containers.
    pub fetch: larder_reader::FetchOptions,
}

impl std::fmt::Debug for RestoreOptions {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RestoreOptions").field("subpath", &self.subpath).finish_non_exhaustive()
    }
}

/// Why a restore removes nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DeleteRefusal {
    /// The backup could not read this number of items. They were there, and the version lacks them.
    Unread(u64),
    /// Damaged metadata hides entries of the version.
    Hidden,
}

/// The result of a restore. Notes about metadata are in the target.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RestoreReport {
    /// Files written.
    pub files_restored: u64,
    /// Files that were there already.
    pub files_up_to_date: u64,
    /// Files and other entries kept because of the overwrite policy.
    pub files_kept: u64,
    /// Directories, links, devices.
    pub others: u64,
    /// Bytes of file contents written, without parts of files that were right already.
    pub bytes_restored: u64,
    /// Entries removed by `delete`.
    pub deleted: u64,
    /// Why `delete` removed nothing. This is no error of an item.
    pub delete_refused: Option<DeleteRefusal>,
    /// Files and folders that could not be restored.
    pub errors: u64,
    /// The number of them that the repository has lost: their data is damaged or missing there.
    pub damaged: u64,
    /// Differences found by `verify`.
    pub mismatches: u64,
    /// Files that are not restored, or not completely, because they need containers in cold
    /// storage. They are no errors.
    pub cold_files: u64,
    /// These containers.
    pub cold: BTreeSet<ContainerId>,
    /// With `plan`, the containers that a run would read first. Where passes have moved chunks, it
    /// finds their new places only then.
    pub needed: BTreeSet<ContainerId>,
    /// Counts of fetches from data containers.
    pub fetched: larder_reader::FetchReport,
    /// With `estimate`, the fetches that a run would take besides what the estimate took itself.
    pub planned: PlannedFetches,
}

/// Fetches from data containers that a restore would take.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct PlannedFetches {
    /// Requests.
    pub requests: u64,
    /// Bytes.
    pub bytes: u64,
    /// Requests for sizes, which a run does not take.
    pub looks: u64,
    /// A run takes more: passes have moved chunks out of a container, one cannot be read, or
    /// metadata is fetched again. Or it takes less, because of what windows hand on.
    pub is_about: bool,
}

/// A restore that stopped.
#[derive(Debug, thiserror::Error)]
pub enum RestoreError {
    /// It was asked to stop.
    #[error("the restore was interrupted; running it again continues")]
    Interrupted,
    /// The version has nothing at this path.
    #[error("the version has no {}", larder_source::PathText(.path))]
    NoSuchPath {
        /// The requested path.
        path: Vec<u8>,
    },
    /// The version was forgotten after it had been listed, or while it was restored without a
    /// lease.
    #[error("snapshot {} was forgotten during the restore", id.short())]
    Forgotten {
        /// The version.
        id: larder_format::ids::JobId,
    },
    /// The target failed in a way that prevents further work.
    #[error(transparent)]
    Target(#[from] TargetError),
    /// The repository failed.
    #[error(transparent)]
    Repository(#[from] RepositoryError),
}

impl RestoreError {
    /// The reaction that a caller can choose.
    pub fn kind(&self) -> ErrorKind {
        match self {
            Self::Interrupted => ErrorKind::Interrupted,
            Self::NoSuchPath { .. } | Self::Forgotten { .. } => ErrorKind::Precondition,
            Self::Target(error) => error.kind(),
            Self::Repository(error) => error.kind(),
        }
    }
}

impl From<larder_reader::ReadError> for RestoreError {
    fn from(error: larder_reader::ReadError) -> Self {
        match error {
            larder_reader::ReadError::Forgotten { id } => Self::Forgotten { id },
            larder_reader::ReadError::Repository(error) => error.into(),
        }
    }
}
