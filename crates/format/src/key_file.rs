//! Key objects: the secrets of a role, wrapped under a password or under the secret of a key file.
//!
//! `keys/<key-id>`:
//!
//! | offset | size | field      | meaning                                                                  |
//! |-------:|-----:|------------|--------------------------------------------------------------------------|
//! |      0 |    4 | magic      | `LKEY`                                                                   |
//! |      4 |    1 | version    | 2                                                                        |
//! |      5 |    3 |            | zero                                                                     |
//! |      8 |    4 | length     | bytes of the fields, at most 8,192                                       |
//! |     12 |    … | fields     | CBOR map: argon2id parameters, salt, who made it, role, domain, a copy of `config` (not secret) |
//! |      … |   32 | commitment | second half of the keyed hash below                                      |
//! |      … |    4 | length     | bytes of the wrapped payload, at most 4,096                              |
//! |      … |    … | wrapped    | the payload (`payload.rs`) under AES-256-GCM, part 0; key = first half of the keyed hash below |
//! |      … |   64 | signature  | Ed25519 by the operator over `Larder key 2`, a zero byte, everything before, the key's id and the repository's |
//!
//! The keyed hash is 64 bytes of BLAKE3's output over the *context*, keyed with argon2id of the
//! password, or with the secret of the key file. The context is everything before the commitment,
//! then the key's id and the repository's id. The context is the associated data of the sealing as
//! well.
//!
//! AES-GCM alone commits to nothing. An attacker can make a text that opens under many keys, and so
//! a key object that opens under many passwords. Watching once whether a program continues would
//! then test them all. The commitment is a hash of the one key and the one context it was made
//! with. It is compared first, and the wrapped key is opened only if it fits. So a planted object
//! tests one password at most.
//!
//! The signature says that an operator made the key. A holder of any key can check it, and so tell
//! planted objects from keys.

mod machine;
mod memory;
mod paper;
mod payload;
mod stretch;

use argon2::Params;
use minicbor::bytes::ByteVec;
use minicbor::{Decode, Encode};
use subtle::ConstantTimeEq;
use zeroize::Zeroizing;

pub use self::machine::{MACHINE_KEY_MAX, MachineKey, MachineKeyError};
pub use self::paper::{PaperError, from_paper, to_paper};
pub use self::stretch::{Stretch, StretchError, stretch_by, stretch_here};
use crate::ErrorKind;
use crate::cbor;
use crate::ids::{KeyId, RepositoryId};
use crate::keys::{Keys, SIGNATURE_LEN, Secrets, verify};
use crate::roles::Roles;
use crate::seal::{Sealer, TAG_LEN};
use crate::wire::{DecodeError, EncodeError, Put, Reader};

const MAGIC: [u8; 4] = *b"LKEY";
const VERSION: u8 = 2;
const WHAT: &str = "key";
const FIELDS_MAX: usize = 8192;
const PAYLOAD_MAX: usize = 4096;
const COMMITMENT_LEN: usize = 32;
const SIGNED_CONTEXT: &[u8] = b"Larder key 2\0";

/// Most bytes of a key object.
pub const KEY_MAX: u64 = 16 << 10;
const _: () = assert!(12 + FIELDS_MAX + COMMITMENT_LEN + 4 + PAYLOAD_MAX + SIGNATURE_LEN <= KEY_MAX as usize);

/// Cost of one guess at a password.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct KdfCost {
    /// Memory in KiB.
    #[n(0)]
    pub memory_kib: u32,
    /// Passes over that memory.
    #[n(1)]
    pub passes: u32,
    /// Argon2's parallelism: the number of threads that may work.
    #[n(2)]
    pub lanes: u32,
}

impl KdfCost {
    /// 64 MiB, 3 passes, parallelism 4: the memory-constrained recommendation of RFC 9106, section
    /// 4.
    pub const DEFAULT: Self = Self { memory_kib: 64 << 10, passes: 3, lanes: 4 };
    /// As little as argon2id allows. For tests only: no protection.
    pub const TEST: Self = Self { memory_kib: 32, passes: 1, lanes: 4 };
    /// The most a reader spends on a key, so that a hostile store cannot keep it busy or take all
    /// its memory.
    const MAX: Self = Self { memory_kib: 1 << 20, passes: 64, lanes: 64 };
    /// The most memory times passes (KiB): bounds the time of one guess to seconds. A gigabyte may
    /// be gone through four times.
    const WORK_MAX: u64 = 4 << 20;

