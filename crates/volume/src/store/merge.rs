//! Merging: several runs of a table become one. The work is done beside the commits; only the
//! publication needs the committer.
//!
//! Of the block table, records die that no view sees. Each item of a record that dies is counted
//! with −1, in runs of the table of counts that the same manifest names. So the sum of the counts
//! of a place is always the number of items in the runs that name it.

use std::collections::HashMap;
use std::sync::Arc;

use larder_format::ids::PageRunId;
use larder_format::page_run::VolumeTable;
use larder_format::volume_map::{Mapping, Place};

use super::catalog::Catalog;
use super::opened::{Committer, Store};
use super::writing::{Differences, Writing};
use crate::error::VolumeError;
use crate::index::{Judged, RunFile, Runs, Source, newest, place_key, place_of, summed};

/// A run is merged with newer ones when it has at most this often as many records as they.
const TIER_RATIO: u64 = 3;
/// Fewer runs of similar size are left alone.
const TIER_RUNS: usize = 4;

/// Chunks that moved: old place and new one.
pub(super) type Moved = HashMap<Place, Place>;

/// A merge that nobody sees yet. Its files go with it, unless a manifest names them.
pub(super) struct Merged {
    table: VolumeTable,
    sources: Vec<PageRunId>,
    run: Option<Arc<RunFile>>,
    counts: Vec<Arc<RunFile>>,
}

impl Store {
    /// Merges runs of similar size until there are few. Needs the lock for maintenance.
    pub(super) fn merge_tiers(&self) -> Result<(), VolumeError> {
        while let Some(merged) = self.merge_tier()? {
            self.install(&mut self.committer.lock(), vec![merged])?;
        }
        Ok(())
    }

    /// Merges one tier of one table. A tier ends at a damaged run. Needs the lock for maintenance.
    pub(super) fn merge_tier(&self) -> Result<Option<Merged>, VolumeError> {
        let runs = self.state.lock().runs.clone();
        let tier_of = |table| Some((table, self.sound(runs.of(table)).into_iter().rev().find_map(tier)?));
        loop {
            let Some((table, range)) = VolumeTable::ALL.into_iter().find_map(tier_of) else { return Ok(None) };
            if let Some(merged) = self.merge_sound(&runs, table, range)? {
                return Ok(Some(merged));
            }
        }
    }

    /// Stretches of runs without a damaged one between them, the oldest first. Empty ones are left
    /// out.
    pub(super) fn sound<'a>(&self, runs: &'a [Arc<RunFile>]) -> Vec<Stretch<'a>> {
        let mut from = 0;
        let stretches = runs.split(|run| self.damaged.has(run.id())).map(|runs| {
            let stretch = Stretch { from, runs };
            from += runs.len() + 1;
            stretch
        });
        stretches.filter(|stretch| !stretch.runs.is_empty()).collect()
    }

    /// Merges runs. `None`: one of them is damaged, which is noted.
    pub(super) fn merge_sound(
        &self,
        runs: &Runs,
        table: VolumeTable,
        range: std::ops::Range<usize>,
    ) -> Result<Option<Merged>, VolumeError> {
        let known = self.damaged.count();
        match self.merge(runs, table, range.clone(), &Moved::new()) {
            Err(error @ VolumeError::Damaged { .. }) => {
                if self.damaged.count() == known {
                    // A record that makes no sense: any of them may have it.
                    runs.of(table)[range].iter().for_each(|run| self.damaged.note(run.id(), &error));
                }
                Ok(None)
            }
            merged => merged.map(Some),
        }
    }

    /// Merges consecutive runs of a table to one. Items of chunks that moved are rewritten.
    pub(super) fn merge(
        &self,
        runs: &Runs,
        table: VolumeTable,
        range: std::ops::Range<usize>,
        moved: &Moved,
    ) -> Result<Merged, VolumeError> {
        let is_bottom = range.start == 0;
        let merged = &runs.of(table)[range];
        let sources: Vec<Source> = merged.iter().rev().map(|run| self.watched(run)).collect();
        let mut writing = Writing::new(self, table);
        let mut differences = Differences::new(self);
        match table {
            VolumeTable::Chunks => {
                for record in newest(sources, table.form().filter_len) {
                    let (key, value) = record?;
                    if place_of(&value).is_some_and(|place| !runs.retired.contains(place.container)) {
                        writing.push(&key, &value)?;
                    }
                }
            }
            VolumeTable::Blocks => {
                let bounds = self.catalog().bounds();
                for judged in Judged::new(newest(sources, table.form().key_len), &bounds, is_bottom) {
                    let ((key, value), is_seen) = judged?;
                    if is_seen && moved.is_empty() {
                        writing.push(&key, &value)?;
                        continue;
                    }
                    let before = Mapping::decode(&value).map_err(VolumeError::damaged("a run"))?;
                    let mut after = before.clone();
                    if !is_seen {
                        differences.add(&before, -1)?;
                    } else if !rewrite(&mut after, moved) {
                        writing.push(&key, &value)?;
                    } else {
                        differences.add(&before, -1)?;
                        differences.add(&after, 1)?;
                        let mut value = Vec::new();
                        after.encode(&mut value)?;
                        writing.push(&key, &value)?;
                    }
                }
            }
            VolumeTable::Counts => {
                for sum in summed(sources) {
                    let (place, sum) = sum?;
                    writing.push(&place_key(place), &sum.to_le_bytes())?;
                }
            }
        }
        let sources = merged.iter().map(|run| run.id()).collect();
        Ok(Merged { table, sources, run: writing.finish()?, counts: differences.finish()? })
    }

    /// Publishes merges. One whose sources are not all there any more is dropped.
    pub(super) fn install(&self, committer: &mut Committer, merges: Vec<Merged>) -> Result<(), VolumeError> {
        self.refuse_if_stopped()?;
        let mut next = self.state.lock().runs.copy();
        if merges.iter().filter(|merged| put(&mut next, merged)).count() == 0 {
            return Ok(());
        }
        drop(merges);
        // What the merge dropped may be seen by the catalog of the manifest. A log that loses its
        // newest part must not bring that catalog back with these runs.
        if Catalog::of(&committer.manifest) != *self.catalog() {
            return self.publish_over(committer, next, &[]);
        }
        self.count_from_now_on(committer, next, &[], None)
    }
}

