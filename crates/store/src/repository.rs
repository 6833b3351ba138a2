//! [`Repository`]: a store whose master key is known. Everything sealed is read and written through
//! it.
//!
//! Invariants
//! * Nothing but the configuration and the keys is read before the password is proved, and nothing
//!   is written.
//! * `init` writes the first key before the configuration: a crash between leaves a folder that is
//!   not yet a repository.
//!
//! Not here: the contents of a version (`reader`).

use std::sync::Arc;

use bytes::Bytes;
use larder_format::config::{Config, UnverifiedConfig};
use larder_format::ids::KeyId;
use larder_format::key_file::{self, KeyFields, UnwrapError};
use larder_format::seal::{Keys, MasterKey};
use larder_format::{DecodeError, EncodeError, ErrorKind, names};

pub use crate::config::read_config;
use crate::config::{Candidate, Candidates, candidates, first_object, genuine_copy, is_replaceable};
use crate::keyring::KEYS_TRIED_MAX;
use crate::{Store, StoreError, StoreErrorKind};

/// Why a repository cannot be used, or an object of it not be read.
#[derive(Debug, thiserror::Error)]
pub enum RepositoryError {
    /// There is no configuration at this place.
    #[error("there is no Larder repository at {location}")]
    NotARepository {
        /// Where it was looked for.
        location: String,
    },
    /// `init` at a place that already has one.
    #[error("there is already a Larder repository at {location}")]
    AlreadyARepository {
        /// Where.
        location: String,
    },
    /// There are objects of a repository at this place, but no configuration.
    #[error("there are objects of a repository at {location} ({name}), but no config")]
    ConfigMissing {
        /// Where.
        location: String,
        /// One of the objects.
        name: String,
    },
    /// The object `config` cannot be used, and a copy of it replaces it.
    #[error("{reason}")]
    ConfigUnusable {
        /// The reason.
        reason: String,
    },
    /// No key opens with this password.
    #[error("wrong password: it opens none of the keys of the repository ({keys} tried{})", Others(*unreadable, *untried))]
    WrongPassword {
        /// How many keys were tried.
        keys: usize,
        /// How many objects are no readable keys.
        unreadable: usize,
        /// Number of keys that were not tried, because there are too many.
        untried: usize,
    },
    /// The repository has a configuration but no readable key.
    #[error("the repository has no usable key; `key import` restores access from a paper key")]
    NoKeys,
    /// The paper key belongs to another repository.
    #[error("this paper key belongs to another repository")]
    ForeignPaperKey,
    /// The last key, or a key that does not exist, was to be removed.
    #[error("key {id} cannot be removed: {why}")]
    CannotRemoveKey {
        /// Which key.
        id: String,
        /// Why not.
        why: &'static str,
    },
    /// An object is not valid.
    #[error("{name} is damaged: {source}")]
    Damaged {
        /// The object.
        name: String,
        /// The reason.
        source: DecodeError,
    },
    /// An object to be stored could not be read back: a mistake of the program, or a limit of the
    /// format.
    #[error(transparent)]
    Unstorable(#[from] EncodeError),
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The operating system gave no random bytes.
    #[error("the operating system gives no random numbers: {reason}")]
    Random {
        /// Its words.
        reason: String,
    },
}

/// The other objects under `keys/`, in words.
struct Others(usize, usize);

impl std::fmt::Display for Others {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self(unreadable, untried) = self;
        if *unreadable > 0 {
            write!(f, "; {unreadable} more cannot be read")?;
        }
        if *untried > 0 {
            write!(f, "; {untried} more were not tried, remove what is no key of yours from {}", names::KEYS)?;
        }
        Ok(())
    }
}

impl RepositoryError {
    pub(crate) fn damaged(name: impl Into<String>) -> impl FnOnce(DecodeError) -> Self {
        let name = name.into();
        move |source| Self::Damaged { name, source }
    }

    /// How a caller can react to it.
    pub fn kind(&self) -> ErrorKind {
        match self {
            Self::NotARepository { .. } => ErrorKind::NoRepository,
            Self::AlreadyARepository { .. } | Self::CannotRemoveKey { .. } => ErrorKind::Precondition,
            Self::ConfigMissing { .. } | Self::ConfigUnusable { .. } => ErrorKind::Damaged,
            Self::WrongPassword { .. } | Self::NoKeys | Self::ForeignPaperKey => ErrorKind::BadKey,
            Self::Damaged { source, .. } => source.kind(),
            Self::Unstorable(error) => error.kind(),
            Self::Store(error) => error.kind(),
            Self::Random { .. } => ErrorKind::Resource,
        }
    }

