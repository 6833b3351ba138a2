//! Containers in the order of writing, and an index of everything: exact deduplication, HAR and Capping.
//!
//! A recipe names copies, not chunks: what HAR and Capping store again is another copy, and the old one lives as long as a retained
//! version names it. The index leads to the newest copy. Collection after a deletion is perfect (every container with anything dead in it
//! is retired, the living are copied) or by markers (CMA: a container goes when no retained version uses anything of it; what is dead
//! beside the living stays, and may be found by a later version).

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use larder_bench_common::front::Piece;
use larder_bench_common::rewriting::{CAPPED_BYTES, capped, sparse};
use larder_chunking::Fingerprint;

use super::log::{CONTAINER, Log};
use super::{ENTRY, Number, Restored, Scheme, opt};
use crate::disk::{Disk, Work};

/// Which duplicates are stored again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Rule {
    /// None.
    Exact,
    Har,
    Capping,
}

/// What becomes of chunks that nobody needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Collection {
    Perfect,
    Markers,
}

#[derive(Debug)]
struct CopyOf {
    piece: Piece,
    container: u32,
    /// Retained versions that name it.
    users: u32,
    /// The last version that named it.
    named: Number,
}

/// See the module header.
pub(crate) struct Classic {
    rule: Rule,
    collection: Collection,
    log: Log,
    copies: Vec<CopyOf>,
    index: HashMap<Fingerprint, u32>,
    recipes: BTreeMap<Number, Vec<u32>>,
}

impl Classic {
    pub(crate) fn new(rule: Rule, collection: Collection) -> Self {
        let (log, copies) = (Log::new(CONTAINER), Vec::new());
        Self { rule, collection, log, copies, index: HashMap::new(), recipes: BTreeMap::new() }
    }

    /// Containers that HAR does not take from: sparse for the version before, as its chunks lie now.
    fn sparse(&self) -> HashSet<u32> {
        let Some((_, recipe)) = self.recipes.last_key_value() else { return HashSet::new() };
        let mut used: HashMap<u32, u64> = HashMap::new();
        let (mut seen, mut bytes) = (HashSet::new(), 0);
        for copy in recipe {
            let CopyOf { piece, container, .. } = self.copies[*copy as usize];
            bytes += u64::from(piece.size);
            if seen.insert(*copy) {
                *used.entry(container).or_default() += u64::from(piece.size);
            }
        }
        sparse(&used, |container| self.log.extent(*container).map_or(0, |extent| extent.len), bytes)
    }

    /// Containers older than this version that a stretch of the stream may not refer to.
    fn capped(&self, stretch: &[Piece], own: u32) -> HashSet<u32> {
        let mut used: HashMap<u32, u64> = HashMap::new();
        for piece in stretch {
            let container = self.index.get(&piece.fingerprint).map(|copy| self.copies[*copy as usize].container);
            if let Some(container) = container.filter(|container| *container < own) {
                *used.entry(container).or_default() += u64::from(piece.size);
            }
        }
        capped(&used, CONTAINER)
    }

    fn take(&mut self, version: Number, piece: &Piece, not_from: &HashSet<u32>, recipe: &mut Vec<u32>) {
        let known = self.index.get(&piece.fingerprint).copied();
        let known =
            known.filter(|copy| not_from.is_empty() || !not_from.contains(&self.copies[*copy as usize].container));
        let copy = known.unwrap_or_else(|| {
            let copy = self.copies.len() as u32;
            let container = self.log.append(copy, piece.size);
            self.copies.push(CopyOf { piece: *piece, container, users: 0, named: 0 });
            self.index.insert(piece.fingerprint, copy);
            copy
        });
        let named = &mut self.copies[copy as usize];
        if named.named != version {
            named.named = version;
            named.users += 1;
        }
        recipe.push(copy);
    }

    /// Containers with their bytes, in the order in which they were written.
    pub(crate) fn containers(&self) -> impl Iterator<Item = (u32, u64)> {
        self.log.containers.iter().map(|(number, container)| (*number, container.extent.len))
    }

    /// The containers that a restore in the order of the stream reads, one after the other.
    pub(crate) fn order(&self, version: Number, memory: u64) -> Vec<u32> {
        let recipe = self.recipes.get(&version).map_or(&[][..], Vec::as_slice);
        let accesses = recipe.iter().map(|copy| self.copies[*copy as usize].container);
        opt::reads(accesses, (memory / CONTAINER).max(1) as usize)
    }

