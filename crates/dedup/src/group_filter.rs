//! Duplicates of chunks in groups: the segments of a base version, or the containers of an
//! unfinished job.
//!
//! Backups repeat themselves in order. After a duplicate, the record behind it in its group is
//! expected next. If that is wrong, the fingerprint is looked for among the chunks of the loaded
//! groups, then in the [`SampledIndex`] of all groups. A group found there is loaded. Loaded groups
//! are few and the least recently useful one goes first, so memory follows the budget and not the
//! base.

use std::ops::Range;
use std::sync::Arc;

use larder_format::Fingerprint;
use larder_format::segment::ChunkRecord;
use lru::LruCache;

use crate::chain::{Chunk, Filter, Verdict};
use crate::sampled_index::{NoteGroups, SampleMap, SampledIndex, sample};
use crate::spilling_index::SpillingIndex;

/// The records of one group, in stream order.
pub type Group = Arc<Vec<ChunkRecord>>;

/// Brings groups. Implemented by the owner of the groups.
pub trait LoadGroup {
    /// The errors of reading.
    type Error;

    /// How many groups there are; they are numbered from 0 in stream order.
    fn groups(&self) -> u32;

    /// Reads a group.
    fn load(&mut self, group: u32) -> Result<Group, Self::Error>;

    /// Fills the index with samples of all groups. Called once, at the first chunk that the loaded
    /// groups do not have.
    fn fill(&mut self, index: &mut dyn NoteGroups) -> Result<(), Self::Error>;

    /// These groups, at most [`AHEAD_MAX`], are likely to be loaded next, in this order: a loader
    /// may begin to fetch them. Some are announced twice, and after a jump of the stream some are
    /// never loaded.
    fn expect(&mut self, groups: Range<u32>) {
        let _ = groups;
    }
}

/// Groups that are announced before the stream reaches them: hides the latency of a store behind
/// the one under the cursor.
pub const AHEAD_MAX: u32 = 2;

/// Bytes of memory that a loaded record takes: itself, and its entry in the lookup table when that
/// has just grown.
const RECORD_BYTES: usize = size_of::<ChunkRecord>() + 2 * (size_of::<(u64, Position)>() + 1) + 8;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Position {
    group: u32,
    record: u32,
}

/// See [`GroupFilter::held`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Held {
    /// Records of loaded groups.
    pub records: usize,
    /// Fingerprints by which they are found.
    pub places: usize,
    /// Entries of the index of all groups.
    pub samples: usize,
}

/// Which group a chunk is in.
#[derive(Debug)]
enum Index {
    Sampled(SampledIndex),
    Exact(SpillingIndex),
}

impl Index {
    fn notes(&mut self) -> &mut dyn NoteGroups {
        match self {
            Self::Sampled(index) => index,
            Self::Exact(index) => index,
        }
    }

    fn get(&mut self, sample: u64) -> Option<u32> {
        match self {
            Self::Sampled(index) => index.get(sample),
            Self::Exact(index) => index.get(sample),
        }
    }

    fn len(&self) -> usize {
        match self {
            Self::Sampled(index) => index.len(),
            Self::Exact(index) => index.in_memory(),
        }
    }
}

/// See the module header.
#[derive(Debug)]
pub struct GroupFilter<L> {
    loader: L,
    index: Index,
    index_is_filled: bool,
    loaded: LruCache<u32, Group>,
    places: SampleMap<Position>,
    loaded_records: usize,
    records_max: usize,
    /// The group under the cursor, held here so that following it needs no look-up.
    current: Option<(u32, Group)>,
    next_record: u32,
    /// Whether the stream went from one group into the next by itself. Only then the next ones are
    /// likely to be asked for. A stream that gets its place from other sources each time is known
    /// by other means in between.
    goes_on: bool,
    /// The group whose successors were announced last.
    announced: Option<u32>,
    /// Before the first chunk nothing is followed, but the first group is what to expect.
    started: bool,
}

impl<L: LoadGroup> GroupFilter<L> {
    /// A filter that takes at most about `budget` bytes, half for the index and half for loaded
    /// groups.
    pub fn new(loader: L, budget: usize) -> Self {
        Self::with_budgets(loader, budget / 2, budget / 2)
    }

    /// A filter that takes at most about these bytes for the index and for loaded groups.
    pub fn with_budgets(loader: L, index: usize, loaded: usize) -> Self {
        Self::with_index(loader, Index::Sampled(SampledIndex::new(index)), loaded)
    }

    /// A filter that knows every chunk of all groups, at any place, by `index`; about `loaded`
    /// bytes for loaded groups.
    pub fn exact(loader: L, index: SpillingIndex, loaded: usize) -> Self {
        Self::with_index(loader, Index::Exact(index), loaded)
    }

