//! MFDedup as the paper has it: categories by first and last version, volumes of archived ones, everything active rewritten each time.
//!
//! After version n all active categories but the newest are read; what n still has becomes category (i, n), the rest category (i, n - 1) of
//! volume n - 1. A volume's categories lie in order, so a version needs a head of it, and deletions, in any order, cut off its tail.

use std::collections::BTreeMap;

use larder_bench_common::front::Piece;

use super::neighbours::Neighbours;
use super::{ENTRY, Number, Restored, Scheme};
use crate::disk::{Disk, Extent, Work};

/// Chunks of one first version.
#[derive(Debug)]
struct Category {
    first: Number,
    chunks: Vec<u32>,
    extent: Extent,
}

/// See the module header.
#[derive(Default)]
pub(crate) struct MfDedup {
    neighbours: Neighbours,
    /// By first version, ascending.
    active: Vec<Category>,
    volumes: BTreeMap<Number, Vec<Category>>,
    end: u64,
}

impl MfDedup {
    fn write(&mut self, first: Number, chunks: Vec<u32>) -> Category {
        let len = chunks.iter().map(|chunk| self.neighbours.size(*chunk)).sum();
        let extent = Extent { at: self.end, len };
        self.end += len;
        Category { first, chunks, extent }
    }

    fn categories(&self) -> impl Iterator<Item = (Number, &Category)> {
        let archived = self.volumes.iter().flat_map(|(last, volume)| volume.iter().map(|category| (*last, category)));
        archived.chain(self.active.iter().map(|category| (self.neighbours.newest, category)))
    }

    /// Bytes of each volume, by the last version that has its chunks.
    pub(crate) fn volumes(&self) -> Vec<(Number, u64)> {
        let bytes = |volume: &Vec<Category>| volume.iter().map(|category| category.extent.len).sum();
        self.volumes.iter().map(|(last, volume)| (*last, bytes(volume))).collect()
    }

    /// Bytes of each active category, by its first version.
    pub(crate) fn active(&self) -> Vec<(Number, u64)> {
        self.active.iter().map(|category| (category.first, category.extent.len)).collect()
    }
}

impl Scheme for MfDedup {
    fn name(&self) -> String {
        "MFDedup".to_owned()
    }

    fn back_up(&mut self, version: Number, pieces: &[Piece]) {
        let mut new = Vec::new();
        self.neighbours.back_up(version, pieces, |chunk, _| new.push(chunk));
        let category = self.write(version, new);
        self.active.push(category);
    }

    fn delete(&mut self, version: Number) -> Work {
        self.neighbours.delete(version);
        let mut work = Work::default();
        let neighbours = &self.neighbours;
        self.volumes.retain(|last, volume| {
            volume.retain(|category| neighbours.is_needed(category.first, *last));
            work.deleted += u64::from(volume.is_empty());
            !volume.is_empty()
        });
        work
    }

    fn arrange(&mut self) -> Work {
        let newest = self.neighbours.newest;
        let mut work = Work::default();
        let (old, own): (Vec<_>, Vec<_>) =
            std::mem::take(&mut self.active).into_iter().partition(|category| category.first < newest);
        work.read = Disk::SLOW.read_sorted(old.iter().map(|category| category.extent).collect());
        let before = self.end;
        let mut archived = Vec::new();
        for Category { first, chunks, .. } in old {
            let (stay, leave): (Vec<u32>, Vec<u32>) =
                chunks.into_iter().partition(|chunk| self.neighbours.life(*chunk).last == newest);
            if !stay.is_empty() {
                let category = self.write(first, stay);
                self.active.push(category);
            }
            // The version before may be deleted already.
            if !leave.is_empty() && self.neighbours.is_needed(first, newest - 1) {
                archived.push((first, leave));
            }
        }
        let volume: Vec<Category> = archived.into_iter().map(|(first, chunks)| self.write(first, chunks)).collect();
        if !volume.is_empty() {
            self.volumes.insert(newest - 1, volume);
        }
        self.active.extend(own);
        work.written = self.end - before;
        work
    }

    fn stored(&self) -> u64 {
        self.categories().map(|(_, category)| category.extent.len).sum()
    }

    fn table_bytes(&self) -> usize {
        let (own, asked) = self.neighbours.entries();
        (own + asked) * ENTRY
    }

    fn restore(&self, version: Number, _: u64) -> Restored {
        let needed = self.categories().filter(|(last, category)| category.first <= version && *last >= version);
        let mut once = Disk::SLOW.read_sorted(needed.map(|(_, category)| category.extent).collect());
        // Volumes and active categories are the files that are opened.
        let is_head = |volume: &&Vec<Category>| volume.first().is_some_and(|category| category.first <= version);
        let volumes = self.volumes.range(version..).map(|(_, volume)| volume).filter(is_head).count();
        let active = self.active.iter().filter(|category| category.first <= version).count();
        once.objects = (volumes + active) as u64;
        Restored { usual: once, once }
    }

    #[cfg(test)]
    fn content(&self, version: Number) -> Vec<Piece> {
        // Only the categories that a restore reads are looked at.
        let read: std::collections::HashSet<u32> = (self.categories())
            .filter(|(last, category)| category.first <= version && *last >= version)
            .flat_map(|(_, category)| category.chunks.iter().copied())
            .collect();
        let recipe = self.neighbours.recipe(version).iter();
        recipe.filter(|chunk| read.contains(chunk)).map(|chunk| self.neighbours.life(*chunk).piece).collect()
    }
}
