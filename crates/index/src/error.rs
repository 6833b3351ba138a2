//! Errors of the index.

use larder_format::ids::{JobId, RunId};
use larder_format::index_manifest::Table;
use larder_format::{DecodeError, EncodeError, ErrorKind, names};
use larder_store::cold_containers::ColdError;
use larder_store::{RepositoryError, StoreError};

/// A failure of the index.
#[derive(Debug, thiserror::Error)]
pub enum IndexError {
    /// An object is damaged or missing, or the store failed. The message names the object.
    #[error(transparent)]
    Repository(#[from] RepositoryError),
    /// The index that counts does not open. A pass may have acted on it, so nothing is built on an
    /// older one.
    #[error("the newest index cannot be read, and nothing is built on an older one; `repair index` rebuilds it")]
    NewestUnreadable {
        /// The error, and its name.
        #[source]
        source: RepositoryError,
    },
    /// The index that counts is gone. Its decisions may be under way, so nothing is built on an
    /// older one.
    #[error("{} is missing, and its mark says that it counts; `repair index` rebuilds it", names::index(*number))]
    NewestLost {
        /// Its number.
        number: u64,
    },
    /// Manifests appear and vanish faster than they can be read.
    #[error("manifests of the index were deleted while they were read, {attempts} times in a row")]
    Unstable {
        /// How often it was tried.
        attempts: u32,
    },
    /// There is no number above the highest one in use, which must have been planted.
    #[error("index/{highest} leaves no number for the next index; remove it if it is none of yours")]
    NumbersExhausted {
        /// The highest number.
        highest: u64,
    },
    /// One pass cannot write that many objects.
    #[error("pass {job} has used all numbers of its runs")]
    TooManyRuns {
        /// The pass.
        job: JobId,
    },
    /// The value of a record cannot be read, although its run is whole: a mistake of the program
    /// that wrote it.
    #[error("the index has a wrong record in table {table:?} under {}: {source}", Hex(key))]
    WrongRecord {
        /// Which table.
        table: Table,
        /// Its key.
        key: Vec<u8>,
        /// The reason.
        source: DecodeError,
    },
    /// The partitions that a pass works with do not cover all keys: a mistake of the program.
    #[error("no partition of table {table:?} has this key")]
    NoPartition {
        /// Which table.
        table: Table,
    },
    /// A filter would hide a key that is there: a mistake of the program that wrote it.
    #[error("{} hides the key {} from those who look it up", names::run(*id), Hex(key))]
    Hidden {
        /// The object.
        id: RunId,
        /// The key.
        key: Vec<u8>,
    },
    /// A temporary file of a sorter failed.
    #[error("cannot {doing} a temporary file: {source}")]
    Spill {
        /// The operation.
        doing: &'static str,
        /// The operating system's words.
        source: std::io::Error,
    },
    /// A temporary file of a sorter has changed since it was written.
    #[error("a temporary file for sorting was damaged while it was in use: {source}")]
    SpillDamaged {
        /// The reason.
        source: DecodeError,
    },
}

/// Bytes for people.
struct Hex<'a>(&'a [u8]);

impl std::fmt::Display for Hex<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

/// An object of a run is not valid.
pub(crate) fn damaged(id: RunId) -> impl FnOnce(DecodeError) -> IndexError {
    move |source| RepositoryError::Damaged { name: names::run(id), source }.into()
}

impl From<StoreError> for IndexError {
    fn from(error: StoreError) -> Self {
        Self::Repository(error.into())
    }
}

impl From<ColdError> for IndexError {
    fn from(error: ColdError) -> Self {
        match error {
            ColdError::Repository(error) => Self::Repository(error),
            ColdError::Scratch(source) => Self::Spill { doing: "use", source },
        }
    }
}

impl From<EncodeError> for IndexError {
    fn from(error: EncodeError) -> Self {
        Self::Repository(error.into())
    }
}

impl IndexError {
    /// The error when a new container gets no number any more.
    pub fn container_numbers_exhausted() -> Self {
        let why = "the numbers of containers are used up";
        RepositoryError::Unstorable(EncodeError { what: "number of a container in the index", why }).into()
    }

    /// How a caller can react to it.
    pub fn kind(&self) -> ErrorKind {
        match self {
            Self::Repository(error) | Self::NewestUnreadable { source: error } => error.kind(),
            Self::NewestLost { .. } | Self::WrongRecord { .. } | Self::Hidden { .. } => ErrorKind::Damaged,
            Self::Unstable { .. } => ErrorKind::LostRace,
            Self::NumbersExhausted { .. } => ErrorKind::Precondition,
            Self::TooManyRuns { .. } | Self::Spill { .. } | Self::SpillDamaged { .. } => ErrorKind::Resource,
            Self::NoPartition { .. } => ErrorKind::Bug,
        }
    }

    /// Whether this is about the bytes of an object, damaged or missing, and not about reaching the
    /// store.
    pub fn is_damage(&self) -> bool {
        match self {
            Self::Repository(error) | Self::NewestUnreadable { source: error } => error.is_damage(),
            Self::WrongRecord { .. } | Self::Hidden { .. } | Self::NewestLost { .. } => true,
            _ => false,
        }
    }
}
