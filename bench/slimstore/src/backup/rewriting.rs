//! HAR and Capping: duplicates in containers that hold little of a stream are stored again while it is backed up.
//!
//! Both as their descriptions and destor have them, over an exact index that always leads to the newest copy; only what they store
//! again differs. HAR (Fu and others, 2014): containers of which the version before used less than half are sparse, the sparsest
//! first, until what they hold of it is 5 % of it; this version stores again what it would take from them. Capping (Lillibridge and
//! others, 2013): each 20 MiB of the stream may refer to 10 older containers of 8 MiB, as many bytes as 20 of 4 MiB.

use std::collections::{HashMap, HashSet};

use larder_format::ids::ContainerId;
use larder_format::{ChunkRef, Fingerprint};

use super::{Detector, Output, Piece};
use crate::clock::Traffic;

/// A container is sparse when less than this share of it is used (percent).
const SPARSE_PERCENT: u64 = 50;
/// Of a version's bytes at most so many percent are expected to be stored again.
const LIMIT_PERCENT: u64 = 5;
/// What Capping looks at at once (bytes of the stream).
const CAPPED_BYTES: u64 = 20 << 20;
/// Older containers that this much may refer to.
const CAP: usize = 10;

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
        let is_sparse = |(container, used): &(&ContainerId, &u64)| **used * 100 < held(container) * SPARSE_PERCENT;
        let mut sparse: Vec<(ContainerId, u64)> =
            self.used.iter().filter(is_sparse).map(|(container, used)| (*container, *used)).collect();
        sparse.sort_by_key(|(container, used)| (used * 10_000 / held(container).max(1), *container));
        let mut left = self.bytes * LIMIT_PERCENT / 100;
        let within = sparse.into_iter().map_while(|(container, used)| {
            left = left.checked_sub(used)?;
            Some(container)
        });
        self.sparse = within.collect();
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
        let mut used: Vec<(ContainerId, u64)> = used.into_iter().collect();
        used.sort_by_key(|(container, bytes)| (std::cmp::Reverse(*bytes), *container));
        let given_up: HashSet<ContainerId> = used.iter().skip(CAP).map(|(container, _)| *container).collect();
        for piece in self.waiting.drain(..) {
            match self.index.get(&piece.fingerprint) {
                Some(chunk) if !given_up.contains(&chunk.container) => output.reuse(*chunk),
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
