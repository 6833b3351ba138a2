//! The restore side, simulated: what a cache policy reads of a recipe, and how long that takes on a slow store.
//!
//! A policy ([`policies`], [`full_vision()`]) turns a [`Recipe`] into a [`Plan`]: which containers are read, at which place of the
//! stream each is needed, and from which place on there is room for it. [`simulate`] then plays a plan in virtual time, with any
//! number of prefetching threads. Recipes are real ones of the backup side; times are simulated and say so.

mod full_vision;
mod law;
mod policies;
#[cfg(test)]
mod tests;

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};

use larder_format::ChunkRef;

pub(crate) use full_vision::{FullVision, Reading, full_vision};
pub(crate) use law::{alacc, forward_assembly};
pub(crate) use policies::{chunk_lru, containers_with_disk, opt_containers};

use crate::clock::Link;

/// One chunk of the stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Need {
    /// Number of its container, dense.
    pub(crate) container: u32,
    /// Number of the chunk, dense; equal chunks have one.
    pub(crate) chunk: u32,
    pub(crate) size: u32,
}

/// A chunk in a container.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Held {
    pub(crate) chunk: u32,
    pub(crate) offset: u32,
    pub(crate) size: u32,
}

/// A recipe with small numbers for names, and what its containers hold besides.
#[derive(Debug, Clone, Default)]
pub(crate) struct Recipe {
    pub(crate) needs: Vec<Need>,
    /// By container: all its chunks in their order, needed or not.
    pub(crate) containers: Vec<Vec<Held>>,
}

impl Recipe {
    /// The recipe of one version; `catalogue` tells what its containers hold.
    pub(crate) fn new(chunks: &[ChunkRef], catalogue: &[ChunkRef]) -> Self {
        let mut recipe = Self::default();
        let (mut containers, mut numbers) = (HashMap::new(), HashMap::new());
        for chunk in chunks {
            let fresh = containers.len() as u32;
            let container = *containers.entry(chunk.container).or_insert(fresh);
            let fresh = numbers.len() as u32;
            let number = *numbers.entry((chunk.container, chunk.offset)).or_insert(fresh);
            recipe.needs.push(Need { container, chunk: number, size: chunk.size });
        }
        recipe.containers.resize(containers.len(), Vec::new());
        for chunk in catalogue {
            let Some(container) = containers.get(&chunk.container) else { continue };
            let fresh = numbers.len() as u32;
            let number = *numbers.entry((chunk.container, chunk.offset)).or_insert(fresh);
            let held = Held { chunk: number, offset: chunk.offset, size: chunk.size };
            recipe.containers[*container as usize].push(held);
        }
        recipe
    }

    /// Bytes of the stream.
    pub(crate) fn bytes(&self) -> u64 {
        self.needs.iter().map(|need| u64::from(need.size)).sum()
    }

    pub(crate) fn container_bytes(&self, container: u32) -> u64 {
        self.containers[container as usize].iter().map(|held| u64::from(held.size)).sum()
    }

    /// Numbers of chunks are below this.
    pub(crate) fn chunk_count(&self) -> usize {
        self.containers.iter().map(Vec::len).sum()
    }

    /// The order in which files can be written to a disk: container by container, every chunk to all its places.
    pub(crate) fn by_container(&self) -> Self {
        let mut needs = self.needs.clone();
        needs.sort_by_key(|need| (need.container, need.chunk));
        Self { needs, containers: self.containers.clone() }
    }
}

/// A container to be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Read {
    pub(crate) container: u32,
    /// The place in the stream that cannot be written before it is there.
    pub(crate) at: usize,
    /// There is room for it once the stream has been written up to this place. Ascends with `at`.
    pub(crate) ready: usize,
    pub(crate) bytes: u64,
    pub(crate) requests: u32,
}

/// What a policy reads, in the order in which it is needed.
#[derive(Debug, Clone, Default)]
pub(crate) struct Plan {
    pub(crate) reads: Vec<Read>,
    /// Reads in flight at once that the policy has room for; more threads than that do not help.
    pub(crate) depth: usize,
    /// Bytes that came back from the disk tier.
    pub(crate) spilled: u64,
}

impl Plan {
    pub(crate) fn bytes(&self) -> u64 {
        self.reads.iter().map(|read| read.bytes).sum()
    }
}

/// Prefix sums of the stream's bytes: byte offset of every place.
fn offsets(recipe: &Recipe) -> Vec<u64> {
    let mut offsets = vec![0];
    for need in &recipe.needs {
        offsets.push(offsets[offsets.len() - 1] + u64::from(need.size));
    }
    offsets
}

/// Seconds until the whole stream is written, simulated.
///
/// `threads` read ahead, each one container at a time, in the order of the plan; with none, the writer itself reads what it misses.
/// The writer takes `rate` bytes a second when it need not wait.
pub(crate) fn simulate(recipe: &Recipe, plan: &Plan, link: Link, threads: usize, rate: f64) -> f64 {
    let offsets = offsets(recipe);
    let seconds = |read: &Read| f64::from(read.requests) * link.latency + read.bytes as f64 / link.rate;
    let whole = recipe.bytes() as f64 / rate;
    let threads = threads.min(plan.depth);
    if threads == 0 {
        return whole + plan.reads.iter().map(seconds).sum::<f64>();
    }
    let mut free: BinaryHeap<Reverse<Instant>> = (0..threads).map(|_| Reverse(Instant(0.0))).collect();
    let mut done: Vec<f64> = Vec::with_capacity(plan.reads.len());
    let mut writer = Writer { time: 0.0, place: 0, next: 0 };
    for read in &plan.reads {
        writer.advance(read.ready, &plan.reads, &done, &offsets, rate);
        let Some(Reverse(Instant(thread))) = free.pop() else { break };
        let end = thread.max(writer.time) + seconds(read);
        free.push(Reverse(Instant(end)));
        done.push(end);
    }
    writer.advance(recipe.needs.len(), &plan.reads, &done, &offsets, rate);
    writer.time
}

/// The writer of the stream in virtual time.
struct Writer {
    time: f64,
    place: usize,
    /// The first read it has not waited for.
    next: usize,
}

impl Writer {
    /// Writes everything before `place`.
    fn advance(&mut self, place: usize, reads: &[Read], done: &[f64], offsets: &[u64], rate: f64) {
        let write = |from: usize, to: usize| (offsets[to] - offsets[from]) as f64 / rate;
        while let Some(read) = reads.get(self.next).filter(|read| read.at < place) {
            self.time += write(self.place, read.at);
            self.place = read.at;
            self.time = self.time.max(done[self.next]);
            self.next += 1;
        }
        if place > self.place {
            self.time += write(self.place, place);
            self.place = place;
        }
    }
}

/// A finite time, to be ordered.
#[derive(PartialEq)]
struct Instant(f64);

impl Eq for Instant {}

impl PartialOrd for Instant {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Instant {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.0.total_cmp(&other.0)
    }
}
