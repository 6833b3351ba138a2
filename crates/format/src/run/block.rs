//! A block of records, by column.
//!
//! | field  | size               | meaning                                                                            |
//! |--------|-------------------:|------------------------------------------------------------------------------------|
//! | form   | 1                  | 0: no tombstones, all values of the width in the trailer; 1: there is a column of ends |
//! | count  | 4                  | records, at least 1                                                                |
//! | keys   | count × key width  | strictly rising                                                                    |
//! | ends   | count × 4, or none | where the value ends, in bytes from the first; the highest bit marks a tombstone   |
//! | values | the rest           | back to back                                                                       |
//!
//! Form 2 is form 0 packed (`pack.rs`): form and count, and then one zstd frame. Only outputs of
//! fleet batches have it.

use super::pack::{PACKED, unpack};
use super::{BLOCK_MAX, HEAD_LEN, RecordLayout, ValueWidth, prefix};
use crate::wire::{DecodeError, Put, Reader};

const WHAT: &str = "block of an index run";
const TOMBSTONE: u32 = 1 << 31;
const _: () = assert!(BLOCK_MAX < TOMBSTONE as usize, "an end must leave the highest bit free");

/// Records being collected for a block.
#[derive(Debug)]
pub(super) struct BlockBuilder {
    layout: RecordLayout,
    keys: Vec<u8>,
    ends: Vec<u32>,
    values: Vec<u8>,
    has_tombstones: bool,
}

impl BlockBuilder {
    pub(super) fn new(layout: RecordLayout) -> Self {
        Self { layout, keys: Vec::new(), ends: Vec::new(), values: Vec::new(), has_tombstones: false }
    }

    /// The caller has checked widths and order.
    pub(super) fn push(&mut self, key: &[u8], value: Option<&[u8]>) {
        self.keys.extend_from_slice(key);
        self.values.extend_from_slice(value.unwrap_or_default());
        let end = self.values.len() as u32;
        self.ends.push(if value.is_some() { end } else { end | TOMBSTONE });
        self.has_tombstones |= value.is_none();
    }

    pub(super) fn count(&self) -> usize {
        self.ends.len()
    }

    pub(super) fn first_key(&self) -> &[u8] {
        &self.keys[..usize::from(self.layout.key_len).min(self.keys.len())]
    }

    pub(super) fn last_key(&self) -> &[u8] {
        &self.keys[self.keys.len().saturating_sub(usize::from(self.layout.key_len))..]
    }

    /// Bytes that the block would have now.
    pub(super) fn len(&self) -> usize {
        let ends = if self.is_even() { 0 } else { self.ends.len() * 4 };
        HEAD_LEN + self.keys.len() + ends + self.values.len()
    }

    fn is_even(&self) -> bool {
        !self.has_tombstones && matches!(self.layout.value, ValueWidth::Fixed(_))
    }

    /// Appends the block to `out` and begins the next.
    pub(super) fn finish(&mut self, out: &mut Vec<u8>) {
        out.put_u8(u8::from(!self.is_even()));
        out.put_u32(self.ends.len() as u32);
        out.extend_from_slice(&self.keys);
        if !self.is_even() {
            for end in &self.ends {
                out.put_u32(*end);
            }
        }
        out.extend_from_slice(&self.values);
        self.keys.clear();
        self.ends.clear();
        self.values.clear();
        self.has_tombstones = false;
    }
}

/// An opened block.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Block {
    layout: RecordLayout,
    plain: Vec<u8>,
    count: usize,
    is_even: bool,
    /// Where the values begin in `plain`.
    values: usize,
}

