//! Records of any length, sorted by their keys in bounded memory.
//!
//! [`RecordSorter`] takes records in any order, and writes a sorted run to a file when its memory
//! is full. [`RecordSorter::finish`] merges the runs into one sequence. Records with equal keys
//! stay in the order in which they came.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::Arc;

use crate::unnamed::unnamed;

/// Bytes that each record takes in memory beside its own.
const OVERHEAD: usize = 64;
/// Bytes of one read or write of a file.
const BLOCK_BYTES: usize = 64 << 10;
/// The smallest buffer of a run while runs are merged (bytes).
const BUFFER_MIN: usize = 4 << 10;
/// Bytes of the two lengths before each record.
const HEAD_BYTES: usize = 8;

/// A record: a key and a value.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Record {
    /// The key. Records sort by its bytes.
    pub key: Vec<u8>,
    /// The value.
    pub value: Vec<u8>,
}

/// See the module header.
#[derive(Debug)]
pub struct RecordSorter {
    folder: Option<PathBuf>,
    memory: usize,
    held: Vec<Record>,
    held_bytes: usize,
    runs: Option<Appended>,
    ends: Vec<u64>,
}

impl RecordSorter {
    /// A sorter that holds about `memory` bytes. More goes to files without a name in `folder`.
    /// Without a folder, all stays in memory.
    pub fn new(folder: Option<PathBuf>, memory: usize) -> Self {
        Self { folder, memory, held: Vec::new(), held_bytes: 0, runs: None, ends: Vec::new() }
    }

    /// Adds a record.
    ///
    /// # Errors
    /// The file cannot be made or written.
    pub fn push(&mut self, record: Record) -> io::Result<()> {
        self.held_bytes += record.key.len() + record.value.len() + OVERHEAD;
        self.held.push(record);
        if self.held_bytes >= self.memory && self.folder.is_some() {
            self.write_run()?;
        }
        Ok(())
    }

    fn write_run(&mut self) -> io::Result<()> {
        let Some(folder) = &self.folder else { return Ok(()) };
        let runs = match &mut self.runs {
            Some(runs) => runs,
            runs => runs.insert(Appended::new(unnamed(folder)?)),
        };
        self.held.sort_by(|a, b| a.key.cmp(&b.key));
        for record in self.held.drain(..) {
            runs.push(&record)?;
        }
        self.held_bytes = 0;
        self.ends.push(runs.end());
        Ok(())
    }

    /// All records, in the order of their keys.
    ///
    /// # Errors
    /// A file cannot be made, written or read.
    pub fn finish(mut self) -> io::Result<SortedRecords> {
        if self.runs.is_none() {
            self.held.sort_by(|a, b| a.key.cmp(&b.key));
            return Ok(SortedRecords(Kept::Memory(self.held.into())));
        }
        self.write_run()?;
        let (Some(runs), Some(folder)) = (self.runs, &self.folder) else { return Ok(SortedRecords::default()) };
        let (file, _) = runs.finish()?;
        let mut from = 0;
        let buffer = (self.memory / self.ends.len().max(1)).clamp(BUFFER_MIN, BLOCK_BYTES);
        let mut readers: Vec<FileRecords> = Vec::new();
        for end in self.ends {
            readers.push(FileRecords::new(file.clone(), from..end, buffer));
            from = end;
        }
        let mut heap = BinaryHeap::new();
        for (number, reader) in readers.iter_mut().enumerate() {
            heap.extend(reader.next().transpose()?.map(|record| Reverse((record.key, number, record.value))));
        }
        let mut merged = Appended::new(unnamed(folder)?);
        // The number of the run comes before the value, so equal keys keep their order.
        while let Some(Reverse((key, number, value))) = heap.pop() {
            merged.push(&Record { key, value })?;
            let next = readers[number].next().transpose()?;
            heap.extend(next.map(|record| Reverse((record.key, number, record.value))));
        }
        merged.sorted()
    }
}

