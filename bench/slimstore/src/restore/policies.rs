//! The rivals' caches that replace one at a time: whole containers by Belady's rule, and chunks by least recent use.

use std::collections::{BTreeSet, HashMap, HashSet};

use lru::LruCache;

use super::{Plan, Read, Recipe};

/// A cache of whole containers that evicts the one needed farthest in the future (HAR's OPT cache), with the whole recipe known:
/// no policy for whole containers reads fewer.
///
/// For `threads` prefetching threads, as many of the slots are buffers of reads in flight, and the rest is managed.
pub(crate) fn opt_containers(recipe: &Recipe, cache_bytes: u64, container_bytes: u64, threads: usize) -> Plan {
    farthest_first(recipe, cache_bytes, container_bytes, threads, Evicted::ReadAgain)
}

/// The same with a disk behind it, as Larder serves a stream: what leaves memory and is needed again goes to disk once and stays there,
/// so the store is asked for every container once. It is read there by frames, which count as spilled.
pub(crate) fn containers_with_disk(recipe: &Recipe, cache_bytes: u64, container_bytes: u64, threads: usize) -> Plan {
    farthest_first(recipe, cache_bytes, container_bytes, threads, Evicted::ToDisk)
}

/// What becomes of a container that is needed again and has to leave memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Evicted {
    ReadAgain,
    ToDisk,
}

/// Bytes that are read from disk and opened at once: Larder's frames.
const FRAME: u32 = 512 << 10;

fn farthest_first(recipe: &Recipe, cache_bytes: u64, container_bytes: u64, threads: usize, evicted: Evicted) -> Plan {
    let slots = ((cache_bytes / container_bytes) as usize).max(1);
    let depth = threads.min(slots - 1);
    let slots = slots - depth;
    // Uses in a row of one container are one access.
    let mut accesses: Vec<(usize, u32)> = Vec::new();
    for (place, need) in recipe.needs.iter().enumerate() {
        if accesses.last().is_none_or(|(_, container)| *container != need.container) {
            accesses.push((place, need.container));
        }
    }
    let mut next_use = vec![usize::MAX; accesses.len()];
    let mut seen = HashMap::new();
    for (access, (_, container)) in accesses.iter().enumerate().rev() {
        next_use[access] = seen.insert(*container, access).unwrap_or(usize::MAX);
    }
    let frames: HashMap<u32, u32> =
        recipe.containers.iter().flatten().map(|held| (held.chunk, held.offset / FRAME)).collect();
    let mut cached: HashMap<u32, usize> = HashMap::new();
    let mut order: BTreeSet<(usize, u32)> = BTreeSet::new();
    let (mut on_disk, mut spilled) = (HashSet::new(), 0);
    let mut reads: Vec<Read> = Vec::new();
    for (access, (place, container)) in accesses.iter().enumerate() {
        if on_disk.contains(container) {
            let end = accesses.get(access + 1).map_or(recipe.needs.len(), |(next, _)| *next);
            let mut opened: Vec<u32> = recipe.needs[*place..end].iter().map(|need| frames[&need.chunk]).collect();
            opened.sort_unstable();
            opened.dedup();
            spilled += opened.len() as u64 * u64::from(FRAME);
            continue;
        }
        match cached.get(container) {
            Some(next) => drop(order.remove(&(*next, *container))),
            None => {
                if cached.len() == slots
                    && let Some((next, victim)) = order.pop_last()
                {
                    cached.remove(&victim);
                    if evicted == Evicted::ToDisk && next != usize::MAX {
                        on_disk.insert(victim);
                    }
                }
                // A buffer is free again when the container read `depth` before has been taken into the cache.
                let ready = reads
                    .len()
                    .checked_sub(depth)
                    .map_or(0, |earlier| reads.get(earlier).map_or(*place, |read: &Read| read.at));
                let bytes = recipe.container_bytes(*container);
                reads.push(Read { container: *container, at: *place, ready, bytes, requests: 1 });
            }
        }
        cached.insert(*container, next_use[access]);
        order.insert((next_use[access], *container));
    }
    Plan { reads, depth, spilled }
}

/// A cache of chunks that evicts the least recently used; a container that is read brings all its chunks.
pub(crate) fn chunk_lru(recipe: &Recipe, cache_bytes: u64) -> Plan {
    let mut cache: LruCache<u32, u32> = LruCache::unbounded();
    let mut cached = 0;
    let mut plan = Plan::default();
    for (place, need) in recipe.needs.iter().enumerate() {
        if cache.get(&need.chunk).is_some() {
            continue;
        }
        let bytes = recipe.container_bytes(need.container);
        plan.reads.push(Read { container: need.container, at: place, ready: place, bytes, requests: 1 });
        for held in &recipe.containers[need.container as usize] {
            if cache.put(held.chunk, held.size).is_none() {
                cached += u64::from(held.size);
            }
        }
        cache.promote(&need.chunk);
        while cached > cache_bytes && cache.len() > 1 {
            let Some((_, size)) = cache.pop_lru() else { break };
            cached -= u64::from(size);
        }
    }
    plan
}
