//! Seals anything under the keys of a known master key, without the crate's help.
//!
//! It derives keys on its own, from what `docs/format.md` says: a sealed object of its making opens
//! only while page and code agree. Only X-Wing is the crate's, which has vectors of its own.

use std::sync::LazyLock;

use aws_lc_rs::aead::{AES_256_GCM, Aad, LessSafeKey, Nonce, UnboundKey};
use aws_lc_rs::signature::Ed25519KeyPair;
use larder_format::ids::{ContainerId, ContainerKind, DomainId, KeyId};
use larder_format::kem::{CIPHERTEXT_LEN, OpeningSecret};

use super::{MASTER, REPOSITORY, RUN};

const SALT: [u8; 16] = [9; 16];
/// Any bytes are a ciphertext of X-Wing; some give a secret that nobody drew.
pub const WRAP: [u8; CIPHERTEXT_LEN] = [7; CIPHERTEXT_LEN];

fn derive(purpose: &str) -> [u8; 32] {
    blake3::derive_key(&format!("Larder format 2: {purpose}"), &MASTER)
}

fn keyed(key: &[u8; 32], text: &[&[u8]]) -> [u8; 32] {
    *blake3::keyed_hash(key, &text.concat()).as_bytes()
}

fn with_length(bytes: &[u8]) -> Vec<u8> {
    [&(bytes.len() as u64).to_le_bytes(), bytes].concat()
}

fn aead(key: &[u8; 32]) -> LessSafeKey {
    LessSafeKey::new(UnboundKey::new(&AES_256_GCM, key).expect("32 bytes"))
}

fn nonce(number: u64) -> Nonce {
    let mut nonce = [0; 12];
    nonce[..8].copy_from_slice(&number.to_le_bytes());
    Nonce::assume_unique_for_key(nonce)
}

fn seal(key: &[u8; 32], number: u64, aad: &[u8], plain: &[u8]) -> Vec<u8> {
    let mut sealed = plain.to_vec();
    aead(key).seal_in_place_append_tag(nonce(number), Aad::from(aad), &mut sealed).expect("seals");
    sealed
}

/// A part of a container or run: salt, ciphertext, tag.
fn seal_part(base: &[u8; 32], number: u64, aad: &[u8], plain: &[u8]) -> Vec<u8> {
    let key = keyed(base, &[&number.to_le_bytes(), &SALT]);
    [&SALT[..], &seal(&key, 0, &[aad, &number.to_le_bytes()].concat(), plain)].concat()
}

/// What a forged container says.
#[derive(Debug, Clone, Default)]
pub struct ContainerParts {
    pub frames: Vec<Vec<u8>>,
    pub chunk_table: Vec<u8>,
    pub frame_table: Vec<u8>,
    /// The part that is to be zeros; none when empty.
    pub padding: Vec<u8>,
    pub chunk_count: u32,
    pub frame_count: u32,
    pub payload_len: u32,
    /// Lengths of chunk table, frame table and padding, when the trailer is to lie about them.
    pub lens: [Option<u32>; 3],
    /// Another wrap than [`WRAP`].
    pub wrap: Option<Vec<u8>>,
}

/// What a forged object of a run says.
#[derive(Debug, Clone)]
pub struct RunParts {
    pub blocks: Vec<Vec<u8>>,
    /// Empty: none.
    pub filter: Vec<u8>,
    pub fences: Vec<u8>,
    /// The trailer's fields before the lengths: table, widths, counts.
    pub head: [u8; 24],
    /// Lengths of filter and fences, when the trailer is to lie about them.
    pub lens: [Option<u32>; 2],
}

/// Seals whatever it is given.
pub struct Forger {
    domain: DomainId,
    domain_key: [u8; 32],
    index: [u8; 32],
    common: [u8; 32],
    bind: [u8; 32],
    open: OpeningSecret,
    operator: Ed25519KeyPair,
    wrap_secret: [u8; 32],
}

