//! Reads restored items back, and compares them with the recipe and with live files.
//!
//! A recipe names every chunk by its keyed fingerprint, so the content of a restored file is
//! verified without fetching it a second time.

use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::FileExt;
use std::path::Path;

use larder_chunking::Fingerprinter;
use larder_format::entry::{Entry, EntryKind};
use larder_job::JobContext;
use larder_reader::RecordCursor;
use larder_source::target::{Difference, NoteKind, Target, Verification};
use larder_store::RepositoryError;

use crate::error::DrillError;
use crate::live::{Live, Outcome};
use crate::report::{Finding, FindingKind, SnapshotReport};

/// Bytes verified at once: enough for the parallel fingerprinter.
const BATCH_BYTES: u64 = 1 << 20;

/// See the module header.
pub(crate) struct Comparison<'a> {
    target: &'a Target,
    cursor: RecordCursor,
    fingerprinter: Fingerprinter,
    /// Where live files are; `None`: they are not compared.
    live: Option<&'a Path>,
}

impl<'a> Comparison<'a> {
    pub(crate) fn new(context: &JobContext, target: &'a Target, cursor: RecordCursor, live: Option<&'a Path>) -> Self {
        let fingerprinter = Fingerprinter::new(context.repository.keys().fingerprint());
        Self { target, cursor, fingerprinter, live }
    }

    /// Compares one restored item.
    pub(crate) fn item(
        &mut self,
        entry: &Entry,
        data_offset: u64,
        report: &mut SnapshotReport,
    ) -> Result<(), DrillError> {
        let mut verification = self.target.verify(entry).map_err(larder_lnode::RestoreError::from)?;
        let differs = match verification.content.is_some() {
            true => self.content(entry, data_offset, &mut verification)?,
            false => None,
        };
        let mut texts: Vec<String> = Vec::new();
        for difference in &verification.differences {
            match difference {
                // Only a user without rights, or a file system without attributes, loses these.
                lost if self.was_noted(lost, entry) => report.without_metadata += 1,
                // The comparison reads the file as what it should be, so this is its own word.
                _ => texts.push(difference.to_string()),
            }
        }
        texts.extend(differs.map(|offset| format!("has other content near byte {offset}")));
        if !texts.is_empty() {
            let (path, detail) = (entry.path.clone(), texts.join(", "));
            report.add(Finding { path, kind: FindingKind::Differs, detail, hashes: None });
            return Ok(());
        }
        if let (Some(root), EntryKind::File { .. }, Some(file)) = (self.live, &entry.kind, &verification.content) {
            // Read from the beginning.
            let content = |live: Live| live.compare(entry, &mut FromStart { file, at: 0 });
            match Live::open(root, entry).map(content) {
                Ok(outcome) => note_live(entry, outcome.map_err(|source| unreadable(&entry.path, &source))?, report),
                Err(outcome) => note_live(entry, outcome, report),
            }
        }
        Ok(())
    }

    /// Whether the restore has noted that it could not set this part of some item.
    fn was_noted(&self, lost: &Difference, entry: &Entry) -> bool {
        let kinds: &[NoteKind] = match lost {
            Difference::Mode { .. } => &[NoteKind::Mode, NoteKind::SetId, NoteKind::Acl],
            Difference::Xattr { .. } => &[NoteKind::Xattr, NoteKind::Acl, NoteKind::Capability, NoteKind::ExtraXattr],
            Difference::HardLink => &[NoteKind::HardLink],
            // Devices and FIFOs need rights that a drill may not have.
            Difference::Missing if is_node(entry) => &[NoteKind::Node],
            _ => &[],
        };
        kinds.iter().any(|kind| self.target.notes().count(*kind) > 0)
    }

    /// Compares the content with the recipe. Gives the place of a difference in the stored bytes.
    fn content(
        &mut self,
        entry: &Entry,
        data_offset: u64,
        verification: &mut Verification,
    ) -> Result<Option<u64>, DrillError> {
        let Some(file) = &verification.content else { return Ok(None) };
        let file = file.try_clone().map_err(|error| unreadable(&entry.path, &error))?;
        let mut expected = ByRecipe {
            file: &file,
            runs: runs(entry),
            left: entry.stored_bytes(),
            cursor: &mut self.cursor,
            fingerprinter: &self.fingerprinter,
            begin: data_offset,
            at: 0,
            buffer: Vec::new(),
            taken: 0,
            differs: None,
            failed: None,
        };
        // It compares the stored bytes with themselves, and the holes with zeros.
        let compared = verification.compare_content(entry, &mut expected);
        match (expected.failed, expected.differs) {
            (Some(error), _) => Err(DrillError::Repository(error)),
            (None, Some(offset)) => Ok(Some(offset)),
            (None, None) => match compared {
                Ok(()) => Ok(None),
                Err(error) => Err(unreadable(&entry.path, &error)),
            },
        }
    }
}

fn is_node(entry: &Entry) -> bool {
    matches!(entry.kind, EntryKind::Fifo | EntryKind::CharDevice { .. } | EntryKind::BlockDevice { .. })
}

