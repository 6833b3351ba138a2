//! The log of a volume store: slots of a fixed length, filled front to back with records.
//!
//! | slot   | bytes | content                                                                |
//! |--------|------:|------------------------------------------------------------------------|
//! | header |   512 | below                                                                  |
//! | record |     … | each begins at a multiple of 512                                       |
//!
//! | offset | size | field of the header                                                        |
//! |-------:|-----:|----------------------------------------------------------------------------|
//! |      0 |    4 | magic `LVL` and the version as a byte                                      |
//! |      4 |    4 | number of the slot                                                         |
//! |      8 |    8 | sequence number of its first record                                        |
//! |     16 |   16 | salt                                                                       |
//! |     32 |  448 | zeros                                                                      |
//! |    480 |   32 | MAC of everything before: BLAKE3 keyed with the slot's header key          |
//!
//! | offset | size | field of a record                                                          |
//! |-------:|-----:|----------------------------------------------------------------------------|
//! |      0 |    4 | bytes of the sealed part                                                   |
//! |      4 |    4 | zeros                                                                      |
//! |      8 |    8 | sequence number                                                            |
//! |     16 |    … | sealed part: ciphertext and 16 bytes of tag; then zeros to a multiple of 512 |
//!
//! Keys: `volume log`, a zero byte, `records` or `header`, the slot's number and its salt, under
//! the key of the index. A record's nonce is its offset in the slot; its first 16 bytes are
//! associated data. A slot that is used again gets a new salt, and after a crash nothing is
//! appended to a slot. So no nonce is used twice.
//!
//! The sealed part: varint `durable_upto`, varint count of events, the events. A record says by
//! `durable_upto` that all records up to this sequence number were durable before it was written.

mod anchor;
mod change;
mod event;

pub use anchor::{ANCHOR_STEP, AnchorKey, ends_early};
pub use change::VolumeChange;
pub use event::{Event, FramesEvent};

use subtle::ConstantTimeEq;

use crate::keys::{Keys, Secret};
use crate::seal::{RANDOM_LEN, Sealer, TAG_LEN, only_zeros};
use crate::wire::{DecodeError, EncodeError, Put, Reader};

/// Bytes of a slot's header, and the unit in which records are aligned.
pub const SECTOR: usize = 512;
/// Most bytes of a record.
pub const RECORD_MAX: usize = 64 << 20;

const MAGIC: [u8; 4] = *b"LVL\x02";
const MAC_AT: usize = SECTOR - 32;
const HEAD: usize = 16;
const WHAT: &str = "log record";
const WHAT_SLOT: &str = "log slot";

/// Which use of a slot: its number, and the salt of this use.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct SlotUse {
    /// Number of the slot.
    pub slot: u32,
    /// Drawn for this use.
    pub salt: [u8; 16],
}

impl SlotUse {
    /// The use that a slot's header claims. [`SlotKey::decode_header`] says whether that is true.
    pub fn claimed(header: &[u8]) -> Option<Self> {
        let slot = header.get(4..8)?.try_into().map(u32::from_le_bytes).ok()?;
        Some(Self { slot, salt: header.get(16..32)?.try_into().ok()? })
    }
}

/// What one use of a slot is sealed with.
#[derive(Debug)]
pub struct SlotKey {
    of: SlotUse,
    records: Sealer,
    header: Secret,
}

/// One commit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Record {
    /// Sequence number; rises by one from record to record.
    pub seq: u64,
    /// All records up to this one were durable before this one was written.
    pub durable_upto: u64,
    /// The changes.
    pub events: Vec<Event>,
}

impl SlotKey {
    /// That of one use of a slot.
    pub fn of(keys: &Keys, of: SlotUse) -> Result<Self, DecodeError> {
        let index = keys.index(WHAT_SLOT)?;
        let key = |part: &[u8]| index.keyed(&[b"volume log\0", part, &of.slot.to_le_bytes(), &of.salt]);
        Ok(Self { of, records: Sealer::new(&key(b"records").0), header: key(b"header\0") })
    }

    /// A salt for a new use. `random` must be fresh random bytes; `manifest` and `seq` are the
    /// store's, so a machine resumed twice from one image still uses different salts.
    pub fn salt(keys: &Keys, random: &[u8; RANDOM_LEN], seq: u64) -> Result<[u8; 16], DecodeError> {
        Ok(keys.index(WHAT_SLOT)?.keyed(&[b"volume log salt\0", random, &seq.to_le_bytes()]).first_half())
    }

