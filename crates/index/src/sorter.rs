//! Sorting records that come in any order, within a memory budget.
//!
//! Records are collected in memory. When that is full, they are sorted and spilled to a temporary
//! file. Files of a level are merged when there are enough of them, and in the end the few that are
//! left. Of several records with one key the last one pushed holds. A spill is a run of the index
//! like any other (`larder_format::run`), sealed under a name that the repository never uses. So
//! data on disk is as secret as in the store.

use std::fs::File;
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use larder_format::EncodeError;
use larder_format::ids::{JobId, RunId};
use larder_format::index_manifest::Table;
use larder_format::run::{BLOCK_TARGET, RecordLayout, RunBuilder, RunIndex, RunKey, VALUE_MAX, ValueWidth, prefix};
use larder_format::seal::RANDOM_LEN;
use larder_store::Repository;
use larder_store::repository::random;

use crate::cursor::{BlockCursor, BlockPart, BlockSource, Cursor};
use crate::error::IndexError;
use crate::merge::{Merge, Tombstones};

/// Spills that are merged at once at most: each takes a block of memory and an open file.
const SPILLS_MAX: usize = 64;
/// The same with the least memory.
const SPILLS_LEAST: usize = 8;
/// Bytes of a spill that is read: a block, sealed and open.
const READ_BYTES: usize = 2 * BLOCK_TARGET;
/// Of the memory for records, one part in this number is for such blocks, beside it.
const READ_ONE_IN: usize = 2;
/// Bytes that a place in the order takes.
const PLACE_BYTES: usize = size_of::<(u64, u32)>();
/// Bytes in front of a value: its length, or that it is a tombstone.
const LEN_BYTES: usize = 4;
const TOMBSTONE: u32 = u32::MAX;
/// Bytes that are reserved at once, however large the budget: more may not be there.
const RESERVE_MAX: usize = 1 << 30;
/// Bytes of a spill that are written at once.
const WRITE_BYTES: usize = 1 << 20;

/// Collects records. See the module header.
#[derive(Debug)]
pub struct Sorter {
    /// Seals spills: they are of use to this process alone.
    secret: [u8; RANDOM_LEN],
    layout: RecordLayout,
    folder: PathBuf,
    /// Names the spills, so that none has the key of another.
    job: JobId,
    next: u32,
    buffer: Buffer,
    /// Oldest first.
    spills: Vec<Spill>,
}

impl Sorter {
    /// A sorter that takes about `budget` bytes of memory and puts its temporary files, which have
    /// no name, into `folder`.
    pub fn new(
        repository: &Repository,
        layout: RecordLayout,
        budget: usize,
        folder: &Path,
    ) -> Result<Self, IndexError> {
        Ok(Self {
            secret: random(repository.entropy())?,
            layout,
            folder: folder.to_owned(),
            job: JobId(random(repository.entropy())?),
            next: 0,
            buffer: Buffer::new(layout, budget),
            spills: Vec::new(),
        })
    }

    /// Adds a record; `None` is a tombstone. Widths are the layout's.
    pub fn push(&mut self, key: &[u8], value: Option<&[u8]>) -> Result<(), IndexError> {
        let fits = match (value, self.layout.value) {
            (Some(value), ValueWidth::Fixed(width)) => value.len() == usize::from(width),
            (Some(value), ValueWidth::Variable) => value.len() <= VALUE_MAX,
            (None, _) => true,
        };
        if !fits || key.len() != usize::from(self.layout.key_len) {
            return Err(EncodeError { what: "record", why: "its key or value has another width than the table" }.into());
        }
        if !self.buffer.has_room(key, value) {
            self.spill()?;
        }
        self.buffer.push(key, value);
        Ok(())
    }

    fn spill(&mut self) -> Result<(), IndexError> {
        if self.buffer.places.is_empty() {
            return Ok(());
        }
        let (budget, layout) = (self.buffer.budget, self.layout);
        let mut sorted = std::mem::replace(&mut self.buffer, Buffer::new(layout, 0)).sorted();
        let spill = self.write(&mut sorted)?;
        self.spills.push(spill);
        self.buffer = sorted.buffer;
        self.buffer.clear(budget);
        let most = spills_most(budget);
        while let Some(first) = self.spills.len().checked_sub(most)
            && self.spills[first..].iter().all(|spill| spill.level == self.spills[first].level)
        {
            self.merge_spills(first)?;
        }
        Ok(())
    }

    /// Makes one spill of those from this one on.
    fn merge_spills(&mut self, first: usize) -> Result<(), IndexError> {
        let level = self.spills[first..].iter().map(|spill| spill.level).max().unwrap_or(0) + 1;
        let sources = self.spills.split_off(first).into_iter().rev().map(BlockCursor::new).collect();
        let merged = self.write(&mut Merge::new(sources, Tombstones::Keep))?;
        self.spills.push(Spill { level, ..merged });
        Ok(())
    }

