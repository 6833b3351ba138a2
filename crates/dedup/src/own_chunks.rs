//! The chunks that the running job has stored itself: duplicates within one version.
//!
//! [`OwnChunks`] knows the newest ones exactly, in memory. When it is full, the oldest leave, a
//! group at a time, and [`OlderChunks`] takes them. A [`KeepGroups`] stores the groups, and a
//! [`SampledIndex`](crate::SampledIndex) finds them again. It is exact as long as it has room, and
//! after that it finds chunks by others stored beside them. A chunk that is not found is stored
//! again, and the G-node finds it later.

use larder_format::Fingerprint;
use larder_format::container::ChunkRef;
use larder_format::ids::ContainerId;
use larder_format::segment::ChunkRecord;

use crate::chain::{Chunk, Filter, Verdict};
use crate::group_filter::{GroupFilter, Held, LoadGroup};
use crate::sampled_index::sample;
use crate::spilling_index::SpillingIndex;

/// Chunks that leave together.
pub const OWN_GROUP: usize = 512;

/// A chunk of the one job.
#[derive(Debug, Clone, Copy)]
struct Own {
    fingerprint: Fingerprint,
    seq: u32,
    offset: u32,
    size: u32,
}

/// Places in the table for a chunk.
const PLACES: usize = 2;

/// See the module header. A ring of chunks, and an open table of places in it.
#[derive(Debug)]
pub struct OwnChunks {
    /// All of one job and kind; that of the first chunk.
    container: Option<ContainerId>,
    ring: Vec<Own>,
    capacity: usize,
    /// The place of the oldest, once the ring is full.
    oldest: usize,
    len: usize,
    /// Places in the ring plus one; 0 is free.
    table: Vec<u32>,
    leaving: Vec<ChunkRecord>,
}

impl OwnChunks {
    /// Remembers as many chunks as about `budget` bytes hold.
    pub fn new(budget: usize) -> Self {
        let capacity = budget / (size_of::<Own>() + PLACES * size_of::<u32>());
        let capacity = capacity.clamp(2 * OWN_GROUP, u32::MAX as usize / 4);
        let table = vec![0; capacity * PLACES];
        Self { container: None, ring: Vec::new(), capacity, oldest: 0, len: 0, table, leaving: Vec::new() }
    }

    /// How many chunks it remembers, at least all but a group of them.
    pub fn capacity(&self) -> usize {
        self.capacity
    }

    /// Where this job has put a chunk with this fingerprint.
    pub fn find(&self, fingerprint: &Fingerprint) -> Option<ChunkRef> {
        let mut place = self.home(fingerprint);
        loop {
            let own = &self.ring[self.table[place].checked_sub(1)? as usize];
            if own.fingerprint == *fingerprint {
                return self.chunk(own);
            }
            place = self.behind(place);
        }
    }

    /// Remembers a chunk that was just stored. All must be of one job and kind; others are not
    /// remembered.
    pub fn insert(&mut self, chunk: ChunkRef) {
        let ContainerId { kind, job, seq } = chunk.container;
        let first = *self.container.get_or_insert(chunk.container);
        if (first.kind, first.job) != (kind, job) {
            return;
        }
        if self.len == self.capacity {
            self.drop_oldest();
        }
        let own = Own { fingerprint: chunk.fingerprint, seq, offset: chunk.offset, size: chunk.size };
        let slot = (self.oldest + self.len) % self.capacity;
        match self.ring.get_mut(slot) {
            Some(place) => *place = own,
            None => self.ring.push(own),
        }
        self.len += 1;
        let mut place = self.home(&own.fingerprint);
        while self.table[place] != 0 {
            place = self.behind(place);
        }
        self.table[place] = slot as u32 + 1;
    }

    /// The chunks that had to leave, if any have since this was asked last: [`OWN_GROUP`] of them,
    /// in the order in which they came.
    pub fn take_leaving(&mut self) -> Option<Vec<ChunkRecord>> {
        (!self.leaving.is_empty()).then(|| std::mem::take(&mut self.leaving))
    }

