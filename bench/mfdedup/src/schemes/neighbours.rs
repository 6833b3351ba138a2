//! Finding duplicates in this version and the one before only (NDF), and the life of every chunk that is stored.
//!
//! A chunk is named by versions in a row: from the one that stored it to the last that had it. When it comes back later, it is stored again.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use larder_bench_common::front::Piece;
use larder_chunking::Fingerprint;

use super::Number;

/// A chunk that was stored, with the versions that have it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Life {
    pub(super) piece: Piece,
    pub(super) first: Number,
    pub(super) last: Number,
}

/// See the module header.
#[derive(Debug, Default)]
pub(super) struct Neighbours {
    pub(super) lives: Vec<Life>,
    before: HashMap<Fingerprint, u32>,
    own: HashMap<Fingerprint, u32>,
    pub(super) newest: Number,
    pub(super) retained: BTreeSet<Number>,
    recipes: BTreeMap<Number, Vec<u32>>,
}

impl Neighbours {
    /// Backs up the next version. What is new goes to `store`, in the order of the stream.
    pub(super) fn back_up(&mut self, version: Number, pieces: &[Piece], mut store: impl FnMut(u32, &Piece)) {
        self.before = std::mem::take(&mut self.own);
        let mut recipe = Vec::with_capacity(pieces.len());
        for piece in pieces {
            let number = match self.own.get(&piece.fingerprint) {
                Some(number) => *number,
                None => {
                    let number = self.before.get(&piece.fingerprint).copied().unwrap_or_else(|| {
                        let number = self.lives.len() as u32;
                        self.lives.push(Life { piece: *piece, first: version, last: version });
                        store(number, piece);
                        number
                    });
                    self.lives[number as usize].last = version;
                    self.own.insert(piece.fingerprint, number);
                    number
                }
            };
            recipe.push(number);
        }
        self.newest = version;
        self.retained.insert(version);
        self.recipes.insert(version, recipe);
    }

    pub(super) fn delete(&mut self, version: Number) {
        self.retained.remove(&version);
        self.recipes.remove(&version);
    }

    /// Whether a retained version lies among these.
    pub(super) fn is_needed(&self, first: Number, last: Number) -> bool {
        first <= last && self.retained.range(first..=last).next().is_some()
    }

    pub(super) fn life(&self, number: u32) -> &Life {
        &self.lives[number as usize]
    }

    pub(super) fn size(&self, number: u32) -> u64 {
        u64::from(self.life(number).piece.size)
    }

    /// Entries of both tables.
    pub(super) fn entries(&self) -> usize {
        self.before.len() + self.own.len()
    }

    /// Stored chunks that a version consists of, in the order of its stream.
    #[cfg(test)]
    pub(super) fn recipe(&self, version: Number) -> &[u32] {
        self.recipes.get(&version).map_or(&[], Vec::as_slice)
    }
}