/// Records in their order, to be read any number of times.
#[derive(Debug, Clone, Default)]
pub struct SortedRecords(Kept);

#[derive(Debug, Clone)]
enum Kept {
    Memory(Arc<[Record]>),
    File(Arc<File>, u64),
}

impl Default for Kept {
    fn default() -> Self {
        Self::Memory(Arc::default())
    }
}

impl SortedRecords {
    /// The records from the first one on.
    pub fn iter(&self) -> RecordIter {
        RecordIter(match &self.0 {
            Kept::Memory(records) => Reading::Memory(records.clone(), 0),
            Kept::File(file, end) => Reading::File(FileRecords::new(file.clone(), 0..*end, BLOCK_BYTES)),
        })
    }
}

/// See [`SortedRecords::iter`]. An error ends it.
#[derive(Debug)]
pub struct RecordIter(Reading);

#[derive(Debug)]
enum Reading {
    Memory(Arc<[Record]>, usize),
    File(FileRecords),
}

impl Iterator for RecordIter {
    type Item = io::Result<Record>;

    fn next(&mut self) -> Option<Self::Item> {
        match &mut self.0 {
            Reading::Memory(records, at) => {
                let record = records.get(*at)?.clone();
                *at += 1;
                Some(Ok(record))
            }
            Reading::File(records) => records.next(),
        }
    }
}

/// A sequence of records that is written in its order already.
#[derive(Debug)]
pub struct RecordWriter(Writing);

#[derive(Debug)]
enum Writing {
    Memory(Vec<Record>),
    File(Appended),
}

impl RecordWriter {
    /// A writer into a file without a name in `folder`, or into memory.
    ///
    /// # Errors
    /// The file cannot be made.
    pub fn new(folder: Option<&std::path::Path>) -> io::Result<Self> {
        Ok(Self(match folder {
            Some(folder) => Writing::File(Appended::new(unnamed(folder)?)),
            None => Writing::Memory(Vec::new()),
        }))
    }

    /// Appends a record.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn push(&mut self, record: Record) -> io::Result<()> {
        match &mut self.0 {
            Writing::Memory(records) => records.push(record),
            Writing::File(file) => file.push(&record)?,
        }
        Ok(())
    }

    /// The records as they came.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn finish(self) -> io::Result<SortedRecords> {
        match self.0 {
            Writing::Memory(records) => Ok(SortedRecords(Kept::Memory(records.into()))),
            Writing::File(file) => file.sorted(),
        }
    }
}

/// Records in a file, one behind the other.
#[derive(Debug)]
struct Appended {
    file: File,
    written: u64,
    buffer: Vec<u8>,
}

impl Appended {
    fn new(file: File) -> Self {
        Self { file, written: 0, buffer: Vec::new() }
    }

    fn push(&mut self, record: &Record) -> io::Result<()> {
        let length = |bytes: &[u8]| u32::try_from(bytes.len()).map_err(|_| io::ErrorKind::InvalidInput);
        self.buffer.extend_from_slice(&length(&record.key)?.to_le_bytes());
        self.buffer.extend_from_slice(&length(&record.value)?.to_le_bytes());
        self.buffer.extend_from_slice(&record.key);
        self.buffer.extend_from_slice(&record.value);
        if self.buffer.len() >= BLOCK_BYTES { self.flush() } else { Ok(()) }
    }

    fn end(&self) -> u64 {
        self.written + self.buffer.len() as u64
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.write_all_at(&self.buffer, self.written)?;
        self.written += self.buffer.len() as u64;
        self.buffer.clear();
        Ok(())
    }

    fn finish(mut self) -> io::Result<(Arc<File>, u64)> {
        self.flush()?;
        Ok((Arc::new(self.file), self.written))
    }

    fn sorted(self) -> io::Result<SortedRecords> {
        let (file, end) = self.finish()?;
        Ok(SortedRecords(Kept::File(file, end)))
    }
}

