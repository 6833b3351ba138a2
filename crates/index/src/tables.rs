//! The tables with their types: the meaning of keys and values, and views that read, change and
//! join them.
//!
//! | table          | key                            | value                                             |
//! |----------------|--------------------------------|---------------------------------------------------|
//! | [`Chunks`]     | [`ChunkKey`]                   | [`ChunkPlace`]: place of the copy that counts     |
//! | [`Containers`] | container number               | [`ContainerFacts`]                                |
//! | [`ContainerExtents`] | container                | [`Extents`]: where its bytes are now              |
//! | [`Streams`]    | [`StreamKey`]: sample, series  | version number: the newest with that sample       |
//! | [`Copies`]     | [`CopyKey`]: chunk, container  | number in the container, of another copy          |

use std::fmt::Debug;
use std::marker::PhantomData;
use std::num::NonZeroUsize;
use std::ops::RangeInclusive;
use std::path::Path;

use larder_format::extents::{self, Extents};
use larder_format::ids::ContainerId;
use larder_format::index_manifest::{RunRef, Table};
use larder_format::index_tables::{ChunkKey, ChunkPlace, ContainerFacts, CopyKey, StreamKey};
use larder_format::run::prefix;
use larder_format::{DecodeError, EncodeError};

use crate::cursor::Cursor;
use crate::error::IndexError;
use crate::executor::IndexIo;
use crate::layout::layout_of;
use crate::lookup::{LookupCost, LookupOptions, SortedLookup, TableReader};
use crate::merge::{Merge, Tombstones};
use crate::partition::partitions;
use crate::scan::{Readahead, RunScan};
use crate::sorter::{Sorted, Sorter};
use crate::writer::{OBJECT_TARGET, PassRuns, RunWriter};

/// The keys and values of a table.
pub trait TypedTable: Debug {
    /// Which table.
    const TABLE: Table;
    /// Its keys; they sort as their bytes do.
    type Key: Copy + Ord + Debug + Send + Sync;
    /// Its values.
    type Value: Clone + Debug + Send;
    /// The bytes of a key.
    type KeyBytes: AsRef<[u8]> + Ord + Send + Sync;

    /// The bytes of a key.
    fn encode_key(key: &Self::Key) -> Self::KeyBytes;
    /// Reads a key.
    fn decode_key(bytes: &[u8]) -> Result<Self::Key, DecodeError>;
    /// Appends the bytes of a value.
    fn encode_value(value: &Self::Value, out: &mut Vec<u8>) -> Result<(), EncodeError>;
    /// Reads a value.
    fn decode_value(bytes: &[u8]) -> Result<Self::Value, DecodeError>;
}

fn array<const N: usize>(bytes: &[u8], what: &'static str) -> Result<[u8; N], DecodeError> {
    bytes.try_into().map_err(|_| DecodeError::Invalid { what, why: "it has another width" })
}

/// The place of every chunk of the repository: one entry a chunk, of the copy that counts.
#[derive(Debug)]
pub enum Chunks {}

impl TypedTable for Chunks {
    const TABLE: Table = Table::Chunks;
    type Key = ChunkKey;
    type Value = ChunkPlace;
    type KeyBytes = [u8; 20];

    fn encode_key(key: &ChunkKey) -> [u8; 20] {
        key.0
    }

    fn decode_key(bytes: &[u8]) -> Result<ChunkKey, DecodeError> {
        array(bytes, "key of a chunk in the index").map(ChunkKey)
    }

    fn encode_value(value: &ChunkPlace, out: &mut Vec<u8>) -> Result<(), EncodeError> {
        out.extend_from_slice(&value.encode());
        Ok(())
    }

    fn decode_value(bytes: &[u8]) -> Result<ChunkPlace, DecodeError> {
        ChunkPlace::decode(bytes)
    }
}

/// The record of every container.
#[derive(Debug)]
pub enum Containers {}

impl TypedTable for Containers {
    const TABLE: Table = Table::Containers;
    type Key = u32;
    type Value = ContainerFacts;
    type KeyBytes = [u8; 4];

    fn encode_key(key: &u32) -> [u8; 4] {
        key.to_be_bytes()
    }

    fn decode_key(bytes: &[u8]) -> Result<u32, DecodeError> {
        array(bytes, "number of a container in the index").map(u32::from_be_bytes)
    }

