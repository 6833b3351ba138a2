//! Making a repository, and opening one with a password or with its master key.
//!
//! Invariants
//! * Nothing but the configuration and the keys is read before the password is proved, and nothing
//!   is written.
//! * `init` writes the first key before the configuration: a crash between leaves a folder that is
//!   not yet a repository.

use std::sync::Arc;

use bytes::Bytes;
use larder_format::config::{Config, UnverifiedConfig};
use larder_format::ids::KeyId;
use larder_format::key_file::{self, KdfCost, KeyFields, MachineKey, Unlock, UnwrapError};
use larder_format::keys::{Keys, MasterKey, Secrets};
use larder_format::{DecodeError, chain, names};

use crate::config::{Candidate, Candidates, FoundConfig, candidates, genuine_copy, is_replaceable, read_config};
use crate::foreign_config::{first_object, or_of_other_program};
use crate::key_object::{read_key, unwrap_off_thread};
use crate::keyring::KEYS_TRIED_MAX;
use crate::repository::{Entropy, Repository, RepositoryError, exists, random};
use crate::{Store, StoreErrorKind};

/// What helps to open a repository with a password.
#[derive(Debug, Clone, Copy, Default)]
pub struct OpenHints {
    /// The key that opened it last: tried first, and without a listing.
    pub last: Option<KeyId>,
    /// Keys are tried whatever they cost. Else those are left out that cost much more than the ones
    /// that this program makes: anybody who may create objects could plant them.
    pub takes_costly_keys: bool,
}

impl Repository {
    /// Makes a repository with one key. `fields.salt` is drawn here.
    pub async fn init(
        store: Store,
        config: Config,
        password: &[u8],
        fields: KeyFields,
        entropy: Arc<dyn Entropy>,
    ) -> Result<Self, RepositoryError> {
        let location = store.to_string();
        if exists(&store, names::CONFIG).await? {
            return Err(RepositoryError::AlreadyARepository { location });
        }
        if let Some(name) = first_object(&store).await? {
            return Err(RepositoryError::ConfigMissing { location, name });
        }
        let master = MasterKey(random(&*entropy)?);
        let keys = Keys::derive(&master);
        let config_bytes = Bytes::from(config.encode(&keys)?);
        let repository = Self::new(store, keys, config, Some(config_bytes.to_vec()), entropy);
        let key = names::key(repository.add_key(Unlock::Password(password), fields).await?);
        match repository.store.create(names::CONFIG, config_bytes.clone()).await {
            Ok(_) => {}
            Err(error) if error.kind == StoreErrorKind::AlreadyExists => {
                // A parallel `init` won, and this key opens nothing.
                if let Err(error) = repository.store.delete(&key).await {
                    tracing::info!(%error, key, "the key of a lost `init` stays; `larder key list` marks it");
                }
                return Err(RepositoryError::AlreadyARepository { location });
            }
            Err(error) => return Err(error.into()),
        }
        match repository.store.create_again(names::CONFIG, config_bytes).await {
            Ok(_) => Ok(repository),
            Err(error) => {
                if error.kind == StoreErrorKind::Unconditional {
                    for name in [names::CONFIG, &key] {
                        if let Err(error) = repository.store.delete(name).await {
                            tracing::info!(%error, name, "stays on a store that cannot be used");
                        }
                    }
                }
                Err(error.into())
            }
        }
    }

    /// Opens a repository with a password. Reads only.
    ///
    /// One object under `keys/` that is no key, or a key of something else, does not keep the
    /// others from being tried.
    pub async fn open(store: Store, password: &[u8], entropy: Arc<dyn Entropy>) -> Result<Self, RepositoryError> {
        Self::open_knowing(store, password, &FoundConfig::default(), OpenHints::default(), entropy).await
    }