/// Reads records of a part of a file.
#[derive(Debug)]
struct FileRecords {
    file: Arc<File>,
    unread: Range<u64>,
    block: usize,
    buffer: Vec<u8>,
    taken: usize,
}

impl FileRecords {
    fn new(file: Arc<File>, unread: Range<u64>, block: usize) -> Self {
        Self { file, unread, block, buffer: Vec::new(), taken: 0 }
    }

    /// Has at least this number of bytes in the buffer, or all that are left.
    fn fill(&mut self, wanted: usize) -> io::Result<()> {
        let held = self.buffer.len() - self.taken;
        if held >= wanted || self.unread.is_empty() {
            return Ok(());
        }
        self.buffer.drain(..self.taken);
        self.taken = 0;
        let left = self.unread.end - self.unread.start;
        let more = usize::try_from(left).unwrap_or(usize::MAX).min((wanted - held).max(self.block));
        self.buffer.resize(held + more, 0);
        self.file.read_exact_at(&mut self.buffer[held..], self.unread.start)?;
        self.unread.start += more as u64;
        Ok(())
    }

    fn read(&mut self) -> io::Result<Option<Record>> {
        self.fill(HEAD_BYTES)?;
        let Some((lengths, _)) = self.buffer[self.taken..].split_first_chunk::<HEAD_BYTES>() else { return Ok(None) };
        let [a, b, c, d, e, f, g, h] = *lengths;
        let (key, value) = (u32::from_le_bytes([a, b, c, d]) as usize, u32::from_le_bytes([e, f, g, h]) as usize);
        self.fill(HEAD_BYTES + key + value)?;
        let body = self.buffer.get(self.taken + HEAD_BYTES..).unwrap_or_default();
        let body = body.get(..key + value).ok_or(io::ErrorKind::UnexpectedEof)?;
        let record = Record { key: body[..key].to_vec(), value: body[key..].to_vec() };
        self.taken += HEAD_BYTES + key + value;
        Ok(Some(record))
    }
}

impl Iterator for FileRecords {
    type Item = io::Result<Record>;

    fn next(&mut self) -> Option<Self::Item> {
        let next = self.read();
        if next.is_err() {
            self.unread = 0..0;
            self.buffer.clear();
            self.taken = 0;
        }
        next.transpose()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(key: u32, value: usize) -> Record {
        Record { key: key.to_string().into_bytes(), value: value.to_string().repeat(value % 90).into_bytes() }
    }

    #[test]
    fn records_are_sorted_and_equal_keys_keep_their_order() {
        let dir = tempfile::tempdir().expect("a folder");
        // Without a folder, with one run, with many runs, and with records larger than the memory.
        for (folder, memory) in [(None, 0), (Some(1), 1 << 20), (Some(1), 9000), (Some(1), 1)] {
            let folder = folder.map(|_| dir.path().to_owned());
            let mut sorter = RecordSorter::new(folder.clone(), memory);
            let mut expected = Vec::new();
            for number in 0..2000_usize {
                let record = record((number as u32).wrapping_mul(2_654_435_761) % 300, number);
                expected.push(record.clone());
                sorter.push(record).expect("pushed");
            }
            expected.sort_by(|a, b| a.key.cmp(&b.key));
            let sorted = sorter.finish().expect("finished");
            for _ in 0..2 {
                let read: Vec<Record> = sorted.iter().collect::<io::Result<_>>().expect("read");
                assert!(read == expected, "memory {memory}");
            }
            let mut writer = RecordWriter::new(folder.as_deref()).expect("made");
            expected.iter().for_each(|record| writer.push(record.clone()).expect("pushed"));
            let again = writer.finish().expect("finished");
            assert!(again.iter().map(|record| record.expect("read")).eq(expected));
        }
        assert_eq!(RecordSorter::new(None, 0).finish().expect("finished").iter().count(), 0);
    }
}