    fn drop_oldest(&mut self) {
        self.leaving.clear();
        for _ in 0..OWN_GROUP {
            let slot = self.oldest;
            if let Some(chunk) = self.chunk(&self.ring[slot]) {
                self.leaving.push(ChunkRecord { chunk, born: chunk.container.job });
            }
            self.forget(slot);
            self.oldest = (self.oldest + 1) % self.capacity;
            self.len -= 1;
        }
    }

    /// Takes a chunk out of the table; those behind it move up, so that no search ends before it
    /// should.
    fn forget(&mut self, slot: usize) {
        let mut free = self.home(&self.ring[slot].fingerprint);
        while self.table[free] != slot as u32 + 1 {
            free = self.behind(free);
        }
        let mut place = free;
        loop {
            place = self.behind(place);
            let Some(other) = self.table[place].checked_sub(1) else { break };
            let home = self.home(&self.ring[other as usize].fingerprint);
            let steps = |from: usize, to: usize| (to + self.table.len() - from) % self.table.len();
            if steps(home, place) >= steps(free, place) {
                self.table[free] = self.table[place];
                free = place;
            }
        }
        self.table[free] = 0;
    }

    fn chunk(&self, own: &Own) -> Option<ChunkRef> {
        let container = ContainerId { seq: own.seq, ..self.container? };
        Some(ChunkRef { fingerprint: own.fingerprint, container, offset: own.offset, size: own.size })
    }

    fn home(&self, fingerprint: &Fingerprint) -> usize {
        ((u128::from(sample(fingerprint)) * self.table.len() as u128) >> 64) as usize
    }

    fn behind(&self, place: usize) -> usize {
        if place + 1 == self.table.len() { 0 } else { place + 1 }
    }
}

impl<E> Filter<E> for OwnChunks {
    fn check(&mut self, chunk: &Chunk<'_>, _: Option<&ChunkRecord>) -> Result<Verdict, E> {
        let found = self.find(chunk.fingerprint).filter(|found| found.size == chunk.size());
        Ok(found.map_or(Verdict::WeakMaybe, |found| {
            // Chunks that this job has stored itself are born with it.
            Verdict::StrongMaybe(ChunkRecord { chunk: found, born: found.container.job })
        }))
    }

    fn update(&mut self, stored: &ChunkRecord) -> Result<(), E> {
        self.insert(stored.chunk);
        Ok(())
    }
}

/// Keeps groups for which there is no memory.
pub trait KeepGroups: LoadGroup {
    /// Keeps a group; it gets the next number.
    fn keep(&mut self, group: &[ChunkRecord]) -> Result<(), Self::Error>;
}

/// See the module header.
#[derive(Debug)]
pub struct OlderChunks<K> {
    filter: GroupFilter<K>,
}

impl<K: KeepGroups> OlderChunks<K> {
    /// Memory for about `index` bytes of index and `loaded` bytes of groups that are loaded.
    pub fn new(keeper: K, index: usize, loaded: usize) -> Self {
        Self { filter: GroupFilter::with_budgets(keeper, index, loaded) }
    }

    /// One that finds everything, by `index`; about `loaded` bytes for groups that are loaded.
    pub fn exact(keeper: K, index: SpillingIndex, loaded: usize) -> Self {
        Self { filter: GroupFilter::exact(keeper, index, loaded) }
    }

    /// Takes a group over from [`OwnChunks::take_leaving`].
    pub fn keep(&mut self, group: &[ChunkRecord]) -> Result<(), K::Error> {
        let number = self.filter.loader().groups();
        self.filter.loader_mut().keep(group)?;
        self.filter.note(number, group);
        Ok(())
    }

    /// The size of its contents in memory.
    pub fn held(&self) -> Held {
        self.filter.held()
    }
}

impl<K: KeepGroups> Filter<K::Error> for OlderChunks<K> {
    fn check(&mut self, chunk: &Chunk<'_>, found: Option<&ChunkRecord>) -> Result<Verdict, K::Error> {
        self.filter.check(chunk, found)
    }
}

#[cfg(test)]
#[path = "own_chunks_tests.rs"]
mod tests;