    fn encode_value(value: &ContainerFacts, out: &mut Vec<u8>) -> Result<(), EncodeError> {
        value.encode(out)
    }

    fn decode_value(bytes: &[u8]) -> Result<ContainerFacts, DecodeError> {
        ContainerFacts::decode(bytes)
    }
}

/// Where bytes of containers of the layout `lifecycle` are now.
#[derive(Debug)]
pub enum ContainerExtents {}

impl TypedTable for ContainerExtents {
    const TABLE: Table = Table::Extents;
    type Key = ContainerId;
    type Value = Extents;
    type KeyBytes = [u8; 21];

    fn encode_key(key: &ContainerId) -> [u8; 21] {
        extents::encode_key(key)
    }

    fn decode_key(bytes: &[u8]) -> Result<ContainerId, DecodeError> {
        extents::decode_key(bytes)
    }

    fn encode_value(value: &Extents, out: &mut Vec<u8>) -> Result<(), EncodeError> {
        value.encode(out)
    }

    fn decode_value(bytes: &[u8]) -> Result<Extents, DecodeError> {
        Extents::decode(bytes)
    }
}

/// In which versions samples were seen.
#[derive(Debug)]
pub enum Streams {}

impl TypedTable for Streams {
    const TABLE: Table = Table::Streams;
    type Key = StreamKey;
    type Value = u32;
    type KeyBytes = [u8; 24];

    fn encode_key(key: &StreamKey) -> [u8; 24] {
        key.encode()
    }

    fn decode_key(bytes: &[u8]) -> Result<StreamKey, DecodeError> {
        StreamKey::decode(bytes)
    }

    fn encode_value(value: &u32, out: &mut Vec<u8>) -> Result<(), EncodeError> {
        out.extend_from_slice(&value.to_le_bytes());
        Ok(())
    }

    fn decode_value(bytes: &[u8]) -> Result<u32, DecodeError> {
        array(bytes, "version number in the index").map(u32::from_le_bytes)
    }
}

/// Copies of chunks beside those in [`Chunks`] that were not retired.
#[derive(Debug)]
pub enum Copies {}

impl TypedTable for Copies {
    const TABLE: Table = Table::Copies;
    type Key = CopyKey;
    type Value = u32;
    type KeyBytes = [u8; 24];

    fn encode_key(key: &CopyKey) -> [u8; 24] {
        key.encode()
    }

    fn decode_key(bytes: &[u8]) -> Result<CopyKey, DecodeError> {
        CopyKey::decode(bytes)
    }

    fn encode_value(value: &u32, out: &mut Vec<u8>) -> Result<(), EncodeError> {
        out.extend_from_slice(&value.to_le_bytes());
        Ok(())
    }

    fn decode_value(bytes: &[u8]) -> Result<u32, DecodeError> {
        array(bytes, "number of a copy in the index").map(u32::from_le_bytes)
    }
}

fn wrong_record<T: TypedTable>(key: &[u8]) -> impl FnOnce(DecodeError) -> IndexError {
    let key = key.to_vec();
    move |source| IndexError::WrongRecord { table: T::TABLE, key, source }
}

/// Records with their types. A [`Cursor`] is the same for bytes.
#[derive(Debug)]
pub struct Records<T, C> {
    cursor: C,
    table: PhantomData<fn() -> T>,
}

impl<T: TypedTable, C: Cursor> Records<T, C> {
    /// The records of a cursor over this table.
    pub fn new(cursor: C) -> Self {
        Self { cursor, table: PhantomData }
    }

    /// The cursor below.
    pub fn into_cursor(self) -> C {
        self.cursor
    }
}

/// Keys rise. A value of `None` is a removal.
impl<T: TypedTable, C: Cursor> Iterator for Records<T, C> {
    type Item = Result<(T::Key, Option<T::Value>), IndexError>;

    fn next(&mut self) -> Option<Self::Item> {
        match self.cursor.advance() {
            Ok(true) => {}
            Ok(false) => return None,
            Err(error) => return Some(Err(error)),
        }
        let key = self.cursor.key();
        let value = self.cursor.value().map(T::decode_value).transpose();
        let record = value.and_then(|value| Ok((T::decode_key(key)?, value)));
        Some(record.map_err(wrong_record::<T>(key)))
    }
}