    /// The same, with what the caller has `found` before, which is not read again, and what it
    /// knows about the keys.
    pub async fn open_knowing(
        store: Store,
        password: &[u8],
        found: &FoundConfig,
        hints: OpenHints,
        entropy: Arc<dyn Entropy>,
    ) -> Result<Self, RepositoryError> {
        // The key that opened it last, without a listing. Whatever is wrong with it is for the
        // others to find out.
        if let Some(last) = hints.last
            && let Ok(opened) =
                Self::open_with_key(&store, password, last, found, hints.takes_costly_keys, &entropy).await
        {
            return Ok(opened);
        }
        let config = match &found.config {
            Some(config) => Ok(config.clone()),
            None => match read_config(&store).await {
                Ok(config) => Ok(config),
                Err(error) if is_replaceable(&error) => Err(error),
                Err(error) => return Err(error),
            },
        };
        let all = candidates(&store, found.keys.as_deref()).await?;
        let Candidates { found, mut unreadable, mut first_unreadable } = all;
        let (mut keys, mut untried) = (0, 0);
        let mut refuted = None;
        // Those of a parallel `init` that lost are no keys of this repository.
        let is_ours = |candidate: &Candidate| match (&config, &candidate.copy) {
            (Ok(config), Some(copy)) => copy.is_twin_of(config),
            (Err(_), copy) => copy.is_some(),
            (Ok(_), None) => true,
        };
        let (with_passwords, _): (Vec<_>, Vec<_>) =
            found.into_iter().filter(is_ours).partition(|candidate| candidate.cost.is_some());
        for Candidate { id, bytes, copy, cost } in with_passwords {
            let is_tried = hints.takes_costly_keys || cost.is_some_and(KdfCost::is_usual);
            if keys == KEYS_TRIED_MAX || !is_tried {
                untried += 1;
                continue;
            }
            let named = copy.as_ref().or(config.as_ref().ok());
            let Some(repository) = named.map(UnverifiedConfig::claimed_repository) else { continue };
            let error = match unwrap_off_thread(bytes, password, id, repository).await {
                Ok(secrets) => {
                    let opened = Self::with_secrets_or_copy(&store, &config, copy, secrets, &entropy);
                    match opened {
                        Ok(opened) => return Ok(Self { opened_by: Some(id), ..opened }),
                        Err(error) => error,
                    }
                }
                Err(UnwrapError::WrongPassword) => {
                    keys += 1;
                    continue;
                }
                Err(UnwrapError::Stretch(error)) => return Err(error.into()),
                Err(UnwrapError::Damaged(source)) => {
                    let name = names::key(id);
                    let fits = matches!(source, DecodeError::NotAuthentic { .. });
                    let error = RepositoryError::Damaged { name, source };
                    if !fits {
                        unreadable += 1;
                        first_unreadable.get_or_insert(error);
                        continue;
                    }
                    error
                }
            };
            // The password is right, but not the data that it opened: this key or the configuration
            // is damaged or forged.
            keys += 1;
            refuted.get_or_insert(error);
        }
        Err(match (refuted, first_unreadable, config) {
            (Some(error), _, _) => error,
            // Without a configuration and without a copy nothing was tried.
            (None, _, Err(error)) if keys == 0 => error,
            (None, Some(error), _) if keys == 0 => error,
            (None, None, _) if keys == 0 => RepositoryError::NoKeys,
            _ => RepositoryError::WrongPassword { keys, unreadable, untried },
        })
    }

    /// Opens with the configuration and one key, in one round trip.
    async fn open_with_key(
        store: &Store,
        password: &[u8],
        id: KeyId,
        found: &FoundConfig,
        takes_costly_keys: bool,
        entropy: &Arc<dyn Entropy>,
    ) -> Result<Self, RepositoryError> {
        let config = async {
            match &found.config {
                Some(config) => Ok(config.clone()),
                None => read_config(store).await,
            }
        };
        let (config, object) = futures::join!(config, read_key(store, id));
        let (config, bytes) = (config?, object?.ok_or(RepositoryError::NoKeys)?);
        let cost = key_file::read_fields(&bytes).map_err(RepositoryError::damaged(names::key(id)))?.cost;
        if !takes_costly_keys && !cost.is_some_and(KdfCost::is_usual) {
            return Err(RepositoryError::NoKeys);
        }
        let secrets = unwrap_off_thread(bytes, password, id, config.claimed_repository()).await;
        let secrets = secrets.map_err(|_| RepositoryError::NoKeys)?;
        let opened = Self::with_secrets(store, config, secrets, entropy)?;
        Ok(Self { opened_by: Some(id), ..opened })
    }

