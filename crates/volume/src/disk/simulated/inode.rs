//! A file of the simulated disk: what the system shows, and what may be on the disk.

use std::collections::{HashMap, HashSet};

use super::SECTOR;

/// The disk allocates space in units of this.
const PAGE: usize = 4096;

#[derive(Default)]
pub(super) struct Inode {
    /// What the system shows.
    pub(super) now: Vec<u8>,
    /// Bytes whose space is allocated, whatever the length is.
    pub(super) reserved: usize,
    /// What is surely on the disk.
    durable: Vec<u8>,
    /// Contents of sectors, by number, that may be on the disk instead.
    sectors: HashMap<usize, Vec<Vec<u8>>>,
    /// Lengths that the file may have instead.
    lengths: Vec<usize>,
    /// Sectors that the system shows, and which it takes for written since a sync failed. Later
    /// syncs do not write them.
    forgotten: HashSet<usize>,
}

impl Inode {
    fn sector(&self, number: usize) -> Vec<u8> {
        let end = self.now.len().min((number + 1) * SECTOR);
        let mut sector = self.now.get(number * SECTOR..end).unwrap_or_default().to_vec();
        sector.resize(SECTOR, 0);
        sector
    }

    /// Bytes of the disk that it takes.
    pub(super) fn allocated(&self) -> u64 {
        self.now.len().max(self.reserved).next_multiple_of(PAGE) as u64
    }

    pub(super) fn note(&mut self, from: usize, to: usize) {
        for number in from / SECTOR..to.div_ceil(SECTOR) {
            let sector = self.sector(number);
            self.sectors.entry(number).or_default().push(sector);
            self.forgotten.remove(&number);
        }
        self.lengths.push(self.now.len());
    }

    pub(super) fn fall(&mut self, roll: &mut impl FnMut(usize) -> usize) {
        let choice = roll(self.lengths.len() + 1);
        let length = self.lengths.get(choice).copied().unwrap_or(self.durable.len());
        let mut after = std::mem::take(&mut self.durable);
        after.resize(length, 0);
        let mut numbers: Vec<_> = self.sectors.keys().copied().collect();
        numbers.sort_unstable();
        // Often all or nothing of a write survives; a mixture of every sector is rarer.
        let mood = roll(4);
        for number in numbers {
            let versions = &self.sectors[&number];
            let choice = match mood {
                0 => 0,
                1 => versions.len(),
                _ => roll(versions.len() + 1),
            };
            let Some(version) = choice.checked_sub(1).and_then(|at| versions.get(at)) else { continue };
            let from = number * SECTOR;
            if from < after.len() {
                let end = after.len().min(from + SECTOR);
                after[from..end].copy_from_slice(&version[..end - from]);
            }
        }
        self.now = after.clone();
        self.durable = after;
        self.forgotten.clear();
        self.sectors.clear();
        self.lengths.clear();
    }

    pub(super) fn lose(&mut self) {
        self.now.clone_from(&self.durable);
        self.forgotten.clear();
        self.sync();
    }

    pub(super) fn sync(&mut self) {
        let before = std::mem::replace(&mut self.durable, self.now.clone());
        for from in self.forgotten.iter().map(|number| number * SECTOR) {
            let end = self.durable.len().min(from + SECTOR);
            if from < end {
                let mut sector = before.get(from..end.min(before.len())).unwrap_or_default().to_vec();
                sector.resize(end - from, 0);
                self.durable[from..end].copy_from_slice(&sector);
            }
        }
        self.sectors.clear();
        self.lengths.clear();
    }

    /// A sync fails: the system forgets that it has something to write.
    pub(super) fn fail_sync(&mut self) {
        self.forgotten.extend(self.sectors.drain().map(|(number, _)| number));
        self.lengths.clear();
    }
}