/// Changes of a table, collected in any order; of several to one key, the last counts.
#[derive(Debug)]
pub struct Changes<T> {
    sorter: Sorter,
    value: Vec<u8>,
    count: u64,
    table: PhantomData<fn() -> T>,
}

impl<T: TypedTable> Changes<T> {
    /// Collects with about `memory` bytes; the rest goes to temporary files in `folder`.
    pub fn new(io: &IndexIo, memory: usize, folder: &Path) -> Result<Self, IndexError> {
        let sorter = Sorter::new(&io.repository, layout_of(T::TABLE), memory, folder)?;
        Ok(Self { sorter, value: Vec::new(), count: 0, table: PhantomData })
    }

    /// Sets a record.
    pub fn put(&mut self, key: &T::Key, value: &T::Value) -> Result<(), IndexError> {
        self.value.clear();
        T::encode_value(value, &mut self.value)?;
        self.count += 1;
        self.sorter.push(T::encode_key(key).as_ref(), Some(&self.value))
    }

    /// Removes a record.
    pub fn remove(&mut self, key: &T::Key) -> Result<(), IndexError> {
        self.count += 1;
        self.sorter.push(T::encode_key(key).as_ref(), None)
    }

    /// Changes so far.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// All changes in order of their keys.
    pub fn sorted(self) -> Result<Records<T, Sorted>, IndexError> {
        Ok(Records::new(self.sorter.finish()?))
    }

    /// Writes them as a run of this age; none when there are none. A pass uses a
    /// [`Draft`](crate::Draft), which keeps the ages.
    pub fn write(self, io: &IndexIo, ids: &PassRuns, age: u64) -> Result<Vec<RunRef>, IndexError> {
        let mut writer = RunWriter::new(io, ids, T::TABLE, age, OBJECT_TARGET);
        writer.push_all(&mut self.sorter.finish()?)?;
        writer.finish()
    }
}

/// Changes of a table, collected by partition, so that the partitions can be worked on in parallel.
#[derive(Debug)]
pub struct PartitionedChanges<T> {
    parts: Vec<(RangeInclusive<u64>, Changes<T>)>,
}

impl<T: TypedTable> PartitionedChanges<T> {
    /// Collects into these ranges of prefixes, which are as [`TableView::partitions`] gives them:
    /// rising, and covering everything. `memory` is for all of them.
    pub fn new(
        io: &IndexIo,
        memory: usize,
        folder: &Path,
        ranges: Vec<RangeInclusive<u64>>,
    ) -> Result<Self, IndexError> {
        let memory = memory / ranges.len().max(1);
        let begin = |range| Ok((range, Changes::new(io, memory, folder)?));
        Ok(Self { parts: ranges.into_iter().map(begin).collect::<Result<_, IndexError>>()? })
    }

    fn part(&mut self, key: &T::Key) -> Option<&mut Changes<T>> {
        let prefix = prefix(T::encode_key(key).as_ref());
        let part = self.parts.partition_point(|(range, _)| *range.end() < prefix);
        self.parts.get_mut(part).map(|(_, changes)| changes)
    }

    /// Sets a record.
    pub fn put(&mut self, key: &T::Key, value: &T::Value) -> Result<(), IndexError> {
        self.part(key).ok_or(IndexError::NoPartition { table: T::TABLE })?.put(key, value)
    }

    /// Removes a record.
    pub fn remove(&mut self, key: &T::Key) -> Result<(), IndexError> {
        self.part(key).ok_or(IndexError::NoPartition { table: T::TABLE })?.remove(key)
    }

    /// The partitions, each with its changes.
    pub fn into_parts(self) -> Vec<(RangeInclusive<u64>, Changes<T>)> {
        self.parts
    }
}

/// A table as a list of runs makes it.
#[derive(Debug)]
pub struct TableView<T> {
    io: IndexIo,
    runs: Vec<RunRef>,
    reader: TableReader,
    table: PhantomData<fn() -> T>,
}

impl<T: TypedTable> TableView<T> {
    /// The table that these runs make; those of other tables are passed over.
    pub fn new(io: IndexIo, runs: &[RunRef], options: LookupOptions) -> Self {
        let runs: Vec<RunRef> = runs.iter().filter(|run| run.table == T::TABLE).copied().collect();
        let reader = TableReader::new(io.repository.clone(), &runs, options).on(&io.executor);
        Self { io, runs, reader, table: PhantomData }
    }

