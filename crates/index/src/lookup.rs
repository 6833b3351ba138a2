//! Looking up keys: many at once, sorted, in one pass over the needed parts of the runs.
//!
//! The runs are asked newest first, and older ones are not asked for keys that a newer one has
//! decided. Of every object, filter and fences are read once and kept while there is room. The
//! filter leaves few absent keys, and the fences tell which blocks the others are in. Those blocks
//! are fetched in spans, ahead of need. So a few keys cost a few requests, and a stream of sorted
//! keys becomes a merge with the runs ([`SortedLookup`]).

mod cache;
mod fetch;
mod stream;

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use larder_format::index_manifest::{RunRef, Table};
use larder_format::run::{key_hash, prefix};
use larder_store::Repository;

pub use fetch::LookupOptions;
pub use stream::SortedLookup;

use crate::error::IndexError;
use crate::executor::Executor;
use crate::io::OpenedRun;
use cache::OpenedRuns;
use fetch::{Fetches, Wanted};

/// Looks up keys in one table of one index. Cheap to clone; clones share the cache.
#[derive(Debug, Clone)]
pub struct TableReader {
    repository: Repository,
    /// Newest age first, each by range.
    ages: Arc<Vec<Vec<RunRef>>>,
    opened: Arc<OpenedRuns>,
    options: LookupOptions,
    /// Has requests done beside; else the runtime that polls a lookup does.
    runtime: Option<Executor>,
}

/// The cost of lookups.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct LookupCost {
    /// Requests for the tails of objects.
    pub tails: u64,
    /// Requests for spans of blocks.
    pub spans: u64,
    /// Bytes of those spans.
    pub span_bytes: u64,
    /// Blocks that were opened.
    pub blocks: u64,
}

impl TableReader {
    /// Reads these runs of one table.
    pub fn new(repository: Repository, runs: &[RunRef], options: LookupOptions) -> Self {
        let mut runs = runs.to_vec();
        runs.sort_unstable_by_key(|run| (std::cmp::Reverse(run.age), run.first));
        let ages = runs.chunk_by(|a, b| a.age == b.age).map(<[_]>::to_vec).collect();
        Self {
            repository,
            ages: Arc::new(ages),
            opened: Arc::new(OpenedRuns::new(options.cache_bytes)),
            options,
            runtime: None,
        }
    }

    /// The same, with requests done beside by this runtime.
    pub(crate) fn on(self, runtime: &Executor) -> Self {
        Self { runtime: Some(runtime.clone()), ..self }
    }

    /// Reads one table of a snapshot.
    pub fn of(repository: Repository, index: &crate::IndexSnapshot, table: Table, options: LookupOptions) -> Self {
        Self::new(repository, index.runs_of(table), options)
    }

    /// Looks up keys, which must not fall. Calls `found` with the place in `keys` and the value of
    /// each that is there, in no particular order of places.
    ///
    /// The work between requests is done where this future is polled: some 10 ns a key and 30 µs a
    /// block.
    pub async fn lookup<K: AsRef<[u8]> + Sync>(
        &self,
        keys: &[K],
        mut found: impl FnMut(usize, &[u8]) + Send,
    ) -> Result<LookupCost, IndexError> {
        let mut cost = LookupCost::default();
        let mut open: Vec<Pending> = Vec::with_capacity(keys.len());
        for (place, key) in keys.iter().enumerate() {
            debug_assert!(place == 0 || keys[place - 1].as_ref() <= key.as_ref(), "keys are sorted");
            open.push(Pending { prefix: prefix(key.as_ref()), hash: key_hash(key.as_ref()), place, is_settled: false });
        }
        for runs in self.ages.iter() {
            self.lookup_age(runs, keys, &mut open, &mut found, &mut cost).await?;
            open.retain(|pending| !pending.is_settled);
            if open.is_empty() {
                break;
            }
        }
        Ok(cost)
    }

