//! The present places of chunks, by fingerprint: exact, and in bounded memory.
//!
//! A version that is rewritten as a whole has many chunks, and each is copied once, also when it is
//! repeated. So entries without room in memory go to a temporary file without a name: rows, and
//! sorted samples that refer to them (`SpillingIndex`). They are behind a bloom filter, so new
//! chunks cost no read. Without a file, or if one fails, earlier entries are forgotten when memory
//! is full. Chunks repeated after that are copied twice.

use std::collections::HashMap;
use std::io;
use std::path::PathBuf;

use larder_dedup::{Asked, Bloom, NoteGroups, SpillingIndex, sample};
use larder_format::ids::{ContainerId, ContainerKind, JobId};
use larder_format::{ChunkRef, Fingerprint};
use larder_spill::{Row, RowFile, RowReader, RowWriter};

/// Bytes of an entry of the table in memory, with the free part of tables.
const ENTRY: usize = size_of::<(Fingerprint, ChunkRef)>() + 1;
/// The least number of entries in memory.
const NEWEST_MIN: usize = 32;

/// See the module header.
#[derive(Debug)]
pub struct CopiedChunks {
    newest: HashMap<Fingerprint, ChunkRef>,
    newest_max: usize,
    bloom: Bloom,
    older: Option<Older>,
}

/// The entries without room in memory.
#[derive(Debug)]
struct Older {
    folder: PathBuf,
    index: SpillingIndex,
    rows: Option<RowFile<CopiedChunk>>,
}

impl CopiedChunks {
    /// Takes about `budget` bytes of memory; files are in `folder`, if there is one.
    pub fn new(budget: usize, folder: Option<PathBuf>) -> Self {
        // A table has a power of two of entries, an eighth of them free, and it grows into a second
        // one.
        let slots = (budget / 2 / ENTRY).max(NEWEST_MIN);
        let newest_max = (1 << slots.ilog2()) / 8 * 7;
        let older = folder.map(|folder| {
            let files = folder.clone();
            let new_file = Box::new(move || larder_spill::unnamed(&files));
            let index = SpillingIndex::new(budget / 4, new_file, Asked::Meanwhile);
            Older { folder, index, rows: None }
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

    /// The place of a chunk, if known.
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
            none => none.insert(RowFile::new(larder_spill::unnamed(&self.folder)?)),
        };
        let first = u32::try_from(rows.rows()).map_err(|_| io::ErrorKind::StorageFull)?;
        let index = &mut self.index;
        rows.append(chunks.zip(first..).map(|(chunk, row)| {
            index.note(sample(&chunk.fingerprint), row);
            CopiedChunk(*chunk)
        }))
    }

    fn get(&mut self, fingerprint: &Fingerprint) -> io::Result<Option<ChunkRef>> {
        let (Some(rows), Some(row)) = (&self.rows, self.index.get(sample(fingerprint))) else { return Ok(None) };
        let CopiedChunk(chunk) = rows.get(u64::from(row))?;
        Ok(Some(chunk).filter(|chunk| chunk.fingerprint == *fingerprint))
    }
}

/// A chunk of data and its place.
#[derive(Debug, Clone, Copy)]
struct CopiedChunk(ChunkRef);

impl Row for CopiedChunk {
    const BYTES: usize = 32 + 16 + 3 * 4;

    fn encode(&self, row: &mut RowWriter<'_>) {
        let ChunkRef { fingerprint, container, offset, size } = &self.0;
        row.bytes(&fingerprint.0);
        row.bytes(&container.job.0);
        [container.seq, *offset, *size].into_iter().for_each(|field| row.u32(field));
    }

    fn decode(row: &mut RowReader<'_>) -> Self {
        let (fingerprint, job) = (Fingerprint(row.bytes()), JobId(row.bytes()));
        let container = ContainerId { kind: ContainerKind::Data, job, seq: row.u32() };
        Self(ChunkRef { fingerprint, container, offset: row.u32(), size: row.u32() })
    }
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

    /// Many times the entries of memory, requested in any order while more are added.
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

    /// Without a file, or with a failing one, answers are right and memory is bounded.
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
