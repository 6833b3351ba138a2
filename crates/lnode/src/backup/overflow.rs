//! The job's own chunks that exceed memory: groups of records in a temporary file.
//!
//! Used by `larder_dedup::OlderChunks` only. The first group creates the file, which has no name.
//! If it cannot be created, written or read, the job continues and stores some chunks twice. It
//! contains the same data as the tables of containers. These are places and fingerprints, which are
//! keyed and reveal nothing without the key.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use larder_dedup::{Group, KeepGroups, LoadGroup, NoteGroups, OWN_GROUP};
use larder_format::Fingerprint;
use larder_format::container::ChunkRef;
use larder_format::ids::{ContainerId, ContainerKind, JobId};
use larder_format::segment::ChunkRecord;
use larder_spill::{Row, RowFile, RowReader, RowWriter};
use larder_store::RepositoryError;

/// A chunk of this job. No chunk is empty: the places behind the last of a short group have size 0.
#[derive(Debug, Clone, Copy)]
struct OwnRow {
    fingerprint: Fingerprint,
    /// Its container's number.
    seq: u32,
    offset: u32,
    size: u32,
}

impl Row for OwnRow {
    const BYTES: usize = 32 + 3 * 4;

    fn encode(&self, row: &mut RowWriter<'_>) {
        row.bytes(&self.fingerprint.0);
        [self.seq, self.offset, self.size].into_iter().for_each(|field| row.u32(field));
    }

    fn decode(row: &mut RowReader<'_>) -> Self {
        Self { fingerprint: Fingerprint(row.bytes()), seq: row.u32(), offset: row.u32(), size: row.u32() }
    }
}

/// See the module header.
#[derive(Debug)]
pub(super) struct Overflow {
    /// `None`: nothing is kept, or nothing more.
    folder: Option<PathBuf>,
    job: JobId,
    /// Groups one behind the other, each with the same number of rows.
    rows: Option<RowFile<OwnRow>>,
    groups: u32,
}

impl Overflow {
    /// For data chunks of `job`; the file will be in `folder`.
    pub(super) fn new(folder: Option<PathBuf>, job: JobId) -> Self {
        Self { folder, job, rows: None, groups: 0 }
    }

    fn write(&mut self, group: &[ChunkRecord]) -> io::Result<()> {
        let Some(folder) = &self.folder else { return Ok(()) };
        let rows = match &mut self.rows {
            Some(rows) => rows,
            none => none.insert(RowFile::new(larder_spill::unnamed(folder)?)),
        };
        let row = |ChunkRecord { chunk, .. }: &ChunkRecord| OwnRow {
            fingerprint: chunk.fingerprint,
            seq: chunk.container.seq,
            offset: chunk.offset,
            size: chunk.size,
        };
        rows.write(first_row(self.groups), group.iter().map(row))
    }

    fn read(&self, group: u32) -> io::Result<Vec<ChunkRecord>> {
        let Some(rows) = &self.rows else { return Ok(Vec::new()) };
        let rows = rows.read(first_row(group)..first_row(group) + OWN_GROUP as u64)?;
        let record = |row: OwnRow| {
            let container = ContainerId { kind: ContainerKind::Data, job: self.job, seq: row.seq };
            let chunk = ChunkRef { fingerprint: row.fingerprint, container, offset: row.offset, size: row.size };
            ChunkRecord { chunk, born: self.job }
        };
        Ok(rows.into_iter().take_while(|row| row.size > 0).map(record).collect())
    }

    fn fail(&mut self, error: &io::Error) {
        tracing::warn!(%error, folder = ?self.folder, "the temporary file for chunks stored before fails; some will be stored twice");
        (self.folder, self.rows) = (None, None);
    }
}

/// The number of the first row of a group.
fn first_row(group: u32) -> u64 {
    u64::from(group) * OWN_GROUP as u64
}

impl LoadGroup for Overflow {
    type Error = RepositoryError;

    fn groups(&self) -> u32 {
        self.groups
    }

    fn load(&mut self, group: u32) -> Result<Group, RepositoryError> {
        Ok(self.read(group).map(Arc::new).unwrap_or_else(|error| {
            self.fail(&error);
            Group::default()
        }))
    }

    /// Does nothing: groups are noted as they come.
    fn fill(&mut self, _: &mut dyn NoteGroups) -> Result<(), RepositoryError> {
        Ok(())
    }
}

impl KeepGroups for Overflow {
    fn keep(&mut self, group: &[ChunkRecord]) -> Result<(), RepositoryError> {
        if let Err(error) = self.write(group) {
            self.fail(&error);
        }
        self.groups = self.groups.saturating_add(1);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn group(from: u32, job: JobId) -> Vec<ChunkRecord> {
        let record = |n: u32| {
            let container = ContainerId { kind: ContainerKind::Data, job, seq: n / 7 };
            let chunk = ChunkRef { fingerprint: Fingerprint([n as u8; 32]), container, offset: n * 3, size: n + 1 };
            ChunkRecord { chunk, born: job }
        };
        (from..from + OWN_GROUP as u32).map(record).collect()
    }

    #[test]
    fn groups_come_back_as_they_were_and_leave_no_name() {
        let folder = tempfile::tempdir().expect("a folder");
        let job = JobId([3; 16]);
        let mut overflow = Overflow::new(Some(folder.path().join("scratch")), job);
        assert_eq!(overflow.groups(), 0);
        for number in 0..5 {
            overflow.keep(&group(number * 1000, job)).expect("kept");
        }
        overflow.keep(&group(9000, job)[..10]).expect("kept");
        for number in [4, 0, 2] {
            assert_eq!(*overflow.load(number).expect("loads"), group(number * 1000, job));
        }
        assert_eq!(*overflow.load(5).expect("loads"), group(9000, job)[..10]);
        assert_eq!(std::fs::read_dir(folder.path().join("scratch")).expect("made").count(), 0);
    }

    #[test]
    fn without_a_file_it_knows_nothing_and_goes_on() {
        let file = tempfile::NamedTempFile::new().expect("a file");
        let job = JobId([3; 16]);
        for folder in [Some(file.path().join("below a file")), None] {
            let mut overflow = Overflow::new(folder, job);
            overflow.keep(&group(0, job)).expect("goes on");
            assert_eq!((overflow.groups(), overflow.load(0).expect("goes on").len()), (1, 0));
        }
    }
}
