//! The master key, the keys derived from it, and authenticated encryption of small objects and of
//! container parts.
//!
//! Cipher: AES-256-GCM. No key ever seals two different texts under one nonce:
//! * a container has a key of its own, derived from its id; its parts are numbered, the number is
//!   the nonce. A container's id is sealed once, by the job it names, so a resumed run must be a
//!   new job;
//! * an object of a run of the index in the same way (`run.rs`);
//! * every other object has a key derived from its name and 16 random bytes that are stored in
//!   front of it.
//!
//! A sealed object is bound to its place: the object's name goes into the key, so a valid object
//! under another's name does not open.
//!
//! Layout of a sealed object (lease, version manifest, marks; wrapped keys and the configuration
//! have their own):
//!
//! | offset | size | field   | meaning                                                        |
//! |-------:|-----:|---------|----------------------------------------------------------------|
//! |      0 |    4 | magic   | what it is, for instance `LLSE`                                |
//! |      4 |    1 | version | of the layout inside                                           |
//! |      5 |    1 | cipher  | 1 = AES-256-GCM                                                |
//! |      6 |    2 |         | zero                                                           |
//! |      8 |   16 | salt    | random; goes into the key                                      |
//! |     24 |    … | parts   | each: u32 length, then that many bytes of ciphertext with tag  |
//!
//! A part's nonce is its number; the first 24 bytes, the part's number and whether it is the last
//! are its associated data.

use aws_lc_rs::aead::{AES_256_GCM, Aad, LessSafeKey, Nonce, UnboundKey};
use zeroize::{Zeroize, ZeroizeOnDrop};

use crate::ids::{ContainerId, RunId, SeriesKey};
use crate::names;
use crate::wire::{DecodeError, EncodeError, Put, Reader};

/// Bytes that sealing adds.
pub const TAG_LEN: usize = 16;

const CIPHER_AES_256_GCM: u8 = 1;
const HEADER_LEN: usize = 24;

/// The secret from which all others of a repository are derived. With it, one can read and write
/// everything.
#[derive(Clone, Zeroize, ZeroizeOnDrop)]
pub struct MasterKey(pub [u8; 32]);

impl std::fmt::Debug for MasterKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("MasterKey(..)")
    }
}

/// The keys in daily use, derived from the [`MasterKey`] with BLAKE3's key derivation, one context
/// string each.
#[derive(Clone, Zeroize, ZeroizeOnDrop)]
pub struct Keys {
    /// Keys the chunks' fingerprints.
    pub fingerprint: [u8; 32],
    /// Seeds the chunk boundaries, so that sizes tell an outsider nothing about known files.
    pub chunking: [u8; 32],
    /// Keys the MACs over runs of chunks (`larder_chunking::RunMac`), and nothing else.
    pub runs: [u8; 16],
    containers: [u8; 32],
    objects: [u8; 32],
    index_runs: [u8; 32],
    config: [u8; 32],
    names: [u8; 32],
}

impl std::fmt::Debug for Keys {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Keys(..)")
    }
}

impl Keys {
    /// Derives all keys.
    pub fn derive(master: &MasterKey) -> Self {
        let key = |context: &str| blake3::derive_key(context, &master.0);
        Self {
            fingerprint: key("Larder format 1: chunk fingerprints"),
            chunking: key("Larder format 1: chunk boundaries"),
            runs: key("Larder format 1: runs of chunks")[..16].try_into().expect("half of 32 bytes"),
            containers: key("Larder format 1: container sealing"),
            objects: key("Larder format 1: object sealing"),
            index_runs: key("Larder format 1: index run sealing"),
            config: key("Larder format 1: configuration authentication"),
            names: key("Larder format 1: series names"),
        }
    }

    /// The hash of a series name in object keys.
    pub fn series_key(&self, name: &str) -> SeriesKey {
        let hash = blake3::keyed_hash(&self.names, name.as_bytes());
        let mut key = [0; 16];
        key.copy_from_slice(&hash.as_bytes()[..16]);
        SeriesKey(key)
    }

    /// The cipher of one container.
    pub fn container(&self, id: ContainerId) -> Sealer {
        Sealer::new(blake3::keyed_hash(&self.containers, names::container(id).as_bytes()).as_bytes())
    }

    /// The cipher of one object of a run of the index.
    pub(crate) fn run(&self, id: RunId) -> Sealer {
        Sealer::new(blake3::keyed_hash(&self.index_runs, names::run(id).as_bytes()).as_bytes())
    }

    /// Authenticates the configuration.
    pub(crate) fn config_mac(&self, bytes: &[u8]) -> [u8; 32] {
        *blake3::keyed_hash(&self.config, bytes).as_bytes()
    }

    fn object(&self, name: &str, salt: &[u8; 16]) -> Sealer {
        let mut hasher = blake3::Hasher::new_keyed(&self.objects);
        // The salt has a fixed length, so the rest can only be the name.
        hasher.update(salt).update(name.as_bytes());
        Sealer::new(hasher.finalize().as_bytes())
    }
}

