//! Wrapped copies of the master key, and its paper form.
//!
//! `keys/<key-id>`:
//!
//! | offset | size | field   | meaning                                                                     |
//! |-------:|-----:|---------|-----------------------------------------------------------------------------|
//! |      0 |    4 | magic   | `LKEY`                                                                      |
//! |      4 |    1 | version | 1                                                                           |
//! |      5 |    3 |         | zero                                                                        |
//! |      8 |    4 | length  | bytes of the fields, at most 4,096                                          |
//! |     12 |    … | fields  | CBOR map: argon2id parameters, salt, who made the key, and a copy of `config` (not secret) |
//! |      … |   32 | commitment | second half of the keyed hash below                                      |
//! |      … |   48 | wrapped | master key under AES-256-GCM, part 0; key = first half of the keyed hash below |
//!
//! The keyed hash is 64 bytes of BLAKE3's output, keyed with argon2id of the password, over the
//! *context*. The context is everything before the commitment, then the key's id and the
//! repository's id. The context is the associated data of the sealing as well.
//!
//! AES-GCM alone commits to nothing. An attacker can make a text that opens under many keys, and so
//! a key object that opens under many passwords. Watching once whether a program continues would
//! then test them all. The commitment is a hash of the one key and the one context it was made
//! with. It is compared first, and the wrapped key is opened only if it fits. So a planted object
//! tests one password at most.

mod memory;

use argon2::{Algorithm, Argon2, Params, Version};
use minicbor::bytes::ByteVec;
use minicbor::{Decode, Encode};
use subtle::ConstantTimeEq;
use zeroize::Zeroizing;

use self::memory::Blocks;
use crate::ErrorKind;
use crate::cbor;
use crate::ids::{KeyId, RepositoryId};
use crate::seal::{MasterKey, Sealer, TAG_LEN};
use crate::wire::{DecodeError, EncodeError, Put, Reader};

const MAGIC: [u8; 4] = *b"LKEY";
const VERSION: u8 = 1;
const WHAT: &str = "key";
const FIELDS_MAX: usize = 4096;
const COMMITMENT_LEN: usize = 32;
/// Bytes behind the fields.
const TAIL_LEN: usize = COMMITMENT_LEN + 32 + TAG_LEN;

/// Most bytes of a wrapped key.
pub const KEY_MAX: u64 = (12 + FIELDS_MAX + TAIL_LEN) as u64;

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

    fn params(self) -> Result<Params, DecodeError> {
        let Self { memory_kib, passes, lanes } = self;
        let work = u64::from(memory_kib) * u64::from(passes);
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
    /// Cost of one guess.
    #[n(0)]
    pub cost: KdfCost,
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
}

/// The fields as they are stored.
#[derive(Encode, Decode)]
#[cbor(map)]
struct Fields {
    #[n(0)]
    cost: KdfCost,
    #[n(1)]
    #[cbor(with = "minicbor::bytes")]
    salt: [u8; 32],
    #[n(2)]
    user: String,
    #[n(3)]
    host: String,
    #[n(4)]
    created_ms: u64,
    /// The bytes of `config`, so that its loss costs nothing. 5 and 6 are reserved.
    #[n(7)]
    config: Option<ByteVec>,
}

