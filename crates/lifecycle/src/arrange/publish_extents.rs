//! The table of containers after extents have moved: their places, their last versions, and the
//! containers that go.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use larder_format::ids::{ContainerId, SeriesKey};
use larder_format::index_manifest::IndexedVersion;
use larder_format::index_tables::{ContainerFacts, ContainerState, Lifespan, SeriesLifespans};
use larder_format::layout::Layout;
use larder_index::{ContainerExtents, Containers, Draft, IndexError, IndexPass};
use larder_rewrite::chunk_copier::Written;
use larder_store::survey::ListedContainer;

use super::series::{Content, Contents, Known, Series, place_of};
use super::{Arranged, Work};
use larder_format::extents::Extents;

/// Changes the draft.
pub(super) fn publish_extents(
    pass: &IndexPass,
    draft: &mut Draft<'_>,
    work: &Work,
    all: BTreeMap<SeriesKey, Series>,
    written: &Written,
    arranged: &mut Arranged,
) -> Result<(), IndexError> {
    let mut facts = pass.changes::<Containers>()?;
    let mut records = pass.changes::<ContainerExtents>()?;
    let (cold, mut unused) = (work.cold.ids(), HashMap::new());
    for series in all.into_values() {
        let mut settling = Settling::read(pass, draft, &series)?;
        settling.number_new(draft)?;
        for known in series.containers.values() {
            let after = settling.facts(known, work);
            if after.state == ContainerState::Arranged && known.is_there() {
                arranged.reclaimed += 1;
                arranged.retired_bytes.0 += after.object_bytes;
                arranged.containers.push(ListedContainer { id: after.id, bytes: after.object_bytes });
            } else if known.is_there() && cold.contains(&after.id) {
                unused.insert(after.id, after.bytes.saturating_sub(settling.needed(&after.id)));
            }
            // No manifest names containers that arranging wrote, so no reader will ask where their
            // chunks went.
            if after.state == ContainerState::Arranged && settling.written.contains(&after.id) {
                facts.remove(&known.number)?;
                records.remove(&after.id)?;
            } else if after != known.facts {
                facts.put(&known.number, &after)?;
            }
        }
        for (id, number) in &settling.new {
            let (Some(holding), Some(Some(content))) = (written.containers.get(id), settling.contents.get(id)) else {
                continue;
            };
            arranged.written += 1;
            arranged.written_bytes.0 += holding.object_bytes;
            let new = ContainerFacts {
                id: *id,
                state: ContainerState::Live,
                layout: Layout::Lifecycle,
                chunks: holding.chunks,
                bytes: holding.bytes,
                object_bytes: holding.object_bytes,
                retired_chunks: 0,
                retired_bytes: 0,
                users: settling.users(content),
                forwards: Vec::new(),
            };
            facts.put(number, &new)?;
            // It is no name.
            records.put(id, &Extents::default())?;
        }
    }
    arranged.cold = work.cold.left(&unused);
    draft.apply(facts)?;
    draft.apply(records)
}

/// For a converted series, the last version in this layout; `None`: its newest one is in this
/// layout.
fn end_of_layout(draft: &Draft<'_>, series: SeriesKey) -> Option<u32> {
    let of_series = draft.manifest.versions.iter().filter(|version| version.series == series);
    let (of_layout, others): (Vec<&IndexedVersion>, Vec<&IndexedVersion>) =
        of_series.partition(|version| version.layout == Layout::Lifecycle);
    let newest = of_layout.last().map_or(0, |version| version.number);
    others.iter().any(|version| version.number > newest).then_some(newest)
}

/// Numbers of the series' versions in the standard layout.
fn converted(draft: &Draft<'_>, series: SeriesKey) -> BTreeSet<u32> {
    let is_converted = |version: &&IndexedVersion| version.series == series && version.layout == Layout::Standard;
    draft.manifest.versions.iter().filter(is_converted).map(|version| version.number).collect()
}

/// A lifespan without these numbers: rising, disjoint parts. The whole one if nothing were left,
/// because every container has a user.
fn without(span: Lifespan, numbers: &BTreeSet<u32>) -> Vec<Lifespan> {
    let end = span.last.unwrap_or(u32::MAX);
    let mut parts = Vec::new();
    let mut first = span.first;
    for number in numbers.range(span.first..=end) {
        if first < *number {
            parts.push(Lifespan { first, last: Some(number - 1) });
        }
        first = number.saturating_add(1);
    }
    if first <= end {
        parts.push(Lifespan { first, last: span.last });
    }
    if parts.is_empty() { vec![span] } else { parts }
}

