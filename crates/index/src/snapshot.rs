//! The newest index, for readers.
//!
//! Readers take the highest number that opens. An index that lags is good enough for them, and
//! planting a higher number takes nothing from them. No decision of a void index is executed before
//! there is a higher one, so readers need not ask for marks. A pass is stricter, and asks which
//! index counts ([`Current`](crate::Current)).

use std::sync::Arc;

use larder_format::ids::{JobId, RunId};
use larder_format::index_manifest::{
    INDEX_HEAD_GUESS, INDEX_MAX, IndexHead, IndexManifest, PassStatistics, RunRef, Table,
};
use larder_format::{DecodeError, names};
use larder_store::{Repository, RepositoryError, StoreErrorKind};

use crate::error::IndexError;

/// How often a listing is repeated when listed objects are gone. A pass deletes old manifests once;
/// several in a row mean trouble.
const LISTINGS: u32 = 5;

/// One index as it was published. Cheap to clone; it never changes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IndexSnapshot {
    /// Its number; 0 is the empty index.
    pub number: u64,
    /// Its contents. Of the empty index: nothing, with number 0.
    pub manifest: Arc<IndexManifest>,
}

impl IndexSnapshot {
    /// The index of a repository that has none yet.
    pub fn empty() -> Self {
        let head = IndexHead {
            number: 0,
            pass: JobId([0; 16]),
            attempt: [0; 16],
            time_ms: 0,
            host: String::new(),
            program: String::new(),
            next_version: 0,
            next_container: 0,
            next_age: 0,
            statistics: PassStatistics::default(),
            rebuilt: None,
            dropped: None,
            missing: None,
            left: None,
            searched: None,
            unlisted: None,
            unread: None,
        };
        let manifest = IndexManifest { head, versions: Vec::new(), runs: Vec::new(), queue: Vec::new() };
        Self { number: 0, manifest: Arc::new(manifest) }
    }

    /// Finds the newest index. Asks the store, never a cache. For a key that does not open the
    /// index, there is none: backups and listings do without it.
    pub async fn newest(repository: &Repository) -> Result<Newest, IndexError> {
        if repository.keys().secrets().index.is_none() {
            let (snapshot, faulty) = (Self::empty(), Vec::new());
            return Ok(Newest { snapshot, highest: 0, faulty, numbers: Vec::new(), runs: Vec::new() });
        }
        for _ in 0..LISTINGS {
            let (listed, runs) = listed(repository).await?;
            let mut numbers = listed.clone();
            let highest = numbers.last().copied().unwrap_or(0);
            let mut faulty = Vec::new();
            let mut is_stale = false;
            let mut found = None;
            while let Some(number) = numbers.pop() {
                match read(repository, number).await {
                    Ok(Some(manifest)) => {
                        found = Some(Self { number, manifest: Arc::new(manifest) });
                        break;
                    }
                    // Deleted since the listing, so there is a newer one.
                    Ok(None) => {
                        is_stale = true;
                        break;
                    }
                    Err(error) if error.is_of_object() => {
                        tracing::warn!(number, %error, "not an index; an older one is looked for");
                        faulty.push(FaultyIndex { number, error });
                    }
                    Err(error) => return Err(error.into()),
                }
            }
            if !is_stale {
                let snapshot = found.unwrap_or_else(Self::empty);
                return Ok(Newest { snapshot, highest, faulty, numbers: listed, runs });
            }
        }
        Err(IndexError::Unstable { attempts: LISTINGS })
    }

    /// The runs of one table, oldest first.
    pub fn runs_of(&self, table: Table) -> &[RunRef] {
        self.manifest.runs_of(table)
    }
}

/// An object that has the name of an index and is none that opens.
#[derive(Debug)]
pub struct FaultyIndex {
    /// Its number.
    pub number: u64,
    /// The reason.
    pub error: RepositoryError,
}

/// The result of a look at `index/`.
#[derive(Debug)]
pub struct Newest {
    /// The highest that opens, or the empty index.
    pub snapshot: IndexSnapshot,
    /// The highest number in use, by any object.
    pub highest: u64,
    /// The objects above the snapshot that do not open, from the highest down.
    pub faulty: Vec<FaultyIndex>,
    /// The numbers of all indexes, rising.
    pub numbers: Vec<u64>,
    /// All objects of runs, whether an index names them or not, with their sizes.
    pub runs: Vec<(RunId, u64)>,
}

/// The numbers of all indexes, rising, and the runs beside them.
pub(crate) async fn listed(repository: &Repository) -> Result<(Vec<u64>, Vec<(RunId, u64)>), IndexError> {
    let (mut numbers, runs) = repository.list_index().await?;
    numbers.sort_unstable();
    Ok((numbers, runs))
}

/// Reads a manifest; `None` when it is not there.
pub(crate) async fn read(repository: &Repository, number: u64) -> Result<Option<IndexManifest>, RepositoryError> {
    let name = names::index(number);
    let is_sound = |bytes: &[u8]| IndexManifest::decode(repository.keys(), number, bytes).is_ok();
    let bytes = match repository.store().without_cache().get_sound(&name, INDEX_MAX, is_sound).await {
        Ok(bytes) => bytes,
        Err(error) if error.kind == StoreErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error.into()),
    };
    let damaged = |source| RepositoryError::Damaged { name: name.clone(), source };
    IndexManifest::decode(repository.keys(), number, &bytes).map(Some).map_err(damaged)
}

/// The attempt id of the manifest with a number; `None` when there is no such object, zeros when it
/// does not open.
pub(crate) async fn attempt_at(repository: &Repository, number: u64) -> Result<Option<[u8; 16]>, IndexError> {
    Ok(match read_head(repository, number).await {
        Ok(head) => head.map(|head| head.attempt),
        Err(error) if error.is_of_object() => Some([0; 16]),
        Err(error) => return Err(error.into()),
    })
}

/// Reads the head of a manifest, `None` when there is no such object.
async fn read_head(repository: &Repository, number: u64) -> Result<Option<IndexHead>, RepositoryError> {
    let name = names::index(number);
    let store = repository.store().without_cache();
    let damaged = |source| RepositoryError::Damaged { name: name.clone(), source };
    let size = match store.size(&name).await {
        Ok(size) => size,
        Err(error) if error.kind == StoreErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error.into()),
    };
    let bytes = store.get_range(&name, 0..size.min(INDEX_HEAD_GUESS)).await?;
    let needed = match IndexHead::decode_head(repository.keys(), number, &bytes).map_err(damaged)? {
        Ok(head) => return Ok(Some(head)),
        Err(needed) => needed,
    };
    let bytes = store.get_range(&name, 0..needed).await?;
    match IndexHead::decode_head(repository.keys(), number, &bytes).map_err(damaged)? {
        Ok(head) => Ok(Some(head)),
        Err(_) => Err(damaged(DecodeError::Truncated { what: "index manifest" })),
    }
}
