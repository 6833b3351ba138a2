//! Marks: objects whose existence has a meaning, and the treatment of planted ones.
//!
//! Any client that may create objects can take a name. So a taken name proves nothing. The object
//! counts only if it opens, because its key follows from its name. An object that does not open is
//! a [`FaultyObject`], to be shown to people.
//!
//! The safe assumption depends on the caller. A listing continues as if an unreadable mark did not
//! exist, because otherwise anyone could hide versions. It reads through the cache. There, a copy
//! of a planted object that was removed since may be in the place of the genuine one. So an object
//! that does not open is fetched again from the store. A job that would *build* on the subject of
//! the mark (`jobs.rs`) does without it. The mark may have been whole when another program read it
//! and began to delete.

use larder_format::ids::{DomainId, JobId, SeriesKey};
use larder_format::lease::{Done, Pin};
use larder_format::manifest::Register;
use larder_format::mark::{Forgotten, MARK_MAX};
use larder_format::{DecodeError, names};

use crate::repository::{Repository, RepositoryError, exists, random};
use crate::{Store, StoreErrorKind};

/// A damaged or planted object that does not open, and that takes nothing away from the existing
/// versions.
#[derive(Debug)]
pub struct FaultyObject {
    /// Its name.
    pub name: String,
    /// The version or job it pretends to be about.
    pub job: JobId,
    /// The reason.
    pub error: RepositoryError,
}

/// A version, and the domain whose secrets seal what is said about it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OwnedVersion {
    /// Whose it is.
    pub domain: DomainId,
    /// Which version.
    pub version: Pin,
}

/// A version of the default domain.
impl From<Pin> for OwnedVersion {
    fn from(version: Pin) -> Self {
        Self { domain: DomainId::DEFAULT, version }
    }
}

impl Repository {
    /// Marks a version as forgotten. Succeeds also if another program has marked it before. Only
    /// for callers that know that it is not pinned and cannot be pinned any more:
    /// [`Repository::forget`](crate::Repository::forget).
    pub(crate) async fn mark_forgotten(
        &self,
        OwnedVersion { domain, version }: OwnedVersion,
        mark: &Forgotten,
    ) -> Result<(), RepositoryError> {
        let name = names::forgotten(version.series, version.job);
        let bytes = mark.encode(&self.keys, domain, version.series, version.job, random(self.entropy())?)?;
        match self.store.create(&name, bytes.into()).await {
            Err(error) if error.kind == StoreErrorKind::AlreadyExists => match self.forgotten(version).await? {
                Some(_) => Ok(()),
                // Removed meanwhile with all of its version, or never there: then the version is
                // not forgotten.
                None => Err(error.into()),
            },
            result => Ok(result.map(drop)?),
        }
    }

    /// The mark that a version is forgotten, if there is one: asked of the store, never of a cache.
    /// A mark that does not open is an error; a caller that would act on its absence must not.
    pub async fn forgotten(&self, version: Pin) -> Result<Option<Forgotten>, RepositoryError> {
        self.read_forgotten(&self.store.without_cache(), version.series, version.job).await
    }

    /// Whether a job has closed its lease. A closing mark that does not open is an error.
    pub async fn is_closed(&self, job: JobId) -> Result<bool, RepositoryError> {
        Ok(self.closing_mark(job).await?.is_some())
    }

    /// How a job ended, if it has closed its lease: asked of the store, never of a cache. A closing
    /// mark that does not open is an error.
    pub async fn closing_mark(&self, job: JobId) -> Result<Option<Done>, RepositoryError> {
        self.read_done(&self.store.without_cache(), job).await
    }

    pub(crate) async fn read_forgotten(
        &self,
        store: &Store,
        series: SeriesKey,
        job: JobId,
    ) -> Result<Option<Forgotten>, RepositoryError> {
        let name = names::forgotten(series, job);
        read_mark(store, &name, |bytes| Forgotten::decode(&self.keys, series, job, bytes)).await
    }

    pub(crate) async fn read_done(&self, store: &Store, job: JobId) -> Result<Option<Done>, RepositoryError> {
        let done = read_mark(store, &names::lease_done(job), |bytes| Done::decode(&self.keys, job, bytes)).await?;
        match done {
            Some(done)
                if !self.is_of_owner(job, done.domain).await? && !self.has_committed_there(job, &done).await? =>
            {
                Ok(None)
            }
            done => Ok(done),
        }
    }
}

impl Repository {
    /// Whether the lease of a job is gone and its register is in the domain of this closing mark. A
    /// pass removes the lease of a job that it has seen to be over, and may remove the rest later.
    async fn has_committed_there(&self, job: JobId, done: &Done) -> Result<bool, RepositoryError> {
        let Some(series) = done.series else { return Ok(false) };
        if exists(&self.store.without_cache(), &names::lease(job, 0)).await? {
            return Ok(false);
        }
        let register = match self.read_register(Pin { series, job }, 0).await {
            Err(error) if error.is_of_object() || error.is_foreign() => return Ok(false),
            register => register?,
        };
        Ok(matches!(register, Some(Register::Committed(manifest)) if manifest.summary.domain == done.domain))
    }
}

/// Reads and opens a mark, at the second try past the cache.
async fn read_mark<T>(
    store: &Store,
    name: &str,
    decode: impl Fn(&[u8]) -> Result<T, DecodeError>,
) -> Result<Option<T>, RepositoryError> {
    let Some(bytes) = read_if_there(store, name, MARK_MAX).await? else { return Ok(None) };
    if let Ok(mark) = decode(&bytes) {
        return Ok(Some(mark));
    }
    let again = store.without_cache().get_sound(name, MARK_MAX, |bytes| decode(bytes).is_ok()).await;
    let bytes = match again {
        Ok(bytes) => bytes,
        Err(error) if error.kind == StoreErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error.into()),
    };
    decode(&bytes).map(Some).map_err(RepositoryError::damaged(name))
}

/// Reads an object of at most `most` bytes, or finds that it is not there.
pub(crate) async fn read_if_there(
    store: &Store,
    name: &str,
    most: u64,
) -> Result<Option<bytes::Bytes>, RepositoryError> {
    match store.get_up_to(name, most).await {
        Ok(bytes) => Ok(Some(bytes)),
        Err(error) if error.kind == StoreErrorKind::NotFound => Ok(None),
        Err(error) => Err(error.into()),
    }
}
