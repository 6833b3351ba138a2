//! Reading an object of a run: fences and trailer from its tail, then filter and blocks as they are
//! needed.

use std::ops::Range;

use super::block::Block;
use super::filter::Filter;
use super::key::RunKey;
use super::{
    BLOCK_MAX, FENCES, FILTER, MAGIC, RUN_OBJECT_MAX, RUN_TRAILER_LEN, RecordLayout, TRAILER, VARIABLE, ValueWidth,
    WHAT, prefix,
};
use crate::ids::RunId;
use crate::index_manifest::Table;
use crate::seal::{PART_EXTRA, PartKeys, SALT_LEN};
use crate::wire::{DEVELOPMENT, DecodeError, Reader};

/// The facts of an object from its tail.
#[derive(Debug)]
pub struct RunIndex {
    /// Which object.
    pub id: RunId,
    /// Which table it is of.
    pub table: Table,
    /// The form of its records.
    pub layout: RecordLayout,
    /// Records, tombstones included.
    pub records: u64,
    /// Tombstones.
    pub tombstones: u64,
    parts: PartKeys,
    /// First keys of all blocks, and behind them the last key of the object.
    keys: Vec<u8>,
    /// Where the blocks begin, and behind them where the last one ends.
    offsets: Vec<u64>,
    counts: Vec<u32>,
    filter_bytes: u32,
}

struct Trailer {
    table: Table,
    layout: RecordLayout,
    blocks: u32,
    records: u64,
    tombstones: u64,
    filter_bytes: u32,
    fence_bytes: u32,
}

fn decode_trailer(parts: &PartKeys, tail: &[u8], object_len: u64) -> Result<Trailer, DecodeError> {
    let (rest, found) = tail.split_last_chunk::<4>().ok_or(DecodeError::Truncated { what: WHAT })?;
    let sealed = || rest.len().checked_sub(RUN_TRAILER_LEN - MAGIC.len()).map(|from| rest[from..].to_vec());
    if *found != MAGIC {
        // If it opens as a trailer of this version, it is one, and only this byte of it is damaged.
        let is_ours = || sealed().is_some_and(|mut sealed| parts.open(TRAILER, &MAGIC, &mut sealed, WHAT).is_ok());
        return Err(match found {
            [b'L', b'R', b'N', DEVELOPMENT] if !is_ours() => DecodeError::Development { what: WHAT },
            [b'L', b'R', b'N', version] if *version > MAGIC[3] && !is_ours() => {
                DecodeError::UnsupportedVersion { what: WHAT, found: *version, newest: MAGIC[3] }
            }
            _ => DecodeError::BadMagic { what: WHAT, found: *found },
        });
    }
    let mut sealed = sealed().ok_or(DecodeError::Truncated { what: WHAT })?;
    let mut reader = Reader::new(parts.open(TRAILER, &MAGIC, &mut sealed, WHAT)?, WHAT);
    let table = Table::of_code(reader.u8()?).ok_or(reader.invalid("unknown table"))?;
    let key_len = reader.u8()?;
    let value = match reader.u16()? {
        VARIABLE => ValueWidth::Variable,
        width => ValueWidth::Fixed(width),
    };
    let layout = RecordLayout { key_len, value };
    if !layout.is_valid() {
        return Err(reader.invalid("its keys or values have an impossible width"));
    }
    let trailer = Trailer {
        table,
        layout,
        blocks: reader.u32()?,
        records: reader.u64()?,
        tombstones: reader.u64()?,
        filter_bytes: reader.u32()?,
        fence_bytes: reader.u32()?,
    };
    if reader.u64()? != object_len || object_len > RUN_OBJECT_MAX {
        return Err(reader.invalid("its length is not what its trailer says"));
    }
    reader.finish()?;
    Ok(trailer)
}

impl RunIndex {
    /// Reads the end of an object (or the whole of it), at least fences and trailer. `object_len`
    /// is the known length.
    pub fn decode(key: &RunKey, tail: &[u8], object_len: u64) -> Result<Self, DecodeError> {
        let RunKey { id, parts } = key.clone();
        let trailer = decode_trailer(&parts, tail, object_len)?;
        let end = tail.len() - RUN_TRAILER_LEN;
        let from = end.checked_sub(trailer.fence_bytes as usize).ok_or(DecodeError::Truncated { what: WHAT })?;
        let mut sealed = tail[from..end].to_vec();
        let mut reader = Reader::new(parts.open(FENCES, &MAGIC, &mut sealed, WHAT)?, WHAT);
        let key_len = usize::from(trailer.layout.key_len);
        let blocks = trailer.blocks as usize;
        if blocks == 0 {
            return Err(reader.invalid("it has no blocks"));
        }
        if blocks > reader.remaining() / (key_len + 2) {
            return Err(DecodeError::Truncated { what: WHAT });
        }
        let mut keys = Vec::with_capacity((blocks + 1) * key_len);
        let mut offsets = Vec::with_capacity(blocks + 1);
        let mut counts = Vec::with_capacity(blocks);
        let (mut offset, mut records) = (0u64, 0u64);
        for _ in 0..blocks {
            keys.extend_from_slice(reader.take(key_len)?);
            offsets.push(offset);
            let sealed = reader.varint()?;
            if sealed > (BLOCK_MAX + PART_EXTRA) as u64 || sealed < PART_EXTRA as u64 {
                return Err(reader.invalid("a block has an impossible length"));
            }
            offset += sealed;
            let count = reader.varint_u32()?;
            counts.push(count);
            records += u64::from(count);
        }
        offsets.push(offset);
        keys.extend_from_slice(reader.take(key_len)?);
        reader.finish()?;
        let fences: Vec<&[u8]> = keys.chunks_exact(key_len).collect();
        let (firsts, last) = fences.split_at(blocks);
        // The last block may have a single record.
        if !firsts.is_sorted_by(|a, b| a < b) || firsts.last() > last.first() {
            return Err(reader.invalid("its fences do not rise"));
        }
        if records != trailer.records || trailer.tombstones > records {
            return Err(reader.invalid("its records do not add up"));
        }
        let tail_bytes = u64::from(trailer.filter_bytes) + u64::from(trailer.fence_bytes) + RUN_TRAILER_LEN as u64;
        if offset + tail_bytes != object_len {
            return Err(reader.invalid("its parts do not add up to the object"));
        }
        let Trailer { table, layout, records, tombstones, filter_bytes, .. } = trailer;
        Ok(Self { id, table, layout, records, tombstones, parts, keys, offsets, counts, filter_bytes })
    }