    /// Its runs.
    pub fn runs(&self) -> &[RunRef] {
        &self.runs
    }

    /// Records in all runs together, without tombstones: at least as many as there are keys.
    pub fn records_at_most(&self) -> u64 {
        self.runs.iter().map(|run| run.records - run.tombstones).sum()
    }

    /// Ranges of prefixes that can be worked on apart.
    pub fn partitions(&self, count: NonZeroUsize) -> Vec<RangeInclusive<u64>> {
        partitions(&self.runs, count)
    }

    /// All records whose keys have prefixes in `range`, in order, with about `memory` bytes. Blocks
    /// on the runtime.
    pub fn scan(&self, range: RangeInclusive<u64>, memory: usize) -> Records<T, Merge<RunScan>> {
        Records::new(merged(&self.io, &self.runs, range, memory, Tombstones::Drop))
    }

    /// Looks up keys in any order; the values are in that order.
    pub async fn get(&self, keys: &[T::Key]) -> Result<Vec<Option<T::Value>>, IndexError> {
        let mut order: Vec<(T::KeyBytes, usize)> =
            keys.iter().enumerate().map(|(place, key)| (T::encode_key(key), place)).collect();
        order.sort_unstable();
        let sorted: Vec<&[u8]> = order.iter().map(|(key, _)| key.as_ref()).collect();
        let mut values = Vec::new();
        values.resize_with(keys.len(), || None);
        let mut wrong = None;
        let put = |place: usize, value: &[u8]| match T::decode_value(value) {
            Ok(value) => values[order[place].1] = Some(value),
            Err(error) => wrong = Some((place, error)),
        };
        self.reader.lookup(&sorted, put).await?;
        match wrong {
            None => Ok(values),
            Some((place, error)) => Err(wrong_record::<T>(sorted[place])(error)),
        }
    }

    /// Looks up every key of a cursor, whose keys are of this table, and calls `each` with the key,
    /// the cursor's value, and the table's. `memory` bytes are for the batches. Blocks on the
    /// runtime.
    pub fn join(
        &self,
        queries: &mut impl Cursor,
        memory: usize,
        mut each: impl FnMut(T::Key, Option<&[u8]>, Option<T::Value>) -> Result<(), IndexError>,
    ) -> Result<LookupCost, IndexError> {
        let mut lookup = SortedLookup::new(self.reader.clone(), self.io.executor.clone(), memory);
        lookup.join(queries, |key, query, found| {
            let value = found.map(T::decode_value).transpose().map_err(wrong_record::<T>(key))?;
            each(T::decode_key(key).map_err(wrong_record::<T>(key))?, query, value)
        })?;
        Ok(lookup.cost)
    }

    /// The reader below, for lookups of bytes.
    pub fn reader(&self) -> &TableReader {
        &self.reader
    }
}

impl TableView<Streams> {
    /// In which versions samples were seen, by sample and series: the newest of each series.
    pub async fn streams_of(&self, samples: &[u64]) -> Result<Vec<(StreamKey, u32)>, IndexError> {
        let mut samples = samples.to_vec();
        samples.sort_unstable();
        samples.dedup();
        let records = self.reader.with_prefixes(&samples).await?;
        let read = |(key, value): (Vec<u8>, Vec<u8>)| {
            let version = Streams::decode_value(&value).map_err(wrong_record::<Streams>(&key))?;
            Ok((Streams::decode_key(&key).map_err(wrong_record::<Streams>(&key))?, version))
        };
        records.into_iter().map(read).collect()
    }
}

/// A merge of runs of one table, of any ages; the newest wins.
pub fn merged(
    io: &IndexIo,
    runs: &[RunRef],
    range: RangeInclusive<u64>,
    memory: usize,
    tombstones: Tombstones,
) -> Merge<RunScan> {
    let mut runs = runs.to_vec();
    runs.sort_unstable_by_key(|run| (std::cmp::Reverse(run.age), run.first));
    let ages: Vec<&[RunRef]> = runs.chunk_by(|a, b| a.age == b.age).collect();
    let readahead = Readahead::within(memory, ages.len());
    Merge::new(ages.into_iter().map(|runs| RunScan::new(io, runs, range.clone(), readahead)).collect(), tombstones)
}
