//! Marks of the index: which attempt at a number counts.
//!
//! `indexed/<n>` is a sealed object (`seal.rs`), magic `LIXM`, one part: a CBOR map, [`IndexMark`].
//! It is created, if absent, after `index/<n>`, and no decision of this index is executed before.
//! So the name has one winner: the attempt at number n that counts, or the word that none does.
//! `docs/concurrency.md` says why (`MarkedBeforeRemoval`, `VoidOrMarked`).
//!
//! | field | content                                                                     |
//! |------:|-----------------------------------------------------------------------------|
//! |     0 | the number                                                                  |
//! |     1 | 16 bytes: the attempt of `index/<n>` that counts; absent: the number is void |

use minicbor::bytes::ByteArray;
use minicbor::{Decode, Encode};

use crate::cbor;
use crate::ids::DomainId;
use crate::keys::Keys;
use crate::mark::MARK_MAX;
use crate::names;
use crate::seal::{ObjectType, Pad, RANDOM_LEN, Realm, Signing, open_object, seal_object};
use crate::wire::{DecodeError, EncodeError};

const MARK: ObjectType = ObjectType {
    magic: *b"LIXM",
    version: 2,
    what: "mark of an index",
    max_len: MARK_MAX,
    realm: Realm::Index,
    signing: Signing::Required,
    pad: Pad::Small,
};

/// The meaning of a mark for its number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum IndexMark {
    /// The index with this attempt id counts. When it is not there, it was lost.
    Counts([u8; 16]),
    /// No index with this number counts, even if an object has its name.
    Void,
}

#[derive(Debug, Encode, Decode)]
#[cbor(map)]
struct Fields {
    #[n(0)]
    number: u64,
    #[n(1)]
    attempt: Option<ByteArray<16>>,
}

impl IndexMark {
    /// Seals the mark of a number. `random` must be fresh random bytes.
    pub fn encode(self, keys: &Keys, number: u64, random: [u8; RANDOM_LEN]) -> Result<Vec<u8>, EncodeError> {
        let attempt = match self {
            Self::Counts(attempt) => Some(attempt.into()),
            Self::Void => None,
        };
        let fields = cbor::encode(&Fields { number, attempt });
        seal_object(keys, DomainId::DEFAULT, &names::indexed(number), MARK, random, &[&fields])
    }

    /// Opens the mark of a number.
    pub fn decode(keys: &Keys, number: u64, bytes: &[u8]) -> Result<Self, DecodeError> {
        let opened = open_object(keys, &names::indexed(number), MARK, bytes, 1, 1)?;
        let fields: Fields = cbor::decode_padded(&opened.parts[0], MARK.what)?;
        if fields.number != number {
            return Err(DecodeError::invalid(MARK.what, "its number is not the one in its name"));
        }
        Ok(fields.attempt.map_or(Self::Void, |attempt| Self::Counts(attempt.into())))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::golden::{all_damage_is_noticed, golden};
    use crate::keys::MasterKey;

    const MARK: IndexMark = IndexMark::Counts([4; 16]);

    fn keys() -> Keys {
        crate::golden::keys()
    }

    fn sealed(mark: IndexMark) -> Vec<u8> {
        mark.encode(&keys(), 7, [9; 32]).expect("fits")
    }

    #[test]
    fn version_2_bytes_never_change() {
        for (mark, name) in [(MARK, "index_mark_v2"), (IndexMark::Void, "index_mark_void_v2")] {
            let golden = golden(name, &sealed(mark));
            assert_eq!(IndexMark::decode(&keys(), 7, &golden), Ok(mark));
        }
    }

    #[test]
    fn a_mark_is_bound_to_its_number() {
        assert!(IndexMark::decode(&keys(), 8, &sealed(MARK)).is_err());
        assert!(IndexMark::decode(&Keys::derive(&MasterKey([2; 32])), 7, &sealed(MARK)).is_err());
        let fields = cbor::encode(&Fields { number: 8, attempt: None });
        let other = seal_object(&keys(), DomainId::DEFAULT, &names::indexed(7), super::MARK, [9; 32], &[&fields])
            .expect("fits");
        assert!(IndexMark::decode(&keys(), 7, &other).is_err());
    }

    #[test]
    fn every_flipped_bit_and_every_cut_is_noticed() {
        let bytes = sealed(MARK);
        all_damage_is_noticed(&bytes, |bytes| IndexMark::decode(&keys(), 7, bytes).is_ok());
    }
}
