//! Backup: the pipeline from a source to a committed version.
//!
//! ```text
//! feed (1 thread)  --batches, blocks-->  pool (n threads)  --promises in order-->  sequence (this thread)
//!   walk, compare with the base,           read small files,                         find duplicates, write recipes,
//!   read and cut large files               cut, fingerprint                          hand new chunks to the packers
//!                                        pool  <--frames--  packers;  pool  --containers-->  uploads (runtime)
//! ```
//!
//! Every arrow is bounded: `IN_FLIGHT` promises, and an account of bytes between packers and store. The order of steps
//! with the repository is that of `larder_store::jobs`.

mod bases;
mod batch;
mod compare;
mod comparison;
mod feed;
mod filters;
mod job_chunks;
mod layout_policy;
mod overflow;
mod prediction;
mod proof_prefetch;
mod read_window;
mod root_coverage;
mod run;
mod scan_chunks;
mod sequence;
mod similar;
mod similar_series;
mod skip_duplicates;

pub use run::backup;
pub use scan_chunks::{GoOn, Show, collect};

use std::collections::BTreeSet;
use std::io::Read;
use std::num::NonZeroUsize;
use std::path::PathBuf;

use larder_format::ErrorKind;
use larder_format::compress::Compression;
use larder_format::ids::{ContainerId, JobId};
use larder_format::layout::Layout;
use larder_format::manifest::{Statistics, Summary};
use larder_source::Walk;
use larder_store::RepositoryError;
use larder_store::jobs::CommitError;

/// What is backed up.
#[expect(clippy::large_enum_variant, reason = "one a job")]
pub enum Input {
    /// A file tree.
    Tree(Walk),
    /// One stream of bytes, stored as a file.
    Stream {
        /// Path of that file in the version, valid by `entry::is_valid_path`.
        path: Vec<u8>,
        /// The bytes.
        reader: Box<dyn Read + Send>,
        /// Bytes to come, when known.
        size: Option<u64>,
    },
}

impl std::fmt::Debug for Input {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Tree(_) => "Tree",
            Self::Stream { .. } => "Stream",
        })
    }
}

/// How to back up, and what to write into the version.
#[derive(Debug, Clone)]
pub struct BackupOptions {
    /// Name of the series; any text.
    pub series: String,
    /// Host to record.
    pub host: String,
    /// User to record.
    pub user: String,
    /// Tags to record.
    pub tags: Vec<String>,
    /// What was backed up, for people: absolute paths.
    pub paths: Vec<Vec<u8>>,
    /// Time to record instead of now, milliseconds since the epoch.
    pub time_ms: Option<u64>,
    /// Name and version of the program, to record.
    pub program: String,
    /// How frames are compressed.
    pub compression: Compression,
    /// Read every file, also those that look unchanged.
    pub force: bool,
    /// Compare what is taken for a duplicate with what is stored, byte for byte. What this job stores itself, and what is taken over unread, is
    /// not compared.
    pub paranoid: bool,
    /// Write nothing: only find out what would be done.
    pub dry_run: bool,
    /// Commit no version when nothing differs from the base.
    pub skip_if_unchanged: bool,
    /// A different ctime does not make a file look changed.
    pub ignore_ctime: bool,
    /// A different inode number does not make a file look changed.
    pub ignore_inode: bool,
    /// The version to compare with, instead of the newest of the series.
    pub base: Option<JobId>,
    /// A run of chunks that is duplicate for so many versions in a row becomes a superchunk; `None`: never.
    pub merge_after: Option<NonZeroUsize>,
    /// Look for similar versions of other series when the series has none of its own.
    pub find_similar: bool,
    /// Bytes of memory for finding duplicates.
    pub index_memory: usize,
    /// How a new series lies in containers. A series that has versions keeps the layout of its newest.
    pub layout: Layout,
    /// Folder for what that memory has no room for, in files without names: 44 bytes for each of the job's own chunks, and in the layout
    /// `lifecycle` 24 more for each and for each of a base. `None`: own chunks are stored again when they come back, and what the layout
    /// needs stays in memory.
    pub scratch: Option<PathBuf>,
}

