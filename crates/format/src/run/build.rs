//! Writing an object of a run.

use super::block::BlockBuilder;
use super::filter::{Filter, key_hash};
use super::key::RunKey;
use super::pack::pack;
use super::{
    BLOCK_TARGET, FENCES, FILTER, MAGIC, RUN_OBJECT_MAX, RUN_TRAILER_LEN, RecordLayout, TRAILER, TRAILER_PLAIN_LEN,
    VALUE_MAX, ValueWidth, WHAT, prefix,
};
use crate::compress::{Compression, Compressor};
use crate::index_manifest::{RunRef, Table};
use crate::seal::{PART_EXTRA, RANDOM_LEN, SALT_LEN};
use crate::wire::{EncodeError, Put};

/// Collects sorted records into an object. The bytes can be taken away while it grows.
#[derive(Debug)]
pub struct RunBuilder {
    key: RunKey,
    random: [u8; RANDOM_LEN],
    table: Table,
    layout: RecordLayout,
    block: BlockBuilder,
    fences: Vec<u8>,
    /// `None` when there is to be no filter.
    hashes: Option<Vec<u64>>,
    /// `None` when blocks are not to be packed.
    packing: Option<Compressor>,
    out: Vec<u8>,
    taken: u64,
    blocks: u32,
    records: u64,
    tombstones: u64,
    first: u64,
    last_key: Vec<u8>,
}

/// A finished object.
#[derive(Debug)]
pub struct FinishedRun {
    /// The output that was not taken away before.
    pub bytes: Vec<u8>,
    /// A manifest's reference to it, with age 0.
    pub run: RunRef,
}

impl RunBuilder {
    /// An object under this key. `random` must be fresh random bytes. `with_filter`: whether it
    /// will be asked for single keys.
    pub fn new(
        key: RunKey,
        random: [u8; RANDOM_LEN],
        table: Table,
        layout: RecordLayout,
        with_filter: bool,
    ) -> Result<Self, EncodeError> {
        if !layout.is_valid() {
            return Err(EncodeError::new(WHAT, "its keys or values have an impossible width"));
        }
        Ok(Self {
            key,
            random,
            table,
            layout,
            block: BlockBuilder::new(layout),
            fences: Vec::new(),
            hashes: with_filter.then(Vec::new),
            packing: None,
            out: Vec::new(),
            taken: 0,
            blocks: 0,
            records: 0,
            tombstones: 0,
            first: 0,
            last_key: Vec::new(),
        })
    }

    /// Blocks are packed, where that makes them shorter. For records that cross the network once.
    pub fn packed(self) -> Self {
        Self { packing: Some(Compressor::new(Compression::DEFAULT)), ..self }
    }

    /// Adds a record; `None` is a tombstone. Keys rise.
    pub fn push(&mut self, key: &[u8], value: Option<&[u8]>) -> Result<(), EncodeError> {
        if key.len() != usize::from(self.layout.key_len) {
            return Err(EncodeError::new(WHAT, "a key has another width"));
        }
        if self.records > 0 && self.last_key() >= key {
            return Err(EncodeError::new(WHAT, "its keys do not rise"));
        }
        match (value, self.layout.value) {
            (Some(value), ValueWidth::Fixed(width)) if value.len() != usize::from(width) => {
                return Err(EncodeError::new(WHAT, "a value has another width"));
            }
            (Some(value), ValueWidth::Variable) if value.len() > VALUE_MAX => {
                return Err(EncodeError::new(WHAT, "a value is longer than a reader accepts"));
            }
            _ => {}
        }
        if self.records == 0 {
            self.first = prefix(key);
        }
        self.block.push(key, value);
        self.records += 1;
        self.tombstones += u64::from(value.is_none());
        if let Some(hashes) = &mut self.hashes {
            hashes.push(key_hash(key));
        }
        if self.block.len() >= BLOCK_TARGET { self.close_block() } else { Ok(()) }
    }

    fn last_key(&self) -> &[u8] {
        if self.block.count() > 0 { self.block.last_key() } else { &self.last_key }
    }