    fn with_index(loader: L, index: Index, loaded: usize) -> Self {
        Self {
            loader,
            index,
            index_is_filled: false,
            loaded: LruCache::unbounded(),
            places: SampleMap::default(),
            loaded_records: 0,
            records_max: (loaded / RECORD_BYTES).max(1),
            current: None,
            next_record: 0,
            goes_on: false,
            announced: None,
            started: false,
        }
    }

    /// The size of its contents: records of loaded groups, and entries of the index. For tests of
    /// what memory follows.
    pub fn held(&self) -> Held {
        Held { records: self.loaded_records, places: self.places.len(), samples: self.index.len() }
    }

    /// The loader, for its other information.
    pub fn loader(&self) -> &L {
        &self.loader
    }

    /// The loader, for what else it can do.
    pub fn loader_mut(&mut self) -> &mut L {
        &mut self.loader
    }

    /// Notes the chunks of a new group for which the loader fills no index.
    pub fn note(&mut self, group: u32, records: &[ChunkRecord]) {
        self.index_is_filled = true;
        for record in records {
            self.index.notes().note(sample(&record.chunk.fingerprint), group);
        }
    }

    /// The group that the stream is following, if it is.
    pub fn current_group(&self) -> Option<u32> {
        self.current.as_ref().map(|(group, _)| *group)
    }

    /// The record of a chunk with this fingerprint and size, if it is found.
    pub fn find(&mut self, fingerprint: &Fingerprint, size: u32) -> Result<Option<ChunkRecord>, L::Error> {
        if let Some(record) = self.expected()?
            && record.chunk.fingerprint == *fingerprint
        {
            self.skip(1);
            return Ok(same_size(record, size));
        }
        let sample = sample(fingerprint);
        let mut place = self.places.get(&sample).copied();
        if place.is_none() {
            if !self.index_is_filled {
                self.index_is_filled = true;
                self.loader.fill(self.index.notes())?;
            }
            if let Some(group) = self.index.get(sample)
                && group < self.loader.groups()
            {
                let records = self.load(group)?;
                place = self.places.get(&sample).copied();
                if place.is_none() {
                    // Another group had it too, and took the place with it when it left.
                    let record = records.iter().position(|record| record.chunk.fingerprint == *fingerprint);
                    place = record.map(|record| Position { group, record: record as u32 });
                }
            }
        }
        let Some(place) = place else { return Ok(None) };
        let group = self.load(place.group)?;
        let record = group.get(place.record as usize).copied();
        // 64 bits matched; only the whole fingerprint counts.
        let Some(record) = record.filter(|record| record.chunk.fingerprint == *fingerprint) else { return Ok(None) };
        self.goes_on &= self.current_group() == Some(place.group);
        self.current = Some((place.group, group));
        self.next_record = place.record + 1;
        self.announce();
        Ok(same_size(record, size))
    }

    /// Where the stream is in the history: the group it follows, and the bytes of that group before
    /// the record expected next.
    pub fn position(&self) -> Option<(u32, u64)> {
        let (number, group) = self.current.as_ref()?;
        let before = group.get(..self.next_record as usize)?;
        Some((*number, before.iter().map(|record| u64::from(record.chunk.size)).sum()))
    }

    /// The records expected next, at most `most` and of one group; empty when nothing is expected.
    pub fn following(&mut self, most: usize) -> Result<&[ChunkRecord], L::Error> {
        if self.expected()?.is_none() {
            return Ok(&[]);
        }
        let Some((_, group)) = &self.current else { return Ok(&[]) };
        let rest = group.get(self.next_record as usize..).unwrap_or_default();
        Ok(&rest[..rest.len().min(most)])
    }

    /// Moves the cursor over `count` of the records that [`GroupFilter::following`] gave.
    pub fn skip(&mut self, count: usize) {
        self.next_record += count as u32;
        self.announce();
    }

    /// Moves the cursor: the next chunk is expected to be the `record`-th of `group`.
    pub fn expect(&mut self, group: u32, record: u32) -> Result<(), L::Error> {
        if group < self.loader.groups() {
            self.current = Some((group, self.load(group)?));
            self.next_record = record;
            self.goes_on = false;
        }
        Ok(())
    }

    fn expected(&mut self) -> Result<Option<ChunkRecord>, L::Error> {
        if !std::mem::replace(&mut self.started, true) && self.current.is_none() {
            self.expect(0, 0)?;
        }
        let Some((number, group)) = &self.current else { return Ok(None) };
        if let Some(record) = group.get(self.next_record as usize) {
            return Ok(Some(*record));
        }
        let next = number + 1;
        if next >= self.loader.groups() {
            self.current = None;
            return Ok(None);
        }
        let group = self.load(next)?;
        let first = group.first().copied();
        self.current = Some((next, group));
        self.next_record = 0;
        self.goes_on = true;
        Ok(first)
    }

