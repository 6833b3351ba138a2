//! [`Repository`]: a store whose master key is known. Everything sealed is read and written through
//! it.
//!
//! Not here: making and opening one (`opening`), the contents of a version (`reader`).

use std::sync::Arc;

use larder_format::config::Config;
use larder_format::ids::KeyId;
use larder_format::key_file::{StretchError, WrapError};
use larder_format::keys::Keys;
use larder_format::roles::Roles;
use larder_format::{DecodeError, EncodeError, ErrorKind, names};

use crate::other_program::OtherProgram;
use crate::own_generations::OwnGenerations;
use crate::read_manifests::ReadManifests;
use crate::rules::Rule;
use crate::{Store, StoreError, StoreErrorKind};

/// Small objects that are read at once: hides the store's latency, and is far below any store's
/// limits.
pub(crate) const CONCURRENT_READS: usize = 64;

/// Why a repository cannot be used, or an object of it not be read.
#[derive(Debug, thiserror::Error)]
pub enum RepositoryError {
    /// There is no configuration at this place.
    #[error("there is no Larder repository at {location}")]
    NotARepository {
        /// Where it was looked for.
        location: String,
    },
    /// The object `config` is of another program, and nothing at this place is of Larder.
    #[error("{location} is not a Larder repository: its config is of {}", OtherProgram::name_of(*program))]
    OtherConfig {
        /// Where.
        location: String,
        /// The program, if it is a known one.
        program: Option<OtherProgram>,
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
        /// Number of keys that were not tried, because there are too many or they cost too much.
        untried: usize,
    },
    /// The repository has a configuration but no readable key.
    #[error("the repository has no usable key; `key import` restores access from a paper key")]
    NoKeys,
    /// The paper key belongs to another repository.
    #[error("this paper key belongs to another repository")]
    ForeignPaperKey,
    /// The key file belongs to another repository.
    #[error("this key file belongs to another repository")]
    ForeignKeyFile,
    /// The key object that the key file opens is gone.
    #[error("the key that this key file opens was removed from the repository")]
    KeyRemoved,
    /// An operator closed the domain of the key in use.
    #[error("domain {name:?} was closed, so a snapshot of it would not count")]
    DomainClosed {
        /// Its name.
        name: String,
    },
    /// The last key, or a key that does not exist, was to be removed.
    #[error("key {id} cannot be removed: {why}")]
    CannotRemoveKey {
        /// Which key.
        id: String,
        /// Why not.
        why: &'static str,
    },
    /// The key in use may not do this.
    #[error("this key may {has}; {what} needs a key with the role {needs}")]
    KeyLacks {
        /// What was asked for, as the subject of a sentence.
        what: &'static str,
        /// The roles of the key, as verbs.
        has: &'static str,
        /// A role that may.
        needs: Roles,
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
    /// The password could not be stretched.
    #[error(transparent)]
    Stretch(#[from] StretchError),
    /// The operating system gave no random bytes.
    #[error("the operating system gives no random numbers: {reason}")]
    Random {
        /// Its words.
        reason: String,
    },
}

impl From<WrapError> for RepositoryError {
    fn from(error: WrapError) -> Self {
        match error {
            WrapError::Encode(error) => Self::Unstorable(error),
            WrapError::Stretch(error) => Self::Stretch(error),
        }
    }
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
            Self::NotARepository { .. } | Self::OtherConfig { .. } => ErrorKind::NoRepository,
            Self::AlreadyARepository { .. } | Self::CannotRemoveKey { .. } => ErrorKind::Precondition,
            Self::ConfigMissing { .. } | Self::ConfigUnusable { .. } => ErrorKind::Damaged,
            Self::WrongPassword { .. }
            | Self::NoKeys
            | Self::ForeignPaperKey
            | Self::ForeignKeyFile
            | Self::KeyRemoved
            | Self::DomainClosed { .. }
            | Self::KeyLacks { .. } => ErrorKind::BadKey,
            Self::Damaged { source, .. } => source.kind(),
            Self::Unstorable(error) => error.kind(),
            Self::Store(error) => error.kind(),
            Self::Stretch(_) | Self::Random { .. } => ErrorKind::Resource,
        }
    }

    /// Whether this is about the bytes of one object (damaged or missing), not about reaching the
    /// store.
    pub fn is_damage(&self) -> bool {
        match self {
            Self::Damaged { source, .. } => !matches!(
                source,
                DecodeError::UnsupportedVersion { .. } | DecodeError::Development { .. } | DecodeError::KeyLacks { .. }
            ),
            Self::ConfigMissing { .. } | Self::ConfigUnusable { .. } => true,
            Self::Store(error) => error.kind == StoreErrorKind::NotFound || is_about_object(error.kind),
            _ => false,
        }
    }

    /// Whether an object is in cold storage. It has to be thawed before it can be read, and is no
    /// damage.
    pub fn is_cold(&self) -> bool {
        matches!(self, Self::Store(error) if error.kind == StoreErrorKind::Cold)
    }

