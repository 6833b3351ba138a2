//! The keys of a repository: several passwords may open one master key.
//!
//! Removing a key or changing a password does not change the master key: who has it (or had the old password and a copy of
//! `keys/`) still reads everything. `docs/threat-model.md` says what to do after a leak.

use larder_format::ids::KeyId;
use larder_format::key_file::{self, KeyFields, PaperError};
use larder_format::names;

use crate::repository::{Entropy, Repository, RepositoryError, random, read_config};
use crate::{Store, StoreErrorKind};

/// One key as a listing shows it.
#[derive(Debug, Clone)]
pub struct KeyInfo {
    /// Its id.
    pub id: KeyId,
    /// What is not secret. Not authenticated.
    pub fields: KeyFields,
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
            Ok(result) => result.map_err(RepositoryError::damaged(names::key(id)))?,
            Err(panic) => std::panic::resume_unwind(panic.into_panic()),
        };
        self.store.create(&names::key(id), wrapped.into()).await?;
        Ok(id)
    }

    /// All keys that can be read, oldest first.
    pub async fn list_keys(&self) -> Result<Vec<KeyInfo>, RepositoryError> {
        let mut keys = Vec::new();
        for object in self.store.list(names::KEYS).await? {
            let Some(id) = names::parse_key(&object.name) else { continue };
            let bytes = match self.store.get(&object.name).await {
                // Removed by somebody since the listing.
                Err(error) if error.kind == StoreErrorKind::NotFound => continue,
                result => result?,
            };
            let fields = key_file::read_fields(&bytes).map_err(RepositoryError::damaged(object.name))?;
            keys.push(KeyInfo { id, fields });
        }
        keys.sort_by_key(|key| (key.fields.created_ms, key.id));
        Ok(keys)
    }

    /// Which key this password opens.
    pub async fn key_of(&self, password: &[u8]) -> Result<Option<KeyId>, RepositoryError> {
        for key in self.list_keys().await? {
            let bytes = self.store.get(&names::key(key.id)).await?;
            let repository = self.config.repository;
            if crate::repository::unwrap_off_thread(bytes, password, key.id, repository).await.is_ok() {
                return Ok(Some(key.id));
            }
        }
        Ok(None)
    }

    /// Removes a key, but never the last.
    pub async fn remove_key(&self, id: KeyId) -> Result<(), RepositoryError> {
        let refuse = |why| Err(RepositoryError::CannotRemoveKey { id: id.to_string(), why });
        let keys = self.list_keys().await?;
        if !keys.iter().any(|key| key.id == id) {
            return refuse("there is no such key");
        }
        if keys.len() == 1 {
            return refuse("it is the only one; nothing could be read any more");
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
