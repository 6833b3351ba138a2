//! The keys of a repository: several passwords may open one master key.
//!
//! Removing a key or changing a password does not change the master key. A person who has it, or
//! who had the old password and a copy of `keys/`, still reads everything. `docs/threat-model.md`
//! says what to do after a leak.

use larder_format::config::UnverifiedConfig;
use larder_format::ids::{DomainId, KeyId};
use larder_format::key_file::{self, KeyFields, MachineKey, PaperError, Unlock, UnwrapError};
use larder_format::keys::{Keys, Secret};
use larder_format::roles::Roles;
use larder_format::{DecodeError, ErrorKind, names};

use crate::config::{estimated, genuine_copy, is_replaceable, read_config};
use crate::foreign_config::or_of_other_program;
use crate::key_object::{read_key, unwrap_off_thread};
use crate::repository::{Entropy, Repository, RepositoryError, random};
use crate::{Store, StoreError, StoreErrorKind, StoreOp};

/// Keys that are tried with a password. Each costs seconds at worst, and tells a hostile store
/// whether the password is the one it was made for.
pub const KEYS_TRIED_MAX: usize = 64;

/// One key as a listing shows it.
#[derive(Debug, Clone)]
pub struct KeyInfo {
    /// Its id.
    pub id: KeyId,
    /// The public fields. Authenticated if the key is genuine.
    pub fields: KeyFields,
    /// Whether its copy of `config` is of another repository: a parallel `init` that lost made it,
    /// and it opens nothing here.
    pub is_foreign: bool,
    /// Whether an operator of this repository made it. Others were planted, and open nothing.
    pub is_genuine: bool,
}

impl KeyInfo {
    /// Whether the master key can be had with it.
    fn is_full(&self) -> bool {
        self.is_genuine && self.fields.roles.is_all()
    }

    /// Whether its holder backs up in this domain.
    pub fn is_in(&self, domain: &str, epoch: u32) -> bool {
        self.fields.roles.holds(Roles::BACKUP) && self.fields.domain == domain && self.fields.epoch == epoch
    }
}

/// An object under `keys/` that is no key.
#[derive(Debug)]
pub struct UnreadableKey {
    /// Its id.
    pub id: KeyId,
    /// The reason.
    pub error: RepositoryError,
}

/// All keys of a repository.
#[derive(Debug, Default)]
pub struct KeyList {
    /// Those that can be read, oldest first.
    pub keys: Vec<KeyInfo>,
    /// Those that cannot, by id.
    pub unreadable: Vec<UnreadableKey>,
}

impl Repository {
    /// Wraps the secrets of a role under a password or a key file. Role and domain are those of
    /// `fields`; `fields.salt` is drawn here.
    pub async fn add_key(&self, unlock: Unlock<'_>, fields: KeyFields) -> Result<KeyId, RepositoryError> {
        let id = KeyId(random(self.entropy())?);
        self.add_key_with_id(id, unlock, fields).await
    }

    /// Makes a key that a file opens, and gives the line of that file. The file is written first,
    /// because a key without it is of no use: `keep` gets the line and stores it.
    pub async fn add_machine_key<E: From<RepositoryError>>(
        &self,
        fields: KeyFields,
        keep: impl FnOnce(&MachineKey) -> Result<(), E>,
    ) -> Result<KeyId, E> {
        let id = KeyId(random(self.entropy())?);
        let key = MachineKey { repository: self.config.repository, key: id, secret: random(self.entropy())? };
        keep(&key)?;
        let fields = KeyFields { cost: None, ..fields };
        Ok(self.add_key_with_id(id, Unlock::File(&key.secret), fields).await?)
    }

