//! The full-vision cache: the next use of every chunk is known exactly, only what will be used again is kept, and containers are
//! read ahead of their need as soon as there is room for what they bring (SlimStore section V-A).
//!
//! Two passes. The first goes through the stream and decides what is in memory at every place: a container that is read brings the
//! chunks that come again; when memory is full, the chunk needed last goes to the disk tier, and when that is full too, it is given
//! up and read again later. The second finds for each read the earliest place from which on it fits beside everything else, so that
//! space is reserved before a container is asked for, and nothing that was fetched ahead is ever thrown out.

use std::collections::{BTreeSet, HashMap};

use super::{Plan, Read, Recipe};

/// How a container is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reading {
    /// Always all of it, in one request.
    Whole,
    /// Only the ranges that hold what is wanted; gaps that cost less to read than another request are read too.
    Ranges {
        /// The greatest such gap (bytes).
        gap: u32,
    },
}

/// Memory and disk of the cache, and its readers.
#[derive(Debug, Clone, Copy)]
pub(crate) struct FullVision {
    pub(crate) memory: u64,
    pub(crate) disk: u64,
    /// The greatest container: every read in flight needs a buffer of this size, which counts as memory.
    pub(crate) container_bytes: u64,
    pub(crate) threads: usize,
    pub(crate) reading: Reading,
}

/// A policy's plan for a recipe. See the module header.
pub(crate) fn full_vision(recipe: &Recipe, settings: FullVision) -> Plan {
    // Half of a small memory may be buffers, no more.
    let depth = settings.threads.min(((settings.memory / 2 / settings.container_bytes) as usize).max(1));
    let managed = settings.memory.saturating_sub(depth as u64 * settings.container_bytes);
    let mut cache = Cache::new(recipe, managed, settings);
    for place in 0..recipe.needs.len() {
        cache.step(place);
    }
    let Cache { mut reads, brought, occupied, spilled, .. } = cache;
    reserve(&mut reads, &brought, &occupied, managed);
    Plan { reads, depth, spilled }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Tier {
    Memory,
    Disk,
}

struct Cache<'a> {
    recipe: &'a Recipe,
    settings: FullVision,
    managed: u64,
    /// By chunk: the places of its uses, ascending; and how many are behind us.
    uses: Vec<Vec<u32>>,
    passed: Vec<u32>,
    kept: HashMap<u32, Tier>,
    /// Chunks of each tier by next use.
    memory: BTreeSet<(u32, u32)>,
    disk: BTreeSet<(u32, u32)>,
    sizes: Vec<u32>,
    memory_bytes: u64,
    disk_bytes: u64,
    reads: Vec<Read>,
    /// By read: what it brought into memory beyond the chunk it was for.
    brought: Vec<u64>,
    /// By place: bytes in memory once it is written.
    occupied: Vec<u64>,
    spilled: u64,
}

impl<'a> Cache<'a> {
    fn new(recipe: &'a Recipe, managed: u64, settings: FullVision) -> Self {
        let mut uses = vec![Vec::new(); recipe.chunk_count()];
        let mut sizes = vec![0; recipe.chunk_count()];
        for (place, need) in recipe.needs.iter().enumerate() {
            uses[need.chunk as usize].push(place as u32);
            sizes[need.chunk as usize] = need.size;
        }
        let passed = vec![0; uses.len()];
        Self {
            recipe,
            settings,
            managed,
            uses,
            passed,
            kept: HashMap::new(),
            memory: BTreeSet::new(),
            disk: BTreeSet::new(),
            sizes,
            memory_bytes: 0,
            disk_bytes: 0,
            reads: Vec::new(),
            brought: Vec::new(),
            occupied: Vec::with_capacity(recipe.needs.len()),
            spilled: 0,
        }
    }

    fn next_use(&self, chunk: u32) -> Option<u32> {
        self.uses[chunk as usize].get(self.passed[chunk as usize] as usize).copied()
    }

    /// Writes one place of the stream.
    fn step(&mut self, place: usize) {
        let need = self.recipe.needs[place];
        if !self.take(need.chunk) {
            self.read(need.container, place);
            self.take(need.chunk);
        }
        self.passed[need.chunk as usize] += 1;
        if let Some(next) = self.next_use(need.chunk) {
            self.keep(need.chunk, next);
        }
        self.make_room();
        self.occupied.push(self.memory_bytes);
    }