    /// Whether this is about the bytes of one object (damaged or missing), not about reaching the
    /// store.
    pub fn is_damage(&self) -> bool {
        match self {
            Self::Damaged { source, .. } => !matches!(source, DecodeError::UnsupportedVersion { .. }),
            Self::ConfigMissing { .. } | Self::ConfigUnusable { .. } => true,
            Self::Store(error) => error.kind == StoreErrorKind::NotFound || is_about_object(error.kind),
            _ => false,
        }
    }

    /// Whether this is about the bytes of one existing object. Such an object says nothing, also
    /// when its first bytes claim a newer format: that claim is not authenticated.
    pub fn is_of_object(&self) -> bool {
        match self {
            Self::Damaged { .. } => true,
            Self::Store(error) => is_about_object(error.kind),
            _ => false,
        }
    }
}

/// Kinds of failures that say that one object is there and is of no use.
fn is_about_object(kind: StoreErrorKind) -> bool {
    matches!(kind, StoreErrorKind::Damaged | StoreErrorKind::TooLarge | StoreErrorKind::Unreadable)
}

/// Source of random bytes; a parameter so that tests can repeat themselves.
pub trait Entropy: Send + Sync {
    /// Fills `bytes` with unpredictable bytes.
    fn fill(&self, bytes: &mut [u8]) -> Result<(), RepositoryError>;
}

/// A function that fills bytes, as tests have one.
impl<F: Fn(&mut [u8]) + Send + Sync> Entropy for F {
    fn fill(&self, bytes: &mut [u8]) -> Result<(), RepositoryError> {
        self(bytes);
        Ok(())
    }
}

/// `N` random bytes.
pub fn random<const N: usize>(entropy: &dyn Entropy) -> Result<[u8; N], RepositoryError> {
    let mut bytes = [0; N];
    entropy.fill(&mut bytes)?;
    Ok(bytes)
}

/// The operating system's random numbers.
#[derive(Debug, Clone, Copy, Default)]
pub struct SystemEntropy;

impl Entropy for SystemEntropy {
    #[expect(clippy::disallowed_methods, reason = "the one place that asks the system for random numbers")]
    fn fill(&self, bytes: &mut [u8]) -> Result<(), RepositoryError> {
        getrandom::fill(bytes).map_err(|error| RepositoryError::Random { reason: error.to_string() })
    }
}

/// An opened repository. Cheap to clone.
#[derive(Clone)]
pub struct Repository {
    pub(crate) store: Store,
    pub(crate) master: Arc<MasterKey>,
    pub(crate) keys: Arc<Keys>,
    pub(crate) config: Arc<Config>,
    pub(crate) entropy: Arc<dyn Entropy>,
    /// Why the object `config` is not the one in use.
    pub(crate) config_problem: Option<Arc<RepositoryError>>,
    #[cfg(feature = "breakable-rules")]
    pub(crate) broken: Vec<crate::rules::Rule>,
    /// Payload bytes of a full container.
    #[cfg(feature = "breakable-rules")]
    pub(crate) container_payload: Option<usize>,
}

