//! The object `config`, and its replacement when it is missing or damaged.
//!
//! | `config`                      | taken instead                                                          |
//! |-------------------------------|------------------------------------------------------------------------|
//! | genuine                       | nothing                                                                |
//! | missing, damaged, unreadable  | the copy in the key that opens, once the master key has proved it      |
//! | the same, and no key is left  | with the paper key: the repository's id and the newest version's sizes |
//!
//! Invariants
//! * No part of a copy is trusted before it is verified with the master key.
//! * A key whose copy names another repository is foreign: a parallel `init` that lost made it. No
//!   password is tried on it.

use std::sync::Arc;

use futures::StreamExt;
use larder_chunking::{Algorithm, ChunkerParams, DEFAULT_AVERAGE};
use larder_format::DecodeError;
use larder_format::config::{CONFIG_MAX, Config, UnverifiedConfig};
use larder_format::ids::{KeyId, RepositoryId};
use larder_format::key_file::{self, KdfCost};
use larder_format::keys::{Keys, MasterKey};
use larder_format::names;

use crate::foreign_config::{first_object, or_of_other_program};
use crate::key_object::read_key;
use crate::repository::{CONCURRENT_READS, Entropy, Repository, RepositoryError};
use crate::{Store, StoreError, StoreErrorKind};

/// Reads the configuration without the key: whether there is a repository at all, and which.
pub async fn read_config(store: &Store) -> Result<UnverifiedConfig, RepositoryError> {
    let is_sound = |bytes: &[u8]| UnverifiedConfig::decode(bytes).is_ok();
    let bytes = store.get_sound(names::CONFIG, CONFIG_MAX, is_sound).await.map_err(|error| match error.kind {
        StoreErrorKind::NotFound => RepositoryError::NotARepository { location: store.to_string() },
        _ => error.into(),
    })?;
    UnverifiedConfig::decode(&bytes).map_err(RepositoryError::damaged(names::CONFIG))
}

/// A repository that a key may open, before one has opened it.
#[derive(Debug, Clone, Default)]
pub struct FoundConfig {
    /// The configuration as it was read; `None`: only a key has a copy of it.
    pub(crate) config: Option<UnverifiedConfig>,
    /// The keys as they were listed beside it, if they were.
    pub(crate) keys: Option<Vec<KeyId>>,
}

impl FoundConfig {
    /// The id that the configuration claims. Nobody has verified it yet.
    pub fn claimed_repository(&self) -> Option<RepositoryId> {
        self.config.as_ref().map(UnverifiedConfig::claimed_repository)
    }
}

/// Finds out whether there is a repository that a key may open: a configuration, or a key with a
/// copy of it.
pub async fn find_config(store: &Store) -> Result<FoundConfig, RepositoryError> {
    found_config(store, read_config(store).await, None).await
}

/// The same, and lists the keys beside, for a caller that does not know which of them it needs.
pub async fn find_config_and_keys(store: &Store) -> Result<FoundConfig, RepositoryError> {
    let (config, keys) = futures::join!(read_config(store), listed_keys(store));
    // A listing that failed is made again by the code that needs it, which reports the error.
    found_config(store, config, keys.ok()).await
}

async fn found_config(
    store: &Store,
    config: Result<UnverifiedConfig, RepositoryError>,
    keys: Option<Vec<KeyId>>,
) -> Result<FoundConfig, RepositoryError> {
    let error = match config {
        Ok(config) => return Ok(FoundConfig { config: Some(config), keys }),
        Err(error) if is_replaceable(&error) => error,
        Err(error) => return Err(error),
    };
    if candidates(store, None).await?.found.iter().any(|candidate| candidate.copy.is_some()) {
        return Ok(FoundConfig::default());
    }
    match error {
        RepositoryError::NotARepository { location } => Err(match first_object(store).await? {
            Some(name) => RepositoryError::ConfigMissing { location, name },
            None => RepositoryError::NotARepository { location },
        }),
        error => Err(or_of_other_program(store, error).await),
    }
}

/// Whether a copy may replace a configuration that was not read for this reason. One that claims
/// another format may be right, and a copy must not hide its requirements.
pub(crate) fn is_replaceable(error: &RepositoryError) -> bool {
    let is_of_other_program = |source: &DecodeError| {
        matches!(
            source,
            DecodeError::UnsupportedVersion { .. }
                | DecodeError::UnknownFeature { .. }
                | DecodeError::Development { .. }
        )
    };
    if matches!(error, RepositoryError::Damaged { source, .. } if is_of_other_program(source)) {
        return false;
    }
    matches!(error, RepositoryError::NotARepository { .. }) || error.is_of_object()
}

/// A key, with its copy of the configuration.
pub(crate) struct Candidate {
    pub(crate) id: KeyId,
    pub(crate) bytes: bytes::Bytes,
    pub(crate) copy: Option<UnverifiedConfig>,
    /// What one guess at its password costs; `None`: a key file opens it.
    pub(crate) cost: Option<KdfCost>,
}

/// All keys that can be read.
pub(crate) struct Candidates {
    pub(crate) found: Vec<Candidate>,
    pub(crate) unreadable: usize,
    pub(crate) first_unreadable: Option<RepositoryError>,
}

async fn listed_keys(store: &Store) -> Result<Vec<KeyId>, StoreError> {
    Ok(store.list(names::KEYS).await?.iter().filter_map(|object| names::parse_key(&object.name)).collect())
}

