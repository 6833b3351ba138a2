//! The table of containers after extents have moved: their places, their last versions, and the
//! containers that go.

use std::collections::BTreeSet;

use larder_format::ids::{ContainerId, SeriesKey};
use larder_format::index_manifest::IndexedVersion;
use larder_format::index_tables::{ContainerFacts, ContainerState, Lifespan, SeriesLifespans};
use larder_format::layout::Layout;
use larder_index::{Changes, ContainerExtents, Containers, Draft, IndexError, IndexPass};
use larder_store::cold_containers::ColdLeft;
use larder_store::survey::ListedContainer;

use super::container_values::{ContainerValues, spilled};
use super::places::{Content, Places};
use super::retired::RetiredContainers;
use super::series::{Known, Series, place_of};
use super::written::Writing;
use super::{ArrangeError, Arranged, Work};
use larder_format::extents::Extents;

/// Of the memory of the pass for tables, one part in this number holds the changed facts.
const FACTS_ONE_IN: usize = 8;
/// And one part in this number the records of extents that come or go.
const RECORDS_ONE_IN: usize = 16;
/// And one part in this number the numbers of the containers of a series.
const NUMBERS_ONE_IN: usize = 8;
/// And one part in this number the containers that may be deleted.
const RETIRED_ONE_IN: usize = 16;

/// Collects the changes of all series.
pub(super) struct Publication {
    facts: Changes<Containers>,
    records: Changes<ContainerExtents>,
    /// Unused bytes of containers in cold storage.
    cold: ColdLeft,
    retired: RetiredContainers,
}

impl Publication {
    /// No changes.
    pub(super) fn new(pass: &IndexPass) -> Result<Self, IndexError> {
        Ok(Self {
            facts: Changes::new(&pass.io, pass.memory / FACTS_ONE_IN, &pass.folder)?,
            records: Changes::new(&pass.io, pass.memory / RECORDS_ONE_IN, &pass.folder)?,
            cold: ColdLeft::default(),
            retired: RetiredContainers::new(&pass.folder, pass.memory / RETIRED_ONE_IN),
        })
    }

    /// Adds the changes of a series whose extents are in the draft. The copies of its chunks are
    /// written.
    pub(super) fn add(
        &mut self,
        pass: &IndexPass,
        draft: &mut Draft<'_>,
        work: &Work,
        mut series: Series,
        mut writing: Option<&mut Writing>,
        arranged: &mut Arranged,
    ) -> Result<(), ArrangeError> {
        let of_series = OfSeries::of(draft, series.key);
        let mut places = Places::read(pass, draft, &mut series)?;
        let mut numbers = ContainerValues::new(pass, pass.memory / NUMBERS_ONE_IN);
        let mut has_waited = false;
        while let Some(place) = places.next()? {
            if let Some(known) = place.known {
                numbers.push(place.id, u64::from(known.number))?;
                continue;
            }
            let number = draft.manifest.head.next_container;
            draft.manifest.head.next_container =
                number.checked_add(1).ok_or_else(IndexError::container_numbers_exhausted)?;
            numbers.push(place.id, u64::from(number))?;
            let (Some(writing), Some(content)) = (&mut writing, place.content) else { continue };
            if !std::mem::replace(&mut has_waited, true) {
                writing.wait()?;
            }
            let Some(holding) = writing.size_of(&place.id)? else { continue };
            arranged.written += 1;
            arranged.written_bytes.0 += holding.object_bytes;
            let new = ContainerFacts {
                id: place.id,
                state: ContainerState::Live,
                layout: Layout::Lifecycle,
                chunks: holding.chunks,
                bytes: holding.bytes,
                object_bytes: holding.object_bytes,
                retired_chunks: 0,
                retired_bytes: 0,
                users: of_series.users(&content),
                forwards: Vec::new(),
            };
            self.facts.put(&number, &new)?;
            // It is no name.
            self.records.put(&place.id, &Extents::default())?;
        }
        numbers.settle()?;
        places.rewind();
        series.extents(pass, draft, |known, extents| {
            let content = places.of(&known.facts.id)?.content;
            let names: BTreeSet<ContainerId> =
                extents.0.iter().map(|extent| place_of(&known.facts.id, extent)).collect();
            let mut forwards = Vec::new();
            for other in names.iter().filter(|other| **other != known.facts.id) {
                let number = numbers.get(other)?;
                forwards.extend(number.and_then(|number| u32::try_from(number).ok()));
            }
            forwards.sort_unstable();
            // Containers that arranging wrote are no names.
            let was_written = extents.0.is_empty() && known.is_there();
            let after = of_series.facts(&known, content.as_ref(), forwards, was_written, work);
            if after.state == ContainerState::Arranged && known.is_there() {
                arranged.reclaimed += 1;
                arranged.retired_bytes.0 += after.object_bytes;
                self.retired.push(ListedContainer { id: after.id, bytes: after.object_bytes })?;
            } else if known.is_there()
                && let Some(cold) = work.cold.find(&after.id).map_err(spilled)?
            {
                let needed = content.map_or(0, |content| content.needed);
                self.cold.add_unused(&cold, after.bytes.saturating_sub(needed));
            }
            // No manifest names containers that arranging wrote, so no reader will ask where their
            // chunks went.
            if after.state == ContainerState::Arranged && was_written {
                self.facts.remove(&known.number)?;
                self.records.remove(&after.id)?;
            } else if after != known.facts {
                self.facts.put(&known.number, &after)?;
            }
            Ok::<_, IndexError>(())
        })?;
        Ok(())
    }

    /// Changes the draft. Returns the containers that may be deleted when it is published.
    pub(super) fn finish(
        self,
        draft: &mut Draft<'_>,
        work: &Work,
        arranged: &mut Arranged,
    ) -> Result<RetiredContainers, IndexError> {
        arranged.cold = self.cold.of(&work.cold);
        draft.apply(self.facts)?;
        draft.apply(self.records)?;
        Ok(self.retired)
    }
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

/// The facts about a series that decide about lifespans.
struct OfSeries {
    series: SeriesKey,
    /// Open lifespans end here.
    end: Option<u32>,
    /// Versions of the series in the standard layout, which use nothing that was arranged.
    converted: BTreeSet<u32>,
}

impl OfSeries {
    fn of(draft: &Draft<'_>, series: SeriesKey) -> Self {
        Self { series, end: end_of_layout(draft, series), converted: converted(draft, series) }
    }

    /// The lifespans of a container that arranging wrote.
    fn users(&self, content: &Content) -> Vec<SeriesLifespans> {
        let last = content.last.or(self.end).map(|last| last.max(content.first));
        let lifespans = without(Lifespan { first: content.first, last }, &self.converted);
        vec![SeriesLifespans { series: self.series, lifespans }]
    }

    /// The new facts of a container.
    fn facts(
        &self,
        known: &Known,
        content: Option<&Content>,
        forwards: Vec<u32>,
        was_written: bool,
        work: &Work,
    ) -> ContainerFacts {
        let mut facts = ContainerFacts { forwards, ..known.facts.clone() };
        if !known.is_there() {
            return facts;
        }
        match content {
            Some(content) if was_written => facts.users = self.users(content),
            Some(_) => {}
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