struct Settling {
    contents: Contents,
    /// For each name the other containers that have extents of it.
    forwards: HashMap<ContainerId, HashSet<ContainerId>>,
    /// Containers that existed and are no names.
    written: HashSet<ContainerId>,
    /// Containers that were written in this run, with their numbers.
    new: BTreeMap<ContainerId, u32>,
    numbers: HashMap<ContainerId, u32>,
    series: SeriesKey,
    /// Open lifespans end here.
    end: Option<u32>,
    /// Versions of the series in the standard layout, which use nothing that was arranged.
    converted: BTreeSet<u32>,
}

impl Settling {
    /// The lifespans of a container that arranging wrote.
    fn users(&self, content: &Content) -> Vec<SeriesLifespans> {
        let last = content.last.or(self.end).map(|last| last.max(content.first));
        let lifespans = without(Lifespan { first: content.first, last }, &self.converted);
        vec![SeriesLifespans { series: self.series, lifespans }]
    }

    fn read(pass: &IndexPass, draft: &Draft<'_>, series: &Series) -> Result<Self, IndexError> {
        let contents = series.content(pass, draft)?;
        let (mut forwards, mut written) = (HashMap::new(), HashSet::new());
        Series::extents(pass, draft, &series.by_name(), |name, extents| {
            let places = extents.0.iter().map(|extent| place_of(name, extent));
            let others: HashSet<ContainerId> = places.filter(|place| *place != name.facts.id).collect();
            if extents.0.is_empty() && name.is_there() {
                written.insert(name.facts.id);
            }
            forwards.insert(name.facts.id, others);
            Ok::<_, IndexError>(())
        })?;
        let numbers = series.containers.iter().map(|(id, known)| (*id, known.number)).collect();
        Ok(Self {
            contents,
            forwards,
            written,
            new: BTreeMap::new(),
            numbers,
            series: series.key,
            end: end_of_layout(draft, series.key),
            converted: converted(draft, series.key),
        })
    }

    /// Bytes of a container that any version needs.
    fn needed(&self, container: &ContainerId) -> u64 {
        self.contents.get(container).copied().flatten().map_or(0, |content| content.needed)
    }

    /// Gives numbers to the written containers.
    fn number_new(&mut self, draft: &mut Draft<'_>) -> Result<(), IndexError> {
        let mut new: Vec<ContainerId> =
            self.contents.keys().filter(|id| !self.numbers.contains_key(*id)).copied().collect();
        new.sort_unstable();
        for id in new {
            let number = draft.manifest.head.next_container;
            draft.manifest.head.next_container =
                number.checked_add(1).ok_or_else(IndexError::container_numbers_exhausted)?;
            self.new.insert(id, number);
            self.numbers.insert(id, number);
        }
        Ok(())
    }

    /// The new facts of a container.
    fn facts(&self, known: &Known, work: &Work) -> ContainerFacts {
        let mut facts = known.facts.clone();
        let others = self.forwards.get(&facts.id).into_iter().flatten();
        facts.forwards = others.filter_map(|other| self.numbers.get(other)).copied().collect();
        facts.forwards.sort_unstable();
        if !known.is_there() {
            return facts;
        }
        match self.contents.get(&facts.id) {
            Some(Some(content)) if self.written.contains(&facts.id) => facts.users = self.users(content),
            Some(Some(_)) => {}
            // `RetireSettled`, `RetireNotAdopted`.
            _ if known.is_apart => {}
            _ if !work.retention.is_free(&facts.id) || work.retention.is_held(&facts.id) => {}
            _ => {
                facts.state = ContainerState::Arranged;
                (facts.retired_chunks, facts.retired_bytes) = (facts.chunks, facts.bytes);
            }
        }
        facts
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parts(first: u32, last: Option<u32>, numbers: &[u32]) -> Vec<(u32, Option<u32>)> {
        let parts = without(Lifespan { first, last }, &numbers.iter().copied().collect());
        parts.iter().map(|part| (part.first, part.last)).collect()
    }

    #[test]
    fn converted_versions_are_in_no_lifespan() {
        assert_eq!(parts(2, Some(9), &[]), [(2, Some(9))]);
        assert_eq!(parts(2, Some(9), &[1, 4, 5, 10]), [(2, Some(3)), (6, Some(9))]);
        assert_eq!(parts(2, Some(9), &[2, 9]), [(3, Some(8))]);
        assert_eq!(parts(2, None, &[4, 7]), [(2, Some(3)), (5, Some(6)), (8, None)]);
        assert_eq!(parts(2, Some(3), &[2, 3]), [(2, Some(3))]);
    }
}
