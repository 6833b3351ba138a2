//! Checks that a store keeps the promises Larder rests on, against a user's own store or a test's.
//!
//! `larder validate-store` runs this, and so do the tests of every transport. Each check names the
//! guarantee, and the loss that Larder may have without it. All objects are below one folder of
//! their own and are deleted at the end, also after a failure. A run that is killed leaves that
//! folder behind.

mod checks;

use std::fmt;

use crate::error::StoreError;
use crate::location::Location;
use crate::store::Store;

/// The folder below which all runs work. No object of a repository is there.
pub const VALIDATION_FOLDER: &str = "validation";

/// A promise that a store must keep.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Guarantee {
    /// A created object can be read at once, whole and unchanged.
    ReadAfterCreate,
    /// A name that is taken is refused, and its object stays as it was.
    CreateIfAbsent,
    /// Of many creators at once exactly one wins, and the object is the winner's.
    OneWinner,
    /// A missing object is reported as missing.
    MissingIsNotFound,
    /// Parts of an object can be read, and one that is too short is noticed.
    RangeReads,
    /// A listing shows objects created just before, in the requested folder and no other.
    ListAfterCreate,
    /// A listing of more objects than fit one page is complete.
    ListPages,
    /// A deleted object is gone from reads and listings, and its name is free.
    Delete,
    /// Objects without a byte are objects.
    EmptyObject,
    /// All names that Larder uses, up to the longest, are kept apart.
    Names,
    /// Objects much larger than a container are stored and read in parts.
    LargeObject,
}

impl Guarantee {
    /// The loss that Larder may have on a store without this property.
    pub fn protects(self) -> &'static str {
        match self {
            Self::ReadAfterCreate => "a backup that was reported as done might not be readable",
            Self::CreateIfAbsent => "a committed version could be overwritten: do not use this store",
            Self::OneWinner => {
                "two jobs could commit the same version, and one of them would be lost: do not use this store"
            }
            Self::MissingIsNotFound => "what was never stored could not be told from what cannot be reached",
            Self::RangeReads => "restores would read whole containers, or miss bytes without noticing",
            Self::ListAfterCreate => {
                "a running job could be overlooked and its data deleted: do not delete versions on this store"
            }
            Self::ListPages => {
                "versions could be overlooked and their data deleted: do not delete versions on this store"
            }
            Self::Delete => "space would not be freed, or a deleted version would come back",
            Self::EmptyObject => "nothing today; marks without content could not be stored",
            Self::Names => "objects could replace one another: do not use this store",
            Self::LargeObject => "large containers could not be stored",
        }
    }
}

impl fmt::Display for Guarantee {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::ReadAfterCreate => "read after create",
            Self::CreateIfAbsent => "create if absent",
            Self::OneWinner => "one winner among concurrent creators",
            Self::MissingIsNotFound => "missing objects are reported as missing",
            Self::RangeReads => "range reads",
            Self::ListAfterCreate => "list after create",
            Self::ListPages => "listing of many objects",
            Self::Delete => "delete",
            Self::EmptyObject => "empty object",
            Self::Names => "object names",
            Self::LargeObject => "large object",
        })
    }
}

/// Why a check did not pass.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CheckFailure {
    /// The store failed a request.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// A request that had to be refused was not, or the other way round.
    #[error("{object}: {expected} expected, {found}")]
    Outcome {
        /// The object or folder.
        object: String,
        /// The expected result.
        expected: &'static str,
        /// The actual result.
        found: String,
    },
    /// The bytes of an object are not those that were stored.
    #[error("{object}: {found} bytes read differ from the {expected} stored")]
    Content {
        /// The object.
        object: String,
        /// How many bytes were stored.
        expected: usize,
        /// How many were read.
        found: usize,
    },
    /// Of several creators of one name, not one was told that it won.
    #[error("{winners} of {creators} concurrent creators were told that they had won")]
    Winners {
        /// How many were told so.
        winners: usize,
        /// How many there were.
        creators: usize,
    },
    /// A listing is not as required.
    #[error("listing of {folder}: {missing} objects missing, {unexpected} unexpected, of {expected}")]
    Listing {
        /// The folder.
        folder: String,
        /// How many should have been listed.
        expected: usize,
        /// How many of them were not.
        missing: usize,
        /// How many others, or with another size, were.
        unexpected: usize,
    },
}

/// The outcome of one check.
#[derive(Debug)]
pub struct CheckResult {
    /// The promise.
    pub guarantee: Guarantee,
    /// Why it is not kept, or `Ok`.
    pub outcome: Result<(), CheckFailure>,
}

/// How much a run stores.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Extent {
    /// Objects in the folder that has to be listed in pages. Stores return 1,000 to 5,000 names in
    /// one.
    pub many: usize,
    /// Bytes of the large object.
    pub large: usize,
}

impl Extent {
    /// Enough for a second page on S3, Google Cloud and MinIO, and for an object of 64 MiB.
    pub const FULL: Self = Self { many: 1100, large: 64 << 20 };
    /// The same on Azure, whose pages are the longest.
    const FULL_AZURE: Self = Self { many: 5100, ..Self::FULL };
    /// Few and small objects: every check runs, in little time.
    pub const QUICK: Self = Self { many: 40, large: 1 << 20 };

    /// All there is to try on this kind of store.
    pub fn full_for(location: &Location) -> Self {
        if matches!(location, Location::Azure { .. }) { Self::FULL_AZURE } else { Self::FULL }
    }
}

/// Runs all checks below `validation/<run>/`, reporting each as it ends. `run` must be a name that
/// no other run uses; draw it at random.
pub async fn check(
    store: &Store,
    run: &str,
    extent: Extent,
    report: &mut (dyn FnMut(&CheckResult) + Send),
) -> Vec<CheckResult> {
    let trial = checks::Trial::new(store.without_cache(), format!("{VALIDATION_FOLDER}/{run}"), extent);
    let mut results = Vec::new();
    for guarantee in ALL {
        let result = CheckResult { guarantee, outcome: trial.run(guarantee).await };
        report(&result);
        results.push(result);
    }
    if let Err(error) = trial.clean_up().await {
        let result = CheckResult { guarantee: Guarantee::Delete, outcome: Err(error.into()) };
        report(&result);
        results.push(result);
    }
    results
}

const ALL: [Guarantee; 11] = [
    Guarantee::ReadAfterCreate,
    Guarantee::MissingIsNotFound,
    Guarantee::CreateIfAbsent,
    Guarantee::OneWinner,
    Guarantee::RangeReads,
    Guarantee::ListAfterCreate,
    Guarantee::Names,
    Guarantee::EmptyObject,
    Guarantee::Delete,
    Guarantee::LargeObject,
    Guarantee::ListPages,
];
