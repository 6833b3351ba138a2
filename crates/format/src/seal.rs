//! Authenticated encryption: of small objects, and of the numbered parts of containers and runs.
//!
//! Cipher: AES-256-GCM. No key ever seals two different texts under one nonce:
//! * a **part** of a container or run has a key of its own, from 16 bytes of salt before it;
//! * a **sealed object** has a key of its own, from 16 bytes of salt in its header. The nonce is
//!   the number of the part.
//!
//! Salts are hedged: a keyed hash of 32 random bytes *and of all that is sealed*. A machine that is
//! resumed twice from one image of its memory may draw the same random bytes twice. It still seals
//! different texts under different keys.
//!
//! Everything sealed is bound to its place: the object's name goes into the key. So a valid object
//! under another's name does not open.
//!
//! Layout of a sealed object (lease, version manifest, marks, settings, index; wrapped keys and the
//! configuration have their own):
//!
//! | offset | size | field   | meaning                                                        |
//! |-------:|-----:|---------|----------------------------------------------------------------|
//! |      0 |    4 | magic   | what it is, for instance `LLSE`                                |
//! |      4 |    1 | version | of the layout inside                                           |
//! |      5 |    1 | cipher  | 1 = AES-256-GCM                                                |
//! |      6 |    2 | flags   | bit 0: signed; the others are zero                             |
//! |      8 |   16 | domain  | whose it is; zero for the index and for what every role reads  |
//! |     24 |   16 | salt    | goes into the key                                              |
//! |     40 |    … | parts   | each: u32 length, then that many bytes of ciphertext with tag  |
//!
//! A part's nonce is its number; the header, the part's number and whether it is the last are its
//! associated data. Parts have zeros behind their contents, which say themselves where they end
//! (`padding.rs`).
//!
//! In a signed object part 1 is 96 bytes: the body hash (BLAKE3 over the length, u64, and the
//! bytes of each later part before sealing) and an Ed25519 signature. It covers `Larder operator
//! signature 2`, a zero byte, and BLAKE3 over: the length (u64) and bytes of the object's name, the
//! header, the length and bytes of part 0, and the body hash. So the first two parts verify alone.
//! The signing key follows from the master key, so it signs for one repository.

use aws_lc_rs::aead::{AES_256_GCM, Aad, LessSafeKey, Nonce, UnboundKey};

use crate::ids::DomainId;
use crate::keys::{Keys, SIGNATURE_LEN, Secret};
use crate::padding::{Padding, small};
use crate::wire::{DecodeError, EncodeError, Put, Reader};

/// Bytes of the tag behind everything sealed.
pub const TAG_LEN: usize = 16;
/// Bytes of salt.
pub const SALT_LEN: usize = 16;
/// Bytes that sealing adds to a part of a container or run.
pub const PART_EXTRA: usize = SALT_LEN + TAG_LEN;
/// Random bytes that a salt is made with.
pub const RANDOM_LEN: usize = 32;

const CIPHER_AES_256_GCM: u8 = 1;
const HEADER_LEN: usize = 40;
const SIGNED: u16 = 1;
const SIGNED_PART: usize = 32 + SIGNATURE_LEN;
const SIGNATURE_CONTEXT: &[u8] = b"Larder operator signature 2\0";

/// AES-256-GCM under one key, with a number as nonce.
#[derive(Debug)]
pub(crate) struct Sealer(LessSafeKey);

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

/// What the numbered parts of one container or run are sealed with. Each part has a key of its own.
///
/// A sealed part: 16 bytes of salt, the ciphertext, 16 bytes of tag. Nonce zero; the associated
/// data are the caller's and the part's number.
#[derive(Debug, Clone)]
pub(crate) struct PartKeys {
    base: Secret,
}

impl PartKeys {
    pub(crate) fn new(base: Secret) -> Self {
        Self { base }
    }

    fn sealer(&self, number: u64, salt: &[u8; SALT_LEN]) -> Sealer {
        Sealer::new(&self.base.keyed(&[&number.to_le_bytes(), salt]).0)
    }

    fn aad(aad: &[u8], number: u64) -> Vec<u8> {
        [aad, &number.to_le_bytes()].concat()
    }