    async fn add_key_with_id(
        &self,
        id: KeyId,
        unlock: Unlock<'_>,
        mut fields: KeyFields,
    ) -> Result<KeyId, RepositoryError> {
        self.require(Roles::ALL, "to make a key")?;
        fields.salt = random(self.entropy())?;
        let witness = Secret(random(self.entropy())?);
        fields.epoch = self.open_epoch(&fields.domain).await?;
        let domain = self.keys.domain_id(&fields.domain, fields.epoch);
        let (domain_of_key, domain_name) = (domain, fields.domain.clone());
        // A password is for people, who may have several machines: what a machine wrote itself is
        // told by a file of its own.
        let witness = matches!(unlock, Unlock::File(_)).then_some(witness);
        let secrets = self.keys.secrets().for_roles(fields.roles, domain, witness)?;
        let (keys, repository, config) = (self.keys.clone(), self.config.repository, self.bytes_of_config()?);
        let wrapped = match unlock {
            Unlock::File(_) => key_file::wrap(&keys, &secrets, unlock, &fields, id, repository, &config)?,
            Unlock::Password(password) => {
                let password = zeroize::Zeroizing::new(password.to_vec());
                let work = move || {
                    let unlock = Unlock::Password(&password);
                    key_file::wrap(&keys, &secrets, unlock, &fields, id, repository, &config)
                };
                match tokio::task::spawn_blocking(work).await {
                    Ok(result) => result?,
                    Err(panic) => std::panic::resume_unwind(panic.into_panic()),
                }
            }
        };
        let name = names::key(id);
        self.store.create(&name, wrapped.clone().into()).await?;
        // Another operator may have closed the domain meanwhile, without knowing this key.
        if domain_of_key != DomainId::DEFAULT && self.closed_domain(domain_of_key).await?.is_some() {
            self.store.delete(&name).await?;
            return Err(RepositoryError::DomainClosed { name: domain_name });
        }
        // The key that it replaces may go next, so the store's answer alone is not enough.
        let stored = read_key(&self.store.without_cache(), id).await?;
        if stored.is_none_or(|stored| *stored != *wrapped) {
            return Err(StoreError::new(StoreOp::Create, &name, StoreErrorKind::NotFound).into());
        }
        Ok(id)
    }

    /// All keys there are.
    pub async fn list_keys(&self) -> Result<KeyList, RepositoryError> {
        let mut list = KeyList::default();
        for object in self.store.list(names::KEYS).await? {
            let Some(id) = names::parse_key(&object.name) else { continue };
            let read = match read_key(&self.store, id).await {
                // Removed by another program since the listing.
                Ok(None) => continue,
                Ok(Some(bytes)) => self.key_info(id, &bytes).map_err(RepositoryError::damaged(object.name)),
                Err(error) => Err(error.into()),
            };
            match read {
                Ok(key) => list.keys.push(key),
                Err(RepositoryError::Store(error)) if error.is_outage() => return Err(error.into()),
                Err(error) => list.unreadable.push(UnreadableKey { id, error }),
            }
        }
        list.keys.sort_by_key(|key| (key.fields.created_ms, key.id));
        Ok(list)
    }

    fn key_info(&self, id: KeyId, bytes: &[u8]) -> Result<KeyInfo, DecodeError> {
        let fields = key_file::read_fields(bytes)?;
        let copy = UnverifiedConfig::decode(&key_file::config_copy(bytes)?).ok();
        let is_foreign = copy.is_some_and(|copy| copy.claimed_repository() != self.config.repository);
        let is_genuine = key_file::is_genuine(bytes, &self.keys, id, self.config.repository);
        Ok(KeyInfo { id, fields, is_foreign, is_genuine })
    }

    /// Which key of this repository this password opens.
    pub async fn key_of(&self, password: &[u8]) -> Result<Option<KeyId>, RepositoryError> {
        let keys = self.list_keys().await?.keys;
        let ids = keys.iter().filter(|key| key.is_genuine && key.fields.cost.is_some()).map(|key| key.id);
        for id in ids.take(KEYS_TRIED_MAX) {
            let Some(bytes) = read_key(&self.store, id).await? else { continue };
            let repository = self.config.repository;
            match unwrap_off_thread(bytes, password, id, repository).await {
                Ok(_) => return Ok(Some(id)),
                Err(UnwrapError::Stretch(error)) => return Err(error.into()),
                Err(UnwrapError::WrongPassword | UnwrapError::Damaged(_)) => {}
            }
        }
        Ok(None)
    }

