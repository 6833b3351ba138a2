//! The rivals that look ahead by a window: the forward assembly area, and ALACC's combination of it with a chunk cache.

use std::collections::{HashMap, HashSet};
use std::ops::Range;

use lru::LruCache;

use super::{Plan, Read, Recipe};

/// Places that fit into an assembly area, area by area.
fn areas(recipe: &Recipe, area_bytes: u64) -> Vec<Range<usize>> {
    let mut areas = Vec::new();
    let (mut start, mut bytes) = (0, 0);
    for (place, need) in recipe.needs.iter().enumerate() {
        if bytes + u64::from(need.size) > area_bytes && place > start {
            areas.push(start..place);
            (start, bytes) = (place, 0);
        }
        bytes += u64::from(need.size);
    }
    if start < recipe.needs.len() {
        areas.push(start..recipe.needs.len());
    }
    areas
}

/// A forward assembly area: the next stretch of the stream is put together in memory, each of its containers read once for it.
pub(crate) fn forward_assembly(recipe: &Recipe, area_bytes: u64) -> Plan {
    let mut plan = Plan::default();
    for area in areas(recipe, area_bytes) {
        let mut read = HashSet::new();
        for place in area {
            let container = recipe.needs[place].container;
            if read.insert(container) {
                let bytes = recipe.container_bytes(container);
                plan.reads.push(Read { container, at: place, ready: place, bytes, requests: 1 });
            }
        }
    }
    plan
}

/// Shares of memory that the assembly area of [`alacc`] may have.
const AREA_SHARES: [f64; 5] = [0.125, 0.25, 0.5, 0.75, 0.875];
/// Bytes looked ahead, as a multiple of memory.
const LOOK_AHEAD: u64 = 2;

/// Like ALACC: an assembly area, and a cache of chunks for what the look-ahead window says comes again behind it.
///
/// ALACC moves the border between the two while it runs. Here the best of five fixed borders is taken, chosen in hindsight, which is
/// more than it can know. A container read for the area brings into the cache its chunks that the window needs again, and behind
/// those, in what room is left, the ones the area itself has used.
pub(crate) fn alacc(recipe: &Recipe, memory: u64) -> Plan {
    let plans = AREA_SHARES.map(|share| split(recipe, (memory as f64 * share) as u64, memory));
    plans.into_iter().min_by_key(|plan| plan.reads.len()).unwrap_or_default()
}

fn split(recipe: &Recipe, area_bytes: u64, memory: u64) -> Plan {
    let cache_bytes = memory - area_bytes;
    let mut cache: LruCache<u32, u32> = LruCache::unbounded();
    let mut cached = 0;
    let mut plan = Plan::default();
    // Uses of each chunk inside the window, which ends at `seen`.
    let mut window: HashMap<u32, u32> = HashMap::new();
    let mut seen = 0;
    for area in areas(recipe, area_bytes) {
        let mut budget = memory * LOOK_AHEAD;
        let mut end = area.start;
        while end < recipe.needs.len() && budget >= u64::from(recipe.needs[end].size) {
            budget -= u64::from(recipe.needs[end].size);
            end += 1;
        }
        let end = end.max(area.end);
        while seen < end {
            *window.entry(recipe.needs[seen].chunk).or_default() += 1;
            seen += 1;
        }
        // What this area uses is no longer ahead.
        for need in &recipe.needs[area.clone()] {
            if let Some(uses) = window.get_mut(&need.chunk) {
                *uses -= 1;
                if *uses == 0 {
                    window.remove(&need.chunk);
                }
            }
        }
        let mut read = HashSet::new();
        for place in area {
            let need = recipe.needs[place];
            if cache.get(&need.chunk).is_some() || !read.insert(need.container) {
                continue;
            }
            let bytes = recipe.container_bytes(need.container);
            plan.reads.push(Read { container: need.container, at: place, ready: place, bytes, requests: 1 });
            let held = &recipe.containers[need.container as usize];
            let (again, rest): (Vec<super::Held>, Vec<super::Held>) =
                held.iter().copied().partition(|held| window.contains_key(&held.chunk));
            for held in rest.iter().filter(|held| held.chunk == need.chunk).chain(&again) {
                if cache.put(held.chunk, held.size).is_none() {
                    cached += u64::from(held.size);
                }
            }
            while cached > cache_bytes {
                let Some((_, size)) = cache.pop_lru() else { break };
                cached -= u64::from(size);
            }
        }
    }
    plan
}
