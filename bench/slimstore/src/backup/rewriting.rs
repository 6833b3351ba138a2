//! HAR and Capping: duplicates in containers that hold little of a stream are stored again while it is backed up.
//!
//! Both over an exact index that always leads to the newest copy; only what they store again differs. Their rules are
//! [`larder_bench_common::rewriting`].

use std::collections::{HashMap, HashSet};

use larder_bench_common::rewriting::{CAPPED_BYTES, capped, sparse};
use larder_format::ids::ContainerId;
use larder_format::{ChunkRef, Fingerprint};

use super::{Detector, Output, Piece};
use crate::clock::Traffic;

/// See the module header.
#[derive(Default)]
pub(crate) struct Har {
    index: HashMap<Fingerprint, ChunkRef>,
    /// Bytes in each container.
    held: HashMap<ContainerId, u64>,
    /// What the version at hand uses of each, every chunk once.
    used: HashMap<ContainerId, u64>,
    seen: HashSet<(ContainerId, u32)>,
    bytes: u64,
    sparse: HashSet<ContainerId>,
}

impl Har {
    pub(crate) fn new() -> Self {
        Self::default()
    }
}

impl Detector for Har {
    fn begin(&mut self, _: &Output) {
        self.used.clear();
        self.seen.clear();
        self.bytes = 0;
    }

    fn detect(&mut self, pieces: &[Piece], output: &mut Output) {
        for piece in pieces {
            let chunk = match self.index.get(&piece.fingerprint) {
                Some(chunk) if !self.sparse.contains(&chunk.container) => {
                    output.reuse(*chunk);
                    *chunk
                }
                _ => {
                    let chunk = output.store(piece);
                    *self.held.entry(chunk.container).or_default() += u64::from(chunk.size);
                    self.index.insert(piece.fingerprint, chunk);
                    chunk
                }
            };
            self.bytes += u64::from(chunk.size);
            if self.seen.insert((chunk.container, chunk.offset)) {
                *self.used.entry(chunk.container).or_default() += u64::from(chunk.size);
            }
        }
    }

    fn finish(&mut self, _: &mut Output) {
        let held = |container: &ContainerId| self.held.get(container).copied().unwrap_or(0);
        self.sparse = sparse(&self.used, held, self.bytes);
    }

    fn traffic(&self) -> Traffic {
        Traffic::default()
    }

    fn resident_bytes(&self) -> usize {
        self.index.capacity() * (size_of::<(Fingerprint, ChunkRef)>() + 1)
    }
}

/// See the module header.
#[derive(Default)]
pub(crate) struct Capping {
    index: HashMap<Fingerprint, ChunkRef>,
    waiting: Vec<Piece>,
    waiting_bytes: u64,
}

impl Capping {
    pub(crate) fn new() -> Self {
        Self::default()
    }

    fn decide(&mut self, output: &mut Output) {
        let own = output.job();
        let mut used: HashMap<ContainerId, u64> = HashMap::new();
        for piece in &self.waiting {
            if let Some(chunk) = self.index.get(&piece.fingerprint).filter(|chunk| chunk.container.job != own) {
                *used.entry(chunk.container).or_default() += u64::from(piece.size);
            }
        }
        let reclaimed = capped(&used, u64::from(output.container_bytes()));
        for piece in self.waiting.drain(..) {
            match self.index.get(&piece.fingerprint) {
                Some(chunk) if !reclaimed.contains(&chunk.container) => output.reuse(*chunk),
                _ => drop(self.index.insert(piece.fingerprint, output.store(&piece))),
            }
        }
        self.waiting_bytes = 0;
    }
}

impl Detector for Capping {
    fn begin(&mut self, _: &Output) {}

    fn detect(&mut self, pieces: &[Piece], output: &mut Output) {
        for piece in pieces {
            self.waiting.push(*piece);
            self.waiting_bytes += u64::from(piece.size);
            if self.waiting_bytes >= CAPPED_BYTES {
                self.decide(output);
            }
        }
    }

    fn finish(&mut self, output: &mut Output) {
        self.decide(output);
    }

    fn traffic(&self) -> Traffic {
        Traffic::default()
    }

    fn resident_bytes(&self) -> usize {
        self.index.capacity() * (size_of::<(Fingerprint, ChunkRef)>() + 1)
    }
}