    /// How many blocks there are; never 0.
    pub fn blocks(&self) -> usize {
        self.counts.len()
    }

    fn fence(&self, number: usize) -> &[u8] {
        let key_len = usize::from(self.layout.key_len);
        &self.keys[number * key_len..(number + 1) * key_len]
    }

    /// The first key of a block.
    pub fn first_key(&self, block: usize) -> &[u8] {
        self.fence(block)
    }

    /// The last key of all.
    pub fn last_key(&self) -> &[u8] {
        self.fence(self.blocks())
    }

    /// The bytes of the object that hold these blocks.
    pub fn bytes_of(&self, blocks: Range<usize>) -> Range<u64> {
        self.offsets[blocks.start]..self.offsets[blocks.end]
    }

    /// The bytes of the object that hold the filter; empty when it has none.
    pub fn filter_range(&self) -> Range<u64> {
        let from = self.offsets[self.blocks()];
        from..from + u64::from(self.filter_bytes)
    }

    /// The block in which a key is, if it is in any.
    pub fn block_of(&self, key: &[u8]) -> Option<usize> {
        self.block_from(0, key)
    }

    /// The same when it is known to be in no block before `start`. Looks near that first.
    pub fn block_from(&self, start: usize, key: &[u8]) -> Option<usize> {
        if key > self.last_key() || key < self.fence(start) {
            return None;
        }
        let (mut low, mut step) = (start + 1, 1);
        while low + step <= self.blocks() && self.fence(low + step - 1) <= key {
            low += step;
            step *= 2;
        }
        Some(self.behind(low, (low + step - 1).min(self.blocks()), |first| first <= key) - 1)
    }

    /// The blocks that hold keys with these prefixes, both included, and maybe one more.
    pub fn blocks_within(&self, first: u64, last: u64) -> Range<usize> {
        let end = self.behind(0, self.blocks(), |key| prefix(key) <= last);
        // Keys with the prefix `first` may stand before the first fence that has it.
        let start = self.behind(0, self.blocks(), |key| prefix(key) < first).saturating_sub(1);
        if prefix(self.last_key()) < first { end..end } else { start.min(end)..end }
    }

    /// The first block of `low..high` whose first key does not pass, or `high`.
    fn behind(&self, mut low: usize, mut high: usize, passes: impl Fn(&[u8]) -> bool) -> usize {
        while low < high {
            let middle = low.midpoint(high);
            if passes(self.fence(middle)) {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        low
    }

    /// Opens a block from its bytes. `buffer` is memory to use.
    pub fn open_block(&self, number: usize, sealed: &[u8], mut buffer: Vec<u8>) -> Result<Block, DecodeError> {
        buffer.clear();
        buffer.extend_from_slice(sealed);
        let len = self.parts.open(number as u64, &MAGIC, &mut buffer, WHAT)?.len();
        buffer.copy_within(SALT_LEN..SALT_LEN + len, 0);
        buffer.truncate(len);
        let block = Block::decode(self.layout, buffer)?;
        let invalid = |why| Err(DecodeError::invalid(WHAT, why));
        if block.count() != self.counts[number] as usize {
            return invalid("a block has another number of records than its fence says");
        }
        let last = block.key(block.count() - 1);
        let is_last = number + 1 == self.blocks();
        let ends = if is_last { last == self.last_key() } else { last < self.fence(number + 1) };
        if block.key(0) != self.fence(number) || !ends {
            return invalid("a block has other keys than its fences say");
        }
        Ok(block)
    }

    /// Opens the filter from its bytes; `None` when the object has none.
    pub fn open_filter(&self, sealed: &[u8]) -> Result<Option<Filter>, DecodeError> {
        if self.filter_bytes == 0 {
            return Ok(None);
        }
        let mut sealed = sealed.to_vec();
        Filter::decode(self.parts.open(FILTER, &MAGIC, &mut sealed, WHAT)?).map(Some)
    }

    /// Bytes of memory that it takes, nearly.
    pub fn bytes_held(&self) -> usize {
        self.keys.len() + self.offsets.len() * 8 + self.counts.len() * 4 + 512
    }
}
