//! Which versions of blocks someone can see: the rule by which merges drop records.

use std::collections::{HashMap, VecDeque};

use super::merge::Record;
use super::tables::block_of_key;
use crate::error::VolumeError;

/// Bounds of the snapshots of all volumes. A volume that is not in has no blocks.
#[derive(Debug, Clone, Default)]
pub(crate) struct Bounds(HashMap<u32, VolumeBounds>);

#[derive(Debug, Clone, Default)]
struct VolumeBounds {
    /// Rising.
    bounds: Vec<u64>,
    has_parent: bool,
}

impl Bounds {
    pub(crate) fn add_volume(&mut self, volume: u32, has_parent: bool) {
        self.0.insert(volume, VolumeBounds { bounds: Vec::new(), has_parent });
    }

    /// Adds a snapshot of a volume. Bounds rise.
    pub(crate) fn add_snapshot(&mut self, volume: u32, below: u64) {
        if let Some(volume) = self.0.get_mut(&volume) {
            volume.bounds.push(below);
        }
    }

    /// Marks the versions of one block that someone can see. `versions` has the newest first:
    /// version, and whether it is a block of zeros. `is_bottom`: nowhere are older versions of it.
    pub(crate) fn kept(&self, volume: u32, versions: &[(u64, bool)], is_bottom: bool) -> Vec<bool> {
        let Some(of) = self.0.get(&volume) else { return vec![false; versions.len()] };
        let mut newer = u64::MAX;
        let mut kept: Vec<bool> = versions
            .iter()
            .map(|(version, _)| {
                // The live volume sees the newest one, a snapshot the newest below its bound.
                let above = of.bounds.partition_point(|bound| bound <= version);
                let is_seen = newer == u64::MAX || of.bounds.get(above).is_some_and(|bound| *bound <= newer);
                newer = *version;
                is_seen
            })
            .collect();
        if is_bottom && !of.has_parent {
            // Zeros hide nothing when nothing is below them.
            for (number, (_, is_zeros)) in versions.iter().enumerate().rev() {
                if kept[number] && !is_zeros {
                    break;
                }
                kept[number] = false;
            }
        }
        kept
    }
}

/// Sorted records of the block table, each with whether someone can see it.
pub(crate) struct Judged<'a, I: Iterator> {
    records: std::iter::Peekable<I>,
    bounds: &'a Bounds,
    is_bottom: bool,
    ready: VecDeque<(Record, bool)>,
}

impl<'a, I: Iterator<Item = Result<Record, VolumeError>>> Judged<'a, I> {
    /// `is_bottom`: there are no older records than these.
    pub(crate) fn new(records: I, bounds: &'a Bounds, is_bottom: bool) -> Self {
        Self { records: records.peekable(), bounds, is_bottom, ready: VecDeque::new() }
    }

    /// Reads all versions of the next block.
    fn fill(&mut self) -> Result<(), VolumeError> {
        let mut group: Vec<Record> = Vec::new();
        let mut versions = Vec::new();
        let mut volume = 0;
        while let Some(next) = self.records.peek() {
            let is_other = match (next, group.first()) {
                (Ok((key, _)), Some((first, _))) => key[..12] != first[..12],
                _ => false,
            };
            if is_other {
                break;
            }
            let Some(record) = self.records.next() else { break };
            let (key, value) = record?;
            if let Some((of, _, version)) = block_of_key(&key) {
                volume = of;
                versions.push((version, value.iter().all(|byte| *byte == 0)));
                group.push((key, value));
            }
        }
        let kept = self.bounds.kept(volume, &versions, self.is_bottom);
        self.ready.extend(group.into_iter().zip(kept));
        Ok(())
    }
}

impl<I: Iterator<Item = Result<Record, VolumeError>>> Iterator for Judged<'_, I> {
    type Item = Result<(Record, bool), VolumeError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.ready.is_empty()
            && let Err(error) = self.fill()
        {
            return Some(Err(error));
        }
        self.ready.pop_front().map(Ok)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn seen(versions: &[(u64, bool)], kept: Option<&[bool]>, below: u64) -> Option<u64> {
        let is_there = |number: usize| kept.is_none_or(|kept| kept[number]);
        let found = versions.iter().enumerate().find(|(number, (version, _))| *version < below && is_there(*number));
        // Zeros, and nothing at all, are the same without a parent.
        found.filter(|(_, (_, is_zeros))| !is_zeros).map(|(_, (version, _))| *version)
    }

    proptest! {
        #[test]
        fn every_view_sees_the_same_after_a_merge(
            versions in prop::collection::btree_map(1u64..40, any::<bool>(), 1..12),
            bounds in prop::collection::btree_set(1u64..41, 0..5), is_bottom: bool,
        ) {
            let versions: Vec<_> = versions.into_iter().rev().collect();
            let of = VolumeBounds { bounds: bounds.iter().copied().collect(), has_parent: false };
            let rules = Bounds(HashMap::from([(3, of)]));
            let kept = rules.kept(3, &versions, is_bottom);
            for below in bounds.iter().copied().chain([u64::MAX]) {
                prop_assert_eq!(seen(&versions, None, below), seen(&versions, Some(&kept), below));
            }
            prop_assert!(kept.iter().filter(|kept| **kept).count() <= bounds.len() + 1);
            prop_assert_eq!(rules.kept(4, &versions, is_bottom), vec![false; versions.len()]);
        }
    }
}