    /// Memory times passes (KiB): what one guess costs.
    pub fn work(self) -> u64 {
        u64::from(self.memory_kib) * u64::from(self.passes)
    }

    /// Whether a key of this program may cost this much. One that costs more was planted to take
    /// the time and the memory of others.
    pub fn is_usual(self) -> bool {
        self.memory_kib <= 4 * Self::DEFAULT.memory_kib && self.work() <= 4 * Self::DEFAULT.work()
    }

    fn params(self) -> Result<Params, DecodeError> {
        let Self { memory_kib, passes, lanes } = self;
        let work = self.work();
        let max = Self::MAX;
        if memory_kib > max.memory_kib || passes > max.passes || lanes > max.lanes || work > Self::WORK_MAX {
            return Err(DecodeError::invalid(WHAT, "it asks for more memory or time than any honest key"));
        }
        Params::new(memory_kib, passes, lanes, Some(32))
            .map_err(|_| DecodeError::invalid(WHAT, "its argon2id parameters are out of bounds"))
    }
}

/// The public part of a key.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct KeyFields {
    /// Cost of one guess; `None`: a key file opens it.
    #[n(0)]
    pub cost: Option<KdfCost>,
    /// Random, goes into the derivation.
    #[n(1)]
    #[cbor(with = "minicbor::bytes")]
    pub salt: [u8; 32],
    /// Who made it. For people.
    #[n(2)]
    pub user: String,
    /// Where it was made. For people.
    #[n(3)]
    pub host: String,
    /// When it was made, milliseconds since the epoch. For people.
    #[n(4)]
    pub created_ms: u64,
    /// What its holder may do.
    #[n(5)]
    pub roles: Roles,
    /// Name of the domain of its holder's jobs; empty: the default domain.
    #[n(6)]
    pub domain: String,
    /// How often domains of this name were closed before (`closed_domain.rs`).
    #[n(8)]
    pub epoch: u32,
}

impl KeyFields {
    /// A full key of nobody that anybody can guess. For tests only.
    pub fn for_tests() -> Self {
        Self {
            cost: Some(KdfCost::TEST),
            salt: [0; 32],
            user: String::new(),
            host: String::new(),
            created_ms: 0,
            roles: Roles::ALL,
            domain: String::new(),
            epoch: 0,
        }
    }
}

/// The fields as they are stored.
#[derive(Encode, Decode)]
#[cbor(map)]
struct Fields {
    #[n(0)]
    cost: Option<KdfCost>,
    #[n(1)]
    #[cbor(with = "minicbor::bytes")]
    salt: [u8; 32],
    #[n(2)]
    user: String,
    #[n(3)]
    host: String,
    #[n(4)]
    created_ms: u64,
    #[n(5)]
    roles: Roles,
    #[n(6)]
    domain: String,
    /// The bytes of `config`, so that its loss costs nothing.
    #[n(7)]
    config: ByteVec,
    /// Left out at 0.
    #[n(8)]
    #[cbor(default, skip_if = "cbor::is_zero")]
    epoch: u32,
}

impl Fields {
    fn shown(self) -> KeyFields {
        let Self { cost, salt, user, host, created_ms, roles, domain, config: _, epoch } = self;
        KeyFields { cost, salt, user, host, created_ms, roles, domain, epoch }
    }
}