    /// A salt for what `what` identifies.
    pub(crate) fn salt(&self, random: &[u8; RANDOM_LEN], number: u64, what: &[u8]) -> [u8; SALT_LEN] {
        self.base.keyed(&[b"salt\0", random, &number.to_le_bytes(), what]).first_half()
    }

    /// Seals `buffer[from..]`, which begins with [`SALT_LEN`] bytes of any content: the salt's
    /// place.
    pub(crate) fn seal(&self, number: u64, aad: &[u8], salt: [u8; SALT_LEN], buffer: &mut Vec<u8>, from: usize) {
        buffer[from..from + SALT_LEN].copy_from_slice(&salt);
        self.sealer(number, &salt).seal(0, &Self::aad(aad, number), buffer, from + SALT_LEN);
    }

    /// Opens a part in place.
    pub(crate) fn open<'a>(
        &self,
        number: u64,
        aad: &[u8],
        sealed: &'a mut [u8],
        what: &'static str,
    ) -> Result<&'a mut [u8], DecodeError> {
        let (salt, sealed) = sealed.split_first_chunk_mut().ok_or(DecodeError::Truncated { what })?;
        self.sealer(number, salt).open(0, &Self::aad(aad, number), sealed, what)
    }
}

/// Which secret seals a kind of objects.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Realm {
    /// That of the domain in the header.
    Domain,
    /// That of the index.
    Index,
    /// That which every role has.
    Common,
}

/// Whether an operator signs a kind of objects.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Signing {
    /// Never: a kind of the tests.
    Never,
    /// If the writer can. Readers say whether it was.
    IfAble,
    /// Always. Others do not count (`SignedOnly`).
    Required,
}

/// How an object is padded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Pad {
    /// Not at all.
    Nothing,
    /// As a small object.
    Small,
    /// As a manifest: part 0 to 1 KiB, all to the steps of [`Padding::MANIFEST`].
    Manifest,
}

/// The kind of a sealed object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ObjectType {
    pub(crate) magic: [u8; 4],
    /// Its newest version.
    pub(crate) version: u8,
    /// Its name in errors.
    pub(crate) what: &'static str,
    /// Most bytes of the whole object. Writers refuse more; readers do not even fetch it.
    pub(crate) max_len: u64,
    pub(crate) realm: Realm,
    pub(crate) signing: Signing,
    pub(crate) pad: Pad,
}

impl ObjectType {
    fn secret(&self, keys: &Keys, domain: DomainId) -> Result<Secret, DecodeError> {
        match self.realm {
            Realm::Domain => keys.domain_secret(domain, self.what),
            Realm::Index => keys.index(self.what).cloned(),
            Realm::Common => Ok(keys.common().clone()),
        }
    }

    /// Zeros behind the contents of parts: the first, and the last.
    fn padding(&self, parts: &[&[u8]], is_signed: bool) -> (usize, usize) {
        let extra = |len: u64, to: u64| usize::try_from(to - len).unwrap_or(0);
        let first = match (self.pad, parts) {
            (Pad::Manifest, [first, _, ..]) => extra(first.len() as u64, (first.len() as u64).next_multiple_of(1024)),
            _ => 0,
        };
        let sealed: usize = parts.iter().map(|part| 4 + part.len() + TAG_LEN).sum();
        let signed = if is_signed { 4 + SIGNED_PART + TAG_LEN } else { 0 };
        let len = (HEADER_LEN + first + sealed + signed) as u64;
        let last = match self.pad {
            Pad::Nothing => 0,
            Pad::Small => extra(len, small(len).min(self.max_len.max(len))),
            Pad::Manifest => extra(len, Padding::MANIFEST.padded(len, 0).min(self.max_len.max(len))),
        };
        (first, last)
    }
}

/// An opened object.
#[derive(Debug)]
pub(crate) struct Opened {
    /// Whose it is.
    pub(crate) domain: DomainId,
    /// Whether an operator signed it.
    pub(crate) is_signed: bool,
    /// The parts that were asked for, with the zeros behind them.
    pub(crate) parts: Vec<Vec<u8>>,
}

fn part_aad(header: &[u8], number: u32, last: bool) -> Vec<u8> {
    let mut aad = header.to_vec();
    aad.put_u32(number);
    aad.put_u8(u8::from(last));
    aad
}

fn object_sealer(secret: &Secret, salt: &[u8], name: &str) -> Sealer {
    // The salt has a fixed length, so the rest can only be the name.
    Sealer::new(&secret.keyed(&[b"object\0", salt, name.as_bytes()]).0)
}