    fn write(&mut self, records: &mut impl Cursor) -> Result<Spill, IndexError> {
        let failed = |doing| move |source| IndexError::Spill { doing, source };
        let mut file = larder_spill::unnamed_in(&self.folder).map_err(failed("make"))?;
        let id = RunId { job: self.job, seq: self.next };
        self.next = self.next.checked_add(1).ok_or(IndexError::TooManyRuns { job: self.job })?;
        // Which table it is said to be of does not matter.
        let key = RunKey::of_process(self.secret, id);
        let mut builder = RunBuilder::new(key.clone(), self.secret, Table::Chunks, self.layout, false)?;
        let mut pending = 0;
        while records.advance()? {
            builder.push(records.key(), records.value())?;
            pending += records.key().len() + records.value().map_or(0, <[u8]>::len);
            if pending >= WRITE_BYTES {
                file.write_all(&builder.take()).map_err(failed("write"))?;
                pending = 0;
            }
        }
        let finished = builder.finish()?;
        file.write_all(&finished.bytes).map_err(failed("write"))?;
        let mut tail = vec![0; finished.run.tail_bytes as usize];
        let from = finished.run.object_bytes - u64::from(finished.run.tail_bytes);
        file.read_exact_at(&mut tail, from).map_err(failed("read"))?;
        let index = RunIndex::decode(&key, &tail, finished.run.object_bytes)
            .map_err(|source| IndexError::SpillDamaged { source })?;
        Ok(Spill { file, index, level: 0, next: 0, sealed: Vec::new() })
    }

    /// All records, sorted. Tombstones are among them.
    pub fn finish(mut self) -> Result<Sorted, IndexError> {
        let most = spills_most(self.buffer.budget);
        while self.spills.len() > most {
            // The newest are the smallest.
            self.merge_spills(self.spills.len() - most.min(self.spills.len() + 1 - most))?;
        }
        let in_memory = SortedSource::Memory(self.buffer.sorted());
        let spills = std::mem::take(&mut self.spills).into_iter().rev();
        let sources =
            std::iter::once(in_memory).chain(spills.map(|spill| SortedSource::Spill(BlockCursor::new(spill))));
        Ok(Sorted(Merge::new(sources.collect(), Tombstones::Keep)))
    }
}

/// Spills that are merged at once within this memory for records.
fn spills_most(budget: usize) -> usize {
    (budget / READ_ONE_IN / READ_BYTES).clamp(SPILLS_LEAST, SPILLS_MAX)
}

/// Sorted records.
pub struct Sorted(Merge<SortedSource>);

impl Sorted {
    /// The number of files that are read at once, and of parts in memory. Each file takes a block.
    pub fn sources(&self) -> usize {
        self.0.sources()
    }

    /// The same records from the first on.
    pub fn rewound(self) -> Self {
        let sources = self.0.into_sources().into_iter().map(SortedSource::rewound).collect();
        Self(Merge::new(sources, Tombstones::Keep))
    }

    /// Begins with the first record again.
    pub fn rewind(&mut self) {
        let merge = std::mem::replace(&mut self.0, Merge::new(Vec::new(), Tombstones::Keep));
        *self = Self(merge).rewound();
    }
}

impl std::fmt::Debug for Sorted {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Sorted").finish_non_exhaustive()
    }
}

impl Cursor for Sorted {
    fn advance(&mut self) -> Result<bool, IndexError> {
        self.0.advance()
    }

    fn key(&self) -> &[u8] {
        self.0.key()
    }

    fn value(&self) -> Option<&[u8]> {
        self.0.value()
    }
}

enum SortedSource {
    Memory(SortedBuffer),
    Spill(BlockCursor<Spill>),
}

impl SortedSource {
    fn rewound(self) -> Self {
        match self {
            Self::Memory(sorted) => Self::Memory(SortedBuffer { next: 0, at: 0, ..sorted }),
            Self::Spill(cursor) => Self::Spill(BlockCursor::new(Spill { next: 0, ..cursor.into_source() })),
        }
    }

    fn cursor(&self) -> &dyn Cursor {
        match self {
            Self::Memory(cursor) => cursor,
            Self::Spill(cursor) => cursor,
        }
    }
}

impl Cursor for SortedSource {
    fn advance(&mut self) -> Result<bool, IndexError> {
        match self {
            Self::Memory(cursor) => cursor.advance(),
            Self::Spill(cursor) => cursor.advance(),
        }
    }

    fn key(&self) -> &[u8] {
        self.cursor().key()
    }