/// A password did not open a key, or the key cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum UnwrapError {
    /// The password is not the one this key was wrapped with (or the key was forged or damaged:
    /// that cannot be told apart).
    #[error("the password does not open this key")]
    WrongPassword,
    /// The key object itself is not readable.
    #[error(transparent)]
    Damaged(#[from] DecodeError),
    /// The password could not be stretched.
    #[error(transparent)]
    Stretch(#[from] StretchError),
}

impl UnwrapError {
    /// How a caller can react to it.
    pub fn kind(&self) -> ErrorKind {
        match self {
            Self::WrongPassword => ErrorKind::BadKey,
            Self::Damaged(error) => error.kind(),
            Self::Stretch(_) => ErrorKind::Resource,
        }
    }
}

/// A key object could not be made.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum WrapError {
    /// It cannot be stored.
    #[error(transparent)]
    Encode(#[from] EncodeError),
    /// The password could not be stretched.
    #[error(transparent)]
    Stretch(#[from] StretchError),
}

impl WrapError {
    /// How a caller can react to it.
    pub fn kind(&self) -> ErrorKind {
        match self {
            Self::Encode(error) => error.kind(),
            Self::Stretch(_) => ErrorKind::Resource,
        }
    }
}

/// What opens a key object.
#[derive(Clone, Copy)]
pub enum Unlock<'a> {
    /// A password.
    Password(&'a [u8]),
    /// The secret of a machine's key file.
    File(&'a [u8; 32]),
}

impl std::fmt::Debug for Unlock<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Unlock(..)")
    }
}

/// The result of a password or secret in one context.
struct Derived {
    sealer: Sealer,
    commitment: [u8; COMMITMENT_LEN],
}

/// A key could not be derived.
enum DeriveError {
    Decode(DecodeError),
    Stretch(StretchError),
}

impl From<DecodeError> for DeriveError {
    fn from(error: DecodeError) -> Self {
        Self::Decode(error)
    }
}

impl From<StretchError> for DeriveError {
    fn from(error: StretchError) -> Self {
        Self::Stretch(error)
    }
}

/// `None`: the key opens with the other thing, a password or a file.
fn derive(fields: &KeyFields, unlock: Unlock<'_>, context: &[u8]) -> Result<Option<Derived>, DeriveError> {
    let key = match (unlock, fields.cost) {
        (Unlock::Password(password), Some(cost)) => stretch::stretch(cost, &fields.salt, password)?,
        (Unlock::File(secret), None) => Zeroizing::new(*secret),
        (Unlock::Password(_), None) | (Unlock::File(_), Some(_)) => return Ok(None),
    };
    let mut output = Zeroizing::new([0; 32 + COMMITMENT_LEN]);
    blake3::Hasher::new_keyed(&key).update(context).finalize_xof().fill(&mut output[..]);
    let mut sealing = Zeroizing::new([0; 32]);
    let mut commitment = [0; COMMITMENT_LEN];
    sealing.copy_from_slice(&output[..32]);
    commitment.copy_from_slice(&output[32..]);
    Ok(Some(Derived { sealer: Sealer::new(&sealing), commitment }))
}

fn context(head: &[u8], id: KeyId, repository: RepositoryId) -> Vec<u8> {
    [head, &id.0, &repository.0].concat()
}

fn signed_text(bytes: &[u8], id: KeyId, repository: RepositoryId) -> Vec<u8> {
    [SIGNED_CONTEXT, bytes, &id.0, &repository.0].concat()
}

/// Wraps the secrets of a role. `signer` signs for it; `fields.salt` must be fresh random bytes;
/// `config` is the bytes of the configuration.
pub fn wrap(
    signer: &Keys,
    secrets: &Secrets,
    unlock: Unlock<'_>,
    fields: &KeyFields,
    id: KeyId,
    repository: RepositoryId,
    config: &[u8],
) -> Result<Vec<u8>, WrapError> {
    let mut out = MAGIC.to_vec();
    out.put_u32(u32::from(VERSION));
    let KeyFields { cost, salt, user, host, created_ms, roles, domain, epoch } = fields.clone();
    let config = config.to_vec().into();
    let encoded = cbor::encode(&Fields { cost, salt, user, host, created_ms, roles, domain, config, epoch });
    if encoded.len() > FIELDS_MAX {
        return Err(EncodeError::new(WHAT, "its user and host are too long").into());
    }
    out.put_u32(EncodeError::fit_u32(WHAT, encoded.len())?);
    out.extend_from_slice(&encoded);
    let context = context(&out, id, repository);
    let mismatch = || EncodeError::new(WHAT, "a password and a key file open different keys");
    let derived = derive(fields, unlock, &context).map_err(|error| match error {
        DeriveError::Decode(error) => WrapError::Encode(error.into()),
        DeriveError::Stretch(error) => error.into(),
    })?;
    let derived = derived.ok_or_else(mismatch)?;
    out.extend_from_slice(&derived.commitment);
    let payload = payload::encode(secrets);
    if payload.len() + TAG_LEN > PAYLOAD_MAX {
        return Err(EncodeError::new(WHAT, "it has the secrets of too many domains").into());
    }
    out.put_u32(EncodeError::fit_u32(WHAT, payload.len() + TAG_LEN)?);
    let from = out.len();
    out.extend_from_slice(&payload);
    // The key is used once: its salt is fresh, so number 0 is never reused.
    derived.sealer.seal(0, &context, &mut out, from);
    let signature = signer.sign(&signed_text(&out, id, repository));
    out.extend_from_slice(&signature.ok_or(EncodeError::new(WHAT, "an operator has to sign it"))?);
    Ok(out)
}

/// A key object, taken apart.
struct Parts<'a> {
    fields: Fields,
    head: &'a [u8],
    commitment: &'a [u8],
    wrapped: &'a [u8],
    signed: &'a [u8],
    signature: &'a [u8],
}

