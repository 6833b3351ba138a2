//! The filters of a backup that read from the store: the streams of base versions.

use std::path::PathBuf;

use larder_dedup::chain::{Chunk, Filter, Verdict};
use larder_dedup::{GroupFilter, NewFile};
use larder_format::recipe::SegmentRef;
use larder_format::segment::ChunkRecord;
use larder_store::RepositoryError;

use super::bases::BaseSegments;
use super::layout_policy::LayoutPolicy;

/// Gives files in a folder, as long as there is one.
pub(super) fn files_in(folder: Option<PathBuf>) -> NewFile {
    Box::new(move || match &folder {
        Some(folder) => larder_spill::unnamed(folder),
        None => Err(std::io::ErrorKind::Unsupported.into()),
    })
}

/// Chunks of one stream of a base version. Says nothing more once the base turns out to be damaged: nothing is lost by storing
/// again what it cannot give any more, and `check` tells about the base.
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

/// Chunks of one stream of several base versions. The one that had the last duplicate is asked first, so that a run goes on
/// where it began; positions are told only of the first, which is the one that is taken over from.
#[derive(Debug)]
pub(super) struct BaseFilters {
    bases: Vec<BaseFilter>,
    /// Whether the first one is always asked first: what both have is named as it has it.
    in_order: bool,
    /// The base that had a duplicate last.
    last: usize,
    /// Whether the chunk asked about last was there.
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

    /// Whether the chunk that was asked about last is in another base than the first, and not in the first one.
    pub(super) fn is_in_second(&self) -> bool {
        self.found_last && self.last > 0
    }

    /// The segment that the stream is following: the one a segment written now may be equal to.
    pub(super) fn followed(&mut self) -> Result<Option<SegmentRef>, RepositoryError> {
        self.bases[self.last].ask(|filter| {
            let Some(group) = filter.current_group().filter(|_| filter.loader().is_whole()) else { return Ok(None) };
            Ok(filter.loader_mut().reader.segment_ref(group)?.map(|(segment, _)| segment))
        })
    }

    /// The next chunk is expected to be this record of this segment of the first base.
    pub(super) fn expect(&mut self, segment: u32, record: u32) -> Result<(), RepositoryError> {
        (self.last, self.found_last) = (0, true);
        self.bases[0].ask(|filter| filter.expect(segment, record).map(Some)).map(drop)
    }

    /// The offset in the first base's stream that corresponds to where the stream is now, if the last chunk was found there.
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
