//! Ingests chunks: adds the places of the chunks of new containers to the index.
//!
//! The pass knows which versions and containers exist, and the lifespans of containers
//! (`known_versions`, `lifespans`). Here the tables of chunks [`follow`] the table of containers. A
//! pass calls this before it publishes, and all of it changes only its [`Draft`]. Its parts are
//! [`ingest`], [`ingest_streams`], and [`sweep`] when enough chunks are gone.
//!
//! Invariants
//! * Every copy of a chunk in a container that the index has is listed once. It is in the table of
//!   chunks, which has one of each chunk, among the copies, or a hole. Containers that could not be
//!   read are reported and not listed.
//! * An entry for a container without a record, or for a retired one, means nothing: numbers are
//!   never used again. So forgetting costs nothing here. [`sweep`] drops such entries, and replaces
//!   an entry that lost its container by a copy.
//! * No chunk's entry moves here as long as its container has a record: to move one is to abandon a
//!   copy (`reclaim`).
//!
//! Memory is bounded by the pass's, beside 1 bit for each container number. Everything blocks on
//! the pass's runtime. Cost: a read for each new container (its tables), and a merge of its chunks
//! with the table. The merge reads only the parts that the filters cannot rule out.

pub(crate) mod listing;
mod sweep;

use std::collections::HashMap;

use larder_format::ids::{ContainerId, SeriesKey};
use larder_format::index_manifest::ContainerList;
use larder_format::layout::Layout;
use larder_format::sketch::Sketch;
use larder_index::{Containers, Draft, IndexError, IndexPass, LookupOptions, Streams};
use larder_store::RepositoryError;

pub use listing::ingest;
pub use sweep::{Swept, is_worth_a_sweep, merge_tables, sweep};

use larder_format::index_tables::{ContainerState, StreamKey};

/// The numbers of containers that have a record and were not retired.
#[derive(Debug, Clone, Default)]
pub struct Numbers {
    bits: Vec<u64>,
}

impl Numbers {
    /// Whether a number is among them.
    pub fn contains(&self, number: u32) -> bool {
        self.bits.get(number as usize / 64).is_some_and(|word| word >> (number % 64) & 1 == 1)
    }

    /// Adds a number.
    pub fn insert(&mut self, number: u32) {
        let word = number as usize / 64;
        if word >= self.bits.len() {
            self.bits.resize(word + 1, 0);
        }
        self.bits[word] |= 1 << (number % 64);
    }

    /// How many there are.
    pub fn len(&self) -> u64 {
        self.bits.iter().map(|word| u64::from(word.count_ones())).sum()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl FromIterator<u32> for Numbers {
    fn from_iter<I: IntoIterator<Item = u32>>(numbers: I) -> Self {
        let mut all = Self::default();
        numbers.into_iter().for_each(|number| all.insert(number));
        all
    }
}

/// The result of ingesting new containers.
#[derive(Debug, Default)]
pub struct Ingested {
    /// Containers whose chunks are listed now.
    pub containers: u64,
    /// Their chunks.
    pub chunks: u64,
    /// Of those, chunks that were new to the index.
    pub new_chunks: u64,
    /// Copies of chunks whose entry in the index names another copy.
    pub copies: u64,
    /// Containers that cannot be read, or are gone: damage, unless another pass is deleting them.
    pub unreadable: Vec<(ContainerId, RepositoryError)>,
    /// Containers in cold storage. They are tried again when something else is ingested.
    pub cold: Vec<ContainerId>,
}

impl Ingested {
    /// Containers whose chunks are not listed.
    fn unlisted(&self) -> impl Iterator<Item = ContainerId> {
        self.unreadable.iter().map(|(id, _)| *id).chain(self.cold.iter().copied())
    }
}

/// Samples of versions: for each series those of the newest ingested one, with its number.
pub type Sketches = HashMap<SeriesKey, (u32, Sketch)>;

/// Lets the tables of chunks follow the table of containers, as the draft has it. Chunks of
/// containers with numbers from `first_new` on are listed, also those that were unreadable before.
/// Useless entries are dropped when it is worth it. Counts in the draft's statistics.
pub fn follow(
    pass: &IndexPass,
    draft: &mut Draft<'_>,
    first_new: u32,
    sketches: &Sketches,
) -> Result<Ingested, IndexError> {
    let known = Known::read(pass, draft, first_new)?;
    let ingested = ingest(pass, draft, &known.numbers, &known.new)?;
    draft.manifest.head.unlisted = ContainerList::first_of(ingested.unlisted());
    ingest_streams(pass, draft, sketches.iter().map(|(series, (number, sketch))| (*series, *number, sketch)))?;
    let statistics = &mut draft.manifest.head.statistics;
    statistics.containers_ingested = ingested.containers;
    statistics.chunks_ingested = ingested.chunks;
    statistics.chunks += ingested.new_chunks;
    if is_worth_a_sweep(draft, known.chunks) {
        draft.manifest.head.statistics.chunks = sweep(pass, draft, &known.numbers)?.chunks;
    }
    merge_tables(draft)?;
    Ok(ingested)
}

/// A summary of the table of containers.
#[derive(Debug, Default)]
pub struct Known {
    /// The numbers of containers with a record that were not retired.
    pub numbers: Numbers,
    /// Chunks in them that were not retired.
    pub chunks: u64,
    /// Those with the highest numbers, and those that could not be read before.
    pub new: Vec<(u32, ContainerId)>,
}

impl Known {
    /// Reads the table. Numbers from `first_new` on are those of new containers.
    pub fn read(pass: &IndexPass, draft: &Draft<'_>, first_new: u32) -> Result<Self, IndexError> {
        let mut known = Self::default();
        let unlisted = draft.manifest.head.unlisted.as_ref().map_or(&[][..], ContainerList::ids);
        let containers = draft.view::<Containers>(LookupOptions::default());
        for record in containers.scan(0..=u64::MAX, pass.memory / 4) {
            let (number, Some(facts)) = record? else { continue };
            // A retired container holds nothing any more; its record only says where its chunks
            // went. Chunks of the layout `lifecycle` are not shared.
            if facts.state == ContainerState::Live && facts.layout == Layout::Standard {
                known.numbers.insert(number);
                known.chunks += u64::from(facts.chunks - facts.retired_chunks);
                if number >= first_new || unlisted.binary_search(&facts.id).is_ok() {
                    known.new.push((number, facts.id));
                }
            }
        }
        Ok(known)
    }
}

/// Notes the samples of new versions, under their numbers in the index. Of one series the highest
/// number counts.
pub fn ingest_streams<'a>(
    pass: &IndexPass,
    draft: &mut Draft<'_>,
    versions: impl IntoIterator<Item = (SeriesKey, u32, &'a Sketch)>,
) -> Result<(), IndexError> {
    let mut changes = pass.changes::<Streams>()?;
    let mut versions: Vec<_> = versions.into_iter().collect();
    versions.sort_unstable_by_key(|(_, number, _)| *number);
    for (series, number, sketch) in versions {
        for sample in sketch.samples() {
            changes.put(&StreamKey { sample: *sample, series }, &number)?;
        }
    }
    draft.apply(changes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_a_set() {
        let numbers: Numbers = [0, 63, 64, 1000, 64].into_iter().collect();
        assert_eq!(numbers.len(), 4);
        assert!([0, 63, 64, 1000].iter().all(|number| numbers.contains(*number)));
        assert!([1, 62, 65, 999, 1001, u32::MAX].iter().all(|number| !numbers.contains(*number)));
        assert!(Numbers::default().is_empty() && !numbers.is_empty());
    }
}
