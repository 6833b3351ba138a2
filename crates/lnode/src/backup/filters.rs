//! The filters of a backup that read from the store: the streams of base versions.

use std::path::PathBuf;

use larder_dedup::GroupFilter;
use larder_dedup::chain::{Chunk, Filter, Verdict};
use larder_format::recipe::SegmentRef;
use larder_format::segment::ChunkRecord;
use larder_store::RepositoryError;

use super::bases::BaseSegments;
use super::layout_policy::LayoutPolicy;

/// Chunks of one stream of a base version. Finds no more once the base turns out to be damaged: its
/// lost data is stored again, and `check` reports the base.
#[derive(Debug)]
struct BaseFilter {
    filter: Option<GroupFilter<BaseSegments>>,
}

impl BaseFilter {
    /// Asks the base, unless it is damaged.
    fn ask<T>(
        &mut self,
        ask: impl FnOnce(&mut GroupFilter<BaseSegments>) -> Result<Option<T>, RepositoryError>,
    ) -> Result<Option<T>, RepositoryError> {
        let Some(filter) = &mut self.filter else { return Ok(None) };
        match ask(filter) {
            Err(error) if error.is_damage() => {
                tracing::warn!(%error, "a base version is damaged; its duplicates are stored again");
                self.filter = None;
                Ok(None)
            }
            answer => answer,
        }
    }
}

/// Chunks of one stream of several base versions. The base of the last duplicate is asked first, so
/// that a run continues where it began. Positions are told only of the first base, from which data
/// is reused.
#[derive(Debug)]
pub(super) struct BaseFilters {
    bases: Vec<BaseFilter>,
    /// Whether the first base is always asked first: chunks of several bases are then named as in
    /// the first.
    in_order: bool,
    /// The base of the last duplicate.
    last: usize,
    /// Whether the last requested chunk was found.
    found_last: bool,
}

impl BaseFilters {
    /// Filters that take about `budget` bytes of memory together; `None` when there is no base.
    pub(super) fn new(
        bases: Vec<BaseSegments>,
        budget: usize,
        policy: &dyn LayoutPolicy,
        scratch: &Option<PathBuf>,
    ) -> Option<Self> {
        let share = budget.checked_div(bases.len())?;
        let new = |segments| BaseFilter { filter: Some(policy.base_filter(segments, share, scratch)) };
        let in_order = policy.asks_in_order();
        Some(Self { bases: bases.into_iter().map(new).collect(), in_order, last: 0, found_last: false })
    }

    /// Whether the last requested chunk is in another base than the first, and not in the first.
    pub(super) fn is_in_second(&self) -> bool {
        self.found_last && self.last > 0
    }

    /// The segment that the stream follows: a segment written now may equal it.
    pub(super) fn followed(&mut self) -> Result<Option<SegmentRef>, RepositoryError> {
        self.bases[self.last].ask(|filter| {
            let Some(group) = filter.current_group().filter(|_| filter.loader().is_whole()) else { return Ok(None) };
            Ok(filter.loader_mut().reader.segment_ref(group)?.map(|(segment, _)| segment))
        })
    }

    /// Announces that the next chunk is probably this record of this segment of the first base.
    pub(super) fn expect(&mut self, segment: u32, record: u32) -> Result<(), RepositoryError> {
        (self.last, self.found_last) = (0, true);
        self.bases[0].ask(|filter| filter.expect(segment, record).map(Some)).map(drop)
    }

    /// The offset in the first base's stream that corresponds to the stream's position, if the last
    /// chunk was found there.
    pub(super) fn position(&mut self) -> Result<Option<u64>, RepositoryError> {
        if !self.found_last || self.last != 0 {
            return Ok(None);
        }
        self.bases[0].ask(|filter| {
            let Some((segment, inside)) = filter.position() else { return Ok(None) };
            Ok(filter.loader_mut().reader.segment_ref(segment)?.map(|(_, start)| start + inside))
        })
    }
}

impl Filter<RepositoryError> for BaseFilters {
    fn check(&mut self, chunk: &Chunk<'_>, _: Option<&ChunkRecord>) -> Result<Verdict, RepositoryError> {
        let count = self.bases.len();
        let first = if self.in_order { 0 } else { self.last };
        for number in (first..count).chain(0..first) {
            if let Some(record) = self.bases[number].ask(|filter| filter.find(chunk.fingerprint, chunk.size()))? {
                (self.last, self.found_last) = (number, true);
                return Ok(Verdict::StrongMaybe(record));
            }
        }
        self.found_last = false;
        Ok(Verdict::WeakMaybe)
    }
}
