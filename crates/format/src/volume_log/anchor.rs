//! The anchor of a volume store: which record of the log is known to be durable.
//!
//! It is in a file of its own, so an earlier content of the log does not take it along.
//!
//! | offset | size | field                                                                      |
//! |-------:|-----:|----------------------------------------------------------------------------|
//! |      0 |    4 | magic `LVA` and the version as a byte                                      |
//! |      4 |    4 | zeros                                                                      |
//! |      8 |    8 | sequence number of a record that is durable, with all records before       |
//! |     16 |  464 | zeros                                                                      |
//! |    480 |   32 | MAC of everything before: BLAKE3 keyed with the anchor's key               |
//!
//! The file has two copies, [`ANCHOR_STEP`] bytes apart, which are written in turn. So one is whole
//! when the power fails during a write, and the higher one counts.
//!
//! Key: `volume anchor`, a zero byte and the 16 bytes of the store's id, under the key of the
//! index. Stores that share their keys with a repository have ids of their own, so the anchor of
//! one is none of another.

use subtle::ConstantTimeEq;

use super::MAC_AT;
use crate::ids::RepositoryId;
use crate::keys::{Keys, Secret};
use crate::seal::only_zeros;
use crate::wire::{DecodeError, Put, Reader};

/// Bytes from one copy to the next: a whole sector of any disk, so a write touches one copy only.
pub const ANCHOR_STEP: usize = 4096;

const MAGIC: [u8; 4] = *b"LVA\x03";
const WHAT: &str = "volume anchor";

/// What anchors of a store are made and checked with.
#[derive(Debug)]
pub struct AnchorKey(Secret);

impl AnchorKey {
    /// That of the store whose configuration has this id.
    ///
    /// # Errors
    /// The keys lack that of the index.
    pub fn of(keys: &Keys, store: RepositoryId) -> Result<Self, DecodeError> {
        Ok(Self(keys.index(WHAT)?.keyed(&[b"volume anchor\0", &store.0])))
    }

    /// One copy: a sector of 512 bytes.
    pub fn encode(&self, durable_upto: u64) -> Vec<u8> {
        let mut out = MAGIC.to_vec();
        out.put_u32(0);
        out.put_u64(durable_upto);
        out.resize(MAC_AT, 0);
        let mac = self.0.keyed(&[&out]);
        out.extend_from_slice(&mac.0);
        out
    }

    /// Reads one copy.
    ///
    /// # Errors
    /// It is not as this store wrote it.
    pub fn decode(&self, bytes: &[u8]) -> Result<u64, DecodeError> {
        let mut reader = Reader::new(bytes, WHAT);
        let found = reader.array()?;
        if found != MAGIC {
            return Err(DecodeError::BadMagic { what: WHAT, found });
        }
        only_zeros(reader.take(4)?, WHAT)?;
        let durable_upto = reader.u64()?;
        only_zeros(reader.take(MAC_AT - 16)?, WHAT)?;
        let mac: [u8; 32] = reader.array()?;
        reader.finish()?;
        let is_genuine: bool = self.0.keyed(&[&bytes[..MAC_AT]]).0.ct_eq(&mac).into();
        if is_genuine { Ok(durable_upto) } else { Err(DecodeError::NotAuthentic { what: WHAT }) }
    }

    /// What the copies of a file say together.
    ///
    /// # Errors
    /// No copy is as this store wrote it.
    pub fn newest(&self, copies: &[&[u8]]) -> Result<u64, DecodeError> {
        let mut newest = Err(DecodeError::Truncated { what: WHAT });
        for copy in copies {
            let found = self.decode(copy);
            newest = match (newest, found) {
                (Ok(a), Ok(b)) => Ok(a.max(b)),
                (Ok(found), Err(_)) | (Err(_), Ok(found)) => Ok(found),
                (Err(_), Err(error)) => Err(error),
            };
        }
        newest
    }
}

/// The error of a log that ends before a record that the anchor says is durable.
pub fn ends_early() -> DecodeError {
    DecodeError::invalid("volume log", "it ends before records that were durable, as in an earlier state of it")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::golden::{all_damage_is_noticed, golden, keys};
    use crate::keys::MasterKey;
    use crate::volume_log::{SECTOR, SlotKey, SlotUse};

    const STORE: RepositoryId = RepositoryId([7; 16]);

    #[test]
    fn bytes_never_change() {
        let key = AnchorKey::of(&keys(), STORE).expect("all keys");
        let found = golden("volume_anchor_v3", &key.encode(300));
        assert_eq!(found.len(), SECTOR);
        assert_eq!(key.decode(&found), Ok(300));
    }

    #[test]
    fn damage_and_other_things_are_no_anchor() {
        let key = AnchorKey::of(&keys(), STORE).expect("all keys");
        all_damage_is_noticed(&key.encode(7), |bytes| key.decode(bytes).is_ok());
        let other = AnchorKey::of(&Keys::derive(&MasterKey([2; 32])), STORE).expect("all keys");
        assert!(other.decode(&key.encode(7)).is_err());
        // A store that shares the keys of a repository with this one.
        let other = AnchorKey::of(&keys(), RepositoryId([8; 16])).expect("all keys");
        assert!(other.decode(&key.encode(7)).is_err());
        let slot = SlotKey::of(&keys(), SlotUse { slot: 0, salt: [0; 16] }).expect("all keys");
        assert!(key.decode(&slot.encode_header(7)).is_err());
        assert!(slot.decode_header(&key.encode(7)).is_err());
    }

    #[test]
    fn the_higher_of_the_whole_copies_counts() {
        let key = AnchorKey::of(&keys(), STORE).expect("all keys");
        let (low, high, none) = (key.encode(7), key.encode(8), vec![0; SECTOR]);
        assert_eq!(key.newest(&[&low, &high]), Ok(8));
        assert_eq!(key.newest(&[&high, &low]), Ok(8));
        assert_eq!(key.newest(&[&none, &low]), Ok(7));
        assert_eq!(key.newest(&[&low, &none]), Ok(7));
        assert!(key.newest(&[&none, &none]).is_err());
        assert!(key.newest(&[]).is_err());
    }
}
