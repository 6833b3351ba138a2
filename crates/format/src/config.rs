//! The repository's configuration: the parameters that all its writers must agree on.
//! Authenticated, not secret.
//!
//! | offset | size | field   | meaning                                                            |
//! |-------:|-----:|---------|--------------------------------------------------------------------|
//! |      0 |    4 | magic   | `LCFG`                                                             |
//! |      4 |    1 | version | 1                                                                  |
//! |      5 |    3 |         | zero                                                               |
//! |      8 |    … | fields  | CBOR map, [`Config`]                                               |
//! | end-32 |   32 | mac     | keyed BLAKE3 over everything before; key derived from the master key |
//!
//! Anyone can read it, so a program without the password can say "this is a Larder repository of a
//! newer format". It must not be *used* before [`UnverifiedConfig::verify`].

use larder_chunking::{Algorithm, ChunkerParams};
use minicbor::{Decode, Encode};
use subtle::ConstantTimeEq;

use crate::cbor;
use crate::ids::RepositoryId;
use crate::seal::Keys;
use crate::wire::{DecodeError, EncodeError, Put, Reader};

/// Most bytes of a configuration.
pub const CONFIG_MAX: u64 = 64 << 10;

const MAGIC: [u8; 4] = *b"LCFG";
const VERSION: u8 = 1;
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
}

impl Config {
    /// Encodes and authenticates.
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
        }));
        let mac = keys.config_mac(&out);
        out.extend_from_slice(&mac);
        Ok(out)
    }
}

/// A configuration that reads well but may have been forged.
#[derive(Debug, Clone)]
pub struct UnverifiedConfig {
    config: Config,
    authenticated: Vec<u8>,
    mac: [u8; 32],
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
        let (authenticated, mac) = bytes.split_last_chunk().ok_or(DecodeError::Truncated { what: WHAT })?;
        let fields = authenticated.get(8..).ok_or(DecodeError::Truncated { what: WHAT })?;
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
        Ok(Self { config, authenticated: authenticated.to_vec(), mac: *mac })
    }

    /// The repository this claims to be: needed to unwrap the master key, which then proves or
    /// refutes the claim.
    pub fn claimed_repository(&self) -> RepositoryId {
        self.config.repository
    }

    /// Whether both were made as one configuration and one may have been damaged since.
    pub fn is_twin_of(&self, other: &Self) -> bool {
        self.mac == other.mac || self.config.repository == other.config.repository
    }

    /// Proves that the writer of the configuration had the master key.
    pub fn verify(self, keys: &Keys) -> Result<Config, DecodeError> {
        let genuine = keys.config_mac(&self.authenticated).ct_eq(&self.mac);
        if bool::from(genuine) { Ok(self.config) } else { Err(DecodeError::NotAuthentic { what: WHAT }) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::seal::MasterKey;

    fn keys() -> Keys {
        Keys::derive(&MasterKey([1; 32]))
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
    fn version_1_bytes_never_change() {
        let golden = hex::decode(include_str!("golden/config_v1.hex").trim()).expect("valid hex");
        assert_eq!(hex::encode(config().encode(&keys()).expect("valid")), hex::encode(&golden));
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
        for bit in 0..bytes.len() * 8 {
            let mut flipped = bytes.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert!(read(&flipped).is_err(), "bit {bit}");
        }
        for len in 0..bytes.len() {
            assert!(read(&bytes[..len]).is_err(), "cut to {len}");
        }
        let other = Keys::derive(&MasterKey([2; 32]));
        assert!(UnverifiedConfig::decode(&bytes).expect("reads").verify(&other).is_err());
    }

    #[test]
    fn newer_formats_are_refused_by_name() {
        let mut bytes = config().encode(&keys()).expect("valid");
        bytes[4] = 2;
        let error = UnverifiedConfig::decode(&bytes).expect_err("refused");
        assert_eq!(error, DecodeError::UnsupportedVersion { what: WHAT, found: 2, newest: 1 });
        assert!(matches!(UnverifiedConfig::decode(b"{\"id\":1}").expect_err("refused"), DecodeError::BadMagic { .. }));
    }
}
