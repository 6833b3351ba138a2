//! The newest index, and publishing the next one.
//!
//! Readers take the highest number that opens: an index that lags is good enough for them, and whoever may create objects
//! takes nothing from them by planting a higher one. A pass is stricter: it builds on the highest number or not at all, because
//! what does not open now may have been whole when another pass acted on it ([`Newest::base`]).
//!
//! Invariants (`docs/concurrency.md`, rule `PublishFirst`)
//! * One pass wins a number. Its manifest has a random attempt id, so a create without an answer is settled by reading back.
//! * The winner looks once more whether its number is the highest: numbers of deleted indexes can be won again, by a pass that
//!   slept for long, and such a victory counts for nothing.
//! * Before there is an index there is the mark that says so, which outlives all of them (`mark`).

use std::sync::Arc;

use larder_format::ids::{JobId, RunId};
use larder_format::index_manifest::{
    INDEX_HEAD_GUESS, INDEX_MAX, IndexHead, IndexManifest, PassStatistics, RunRef, Table,
};
use larder_format::{DecodeError, names};
use larder_store::repository::random;
use larder_store::{Repository, RepositoryError, StoreErrorKind};

use crate::error::IndexError;
use crate::mark::{Marked, mark_as_indexed};

/// How often a listing is repeated when what it named is gone. A pass deletes old manifests once; several in a row mean trouble.
const LISTINGS: u32 = 5;

/// One index as it was published. Cheap to clone; it never changes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IndexSnapshot {
    /// Its number; 0 is the empty index.
    pub number: u64,
    /// What it says. Of the empty index: nothing, with number 0.
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
        };
        let manifest = IndexManifest { head, versions: Vec::new(), runs: Vec::new(), queue: Vec::new() };
        Self { number: 0, manifest: Arc::new(manifest) }
    }

    /// Finds the newest index. Asks the store, never a cache.
    pub async fn newest(repository: &Repository) -> Result<Newest, IndexError> {
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
    /// What is wrong with it.
    pub error: RepositoryError,
}

/// What a look at `index/` found.
#[derive(Debug)]
pub struct Newest {
    /// The highest that opens, or the empty index.
    pub snapshot: IndexSnapshot,
    /// The highest number in use, by whatever.
    pub highest: u64,
    /// What lies above the snapshot and does not open, from the highest down.
    pub faulty: Vec<FaultyIndex>,
    /// The numbers of all indexes, rising.
    pub numbers: Vec<u64>,
    /// All objects of runs, whether an index names them or not, with their sizes.
    pub runs: Vec<(RunId, u64)>,
}

impl Newest {
    /// The snapshot, for whoever builds on it or deletes on its strength: an error if anything lies above it.
    pub fn base(self) -> Result<IndexSnapshot, IndexError> {
        match self.faulty.into_iter().next() {
            None => Ok(self.snapshot),
            Some(faulty) => Err(IndexError::NewestUnreadable { source: faulty.error }),
        }
    }

    /// The number that the next index has.
    pub fn next_number(&self) -> Result<u64, IndexError> {
        self.highest.checked_add(1).ok_or(IndexError::NumbersExhausted { highest: self.highest })
    }
}

/// What became of an attempt to publish an index.
#[derive(Debug)]
pub enum Published {
    /// It is the newest index.
    Won {
        /// As it is stored.
        snapshot: IndexSnapshot,
        /// Whether every attempt to create it was answered. When not, one of them may land again after the index was deleted, and
        /// the pass must leave its lease open (`CloseOnlyAnswered`).
        all_answered: bool,
    },
    /// Another pass has the number: nothing of this one counts, and its containers and runs are orphans of its job.
    Lost,
    /// It was created, but a higher number exists: by a pass that built on it, or because its own number was in use long ago.
    /// The pass carries out nothing of its decision and deletes nothing, not even what it wrote: the next pass knows.
    Overtaken {
        /// The highest number.
        highest: u64,
    },
}

/// Publishes `manifest` under `number`, which its head and attempt id are set to fit. Runs and versions are sorted.
///
/// Every object that the manifest leads to must be durable, and `number` be from a [`Newest`] of before the decision was made.
/// An error leaves the outcome open: whoever gets one looks at the newest index again, and deletes nothing until it knows.
pub async fn publish(
    repository: &Repository,
    number: u64,
    mut manifest: IndexManifest,
) -> Result<Published, IndexError> {
    manifest.sort();
    manifest.head.number = number;
    manifest.head.attempt = random(repository.entropy())?;
    let bytes = manifest.encode(repository.keys(), random(repository.entropy())?)?;
    let name = names::index(number);
    let is_rebuilt = manifest.head.rebuilt.is_some();
    // Who found neither an index nor the mark builds on nothing. If there is the mark now, there has been an index since, from which
    // others may have decided: it is not to matter whether it is lost again.
    if number == 1 || is_rebuilt {
        let marked = mark_as_indexed(repository).await?;
        if marked == Marked::Before && !is_rebuilt {
            return Ok(Published::Lost);
        }
    }
    let all_answered = match repository.store().create(&name, bytes.into()).await {
        Ok(created) => created.all_answered,
        Err(error) if error.kind == StoreErrorKind::AlreadyExists => return Ok(Published::Lost),
        // The outcome is open. What lies there now tells, unless it is nothing: then it may still come.
        Err(error) => match attempt_at(repository, number).await {
            Ok(Some(attempt)) if attempt == manifest.head.attempt => false,
            Ok(Some(_)) => return Ok(Published::Lost),
            Ok(None) | Err(_) => return Err(error.into()),
        },
    };
    let highest = listed(repository).await?.0.last().copied().unwrap_or(0);
    if highest > number {
        return Ok(Published::Overtaken { highest });
    }
    Ok(Published::Won { snapshot: IndexSnapshot { number, manifest: Arc::new(manifest) }, all_answered })
}

/// The numbers of all indexes, rising, and the runs beside them.
async fn listed(repository: &Repository) -> Result<(Vec<u64>, Vec<(RunId, u64)>), IndexError> {
    let (mut numbers, runs) = repository.list_index().await?;
    numbers.sort_unstable();
    Ok((numbers, runs))
}

/// Reads a manifest; `None` when it is not there.
async fn read(repository: &Repository, number: u64) -> Result<Option<IndexManifest>, RepositoryError> {
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

/// The attempt id of the manifest with a number; `None` when there is no such object, zeros when it does not open.
async fn attempt_at(repository: &Repository, number: u64) -> Result<Option<[u8; 16]>, IndexError> {
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
