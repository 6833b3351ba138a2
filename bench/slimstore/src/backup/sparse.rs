//! Sparse Indexing (Lillibridge and others, 2009), as its description has it: hooks find manifests, champions are compared.
//!
//! The stream is cut by content into segments of about 10 MiB. One fingerprint in 64 is a hook; a table in memory knows the newest
//! manifests of each hook. Of the manifests that share hooks with a new segment the best are chosen, one after the other, each
//! scored by the hooks that none chosen before has; these champions are read unless cached, and only they are searched.

use std::collections::HashMap;
use std::sync::Arc;

use larder_bench_common::names::NameMap;
use larder_dedup::sample;
use larder_format::{ChunkRef, Fingerprint};
use lru::LruCache;

use super::{CACHE_BYTES, Detector, Output, Piece, manifest};
use crate::clock::Traffic;

/// A segment does not end by content below this (bytes of data).
const SEGMENT_MIN: u64 = 5 << 20;
/// Beyond it, one chunk in this many ends it: 10 MiB on average at 4 KiB.
const SEGMENT_ONE_IN: u64 = 1280;
const SEGMENT_MAX: u64 = 20 << 20;
/// One fingerprint in 2^this is a hook.
const HOOK_ZERO_BITS: u32 = 6;
/// Manifests a hook remembers, the newest.
const MANIFESTS_PER_HOOK: usize = 5;
/// Manifests a segment is compared with at most.
const CHAMPIONS: usize = 10;

type Manifest = NameMap<Fingerprint, ChunkRef>;

/// See the module header.
pub(crate) struct SparseIndexing {
    hooks: NameMap<u64, Vec<u32>>,
    /// Manifests on the store.
    manifests: Vec<Vec<u8>>,
    cache: LruCache<u32, Arc<Manifest>>,
    cached_bytes: usize,
    segment: Vec<Piece>,
    segment_bytes: u64,
    traffic: Traffic,
}

fn is_hook(fingerprint: &Fingerprint) -> bool {
    sample(fingerprint).trailing_zeros() >= HOOK_ZERO_BITS
}

impl SparseIndexing {
    pub(crate) fn new() -> Self {
        Self {
            hooks: NameMap::default(),
            manifests: Vec::new(),
            cache: LruCache::unbounded(),
            cached_bytes: 0,
            segment: Vec::new(),
            segment_bytes: 0,
            traffic: Traffic::default(),
        }
    }

    fn end_segment(&mut self, output: &mut Output) {
        let segment = std::mem::take(&mut self.segment);
        self.segment_bytes = 0;
        if segment.is_empty() {
            return;
        }
        let hooks: Vec<u64> =
            segment.iter().filter(|p| is_hook(&p.fingerprint)).map(|p| sample(&p.fingerprint)).collect();
        let champions: Vec<_> = self.choose(&hooks).into_iter().map(|manifest| self.fetch(manifest)).collect();
        let mut own = Manifest::with_capacity_and_hasher(segment.len(), Default::default());
        let mut records = Vec::with_capacity(segment.len());
        for piece in &segment {
            let name = &piece.fingerprint;
            let known = champions.iter().find_map(|champion| champion.get(name)).or_else(|| own.get(name)).copied();
            let chunk = match known {
                Some(chunk) => {
                    output.reuse(chunk);
                    chunk
                }
                None => output.store(piece),
            };
            own.insert(*name, chunk);
            records.push(manifest::ageless(chunk));
        }
        let number = self.manifests.len() as u32;
        let bytes = manifest::encode(&records, &[]);
        self.admit(number, Arc::new(own), bytes.len());
        self.manifests.push(bytes);
        for hook in hooks {
            let manifests = self.hooks.entry(hook).or_default();
            if manifests.last() != Some(&number) {
                manifests.push(number);
            }
            if manifests.len() > MANIFESTS_PER_HOOK {
                manifests.remove(0);
            }
        }
    }

    /// The champions of a segment with these hooks, the best first.
    fn choose(&self, hooks: &[u64]) -> Vec<u32> {
        let mut shares: HashMap<u32, Vec<usize>> = HashMap::new();
        for (place, hook) in hooks.iter().enumerate() {
            for manifest in self.hooks.get(hook).into_iter().flatten() {
                shares.entry(*manifest).or_default().push(place);
            }
        }
        let mut covered = vec![false; hooks.len()];
        let mut champions = Vec::new();
        while champions.len() < CHAMPIONS {
            let score = |places: &Vec<usize>| places.iter().filter(|place| !covered[**place]).count();
            // Of equal ones the newest.
            let best = shares.iter().map(|(manifest, places)| (score(places), *manifest)).max();
            let Some((1.., manifest)) = best else { break };
            for place in shares.remove(&manifest).unwrap_or_default() {
                covered[place] = true;
            }
            champions.push(manifest);
        }
        champions
    }

    fn fetch(&mut self, number: u32) -> Arc<Manifest> {
        if let Some(manifest) = self.cache.get(&number) {
            return manifest.clone();
        }
        let bytes = &self.manifests[number as usize];
        let length = bytes.len();
        self.traffic.add(length);
        let chunks = manifest::decode(bytes).records.into_iter().map(|record| (record.chunk.fingerprint, record.chunk));
        let manifest: Arc<Manifest> = Arc::new(chunks.collect());
        self.admit(number, manifest.clone(), length);
        manifest
    }

    fn admit(&mut self, number: u32, manifest: Arc<Manifest>, bytes: usize) {
        self.cached_bytes += bytes;
        self.cache.put(number, manifest);
        while self.cached_bytes > CACHE_BYTES && self.cache.len() > 1 {
            let Some((old, _)) = self.cache.pop_lru() else { break };
            self.cached_bytes -= self.manifests[old as usize].len();
        }
    }
}

impl Detector for SparseIndexing {
    fn begin(&mut self, _: &Output) {
        self.cache.clear();
        self.cached_bytes = 0;
    }

    fn detect(&mut self, pieces: &[Piece], output: &mut Output) {
        for piece in pieces {
            self.segment.push(*piece);
            self.segment_bytes += u64::from(piece.size);
            // Other bits than those that make a hook.
            let by_content = (sample(&piece.fingerprint) >> 40).is_multiple_of(SEGMENT_ONE_IN);
            if self.segment_bytes >= SEGMENT_MAX || (self.segment_bytes >= SEGMENT_MIN && by_content) {
                self.end_segment(output);
            }
        }
    }

    fn finish(&mut self, output: &mut Output) {
        self.end_segment(output);
    }

    fn traffic(&self) -> Traffic {
        self.traffic
    }

    fn resident_bytes(&self) -> usize {
        let lists: usize = self.hooks.values().map(|manifests| manifests.capacity() * 4).sum();
        self.hooks.capacity() * (size_of::<(u64, Vec<u32>)>() + 1) + lists
    }
}