    /// Takes a chunk out of whichever tier it is in.
    fn take(&mut self, chunk: u32) -> bool {
        let Some(tier) = self.kept.remove(&chunk) else { return false };
        let key = (self.next_use(chunk).unwrap_or(u32::MAX), chunk);
        let size = u64::from(self.sizes[chunk as usize]);
        match tier {
            Tier::Memory => {
                self.memory.remove(&key);
                self.memory_bytes -= size;
            }
            Tier::Disk => {
                self.disk.remove(&key);
                self.disk_bytes -= size;
            }
        }
        true
    }

    fn keep(&mut self, chunk: u32, next: u32) {
        self.kept.insert(chunk, Tier::Memory);
        self.memory.insert((next, chunk));
        self.memory_bytes += u64::from(self.sizes[chunk as usize]);
    }

    /// Reads a container: every chunk of it that will be used and is not kept comes into memory.
    fn read(&mut self, container: u32, place: usize) {
        let recipe = self.recipe;
        let (mut bytes, mut requests, mut end) = (0, 0, None::<u32>);
        let before = self.memory_bytes;
        for held in &recipe.containers[container as usize] {
            let Some(next) = self.next_use(held.chunk) else { continue };
            if self.kept.contains_key(&held.chunk) {
                continue;
            }
            self.keep(held.chunk, next);
            match (self.settings.reading, end) {
                (Reading::Ranges { gap }, Some(end)) if held.offset - end <= gap => {
                    bytes += u64::from(held.offset - end + held.size);
                }
                _ => {
                    bytes += u64::from(held.size);
                    requests += 1;
                }
            }
            end = Some(held.offset + held.size);
        }
        if self.settings.reading == Reading::Whole {
            (bytes, requests) = (recipe.container_bytes(container), 1);
        }
        self.reads.push(Read { container, at: place, ready: place, bytes, requests });
        self.brought.push(self.memory_bytes - before);
    }

    /// Until memory holds what it may: the chunk needed last goes to disk, or is retired.
    fn make_room(&mut self) {
        while self.memory_bytes > self.managed {
            let Some((next, chunk)) = self.memory.pop_last() else { break };
            let size = u64::from(self.sizes[chunk as usize]);
            self.memory_bytes -= size;
            self.kept.remove(&chunk);
            // The disk retires what is needed later still, if that makes the room.
            while self.disk_bytes + size > self.settings.disk
                && let Some((last, victim)) = self.disk.last().copied().filter(|(last, _)| *last > next)
            {
                self.disk.remove(&(last, victim));
                self.disk_bytes -= u64::from(self.sizes[victim as usize]);
                self.kept.remove(&victim);
            }
            if self.disk_bytes + size <= self.settings.disk {
                self.kept.insert(chunk, Tier::Disk);
                self.disk.insert((next, chunk));
                self.disk_bytes += size;
                self.spilled += size;
            }
        }
    }
}

/// Finds for every read the earliest place from which on what it brings fits.
///
/// Between that place and its need, memory holds what the first pass kept there and what this and all earlier reads have brought
/// ahead of their needs.
fn reserve(reads: &mut [Read], brought: &[u64], occupied: &[u64], managed: u64) {
    let mut sums = vec![0];
    for bytes in brought {
        sums.push(sums[sums.len() - 1] + bytes);
    }
    let mut earliest = 0;
    for read in 0..reads.len() {
        let mut ready = reads[read].at;
        // The first read that is not needed before so many places are written.
        let mut later = read;
        let mut fits = |written: usize, reads: &[Read]| {
            while later > 0 && reads[later - 1].at >= written {
                later -= 1;
            }
            let kept = written.checked_sub(1).map_or(0, |place| occupied[place]);
            kept + sums[read + 1] - sums[later] <= managed
        };
        if fits(ready, reads) {
            while ready > earliest && fits(ready - 1, reads) {
                ready -= 1;
            }
        }
        earliest = ready;
        reads[read].ready = ready;
    }
}
