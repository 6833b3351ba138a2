//! HAR and Capping: duplicates in containers that hold little of a stream are stored again while it is backed up.
//!
//! Both over an exact index that always leads to the newest copy; only what they store again differs. Their rules are
//! [`larder_bench_common::rewriting`].

use std::collections::{HashMap, HashSet};

use larder_bench_common::names::NameMap;
use larder_bench_common::rewriting::{CAPPED_BYTES, capped, capped_within, sparse, sparse_within};
use larder_format::ids::ContainerId;
use larder_format::{ChunkRef, Fingerprint};

use super::{Detector, Output, Piece};
use crate::clock::Traffic;

/// See the module header.
#[derive(Default)]
pub(crate) struct Har {
    index: NameMap<Fingerprint, ChunkRef>,
    /// Bytes in each container.
    held: HashMap<ContainerId, u64>,
    /// What the version at hand uses of each, every chunk once.
    used: HashMap<ContainerId, u64>,
    seen: HashSet<(ContainerId, u32)>,
    bytes: u64,
    sparse: HashSet<ContainerId>,
    /// Bytes that may be stored again, in place of HAR's own limits.
    allowance: Option<u64>,
}

impl Har {
    pub(crate) fn new() -> Self {
        Self::default()
    }

    /// HAR that stores again what it is allowed to, from the sparsest containers, however sparse they are.
    pub(crate) fn within_allowance() -> Self {
        Self { allowance: Some(0), ..Self::default() }
    }

    fn held(&self) -> impl Fn(&ContainerId) -> u64 {
        |container| self.held.get(container).copied().unwrap_or(0)
    }
}

impl Detector for Har {
    fn allow(&mut self, copies: u64, _: u64) {
        if let Some(allowance) = &mut self.allowance {
            *allowance += copies;
        }
    }

    fn begin(&mut self, _: &Output) {
        if let Some(allowance) = self.allowance {
            self.sparse = sparse_within(&self.used, self.held(), 100, allowance);
        }
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
                known => {
                    if let (Some(_), Some(allowance)) = (known, &mut self.allowance) {
                        *allowance = allowance.saturating_sub(u64::from(piece.size));
                    }
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
        self.sparse = sparse(&self.used, self.held(), self.bytes);
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
    index: NameMap<Fingerprint, ChunkRef>,
    waiting: Vec<Piece>,
    waiting_bytes: u64,
    /// Bytes that may be stored again, in place of a number of containers, and the bytes of the version that are to come.
    allowance: Option<(u64, u64)>,
}

impl Capping {
    pub(crate) fn new() -> Self {
        Self::default()
    }

    /// Capping that stores again what it is allowed to, in each stretch its share.
    pub(crate) fn within_allowance() -> Self {
        Self { allowance: Some((0, 0)), ..Self::default() }
    }

    fn decide(&mut self, output: &mut Output) {
        let own = output.job();
        let mut used: HashMap<ContainerId, u64> = HashMap::new();
        for piece in &self.waiting {
            if let Some(chunk) = self.index.get(&piece.fingerprint).filter(|chunk| chunk.container.job != own) {
                *used.entry(chunk.container).or_default() += u64::from(piece.size);
            }
        }
        let reclaimed = match &mut self.allowance {
            None => capped(&used, u64::from(output.container_bytes())),
            Some((copies, version)) => {
                let share = u128::from(*copies) * u128::from(self.waiting_bytes) / u128::from((*version).max(1));
                *version = version.saturating_sub(self.waiting_bytes);
                let reclaimed = capped_within(&used, share as u64);
                *copies -= reclaimed.iter().map(|container| used[container]).sum::<u64>();
                reclaimed
            }
        };
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
    fn allow(&mut self, copies: u64, version: u64) {
        if let Some(allowance) = &mut self.allowance {
            *allowance = (allowance.0 + copies, version);
        }
    }

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