    fn close_block(&mut self) -> Result<(), EncodeError> {
        let from = self.begin_part();
        self.fences.extend_from_slice(self.block.first_key());
        let records = self.block.count();
        self.last_key.clear();
        self.last_key.extend_from_slice(self.block.last_key());
        self.block.finish(&mut self.out);
        if let Some(compressor) = &mut self.packing {
            pack(self.layout, &mut self.out, from + SALT_LEN, compressor);
        }
        self.seal_part(u64::from(self.blocks), from);
        self.fences.put_varint((self.out.len() - from) as u64);
        self.fences.put_varint(records as u64);
        self.blocks = self.blocks.checked_add(1).ok_or(EncodeError::new(WHAT, "it has too many blocks"))?;
        Ok(())
    }

    /// Leaves room for the salt of a part that is written now; gives the part's offset.
    fn begin_part(&mut self) -> usize {
        let from = self.out.len();
        self.out.extend_from_slice(&[0; SALT_LEN]);
        from
    }

    fn seal_part(&mut self, number: u64, from: usize) {
        let what = blake3::hash(&self.out[from + SALT_LEN..]);
        let salt = self.key.parts.salt(&self.random, number, what.as_bytes());
        self.key.parts.seal(number, &MAGIC, salt, &mut self.out, from);
    }

    /// Records so far.
    pub fn records(&self) -> u64 {
        self.records
    }

    /// The prefix of the last key; 0 when there is none.
    pub fn last_prefix(&self) -> u64 {
        if self.records == 0 { 0 } else { prefix(self.last_key()) }
    }

    /// Bytes that the object would have now, nearly.
    pub fn len(&self) -> u64 {
        let filter = self.hashes.as_ref().map_or(0, |hashes| hashes.len() + hashes.len() / 4);
        self.taken + (self.out.len() + self.block.len() + self.fences.len() + filter + RUN_TRAILER_LEN) as u64
    }

    /// Whether it has no records.
    pub fn is_empty(&self) -> bool {
        self.records == 0
    }

    /// Takes the bytes that are final away; they are the object's next.
    pub fn take(&mut self) -> Vec<u8> {
        self.taken += self.out.len() as u64;
        std::mem::take(&mut self.out)
    }

    /// Finishes the object. One without records is refused: there is nothing to refer to.
    pub fn finish(mut self) -> Result<FinishedRun, EncodeError> {
        if self.records == 0 {
            return Err(EncodeError::new(WHAT, "it has no records"));
        }
        if self.block.count() > 0 {
            self.close_block()?;
        }
        let filter_bytes = match self.hashes.take() {
            Some(mut hashes) => {
                let from = self.begin_part();
                Filter::build(&mut hashes).encode(&mut self.out);
                self.seal_part(FILTER, from);
                EncodeError::fit_u32(WHAT, self.out.len() - from)?
            }
            None => 0,
        };
        let from = self.begin_part();
        self.out.extend_from_slice(&self.fences);
        self.out.extend_from_slice(&self.last_key);
        self.seal_part(FENCES, from);
        let fence_bytes = EncodeError::fit_u32(WHAT, self.out.len() - from)?;
        let object_bytes = self.taken + (self.out.len() + RUN_TRAILER_LEN) as u64;
        if object_bytes > RUN_OBJECT_MAX {
            return Err(EncodeError::new(WHAT, "it is longer than a reader accepts"));
        }
        let from = self.begin_part();
        self.out.put_u8(self.table.code());
        self.out.put_u8(self.layout.key_len);
        self.out.extend_from_slice(&self.layout.value_code().to_le_bytes());
        self.out.put_u32(self.blocks);
        self.out.put_u64(self.records);
        self.out.put_u64(self.tombstones);
        self.out.put_u32(filter_bytes);
        self.out.put_u32(fence_bytes);
        self.out.put_u64(object_bytes);
        debug_assert_eq!(self.out.len() - from, SALT_LEN + TRAILER_PLAIN_LEN);
        self.seal_part(TRAILER, from);
        self.out.extend_from_slice(&MAGIC);
        let run = RunRef {
            table: self.table,
            age: 0,
            id: self.key.id,
            first: self.first,
            last: prefix(&self.last_key),
            records: self.records,
            tombstones: self.tombstones,
            object_bytes,
            tail_bytes: fence_bytes
                .checked_add(RUN_TRAILER_LEN as u32)
                .ok_or(EncodeError::new(WHAT, "its fences are too long"))?,
            filter_bytes,
        };
        Ok(FinishedRun { bytes: self.out, run })
    }
}

const _: () = assert!(TRAILER_PLAIN_LEN + PART_EXTRA + 4 == RUN_TRAILER_LEN);