    /// Announces the groups behind the current one as soon as the stream has gone through half of
    /// it: then it is likely to go on.
    fn announce(&mut self) {
        let Some((number, group)) = &self.current else { return };
        if !self.goes_on || (self.next_record as usize) * 2 < group.len() || self.announced == Some(*number) {
            return;
        }
        self.announced = Some(*number);
        let mut next = *number + 1;
        let end = next.saturating_add(AHEAD_MAX).min(self.loader.groups());
        while next < end && self.loaded.contains(&next) {
            next += 1;
        }
        if next < end {
            self.loader.expect(next..end);
        }
    }

    fn load(&mut self, number: u32) -> Result<Group, L::Error> {
        if let Some(group) = self.loaded.get(&number) {
            return Ok(group.clone());
        }
        let group = self.loader.load(number)?;
        for (record, chunk) in group.iter().enumerate() {
            let place = Position { group: number, record: record as u32 };
            // Of equal chunks the first of a run is the better place to go on from.
            self.places.entry(sample(&chunk.chunk.fingerprint)).or_insert(place);
        }
        self.loaded_records += group.len();
        self.loaded.put(number, group.clone());
        while self.loaded_records > self.records_max && self.loaded.len() > 1 {
            let Some((old, records)) = self.loaded.pop_lru() else { break };
            self.loaded_records -= records.len();
            for chunk in records.iter() {
                let sample = sample(&chunk.chunk.fingerprint);
                if self.places.get(&sample).is_some_and(|place| place.group == old) {
                    self.places.remove(&sample);
                }
            }
        }
        Ok(group)
    }
}

impl<L: LoadGroup> Filter<L::Error> for GroupFilter<L> {
    fn check(&mut self, chunk: &Chunk<'_>, _: Option<&ChunkRecord>) -> Result<Verdict, L::Error> {
        Ok(self.find(chunk.fingerprint, chunk.size())?.map_or(Verdict::WeakMaybe, Verdict::StrongMaybe))
    }
}

/// A record whose size differs is damaged or a wonder; either way it is not this chunk.
fn same_size(record: ChunkRecord, size: u32) -> Option<ChunkRecord> {
    (record.chunk.size == size).then_some(record)
}

#[cfg(test)]
mod tests {
    use super::*;
    use larder_format::ChunkRef;
    use larder_format::ids::{ContainerId, ContainerKind, JobId};
    use proptest::prelude::*;
    use std::convert::Infallible;

    use crate::spilling_index::Asked;

    fn fingerprint(n: u32) -> Fingerprint {
        let mut bytes = [0; 32];
        bytes[..8].copy_from_slice(&(u64::from(n) + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15).to_le_bytes());
        bytes[8..12].copy_from_slice(&n.to_le_bytes());
        Fingerprint(bytes)
    }

    fn record(n: u32) -> ChunkRecord {
        let container = ContainerId { kind: ContainerKind::Data, job: JobId([1; 16]), seq: n / 100 };
        let chunk = ChunkRef { fingerprint: fingerprint(n), container, offset: n % 100 * 10, size: 10 };
        ChunkRecord { chunk, born: container.job }
    }

    struct Base {
        groups: Vec<Group>,
        loads: usize,
    }

    impl Base {
        fn new(chunks: &[u32], per_group: usize) -> Self {
            let groups = chunks.chunks(per_group).map(|group| Arc::new(group.iter().map(|n| record(*n)).collect()));
            Self { groups: groups.collect(), loads: 0 }
        }
    }

    impl LoadGroup for Base {
        type Error = Infallible;

        fn groups(&self) -> u32 {
            self.groups.len() as u32
        }

        fn load(&mut self, group: u32) -> Result<Group, Infallible> {
            self.loads += 1;
            Ok(self.groups[group as usize].clone())
        }

        fn fill(&mut self, index: &mut dyn NoteGroups) -> Result<(), Infallible> {
            for (number, group) in self.groups.iter().enumerate() {
                for record in group.iter() {
                    index.note(sample(&record.chunk.fingerprint), number as u32);
                }
            }
            Ok(())
        }
    }

    #[test]
    fn an_unchanged_stream_loads_every_group_once() {
        let chunks: Vec<u32> = (0..1000).collect();
        let mut filter = GroupFilter::new(Base::new(&chunks, 50), 1 << 20);
        for n in &chunks {
            assert_eq!(filter.find(&fingerprint(*n), 10), Ok(Some(record(*n))));
        }
        assert_eq!(filter.loader().loads, 20);
    }