/// AES-256-GCM under one key, with a number as nonce.
#[derive(Debug)]
pub struct Sealer(LessSafeKey);

impl Sealer {
    pub(crate) fn new(key: &[u8; 32]) -> Self {
        Self(LessSafeKey::new(UnboundKey::new(&AES_256_GCM, key).expect("32 bytes are an AES-256 key")))
    }

    fn nonce(number: u64) -> Nonce {
        let mut nonce = [0; 12];
        nonce[..8].copy_from_slice(&number.to_le_bytes());
        Nonce::assume_unique_for_key(nonce)
    }

    /// Encrypts `buffer[from..]` in place and appends the tag.
    pub(crate) fn seal(&self, number: u64, aad: &[u8], buffer: &mut Vec<u8>, from: usize) {
        let tag = self
            .0
            .seal_in_place_separate_tag(Self::nonce(number), Aad::from(aad), &mut buffer[from..])
            .expect("a container part is far below the 64 GiB that GCM can seal");
        buffer.extend_from_slice(tag.as_ref());
    }

    /// Decrypts `sealed` (ciphertext and tag) in place; gives the plaintext.
    pub(crate) fn open<'a>(
        &self,
        number: u64,
        aad: &[u8],
        sealed: &'a mut [u8],
        what: &'static str,
    ) -> Result<&'a mut [u8], DecodeError> {
        self.0
            .open_in_place(Self::nonce(number), Aad::from(aad), sealed)
            .map_err(|_| DecodeError::NotAuthentic { what })
    }
}

/// The kind of a sealed object: its magic, its newest version, its name in errors, and its maximum
/// length.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ObjectType {
    pub(crate) magic: [u8; 4],
    pub(crate) version: u8,
    pub(crate) what: &'static str,
    /// Most bytes of the whole object. Writers refuse more; readers do not even fetch it.
    pub(crate) max_len: u64,
}

fn part_aad(header: &[u8], number: u32, last: bool) -> Vec<u8> {
    let mut aad = header.to_vec();
    aad.put_u32(number);
    aad.put_u8(u8::from(last));
    aad
}

/// Seals `parts` as one object. `salt` must be fresh random bytes.
pub(crate) fn seal_object(
    keys: &Keys,
    name: &str,
    kind: ObjectType,
    salt: [u8; 16],
    parts: &[&[u8]],
) -> Result<Vec<u8>, EncodeError> {
    let len = HEADER_LEN + parts.iter().map(|part| part.len() + TAG_LEN + 4).sum::<usize>();
    if len as u64 > kind.max_len {
        return Err(EncodeError::new(kind.what, "it is longer than a reader accepts"));
    }
    let mut out = Vec::with_capacity(len);
    out.extend_from_slice(&kind.magic);
    out.extend_from_slice(&[kind.version, CIPHER_AES_256_GCM, 0, 0]);
    out.extend_from_slice(&salt);
    let header = out.clone();
    let sealer = keys.object(name, &salt);
    for (number, part) in (0u32..).zip(parts) {
        let aad = part_aad(&header, number, number as usize + 1 == parts.len());
        out.put_u32(EncodeError::fit_u32(kind.what, part.len() + TAG_LEN)?);
        let from = out.len();
        out.extend_from_slice(part);
        sealer.seal(u64::from(number), &aad, &mut out, from);
    }
    Ok(out)
}

/// Seals an object that says everything by its name and kind: one empty part.
pub(crate) fn seal_empty(keys: &Keys, name: &str, kind: ObjectType, salt: [u8; 16]) -> Vec<u8> {
    seal_object(keys, name, kind, salt, &[&[]]).expect("an empty part is shorter than every limit")
}

/// The magic of an object, for those places that may hold one of several kinds.
pub(crate) fn magic(bytes: &[u8], what: &'static str) -> Result<[u8; 4], DecodeError> {
    bytes.first_chunk().copied().ok_or(DecodeError::Truncated { what })
}