    /// Opens a repository with its master key, from a paper key.
    pub async fn open_with_master(
        store: Store,
        master: MasterKey,
        entropy: Arc<dyn Entropy>,
    ) -> Result<Self, RepositoryError> {
        let config = match read_config(&store).await {
            Ok(config) => Ok(config),
            Err(error) if is_replaceable(&error) => Err(error),
            Err(error) => return Err(error),
        };
        let secrets = Secrets::of(&master);
        let error = match Self::with_secrets_or_copy(&store, &config, None, secrets, &entropy) {
            Ok(opened) => return Ok(opened),
            Err(error) => error,
        };
        let keys = Keys::derive(&master);
        match genuine_copy(&store, &keys, None).await? {
            Some((config, bytes)) => Ok(Self::new(store, keys, config, Some(bytes), entropy).in_place_of_config(error)),
            None => Err(error),
        }
    }

    /// Opens a repository with the key file of a machine: `config` and one key in one round trip,
    /// no listing, no password. Reads only.
    pub async fn open_with_machine_key(
        store: Store,
        keys: &[MachineKey],
        entropy: Arc<dyn Entropy>,
    ) -> Result<Self, RepositoryError> {
        let config = read_config(&store);
        let (config, objects) = match keys {
            [only] => {
                let (config, object) = futures::join!(config, read_key(&store, only.key));
                (config, vec![(only, object?)])
            }
            // Which line is of this repository, only its configuration tells.
            several => {
                let config = config.await;
                let named = config.as_ref().ok().map(UnverifiedConfig::claimed_repository);
                let mut objects = Vec::new();
                for key in several.iter().filter(|key| named.is_none_or(|named| named == key.repository)) {
                    objects.push((key, read_key(&store, key.key).await?));
                }
                (config, objects)
            }
        };
        let config = match config {
            Err(error) if !is_replaceable(&error) => return Err(error),
            config => config,
        };
        let Some((key, object)) = objects.into_iter().find(|(_, object)| object.is_some()) else {
            let named = match config {
                Ok(config) => config.claimed_repository(),
                Err(error) => return Err(or_of_other_program(&store, error).await),
            };
            let is_foreign = keys.iter().all(|key| key.repository != named);
            return Err(if is_foreign { RepositoryError::ForeignKeyFile } else { RepositoryError::KeyRemoved });
        };
        let bytes = object.unwrap_or_default();
        let copy = key_file::config_copy(&bytes).ok().and_then(|copy| UnverifiedConfig::decode(&copy).ok());
        let name = names::key(key.key);
        let secrets = match key_file::unwrap(&bytes, Unlock::File(&key.secret), key.key, key.repository) {
            Ok(secrets) => secrets,
            Err(UnwrapError::WrongPassword) => {
                return Err(RepositoryError::damaged(name)(DecodeError::NotAuthentic { what: "key" }));
            }
            Err(UnwrapError::Damaged(source)) => return Err(RepositoryError::damaged(name)(source)),
            Err(UnwrapError::Stretch(error)) => return Err(error.into()),
        };
        if config.as_ref().is_ok_and(|config| config.claimed_repository() != key.repository) {
            return Err(RepositoryError::ForeignKeyFile);
        }
        let opened = Self::with_secrets_or_copy(&store, &config, copy, secrets, &entropy)?;
        Ok(Self { opened_by: Some(key.key), ..opened })
    }

    /// Opens with the configuration, or else with its copy. The operator's signature proves one of
    /// them.
    fn with_secrets_or_copy(
        store: &Store,
        config: &Result<UnverifiedConfig, RepositoryError>,
        copy: Option<UnverifiedConfig>,
        secrets: Secrets,
        entropy: &Arc<dyn Entropy>,
    ) -> Result<Self, RepositoryError> {
        let error = match config {
            Ok(config) => match Self::with_secrets(store, config.clone(), secrets.clone(), entropy) {
                Ok(opened) => return Ok(opened),
                Err(error) => error,
            },
            Err(RepositoryError::NotARepository { location }) => {
                RepositoryError::NotARepository { location: location.clone() }
            }
            Err(error) => RepositoryError::ConfigUnusable { reason: chain(error) },
        };
        match copy.and_then(|copy| Self::with_secrets(store, copy, secrets, entropy).ok()) {
            Some(opened) => Ok(opened.in_place_of_config(error)),
            None => Err(error),
        }
    }

    fn with_secrets(
        store: &Store,
        config: UnverifiedConfig,
        secrets: Secrets,
        entropy: &Arc<dyn Entropy>,
    ) -> Result<Self, RepositoryError> {
        let bytes = config.bytes().to_vec();
        let (config, keys) = config.open(secrets).map_err(RepositoryError::damaged(names::CONFIG))?;
        Ok(Self::new(store.clone(), keys, config, Some(bytes), entropy.clone()))
    }
}
