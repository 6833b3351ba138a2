//! Rows of a fixed size in a file, by their number.

use std::fs::File;
use std::io;
use std::marker::PhantomData;
use std::ops::Range;
use std::os::unix::fs::FileExt;

use crate::unnamed::give_back;

/// Bytes of one write.
const WRITE_BYTES: usize = 64 << 10;

/// A value that always takes the same number of bytes.
pub trait Row: Copy {
    /// Bytes of a row. Not zero.
    const BYTES: usize;

    /// Writes the fields, [`Self::BYTES`] in all.
    fn encode(&self, row: &mut RowWriter<'_>);

    /// Reads the fields in the same order.
    fn decode(row: &mut RowReader<'_>) -> Self;
}

/// Collects the fields of a row, numbers little-endian.
#[derive(Debug)]
pub struct RowWriter<'a>(&'a mut Vec<u8>);

impl RowWriter<'_> {
    /// A field of bytes.
    pub fn bytes(&mut self, field: &[u8]) {
        self.0.extend_from_slice(field);
    }

    /// A number.
    pub fn u32(&mut self, field: u32) {
        self.bytes(&field.to_le_bytes());
    }

    /// A number.
    pub fn u64(&mut self, field: u64) {
        self.bytes(&field.to_le_bytes());
    }
}

/// Returns the fields of a row. Zeros follow the end of the row.
#[derive(Debug)]
pub struct RowReader<'a>(&'a [u8]);

impl RowReader<'_> {
    /// A field of bytes.
    pub fn bytes<const N: usize>(&mut self) -> [u8; N] {
        let Some((field, rest)) = self.0.split_first_chunk() else { return [0; N] };
        self.0 = rest;
        *field
    }

    /// A number.
    pub fn u32(&mut self) -> u32 {
        u32::from_le_bytes(self.bytes())
    }

    /// A number.
    pub fn u64(&mut self) -> u64 {
        u64::from_le_bytes(self.bytes())
    }
}

/// Decodes a row.
pub(crate) fn decode<R: Row>(row: &[u8]) -> R {
    R::decode(&mut RowReader(row))
}

/// Appends a row to bytes.
pub(crate) fn encode<R: Row>(row: &R, bytes: &mut Vec<u8>) {
    let end = bytes.len() + R::BYTES;
    row.encode(&mut RowWriter(bytes));
    debug_assert_eq!(bytes.len(), end, "a row has another size than it says");
}

/// A file of rows. They are numbered from 0.
#[derive(Debug)]
pub struct RowFile<R> {
    file: File,
    rows: u64,
    row: PhantomData<R>,
}

impl<R: Row> RowFile<R> {
    /// Rows in this file, which is empty.
    pub fn new(file: File) -> Self {
        Self { file, rows: 0, row: PhantomData }
    }

    /// The number of rows.
    pub fn rows(&self) -> u64 {
        self.rows
    }

    /// Writes rows behind the last one. An error leaves the number of rows unchanged.
    pub fn append(&mut self, rows: impl IntoIterator<Item = R>) -> io::Result<()> {
        self.write(self.rows, rows)
    }

    /// Writes rows from number `first` on. Skipped rows before it are zeros.
    pub fn write(&mut self, first: u64, rows: impl IntoIterator<Item = R>) -> io::Result<()> {
        let mut bytes = Vec::new();
        let (mut at, mut end) = (first, first);
        for row in rows {
            encode(&row, &mut bytes);
            end += 1;
            if bytes.len() >= WRITE_BYTES {
                self.file.write_all_at(&bytes, at * R::BYTES as u64)?;
                bytes.clear();
                at = end;
            }
        }
        self.file.write_all_at(&bytes, at * R::BYTES as u64)?;
        self.rows = self.rows.max(end);
        Ok(())
    }

    /// Gives the space of rows back that are not read again, if the file system can.
    pub(crate) fn give_back(&self, rows: Range<u64>) {
        give_back(&self.file, rows.start * R::BYTES as u64..rows.end * R::BYTES as u64);
    }

    /// Bytes that the file takes on its disk.
    #[cfg(test)]
    pub(crate) fn bytes_on_disk(&self) -> u64 {
        crate::unnamed::bytes_on_disk(&self.file)
    }

    /// Reads a row. An error if the number does not exist.
    pub fn get(&self, row: u64) -> io::Result<R> {
        let mut bytes = Vec::new();
        self.read_bytes(row..row.saturating_add(1), &mut bytes)?;
        if bytes.is_empty() { Err(io::ErrorKind::UnexpectedEof.into()) } else { Ok(decode(&bytes)) }
    }

    /// Reads the existing ones of these rows.
    pub fn read(&self, rows: Range<u64>) -> io::Result<Vec<R>> {
        let mut bytes = Vec::new();
        self.read_bytes(rows, &mut bytes)?;
        Ok(bytes.chunks_exact(R::BYTES).map(decode).collect())
    }

    /// The same as bytes, into a reusable buffer.
    pub(crate) fn read_bytes(&self, rows: Range<u64>, bytes: &mut Vec<u8>) -> io::Result<()> {
        let count = rows.end.min(self.rows).saturating_sub(rows.start);
        let length = usize::try_from(count * R::BYTES as u64).map_err(|_| io::ErrorKind::InvalidInput)?;
        bytes.resize(length, 0);
        self.file.read_exact_at(bytes, rows.start * R::BYTES as u64)
    }
}
