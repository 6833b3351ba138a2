//! Backup: the pipeline from a source to a committed version.
//!
//! ```text
//! feed (1 thread) --batches, blocks--> pool (n threads) --promises in order--> sequence (this one)
//!   walk, compare with base,             read small files,                       find duplicates,
//!   read and cut large files             cut, fingerprint                        write recipes,
//!                                                                                fill packers
//! packers --frames--> pool;  pool --containers--> uploads (runtime)
//! ```
//!
//! Every arrow is bounded: `IN_FLIGHT` promises, and an account of bytes between packers and store.
//! The order of steps with the repository is that of `larder_store::jobs`.

mod bases;
mod batch;
mod candidates;
mod changed_segment;
mod estimate;
mod feed;
mod filters;
mod image;
mod image_scan;
mod job_chunks;
mod layout_policy;
mod map_check;
mod overflow;
mod paranoid;
mod prediction;
mod proof_check;
mod proof_prefetch;
mod read_budget;
mod read_window;
mod root_coverage;
mod run;
mod scan_chunks;
mod sequence;
mod similar;
mod similar_series;
mod skip_duplicates;
mod stream_supply;
mod supplied;
mod taken_over;
mod unchanged_files;
mod unchanged_parts;

pub use estimate::{EarlierRun, ExpectedWork, expected_work};
pub use image::{ImageInput, ImageReader, MapOutcome, MapReport, MapTrust};
pub use image_scan::{ImageScan, scan_image};
pub use read_budget::ReadBudget;
pub use run::backup;
pub use scan_chunks::{GoOn, Show, collect};
pub use supplied::{EntrySource, SourceError, Supplied, SuppliedEntry};

use std::collections::BTreeSet;
use std::io::Read;
use std::path::PathBuf;

use larder_format::ErrorKind;
use larder_format::compress::Compression;
use larder_format::ids::{ContainerId, JobId};
use larder_format::layout::Layout;
use larder_format::manifest::{Origin, Statistics, Summary};
use larder_job::JobContext;
use larder_source::Walk;
use larder_store::jobs::CommitError;
use larder_store::repository::random;
use larder_store::{Repository, RepositoryError};
use larder_writer::WriteBudget;

use crate::assemble::AssembleError;

/// The input of a backup.
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
    /// Bytes that can be read at any offset, stored as a file.
    Image(ImageInput),
    /// Complete entries, such as those of a version in another repository.
    Entries(Box<dyn EntrySource>),
}

impl std::fmt::Debug for Input {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Tree(_) => "Tree",
            Self::Stream { .. } => "Stream",
            Self::Image(_) => "Image",
            Self::Entries(_) => "Entries",
        })
    }
}

/// Options of a backup, and facts to record in the version.
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
    /// The paths of the input, for people: absolute.
    pub paths: Vec<Vec<u8>>,
    /// Time to record instead of now, milliseconds since the epoch.
    pub time_ms: Option<u64>,
    /// Name and version of the program, to record.
    pub program: String,
    /// How frames are compressed.
    pub compression: Compression,
    /// Read every file, even if it looks unchanged.
    pub force: bool,
    /// Compare presumed duplicates with the stored bytes. This job's own data, and data reused
    /// unread, is not compared.
    pub paranoid: bool,
    /// Write nothing: only report the planned work.
    pub dry_run: bool,
    /// Commit no version when nothing differs from the base.
    pub skip_if_unchanged: bool,
    /// A different ctime does not make a file look changed.
    pub ignore_ctime: bool,
    /// A different inode number does not make a file look changed.
    pub ignore_inode: bool,
    /// The version to compare with, instead of the newest of the series. It is trusted, also if
    /// another machine made it.
    pub base: Option<JobId>,
    /// Trust the newest version of the series, also if another machine made it: its files count as
    /// unchanged. Else only versions that this machine made are trusted (`WitnessedOnly`).
    pub trust_newest: bool,
    /// The number of versions in a row for which a run of chunks is duplicate before it becomes a
    /// superchunk; 0: at once; `None`: never.
    pub merge_after: Option<usize>,
    /// Look for similar versions of other series when the series has none of its own.
    pub find_similar: bool,
    /// Bytes of memory for finding duplicates.
    pub index_memory: usize,
    /// The layout of a new series. A series with versions keeps the layout of its newest.
    pub layout: Layout,
    /// Take the layout of a new series from its settings and not from `layout`.
    pub layout_of_settings: bool,
    /// Folder for data that exceeds this memory, in files without names: 44 bytes for each of the
    /// job's own chunks. The layout `lifecycle` adds 24 for each own chunk and for each chunk of a
    /// base. `None`: own chunks that return are stored again, and the layout's index stays in
    /// memory.
    pub scratch: Option<PathBuf>,
    /// Sizes of containers and of what waits for the store.
    pub write: WriteBudget,
    /// Sizes of what is read of large files.
    pub read: ReadBudget,
    /// The id of the job, and so of the version, if it has to be known before. It is a new one.
    pub job: Option<JobId>,
    /// The version of which this one is a copy, to record.
    pub copy_of: Option<CopyOf>,
    /// Called once if there is a version to compare with, before the input is read. Less is stored
    /// then, and more versions are read: an allocator may keep less freed memory.
    pub with_base: Option<fn()>,
}