/// Reads all keys, `listed` or those that a listing shows now; those that are tried soonest first:
/// the cheapest, so that a planted one cannot keep others waiting.
pub(crate) async fn candidates(store: &Store, listed: Option<&[KeyId]>) -> Result<Candidates, RepositoryError> {
    let mut all = Candidates { found: Vec::new(), unreadable: 0, first_unreadable: None };
    let ids = match listed {
        Some(ids) => ids.to_vec(),
        None => listed_keys(store).await?,
    };
    let reads = ids.into_iter().map(|id| async move { (id, read_key(store, id).await) });
    let mut reads = futures::stream::iter(reads).buffered(CONCURRENT_READS);
    while let Some((id, read)) = reads.next().await {
        let error = match read {
            Ok(None) => continue,
            Ok(Some(bytes)) => match key_file::config_copy(&bytes) {
                Ok(copy) => {
                    let copy = UnverifiedConfig::decode(&copy).ok();
                    let cost = key_file::read_fields(&bytes).ok().and_then(|fields| fields.cost);
                    all.found.push(Candidate { id, bytes, copy, cost });
                    continue;
                }
                Err(source) => RepositoryError::Damaged { name: names::key(id), source },
            },
            // Errors that prevent reading any object ended with the configuration; this is about
            // one object.
            Err(error) if !error.is_outage() => error.into(),
            Err(error) => return Err(error.into()),
        };
        all.unreadable += 1;
        all.first_unreadable.get_or_insert(error);
    }
    all.found.sort_by_key(|candidate| (candidate.cost.map(KdfCost::work), candidate.id));
    Ok(all)
}

/// The copy of the configuration that the master key proves, among all keys.
pub(crate) async fn genuine_copy(
    store: &Store,
    keys: &Keys,
    repository: Option<RepositoryId>,
) -> Result<Option<(Config, Vec<u8>)>, RepositoryError> {
    for candidate in candidates(store, None).await?.found {
        let Some(copy) = candidate.copy else { continue };
        let bytes = copy.bytes().to_vec();
        let Ok(config) = copy.verify(keys) else { continue };
        if repository.is_none_or(|repository| config.repository == repository) {
            return Ok(Some((config, bytes)));
        }
    }
    Ok(None)
}

/// A configuration made again from the newest version that this master key opens: `None` without
/// one.
///
/// Only writers need its chunk sizes. Other sizes than before cost duplicates that are not found,
/// never data.
pub(crate) async fn estimated(
    store: &Store,
    master: &MasterKey,
    repository: RepositoryId,
    entropy: &Arc<dyn Entropy>,
) -> Result<Option<Config>, RepositoryError> {
    let chunker = ChunkerParams::with_average(Algorithm::DEFAULT, DEFAULT_AVERAGE);
    let config = Config { repository, created_ms: 0, chunker, page_cuts: true };
    let looking = Repository::new(store.clone(), Keys::derive(master), config.clone(), None, entropy.clone());
    let catalog = looking.catalog().await?;
    let Some(oldest) = catalog.versions.first() else { return Ok(None) };
    let counted = catalog.versions.iter().rev().map(|version| &version.summary.statistics).find(|all| all.chunks > 0);
    let mean = counted.map_or(0, |all| all.logical_bytes / all.chunks.max(1));
    let average = u32::try_from(mean).ok().and_then(u32::checked_next_power_of_two).unwrap_or(DEFAULT_AVERAGE);
    // Ends of files pull the mean down, and never up.
    let params = ChunkerParams::with_average(Algorithm::DEFAULT, average.max(DEFAULT_AVERAGE));
    let chunker = if mean > u64::from(DEFAULT_AVERAGE) * 3 / 2 && params.validate().is_ok() { params } else { chunker };
    Ok(Some(Config { created_ms: oldest.summary.time_ms, chunker, ..config }))
}

impl Repository {
    /// The bytes of `config`: those that were read, or made again by who can sign them.
    pub(crate) fn bytes_of_config(&self) -> Result<Vec<u8>, RepositoryError> {
        match &self.config_bytes {
            Some(bytes) => Ok(bytes.to_vec()),
            None => Ok(self.config.encode(&self.keys)?),
        }
    }

    /// Why the object `config` is not the one in use: it is missing or damaged, and a copy replaces
    /// it.
    pub fn config_problem(&self) -> Option<&RepositoryError> {
        self.config_problem.as_deref()
    }

    /// Creates `config` again from its copy; a damaged one is deleted first. Whether anything was
    /// to be done.
    pub async fn restore_config(&self) -> Result<bool, RepositoryError> {
        let Some(problem) = &self.config_problem else { return Ok(false) };
        if !matches!(**problem, RepositoryError::NotARepository { .. }) {
            self.store.delete(names::CONFIG).await?;
        }
        let bytes = self.bytes_of_config()?;
        match self.store.create(names::CONFIG, bytes.into()).await {
            Ok(_) => Ok(true),
            // Another process was first; its result has to be genuine.
            Err(error) if error.kind == StoreErrorKind::AlreadyExists => {
                let config = read_config(&self.store).await?;
                config.verify(&self.keys).map_err(RepositoryError::damaged(names::CONFIG))?;
                Ok(true)
            }
            Err(error) => Err(error.into()),
        }
    }
}