    async fn lookup_age<K: AsRef<[u8]> + Sync>(
        &self,
        runs: &[RunRef],
        keys: &[K],
        open: &mut [Pending],
        found: &mut (impl FnMut(usize, &[u8]) + Send),
        cost: &mut LookupCost,
    ) -> Result<(), IndexError> {
        let mut objects = Vec::new();
        for run in runs {
            let from = open.partition_point(|pending| pending.prefix < run.first);
            let to = open.partition_point(|pending| pending.prefix <= run.last);
            if from < to {
                objects.push((*run, from..to));
            }
        }
        let choose = |index: &OpenedRun, pending: Range<usize>| {
            let mut wanted: Vec<Wanted> = Vec::new();
            let mut block = 0;
            for at in pending {
                let Pending { hash, place, .. } = open[at];
                if index.filter.as_ref().is_some_and(|filter| !filter.admits(hash)) {
                    continue;
                }
                match index.index.block_from(block, keys[place].as_ref()) {
                    Some(number) => block = number,
                    None => continue,
                }
                match wanted.last_mut() {
                    Some(last) if last.block == block => last.pending.push(at),
                    _ => wanted.push(Wanted { block, pending: vec![at] }),
                }
            }
            wanted
        };
        let mut settled: Vec<usize> = Vec::new();
        let mut fetches = Fetches::new(self, objects);
        let mut buffer = Vec::new();
        while let Some(span) = fetches.next(&choose, cost).await? {
            for wanted in &span.wanted {
                let block = span.open(wanted.block, buffer)?;
                cost.blocks += 1;
                let mut at = 0;
                for pending in &wanted.pending {
                    let place = open[*pending].place;
                    let key = keys[place].as_ref();
                    at = block.seek(at, key);
                    if at < block.count() && block.key(at) == key {
                        if let Some(value) = block.value(at) {
                            found(place, value);
                        }
                        settled.push(*pending);
                    }
                }
                buffer = block.into_buffer();
            }
        }
        for at in settled {
            open[at].is_settled = true;
        }
        Ok(())
    }

    /// All records whose keys have one of these prefixes (of 8 bytes), which must not fall: by key.
    /// Meant for few.
    pub async fn with_prefixes(&self, wanted: &[u64]) -> Result<Vec<(Vec<u8>, Vec<u8>)>, IndexError> {
        debug_assert!(wanted.is_sorted(), "prefixes are sorted");
        let mut records = BTreeMap::new();
        let mut cost = LookupCost::default();
        let choose = |run: &OpenedRun, pending: Range<usize>| {
            let mut chosen: Vec<Wanted> = Vec::new();
            for at in pending {
                for block in run.index.blocks_within(wanted[at], wanted[at]) {
                    match chosen.last_mut() {
                        Some(last) if last.block == block => last.pending.push(at),
                        _ => chosen.push(Wanted { block, pending: vec![at] }),
                    }
                }
            }
            chosen
        };
        for runs in self.ages.iter() {
            let within = |run: &RunRef| {
                let from = wanted.partition_point(|prefix| *prefix < run.first);
                (*run, from..wanted.partition_point(|prefix| *prefix <= run.last))
            };
            let objects = runs.iter().map(within).filter(|(_, pending)| !pending.is_empty()).collect();
            let mut fetches = Fetches::new(self, objects);
            while let Some(span) = fetches.next(&choose, &mut cost).await? {
                for chosen in &span.wanted {
                    let block = span.open(chosen.block, Vec::new())?;
                    for wanted in chosen.pending.iter().map(|at| wanted[*at]) {
                        let key_len = block.key(0).len();
                        let mut at = block.seek(0, &wanted.to_be_bytes()[..key_len.min(8)]);
                        while at < block.count() && prefix(block.key(at)) == wanted {
                            // Newer ages came first.
                            let value = || block.value(at).map(<[u8]>::to_vec);
                            records.entry(block.key(at).to_vec()).or_insert_with(value);
                            at += 1;
                        }
                    }
                }
            }
        }
        Ok(records.into_iter().filter_map(|(key, value)| Some((key, value?))).collect())
    }
}

/// A key that no newer age has decided.
#[derive(Debug, Clone, Copy)]
struct Pending {
    prefix: u64,
    hash: u64,
    place: usize,
    is_settled: bool,
}