    fn value(&self) -> Option<&[u8]> {
        self.cursor().value()
    }
}

/// Records as they came: key, length or tombstone, value.
#[derive(Debug)]
struct Buffer {
    layout: RecordLayout,
    budget: usize,
    records: Vec<u8>,
    /// Prefix of the key, and where in `records` the record begins.
    places: Vec<(u64, u32)>,
}

impl Buffer {
    fn new(layout: RecordLayout, budget: usize) -> Self {
        // The unfilled part is not touched, and so takes no memory. Growing step by step would take
        // twice as much.
        let value = if let ValueWidth::Fixed(width) = layout.value { usize::from(width) } else { 64 };
        let record = usize::from(layout.key_len) + LEN_BYTES + value;
        let count = budget.min(RESERVE_MAX) / (record + PLACE_BYTES);
        let (records, places) = (Vec::with_capacity(count * record), Vec::with_capacity(count));
        Self { layout, budget, records, places }
    }

    fn clear(&mut self, budget: usize) {
        self.budget = budget;
        self.records.clear();
        self.places.clear();
    }

    fn has_room(&self, key: &[u8], value: Option<&[u8]>) -> bool {
        let len = self.records.len() + key.len() + LEN_BYTES + value.map_or(0, <[u8]>::len);
        let full = len + (self.places.len() + 1) * PLACE_BYTES > self.budget;
        // One record is always admitted, however long.
        self.places.is_empty() || (!full && len < u32::MAX as usize)
    }

    fn push(&mut self, key: &[u8], value: Option<&[u8]>) {
        self.places.push((prefix(key), self.records.len() as u32));
        self.records.extend_from_slice(key);
        self.records.extend_from_slice(&value.map_or(TOMBSTONE, |value| value.len() as u32).to_le_bytes());
        self.records.extend_from_slice(value.unwrap_or_default());
    }

    fn key(&self, place: u32) -> &[u8] {
        &self.records[place as usize..place as usize + usize::from(self.layout.key_len)]
    }

    fn value(&self, place: u32) -> Option<&[u8]> {
        let at = place as usize + usize::from(self.layout.key_len);
        let (len, rest) = self.records[at..].split_first_chunk::<LEN_BYTES>().expect("a record was pushed whole");
        match u32::from_le_bytes(*len) {
            TOMBSTONE => None,
            len => Some(&rest[..len as usize]),
        }
    }

    fn sorted(mut self) -> SortedBuffer {
        let mut places = std::mem::take(&mut self.places);
        places.sort_unstable_by(|a, b| {
            a.0.cmp(&b.0).then_with(|| self.key(a.1).cmp(self.key(b.1))).then_with(|| a.1.cmp(&b.1))
        });
        self.places = places;
        SortedBuffer { buffer: self, next: 0, at: 0 }
    }
}

struct SortedBuffer {
    buffer: Buffer,
    /// The place behind the current one.
    next: usize,
    at: u32,
}

impl Cursor for SortedBuffer {
    fn advance(&mut self) -> Result<bool, IndexError> {
        let places = &self.buffer.places;
        let Some(mut current) = places.get(self.next).copied() else { return Ok(false) };
        self.next += 1;
        // Of equal keys the one pushed last.
        while let Some(other) = places.get(self.next).copied()
            && other.0 == current.0
            && self.buffer.key(other.1) == self.buffer.key(current.1)
        {
            current = other;
            self.next += 1;
        }
        self.at = current.1;
        Ok(true)
    }

    fn key(&self) -> &[u8] {
        self.buffer.key(self.at)
    }

    fn value(&self) -> Option<&[u8]> {
        self.buffer.value(self.at)
    }
}

/// Records that were sorted and written to a temporary file.
#[derive(Debug)]
struct Spill {
    file: File,
    index: RunIndex,
    /// How often its records were merged.
    level: u32,
    next: usize,
    sealed: Vec<u8>,
}

impl BlockSource for Spill {
    fn next_block(&mut self, buffer: Vec<u8>) -> Result<Option<BlockPart>, IndexError> {
        if self.next == self.index.blocks() {
            return Ok(None);
        }
        let range = self.index.bytes_of(self.next..self.next + 1);
        self.sealed.resize((range.end - range.start) as usize, 0);
        let failed = |source| IndexError::Spill { doing: "read", source };
        self.file.read_exact_at(&mut self.sealed, range.start).map_err(failed)?;
        let opened = self.index.open_block(self.next, &self.sealed, buffer);
        let block = opened.map_err(|source| IndexError::SpillDamaged { source })?;
        self.next += 1;
        let to = block.count();
        Ok(Some(BlockPart { block, from: 0, to }))
    }
}
