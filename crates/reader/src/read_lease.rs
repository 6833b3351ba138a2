//! The announcement of a job that reads, and its second looks.
//!
//! The reader's part of `docs/concurrency.md`: the lease that names the versions comes first. Then
//! each version is looked at in the store itself (the mark, then the register), and only present
//! versions are read. The lease is renewed while the job runs and closed when it ends. If the store
//! accepts no lease, the job reads all the same, with a note. A missing object is looked at again
//! before it counts as damage: a mark, or an absent register, means "forgotten meanwhile".
//!
//! Called by restore, check and dump. Not here: the choice of versions, and the treatment of
//! damage.

use larder_format::ErrorKind;
use larder_format::ids::JobId;
use larder_format::lease::{Done, JobKind, Lease, Pin};
use larder_format::manifest::{MANIFEST_MAX, Manifest, Register};
use larder_format::names;
use larder_index::Executor;
use larder_job::{Ending, JobContext, LeaseKeeper};
use larder_store::catalog::Version;
use larder_store::generations::NOT_A_GENERATION;
use larder_store::repository::random;
use larder_store::{Repository, RepositoryError, StoreErrorKind};

/// The reason why a version cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// It was forgotten after it had been listed.
    #[error("snapshot {} was forgotten meanwhile", id.short())]
    Forgotten {
        /// Its id.
        id: JobId,
    },
    /// The repository failed.
    #[error(transparent)]
    Repository(#[from] RepositoryError),
}

impl ReadError {
    /// The reaction that a caller can choose.
    pub fn kind(&self) -> ErrorKind {
        match self {
            Self::Forgotten { .. } => ErrorKind::Precondition,
            Self::Repository(error) => error.kind(),
        }
    }
}

/// The lease of a read does not count any more.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the lease of this read was lost, so a pass may delete the data of snapshot {}; start again", id.short())]
pub struct LeaseLost {
    /// The version's id.
    pub id: JobId,
}

impl LeaseLost {
    /// The reaction that a caller can choose.
    pub fn kind(&self) -> ErrorKind {
        ErrorKind::LostRace
    }
}

/// The name of a version in a lease and in the looks after it.
pub fn pin_of(version: &Version) -> Pin {
    Pin { series: version.series, job: version.id() }
}

/// Looks at a version in the store itself, mark first: its newest manifest, or `None` when it is
/// forgotten.
pub async fn look(repository: &Repository, version: &Version) -> Result<Option<Manifest>, RepositoryError> {
    // The listing only tells which manifest to read below, and that comes after the mark.
    let (mark, newest) = futures::join!(repository.forgotten(pin_of(version)), repository.newest_generation(version));
    match mark {
        Ok(None) => {}
        Ok(Some(_)) => return Ok(None),
        // Anyone may create an object with the mark's name. If it counted as a mark, nothing could
        // be restored; if it once was one, the missing objects will show it.
        Err(error) if error.is_of_object() => tracing::warn!(%error, "a mark cannot be read, and does not count"),
        Err(error) => return Err(error),
    }
    // Not the listed generation: it may have been superseded before the announcement. If none can
    // be read now, that one gives the reason.
    let newest = newest?;
    let Version { series, generation, summary, .. } = newest.as_ref().unwrap_or(version);
    let store = repository.store().without_cache();
    let name = names::version(*series, version.id(), *generation);
    let is_sound =
        |bytes: &[u8]| Manifest::decode(repository.keys(), *series, version.id(), *generation, bytes).is_ok();
    let bytes = match store.get_sound(&name, MANIFEST_MAX, is_sound).await {
        Ok(bytes) => bytes,
        Err(error) if error.kind == StoreErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error.into()),
    };
    match Manifest::decode(repository.keys(), *series, version.id(), *generation, &bytes) {
        Ok(Register::Committed(manifest)) if manifest.summary.roots == summary.roots => Ok(Some(manifest)),
        Ok(Register::Committed(_)) => Err(RepositoryError::Damaged { name, source: NOT_A_GENERATION }),
        // A late fence, after everything else of the version was removed.
        Ok(Register::Aborted) => Ok(None),
        Err(source) => Err(RepositoryError::Damaged { name, source }),
    }
}

/// The first look at a version after its lease. It asks as [`look`] does. A manifest that was just
/// read to find the version is not read again: the listing shows, after the mark, that its register
/// is there and which generation is the newest.
async fn first_look(repository: &Repository, version: &Version) -> Result<Option<Manifest>, RepositoryError> {
    if repository.just_read_manifest(version).is_some()
        && matches!(repository.forgotten(pin_of(version)).await, Ok(None))
        && let Some(newest) = repository.newest_generation(version).await?
        && let Some(manifest) = repository.just_read_manifest(&newest)
    {
        return Ok(Some(manifest));
    }
    look(repository, version).await
}

/// The manifest of a version for a reader: where a later generation is damaged or forged behind its
/// head, that of the next lower one. `read` is the result of reading the first one.
pub(crate) async fn or_lower(
    repository: &Repository,
    version: &Version,
    read: Result<Option<Manifest>, RepositoryError>,
) -> Result<Option<Manifest>, RepositoryError> {
    let error = match read {
        Err(error) if error.is_of_object() => error,
        read => return read,
    };
    let mut at = repository.newest_generation(version).await?.unwrap_or_else(|| version.clone());
    while let Some(lower) = repository.lower_generation(&at).await? {
        match repository.manifest(&lower).await {
            Ok(manifest) => {
                tracing::warn!(%error, "a manifest does not count; the next lower generation is read");
                return Ok(Some(manifest));
            }
            Err(error) if error.is_of_object() => at = lower,
            Err(error) => return Err(error),
        }
    }
    Err(error)
}

