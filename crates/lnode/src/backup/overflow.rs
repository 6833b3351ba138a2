//! What the job has stored itself and memory has no room for: groups of records in a temporary file.
//!
//! Only `larder_dedup::OlderChunks` comes here. The file is made when the first group comes, and has no name. When it cannot be had,
//! written or read, the job goes on and stores some chunks twice. What lies there is what containers' tables say: fingerprints, which are
//! keyed and tell nothing without the key, and places.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::Arc;

use larder_dedup::{Group, KeepGroups, LoadGroup, NoteGroups, OWN_GROUP};
use larder_format::Fingerprint;
use larder_format::container::ChunkRef;
use larder_format::ids::{ContainerId, ContainerKind, JobId};
use larder_format::segment::ChunkRecord;
use larder_job::scratch;
use larder_store::RepositoryError;

/// Fingerprint, container's number, offset, size.
const ROW: usize = 32 + 3 * 4;
const GROUP_BYTES: usize = OWN_GROUP * ROW;

/// See the module header.
#[derive(Debug)]
pub(super) struct Overflow {
    /// `None`: nothing is kept, or nothing more.
    folder: Option<PathBuf>,
    job: JobId,
    file: Option<File>,
    groups: u32,
}

impl Overflow {
    /// For data chunks of `job`; the file will be in `folder`.
    pub(super) fn new(folder: Option<PathBuf>, job: JobId) -> Self {
        Self { folder, job, file: None, groups: 0 }
    }

    fn write(&mut self, group: &[ChunkRecord]) -> io::Result<()> {
        let Some(folder) = &self.folder else { return Ok(()) };
        let file = match &mut self.file {
            Some(file) => file,
            none => none.insert(scratch::unnamed(folder)?),
        };
        let mut bytes = Vec::with_capacity(GROUP_BYTES);
        for ChunkRecord { chunk, .. } in group {
            bytes.extend_from_slice(&chunk.fingerprint.0);
            for field in [chunk.container.seq, chunk.offset, chunk.size] {
                bytes.extend_from_slice(&field.to_le_bytes());
            }
        }
        bytes.resize(GROUP_BYTES, 0);
        file.write_all_at(&bytes, u64::from(self.groups) * GROUP_BYTES as u64)
    }

    fn read(&self, group: u32) -> io::Result<Vec<ChunkRecord>> {
        let Some(file) = &self.file else { return Ok(Vec::new()) };
        let mut bytes = vec![0; GROUP_BYTES];
        file.read_exact_at(&mut bytes, u64::from(group) * GROUP_BYTES as u64)?;
        let row = |row: &[u8]| {
            let (fingerprint, fields) = row.split_first_chunk::<32>()?;
            let mut fields = fields.as_chunks::<4>().0.iter().map(|field| u32::from_le_bytes(*field));
            let (seq, offset, size) = (fields.next()?, fields.next()?, fields.next()?);
            let container = ContainerId { kind: ContainerKind::Data, job: self.job, seq };
            let chunk = ChunkRef { fingerprint: Fingerprint(*fingerprint), container, offset, size };
            // No chunk is empty: what is behind the last of a short group.
            (size > 0).then_some(ChunkRecord { chunk, born: self.job })
        };
        Ok(bytes.chunks_exact(ROW).map_while(row).collect())
    }

    fn fail(&mut self, error: &io::Error) {
        tracing::warn!(%error, folder = ?self.folder, "the temporary file for chunks stored before fails; some will be stored twice");
        (self.folder, self.file) = (None, None);
    }
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

    /// Nothing: groups are noted as they come.
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
