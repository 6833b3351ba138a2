//! Compares the old content of a file, chunk by chunk, with the recipe.
//!
//! A recipe names every chunk by its keyed fingerprint, so equal content is recognised from the
//! target alone: right chunks are neither fetched nor written. A repeated restore therefore reads
//! the target instead of the repository, and one changed chunk in a large file costs that chunk.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use larder_chunking::Fingerprinter;
use larder_format::entry::Entry;
use larder_format::segment::ChunkRecord;
use larder_source::target::{FileWriter, TargetError};

use super::file_task::places;

/// Bytes compared at once: enough for the parallel fingerprinter.
pub(super) const BATCH_BYTES: u64 = 1 << 20;

/// See the module header.
#[derive(Debug)]
pub(super) struct Existing {
    file: File,
    bytes: u64,
    writer: Arc<FileWriter>,
    buffer: Vec<u8>,
}

impl Existing {
    /// The old content of a begun file; `None` when there is none, or it cannot be read.
    pub(super) fn of(writer: &Arc<FileWriter>) -> Option<Self> {
        let file = writer.existing_content()?;
        Some(Self { file, bytes: writer.existing_bytes(), writer: writer.clone(), buffer: Vec::new() })
    }

    /// Finds the `records` that are in their places already; the first belongs at byte `at` of the
    /// stored bytes of `entry`. They are declared to the file's writer as kept.
    pub(super) fn keep(
        &mut self,
        fingerprinter: &Fingerprinter,
        entry: &Entry,
        at: u64,
        records: &[ChunkRecord],
    ) -> Result<Vec<bool>, TargetError> {
        let lengths: Vec<u32> = records.iter().map(|record| record.chunk.size).collect();
        let total = lengths.iter().map(|length| u64::from(*length)).sum();
        let readable = self.read(&places(entry, at, total));
        self.buffer.resize(total as usize, 0);
        let mut fingerprints = Vec::new();
        fingerprinter.many(&self.buffer, &lengths, &mut fingerprints);
        let mut kept = Vec::with_capacity(records.len());
        let mut end = 0;
        for (record, fingerprint) in records.iter().zip(&fingerprints) {
            let from = end;
            end += u64::from(record.chunk.size);
            let equal = end <= readable && record.chunk.fingerprint == *fingerprint;
            if equal {
                for (offset, length) in places(entry, at + from, end - from) {
                    self.writer.keep(offset, length)?;
                }
            }
            kept.push(equal);
        }
        Ok(kept)
    }

    /// Reads ranges of the file into the buffer, one after the other; stops where it ends or cannot
    /// be read.
    fn read(&mut self, places: &[(u64, u64)]) -> u64 {
        self.buffer.clear();
        for (offset, length) in places {
            let (from, length) = (self.buffer.len(), (*length).min(self.bytes.saturating_sub(*offset)) as usize);
            self.buffer.resize(from + length, 0);
            if self.file.read_exact_at(&mut self.buffer[from..], *offset).is_err() {
                return from as u64;
            }
        }
        self.buffer.len() as u64
    }
}
