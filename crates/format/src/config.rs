//! The repository's configuration: the parameters that all its writers must agree on.
//! Authenticated, not secret.
//!
//! | offset | size | field     | meaning                                                            |
//! |-------:|-----:|-----------|--------------------------------------------------------------------|
//! |      0 |    4 | magic     | `LCFG`                                                             |
//! |      4 |    1 | version   | 2                                                                  |
//! |      5 |    3 |           | zero                                                               |
//! |      8 |    … | fields    | CBOR map                                                           |
//! | end-64 |   64 | signature | Ed25519 over `Larder configuration 2`, a zero byte, and everything before |
//!
//! Anyone can read it, so a program without the password can say "this is a Larder repository of a
//! newer format". It must not be *used* before [`UnverifiedConfig::verify`]. The operator signs it,
//! so a client that may only back up cannot make another one.

use larder_chunking::{Algorithm, ChunkerParams};
use minicbor::bytes::ByteVec;
use minicbor::{Decode, Encode};

use crate::cbor;
use crate::ids::RepositoryId;
use crate::kem::OpeningPublic;
use crate::keys::{Keys, SIGNATURE_LEN, Secrets, verify};
use crate::padding::Padding;
use crate::wire::{DecodeError, EncodeError, Put, Reader};

/// Most bytes of a configuration.
pub const CONFIG_MAX: u64 = 64 << 10;

const MAGIC: [u8; 4] = *b"LCFG";
const VERSION: u8 = 2;
const WHAT: &str = "repository configuration";

/// Facts of the whole repository.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Config {
    /// Drawn at random by `init`.
    pub repository: RepositoryId,
    /// When it was made, milliseconds since the epoch. For people.
    pub created_ms: u64,
    /// How streams are cut. Fixed for ever: another choice would find no duplicates.
    pub chunker: ChunkerParams,
    /// Whether streams made of fixed pages are cut at their pages.
    pub page_cuts: bool,
}

#[derive(Encode, Decode)]
#[cbor(map)]
struct Fields {
    #[n(0)]
    repository: RepositoryId,
    #[n(1)]
    created_ms: u64,
    #[n(2)]
    algorithm: u8,
    #[n(3)]
    chunk_min: u32,
    #[n(4)]
    chunk_average: u32,
    #[n(5)]
    chunk_max: u32,
    #[n(6)]
    page_cuts: bool,
    /// Names of features that a program must know to touch this repository; none exist yet.
    #[n(7)]
    required: Vec<String>,
    /// The public half that data is sealed to (`kem.rs`).
    #[n(8)]
    opening_public: ByteVec,
    /// The public half of the operator's signing key.
    #[n(9)]
    #[cbor(with = "minicbor::bytes")]
    operator_public: [u8; 32],
}

const CONTEXT: &[u8] = b"Larder configuration 2\0";

fn signed_text(bytes: &[u8]) -> Vec<u8> {
    [CONTEXT, bytes].concat()
}

impl Config {
    /// How containers are padded: chunks of this repository do not show in their lengths.
    pub fn padding(&self) -> Padding {
        Padding::for_chunks(self.chunker.max)
    }

    /// Encodes and signs. Refused for keys that cannot sign.
    pub fn encode(&self, keys: &Keys) -> Result<Vec<u8>, EncodeError> {
        self.chunker.validate().map_err(|_| EncodeError::new(WHAT, "its chunk sizes are out of bounds"))?;
        let mut out = MAGIC.to_vec();
        out.put_u32(u32::from(VERSION));
        out.extend_from_slice(&cbor::encode(&Fields {
            repository: self.repository,
            created_ms: self.created_ms,
            algorithm: self.chunker.algorithm.to_code(),
            chunk_min: self.chunker.min,
            chunk_average: self.chunker.average,
            chunk_max: self.chunker.max,
            page_cuts: self.page_cuts,
            required: Vec::new(),
            opening_public: keys.opening_public().as_bytes().to_vec().into(),
            operator_public: *keys.operator_public(),
        }));
        let signature = keys.sign(&signed_text(&out));
        out.extend_from_slice(&signature.ok_or(EncodeError::new(WHAT, "an operator has to sign it"))?);
        Ok(out)
    }
}