impl Fields {
    fn shown(self) -> KeyFields {
        let Self { cost, salt, user, host, created_ms, config: _ } = self;
        KeyFields { cost, salt, user, host, created_ms }
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
}

impl UnwrapError {
    /// How a caller can react to it.
    pub fn kind(&self) -> ErrorKind {
        match self {
            Self::WrongPassword => ErrorKind::BadKey,
            Self::Damaged(error) => error.kind(),
        }
    }
}

/// The result of a password in one context.
struct Derived {
    sealer: Sealer,
    commitment: [u8; COMMITMENT_LEN],
}

fn derive(fields: &KeyFields, password: &[u8], context: &[u8]) -> Result<Derived, DecodeError> {
    let argon2 = Argon2::new(Algorithm::Argon2id, Version::V0x13, fields.cost.params()?);
    let mut key = Zeroizing::new([0; 32]);
    let count = argon2.params().block_count();
    let blocks = if Blocks::is_worth_it(count) { Blocks::new(count) } else { None };
    let derived = match blocks {
        Some(blocks) => argon2.hash_password_into_with_memory(password, &fields.salt, &mut key[..], blocks),
        None => argon2.hash_password_into(password, &fields.salt, &mut key[..]),
    };
    derived.map_err(|_| DecodeError::invalid(WHAT, "argon2id refuses its parameters"))?;
    let mut output = Zeroizing::new([0; 32 + COMMITMENT_LEN]);
    blake3::Hasher::new_keyed(&key).update(context).finalize_xof().fill(&mut output[..]);
    let mut sealing = Zeroizing::new([0; 32]);
    let mut commitment = [0; COMMITMENT_LEN];
    sealing.copy_from_slice(&output[..32]);
    commitment.copy_from_slice(&output[32..]);
    Ok(Derived { sealer: Sealer::new(&sealing), commitment })
}

fn context(head: &[u8], id: KeyId, repository: RepositoryId) -> Vec<u8> {
    [head, &id.0, &repository.0].concat()
}

/// Wraps `master` under `password`. `fields.salt` must be fresh random bytes.
pub fn wrap(
    master: &MasterKey,
    password: &[u8],
    fields: &KeyFields,
    id: KeyId,
    repository: RepositoryId,
) -> Result<Vec<u8>, EncodeError> {
    wrap_with_config(master, password, fields, id, repository, None)
}

/// The same with a copy of the bytes of `config`.
pub fn wrap_with_config(
    master: &MasterKey,
    password: &[u8],
    fields: &KeyFields,
    id: KeyId,
    repository: RepositoryId,
    config: Option<&[u8]>,
) -> Result<Vec<u8>, EncodeError> {
    let mut out = MAGIC.to_vec();
    out.put_u32(u32::from(VERSION));
    let KeyFields { cost, salt, user, host, created_ms } = fields.clone();
    let config = config.map(|config| ByteVec::from(config.to_vec()));
    let encoded = cbor::encode(&Fields { cost, salt, user, host, created_ms, config });
    if encoded.len() > FIELDS_MAX {
        return Err(EncodeError::new(WHAT, "its user and host are too long"));
    }
    out.put_u32(EncodeError::fit_u32(WHAT, encoded.len())?);
    out.extend_from_slice(&encoded);
    let context = context(&out, id, repository);
    let derived = derive(fields, password, &context)?;
    out.extend_from_slice(&derived.commitment);
    let from = out.len();
    out.extend_from_slice(&master.0);
    // The key is used once: its salt is fresh, so number 0 is never reused.
    derived.sealer.seal(0, &context, &mut out, from);
    Ok(out)
}

/// The fields, and where they end.
fn split(bytes: &[u8]) -> Result<(Fields, usize), DecodeError> {
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
    if reader.remaining() != TAIL_LEN {
        return Err(reader.invalid("its length is wrong"));
    }
    Ok((fields, bytes.len() - TAIL_LEN))
}

/// Reads the public part. Not authenticated: for display only.
pub fn read_fields(bytes: &[u8]) -> Result<KeyFields, DecodeError> {
    split(bytes).map(|(fields, _)| fields.shown())
}

/// The copy of `config` in a key. It must not be trusted before it is verified with the master key.
pub fn config_copy(bytes: &[u8]) -> Result<Option<Vec<u8>>, DecodeError> {
    split(bytes).map(|(fields, _)| fields.config.map(Into::into))
}

/// Unwraps the master key.
pub fn unwrap(bytes: &[u8], password: &[u8], id: KeyId, repository: RepositoryId) -> Result<MasterKey, UnwrapError> {
    let (fields, from) = split(bytes)?;
    let (head, tail) = bytes.split_at(from);
    let (commitment, wrapped) = tail.split_at(COMMITMENT_LEN);
    let context = context(head, id, repository);
    let derived = derive(&fields.shown(), password, &context)?;
    if !bool::from(derived.commitment.ct_eq(commitment)) {
        return Err(UnwrapError::WrongPassword);
    }
    // The password is the right one, so a part that does not open now is damaged.
    let mut sealed = Zeroizing::new(wrapped.to_vec());
    let plain = derived.sealer.open(0, &context, &mut sealed, WHAT)?;
    let master: [u8; 32] = (&*plain).try_into().map_err(|_| DecodeError::invalid(WHAT, "its length is wrong"))?;
    Ok(MasterKey(master))
}

/// The paper form of a master key: lines that a person can type back, each with a check of its own.
///
/// Six lines, each 18 base32 letters in groups of six: the next 8 bytes of (repository id ‖ master
/// key) and 3 bytes of checksum. The checksum covers the line's number and those bytes, so a typing
/// error is found in its line.
pub fn to_paper(master: &MasterKey, repository: RepositoryId) -> Vec<String> {
    let secret = Zeroizing::new([&repository.0[..], &master.0].concat());
    let line = |(number, bytes): (usize, &[u8])| {
        let mut body = Zeroizing::new(bytes.to_vec());
        body.extend_from_slice(&paper_check(number, bytes));
        let text = data_encoding::BASE32_NOPAD.encode(&body);
        let groups: Vec<_> = text.as_bytes().chunks(6).map(String::from_utf8_lossy).collect();
        groups.join("-")
    };
    secret.chunks(8).enumerate().map(line).collect()
}

fn paper_check(number: usize, bytes: &[u8]) -> [u8; 3] {
    let mut hasher = blake3::Hasher::new_derive_key("Larder paper key 1");
    hasher.update(&[number as u8]).update(bytes);
    let mut check = [0; 3];
    check.copy_from_slice(&hasher.finalize().as_bytes()[..3]);
    check
}

/// A paper key that was typed wrong.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PaperError {
    /// Not the right number of lines.
    #[error("a paper key has 6 lines; {found} were given")]
    Lines {
        /// How many there were.
        found: usize,
    },
    /// A line with a typing error.
    #[error("line {line} of the paper key has a typing error")]
    Line {
        /// Counted from 1.
        line: usize,
    },
}

