//! SiLo (Xia and others, 2011), as its description has it: similarity finds a segment, locality brings its neighbours.
//!
//! The stream is cut into segments of a fixed number of chunks; sixteen in a row are a block. A segment's representative is its
//! smallest fingerprint. A table in memory knows the block of every representative; when a new segment's representative is in it,
//! that block is read, and the chunks of the segment are looked for in all blocks that are cached, and in the block being written.
//! So a segment without a similar one still finds its chunks when its neighbours brought the right block.

use larder_bench_common::names::NameMap;
use larder_format::{ChunkRef, Fingerprint};
use lru::LruCache;

use super::{CACHE_BYTES, Detector, Output, Piece, manifest};
use crate::clock::Traffic;

/// Chunks of a segment: 2 MiB at 4 KiB.
const SEGMENT_CHUNKS: usize = 512;
/// Segments of a block: 32 MiB of data. The published default is 256 MiB, which is more than a whole version here.
const BLOCK_SEGMENTS: usize = 16;

/// See the module header.
pub(crate) struct SiLo {
    /// Representative to block, the newest one.
    similar: NameMap<Fingerprint, u32>,
    /// Blocks on the store.
    blocks: Vec<Vec<u8>>,
    cache: LruCache<u32, Vec<Fingerprint>>,
    cached_bytes: usize,
    /// All chunks of cached blocks, with the block that brought them last.
    located: NameMap<Fingerprint, (ChunkRef, u32)>,
    segment: Vec<Piece>,
    block: Vec<ChunkRef>,
    block_chunks: NameMap<Fingerprint, ChunkRef>,
    block_segments: usize,
    representatives: Vec<Fingerprint>,
    traffic: Traffic,
}

impl SiLo {
    pub(crate) fn new() -> Self {
        Self {
            similar: NameMap::default(),
            blocks: Vec::new(),
            cache: LruCache::unbounded(),
            cached_bytes: 0,
            located: NameMap::default(),
            segment: Vec::new(),
            block: Vec::new(),
            block_chunks: NameMap::default(),
            block_segments: 0,
            representatives: Vec::new(),
            traffic: Traffic::default(),
        }
    }

    fn end_segment(&mut self, output: &mut Output) {
        let segment = std::mem::take(&mut self.segment);
        let Some(representative) = segment.iter().map(|piece| piece.fingerprint).min_by_key(|name| name.0) else {
            return;
        };
        if let Some(block) = self.similar.get(&representative).copied() {
            self.fetch(block);
        }
        for piece in &segment {
            let name = &piece.fingerprint;
            let known =
                self.located.get(name).map(|(chunk, _)| *chunk).or_else(|| self.block_chunks.get(name).copied());
            let chunk = match known {
                Some(chunk) => {
                    output.reuse(chunk);
                    chunk
                }
                None => output.store(piece),
            };
            self.block_chunks.insert(*name, chunk);
            self.block.push(chunk);
        }
        self.representatives.push(representative);
        self.block_segments += 1;
        if self.block_segments == BLOCK_SEGMENTS {
            self.end_block();
        }
        self.segment = segment;
        self.segment.clear();
    }

    /// Writes the block, which stays cached.
    fn end_block(&mut self) {
        if self.block.is_empty() {
            return;
        }
        let number = self.blocks.len() as u32;
        let records: Vec<_> = self.block.drain(..).map(manifest::ageless).collect();
        let bytes = manifest::encode(&records, &[]);
        for representative in self.representatives.drain(..) {
            self.similar.insert(representative, number);
        }
        self.admit(number, records.iter().map(|record| record.chunk), bytes.len());
        self.blocks.push(bytes);
        self.block_chunks.clear();
        self.block_segments = 0;
    }

    fn fetch(&mut self, number: u32) {
        if self.cache.get(&number).is_some() {
            return;
        }
        let bytes = &self.blocks[number as usize];
        self.traffic.add(bytes.len());
        let length = bytes.len();
        let records = manifest::decode(bytes).records;
        self.admit(number, records.iter().map(|record| record.chunk), length);
    }

    fn admit(&mut self, number: u32, chunks: impl Iterator<Item = ChunkRef>, bytes: usize) {
        let mut names = Vec::new();
        for chunk in chunks {
            names.push(chunk.fingerprint);
            self.located.insert(chunk.fingerprint, (chunk, number));
        }
        self.cached_bytes += bytes;
        self.cache.put(number, names);
        while self.cached_bytes > CACHE_BYTES && self.cache.len() > 1 {
            let Some((old, names)) = self.cache.pop_lru() else { break };
            self.cached_bytes -= self.blocks[old as usize].len();
            for name in names {
                if self.located.get(&name).is_some_and(|(_, block)| *block == old) {
                    self.located.remove(&name);
                }
            }
        }
    }
}

impl Detector for SiLo {
    fn begin(&mut self, _: &Output) {
        self.cache.clear();
        self.cached_bytes = 0;
        self.located.clear();
    }

    fn detect(&mut self, pieces: &[Piece], output: &mut Output) {
        for piece in pieces {
            self.segment.push(*piece);
            if self.segment.len() == SEGMENT_CHUNKS {
                self.end_segment(output);
            }
        }
    }

    fn finish(&mut self, output: &mut Output) {
        self.end_segment(output);
        self.end_block();
    }

    fn traffic(&self) -> Traffic {
        self.traffic
    }

    fn resident_bytes(&self) -> usize {
        self.similar.capacity() * (size_of::<(Fingerprint, u32)>() + 1)
    }
}