impl BackupOptions {
    /// A backup into this series that records no more of its circumstances than it must: default compression, changed files only,
    /// bases of the same series and of similar ones, 64 MiB for finding duplicates, no temporary file, no superchunks.
    pub fn new(series: impl Into<String>) -> Self {
        Self {
            series: series.into(),
            host: String::new(),
            user: String::new(),
            tags: Vec::new(),
            paths: Vec::new(),
            time_ms: None,
            program: String::new(),
            compression: Compression::DEFAULT,
            force: false,
            paranoid: false,
            dry_run: false,
            skip_if_unchanged: false,
            ignore_ctime: false,
            ignore_inode: false,
            base: None,
            merge_after: None,
            find_similar: true,
            index_memory: 64 << 20,
            layout: Layout::Standard,
            scratch: None,
        }
    }
}

/// What a backup did.
#[derive(Debug, Clone)]
pub struct BackupReport {
    /// The version; `None` when none was made (dry run, or unchanged and to be skipped).
    pub version: Option<Summary>,
    /// What was counted, also without a version.
    pub statistics: Statistics,
    /// The versions in which duplicates were looked for, the most important one first.
    pub bases: Vec<Base>,
    /// Unfinished jobs whose uploads were reused.
    pub adopted: Vec<JobId>,
    /// Containers that the bases need and the store does not have. This version is whole: what lay there was read and stored again.
    pub missing: BTreeSet<ContainerId>,
    /// Containers that the bases name are absent, and the index, which says where their chunks are, cannot be read: this version is as
    /// whole as its bases are.
    pub may_miss_more: bool,
}

/// A version in which a backup looked for duplicates.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Base {
    /// Its id.
    pub id: JobId,
    /// Its series.
    pub series: String,
    /// Why this one.
    pub why: WhyBase,
}

/// Why a version was taken for a base.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WhyBase {
    /// It was asked for.
    Asked,
    /// It is the newest version of the series.
    Newest,
    /// It is the version before the newest one, because too much of what comes back is not in that one (layout `lifecycle`).
    Before,
    /// It is of another series, and the head of the input resembles its head.
    Similar,
}

/// A backup that made no version.
#[derive(Debug, thiserror::Error)]
pub enum BackupError {
    /// It was asked to stop.
    #[error("the backup was interrupted; what it uploaded will be reused by the next run")]
    Interrupted,
    /// The stream to back up failed, or the command that made it.
    #[error("cannot read {}: {source}", larder_source::PathText(.path))]
    Input {
        /// Path in the version.
        path: Vec<u8>,
        /// What went wrong.
        source: std::io::Error,
    },
    /// None of the paths could be read at all: a version of nothing helps nobody.
    #[error("nothing could be read: no version was made")]
    NothingRead,
    /// A thread of the pipeline could not be started.
    #[error("no thread could be started; is there a limit on threads or memory? No version was made")]
    NoThreads,
    /// A thread of the pipeline ended by itself: a bug.
    #[error("a worker thread ended unexpectedly; no version was made")]
    WorkerDied,
    /// The base that was asked for does not exist.
    #[error("there is no version {id} to compare with")]
    NoSuchBase {
        /// What was asked for.
        id: JobId,
    },
    /// The base that was asked for has nothing that the new version may share.
    #[error(
        "version {id} is of series {series:?} in the layout {layout}, and series {wanted:?} is in the layout {wanted_layout}: \
             chunks of the layout lifecycle are shared within their series alone"
    )]
    UnsharedBase {
        /// What was asked for.
        id: JobId,
        /// Its series.
        series: String,
        /// And how that lies.
        layout: Layout,
        /// The series that is backed up.
        wanted: String,
        /// And how that lies.
        wanted_layout: Layout,
    },
    /// The version could not be committed.
    #[error(transparent)]
    Commit(#[from] CommitError),
    /// The repository failed.
    #[error(transparent)]
    Repository(#[from] RepositoryError),
}

impl BackupError {
    /// What a caller can do about it.
    pub fn kind(&self) -> ErrorKind {
        match self {
            Self::Interrupted => ErrorKind::Interrupted,
            Self::Input { .. } | Self::NoThreads => ErrorKind::Resource,
            Self::NothingRead | Self::NoSuchBase { .. } | Self::UnsharedBase { .. } => ErrorKind::Precondition,
            Self::WorkerDied => ErrorKind::Bug,
            Self::Commit(error) => error.kind(),
            Self::Repository(error) => error.kind(),
        }
    }
}

/// Batches and blocks that may be on their way to the sequencer: enough to keep every core busy, few enough for memory.
const IN_FLIGHT: usize = 6;