/// Puts a merge in the place of its sources. `false`: they are not there any more.
pub(super) fn put(next: &mut Runs, merged: &Merged) -> bool {
    let of = next.of_mut(merged.table);
    let at = of.iter().position(|run| Some(&run.id()) == merged.sources.first());
    let are_there = |at: &usize| {
        let there = of.get(*at..*at + merged.sources.len());
        there.is_some_and(|there| there.iter().map(|run| run.id()).eq(merged.sources.iter().copied()))
    };
    let Some(at) = at.filter(are_there) else { return false };
    of.splice(at..at + merged.sources.len(), merged.run.clone());
    next.counts.extend(merged.counts.iter().cloned());
    true
}

/// Consecutive runs of a table.
pub(super) struct Stretch<'a> {
    /// Which of the table's runs is the first one.
    pub(super) from: usize,
    pub(super) runs: &'a [Arc<RunFile>],
}

impl Stretch<'_> {
    /// Which of the table's runs these are.
    pub(super) fn range(&self) -> std::ops::Range<usize> {
        self.from..self.from + self.runs.len()
    }
}

/// Rewrites the items of chunks that moved. Whether there were any.
pub(super) fn rewrite(mapping: &mut Mapping, moved: &Moved) -> bool {
    let mut has_changed = false;
    for place in mapping.items.iter_mut().filter_map(|item| item.place.as_mut()) {
        if let Some(new) = moved.get(place) {
            (*place, has_changed) = (*new, true);
        }
    }
    has_changed
}

/// Consecutive runs of similar size, the newest that are enough.
fn tier(stretch: Stretch<'_>) -> Option<std::ops::Range<usize>> {
    let Stretch { from, runs } = stretch;
    let records: Vec<u64> = runs.iter().map(|run| run.reference.records).collect();
    (1..=runs.len()).rev().find_map(|end| {
        let (mut start, mut sum) = (end - 1, records[end - 1]);
        while start > 0 && records[start - 1] <= TIER_RATIO * sum {
            start -= 1;
            sum += records[start];
        }
        (end - start >= TIER_RUNS).then_some(from + start..from + end)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::disk::SimulatedDisk;
    use crate::store::{NewStore, Options, SystemEntropy};
    use larder_format::key_file::KdfCost;

    /// One chunk with more names than 32 bits count: 4 KiB that fill many terabytes.
    #[test]
    fn counts_of_many_names_are_exact_behind_merges() -> Result<(), VolumeError> {
        let disk = SimulatedDisk::new(1);
        let new = NewStore { slots: 4, slot_bytes: 1 << 16, cost: KdfCost::TEST, ..NewStore::default() };
        Store::create(&disk, &SystemEntropy, b"secret", &new)?;
        let disk = Arc::new(disk);
        let (store, _) = Store::open(disk, Arc::new(SystemEntropy), b"secret", Options::default())?;
        let place = Place { container: 3, offset: 5 };
        let run = |difference: i64| {
            let mut writing = Writing::new(&store, VolumeTable::Counts);
            writing.push(&place_key(place), &difference.to_le_bytes())?;
            writing.finish()
        };
        let many = i64::from(i32::MAX);
        let mut runs = Runs::default();
        for difference in [many, many, 7, -many, -many] {
            runs.counts.extend(run(difference)?);
        }
        // The first three are above what 32 bits can hold.
        let merged = store.merge(&runs, VolumeTable::Counts, 0..3, &Moved::new())?;
        assert!(put(&mut runs, &merged));
        assert_eq!(runs.counts.len(), 3);
        let merged = store.merge(&runs, VolumeTable::Counts, 0..3, &Moved::new())?;
        assert!(put(&mut runs, &merged));
        let sources = runs.counts.iter().map(|run| store.watched(run)).collect();
        assert_eq!(summed(sources).collect::<Result<Vec<_>, _>>()?, [(place, 7)]);
        Ok(())
    }
}
