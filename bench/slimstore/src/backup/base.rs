//! The base version's recipe on the simulated store, as [`GroupFilter`](larder_dedup::GroupFilter) reads it.
//!
//! Segments lie encoded in metadata containers; loading one reads its whole container unless it is among the last
//! [`CACHE_BYTES`] read, and decodes it.

use std::collections::HashMap;
use std::convert::Infallible;
use std::sync::Arc;

use larder_dedup::{Group, LoadGroup, NoteGroups, sample};
use larder_format::segment::Superchunk;
use lru::LruCache;

use super::{CACHE_BYTES, manifest};
use crate::clock::Traffic;

/// A segment on the simulated store, and what its node says of it.
#[derive(Debug, Clone)]
pub(super) struct Stored {
    pub(super) bytes: Arc<[u8]>,
    pub(super) container: u32,
    pub(super) chunks: usize,
    pub(super) samples: Vec<u64>,
    pub(super) proof: Option<Proof>,
}

/// Proves a run of chunks with one MAC: bytes, MAC over them, and lengths of the last chunks, which cuts look ahead from.
#[derive(Debug, Clone)]
pub(super) struct Proof {
    pub(super) bytes: usize,
    pub(super) mac: [u8; 16],
    pub(super) tail: Vec<u32>,
}

/// See the module header.
#[derive(Debug)]
pub(super) struct Base {
    pub(super) segments: Arc<Vec<Stored>>,
    container_bytes: HashMap<u32, usize>,
    cache: LruCache<u32, usize>,
    cached_bytes: usize,
    pub(super) traffic: Traffic,
    /// Superchunks of segments that were loaded.
    pub(super) superchunks: HashMap<u32, Vec<Superchunk>>,
}

impl Base {
    pub(super) fn new(segments: Arc<Vec<Stored>>, container_bytes: HashMap<u32, usize>) -> Self {
        Self {
            segments,
            container_bytes,
            cache: LruCache::unbounded(),
            cached_bytes: 0,
            traffic: Traffic::default(),
            superchunks: HashMap::new(),
        }
    }

    fn read(&mut self, container: u32) {
        if self.cache.get(&container).is_some() {
            return;
        }
        let bytes = self.container_bytes[&container];
        self.traffic.add(bytes);
        self.cache.put(container, bytes);
        self.cached_bytes += bytes;
        while self.cached_bytes > CACHE_BYTES && self.cache.len() > 1 {
            let Some((_, bytes)) = self.cache.pop_lru() else { break };
            self.cached_bytes -= bytes;
        }
    }
}

impl LoadGroup for Base {
    type Error = Infallible;

    fn groups(&self) -> u32 {
        self.segments.len() as u32
    }

    fn load(&mut self, group: u32) -> Result<Group, Infallible> {
        self.read(self.segments[group as usize].container);
        let Stored { bytes, .. } = &self.segments[group as usize];
        let segment = manifest::decode(bytes);
        if !segment.superchunks.is_empty() {
            self.superchunks.insert(group, segment.superchunks);
        }
        Ok(Arc::new(segment.records))
    }

    /// As the L-node does it: all chunks when they fit, else the samples that the recipe's nodes keep. The nodes' own few
    /// kilobytes are not counted.
    fn fill(&mut self, index: &mut dyn NoteGroups) -> Result<(), Infallible> {
        let exact = self.segments.iter().map(|segment| segment.chunks).sum::<usize>() as u64 <= index.capacity();
        for number in 0..self.groups() {
            if exact {
                let records = self.load(number)?;
                records.iter().for_each(|record| index.note(sample(&record.chunk.fingerprint), number));
            } else {
                self.segments[number as usize].samples.iter().for_each(|sample| index.note(*sample, number));
            }
        }
        Ok(())
    }
}
