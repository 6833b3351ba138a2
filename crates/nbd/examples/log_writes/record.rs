//! The log: records of changes in the order in which the device made them.
//!
//! A record is a header of 24 bytes and the data of a write. The header has the kind, whether the
//! change was durable at once, six zeros, and offset and length as little-endian numbers.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

/// Bytes of a header.
const HEADER: u64 = 24;

/// What a record is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Data was written. It follows the header.
    Write,
    /// Everything before became durable.
    Flush,
    /// A range was trimmed or zeroed.
    Zero,
}

/// A change of the device.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Record {
    pub(crate) kind: Kind,
    /// The client was told that it is durable (FUA).
    pub(crate) durable: bool,
    /// Bytes.
    pub(crate) offset: u64,
    /// Bytes.
    pub(crate) length: u64,
}

impl Record {
    /// The bytes of a record.
    pub(crate) fn encode(&self, data: &[u8]) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(HEADER as usize + data.len());
        bytes.extend([self.kind as u8, self.durable.into(), 0, 0, 0, 0, 0, 0]);
        bytes.extend(self.offset.to_le_bytes());
        bytes.extend(self.length.to_le_bytes());
        bytes.extend(data);
        bytes
    }

    fn decode(bytes: &[u8; HEADER as usize]) -> Option<Self> {
        let kind = [Kind::Write, Kind::Flush, Kind::Zero].into_iter().find(|kind| *kind as u8 == bytes[0])?;
        let number = |at: usize| u64::from_le_bytes(std::array::from_fn(|byte| bytes[at + byte]));
        Some(Self { kind, durable: bytes[1] == 1, offset: number(8), length: number(16) })
    }

    fn data_length(&self) -> u64 {
        if self.kind == Kind::Write { self.length } else { 0 }
    }
}

/// A record, and where it is in the log.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Placed {
    pub(crate) record: Record,
    /// Where its data begins.
    data: u64,
    /// Where the next record begins.
    pub(crate) end: u64,
}

/// A log that nobody writes any more.
pub(crate) struct Log {
    file: File,
    length: u64,
}

impl Log {
    pub(crate) fn open(path: &Path) -> io::Result<Self> {
        let file = File::open(path)?;
        Ok(Self { length: file.metadata()?.len(), file })
    }

    /// The record at a place; `None` at the end, also if the last record is incomplete.
    pub(crate) fn at(&self, place: u64) -> io::Result<Option<Placed>> {
        if place + HEADER > self.length {
            return Ok(None);
        }
        let mut header = [0; HEADER as usize];
        self.file.read_exact_at(&mut header, place)?;
        let record = Record::decode(&header).ok_or_else(|| io::Error::other(format!("{place} begins no record")))?;
        let data = place + HEADER;
        let end = data + record.data_length();
        Ok((end <= self.length).then_some(Placed { record, data, end }))
    }

    /// Calls `act` for each record from a place up to another.
    pub(crate) fn each(&self, from: u64, to: u64, mut act: impl FnMut(&Placed) -> io::Result<()>) -> io::Result<()> {
        let mut at = from;
        while let Some(placed) = self.at(at)?
            && placed.end <= to
        {
            act(&placed)?;
            at = placed.end;
        }
        Ok(())
    }

    /// The data of a write.
    pub(crate) fn data(&self, placed: &Placed) -> io::Result<Vec<u8>> {
        let mut data = vec![0; placed.record.data_length() as usize];
        self.file.read_exact_at(&mut data, placed.data)?;
        Ok(data)
    }

    /// The end of the last flush up to `cut`, or `from` if there is none behind it.
    pub(crate) fn last_flush(&self, from: u64, cut: u64) -> io::Result<u64> {
        let mut last = from;
        self.each(from, cut, |placed| {
            if placed.record.kind == Kind::Flush {
                last = placed.end;
            }
            Ok(())
        })?;
        Ok(last)
    }
}
