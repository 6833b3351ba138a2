//! The last version that needs each stretch of a container.

use std::collections::{BTreeMap, BTreeSet};

use larder_format::extents::{Extent, Extents};
use larder_format::{DecodeError, names};
use larder_index::{Changes, ContainerExtents, Draft, IndexError, IndexPass};
use larder_store::RepositoryError;

use super::ArrangeError;
use super::references::{Use, Uses};
use super::series::{Member, Series};
use super::{Unarranged, Work};

/// Of the memory of the pass for tables, one part in this number holds the changed records.
const CHANGES_ONE_IN: usize = 4;

/// The facts about versions that decide until when bytes are needed.
#[derive(Debug, Clone, Copy)]
pub(super) struct Numbers<'a> {
    /// Versions that are arranged now, rising. All that were arranged before have lower numbers.
    pub(super) new: &'a [u32],
    /// All versions that are retained, the new ones with them.
    pub(super) retained: &'a BTreeSet<u32>,
}

impl Numbers<'_> {
    /// Whether a retained version may need bytes that versions from `first` to `last` used.
    fn need(&self, first: u32, last: Option<u32>) -> bool {
        let last = last.unwrap_or(u32::MAX);
        first <= last && self.retained.range(first..=last).next().is_some()
    }
}

/// Rewrites the records of all containers with bytes that are no longer used, or used again.
/// Returns whether it could: references to missing bytes are damage, and then the series is not
/// changed.
pub(super) fn classify(
    pass: &IndexPass,
    draft: &mut Draft<'_>,
    work: &Work,
    unarranged: &Unarranged,
    series: &mut Series,
    uses: &mut Uses,
) -> Result<bool, ArrangeError> {
    let (new, retained) = (unarranged.new_numbers(), unarranged.retained());
    let numbers = Numbers { new: &new, retained: &retained };
    let mut changes = Changes::<ContainerExtents>::new(&pass.io, pass.memory / CHANGES_ONE_IN, &pass.folder)?;
    let mut lost = None;
    series.members(pass, draft, |member| {
        let container = match &member {
            Member::Arranged(known, _) => known.facts.id,
            Member::Other(container) => *container,
        };
        lost = lost.or(uses.container().filter(|next| *next < container));
        let used = uses.of(&container)?;
        // It is not arranged (`LayoutsApart`).
        let Member::Arranged(known, before) = member else { return Ok(()) };
        // A running job may adopt it and use unneeded bytes.
        let is_held = work.retention.is_held(&container) || known.is_apart;
        let may_drop = work.retention.is_free(&container) && !is_held;
        match extents_of(&before, &used, known.first(), numbers, may_drop) {
            Some(after) if after != before => changes.put(&container, &after),
            Some(_) => Ok(()),
            None => {
                lost.get_or_insert(container);
                Ok::<_, IndexError>(())
            }
        }
    })?;
    if let Some(container) = lost.or(uses.container()) {
        let why = "it uses bytes of a container that are needed by nobody";
        let source = DecodeError::Invalid { what: "recipe", why };
        let error = RepositoryError::Damaged { name: names::container(container), source };
        tracing::warn!(%error, "a series is not arranged");
        return Ok(false);
    }
    draft.apply(changes)?;
    Ok(true)
}

/// The extents of one name after versions with these uses were arranged; `None` when they use bytes
/// that are in none of its extents.
pub(super) fn extents_of(
    before: &Extents,
    uses: &[Use],
    first: u32,
    numbers: Numbers<'_>,
    may_drop: bool,
) -> Option<Extents> {
    let stretches = newest_of(uses);
    let mut after = Extents::default();
    let mut push = |extent: &Extent, from: u32, end: u32, newest: Option<u32>| {
        let last = match (newest, extent.last) {
            (Some(newest), _) if numbers.new.last() == Some(&newest) => None,
            (Some(newest), Some(last)) => Some(newest.max(last)),
            (Some(newest), None) => Some(newest),
            // The newest version that was arranged before used it. Between that one and the first
            // new one there is none of this series.
            (None, None) => numbers.new.first().map(|first| first.saturating_sub(1)),
            (None, last) => last,
        };
        if !may_drop || numbers.need(first, last) {
            let to = extent.to.map(|(container, offset)| (container, offset + (from - extent.from)));
            after.push(Extent { from, length: end - from, last, to });
        }
    };
    let mut stretches = stretches.into_iter().peekable();
    let mut covered = 0;
    for extent in &before.0 {
        let mut at = extent.from;
        while at < extent.end() {
            // Used bytes before it are in no extent.
            let Some(next) = stretches.peek_mut().filter(|next| next.from < extent.end()) else {
                push(extent, at, extent.end(), None);
                break;
            };
            if next.from < at {
                return None;
            }
            if at < next.from {
                push(extent, at, next.from, None);
            }
            let end = next.end.min(extent.end());
            push(extent, next.from, end, Some(next.version));
            covered = covered.max(end);
            (at, next.from) = (end, end);
            if next.from == next.end {
                stretches.next();
            }
        }
    }
    if stretches.peek().is_some() { None } else { Some(after) }
}

/// A stretch and the newest version that uses it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Stretch {
    from: u32,
    end: u32,
    version: u32,
}