    /// The slot's header.
    pub fn encode_header(&self, first_seq: u64) -> Vec<u8> {
        let mut out = MAGIC.to_vec();
        out.put_u32(self.of.slot);
        out.put_u64(first_seq);
        out.extend_from_slice(&self.of.salt);
        out.resize(MAC_AT, 0);
        let mac = self.header.keyed(&[&out]);
        out.extend_from_slice(&mac.0);
        out
    }

    /// Checks a header; gives the sequence number of the slot's first record.
    pub fn decode_header(&self, bytes: &[u8]) -> Result<u64, DecodeError> {
        let mut reader = Reader::new(bytes, WHAT_SLOT);
        let found = reader.array()?;
        if found != MAGIC {
            return Err(DecodeError::BadMagic { what: WHAT_SLOT, found });
        }
        let (slot, first_seq, salt) = (reader.u32()?, reader.u64()?, reader.array::<16>()?);
        only_zeros(reader.take(MAC_AT - 32)?, WHAT_SLOT)?;
        let mac: [u8; 32] = reader.array()?;
        reader.finish()?;
        let is_genuine: bool = self.header.keyed(&[&bytes[..MAC_AT]]).0.ct_eq(&mac).into();
        if !is_genuine || (SlotUse { slot, salt }) != self.of {
            return Err(DecodeError::NotAuthentic { what: WHAT_SLOT });
        }
        Ok(first_seq)
    }

    /// Seals a record for an offset of the slot: a multiple of [`SECTOR`].
    pub fn seal(&self, offset: u64, record: &Record) -> Result<Vec<u8>, EncodeError> {
        let mut out = vec![0; HEAD];
        encode_plain(record.durable_upto, &record.events, &mut out)?;
        let len = out.len() - HEAD + TAG_LEN;
        if len + HEAD + SECTOR > RECORD_MAX {
            return Err(EncodeError::new(WHAT, "it is longer than a reader accepts"));
        }
        out[..4].copy_from_slice(&EncodeError::fit_u32(WHAT, len)?.to_le_bytes());
        out[8..HEAD].copy_from_slice(&record.seq.to_le_bytes());
        let head = out[..HEAD].to_vec();
        self.records.seal(offset, &head, &mut out, HEAD);
        out.resize(out.len().next_multiple_of(SECTOR), 0);
        Ok(out)
    }

    /// Opens the record at an offset of the slot. `bytes` has the length that [`record_len`] says.
    pub fn open(&self, offset: u64, bytes: &[u8]) -> Result<Record, DecodeError> {
        let (seq, len) = record_len(bytes).ok_or(DecodeError::invalid(WHAT, "there is none"))?;
        let (head, rest) = bytes.split_at(HEAD);
        if bytes.len() != len {
            return Err(DecodeError::Truncated { what: WHAT });
        }
        let sealed_len = u32::from_le_bytes([head[0], head[1], head[2], head[3]]) as usize;
        let (sealed, zeros) = rest.split_at(sealed_len);
        only_zeros(zeros, WHAT)?;
        let mut sealed = sealed.to_vec();
        let plain = self.records.open(offset, head, &mut sealed, WHAT)?;
        let (durable_upto, events) = decode_plain(plain)?;
        Ok(Record { seq, durable_upto, events })
    }
}

/// Appends the plain text of a record: `durable_upto` and the events.
pub fn encode_plain(durable_upto: u64, events: &[Event], out: &mut Vec<u8>) -> Result<(), EncodeError> {
    out.put_varint(durable_upto);
    out.put_varint(events.len() as u64);
    events.iter().try_for_each(|event| event.encode(out))
}

/// Reads the plain text of a record: `durable_upto` and the events.
pub fn decode_plain(plain: &[u8]) -> Result<(u64, Vec<Event>), DecodeError> {
    let mut reader = Reader::new(plain, WHAT);
    let durable_upto = reader.varint()?;
    let count = reader.count(2)?;
    let mut events = Vec::with_capacity(count.min(4096));
    for _ in 0..count {
        events.push(Event::decode(&mut reader)?);
    }
    reader.finish()?;
    Ok((durable_upto, events))
}

/// The sequence number and the length, zeros included, that the first 16 bytes of a record claim.
/// `None`: no record begins like this. Not authenticated.
pub fn record_len(bytes: &[u8]) -> Option<(u64, usize)> {
    let mut reader = Reader::new(bytes, WHAT);
    let (len, zeros, seq) = (reader.u32().ok()? as usize, reader.u32().ok()?, reader.u64().ok()?);
    let whole = (HEAD + len).next_multiple_of(SECTOR);
    (zeros == 0 && len > TAG_LEN && whole <= RECORD_MAX).then_some((seq, whole))
}

#[cfg(test)]
mod tests;