impl Block {
    /// Checks a block. Everything its accessors rely on is true afterwards.
    pub(super) fn decode(layout: RecordLayout, plain: Vec<u8>) -> Result<Self, DecodeError> {
        let plain = if plain.first() == Some(&PACKED) { unpack(layout, &plain)? } else { plain };
        let mut reader = Reader::new(&plain, WHAT);
        let is_even = match reader.u8()? {
            0 if layout.value == ValueWidth::Variable => return Err(reader.invalid("it has no column of ends")),
            0 => true,
            1 => false,
            _ => return Err(reader.invalid("unknown form")),
        };
        let count = reader.u32()? as usize;
        let key_len = usize::from(layout.key_len);
        if count == 0 {
            return Err(reader.invalid("it is empty"));
        }
        if count > reader.remaining() / key_len {
            return Err(DecodeError::Truncated { what: WHAT });
        }
        let keys = reader.take(count * key_len)?;
        let mut rest = keys.chunks_exact(key_len);
        let mut before = rest.next().unwrap_or_default();
        for key in rest {
            // One comparison of numbers decides nearly all cases.
            let (low, high) = (prefix(before), prefix(key));
            if low > high || (low == high && before >= key) {
                return Err(reader.invalid("its keys do not rise"));
            }
            before = key;
        }
        if is_even {
            let ValueWidth::Fixed(width) = layout.value else { return Err(reader.invalid("it has no column of ends")) };
            reader.take(count * usize::from(width))?;
            reader.finish()?;
        } else {
            if count > reader.remaining() / 4 {
                return Err(DecodeError::Truncated { what: WHAT });
            }
            let mut before = 0;
            let mut has_tombstones = false;
            for _ in 0..count {
                let end = reader.u32()?;
                let (end, is_tombstone) = (end & !TOMBSTONE, end & TOMBSTONE != 0);
                let len = end.checked_sub(before).ok_or(reader.invalid("its ends do not rise"))?;
                let fits = match layout.value {
                    _ if is_tombstone => len == 0,
                    ValueWidth::Fixed(width) => len == u32::from(width),
                    ValueWidth::Variable => true,
                };
                if !fits {
                    return Err(reader.invalid("a value has a wrong width"));
                }
                has_tombstones |= is_tombstone;
                before = end;
            }
            if !has_tombstones && layout.value != ValueWidth::Variable {
                return Err(reader.invalid("it has a column of ends for nothing"));
            }
            reader.take(before as usize)?;
            reader.finish()?;
        }
        let values = HEAD_LEN + count * key_len + if is_even { 0 } else { count * 4 };
        Ok(Self { layout, count, is_even, values, plain })
    }

    /// How many records it has; never 0.
    pub fn count(&self) -> usize {
        self.count
    }

    /// The key of a record.
    pub fn key(&self, record: usize) -> &[u8] {
        let key_len = usize::from(self.layout.key_len);
        let at = HEAD_LEN + record * key_len;
        &self.plain[at..at + key_len]
    }

    /// The value of a record; `None` is a tombstone.
    pub fn value(&self, record: usize) -> Option<&[u8]> {
        if let (true, ValueWidth::Fixed(width)) = (self.is_even, self.layout.value) {
            let at = self.values + record * usize::from(width);
            return Some(&self.plain[at..at + usize::from(width)]);
        }
        let end = self.end(record);
        if end & TOMBSTONE != 0 {
            return None;
        }
        let start = if record == 0 { 0 } else { self.end(record - 1) & !TOMBSTONE };
        Some(&self.plain[self.values + start as usize..self.values + end as usize])
    }

    fn end(&self, record: usize) -> u32 {
        let at = self.values - (self.count - record) * 4;
        u32::from_le_bytes([self.plain[at], self.plain[at + 1], self.plain[at + 2], self.plain[at + 3]])
    }

    /// The first record at or behind `from` whose key is not below `key`. Looks near `from` first.
    pub fn seek(&self, from: usize, key: &[u8]) -> usize {
        let wanted = prefix(key);
        let is_below = |record: usize| {
            let found = self.key(record);
            let head = prefix(found);
            head < wanted || (head == wanted && found < key)
        };
        let (mut low, mut step) = (from, 1);
        // `low` is where the answer may be; everything before it is below.
        while low + step <= self.count && is_below(low + step - 1) {
            low += step;
            step *= 2;
        }
        let mut high = (low + step - 1).min(self.count);
        while low < high {
            let middle = low.midpoint(high);
            if is_below(middle) {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        low
    }

    /// Its memory, to be used for another.
    pub fn into_buffer(self) -> Vec<u8> {
        self.plain
    }
}