impl PaperError {
    /// How a caller can react to it.
    pub fn kind(&self) -> ErrorKind {
        match self {
            Self::Lines { .. } | Self::Line { .. } => ErrorKind::BadKey,
        }
    }
}

/// Reads a paper key; case, spaces, dashes and empty lines do not matter, and 0, 1, 8 are read as
/// O, I, B.
pub fn from_paper(text: &str) -> Result<(MasterKey, RepositoryId), PaperError> {
    let lines: Vec<_> = text.lines().filter(|line| !line.trim().is_empty()).collect();
    if lines.len() != 6 {
        return Err(PaperError::Lines { found: lines.len() });
    }
    let mut secret = Zeroizing::new(Vec::with_capacity(48));
    for (number, line) in lines.iter().enumerate() {
        let wrong = PaperError::Line { line: number + 1 };
        let letters: String = line
            .chars()
            .filter(|letter| !letter.is_whitespace() && *letter != '-')
            .map(|letter| match letter.to_ascii_uppercase() {
                '0' => 'O',
                '1' => 'I',
                '8' => 'B',
                letter => letter,
            })
            .collect();
        let bytes = data_encoding::BASE32_NOPAD.decode(letters.as_bytes()).map_err(|_| wrong.clone())?;
        let (bytes, check) = bytes.split_last_chunk::<3>().ok_or(wrong.clone())?;
        if bytes.len() != 8 || paper_check(number, bytes) != *check {
            return Err(wrong);
        }
        secret.extend_from_slice(bytes);
    }
    let (mut repository, mut master) = ([0; 16], [0; 32]);
    repository.copy_from_slice(&secret[..16]);
    master.copy_from_slice(&secret[16..]);
    Ok((MasterKey(master), RepositoryId(repository)))
}

#[cfg(test)]
mod tests {
    use super::*;

    const ID: KeyId = KeyId([3; 8]);
    const REPOSITORY: RepositoryId = RepositoryId([4; 16]);

    fn wrapped(password: &[u8]) -> Vec<u8> {
        let fields = KeyFields {
            cost: KdfCost::TEST,
            salt: [5; 32],
            user: "alice".to_owned(),
            host: "host".to_owned(),
            created_ms: 1_790_000_000_000,
        };
        wrap(&MasterKey([1; 32]), password, &fields, ID, REPOSITORY).expect("wraps")
    }

    #[test]
    fn version_1_bytes_never_change() {
        let golden = hex::decode(include_str!("golden/key_v1.hex").trim()).expect("valid hex");
        assert_eq!(hex::encode(wrapped(b"secret")), hex::encode(&golden));
        assert_eq!(unwrap(&golden, b"secret", ID, REPOSITORY).expect("unwraps").0, [1; 32]);
    }

    /// A copy of `config` is one more field; a key without one has the same bytes as before.
    #[test]
    fn a_key_carries_a_copy_of_config() {
        let fields = read_fields(&wrapped(b"secret")).expect("reads");
        let copy = b"bytes of config";
        let bytes =
            wrap_with_config(&MasterKey([1; 32]), b"secret", &fields, ID, REPOSITORY, Some(copy)).expect("wraps");
        let golden = include_str!("golden/key_v1_config.hex").trim();
        assert_eq!(hex::encode(&bytes), golden);
        assert_eq!(config_copy(&bytes).expect("reads").as_deref(), Some(&copy[..]));
        assert_eq!(config_copy(&wrapped(b"secret")).expect("reads"), None);
        assert_eq!(read_fields(&bytes).expect("reads"), fields);
        assert_eq!(unwrap(&bytes, b"secret", ID, REPOSITORY).expect("unwraps").0, [1; 32]);
    }

