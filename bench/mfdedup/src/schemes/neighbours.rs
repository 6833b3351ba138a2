//! Finding duplicates in this version and the one before only (NDF), and the life of every chunk that is stored.
//!
//! A chunk is named by versions in a row: from the one that stored it to the last that had it. When it comes back later, it is stored again
//! ([`Bases::One`]). Where that happens too often, more versions before are asked ([`Bases::WhenLost`]), and what is found there was not
//! used by those between.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};

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

/// In how many versions before it a version looks for duplicates.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum Bases {
    /// One, as in the paper.
    #[default]
    One,
    /// One, and so many when one of the two newest versions lost more than 2 % of what its base did not have: the program's rule, with three.
    WhenLost(usize),
}

/// Share of what the base does not have from which more versions are asked.
const LOST_MAX: f64 = 0.02;

/// See the module header.
#[derive(Debug, Default)]
pub(super) struct Neighbours {
    pub(super) lives: Vec<Life>,
    own: HashMap<Fingerprint, u32>,
    /// Tables of the versions before, the newest first.
    before: VecDeque<HashMap<Fingerprint, u32>>,
    bases: Bases,
    /// Of the two newest versions, whether they lost too much.
    lost: [bool; 2],
    /// Entries of the tables of versions before that the newest version asked.
    asked: usize,
    pub(super) newest: Number,
    pub(super) retained: BTreeSet<Number>,
    recipes: BTreeMap<Number, Vec<u32>>,
}

impl Neighbours {
    pub(super) fn with(bases: Bases) -> Self {
        Self { bases, ..Self::default() }
    }

    /// How many versions before are asked.
    fn asks(&self) -> usize {
        match self.bases {
            Bases::WhenLost(most) if self.lost.contains(&true) => most,
            Bases::One | Bases::WhenLost(_) => 1,
        }
    }

    /// Backs up the next version. What is new goes to `store`, in the order of the stream.
    pub(super) fn back_up(&mut self, version: Number, pieces: &[Piece], mut store: impl FnMut(u32, &Piece)) {
        self.before.push_front(std::mem::take(&mut self.own));
        let most = if let Bases::WhenLost(most) = self.bases { most.max(2) } else { 1 };
        self.before.truncate(most);
        // Only what is retained can be named.
        let there = (1..=self.before.len() as Number).take_while(|back| self.retained.contains(&(version - back)));
        let asked = self.asks().min(there.count()).max(1);
        let mut recipe = Vec::with_capacity(pieces.len());
        // Bytes that the base does not have, and those of them that the version before it has.
        let (mut unknown, mut skipped) = (0u64, 0u64);
        for piece in pieces {
            let number = match self.own.get(&piece.fingerprint) {
                Some(number) => *number,
                None => {
                    let mut tables = self.before.iter().take(asked);
                    let number = tables.find_map(|table| table.get(&piece.fingerprint)).copied().unwrap_or_else(|| {
                        let number = self.lives.len() as u32;
                        self.lives.push(Life { piece: *piece, first: version, last: version });
                        store(number, piece);
                        number
                    });
                    let has =
                        |back: usize| self.before.get(back).is_some_and(|table| table.contains_key(&piece.fingerprint));
                    if !has(0) {
                        unknown += u64::from(piece.size);
                        skipped += if has(1) { u64::from(piece.size) } else { 0 };
                    }
                    self.lives[number as usize].last = version;
                    self.own.insert(piece.fingerprint, number);
                    number
                }
            };
            recipe.push(number);
        }
        self.lost = [skipped as f64 > unknown as f64 * LOST_MAX, self.lost[0]];
        self.asked = self.before.iter().take(asked).map(HashMap::len).sum();
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

    /// Entries of the newest version's own table, and of those that it asked.
    pub(super) fn entries(&self) -> (usize, usize) {
        (self.own.len(), self.asked)
    }

    /// Stored chunks that a version consists of, in the order of its stream.
    #[cfg(test)]
    pub(super) fn recipe(&self, version: Number) -> &[u32] {
        self.recipes.get(&version).map_or(&[], Vec::as_slice)
    }
}