    /// Whether one object cannot be read for now or for ever, and others can: damage, or cold
    /// storage. For those who can do without it.
    pub fn is_unreadable(&self) -> bool {
        self.is_damage() || self.is_cold()
    }

    /// Whether the object belongs to a domain that the key in use does not open. It may be whole.
    pub fn is_foreign(&self) -> bool {
        matches!(self, Self::Damaged { source: DecodeError::KeyLacks { .. }, .. })
    }

    /// Whether this is about the bytes of one existing object. Such an object says nothing, also
    /// when its first bytes claim a newer format: that claim is not authenticated.
    pub fn is_of_object(&self) -> bool {
        match self {
            Self::Damaged { source, .. } => !matches!(source, DecodeError::KeyLacks { .. }),
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
    pub(crate) keys: Arc<Keys>,
    pub(crate) config: Arc<Config>,
    pub(crate) entropy: Arc<dyn Entropy>,
    /// The bytes of `config`, or of the copy that replaces it; `None` if neither was there.
    pub(crate) config_bytes: Option<Arc<[u8]>>,
    /// The generations of versions that this process wrote.
    pub(crate) own_generations: OwnGenerations,
    /// Manifests that were just read.
    pub(crate) read_manifests: ReadManifests,
    /// The key that opened it; `None` for one that was just made, or opened with its master key.
    pub(crate) opened_by: Option<KeyId>,
    /// Why the object `config` is not the one in use.
    pub(crate) config_problem: Option<Arc<RepositoryError>>,
    #[cfg(feature = "breakable-rules")]
    pub(crate) broken: Vec<Rule>,
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
    pub(crate) fn new(
        store: Store,
        keys: Keys,
        config: Config,
        config_bytes: Option<Vec<u8>>,
        entropy: Arc<dyn Entropy>,
    ) -> Self {
        Self {
            store,
            keys: Arc::new(keys),
            config: Arc::new(config),
            config_bytes: config_bytes.map(Arc::from),
            entropy,
            own_generations: OwnGenerations::default(),
            read_manifests: ReadManifests::default(),
            opened_by: None,
            config_problem: None,
            #[cfg(feature = "breakable-rules")]
            broken: Vec::new(),
            #[cfg(feature = "breakable-rules")]
            container_payload: None,
        }
    }

    /// The key that opened it; `None` after `init`, or when it was opened with its master key.
    pub fn opened_by(&self) -> Option<KeyId> {
        self.opened_by
    }

    /// The same repository, whose object `config` is missing or damaged.
    pub(crate) fn in_place_of_config(self, problem: RepositoryError) -> Self {
        Self { config_problem: Some(Arc::new(problem)), ..self }
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

    /// Refuses what the key in use may not do. `what` is the subject of a sentence: "a restore".
    pub fn require(&self, needs: Roles, what: &'static str) -> Result<(), RepositoryError> {
        if self.keys.roles().holds(needs) {
            return Ok(());
        }
        Err(RepositoryError::KeyLacks { what, has: self.keys.roles().verbs(), needs })
    }

    /// The same repository as a machine of another domain sees it, for settings and series there.
    /// Of domains with one name it is the one that is open.
    ///
    /// # Errors
    /// [`RepositoryError::KeyLacks`]: the key in use is of one domain only.
    pub async fn in_domain(&self, name: &str) -> Result<Self, RepositoryError> {
        match self.keys.in_domain(name, self.open_epoch(name).await?) {
            Some(keys) => Ok(Self { keys: Arc::new(keys), ..self.clone() }),
            None => Err(RepositoryError::KeyLacks {
                what: "what is in another domain",
                has: self.keys.roles().verbs(),
                needs: Roles::OPERATE,
            }),
        }
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

#[cfg(feature = "breakable-rules")]
impl Repository {
    /// Whether a rule holds.
    pub fn keeps(&self, rule: Rule) -> bool {
        !self.broken.contains(&rule)
    }

    /// The same repository without one rule. For tests.
    pub fn without_rule(&self, rule: Rule) -> Self {
        let mut without = self.clone();
        without.broken.push(rule);
        without
    }

    /// The same repository, with containers that are full at this number of bytes. For tests.
    pub fn with_container_payload(&self, bytes: usize) -> Self {
        Self { container_payload: Some(bytes), ..self.clone() }
    }

    /// Payload bytes of a full container, where tests ask for others than usual.
    pub fn container_payload(&self) -> Option<usize> {
        self.container_payload
    }
}

#[cfg(not(feature = "breakable-rules"))]
impl Repository {
    /// Whether a rule holds: always.
    #[inline(always)]
    pub fn keeps(&self, _rule: Rule) -> bool {
        true
    }

    /// Payload bytes of a full container, where tests ask for others than usual: nowhere.
    #[inline(always)]
    pub fn container_payload(&self) -> Option<usize> {
        None
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
