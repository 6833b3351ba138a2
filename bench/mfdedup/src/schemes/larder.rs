//! The rules of Larder's `lifecycle` layout, as a model: what leaves is marked where it lies, and moves when there is enough of it.
//!
//! New chunks go to open containers in the order of the stream. A pass retires every container of which more than a share h has left (the
//! newest version does not have it any more), or more than h/2 is needed by no retained version: what the newest version has goes to new
//! open containers, what left to the volume of the last version that had it, both by first version and then as they lay, and the dead
//! are dropped. With h = 0 that is the paper's layout. Deleting versions drops the containers of whose span none is retained.

use std::collections::BTreeMap;

use larder_bench_common::front::Piece;

use super::log::{CONTAINER, Log};
use super::neighbours::{Bases, Neighbours};
use super::{ENTRY, Number, Restored, Scheme};
use crate::disk::{Disk, Extent, Work};

/// Bytes of an entry for a chunk of a base: half of its fingerprint is enough to find where it is.
const BASE_ENTRY: usize = 16;

/// What may be tried.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Lifecycle {
    /// h: share of a container that may have left (of 1).
    pub(crate) holes: f64,
    pub(crate) container_bytes: u64,
    /// A pass follows every so many versions.
    pub(crate) every: Number,
    pub(crate) bases: Bases,
}

impl Lifecycle {
    /// Containers as rivals have them, a pass after every version, one base.
    #[cfg(test)]
    pub(crate) fn with_holes(holes: f64) -> Self {
        Self { holes, container_bytes: CONTAINER, every: 1, bases: Bases::One }
    }
}

/// See the module header.
pub(crate) struct Larder {
    rules: Lifecycle,
    neighbours: Neighbours,
    log: Log,
}

impl Larder {
    pub(crate) fn new(rules: Lifecycle) -> Self {
        Self { rules, neighbours: Neighbours::with(rules.bases), log: Log::new(rules.container_bytes) }
    }

    /// Bytes of these chunks for which `is` holds.
    fn bytes(&self, chunks: &[u32], is: impl Fn(&Self, u32) -> bool) -> u64 {
        chunks.iter().filter(|chunk| is(self, **chunk)).map(|chunk| self.neighbours.size(*chunk)).sum()
    }

    fn is_dead(&self, chunk: u32) -> bool {
        let life = self.neighbours.life(chunk);
        !self.neighbours.is_needed(life.first, life.last)
    }

    fn is_current(&self, chunk: u32) -> bool {
        self.neighbours.life(chunk).last == self.neighbours.newest
    }

    /// Whether a container's holes exceed what they may be. What lies in a volume has left long ago; only the dead are holes there.
    fn is_retired(&self, chunks: &[u32]) -> bool {
        let whole: u64 = self.bytes(chunks, |_, _| true);
        let is_open = chunks.iter().any(|chunk| self.is_current(*chunk));
        let is_mixed = || {
            let last = |chunk: &u32| self.neighbours.life(*chunk).last;
            chunks.iter().any(|chunk| last(chunk) != last(&chunks[0]))
        };
        let left = self.bytes(chunks, |this, chunk| !this.is_current(chunk));
        let dead = self.bytes(chunks, Self::is_dead);
        // A container that everything has left, but not at once, has no place among the volumes.
        let has_left = (is_open || is_mixed()) && left as f64 > self.rules.holes * whole as f64;
        has_left || dead as f64 > self.rules.holes / 2.0 * whole as f64
    }

    /// Drops containers whose span holds no retained version.
    fn drop_dead(&mut self) -> u64 {
        let is_dead = |chunks: &[u32]| {
            let lives = || chunks.iter().map(|chunk| self.neighbours.life(*chunk));
            let first = lives().map(|life| life.first).min().unwrap_or(0);
            let last = lives().map(|life| life.last).max().unwrap_or(0);
            !self.neighbours.is_needed(first, last)
        };
        let dead: Vec<u32> =
            (self.log.containers.iter()).filter(|(_, c)| is_dead(&c.copies)).map(|(number, _)| *number).collect();
        dead.iter().for_each(|number| drop(self.log.remove(*number)));
        dead.len() as u64
    }