/// Facts of the original that a copy records.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CopyOf {
    /// The original.
    pub origin: Origin,
    /// When its backup began, milliseconds since the epoch. Times of files are compared with it.
    pub started_ms: u64,
    /// Files and folders that its backup could not read.
    pub errors: u64,
}

impl BackupOptions {
    /// The id of the job: the wanted one, or a new one.
    fn job_or_new(&self, repository: &Repository, now_ms: u64) -> Result<JobId, RepositoryError> {
        match self.job {
            Some(job) => Ok(job),
            None => Ok(JobId::new(now_ms, random(repository.entropy())?)),
        }
    }

    /// A backup into this series with the minimum of recorded circumstances. Defaults: default
    /// compression, changed files only, bases of the same series and of similar ones. Duplicates
    /// get 64 MiB of memory; there is no temporary file and no superchunk.
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
            trust_newest: false,
            merge_after: Some(0),
            find_similar: true,
            index_memory: 64 << 20,
            layout: Layout::Standard,
            layout_of_settings: false,
            scratch: None,
            write: WriteBudget::default(),
            read: ReadBudget::default(),
            job: None,
            copy_of: None,
            with_base: None,
        }
    }
}

/// The result of a backup.
#[derive(Debug, Clone)]
pub struct BackupReport {
    /// The version; `None` when none was created (dry run, or unchanged and to be skipped).
    pub version: Option<Summary>,
    /// The counts, also without a version.
    pub statistics: Statistics,
    /// The versions searched for duplicates, the most important one first.
    pub bases: Vec<Base>,
    /// Unfinished jobs whose uploads were reused.
    pub adopted: Vec<JobId>,
    /// Containers that the bases need and the store does not have. This version is whole: their
    /// content was read and stored again.
    pub missing: BTreeSet<ContainerId>,
    /// Containers of the bases are absent, and the index, which tells the places of their chunks,
    /// cannot be read. This version is as whole as its bases.
    pub may_miss_more: bool,
    /// The use of the maps of an image's changes; `None` if there were none.
    pub map: Option<MapReport>,
}

/// A version that a backup searched for duplicates.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Base {
    /// Its id.
    pub id: JobId,
    /// Its series.
    pub series: String,
    /// The reason for this choice.
    pub why: WhyBase,
}

/// The reason why a version serves as a base.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WhyBase {
    /// It was requested.
    Asked,
    /// It is the newest version of the series.
    Newest,
    /// It is the newest version of the series that this machine made. Another machine made newer
    /// ones.
    Own,
    /// It is the version before the newest, because too many returning chunks are not in the newest
    /// (layout `lifecycle`).
    Before,
    /// It is of another series, and the head of the input resembles its head.
    Similar,
}