/// Opens the first `wanted` parts of an object that was sealed with `total` parts. `bytes` may end
/// behind them.
pub(crate) fn open_object(
    keys: &Keys,
    name: &str,
    kind: ObjectType,
    bytes: &[u8],
    wanted: usize,
    total: usize,
) -> Result<(u8, Vec<Vec<u8>>), DecodeError> {
    let mut reader = Reader::new(bytes, kind.what);
    if bytes.len() as u64 > kind.max_len {
        return Err(reader.invalid("it is longer than a reader accepts"));
    }
    let found = reader.array()?;
    if found != kind.magic {
        return Err(DecodeError::BadMagic { what: kind.what, found });
    }
    let version = reader.version(kind.version)?;
    if reader.u8()? != CIPHER_AES_256_GCM {
        return Err(reader.invalid("unknown cipher"));
    }
    if reader.u16()? != 0 {
        return Err(reader.invalid("reserved bytes are not zero"));
    }
    let salt: [u8; 16] = reader.array()?;
    let header = bytes.get(..HEADER_LEN).unwrap_or_default();
    let sealer = keys.object(name, &salt);
    let mut parts = Vec::with_capacity(wanted);
    for number in (0u32..).take(wanted) {
        let len = reader.u32()? as usize;
        let mut sealed = reader.take(len)?.to_vec();
        let aad = part_aad(header, number, number as usize + 1 == total);
        let len = sealer.open(u64::from(number), &aad, &mut sealed, kind.what)?.len();
        sealed.truncate(len);
        parts.push(sealed);
    }
    if wanted == total {
        reader.finish()?;
    }
    Ok((version, parts))
}

/// Bytes of a sealed object that hold its header and a first part of `plain_len` bytes.
pub(crate) fn first_part_len(plain_len: usize) -> usize {
    HEADER_LEN + 4 + plain_len + TAG_LEN
}

/// Bytes of a sealed object that hold its header and first part, read from its first 28 bytes.
pub(crate) fn first_part_end(bytes: &[u8], what: &'static str) -> Result<usize, DecodeError> {
    let mut reader = Reader::new(bytes, what);
    reader.take(HEADER_LEN)?;
    Ok(HEADER_LEN + 4 + reader.u32()? as usize)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::{ContainerKind, JobId};

    const KIND: ObjectType = ObjectType { magic: *b"LTST", version: 1, what: "test object", max_len: 4096 };

    fn keys() -> Keys {
        Keys::derive(&MasterKey([1; 32]))
    }

    #[test]
    fn an_object_opens_only_under_its_own_name_and_key_and_unchanged() {
        let sealed = seal_object(&keys(), "versions/a/b/0", KIND, [3; 16], &[b"head", b"body"]).expect("seals");
        let (_, parts) = open_object(&keys(), "versions/a/b/0", KIND, &sealed, 2, 2).expect("opens");
        assert_eq!(parts, [b"head".to_vec(), b"body".to_vec()]);
        let (_, head) = open_object(&keys(), "versions/a/b/0", KIND, &sealed[..50], 1, 2).expect("head opens alone");
        assert_eq!(head, [b"head".to_vec()]);
        let opens = |keys: &Keys, name: &str, bytes: &[u8]| open_object(keys, name, KIND, bytes, 2, 2).is_ok();
        assert!(!opens(&keys(), "versions/a/c/0", &sealed));
        assert!(!opens(&Keys::derive(&MasterKey([2; 32])), "versions/a/b/0", &sealed));
        for bit in 0..sealed.len() * 8 {
            let mut flipped = sealed.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert!(!opens(&keys(), "versions/a/b/0", &flipped), "bit {bit}");
        }
        for len in 0..sealed.len() {
            assert!(!opens(&keys(), "versions/a/b/0", &sealed[..len]), "cut to {len}");
        }
    }

    #[test]
    fn an_object_cut_short_by_a_whole_part_does_not_open() {
        let sealed = seal_object(&keys(), "n", KIND, [3; 16], &[b"head", b"body"]).expect("seals");
        assert!(open_object(&keys(), "n", KIND, &sealed[..HEADER_LEN + 4 + 4 + TAG_LEN], 1, 1).is_err());
    }

    #[test]
    fn an_object_longer_than_its_kind_may_be_is_neither_sealed_nor_opened() {
        let fits = vec![7; 4096 - HEADER_LEN - 4 - TAG_LEN];
        let sealed = seal_object(&keys(), "n", KIND, [3; 16], &[&fits]).expect("seals");
        assert_eq!(sealed.len(), 4096);
        assert!(seal_object(&keys(), "n", KIND, [3; 16], &[&[&fits[..], &[7]].concat()]).is_err());
        let less = ObjectType { max_len: 4095, ..KIND };
        assert!(open_object(&keys(), "n", KIND, &sealed, 1, 1).is_ok());
        assert!(matches!(open_object(&keys(), "n", less, &sealed, 1, 1), Err(DecodeError::Invalid { .. })));
    }

    #[test]
    fn containers_and_series_have_keys_of_their_own() {
        let id = |seq| ContainerId { kind: ContainerKind::Data, job: JobId([5; 16]), seq };
        let mut buffer = b"text".to_vec();
        keys().container(id(0)).seal(7, b"", &mut buffer, 0);
        assert!(keys().container(id(1)).open(7, b"", &mut buffer.clone(), "part").is_err());
        assert!(keys().container(id(0)).open(8, b"", &mut buffer.clone(), "part").is_err());
        assert_eq!(keys().container(id(0)).open(7, b"", &mut buffer, "part").expect("opens"), b"text");
        assert_ne!(keys().series_key("a"), keys().series_key("b"));
    }
}
