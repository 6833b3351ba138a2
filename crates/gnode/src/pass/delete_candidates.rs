//! Containers that may go unless a version turns out to need them. When everything is listed these
//! are nearly all containers, so they are held as they were listed: 32 bytes each.

use std::collections::HashMap;

use larder_format::ids::ContainerId;
use larder_store::survey::ListedContainer;

use crate::error::PassError;
use crate::ingest::Numbers;

/// See the module header.
#[derive(Debug, Default)]
pub(super) struct DeleteCandidates {
    /// As they were listed, by id.
    listed: Vec<ListedContainer>,
    /// Places of those among them that are needed.
    needed: Numbers,
    /// Places of those that the index had when the pass began.
    recorded: Numbers,
    /// Others, which were added later, with their bytes, and whether they are needed.
    others: HashMap<ContainerId, (u64, bool)>,
}

impl DeleteCandidates {
    /// The listed containers that may go.
    pub(super) fn new(mut listed: Vec<ListedContainer>, may_go: impl Fn(&ContainerId) -> bool) -> Self {
        listed.retain(|container| may_go(&container.id));
        listed.sort_by_key(|container| container.id);
        listed.dedup_by_key(|container| container.id);
        Self { listed, ..Self::default() }
    }

    fn place(&self, id: &ContainerId) -> Option<u32> {
        let place = self.listed.binary_search_by_key(id, |container| container.id).ok()?;
        u32::try_from(place).ok()
    }

    /// Notes which of the listed containers the index has.
    pub(super) fn note_recorded(
        &mut self,
        has_record: impl Fn(&ContainerId) -> Result<bool, PassError>,
    ) -> Result<(), PassError> {
        for (place, container) in (0..).zip(&self.listed) {
            if has_record(&container.id)? {
                self.recorded.insert(place);
            }
        }
        Ok(())
    }

    /// Unneeded containers that were listed and that the index never had.
    pub(super) fn unrecorded(&self) -> impl Iterator<Item = ListedContainer> {
        let is_one = |place: u32| !self.needed.contains(place) && !self.recorded.contains(place);
        (0..).zip(&self.listed).filter(move |(place, _)| is_one(*place)).map(|(_, container)| *container)
    }

    /// These may go too. Needed ones stay needed.
    pub(super) fn extend(&mut self, containers: Vec<ListedContainer>) {
        for container in containers {
            if self.place(&container.id).is_none() {
                self.others.entry(container.id).or_insert((container.bytes, false));
            }
        }
    }

    /// Marks a container as needed. Returns whether it was a candidate.
    pub(super) fn strike(&mut self, id: &ContainerId) -> bool {
        if let Some(place) = self.place(id) {
            self.needed.insert(place);
            return true;
        }
        self.others.get_mut(id).map(|(_, is_needed)| *is_needed = true).is_some()
    }

    /// Those that are not needed so far.
    pub(super) fn ids_unneeded(&self) -> impl Iterator<Item = ContainerId> {
        let listed = (0..).zip(&self.listed).filter(|(place, _)| !self.needed.contains(*place));
        let others = self.others.iter().filter(|(_, (_, is_needed))| !is_needed);
        listed.map(|(_, container)| container.id).chain(others.map(|(id, _)| *id))
    }

    /// Those that are not needed.
    pub(super) fn unneeded(self) -> impl Iterator<Item = ListedContainer> {
        let Self { listed, needed, others, .. } = self;
        let listed =
            (0..).zip(listed).filter(move |(place, _)| !needed.contains(*place)).map(|(_, container)| container);
        let others = others.into_iter().filter(|(_, (_, is_needed))| !is_needed);
        listed.chain(others.map(|(id, (bytes, _))| ListedContainer { id, bytes }))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use larder_format::ids::{ContainerKind, JobId};
    use proptest::prelude::*;

    use super::*;

    fn container(seq: u32) -> ListedContainer {
        let id = ContainerId { kind: ContainerKind::Data, job: JobId([(seq % 3) as u8; 16]), seq };
        ListedContainer { id, bytes: u64::from(seq) }
    }

    proptest! {
        /// The oracle is a map.
        #[test]
        fn what_nobody_needs_goes(
            listed in proptest::collection::vec(0u32..20, 0..20),
            steps in proptest::collection::vec((any::<bool>(), 0u32..25), 0..40),
        ) {
            let may_go = |id: &ContainerId| id.seq != 7;
            let mut candidates = DeleteCandidates::new(listed.iter().map(|seq| container(*seq)).collect(), may_go);
            let mut expected: BTreeMap<u32, bool> =
                listed.into_iter().filter(|seq| *seq != 7).map(|seq| (seq, false)).collect();
            for (is_strike, seq) in steps {
                if is_strike {
                    let there = expected.get_mut(&seq).map(|is_needed| *is_needed = true).is_some();
                    prop_assert_eq!(candidates.strike(&container(seq).id), there);
                } else {
                    candidates.extend(vec![container(seq)]);
                    expected.entry(seq).or_insert(false);
                }
            }
            let mut left: Vec<ListedContainer> = candidates.unneeded().collect();
            left.sort_by_key(|container| container.id.seq);
            let expected = expected.into_iter().filter(|(_, is_needed)| !is_needed).map(|(seq, _)| container(seq));
            prop_assert_eq!(left, expected.collect::<Vec<_>>());
        }
    }
}