/// A backup without a version.
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
        /// The error.
        source: std::io::Error,
    },
    /// The entries to back up could not be read.
    #[error("the snapshot cannot be read: {0}")]
    Source(#[source] RepositoryError),
    /// None of the paths could be read: an empty version would be of no use.
    #[error("nothing could be read: no version was made")]
    NothingRead,
    /// A thread of the pipeline could not be started.
    #[error("no thread could be started; is there a limit on threads or memory? No version was made")]
    NoThreads,
    /// A thread of the pipeline ended unexpectedly: a bug.
    #[error("a worker thread ended unexpectedly; no version was made")]
    WorkerDied,
    /// The requested base belongs to another domain, whose metadata is not shared.
    #[error("snapshot {id} is of another domain and cannot be built on")]
    ForeignBase {
        /// Its id.
        id: JobId,
    },
    /// The requested base does not exist.
    #[error("there is no version {id} to compare with")]
    NoSuchBase {
        /// The requested base.
        id: JobId,
    },
    /// The new version may share nothing with the requested base.
    #[error(
        "version {id} is of series {series:?} in the layout {layout}, and series {wanted:?} is in the layout {wanted_layout}: \
             chunks of the layout lifecycle are shared within their series alone"
    )]
    UnsharedBase {
        /// The requested base.
        id: JobId,
        /// Its series.
        series: String,
        /// Its layout.
        layout: Layout,
        /// The series of the backup.
        wanted: String,
        /// The layout of that series.
        wanted_layout: Layout,
    },
    /// The containers of this layout, or the chunks of this repository, do not fit into the memory
    /// for writing.
    #[error("the containers of the layout {layout}, or the large chunks of this repository, need more memory")]
    NeedsMemory {
        /// The layout.
        layout: Layout,
    },
    /// The version could not be committed.
    #[error(transparent)]
    Commit(#[from] CommitError),
    /// The repository failed.
    #[error(transparent)]
    Repository(#[from] RepositoryError),
}

impl From<AssembleError> for BackupError {
    fn from(error: AssembleError) -> Self {
        match error {
            AssembleError::Interrupted => Self::Interrupted,
            AssembleError::NoThreads => Self::NoThreads,
            AssembleError::Commit(error) => Self::Commit(error),
            AssembleError::Repository(error) => Self::Repository(error),
            // A chunk in none of the named containers could not have been found.
            AssembleError::NotInBase { .. } | AssembleError::NotNamed { .. } | AssembleError::OtherLength { .. } => {
                Self::WorkerDied
            }
        }
    }
}

impl From<SourceError> for BackupError {
    fn from(error: SourceError) -> Self {
        match error {
            SourceError::Repository(error) => Self::Source(error),
            SourceError::Input { path, source } => Self::Input { path, source },
        }
    }
}

impl BackupError {
    /// The reaction that a caller can choose.
    pub fn kind(&self) -> ErrorKind {
        match self {
            Self::Interrupted => ErrorKind::Interrupted,
            Self::Input { .. } | Self::NoThreads => ErrorKind::Resource,
            Self::NothingRead
            | Self::NoSuchBase { .. }
            | Self::ForeignBase { .. }
            | Self::UnsharedBase { .. }
            | Self::NeedsMemory { .. } => ErrorKind::Precondition,
            Self::WorkerDied => ErrorKind::Bug,
            Self::Commit(error) => error.kind(),
            Self::Repository(error) | Self::Source(error) => error.kind(),
        }
    }
}

/// Batches and blocks under way to the sequencer, at most: few enough for memory.
const IN_FLIGHT: usize = 6;

/// Batches and blocks under way to the sequencer: one for each thread, and one that is ready. More
/// would wait while their bytes leave the cores' caches, each in a buffer of its own. Without a
/// pool, each is ready when it is handed on.
fn in_flight(context: &JobContext) -> usize {
    match context.threads.get() {
        1 => 1,
        threads => threads.saturating_add(1).min(IN_FLIGHT),
    }
}
