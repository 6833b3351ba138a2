//! Where chunks are now, by fingerprint: exactly, and in bounded memory.
//!
//! A version that is written again as a whole has as many chunks as it has; each is to be copied once, wherever it comes again. So what
//! memory has no room for goes to a temporary file without a name: rows, and sorted samples that lead to them (`GrowingIndex`). Behind a
//! bloom filter, so what is new costs no read. Where no file can be had, or one fails, what was known so far is forgotten when memory is
//! full, and chunks are copied twice that come again after that.

use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;

use larder_dedup::{Bloom, GrowingIndex, NoteGroups, sample};
use larder_format::ids::{ContainerId, ContainerKind, JobId};
use larder_format::{ChunkRef, Fingerprint};
use larder_job::scratch;

/// Fingerprint, job, number of the container, offset, size.
const ROW: usize = 32 + 16 + 3 * 4;
/// Bytes of an entry of the table in memory, with what tables keep free.
const ENTRY: usize = size_of::<(Fingerprint, ChunkRef)>() + 1;
/// Entries for which there is room in any case.
const NEWEST_MIN: usize = 32;

/// See the module header.
#[derive(Debug)]
pub struct CopiedChunks {
    newest: HashMap<Fingerprint, ChunkRef>,
    newest_max: usize,
    bloom: Bloom,
    older: Option<Older>,
}

/// What memory has no room for.
#[derive(Debug)]
struct Older {
    folder: PathBuf,
    index: GrowingIndex,
    rows: Option<File>,
    count: u32,
}

impl CopiedChunks {
    /// Takes about `budget` bytes of memory; files lie in `folder`, if there is one.
    pub fn new(budget: usize, folder: Option<PathBuf>) -> Self {
        // Tables have a power of two of entries, of which an eighth stays free, and grow into a second one.
        let slots = (budget / 2 / ENTRY).max(NEWEST_MIN);
        let newest_max = (1 << slots.ilog2()) / 8 * 7;
        let older = folder.map(|folder| {
            let files = folder.clone();
            let index = GrowingIndex::new(budget / 4, Box::new(move || scratch::unnamed(&files)));
            Older { folder, index, rows: None, count: 0 }
        });
        Self { newest: HashMap::new(), newest_max, bloom: Bloom::new(budget / 8), older }
    }

    /// A chunk is there from now on.
    pub fn insert(&mut self, chunk: ChunkRef) {
        if self.newest.len() >= self.newest_max {
            self.make_room();
        }
        self.bloom.insert(sample(&chunk.fingerprint));
        self.newest.insert(chunk.fingerprint, chunk);
    }

    /// Where a chunk is, if that is known.
    pub fn get(&mut self, fingerprint: &Fingerprint) -> Option<ChunkRef> {
        if let Some(chunk) = self.newest.get(fingerprint) {
            return Some(*chunk);
        }
        if !self.bloom.may_have(sample(fingerprint)) {
            return None;
        }
        match self.older.as_mut()?.get(fingerprint) {
            Ok(found) => found,
            Err(error) => {
                self.fail(&error);
                None
            }
        }
    }

    fn make_room(&mut self) {
        let kept = self.older.as_mut().map(|older| older.keep(self.newest.values()));
        self.newest.clear();
        if let Some(Err(error)) = kept {
            self.fail(&error);
        }
    }

    fn fail(&mut self, error: &io::Error) {
        tracing::warn!(%error, "the temporary file for chunks that were copied fails; some may be copied twice");
        self.older = None;
    }
}

