//! The keys of one container: tables with those of its domain, frames of data for the owner of the
//! opening key alone.

use std::sync::OnceLock;

use zeroize::Zeroizing;

use super::MAGIC;
use crate::ids::{ContainerId, ContainerKind, DomainId};
use crate::kem::{CIPHERTEXT_LEN, ENCAPSULATION_SEED_LEN};
use crate::keys::{Keys, Secret};
use crate::names;
use crate::seal::{PartKeys, RANDOM_LEN};
use crate::wire::{DecodeError, EncodeError};

/// Bytes of the wrap: the ciphertext of a container's shared secret.
pub const WRAP_LEN: usize = CIPHERTEXT_LEN;

/// Associated data of all parts, before their number.
pub(super) fn part_aad(domain: DomainId) -> [u8; 20] {
    let mut aad = [0; 20];
    aad[..4].copy_from_slice(&MAGIC);
    aad[4..].copy_from_slice(&domain.0);
    aad
}

fn table_keys(keys: &Keys, id: ContainerId, domain: DomainId) -> Result<PartKeys, DecodeError> {
    let secret = keys.domain_secret(domain, "container")?;
    Ok(PartKeys::new(secret.keyed(&[b"tables\0", names::container(id).as_bytes()])))
}

fn meta_frame_keys(keys: &Keys, id: ContainerId, domain: DomainId) -> Result<PartKeys, DecodeError> {
    let secret = keys.domain_secret(domain, "container")?;
    Ok(PartKeys::new(secret.keyed(&[b"frames\0", names::container(id).as_bytes()])))
}

fn data_frame_keys(bind: &Secret, id: ContainerId, shared: &[u8; 32], wrap: &[u8]) -> PartKeys {
    PartKeys::new(bind.keyed(&[b"frames\0", shared, wrap, names::container(id).as_bytes()]))
}

/// The random bytes of a container's encapsulation.
fn encapsulation_seed(
    bind: &Secret,
    id: ContainerId,
    random: &[u8; RANDOM_LEN],
) -> Zeroizing<[u8; ENCAPSULATION_SEED_LEN]> {
    let mut hasher = blake3::Hasher::new_keyed(&bind.0);
    for part in [b"encapsulation\0".as_slice(), random, names::container(id).as_bytes()] {
        hasher.update(part);
    }
    let mut seed = Zeroizing::new([0; ENCAPSULATION_SEED_LEN]);
    hasher.finalize_xof().fill(&mut seed[..]);
    seed
}

/// What the writer of one container seals with. Made before its first frame; threads share it.
#[derive(Debug)]
pub struct ContainerSealer {
    pub(super) id: ContainerId,
    pub(super) domain: DomainId,
    pub(super) tables: PartKeys,
    pub(super) frames: PartKeys,
    /// Random bytes for the salts of all parts.
    pub(super) random: [u8; RANDOM_LEN],
    pub(super) wrap: Option<Box<[u8; WRAP_LEN]>>,
}

impl ContainerSealer {
    /// Draws the secret of a data container. `random` must be fresh random bytes.
    pub fn new(keys: &Keys, id: ContainerId, domain: DomainId, random: [u8; RANDOM_LEN]) -> Result<Self, EncodeError> {
        let wrap = match id.kind {
            ContainerKind::Meta => None,
            ContainerKind::Data => {
                let seed = encapsulation_seed(keys.bind("container")?, id, &random);
                Some(keys.opening_public().encapsulate(&seed)?)
            }
        };
        let (frames, wrap) = match wrap {
            None => (meta_frame_keys(keys, id, domain)?, None),
            Some((shared, wrap)) => {
                (data_frame_keys(keys.bind("container")?, id, &shared.0, &wrap), Some(Box::new(wrap)))
            }
        };
        Ok(Self { id, domain, tables: table_keys(keys, id, domain)?, frames, random, wrap })
    }

    /// The same with a known secret, so that equal input gives equal bytes.
    #[cfg(test)]
    pub(super) fn with_secret(
        keys: &Keys,
        id: ContainerId,
        domain: DomainId,
        random: [u8; RANDOM_LEN],
        shared: &[u8; 32],
        wrap: [u8; WRAP_LEN],
    ) -> Self {
        let tables = table_keys(keys, id, domain).expect("all keys");
        let frames = data_frame_keys(keys.bind("container").expect("all keys"), id, shared, &wrap);
        Self { id, domain, tables, frames, random, wrap: Some(Box::new(wrap)) }
    }

    /// The container that it seals.
    pub fn id(&self) -> ContainerId {
        self.id
    }
}

/// What opens the frames of one container. The secret of a data container is worked out when the
/// first frame is opened.
#[derive(Debug, Clone)]
pub struct FrameOpener {
    id: ContainerId,
    domain: DomainId,
    wrap: Option<Box<[u8; WRAP_LEN]>>,
    keys: OnceLock<Result<PartKeys, DecodeError>>,
}

impl FrameOpener {
    /// What opens frames of a metadata container that has no tables yet.
    pub fn of_open(id: ContainerId, domain: DomainId) -> Self {
        Self::new(id, domain, None)
    }

    pub(super) fn new(id: ContainerId, domain: DomainId, wrap: Option<Box<[u8; WRAP_LEN]>>) -> Self {
        Self { id, domain, wrap, keys: OnceLock::new() }
    }

    /// Opens one frame in place: `sealed` is the object's bytes of it. Gives the compressed bytes.
    pub(super) fn open<'a>(&self, keys: &Keys, number: u32, sealed: &'a mut [u8]) -> Result<&'a mut [u8], DecodeError> {
        let parts = self.keys.get_or_init(|| match &self.wrap {
            None => meta_frame_keys(keys, self.id, self.domain),
            Some(wrap) => {
                let shared = keys.open("frame")?.decapsulate(wrap)?;
                Ok(data_frame_keys(keys.bind("frame")?, self.id, &shared.0, &wrap[..]))
            }
        });
        let parts = parts.as_ref().map_err(Clone::clone)?;
        parts.open(u64::from(number), &part_aad(self.domain), sealed, "frame")
    }

    /// Bytes of memory that it takes, nearly.
    pub fn bytes_held(&self) -> usize {
        size_of::<Self>() + self.wrap.as_ref().map_or(0, |_| WRAP_LEN)
    }
}

/// What opens the tables of a container.
pub(super) fn tables(keys: &Keys, id: ContainerId, domain: DomainId) -> Result<PartKeys, DecodeError> {
    table_keys(keys, id, domain)
}