fn with_length(hasher: &mut blake3::Hasher, bytes: &[u8]) {
    hasher.update(&(bytes.len() as u64).to_le_bytes()).update(bytes);
}

fn body_hash<'a>(later: impl Iterator<Item = &'a [u8]>) -> [u8; 32] {
    let mut hasher = blake3::Hasher::new();
    later.for_each(|part| with_length(&mut hasher, part));
    *hasher.finalize().as_bytes()
}

/// The text that an operator signs.
fn signed_text(name: &str, header: &[u8], first: &[u8], body: &[u8]) -> Vec<u8> {
    let mut hasher = blake3::Hasher::new();
    with_length(&mut hasher, name.as_bytes());
    hasher.update(header);
    with_length(&mut hasher, first);
    hasher.update(body);
    [SIGNATURE_CONTEXT, hasher.finalize().as_bytes()].concat()
}

/// Seals `parts` as one object of a domain. `random` must be fresh random bytes.
pub(crate) fn seal_object(
    keys: &Keys,
    domain: DomainId,
    name: &str,
    kind: ObjectType,
    random: [u8; RANDOM_LEN],
    parts: &[&[u8]],
) -> Result<Vec<u8>, EncodeError> {
    let is_signed = kind.signing != Signing::Never && keys.can_sign();
    if kind.signing == Signing::Required && !is_signed {
        return Err(EncodeError::new(kind.what, "an operator has to sign it"));
    }
    let (first_zeros, last_zeros) = kind.padding(parts, is_signed);
    let mut padded: Vec<_> = parts.iter().map(|part| part.to_vec()).collect();
    if let Some(first) = padded.first_mut() {
        first.resize(first.len() + first_zeros, 0);
    }
    if let Some(last) = padded.last_mut() {
        last.resize(last.len() + last_zeros, 0);
    }
    let domain = if kind.realm == Realm::Domain { domain } else { DomainId::DEFAULT };
    let secret = kind.secret(keys, domain)?;
    let mut out = Vec::new();
    out.extend_from_slice(&kind.magic);
    out.extend_from_slice(&[kind.version, CIPHER_AES_256_GCM]);
    out.extend_from_slice(&(if is_signed { SIGNED } else { 0 }).to_le_bytes());
    out.extend_from_slice(&domain.0);
    // The header is sealed with the parts, and a signature is a part, so both decide the salt.
    let text = body_hash(padded.iter().map(Vec::as_slice));
    let salt = secret.keyed(&[b"salt\0", &random, &out, name.as_bytes(), &text]).first_half();
    out.extend_from_slice(&salt);
    let header = out.clone();
    if is_signed {
        let body = body_hash(padded.iter().skip(1).map(Vec::as_slice));
        let signed = signed_text(name, &header, &padded[0], &body);
        let signature = keys.sign(&signed).ok_or(EncodeError::new(kind.what, "an operator has to sign it"))?;
        padded.insert(1, [&body[..], &signature].concat());
    }
    let sealer = object_sealer(&secret, &salt, name);
    for (number, part) in (0u32..).zip(&padded) {
        let aad = part_aad(&header, number, number as usize + 1 == padded.len());
        out.put_u32(EncodeError::fit_u32(kind.what, part.len() + TAG_LEN)?);
        let from = out.len();
        out.extend_from_slice(part);
        sealer.seal(u64::from(number), &aad, &mut out, from);
    }
    if out.len() as u64 > kind.max_len {
        return Err(EncodeError::new(kind.what, "it is longer than a reader accepts"));
    }
    Ok(out)
}

/// Seals an object that says everything by its name and kind: one empty part.
pub(crate) fn seal_empty(
    keys: &Keys,
    domain: DomainId,
    name: &str,
    kind: ObjectType,
    random: [u8; RANDOM_LEN],
) -> Result<Vec<u8>, EncodeError> {
    seal_object(keys, domain, name, kind, random, &[&[]])
}

/// The magic of an object, for those places that may hold one of several kinds.
pub(crate) fn magic(bytes: &[u8], what: &'static str) -> Result<[u8; 4], DecodeError> {
    bytes.first_chunk().copied().ok_or(DecodeError::Truncated { what })
}