impl std::fmt::Debug for Repository {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Repository").field(&self.store).field(&self.config.repository).finish()
    }
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
        let repository = Self::new(store, master, keys, config, entropy);
        let key = names::key(repository.add_key(password, fields).await?);
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
        let config = match read_config(&store).await {
            Ok(config) => Ok(config),
            Err(error) if is_replaceable(&error) => Err(error),
            Err(error) => return Err(error),
        };
        let Candidates { found, mut unreadable, mut first_unreadable } = candidates(&store).await?;
        let (mut keys, mut untried) = (0, 0);
        let mut refuted = None;
        // Those of a parallel `init` that lost are no keys of this repository.
        let is_ours = |candidate: &Candidate| match (&config, &candidate.copy) {
            (Ok(config), Some(copy)) => copy.is_twin_of(config),
            (Err(_), copy) => copy.is_some(),
            (Ok(_), None) => true,
        };
        for Candidate { id, bytes, copy } in found.into_iter().filter(is_ours) {
            if keys == KEYS_TRIED_MAX {
                untried += 1;
                continue;
            }
            let named = copy.as_ref().or(config.as_ref().ok());
            let Some(repository) = named.map(UnverifiedConfig::claimed_repository) else { continue };
            let error = match unwrap_off_thread(bytes, password, id, repository).await {
                Ok(master) => {
                    let opened = Self::with_master_or_copy(&store, &config, copy, master, &entropy);
                    match opened {
                        Ok(opened) => return Ok(opened),
                        Err(error) => error,
                    }
                }
                Err(UnwrapError::WrongPassword) => {
                    keys += 1;
                    continue;
                }
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
        let error = match Self::with_master_or_copy(&store, &config, None, master.clone(), &entropy) {
            Ok(opened) => return Ok(opened),
            Err(error) => error,
        };
        match genuine_copy(&store, &Keys::derive(&master), None).await? {
            Some(copy) => Ok(Self::in_place_of_config(store, master, copy, error, entropy)),
            None => Err(error),
        }
    }

    /// Opens with the configuration, or else with its copy. The master key proves one of them.
    fn with_master_or_copy(
        store: &Store,
        config: &Result<UnverifiedConfig, RepositoryError>,
        copy: Option<UnverifiedConfig>,
        master: MasterKey,
        entropy: &Arc<dyn Entropy>,
    ) -> Result<Self, RepositoryError> {
        let error = match config {
            Ok(config) => match Self::with_master(store.clone(), config.clone(), master.clone(), entropy.clone()) {
                Ok(opened) => return Ok(opened),
                Err(error) => error,
            },
            Err(RepositoryError::NotARepository { location }) => {
                RepositoryError::NotARepository { location: location.clone() }
            }
            Err(error) => RepositoryError::ConfigUnusable { reason: chain(error) },
        };
        match copy.and_then(|copy| copy.verify(&Keys::derive(&master)).ok()) {
            Some(copy) => Ok(Self::in_place_of_config(store.clone(), master, copy, error, entropy.clone())),
            None => Err(error),
        }
    }

    /// A repository whose `config` is missing or damaged, with the replacement.
    pub(crate) fn in_place_of_config(
        store: Store,
        master: MasterKey,
        config: Config,
        problem: RepositoryError,
        entropy: Arc<dyn Entropy>,
    ) -> Self {
        let keys = Keys::derive(&master);
        Self { config_problem: Some(Arc::new(problem)), ..Self::new(store, master, keys, config, entropy) }
    }

    fn with_master(
        store: Store,
        config: UnverifiedConfig,
        master: MasterKey,
        entropy: Arc<dyn Entropy>,
    ) -> Result<Self, RepositoryError> {
        let keys = Keys::derive(&master);
        let config = config.verify(&keys).map_err(RepositoryError::damaged(names::CONFIG))?;
        Ok(Self::new(store, master, keys, config, entropy))
    }

    pub(crate) fn new(store: Store, master: MasterKey, keys: Keys, config: Config, entropy: Arc<dyn Entropy>) -> Self {
        Self {
            store,
            master: Arc::new(master),
            keys: Arc::new(keys),
            config: Arc::new(config),
            entropy,
            config_problem: None,
            #[cfg(feature = "breakable-rules")]
            broken: Vec::new(),
            #[cfg(feature = "breakable-rules")]
            container_payload: None,
        }
    }

    /// The same repository through another view of the same store, for instance one with a cache.
    pub fn through(&self, store: Store) -> Self {
        Self { store, ..self.clone() }
    }

    /// The parameters that all writers agree on.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// The derived keys.
    pub fn keys(&self) -> &Arc<Keys> {
        &self.keys
    }

    /// The objects below.
    pub fn store(&self) -> &Store {
        &self.store
    }

    /// Where salts and ids come from.
    pub fn entropy(&self) -> &dyn Entropy {
        &*self.entropy
    }
}

/// Whether an object is there.
pub(crate) async fn exists(store: &Store, name: &str) -> Result<bool, StoreError> {
    match store.size(name).await {
        Ok(_) => Ok(true),
        Err(error) if error.kind == StoreErrorKind::NotFound => Ok(false),
        Err(error) => Err(error),
    }
}

/// An error and its sources in one line.
fn chain(error: &RepositoryError) -> String {
    let mut text = error.to_string();
    let mut next = std::error::Error::source(error);
    while let Some(source) = next {
        let more = source.to_string();
        if !text.contains(&more) {
            text = format!("{text}: {more}");
        }
        next = source.source();
    }
    text
}

/// argon2id takes tens of milliseconds of a core: not on a thread that serves I/O.
pub(crate) async fn unwrap_off_thread(
    bytes: Bytes,
    password: &[u8],
    id: KeyId,
    repository: larder_format::ids::RepositoryId,
) -> Result<MasterKey, UnwrapError> {
    let password = zeroize::Zeroizing::new(password.to_vec());
    let work = move || key_file::unwrap(&bytes, &password, id, repository);
    match tokio::task::spawn_blocking(work).await {
        Ok(result) => result,
        Err(panic) => std::panic::resume_unwind(panic.into_panic()),
    }
}