impl Forger {
    /// One of the default domain.
    pub fn new() -> &'static Self {
        static FORGER: LazyLock<Forger> = LazyLock::new(|| Forger::of(DomainId([0; 16])));
        &FORGER
    }

    pub fn of(domain: DomainId) -> Self {
        let open = OpeningSecret(derive("data opening"));
        Self {
            domain,
            domain_key: keyed(&derive("domains"), &[&domain.0]),
            index: derive("index"),
            common: derive("common objects"),
            bind: derive("data binding"),
            operator: Ed25519KeyPair::from_seed_unchecked(&derive("operator signing")).expect("a seed"),
            wrap_secret: open.decapsulate(&WRAP).expect("not of low order").0,
            open,
        }
    }

    pub fn sign(&self, text: &[&[u8]]) -> Vec<u8> {
        self.operator.sign(&text.concat()).as_ref().to_vec()
    }

    /// The key and the domain in the header of an object under a name.
    fn realm(&self, name: &str) -> (&[u8; 32], DomainId) {
        match name {
            _ if name.starts_with("index") => (&self.index, DomainId([0; 16])),
            _ if name.starts_with("settings/default/") || name.starts_with("closed/") => {
                (&self.common, DomainId([0; 16]))
            }
            _ => (&self.domain_key, self.domain),
        }
    }

    /// A sealed object with these parts under this name, signed if its kind is.
    pub fn object(&self, name: &str, magic: &[u8; 4], parts: &[&[u8]]) -> Vec<u8> {
        let is_signed = !matches!(magic, b"LLSE" | b"LDON");
        self.object_with(name, magic, is_signed, parts)
    }

    pub fn object_with(&self, name: &str, magic: &[u8; 4], is_signed: bool, parts: &[&[u8]]) -> Vec<u8> {
        let (secret, domain) = self.realm(name);
        let header = [&magic[..], &[2, 1, u8::from(is_signed), 0], &domain.0, &SALT].concat();
        let mut parts: Vec<_> = parts.iter().map(|part| part.to_vec()).collect();
        if is_signed {
            let later: Vec<u8> = parts[1..].iter().flat_map(|part| with_length(part)).collect();
            let body = *blake3::hash(&later).as_bytes();
            let text = [&with_length(name.as_bytes())[..], &header, &with_length(&parts[0]), &body].concat();
            let signature = self.sign(&[b"Larder operator signature 2\0", blake3::hash(&text).as_bytes()]);
            parts.insert(1, [&body[..], &signature].concat());
        }
        let key = keyed(secret, &[b"object\0", &SALT, name.as_bytes()]);
        let mut out = header.clone();
        for (number, part) in parts.iter().enumerate() {
            let last = u8::from(number + 1 == parts.len());
            let aad = [&header[..], &(number as u32).to_le_bytes(), &[last]].concat();
            let sealed = seal(&key, number as u64, &aad, part);
            out.extend_from_slice(&(sealed.len() as u32).to_le_bytes());
            out.extend_from_slice(&sealed);
        }
        out
    }

    /// Opens a sealed object; gives its parts without the signature, with the zeros behind them.
    pub fn open(&self, name: &str, object: &[u8]) -> Vec<Vec<u8>> {
        let (header, mut rest) = object.split_at(40);
        let key = aead(&keyed(self.realm(name).0, &[b"object\0", &header[24..], name.as_bytes()]));
        let mut parts = Vec::new();
        while let Some((len, behind)) = rest.split_first_chunk::<4>() {
            let (sealed, behind) = behind.split_at(u32::from_le_bytes(*len) as usize);
            let number = parts.len() as u32;
            let aad = [header, &number.to_le_bytes(), &[u8::from(behind.is_empty())]].concat();
            let mut plain = sealed.to_vec();
            let len = key.open_in_place(nonce(number.into()), Aad::from(&aad), &mut plain).expect("opens").len();
            plain.truncate(len);
            parts.push(plain);
            rest = behind;
        }
        if header[6] == 1 {
            parts.remove(1);
        }
        parts
    }

    /// A container of these plaintexts: frames as they are to be stored, tables and trailer fields.
    pub fn container(&self, id: ContainerId, parts: &ContainerParts) -> Vec<u8> {
        const MAGIC: [u8; 4] = [b'L', b'C', b'T', 2];
        let name = larder_format::names::container(id);
        let wrap = match id.kind {
            ContainerKind::Data => parts.wrap.clone().unwrap_or(WRAP.to_vec()),
            ContainerKind::Meta => Vec::new(),
        };
        let frames = match (id.kind, &parts.wrap) {
            (ContainerKind::Meta, _) => keyed(&self.domain_key, &[b"frames\0", name.as_bytes()]),
            (ContainerKind::Data, None) => keyed(&self.bind, &[b"frames\0", &self.wrap_secret, &wrap, name.as_bytes()]),
            (ContainerKind::Data, Some(given)) => {
                let given = given.as_slice().try_into().expect("1,120 bytes");
                let secret = self.open.decapsulate(given).map_or([0; 32], |secret| secret.0);
                keyed(&self.bind, &[b"frames\0", &secret, &wrap, name.as_bytes()])
            }
        };
        let tables = keyed(&self.domain_key, &[b"tables\0", name.as_bytes()]);
        let aad = [&MAGIC[..], &self.domain.0].concat();
        let mut out = Vec::new();
        for (number, frame) in parts.frames.iter().enumerate() {
            out.extend_from_slice(&seal_part(&frames, number as u64, &aad, frame));
        }
        let padding = match &parts.padding[..] {
            [] => Vec::new(),
            padding => seal_part(&tables, (1 << 32) + 3, &aad, padding),
        };
        let chunk_table = seal_part(&tables, 1 << 32, &aad, &parts.chunk_table);
        let frame_table = seal_part(&tables, (1 << 32) + 1, &aad, &parts.frame_table);
        out.extend_from_slice(&[&padding[..], &chunk_table, &frame_table, &wrap].concat());
        let object_len = (out.len() + 16 + 32 + 16 + 16 + 4) as u64;
        let real = [&chunk_table, &frame_table, &padding].map(|part| part.len() as u32);
        let len = |which: usize| parts.lens[which].unwrap_or(real[which]);
        let mut trailer = Vec::new();
        for number in [parts.chunk_count, parts.frame_count, len(0), len(1), parts.payload_len, len(2)] {
            trailer.extend_from_slice(&number.to_le_bytes());
        }
        trailer.extend_from_slice(&object_len.to_le_bytes());
        out.extend_from_slice(&seal_part(&tables, (1 << 32) + 2, &[&wrap[..], &aad].concat(), &trailer));
        out.extend_from_slice(&self.domain.0);
        out.extend_from_slice(&MAGIC);
        out
    }

    /// An object of a run of the index, of these plaintexts.
    pub fn run(&self, parts: &RunParts) -> Vec<u8> {
        const MAGIC: [u8; 4] = *b"LRN\x02";
        let base = keyed(&self.index, &[b"run\0", larder_format::names::run(RUN).as_bytes()]);
        let seal = |number: u64, plain: &[u8]| seal_part(&base, number, &MAGIC, plain);
        let mut out = Vec::new();
        for (number, block) in parts.blocks.iter().enumerate() {
            out.extend_from_slice(&seal(number as u64, block));
        }
        let filter = if parts.filter.is_empty() { Vec::new() } else { seal(1 << 32, &parts.filter) };
        let fences = seal((1 << 32) + 1, &parts.fences);
        out.extend_from_slice(&filter);
        out.extend_from_slice(&fences);
        let object_len = out.len() as u64 + 76;
        let mut trailer = parts.head.to_vec();
        for (given, real) in parts.lens.iter().zip([filter.len() as u32, fences.len() as u32]) {
            trailer.extend_from_slice(&given.unwrap_or(real).to_le_bytes());
        }
        trailer.extend_from_slice(&object_len.to_le_bytes());
        out.extend_from_slice(&seal((1 << 32) + 2, &trailer));
        out.extend_from_slice(&MAGIC);
        out
    }

    /// A configuration from everything before its signature.
    pub fn config(&self, before: &[u8]) -> Vec<u8> {
        [before, &self.sign(&[b"Larder configuration 2\0", before])].concat()
    }

    /// A key object that opens with the secret of a key file, of these plaintexts: fields and payload.
    pub fn key(&self, id: KeyId, secret: &[u8; 32], fields: &[u8], payload: &[u8]) -> Vec<u8> {
        let head = [b"LKEY\x02\0\0\0", &(fields.len() as u32).to_le_bytes()[..], fields].concat();
        let context = [&head[..], &id.0, &REPOSITORY.0].concat();
        let mut derived = [0; 64];
        blake3::Hasher::new_keyed(secret).update(&context).finalize_xof().fill(&mut derived);
        let (key, commitment) = derived.split_first_chunk::<32>().expect("64 bytes");
        let sealed = seal(key, 0, &context, payload);
        let out = [&head[..], commitment, &(sealed.len() as u32).to_le_bytes(), &sealed].concat();
        let signature = self.sign(&[b"Larder key 2\0", &out, &id.0, &REPOSITORY.0]);
        [out, signature].concat()
    }

    /// The payload of a key object that opens with the secret of a key file.
    pub fn open_key(&self, id: KeyId, secret: &[u8; 32], object: &[u8]) -> Vec<u8> {
        let len = u32::from_le_bytes(*object[8..].first_chunk().expect("a length")) as usize;
        let (head, rest) = object.split_at(12 + len);
        let context = [head, &id.0, &REPOSITORY.0].concat();
        let mut derived = [0; 64];
        blake3::Hasher::new_keyed(secret).update(&context).finalize_xof().fill(&mut derived);
        let mut sealed = rest[36..rest.len() - 64].to_vec();
        let key = aead(derived.first_chunk().expect("64 bytes"));
        key.open_in_place(nonce(0), Aad::from(&context), &mut sealed).expect("opens").to_vec()
    }
}