/// A configuration that reads well but may have been forged.
#[derive(Debug, Clone)]
pub struct UnverifiedConfig {
    config: Config,
    opening: OpeningPublic,
    operator_public: [u8; 32],
    bytes: Vec<u8>,
}

impl UnverifiedConfig {
    /// Reads a configuration without the key.
    pub fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        let mut reader = Reader::new(bytes, WHAT);
        let found = reader.array()?;
        if found != MAGIC {
            return Err(DecodeError::BadMagic { what: WHAT, found });
        }
        reader.version(VERSION)?;
        if reader.take(3)? != [0; 3] {
            return Err(reader.invalid("reserved bytes are not zero"));
        }
        let (signed, signature) =
            bytes.split_last_chunk::<SIGNATURE_LEN>().ok_or(DecodeError::Truncated { what: WHAT })?;
        let fields = signed.get(8..).ok_or(DecodeError::Truncated { what: WHAT })?;
        let fields: Fields = cbor::decode(fields, WHAT)?;
        if let Some(feature) = fields.required.into_iter().next() {
            return Err(DecodeError::UnknownFeature { feature });
        }
        let algorithm = Algorithm::from_code(fields.algorithm)
            .ok_or(DecodeError::invalid(WHAT, "it names a chunking algorithm this program does not know"))?;
        let chunker =
            ChunkerParams { algorithm, min: fields.chunk_min, average: fields.chunk_average, max: fields.chunk_max };
        chunker.validate().map_err(|_| DecodeError::invalid(WHAT, "its chunk sizes are out of bounds"))?;
        let config = Config {
            repository: fields.repository,
            created_ms: fields.created_ms,
            chunker,
            page_cuts: fields.page_cuts,
        };
        // Whose signature it is, only a key tells. That it is one tells a flipped bit, before the
        // copy in a key takes its place.
        if !verify(&fields.operator_public, &signed_text(signed), signature) {
            return Err(DecodeError::NotAuthentic { what: WHAT });
        }
        let opening = OpeningPublic::from_bytes(&fields.opening_public)?;
        Ok(Self { config, opening, operator_public: fields.operator_public, bytes: bytes.to_vec() })
    }

    /// The repository this claims to be: needed to unwrap the master key, which then proves or
    /// refutes the claim.
    pub fn claimed_repository(&self) -> RepositoryId {
        self.config.repository
    }

    /// Its bytes, for a copy.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Whether both were made as one configuration and one may have been damaged since.
    pub fn is_twin_of(&self, other: &Self) -> bool {
        self.signature() == other.signature() || self.config.repository == other.config.repository
    }

    fn signature(&self) -> &[u8] {
        &self.bytes[self.bytes.len() - SIGNATURE_LEN..]
    }

    /// Proves that the operator of these keys made the configuration.
    pub fn verify(self, keys: &Keys) -> Result<Config, DecodeError> {
        self.is_genuine(keys.secrets())?;
        Ok(self.config)
    }

    /// Proves that the operator whom the holder of these secrets knows made the configuration, and
    /// takes the opening key from it.
    pub fn open(self, secrets: Secrets) -> Result<(Config, Keys), DecodeError> {
        self.is_genuine(&secrets)?;
        let keys = Keys::of(secrets, self.opening)?;
        Ok((self.config, keys))
    }

    fn is_genuine(&self, secrets: &Secrets) -> Result<(), DecodeError> {
        let signed = &self.bytes[..self.bytes.len() - SIGNATURE_LEN];
        let is_signed = verify(&secrets.operator_public, &signed_text(signed), self.signature());
        let is_same =
            self.operator_public == secrets.operator_public && self.opening.fingerprint() == secrets.opening_hash;
        if is_signed && is_same { Ok(()) } else { Err(DecodeError::NotAuthentic { what: WHAT }) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::golden::{all_damage_is_noticed, golden};
    use crate::ids::DomainId;
    use crate::kem::OpeningSecret;
    use crate::keys::MasterKey;
    use crate::roles::Roles;

    fn keys() -> Keys {
        crate::golden::keys()
    }

    fn config() -> Config {
        Config {
            repository: RepositoryId([4; 16]),
            created_ms: 1_790_000_000_000,
            chunker: ChunkerParams::with_average(Algorithm::MinCdc, 4096),
            page_cuts: true,
        }
    }

    fn read(bytes: &[u8]) -> Result<Config, DecodeError> {
        UnverifiedConfig::decode(bytes)?.verify(&keys())
    }

    #[test]
    fn version_2_bytes_never_change() {
        let golden = golden("config_v2", &config().encode(&keys()).expect("valid"));
        assert_eq!(read(&golden), Ok(config()));
    }

    #[test]
    fn chunk_sizes_that_no_reader_accepts_are_not_written() {
        let chunker = ChunkerParams { min: 9000, average: 4096, ..config().chunker };
        assert!(Config { chunker, ..config() }.encode(&keys()).is_err());
    }

    #[test]
    fn every_flipped_bit_every_cut_and_every_other_key_is_noticed() {
        let bytes = config().encode(&keys()).expect("valid");
        all_damage_is_noticed(&bytes, |bytes| read(bytes).is_ok());
        let other = Keys::derive(&MasterKey([2; 32]));
        assert!(UnverifiedConfig::decode(&bytes).expect("reads").verify(&other).is_err());
    }

    /// A machine that may only back up cannot move the repository to an opening key of its own.
    #[test]
    fn only_an_operator_makes_a_configuration() {
        let secrets = Secrets::of(&MasterKey([1; 32]));
        let backup = secrets.for_roles(Roles::BACKUP, DomainId([5; 16]), None).expect("the master key makes all");
        let bytes = config().encode(&keys()).expect("valid");
        let unverified = UnverifiedConfig::decode(&bytes).expect("reads");
        let (opened, backup) = unverified.open(backup).expect("it is that of the operator");
        assert_eq!(opened, config());
        assert!(config().encode(&backup).is_err());
        // The right signature over the public half of somebody else.
        let other = OpeningSecret([7; 32]).public();
        let foreign = Keys::of(Secrets { opening_hash: other.fingerprint(), ..secrets }, other).expect("they fit");
        let foreign = config().encode(&foreign).expect("signed");
        assert!(UnverifiedConfig::decode(&foreign).expect("reads").verify(&keys()).is_err());
        assert!(UnverifiedConfig::decode(&foreign).expect("reads").open(backup.secrets().clone()).is_err());
    }

    #[test]
    fn newer_formats_are_refused_by_name() {
        let mut bytes = config().encode(&keys()).expect("valid");
        bytes[4] = 3;
        let error = UnverifiedConfig::decode(&bytes).expect_err("refused");
        assert_eq!(error, DecodeError::UnsupportedVersion { what: WHAT, found: 3, newest: 2 });
        bytes[4] = 1;
        assert_eq!(UnverifiedConfig::decode(&bytes).expect_err("refused"), DecodeError::Development { what: WHAT });
        assert!(matches!(UnverifiedConfig::decode(b"{\"id\":1}").expect_err("refused"), DecodeError::BadMagic { .. }));
    }

    /// A reader without a key fetches it once more, before a copy takes its place.
    #[test]
    fn a_flipped_bit_is_told_without_any_key() {
        let bytes = config().encode(&keys()).expect("valid");
        for bit in (0..bytes.len() * 8).step_by(7) {
            let mut flipped = bytes.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert!(UnverifiedConfig::decode(&flipped).is_err(), "bit {bit}");
        }
    }
}