/// Adds the result of a comparison with a live file.
pub(crate) fn note_live(entry: &Entry, outcome: Outcome, report: &mut SnapshotReport) {
    let finding = |kind, detail: String, hashes| Finding { path: entry.path.clone(), kind, detail, hashes };
    match outcome {
        Outcome::NotComparable => report.not_comparable += 1,
        Outcome::Equal => report.compared += 1,
        Outcome::Unreadable(why) => {
            report.add(finding(FindingKind::SourceUnreadable, format!("the live file cannot be read: {why}"), None));
        }
        Outcome::Differs { source, backup, same_ctime } => {
            report.compared += 1;
            let (kind, detail) = match same_ctime {
                true => (
                    FindingKind::SourceDiffers,
                    "the live file has the size and all times of the snapshot, and other content",
                ),
                false => (
                    FindingKind::SourceChanged,
                    "the live file was changed after the backup, and has the size and time of before",
                ),
            };
            report.add(finding(kind, detail.to_owned(), Some((source, backup))));
        }
    }
}

fn unreadable(path: &[u8], source: &io::Error) -> DrillError {
    DrillError::ScratchFile { path: path.to_vec(), reason: source.to_string() }
}

/// A file from its first byte on, whatever its position is.
struct FromStart<'a> {
    file: &'a File,
    at: u64,
}

impl Read for FromStart<'_> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        let count = self.file.read_at(out, self.at)?;
        self.at += count as u64;
        Ok(count)
    }
}

/// The runs of stored bytes of a file, the first last.
fn runs(entry: &Entry) -> Vec<(u64, u64)> {
    let mut runs = match &entry.kind {
        EntryKind::File { size, extents: None } => vec![(0, *size)],
        EntryKind::File { extents: Some(extents), .. } => {
            extents.iter().map(|extent| (extent.offset, extent.length)).collect()
        }
        _ => Vec::new(),
    };
    runs.reverse();
    runs
}

/// The stored bytes of a restored file, as far as their fingerprints are those of the recipe.
struct ByRecipe<'a> {
    file: &'a File,
    runs: Vec<(u64, u64)>,
    /// Stored bytes that were not read.
    left: u64,
    cursor: &'a mut RecordCursor,
    fingerprinter: &'a Fingerprinter,
    /// The beginning of the file in the data stream.
    begin: u64,
    /// Stored bytes before the buffer's end.
    at: u64,
    buffer: Vec<u8>,
    taken: usize,
    /// The first chunk with other bytes.
    differs: Option<u64>,
    failed: Option<RepositoryError>,
}

impl ByRecipe<'_> {
    /// Reads and verifies the next chunks.
    fn fill(&mut self) -> Result<(), RepositoryError> {
        if self.at == 0 {
            self.cursor.seek(self.begin)?;
        }
        let (mut lengths, mut wanted, mut total) = (Vec::new(), Vec::new(), 0);
        while total < BATCH_BYTES.min(self.left) {
            let Some(record) = self.cursor.next_record()? else { break };
            total += u64::from(record.chunk.size);
            lengths.push(record.chunk.size);
            wanted.push(record.chunk.fingerprint);
        }
        let from = self.at;
        self.buffer.resize(usize::try_from(total).unwrap_or(usize::MAX), 0);
        self.taken = 0;
        // A recipe that goes on behind the file is a difference, too.
        if total == 0 || total > self.left || self.read_runs(total).is_err() {
            self.differs = Some(from);
            return Ok(());
        }
        (self.at, self.left) = (from + total, self.left - total);
        let mut found = Vec::new();
        self.fingerprinter.many(&self.buffer, &lengths, &mut found);
        let mut offset = from;
        for ((wanted, found), length) in wanted.iter().zip(&found).zip(&lengths) {
            if wanted != found {
                self.differs = Some(offset);
                break;
            }
            offset += u64::from(*length);
        }
        Ok(())
    }

    fn read_runs(&mut self, total: u64) -> io::Result<()> {
        let mut at = 0;
        while at < total {
            let Some((offset, length)) = self.runs.last_mut() else { return Err(io::ErrorKind::UnexpectedEof.into()) };
            let part = (*length).min(total - at);
            self.file.read_exact_at(&mut self.buffer[at as usize..(at + part) as usize], *offset)?;
            (*offset, *length, at) = (*offset + part, *length - part, at + part);
            if *length == 0 {
                self.runs.pop();
            }
        }
        Ok(())
    }
}

impl Read for ByRecipe<'_> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        if self.taken == self.buffer.len() && self.left > 0 {
            if let Err(error) = self.fill() {
                self.failed = Some(error);
            }
            if self.failed.is_some() || self.differs.is_some() {
                return Err(io::ErrorKind::InvalidData.into());
            }
        }
        let count = out.len().min(self.buffer.len() - self.taken);
        out[..count].copy_from_slice(&self.buffer[self.taken..self.taken + count]);
        self.taken += count;
        Ok(count)
    }
}