    fn write(&mut self, mut chunks: Vec<u32>) -> u64 {
        // The sort is stable: chunks of one first version stay as they lay.
        chunks.sort_by_key(|chunk| self.neighbours.life(*chunk).first);
        self.log.close();
        for chunk in &chunks {
            self.log.append(*chunk, self.neighbours.life(*chunk).piece.size);
        }
        self.bytes(&chunks, |_, _| true)
    }

    /// The part of a container that a version needs: from the first to the last chunk that it has.
    fn part(&self, chunks: &[u32], extent: Extent, version: Number) -> Option<Extent> {
        let (mut from, mut until, mut place) = (None, 0, 0);
        for chunk in chunks {
            let life = self.neighbours.life(*chunk);
            let end = place + u64::from(life.piece.size);
            if life.first <= version && version <= life.last {
                from.get_or_insert(place);
                until = end;
            }
            place = end;
        }
        from.map(|from| Extent { at: extent.at + from, len: until - from })
    }
}

impl Scheme for Larder {
    fn name(&self) -> String {
        let Lifecycle { holes, container_bytes, every, bases } = self.rules;
        let mut name = format!("Larder, holes {} %", (holes * 1000.0).round() / 10.0);
        if container_bytes != CONTAINER {
            name.push_str(&format!(", {} MiB", container_bytes >> 20));
        }
        if every > 1 {
            name.push_str(&format!(", a pass after {every}"));
        }
        if let Bases::WhenLost(most) = bases {
            name.push_str(&format!(", {most} bases"));
        }
        name
    }

    fn back_up(&mut self, version: Number, pieces: &[Piece]) {
        self.log.close();
        let log = &mut self.log;
        self.neighbours.back_up(version, pieces, |chunk, piece| {
            log.append(chunk, piece.size);
        });
    }

    fn delete(&mut self, version: Number) -> Work {
        self.neighbours.delete(version);
        Work { deleted: self.drop_dead(), ..Work::default() }
    }

    fn arrange(&mut self) -> Work {
        let mut work = Work::default();
        if !self.neighbours.newest.is_multiple_of(self.rules.every) {
            return work;
        }
        let reclaimed: Vec<u32> =
            (self.log.containers.iter()).filter(|(_, c)| self.is_retired(&c.copies)).map(|(n, _)| *n).collect();
        let mut read = Vec::new();
        let (mut open, mut volumes) = (Vec::new(), BTreeMap::<Number, Vec<u32>>::new());
        for number in reclaimed {
            let Some(container) = self.log.remove(number) else { continue };
            read.push(container.extent);
            work.deleted += 1;
            for chunk in container.copies {
                let last = self.neighbours.life(chunk).last;
                match last == self.neighbours.newest {
                    true => open.push(chunk),
                    false if self.is_dead(chunk) => {}
                    false => volumes.entry(last).or_default().push(chunk),
                }
            }
        }
        work.read = Disk::SLOW.read_sorted(read);
        work.written = self.write(open);
        for chunks in volumes.into_values() {
            work.written += self.write(chunks);
        }
        work
    }

    fn stored(&self) -> u64 {
        self.log.stored()
    }

    fn table_bytes(&self) -> usize {
        let (own, asked) = self.neighbours.entries();
        own * ENTRY + asked * BASE_ENTRY
    }

    fn restore(&self, version: Number, _: u64) -> Restored {
        let parts = self.log.containers.values();
        let parts = parts.filter_map(|container| self.part(&container.copies, container.extent, version));
        let once = Disk::SLOW.read_sorted(parts.collect());
        Restored { usual: once, once }
    }

    #[cfg(test)]
    fn content(&self, version: Number) -> Vec<Piece> {
        let there: std::collections::HashSet<u32> =
            self.log.containers.values().flat_map(|container| container.copies.iter().copied()).collect();
        let recipe = self.neighbours.recipe(version).iter();
        recipe.filter(|chunk| there.contains(chunk)).map(|chunk| self.neighbours.life(*chunk).piece).collect()
    }
}
