//! Packed blocks, for outputs of fleet batches: hosts send them to each other.
//!
//! Records that follow each other differ in few bytes: numbers of chunks rise by one, and images
//! and containers stay the same. So each byte of a key or value is a column of its own, in which
//! every byte is the difference to the one of the record before, modulo 256. All columns together
//! are one zstd frame.

use super::{BLOCK_TARGET, HEAD_LEN, RecordLayout, ValueWidth};
use crate::compress::{Codec, Compressor, Decompressor};
use crate::wire::{DecodeError, Put, Reader};

/// The form of an even block, and that of a packed one.
const EVEN: u8 = 0;
pub(super) const PACKED: u8 = 2;
const WHAT: &str = "packed block of a run";

/// Packs the block that begins at `from`, if it is even and shorter then.
pub(super) fn pack(layout: RecordLayout, out: &mut Vec<u8>, from: usize, compressor: &mut Compressor) {
    let block = &out[from..];
    let (EVEN, ValueWidth::Fixed(width)) = (block[0], layout.value) else { return };
    let count = [block[1], block[2], block[3], block[4]];
    let (keys, values) = block[HEAD_LEN..].split_at(u32::from_le_bytes(count) as usize * usize::from(layout.key_len));
    let mut columns = Vec::with_capacity(block.len());
    to_columns(keys, usize::from(layout.key_len), &mut columns);
    to_columns(values, usize::from(width), &mut columns);
    if let (Codec::Zstd, packed) = compressor.compress(&columns) {
        out.truncate(from);
        out.put_u8(PACKED);
        out.extend_from_slice(&count);
        out.extend_from_slice(packed);
    }
}

/// The even block that a packed one was made of.
pub(super) fn unpack(layout: RecordLayout, packed: &[u8]) -> Result<Vec<u8>, DecodeError> {
    let mut reader = Reader::new(packed, WHAT);
    reader.u8()?;
    let count = reader.u32()? as usize;
    let ValueWidth::Fixed(width) = layout.value else { return Err(reader.invalid("its values differ in width")) };
    let (key_len, width) = (usize::from(layout.key_len), usize::from(width));
    let len = count.saturating_mul(key_len + width);
    // A block is closed by the record with which it reaches its size.
    if count == 0 || len >= BLOCK_TARGET + key_len + width {
        return Err(reader.invalid("it has an impossible number of records"));
    }
    let mut columns = vec![0; len];
    Decompressor::new().decompress_into(Codec::Zstd, &packed[HEAD_LEN..], &mut columns)?;
    let mut block = vec![0; HEAD_LEN + len];
    block[0] = EVEN;
    block[1..HEAD_LEN].copy_from_slice(&packed[1..HEAD_LEN]);
    let (key_columns, value_columns) = columns.split_at(count * key_len);
    let (keys, values) = block[HEAD_LEN..].split_at_mut(count * key_len);
    to_records(key_columns, count, keys);
    to_records(value_columns, count, values);
    Ok(block)
}

fn to_columns(records: &[u8], width: usize, out: &mut Vec<u8>) {
    for column in 0..width {
        let mut before = 0u8;
        for byte in records[column..].iter().step_by(width) {
            out.push(byte.wrapping_sub(before));
            before = *byte;
        }
    }
}

fn to_records(columns: &[u8], count: usize, out: &mut [u8]) {
    let width = columns.len() / count;
    for (column, differences) in columns.chunks_exact(count).enumerate() {
        let mut byte = 0u8;
        for (difference, place) in differences.iter().zip(out[column..].iter_mut().step_by(width)) {
            byte = byte.wrapping_add(*difference);
            *place = byte;
        }
    }
}