    /// A chunk that two loaded groups have is found at the one that was loaded first, and must not
    /// be lost with it.
    #[test]
    fn what_two_groups_have_is_found_when_one_of_them_left() {
        let base = Base::new(&[1, 50, 2, 50, 3, 4, 5, 6, 7, 8], 2);
        let index = SpillingIndex::new(1 << 20, Box::new(tempfile::tempfile), Asked::Afterwards);
        let mut filter = GroupFilter::exact(base, index, 4 * RECORD_BYTES);
        for n in [3, 5, 2, 1, 7, 50] {
            assert_eq!(filter.find(&fingerprint(n), 10), Ok(Some(record(n))));
        }
    }

    #[test]
    fn a_small_budget_costs_misses_but_never_a_wrong_answer() {
        let chunks: Vec<u32> = (0..20_000).collect();
        let mut filter = GroupFilter::new(Base::new(&chunks, 500), 64 << 10);
        let mut found = 0;
        for n in chunks.iter().rev().chain([&99_999]) {
            if let Ok(Some(hit)) = filter.find(&fingerprint(*n), 10) {
                assert_eq!(hit, record(*n));
                found += 1;
            }
        }
        // Read backwards is the worst case for a cursor; samples still find the groups.
        assert!(found > 15_000, "{found} found");
        assert_eq!(filter.find(&fingerprint(3), 11), Ok(None));
    }

    /// A base of 50 million chunks in 100,000 groups, made when they are asked for.
    struct Endless {
        announced: std::collections::HashSet<u32>,
        unannounced: usize,
    }

    const ENDLESS_GROUPS: u32 = 100_000;
    const PER_GROUP: u32 = 500;

    impl LoadGroup for Endless {
        type Error = Infallible;

        fn groups(&self) -> u32 {
            ENDLESS_GROUPS
        }

        fn load(&mut self, group: u32) -> Result<Group, Infallible> {
            if !self.announced.remove(&group) {
                self.unannounced += 1;
            }
            Ok(Arc::new((0..PER_GROUP).map(|n| record(group * PER_GROUP + n)).collect()))
        }

        fn fill(&mut self, index: &mut dyn NoteGroups) -> Result<(), Infallible> {
            for group in 0..ENDLESS_GROUPS {
                for n in 0..PER_GROUP {
                    let sample = sample(&fingerprint(group * PER_GROUP + n));
                    if sample.trailing_zeros() >= 6 {
                        index.note(sample, group);
                    }
                }
            }
            Ok(())
        }

        fn expect(&mut self, groups: Range<u32>) {
            assert!(groups.len() <= AHEAD_MAX as usize);
            self.announced.extend(groups);
        }
    }

    /// Goal: memory follows the budget, not the base, and the store's latency is hidden. Method:
    /// long runs and jumps through a base far larger than the budget; the contents of memory are
    /// counted all the way.
    #[test]
    fn fifty_million_chunks_take_no_more_than_the_budget() {
        const BUDGET: usize = 16 << 20;
        let base = Endless { announced: Default::default(), unannounced: 0 };
        let mut filter = GroupFilter::new(base, BUDGET);
        let mut most = Held { records: 0, places: 0, samples: 0 };
        let (mut asked, mut found) = (0, 0);
        for run in 0..60_u32 {
            // From somewhere in the base, 20 groups on.
            let first = (run * 37_123 % (ENDLESS_GROUPS - 20)) * PER_GROUP + run * 7;
            for n in first..first + 20 * PER_GROUP {
                let Ok(hit) = filter.find(&fingerprint(n), 10);
                assert!(hit.is_none_or(|hit| hit == record(n)));
                asked += 1;
                found += usize::from(hit.is_some());
                let held = filter.held();
                most.records = most.records.max(held.records);
                most.places = most.places.max(held.places);
                most.samples = most.samples.max(held.samples);
            }
        }
        assert!(found * 100 > asked * 90, "{found} of {asked} found");
        assert!(most.samples * 8 <= BUDGET / 2 && most.samples > 50_000, "{most:?}");
        assert!(most.records * RECORD_BYTES <= BUDGET / 2 && most.records > 20_000, "{most:?}");
        assert!(most.places <= most.records, "{most:?}");
        // Only the first two groups of each run were not seen coming.
        assert!(filter.loader().unannounced <= 3 * 60, "{} loads", filter.loader().unannounced);
    }

    proptest! {
        #[test]
        fn with_room_enough_it_is_exact(
            base in prop::collection::vec(0u32..300, 0..200),
            stream in prop::collection::vec(0u32..400, 0..300),
            per_group in 1usize..40,
        ) {
            let mut filter = GroupFilter::new(Base::new(&base, per_group), 1 << 20);
            for n in stream {
                let expected = base.contains(&n).then(|| record(n));
                prop_assert_eq!(filter.find(&fingerprint(n), 10), Ok(expected));
            }
        }
    }
}
