//! The members of an archive as the input of a backup.

use larder_format::entry::EntryKind;
use larder_format::ids::JobId;
use larder_format::manifest::SourceKind;
use larder_job::{Activity, Problem};
use larder_lnode::{EntrySource, SourceError, Supplied, SuppliedEntry};
use larder_spill::{RecordIter, SortedRecords};

use super::contents::Contents;
use super::rows::Row;

/// See the module header.
#[derive(Debug)]
pub(super) struct ArchiveEntries {
    rows: SortedRecords,
    problems: SortedRecords,
    contents: Contents,
    base: Option<JobId>,
    records: std::iter::Chain<RecordIter, RecordIter>,
    warnings: std::vec::IntoIter<String>,
    path: Vec<u8>,
    /// Where the rest of the last entry's contents is.
    at: u64,
    left: u64,
}

impl ArchiveEntries {
    pub(super) fn new(
        rows: SortedRecords,
        problems: SortedRecords,
        contents: Contents,
        base: Option<JobId>,
        warnings: Vec<String>,
    ) -> Self {
        let records = rows.iter().chain(problems.iter());
        let warnings = warnings.into_iter();
        Self { rows, problems, contents, base, records, warnings, path: Vec::new(), at: 0, left: 0 }
    }

    fn failed(&self, source: std::io::Error) -> SourceError {
        SourceError::Input { path: self.path.clone(), source }
    }
}

impl EntrySource for ArchiveEntries {
    fn kind(&self) -> SourceKind {
        SourceKind::Tree
    }

    fn base(&self) -> Option<JobId> {
        self.base
    }

    fn again(&self) -> Box<dyn EntrySource> {
        Box::new(Self::new(self.rows.clone(), self.problems.clone(), self.contents.clone(), None, Vec::new()))
    }

    fn next_entry(&mut self) -> Result<Option<Supplied>, SourceError> {
        if let Some(message) = self.warnings.next() {
            return Ok(Some(Supplied::Problem(Problem { path: Vec::new(), during: Activity::Read, message })));
        }
        let Some(record) = self.records.next() else {
            self.contents.expect_unchanged().map_err(|error| self.failed(error))?;
            return Ok(None);
        };
        let record = record.map_err(|error| self.failed(error))?;
        match Row::of(&record) {
            Some(Row::Entry(entry, offset)) => {
                let entry = *entry;
                debug_assert!(entry.stored_bytes() == 0 || matches!(entry.kind, EntryKind::File { .. }));
                (self.at, self.left) = (offset, entry.stored_bytes());
                self.path.clone_from(&entry.path);
                Ok(Some(Supplied::Entry(SuppliedEntry { entry, known: Vec::new() })))
            }
            Some(Row::Problem(path, message)) => {
                Ok(Some(Supplied::Problem(Problem { path, during: Activity::Read, message })))
            }
            None => Err(self.failed(std::io::ErrorKind::InvalidData.into())),
        }
    }

    fn read(&mut self, buffer: &mut [u8]) -> Result<usize, SourceError> {
        let wanted = buffer.len().min(usize::try_from(self.left).unwrap_or(usize::MAX));
        let got = self.contents.read(&mut buffer[..wanted], self.at).map_err(|error| self.failed(error))?;
        self.pass(got as u64);
        Ok(got)
    }

    fn pass(&mut self, bytes: u64) {
        let bytes = bytes.min(self.left);
        self.at += bytes;
        self.left -= bytes;
    }
}