    #[test]
    fn only_the_password_opens_the_key_and_only_in_its_place() {
        let bytes = wrapped(b"secret");
        assert_eq!(unwrap(&bytes, b"Secret", ID, REPOSITORY).expect_err("refused"), UnwrapError::WrongPassword);
        assert!(unwrap(&bytes, b"secret", KeyId([0; 8]), REPOSITORY).is_err());
        assert!(unwrap(&bytes, b"secret", ID, RepositoryId([0; 16])).is_err());
        for bit in 0..bytes.len() * 8 {
            let mut flipped = bytes.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            // A flipped cost may ask for up to 1 GiB; the test asserts only that it is never
            // accepted.
            if read_fields(&flipped).is_ok_and(|fields| fields.cost != KdfCost::TEST) {
                continue;
            }
            assert!(unwrap(&flipped, b"secret", ID, REPOSITORY).is_err(), "bit {bit}");
        }
        for len in 0..bytes.len() {
            assert!(unwrap(&bytes[..len], b"secret", ID, REPOSITORY).is_err(), "cut to {len}");
        }
    }

    /// Guards against: one key object that opens under many passwords, which AES-GCM alone allows.
    /// Its maker can choose the wrapped bytes freely, and knows a password, but the commitment fits
    /// that one only.
    #[test]
    fn nothing_is_opened_that_the_commitment_does_not_fit() {
        let (bytes, other) = (wrapped(b"secret"), wrapped(b"other"));
        let at = bytes.len() - TAIL_LEN;
        let mut planted = bytes.clone();
        // The other password's wrapped bytes open under its key; the commitment is that of the
        // first.
        planted[at + COMMITMENT_LEN..].copy_from_slice(&other[at + COMMITMENT_LEN..]);
        let open = |bytes: &[u8], password: &[u8]| unwrap(bytes, password, ID, REPOSITORY).map(|master| master.0);
        assert_eq!(open(&planted, b"other"), Err(UnwrapError::WrongPassword));
        let damaged = UnwrapError::Damaged(DecodeError::NotAuthentic { what: WHAT });
        assert_eq!(open(&planted, b"secret"), Err(damaged));
        planted[at..at + COMMITMENT_LEN].copy_from_slice(&other[at..at + COMMITMENT_LEN]);
        assert_eq!(open(&planted, b"other"), Ok([1; 32]));
        assert_eq!(open(&planted, b"secret"), Err(UnwrapError::WrongPassword));
    }

    #[test]
    fn a_key_that_asks_for_too_much_is_refused_without_trying() {
        let refused = |memory_kib, passes| {
            let cost = KdfCost { memory_kib, passes, lanes: 1 };
            matches!(cost.params(), Err(DecodeError::Invalid { .. }))
        };
        assert!(refused(u32::MAX, 1) && refused((1 << 20) + 1, 1) && refused(1 << 20, 5) && refused(64, 65));
        assert!(refused(u32::MAX, u32::MAX) && refused(128 << 10, 33));
        assert!(!refused(1 << 20, 4) && !refused(64 << 10, 64));
        let long = KeyFields { user: "x".repeat(FIELDS_MAX), ..read_fields(&wrapped(b"secret")).expect("reads") };
        assert!(wrap(&MasterKey([1; 32]), b"secret", &long, ID, REPOSITORY).is_err());
    }

    #[test]
    fn a_paper_key_is_read_back_and_typing_errors_are_found_in_their_line() {
        let master = MasterKey(std::array::from_fn(|i| i as u8 * 7));
        let lines = to_paper(&master, REPOSITORY);
        let text = lines.join("\n").to_lowercase().replace('-', " ").replace('o', "0");
        let (read, repository) = from_paper(&text).expect("reads");
        assert_eq!((read.0, repository), (master.0, REPOSITORY));
        for line in 0..6 {
            let mut wrong = lines.clone();
            let first = if wrong[line].starts_with('A') { "C" } else { "A" };
            wrong[line].replace_range(..1, first);
            assert_eq!(from_paper(&wrong.join("\n")).expect_err("refused"), PaperError::Line { line: line + 1 });
        }
        let mut swapped = lines.clone();
        swapped.swap(2, 3);
        assert_eq!(from_paper(&swapped.join("\n")).expect_err("refused"), PaperError::Line { line: 3 });
        assert_eq!(from_paper(&lines[1..].join("\n")).expect_err("refused"), PaperError::Lines { found: 5 });
    }
}