/// The header of a sealed object.
struct Header {
    is_signed: bool,
    domain: DomainId,
    salt: [u8; SALT_LEN],
}

fn read_header(reader: &mut Reader<'_>, kind: ObjectType) -> Result<Header, DecodeError> {
    let found = reader.array()?;
    if found != kind.magic {
        return Err(DecodeError::BadMagic { what: kind.what, found });
    }
    reader.version(kind.version)?;
    if reader.u8()? != CIPHER_AES_256_GCM {
        return Err(reader.invalid("unknown cipher"));
    }
    let flags = reader.u16()?;
    let is_signed = match flags {
        0 => false,
        SIGNED if kind.signing != Signing::Never => true,
        _ => return Err(reader.invalid("unknown flags")),
    };
    let domain = DomainId(reader.array()?);
    if kind.realm != Realm::Domain && !domain.is_default() {
        return Err(reader.invalid("it has a domain where none is"));
    }
    Ok(Header { is_signed, domain, salt: reader.array()? })
}

/// Opens the first `wanted` parts of an object that was sealed with `total` parts. `bytes` may end
/// behind them, and behind the signature.
pub(crate) fn open_object(
    keys: &Keys,
    name: &str,
    kind: ObjectType,
    bytes: &[u8],
    wanted: usize,
    total: usize,
) -> Result<Opened, DecodeError> {
    let mut reader = Reader::new(bytes, kind.what);
    if bytes.len() as u64 > kind.max_len {
        return Err(reader.invalid("it is longer than a reader accepts"));
    }
    let Header { is_signed, domain, salt } = read_header(&mut reader, kind)?;
    let header = bytes.get(..HEADER_LEN).unwrap_or_default();
    let sealer = object_sealer(&kind.secret(keys, domain)?, &salt, name);
    let (sealed_parts, wanted_parts) = if is_signed { (total + 1, wanted + 1) } else { (total, wanted) };
    let mut parts = Vec::with_capacity(wanted_parts);
    for number in (0u32..).take(wanted_parts) {
        let len = reader.u32()? as usize;
        let mut sealed = reader.take(len)?.to_vec();
        let aad = part_aad(header, number, number as usize + 1 == sealed_parts);
        let len = sealer.open(u64::from(number), &aad, &mut sealed, kind.what)?.len();
        sealed.truncate(len);
        parts.push(sealed);
    }
    if wanted == total {
        reader.finish()?;
    }
    if is_signed {
        let signature = parts.remove(1);
        let (body, signature) = signature.split_first_chunk::<32>().ok_or(reader.invalid("its signature is cut"))?;
        if !keys.is_signed(&signed_text(name, header, &parts[0], body), signature) {
            return Err(DecodeError::NotAuthentic { what: kind.what });
        }
        if wanted == total && body_hash(parts.iter().skip(1).map(Vec::as_slice)) != *body {
            return Err(DecodeError::NotAuthentic { what: kind.what });
        }
    } else if kind.signing == Signing::Required {
        return Err(DecodeError::Unsigned { what: kind.what });
    }
    Ok(Opened { domain, is_signed, parts })
}

/// Checks that nothing but zeros follows the contents of a part.
pub(crate) fn only_zeros(rest: &[u8], what: &'static str) -> Result<(), DecodeError> {
    if rest.iter().any(|byte| *byte != 0) {
        return Err(DecodeError::invalid(what, "bytes follow its end"));
    }
    Ok(())
}

/// Bytes of a sealed object that hold its header, a first part of `plain_len` bytes with its
/// padding, and a signature.
pub(crate) fn first_part_len(plain_len: usize) -> usize {
    HEADER_LEN + 4 + plain_len.next_multiple_of(1024) + TAG_LEN + 4 + SIGNED_PART + TAG_LEN
}

/// Bytes of a sealed object that hold its header, its first part and its signature, read from its
/// first 44 bytes.
pub(crate) fn first_part_end(kind: ObjectType, bytes: &[u8]) -> Result<usize, DecodeError> {
    let mut reader = Reader::new(bytes, kind.what);
    let Header { is_signed, .. } = read_header(&mut reader, kind)?;
    let first = HEADER_LEN + 4 + reader.u32()? as usize;
    Ok(first + if is_signed { 4 + SIGNED_PART + TAG_LEN } else { 0 })
}

#[cfg(test)]
mod tests;