impl Older {
    fn keep<'a>(&mut self, chunks: impl Iterator<Item = &'a ChunkRef>) -> io::Result<()> {
        let rows = match &mut self.rows {
            Some(rows) => rows,
            none => none.insert(scratch::unnamed(&self.folder)?),
        };
        let mut bytes = Vec::new();
        for (row, chunk) in (self.count..).zip(chunks) {
            bytes.extend_from_slice(&encode(chunk));
            self.index.note(sample(&chunk.fingerprint), row);
        }
        rows.write_all_at(&bytes, u64::from(self.count) * ROW as u64)?;
        let added = u32::try_from(bytes.len() / ROW).unwrap_or(u32::MAX);
        self.count = self.count.checked_add(added).ok_or(io::ErrorKind::StorageFull)?;
        Ok(())
    }

    fn get(&mut self, fingerprint: &Fingerprint) -> io::Result<Option<ChunkRef>> {
        let (Some(rows), Some(row)) = (&self.rows, self.index.get(sample(fingerprint))) else { return Ok(None) };
        let mut bytes = [0; ROW];
        rows.read_exact_at(&mut bytes, u64::from(row) * ROW as u64)?;
        Ok(Some(decode(&bytes)).filter(|chunk| chunk.fingerprint == *fingerprint))
    }
}

fn encode(chunk: &ChunkRef) -> [u8; ROW] {
    let mut row = [0; ROW];
    row[..32].copy_from_slice(&chunk.fingerprint.0);
    row[32..48].copy_from_slice(&chunk.container.job.0);
    let fields = [chunk.container.seq, chunk.offset, chunk.size];
    for (place, field) in row[48..].as_chunks_mut::<4>().0.iter_mut().zip(fields) {
        *place = field.to_le_bytes();
    }
    row
}

fn decode(row: &[u8; ROW]) -> ChunkRef {
    let (mut fingerprint, mut job) = ([0; 32], [0; 16]);
    fingerprint.copy_from_slice(&row[..32]);
    job.copy_from_slice(&row[32..48]);
    let field = |at: usize| u32::from_le_bytes([row[at], row[at + 1], row[at + 2], row[at + 3]]);
    let container = ContainerId { kind: ContainerKind::Data, job: JobId(job), seq: field(48) };
    ChunkRef { fingerprint: Fingerprint(fingerprint), container, offset: field(52), size: field(56) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chunk(n: u32) -> ChunkRef {
        let mut fingerprint = [0; 32];
        // As uniform as real ones.
        fingerprint[..8].copy_from_slice(&u64::from(n).wrapping_mul(0x9e37_79b9_7f4a_7c15).to_le_bytes());
        fingerprint[8..12].copy_from_slice(&n.to_le_bytes());
        let container = ContainerId { kind: ContainerKind::Data, job: JobId([(n % 5) as u8; 16]), seq: n / 7 };
        ChunkRef { fingerprint: Fingerprint(fingerprint), container, offset: n * 3, size: n + 1 }
    }

    /// Many times as many as memory has room for, asked for in any order while more come.
    #[test]
    fn what_memory_has_no_room_for_is_found_all_the_same() {
        let folder = tempfile::tempdir().expect("a folder");
        let mut places = CopiedChunks::new(1 << 16, Some(folder.path().join("scratch")));
        let count = 40 * places.newest_max as u32;
        for n in 0..count {
            places.insert(chunk(n));
            let asked = n.wrapping_mul(2_654_435_761) % (n + 1);
            assert_eq!(places.get(&chunk(asked).fingerprint), Some(chunk(asked)), "{asked} of {n}");
            assert_eq!(places.get(&chunk(count + n).fingerprint), None);
            assert!(places.newest.len() <= places.newest_max);
        }
        assert_eq!(std::fs::read_dir(folder.path().join("scratch")).expect("made").count(), 0);
    }

    /// Without a file, or with one that fails, what is said is right and memory is bounded.
    #[test]
    fn without_a_file_it_forgets_and_says_nothing_wrong() {
        let file = tempfile::NamedTempFile::new().expect("a file");
        for folder in [None, Some(file.path().join("below a file"))] {
            let mut places = CopiedChunks::new(1 << 16, folder);
            let count = 10 * places.newest_max as u32;
            for n in 0..count {
                places.insert(chunk(n));
                assert_eq!(places.get(&chunk(n).fingerprint), Some(chunk(n)));
                assert!(places.get(&chunk(n / 2).fingerprint).is_none_or(|found| found == chunk(n / 2)));
                assert!(places.newest.len() <= places.newest_max);
            }
            assert_eq!(places.get(&chunk(0).fingerprint), None);
        }
    }
}