    /// Removes a key, but never the last. An object that is no readable key can always be removed.
    pub async fn remove_key(&self, id: KeyId) -> Result<(), RepositoryError> {
        let refuse = |why| Err(RepositoryError::CannotRemoveKey { id: id.to_string(), why });
        let list = self.list_keys().await?;
        let listed = list.keys.iter().find(|key| key.id == id);
        if listed.is_none() && !list.unreadable.iter().any(|key| key.id == id) {
            return refuse("there is no such key");
        }
        // One answer about a key, or about the others, is asked for once more by name.
        let is_full = listed.is_some_and(KeyInfo::is_full) || self.is_full_key(id).await?;
        if is_full {
            let mut is_other_left = false;
            for other in list.keys.iter().filter(|key| key.id != id && key.is_full()) {
                is_other_left = is_other_left || self.is_full_key(other.id).await?;
            }
            if !is_other_left {
                return refuse("it is the only key with the role all; nobody could make keys any more");
            }
        }
        let name = names::key(id);
        let removed = if is_full { read_key(&self.store.without_cache(), id).await? } else { None };
        let deleted = self.store.delete(&name).await;
        let Some(removed) = removed else { return Ok(deleted?) };
        // The holder of the other key may have removed it meanwhile, because this one was there.
        // Of two that do so at once, the later one finds no key any more.
        let is_left = self.is_full_key_left().await;
        if matches!(is_left, Ok(true)) {
            return Ok(deleted?);
        }
        self.store.create(&name, removed).await?;
        is_left?;
        refuse("the other keys with the role all were removed at the same time, so it was put back")
    }

    /// Whether there is a genuine key with the role `all`, past all caches.
    async fn is_full_key_left(&self) -> Result<bool, RepositoryError> {
        for object in self.store.without_cache().list(names::KEYS).await? {
            if let Some(id) = names::parse_key(&object.name)
                && self.is_full_key(id).await?
            {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Whether a genuine key with the role `all` has this id.
    async fn is_full_key(&self, id: KeyId) -> Result<bool, RepositoryError> {
        match read_key(&self.store.without_cache(), id).await {
            Ok(bytes) => Ok(bytes.is_some_and(|bytes| self.key_info(id, &bytes).is_ok_and(|key| key.is_full()))),
            Err(error) if error.is_outage() => Err(error.into()),
            Err(_) => Ok(false),
        }
    }

    /// Adds the new password, then removes the key of the old one: a crash between leaves both.
    pub async fn change_password(&self, old: &[u8], new: &[u8], fields: KeyFields) -> Result<KeyId, RepositoryError> {
        let old_key = self.key_of(old).await?;
        let id = self.add_key(Unlock::Password(new), fields).await?;
        if let Some(old_key) = old_key {
            self.remove_key(old_key).await?;
        }
        Ok(id)
    }

    /// The paper form of the master key: restores access without the `keys/` objects.
    pub fn paper_key(&self) -> Result<Vec<String>, RepositoryError> {
        self.require(Roles::ALL, "a paper key")?;
        let master = self.keys.master().ok_or(RepositoryError::NoKeys)?;
        Ok(key_file::to_paper(master, self.config.repository))
    }
}

/// A paper key that does not open this repository.
#[derive(Debug, thiserror::Error)]
pub enum ImportError {
    /// It cannot be read.
    #[error(transparent)]
    Paper(#[from] PaperError),
    /// The repository refuses it.
    #[error(transparent)]
    Repository(#[from] RepositoryError),
}

impl ImportError {
    /// How a caller can react to it.
    pub fn kind(&self) -> ErrorKind {
        match self {
            Self::Paper(error) => error.kind(),
            Self::Repository(error) => error.kind(),
        }
    }
}

/// Opens a repository with a paper key, also when `config` is missing or damaged. It then uses the
/// copy in a key, or else the parameters in the newest version.
pub async fn open_with_paper(
    store: Store,
    paper: &str,
    entropy: std::sync::Arc<dyn Entropy>,
) -> Result<Repository, ImportError> {
    let (master, repository) = key_file::from_paper(paper)?;
    let keys = Keys::derive(&master);
    let problem = match read_config(&store).await {
        Ok(config) => {
            let is_other = config.claimed_repository() != repository;
            match config.verify(&keys) {
                Ok(_) => return Ok(Repository::open_with_master(store, master, entropy).await?),
                Err(_) if is_other => RepositoryError::ForeignPaperKey,
                Err(source) => RepositoryError::Damaged { name: names::CONFIG.to_owned(), source },
            }
        }
        Err(error) if is_replaceable(&error) => error,
        Err(error) => return Err(error.into()),
    };
    let config = match genuine_copy(&store, &keys, Some(repository)).await? {
        Some((config, bytes)) => Some((config, Some(bytes))),
        // A configuration that reads well and names another repository is accepted.
        None if matches!(problem, RepositoryError::ForeignPaperKey) => None,
        None => estimated(&store, &master, repository, &entropy).await?.map(|config| (config, None)),
    };
    match config {
        Some((config, bytes)) => Ok(Repository::new(store, keys, config, bytes, entropy).in_place_of_config(problem)),
        None => Err(or_of_other_program(&store, problem).await.into()),
    }
}