/// Disjoint stretches, in order, from uses that may overlap.
fn newest_of(uses: &[Use]) -> Vec<Stretch> {
    // Beginnings and ends of uses, with their versions.
    let mut borders: Vec<(u32, bool, u32)> = Vec::with_capacity(uses.len() * 2);
    for used in uses.iter().filter(|used| used.length > 0) {
        borders.push((used.from, true, used.version));
        borders.push((used.from.saturating_add(used.length), false, used.version));
    }
    borders.sort_unstable();
    let mut under_way: BTreeMap<u32, u32> = BTreeMap::new();
    let mut stretches: Vec<Stretch> = Vec::new();
    let mut at = 0;
    for (place, begins, version) in borders {
        if let Some((newest, _)) = under_way.last_key_value().filter(|_| at < place) {
            match stretches.last_mut() {
                Some(before) if before.end == at && before.version == *newest => before.end = place,
                _ => stretches.push(Stretch { from: at, end: place, version: *newest }),
            }
        }
        at = place;
        let count = under_way.entry(version).or_default();
        if begins {
            *count += 1;
        } else {
            *count -= 1;
            if *count == 0 {
                under_way.remove(&version);
            }
        }
    }
    stretches
}

#[cfg(test)]
mod tests {
    use super::*;
    use larder_format::ids::{ContainerId, ContainerKind, JobId};
    use proptest::prelude::*;

    fn id(seq: u32) -> ContainerId {
        ContainerId { kind: ContainerKind::Data, job: JobId([1; 16]), seq }
    }

    #[test]
    fn of_uses_that_overlap_the_newest_counts() {
        let used = |from, length, version| Use { from, length, version };
        let stretch = |from, end, version| Stretch { from, end, version };
        let uses = [used(0, 10, 5), used(5, 10, 7), used(5, 2, 6), used(30, 5, 6), used(35, 5, 6)];
        let stretches = [stretch(0, 5, 5), stretch(5, 15, 7), stretch(30, 40, 6)];
        assert_eq!(newest_of(&uses), stretches);
        assert_eq!(newest_of(&[used(3, 0, 1)]), []);
    }

    #[test]
    fn what_is_needed_by_nobody_may_not_be_used() {
        let retained = BTreeSet::from([3]);
        let numbers = Numbers { new: &[3], retained: &retained };
        let before = Extents(vec![Extent { from: 10, length: 10, last: None, to: None }]);
        let of = |from, length| extents_of(&before, &[Use { from, length, version: 3 }], 1, numbers, true);
        assert!(of(10, 10).is_some() && of(12, 3).is_some());
        assert!([of(9, 2), of(0, 5), of(15, 6), of(20, 1), of(9, 20)].iter().all(Option::is_none));
    }

    proptest! {
        /// The oracle keeps the users of each byte.
        #[test]
        fn each_byte_has_its_last_version(
            first in 1u32..4,
            before in prop::collection::vec((0u32..4, 1u32..6, prop::option::of(1u32..6)), 0..6),
            uses in prop::collection::vec((any::<prop::sample::Index>(), 1u32..6, 6u32..9), 0..8),
            retained in prop::collection::btree_set(1u32..9, 0..6),
            new in prop::collection::btree_set(6u32..9, 0..4),
            may_drop: bool,
        ) {
            let mut extents = Extents::default();
            let mut bytes: BTreeMap<u32, (Option<u32>, (ContainerId, u32))> = BTreeMap::new();
            let mut from = 0;
            for (number, (gap, length, last)) in (0u32..).zip(before) {
                from += gap;
                let to = (number % 2 == 1).then_some((id(number), number * 100));
                extents.0.push(Extent { from, length, last, to });
                for at in from..from + length {
                    let place = to.map_or((id(0), at), |(container, offset)| (container, offset + at - from));
                    bytes.insert(at, (last, place));
                }
                from += length;
            }
            let (new, mut retained): (Vec<u32>, BTreeSet<u32>) = (new.into_iter().collect(), retained);
            retained.retain(|number| *number < 6 || new.contains(number));
            retained.extend(&new);
            let mut used: Vec<Use> = Vec::new();
            for (place, length, version) in uses.into_iter().filter(|(.., version)| new.contains(version)) {
                let Some(at) = bytes.keys().nth(place.index(bytes.len().max(1))).copied() else { continue };
                let length = (1..=length).take_while(|length| bytes.contains_key(&(at + length - 1))).last().unwrap_or(0);
                used.push(Use { from: at, length, version });
            }
            used.sort_by_key(|used| (used.from, used.version, used.length));
            let after = extents_of(&extents, &used, first, Numbers { new: &new, retained: &retained }, may_drop);
            let after = after.expect("nothing else is used");
            let mut expected = BTreeMap::new();
            for (at, (last, place)) in bytes {
                let newest = used.iter().filter(|used| (used.from..used.from + used.length).contains(&at));
                let last = match newest.map(|used| used.version).max() {
                    Some(newest) if new.last() == Some(&newest) => None,
                    Some(newest) => Some(newest.max(last.unwrap_or(0))),
                    None => last.or(new.first().map(|first| first - 1)),
                };
                let needs = |number: &&u32| first <= **number && last.is_none_or(|last| **number <= last);
                if !may_drop || retained.iter().any(|number| needs(&number)) {
                    expected.insert(at, (last, place));
                }
            }
            let mut got = BTreeMap::new();
            for extent in &after.0 {
                for at in extent.from..extent.end() {
                    let place = after.place(id(0), at, 1).expect("it is in one");
                    prop_assert!(got.insert(at, (extent.last, place)).is_none());
                }
            }
            prop_assert_eq!(got, expected);
            after.encode(&mut Vec::new()).expect("is valid");
        }
    }
}