/// Looks at a version after the lease that names it, as a backup does with a base: mark, register,
/// newest generation.
pub async fn look_at(repository: &Repository, version: &Version) -> Result<Option<Version>, RepositoryError> {
    match repository.is_retained(pin_of(version)).await? {
        true => repository.buildable_generation(version).await,
        false => Ok(None),
    }
}

/// The lease of a job that reads. A drop without [`ReadLease::close`] ends its renewals, and it
/// expires.
#[derive(Debug)]
pub struct ReadLease {
    /// `None`: the store accepted no lease.
    keeper: Option<(JobId, LeaseKeeper)>,
}

impl ReadLease {
    /// Announces that `pins` are read. Never fails: a store that accepts no new objects must still
    /// return its old ones.
    pub fn take(context: &JobContext, series: String, pins: Vec<Pin>) -> Self {
        let keeper = match open(context, &series, pins) {
            Ok(keeper) => Some(keeper),
            Err(error) => {
                tracing::warn!(%error, "reading without a lease");
                // A mount that is read-only is one for all clients, and the error says so.
                let why = match &error {
                    RepositoryError::Store(store) if store.kind == StoreErrorKind::ReadOnly => error.to_string(),
                    _ => format!("the repository is read-only for this client ({error})"),
                };
                context.progress.note(&format!(
                    "{why}: no lease was created, so a concurrent pass may remove data while this runs"
                ));
                None
            }
        };
        Self { keeper }
    }

    /// Whether there is one. A store that accepts no new objects has none.
    pub fn is_held(&self) -> bool {
        self.keeper.is_some()
    }

    /// The id of the lease, if there is one.
    pub fn job(&self) -> Option<JobId> {
        self.keeper.as_ref().map(|(job, _)| *job)
    }

    /// Whether the lease does not count any more.
    pub fn is_lost(&self) -> bool {
        self.keeper.as_ref().is_some_and(|(_, keeper)| keeper.is_lost())
    }

    /// The job is over.
    pub fn close(self) {
        if let Some((_, keeper)) = self.keeper {
            keeper.end(Ending::Closed(Done::nothing()));
        }
    }
}

fn open(context: &JobContext, series: &str, pins: Vec<Pin>) -> Result<(JobId, LeaseKeeper), RepositoryError> {
    let lease = Lease { pins, ..context.lease(JobKind::Read, series) };
    let job = JobId::new(lease.written_ms, random(context.repository.entropy())?);
    Ok((job, LeaseKeeper::open(context, job, lease)?))
}

/// One version being read: announced, then found present, and looked at again when an object is
/// missing.
#[derive(Debug)]
pub struct Reading {
    lease: ReadLease,
    runtime: Executor,
    repository: Repository,
    version: Version,
}

impl Reading {
    /// Creates the lease, then reads the newest manifest of the version from the store itself.
    ///
    /// Errors: the version was forgotten, or the repository failed. A lease that the store refuses
    /// is no error.
    pub fn begin(context: &JobContext, version: &Version) -> Result<(Self, Manifest), ReadError> {
        let lease = ReadLease::take(context, version.summary.series.clone(), vec![pin_of(version)]);
        let (runtime, repository) = (context.executor.clone(), context.repository.clone());
        let reading = Self { lease, runtime, repository, version: version.clone() };
        let repository = &reading.repository;
        let looked = async { or_lower(repository, version, first_look(repository, version).await).await };
        match reading.runtime.block_on(looked) {
            Ok(Some(manifest)) => Ok((reading, manifest)),
            other => {
                reading.end();
                other?;
                Err(ReadError::Forgotten { id: version.id() })
            }
        }
    }

    /// Whether the version is forgotten by now. Must be asked before a missing object counts as
    /// damage.
    ///
    /// If the store cannot tell, the answer is no: a false report of damage is found out sooner
    /// than unreported damage.
    pub fn is_forgotten(&self) -> bool {
        matches!(self.runtime.block_on(look(&self.repository, &self.version)), Ok(None))
    }

    /// An error when the version is forgotten by now.
    pub fn expect_there(&self) -> Result<(), ReadError> {
        if self.is_forgotten() { Err(ReadError::Forgotten { id: self.version.id() }) } else { Ok(()) }
    }

    /// Whether a lease protects the version.
    pub fn has_lease(&self) -> bool {
        self.lease.is_held()
    }

    /// An error when the lease does not count any more. A long read asks now and then.
    pub fn expect_lease(&self) -> Result<(), LeaseLost> {
        if self.lease.is_lost() { Err(LeaseLost { id: self.version.id() }) } else { Ok(()) }
    }

    /// The version was read: closes the lease.
    pub fn end(self) {
        self.lease.close();
    }
}

/// Whether an error says that an object is not there. Forgetting explains that, and damage does
/// not.
pub fn is_missing(error: &RepositoryError) -> bool {
    matches!(error, RepositoryError::Store(error) if error.kind == StoreErrorKind::NotFound)
}
