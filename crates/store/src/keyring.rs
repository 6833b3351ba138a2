//! The keys of a repository: several passwords may open one master key.
//!
//! Removing a key or changing a password does not change the master key: who has it (or had the old password and a copy of
//! `keys/`) still reads everything. `docs/threat-model.md` says what to do after a leak.

use larder_format::ids::KeyId;
use larder_format::key_file::{self, KEY_MAX, KeyFields, PaperError};
use larder_format::names;
use subtle::ConstantTimeEq;

use crate::repository::{Entropy, Repository, RepositoryError, random, read_config};
use crate::{Store, StoreError, StoreErrorKind};

/// Keys that are tried with a password. Each costs seconds at worst, and tells a hostile store whether the password is the one
/// it was made for.
pub const KEYS_TRIED_MAX: usize = 64;

/// One key as a listing shows it.
#[derive(Debug, Clone)]
pub struct KeyInfo {
    /// Its id.
    pub id: KeyId,
    /// What is not secret. Not authenticated.
    pub fields: KeyFields,
}

/// An object under `keys/` that is no key.
#[derive(Debug)]
pub struct UnreadableKey {
    /// Its id.
    pub id: KeyId,
    /// What is wrong with it.
    pub error: RepositoryError,
}

/// All keys of a repository.
#[derive(Debug, Default)]
pub struct KeyList {
    /// Those that can be read, oldest first. Whether they are genuine, only their passwords tell.
    pub keys: Vec<KeyInfo>,
    /// Those that cannot, by id.
    pub unreadable: Vec<UnreadableKey>,
}

impl Repository {
    /// Wraps the master key under one more password. `fields.salt` is drawn here.
    pub async fn add_key(&self, password: &[u8], mut fields: KeyFields) -> Result<KeyId, RepositoryError> {
        let id = KeyId(random(self.entropy())?);
        fields.salt = random(self.entropy())?;
        let (master, repository) = (self.master.clone(), self.config.repository);
        let password = zeroize::Zeroizing::new(password.to_vec());
        let work = move || key_file::wrap(&master, &password, &fields, id, repository);
        let wrapped = match tokio::task::spawn_blocking(work).await {
            Ok(result) => result?,
            Err(panic) => std::panic::resume_unwind(panic.into_panic()),
        };
        self.store.create(&names::key(id), wrapped.into()).await?;
        Ok(id)
    }

    /// All keys there are.
    pub async fn list_keys(&self) -> Result<KeyList, RepositoryError> {
        let mut list = KeyList::default();
        for object in self.store.list(names::KEYS).await? {
            let Some(id) = names::parse_key(&object.name) else { continue };
            let read = match read_key(&self.store, id).await {
                // Removed by somebody since the listing.
                Ok(None) => continue,
                Ok(Some(bytes)) => key_file::read_fields(&bytes).map_err(RepositoryError::damaged(object.name)),
                Err(error) => Err(error.into()),
            };
            match read {
                Ok(fields) => list.keys.push(KeyInfo { id, fields }),
                Err(RepositoryError::Store(error)) if error.is_outage() => return Err(error.into()),
                Err(error) => list.unreadable.push(UnreadableKey { id, error }),
            }
        }
        list.keys.sort_by_key(|key| (key.fields.created_ms, key.id));
        Ok(list)
    }

    /// Which key this password opens to this repository's master key.
    pub async fn key_of(&self, password: &[u8]) -> Result<Option<KeyId>, RepositoryError> {
        let keys = self.list_keys().await?.keys;
        // In the order of `open`, so that the same keys are tried when there are too many.
        let mut ids: Vec<_> = keys.iter().map(|key| key.id).collect();
        ids.sort_unstable();
        for id in ids.into_iter().take(KEYS_TRIED_MAX) {
            let Some(bytes) = read_key(&self.store, id).await? else { continue };
            let repository = self.config.repository;
            let unwrapped = crate::repository::unwrap_off_thread(bytes, password, id, repository).await;
            if unwrapped.is_ok_and(|master| bool::from(master.0.ct_eq(&self.master.0))) {
                return Ok(Some(id));
            }
        }
        Ok(None)
    }

    /// Removes a key, but never the last. What is no readable key can always be removed.
    pub async fn remove_key(&self, id: KeyId) -> Result<(), RepositoryError> {
        let refuse = |why| Err(RepositoryError::CannotRemoveKey { id: id.to_string(), why });
        let list = self.list_keys().await?;
        if !list.unreadable.iter().any(|key| key.id == id) {
            if !list.keys.iter().any(|key| key.id == id) {
                return refuse("there is no such key");
            }
            if list.keys.len() == 1 {
                return refuse("it is the only one; nothing could be read any more");
            }
        }
        Ok(self.store.delete(&names::key(id)).await?)
    }

    /// Adds the new password, then removes the key of the old one: a crash between leaves both.
    pub async fn change_password(&self, old: &[u8], new: &[u8], fields: KeyFields) -> Result<KeyId, RepositoryError> {
        let old_key = self.key_of(old).await?;
        let id = self.add_key(new, fields).await?;
        if let Some(old_key) = old_key {
            self.remove_key(old_key).await?;
        }
        Ok(id)
    }

    /// The paper form of the master key: restores access without the `keys/` objects.
    pub fn paper_key(&self) -> Vec<String> {
        key_file::to_paper(&self.master, self.config.repository)
    }
}

/// Reads a key object; `None` when it is not there (any more).
pub(crate) async fn read_key(store: &Store, id: KeyId) -> Result<Option<bytes::Bytes>, StoreError> {
    match store.get_sound(&names::key(id), KEY_MAX, |bytes| key_file::read_fields(bytes).is_ok()).await {
        Ok(bytes) => Ok(Some(bytes)),
        Err(error) if error.kind == StoreErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// A paper key that does not lead into this repository.
#[derive(Debug, thiserror::Error)]
pub enum ImportError {
    /// It cannot be read.
    #[error(transparent)]
    Paper(#[from] PaperError),
    /// The repository refuses it.
    #[error(transparent)]
    Repository(#[from] RepositoryError),
}

/// Opens a repository with a paper key.
pub async fn open_with_paper(
    store: Store,
    paper: &str,
    entropy: std::sync::Arc<dyn Entropy>,
) -> Result<Repository, ImportError> {
    let (master, repository) = key_file::from_paper(paper)?;
    let config = read_config(&store).await?;
    if config.claimed_repository() != repository {
        return Err(RepositoryError::ForeignPaperKey.into());
    }
    Ok(Repository::open_with_master(store, master, entropy).await?)
}
