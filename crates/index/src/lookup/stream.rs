//! Looking up a stream of sorted keys: a merge of the stream with the runs.

use super::{LookupCost, TableReader};
use crate::cursor::Cursor;
use crate::error::IndexError;
use crate::executor::Executor;

/// Bytes of a key of a batch beside itself and its value: the lookup's own data for it.
const KEY_OVERHEAD: usize = 64;
/// Keys of a batch at most: enough to hide the pause between batches.
const BATCH_MAX: usize = 1 << 16;

/// Looks up sorted keys in batches. Blocks on the runtime.
#[derive(Debug)]
pub struct SortedLookup {
    reader: TableReader,
    runtime: Executor,
    batch: usize,
    /// The cost so far.
    pub cost: LookupCost,
}

impl SortedLookup {
    /// Lookups with at most `budget` bytes for keys and results, beside the reader's own memory by
    /// its options.
    pub fn new(reader: TableReader, runtime: impl Into<Executor>, budget: usize) -> Self {
        let runtime = runtime.into();
        let batch = (budget / (KEY_OVERHEAD + 64)).clamp(1, BATCH_MAX);
        Self { reader, runtime, batch, cost: LookupCost::default() }
    }

    /// Looks up every key of `queries`, and calls `each` in order with the query's key and value,
    /// and the table's value for that key.
    pub fn join(
        &mut self,
        queries: &mut impl Cursor,
        mut each: impl FnMut(&[u8], Option<&[u8]>, Option<&[u8]>) -> Result<(), IndexError>,
    ) -> Result<(), IndexError> {
        let mut batch = Batch::default();
        let mut found = Found::default();
        loop {
            batch.clear();
            let mut is_last = false;
            while batch.keys.len() < self.batch {
                if !queries.advance()? {
                    is_last = true;
                    break;
                }
                batch.push(queries.key(), queries.value());
            }
            let keys: Vec<&[u8]> = batch.keys().collect();
            found.clear(keys.len());
            let cost = self.runtime.block_on(self.reader.lookup(&keys, |place, value| found.put(place, value)))?;
            self.cost.add(cost);
            for (place, key) in keys.iter().enumerate() {
                each(key, batch.value(place), found.get(place))?;
            }
            if is_last {
                return Ok(());
            }
        }
    }
}

impl LookupCost {
    fn add(&mut self, other: Self) {
        self.tails += other.tails;
        self.spans += other.spans;
        self.span_bytes += other.span_bytes;
        self.blocks += other.blocks;
    }
}

/// Queries that are looked up together.
#[derive(Debug, Default)]
struct Batch {
    bytes: Vec<u8>,
    /// Where each key begins and ends, and where its value ends; `None` without one.
    keys: Vec<(usize, usize, Option<usize>)>,
}

impl Batch {
    fn clear(&mut self) {
        self.bytes.clear();
        self.keys.clear();
    }

    fn push(&mut self, key: &[u8], value: Option<&[u8]>) {
        let from = self.bytes.len();
        self.bytes.extend_from_slice(key);
        let end = self.bytes.len();
        let value_end = value.map(|value| {
            self.bytes.extend_from_slice(value);
            self.bytes.len()
        });
        self.keys.push((from, end, value_end));
    }

    fn keys(&self) -> impl Iterator<Item = &[u8]> {
        self.keys.iter().map(|(from, end, _)| &self.bytes[*from..*end])
    }

    fn value(&self, place: usize) -> Option<&[u8]> {
        let (_, end, value_end) = self.keys[place];
        value_end.map(|value_end| &self.bytes[end..value_end])
    }
}

/// The results of a batch.
#[derive(Debug, Default)]
struct Found {
    bytes: Vec<u8>,
    values: Vec<Option<(usize, usize)>>,
}

impl Found {
    fn clear(&mut self, count: usize) {
        self.bytes.clear();
        self.values.clear();
        self.values.resize(count, None);
    }

    fn put(&mut self, place: usize, value: &[u8]) {
        let from = self.bytes.len();
        self.bytes.extend_from_slice(value);
        self.values[place] = Some((from, self.bytes.len()));
    }

    fn get(&self, place: usize) -> Option<&[u8]> {
        self.values[place].map(|(from, to)| &self.bytes[from..to])
    }
}