fn split(bytes: &[u8]) -> Result<Parts<'_>, DecodeError> {
    let mut reader = Reader::new(bytes, WHAT);
    let found = reader.array()?;
    if found != MAGIC {
        return Err(DecodeError::BadMagic { what: WHAT, found });
    }
    reader.version(VERSION)?;
    if reader.take(3)? != [0; 3] {
        return Err(reader.invalid("reserved bytes are not zero"));
    }
    let len = reader.u32()? as usize;
    if len > FIELDS_MAX {
        return Err(reader.invalid("its fields are longer than a reader accepts"));
    }
    let fields = cbor::decode(reader.take(len)?, WHAT)?;
    let head = &bytes[..12 + len];
    let commitment = reader.take(COMMITMENT_LEN)?;
    let len = reader.u32()? as usize;
    if len > PAYLOAD_MAX {
        return Err(reader.invalid("its payload is longer than a reader accepts"));
    }
    let wrapped = reader.take(len)?;
    let signature = reader.take(SIGNATURE_LEN)?;
    reader.finish()?;
    Ok(Parts { fields, head, commitment, wrapped, signed: &bytes[..bytes.len() - SIGNATURE_LEN], signature })
}

/// Reads the public part. Not authenticated: for display only.
pub fn read_fields(bytes: &[u8]) -> Result<KeyFields, DecodeError> {
    split(bytes).map(|parts| parts.fields.shown())
}

/// The copy of `config` in a key. It must not be trusted before it is verified.
pub fn config_copy(bytes: &[u8]) -> Result<Vec<u8>, DecodeError> {
    split(bytes).map(|parts| parts.fields.config.into())
}

/// Whether the operator made this key. Others were planted.
pub fn is_genuine(bytes: &[u8], keys: &Keys, id: KeyId, repository: RepositoryId) -> bool {
    split(bytes).is_ok_and(|parts| keys.is_signed(&signed_text(parts.signed, id, repository), parts.signature))
}

/// Unwraps the secrets. The signature must be that of the operator whom the payload names.
pub fn unwrap(bytes: &[u8], unlock: Unlock<'_>, id: KeyId, repository: RepositoryId) -> Result<Secrets, UnwrapError> {
    let parts = split(bytes)?;
    let context = context(parts.head, id, repository);
    let fields = parts.fields.shown();
    let derived = derive(&fields, unlock, &context).map_err(|error| match error {
        DeriveError::Decode(error) => UnwrapError::Damaged(error),
        DeriveError::Stretch(error) => UnwrapError::Stretch(error),
    })?;
    let Some(derived) = derived else { return Err(UnwrapError::WrongPassword) };
    if !bool::from(derived.commitment.ct_eq(parts.commitment)) {
        return Err(UnwrapError::WrongPassword);
    }
    // The password is the right one, so a part that does not open now is damaged.
    let mut sealed = Zeroizing::new(parts.wrapped.to_vec());
    let secrets = payload::decode(derived.sealer.open(0, &context, &mut sealed, WHAT)?)?;
    if secrets.roles != fields.roles {
        return Err(DecodeError::invalid(WHAT, "its payload is of another role than it says").into());
    }
    let signed = signed_text(parts.signed, id, repository);
    if !verify(&secrets.operator_public, &signed, parts.signature) {
        return Err(DecodeError::NotAuthentic { what: WHAT }.into());
    }
    Ok(Secrets { domain_name: fields.domain, domain_epoch: fields.epoch, ..secrets })
}

#[cfg(test)]
mod tests;
