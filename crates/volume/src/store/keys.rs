//! Configuration and keys of a store: the formats of a repository, in files of their own.

use larder_chunking::{Algorithm, ChunkerParams};
use std::io;

use larder_format::config::{CONFIG_MAX, Config, UnverifiedConfig};
use larder_format::ids::{KeyId, RepositoryId};
use larder_format::key_file::{
    self, KEY_MAX, KdfCost, KeyFields, MachineKey, StretchError, Unlock, UnwrapError, WrapError,
};
use larder_format::keys::{Keys, MasterKey};
use larder_format::roles::Roles;

use super::CONFIG;
use super::entropy::Entropy;
use crate::disk::{Disk, read_file, write_file};
use crate::error::VolumeError;

const KEYS: &str = "keys";
/// A copy of the configuration of the repository whose keys the store shares.
const LIKE: &str = "repository.config";

/// A repository whose keys a new store shares.
#[derive(Debug, Clone)]
pub struct LikeRepository {
    /// Its keys, with all roles.
    pub keys: Keys,
    /// Its configuration.
    pub config: Config,
    /// Its key objects with all roles: id and bytes. They open the store too.
    pub objects: Vec<(KeyId, Vec<u8>)>,
}

/// The properties of a new store.
#[derive(Debug, Clone)]
pub struct NewStore {
    /// How data is cut.
    pub chunker: ChunkerParams,
    /// Slots of the log, at least 4.
    pub slots: u32,
    /// Bytes of a slot.
    pub slot_bytes: u64,
    /// When it is created, milliseconds since the epoch.
    pub now_ms: u64,
    /// Cost of one guess at the password.
    pub cost: KdfCost,
    /// Share the keys of a repository; the password is not used then.
    pub like: Option<LikeRepository>,
}

impl Default for NewStore {
    fn default() -> Self {
        let chunker = ChunkerParams { algorithm: Algorithm::MinCdcAes, min: 4 << 10, average: 8 << 10, max: 12 << 10 };
        Self { chunker, slots: 8, slot_bytes: 64 << 20, now_ms: 0, cost: KdfCost::DEFAULT, like: None }
    }
}

/// Draws the keys of a new store.
pub(super) fn create_keys(entropy: &dyn Entropy, new: &NewStore) -> Result<(Config, Keys), VolumeError> {
    let keys = match &new.like {
        Some(like) => like.keys.clone(),
        None => Keys::derive(&MasterKey(entropy.random()?)),
    };
    let mut repository = [0; 16];
    repository.copy_from_slice(&entropy.random()?[..16]);
    let config =
        Config { repository: RepositoryId(repository), created_ms: new.now_ms, chunker: new.chunker, page_cuts: false };
    Ok((config, keys))
}

/// Writes the first key and the configuration. That is last: without it there is no store.
pub(super) fn write(
    disk: &dyn Disk,
    entropy: &dyn Entropy,
    password: &[u8],
    new: &NewStore,
    config: &Config,
    keys: &Keys,
) -> Result<(), VolumeError> {
    let config_bytes = config.encode(keys)?;
    disk.make_folder(KEYS).map_err(VolumeError::io(KEYS))?;
    if let Some(like) = &new.like {
        for (id, bytes) in &like.objects {
            let path = format!("{KEYS}/{id}");
            write_file(disk, &path, bytes).map_err(VolumeError::io(&path))?;
        }
        write_file(disk, LIKE, &like.config.encode(keys)?).map_err(VolumeError::io(LIKE))?;
        return write_file(disk, CONFIG, &config_bytes).map_err(VolumeError::io(CONFIG));
    }
    let mut id = [0; 8];
    id.copy_from_slice(&entropy.random()?[..8]);
    let fields = KeyFields {
        cost: Some(new.cost),
        salt: entropy.random()?,
        user: String::new(),
        host: String::new(),
        created_ms: new.now_ms,
        roles: Roles::ALL,
        domain: String::new(),
        epoch: 0,
    };
    let unlock = Unlock::Password(password);
    let key = key_file::wrap(keys, keys.secrets(), unlock, &fields, KeyId(id), config.repository, &config_bytes);
    let key = key.map_err(|error| match error {
        WrapError::Encode(error) => error.into(),
        WrapError::Stretch(error) => not_stretched(error),
    })?;
    let path = format!("{KEYS}/{}", KeyId(id));
    write_file(disk, &path, &key).map_err(VolumeError::io(&path))?;
    write_file(disk, CONFIG, &config_bytes).map_err(VolumeError::io(CONFIG))
}

fn not_stretched(error: StretchError) -> VolumeError {
    VolumeError::Io { what: "the password".to_owned(), source: io::Error::other(error) }
}

/// The repository that the keys of a store are of: the store itself, or the one that it is like.
fn owner(disk: &dyn Disk, config: &UnverifiedConfig) -> Result<RepositoryId, VolumeError> {
    match read_file(disk, LIKE, CONFIG_MAX) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(config.claimed_repository()),
        Err(error) => Err(VolumeError::io(LIKE)(error)),
        // A forged one opens no key: its id is bound to each.
        Ok(bytes) => Ok(UnverifiedConfig::decode(&bytes).map_err(VolumeError::damaged(LIKE))?.claimed_repository()),
    }
}

/// Opens the configuration of a store with a password.
pub fn unlock(disk: &dyn Disk, password: &[u8]) -> Result<(Config, Keys), VolumeError> {
    unlock_with(disk, &StoreUnlock::Password(password))
}

/// What opens a store.
#[derive(Debug)]
pub enum StoreUnlock<'a> {
    /// A password.
    Password(&'a [u8]),
    /// The lines of a key file. One of them must be of the store, or of the repository whose keys
    /// the store shares.
    KeyFile(&'a [MachineKey]),
}

/// Opens the configuration of a store. `WrongKey` if nothing opens a key.
pub fn unlock_with(disk: &dyn Disk, unlock: &StoreUnlock<'_>) -> Result<(Config, Keys), VolumeError> {
    let bytes = read_file(disk, CONFIG, CONFIG_MAX).map_err(VolumeError::needed(CONFIG))?;
    let config = UnverifiedConfig::decode(&bytes).map_err(VolumeError::damaged(CONFIG))?;
    let owner = owner(disk, &config)?;
    let mut damaged = None;
    for name in disk.list(KEYS).map_err(VolumeError::io(KEYS))? {
        let Ok(id) = name.parse::<KeyId>() else { continue };
        let unlock = match unlock {
            StoreUnlock::Password(password) => Unlock::Password(password),
            StoreUnlock::KeyFile(lines) => {
                let line = lines.iter().find(|line| line.key == id && line.repository == owner);
                let Some(line) = line else { continue };
                Unlock::File(&line.secret)
            }
        };
        let path = format!("{KEYS}/{name}");
        let bytes = read_file(disk, &path, KEY_MAX).map_err(VolumeError::needed(&path))?;
        match key_file::unwrap(&bytes, unlock, id, owner) {
            // A key with fewer roles has not all that a store needs.
            Ok(secrets) if secrets.roles != Roles::ALL => {}
            Ok(secrets) => return config.open(secrets).map_err(VolumeError::damaged(CONFIG)),
            Err(UnwrapError::WrongPassword) => {}
            Err(UnwrapError::Damaged(error)) => damaged = Some(VolumeError::damaged(path)(error)),
            Err(UnwrapError::Stretch(error)) => return Err(not_stretched(error)),
        }
    }
    Err(damaged.unwrap_or(VolumeError::WrongKey))
}
