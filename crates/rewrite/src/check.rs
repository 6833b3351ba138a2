//! Check: whether every version can be restored, within the requested scope.
//!
//! It reads the store and never its cache, which would return objects that are damaged or gone in
//! the store. It announces the versions that it reads, and a version forgotten meanwhile is no
//! damage.
//!
//! 1. `structure`: every manifest, node, segment and block of metadata is read. Every container
//!    exists with its right length and its tables, and every record agrees with them. Entries are
//!    in order from block to block (`order`). Parts shared by versions are checked once.
//! 2. `content`: containers are read whole, opened, and every chunk's fingerprint is computed
//!    again.
//! 3. `affected`: damage is traced to the versions and files that need it.

mod affected;
mod content;
mod order;
mod run;
mod structure;
mod tables;

pub(crate) use affected::bad_ranges;
pub use content::{Alone, ContentReport, ReadContents, ReadProof, read as read_contents};
pub(crate) use run::{Examined, examine};
pub use run::{check, check_with};
pub(crate) use structure::BadContainer;

use larder_format::ErrorKind;
use larder_format::ids::JobId;
use larder_store::RepositoryError;

/// How much file content to read and verify.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub enum ReadData {
    /// None: structure only (manifests, recipes, segments, metadata, container tables).
    #[default]
    None,
    /// All containers.
    All,
    /// Part `n` (from 1) of `of` equal parts: every container falls into one.
    Part {
        /// The number of the part, from 1.
        n: u32,
        /// The number of parts.
        of: u32,
    },
    /// About this share of the containers (0 to 1), chosen again each time.
    Share(f64),
    /// About this number of bytes of containers, chosen again each time.
    Bytes(u64),
}

/// The scope of a check.
#[derive(Debug, Clone, Default)]
pub struct CheckOptions {
    /// Content to read.
    pub read_data: ReadData,
    /// Only these versions; empty = all.
    pub versions: Vec<JobId>,
    /// Read no content, and count what would be read ([`CheckReport::planned`]).
    pub estimate: bool,
}

/// Content that a check would read, at least and at most. Each container takes one request.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct PlannedContent {
    /// Containers.
    pub containers: (u64, u64),
    /// Their bytes.
    pub bytes: (u64, u64),
}

/// One defect.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Damage {
    /// The object.
    pub object: String,
    /// The reason.
    pub why: String,
    /// Versions that need it: id and series. A few of the files that cannot be restored whole are
    /// named, and all are counted.
    pub affected: Vec<AffectedVersion>,
}

/// A version that cannot be restored whole.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AffectedVersion {
    /// Its id.
    pub id: JobId,
    /// Its series; empty when the manifest itself is unreadable.
    pub series: String,
    /// The first damaged files.
    pub files: Vec<Vec<u8>>,
    /// The number of damaged files.
    pub files_count: u64,
}

/// The results of a check.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CheckReport {
    /// Versions checked.
    pub versions: u64,
    /// Containers whose tables were checked.
    pub containers: u64,
    /// Containers whose content was read and verified.
    pub containers_read: u64,
    /// Bytes of containers read.
    pub bytes_read: u64,
    /// Of an estimate: the content that would be read.
    pub planned: PlannedContent,
    /// The damaged objects.
    pub damages: Vec<Damage>,
    /// Versions that were forgotten while they were being checked.
    pub forgotten: Vec<JobId>,
    /// Containers that no version uses. They belong to interrupted or running jobs, or to
    /// categories that a version between others leaves out. Or they are copies that a rebuilt index
    /// keeps. Not damage.
    pub unused_containers: u64,
    /// Their bytes.
    pub unused_bytes: u64,
    /// Containers in cold storage: neither their tables nor their contents could be verified. They
    /// are there, and no damage.
    pub cold_containers: u64,
    /// Their bytes.
    pub cold_bytes: u64,
}

/// A check that could not finish.
#[derive(Debug, thiserror::Error)]
pub enum CheckError {
    /// It was asked to stop.
    #[error("the check was interrupted")]
    Interrupted,
    /// The store failed.
    #[error(transparent)]
    Repository(#[from] RepositoryError),
}

impl CheckError {
    /// How a caller can react to it.
    pub fn kind(&self) -> ErrorKind {
        match self {
            Self::Interrupted => ErrorKind::Interrupted,
            Self::Repository(error) => error.kind(),
        }
    }
}