    fn is_dead(&self, copy: u32) -> bool {
        self.copies[copy as usize].users == 0
    }

    fn forget(&mut self, copy: u32) {
        let name = &self.copies[copy as usize].piece.fingerprint;
        if self.index.get(name) == Some(&copy) {
            self.index.remove(name);
        }
    }

    fn collect(&mut self, touched: &BTreeSet<u32>) -> Work {
        let mut work = Work::default();
        let (mut living, mut read) = (Vec::new(), Vec::new());
        for number in touched {
            let Some(container) = self.log.containers.get(number) else { continue };
            let (dead, kept): (Vec<u32>, Vec<u32>) = container.copies.iter().partition(|copy| self.is_dead(**copy));
            if dead.is_empty() || (self.collection == Collection::Markers && !kept.is_empty()) {
                continue;
            }
            if !kept.is_empty() {
                read.push(container.extent);
            }
            self.log.remove(*number);
            work.deleted += 1;
            dead.into_iter().for_each(|copy| self.forget(copy));
            living.extend(kept);
        }
        self.log.close();
        for copy in living {
            let size = self.copies[copy as usize].piece.size;
            self.copies[copy as usize].container = self.log.append(copy, size);
            work.written += u64::from(size);
        }
        work.read = Disk::SLOW.read_sorted(read);
        work
    }
}

impl Scheme for Classic {
    fn name(&self) -> String {
        let rule = match self.rule {
            Rule::Exact => "exact",
            Rule::Har => "HAR",
            Rule::Capping => "Capping",
        };
        match self.collection {
            Collection::Perfect => format!("{rule}, perfect GC"),
            Collection::Markers => format!("{rule}, CMA"),
        }
    }

    fn back_up(&mut self, version: Number, pieces: &[Piece]) {
        let own = self.log.close();
        let mut recipe = Vec::with_capacity(pieces.len());
        match self.rule {
            Rule::Exact | Rule::Har => {
                let not_from = if self.rule == Rule::Har { self.sparse() } else { HashSet::new() };
                pieces.iter().for_each(|piece| self.take(version, piece, &not_from, &mut recipe));
            }
            Rule::Capping => {
                let mut rest = pieces;
                while !rest.is_empty() {
                    let mut bytes = 0;
                    let mut within = |piece: &Piece| {
                        let fits = bytes < CAPPED_BYTES;
                        bytes += u64::from(piece.size);
                        fits
                    };
                    let len = rest.iter().position(|piece| !within(piece)).unwrap_or(rest.len());
                    let (stretch, behind) = rest.split_at(len);
                    let not_from = self.capped(stretch, own);
                    stretch.iter().for_each(|piece| self.take(version, piece, &not_from, &mut recipe));
                    rest = behind;
                }
            }
        }
        self.recipes.insert(version, recipe);
    }

    fn delete(&mut self, version: Number) -> Work {
        let mut recipe = self.recipes.remove(&version).unwrap_or_default();
        recipe.sort_unstable();
        recipe.dedup();
        let mut touched = BTreeSet::new();
        for copy in recipe {
            let copy = &mut self.copies[copy as usize];
            copy.users -= 1;
            if copy.users == 0 {
                touched.insert(copy.container);
            }
        }
        self.collect(&touched)
    }

    fn arrange(&mut self) -> Work {
        Work::default()
    }

    fn stored(&self) -> u64 {
        self.log.stored()
    }

    fn table_bytes(&self) -> usize {
        self.index.len() * ENTRY
    }

    fn restore(&self, version: Number, memory: u64) -> Restored {
        let reads = self.order(version, memory);
        let once: BTreeSet<u32> = reads.iter().copied().collect();
        let extents =
            |containers: &mut dyn Iterator<Item = u32>| containers.filter_map(|c| self.log.extent(c)).collect();
        let in_order: Vec<_> = extents(&mut reads.into_iter());
        Restored { usual: Disk::SLOW.read(in_order), once: Disk::SLOW.read_sorted(extents(&mut once.into_iter())) }
    }

    #[cfg(test)]
    fn content(&self, version: Number) -> Vec<Piece> {
        let there: HashSet<(u32, u32)> = (self.log.containers.iter())
            .flat_map(|(number, container)| container.copies.iter().map(move |copy| (*number, *copy)))
            .collect();
        let recipe = self.recipes.get(&version).into_iter().flatten();
        let found = recipe.filter(|copy| there.contains(&(self.copies[**copy as usize].container, **copy)));
        found.map(|copy| self.copies[*copy as usize].piece).collect()
    }
}
