//! The filters of a backup that read from the store: the streams of base versions, and the comparison of bytes.

use larder_dedup::GroupFilter;
use larder_dedup::chain::{Chunk, Filter, Verdict};
use larder_format::ids::JobId;
use larder_format::recipe::SegmentRef;
use larder_format::segment::ChunkRecord;
use larder_index::IndexRuntime;
use larder_store::RepositoryError;
use larder_store::container_reader::ChunkReader;

use super::bases::BaseSegments;
use crate::version::RecipeReader;

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
                tracing::warn!(%error, "a base version is damaged; its duplicates are stored anew");
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
    /// The base that had a duplicate last.
    last: usize,
    /// Whether the chunk asked about last was there.
    found_last: bool,
}

impl BaseFilters {
    /// Filters that take about `budget` bytes of memory together; `None` when there is no base.
    pub(super) fn new(readers: Vec<RecipeReader>, budget: usize) -> Option<Self> {
        let share = budget.checked_div(readers.len())?;
        let new = |reader| BaseFilter { filter: Some(GroupFilter::new(BaseSegments::new(reader), share)) };
        Some(Self { bases: readers.into_iter().map(new).collect(), last: 0, found_last: false })
    }

    /// The segment that the stream is following: the one a segment written now may be equal to.
    pub(super) fn followed(&mut self) -> Result<Option<SegmentRef>, RepositoryError> {
        self.bases[self.last].ask(|filter| {
            let Some(group) = filter.current_group() else { return Ok(None) };
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
        for number in (self.last..count).chain(0..self.last) {
            if let Some(record) = self.bases[number].ask(|filter| filter.find(chunk.fingerprint, chunk.size()))? {
                (self.last, self.found_last) = (number, true);
                return Ok(Verdict::StrongMaybe(record));
            }
        }
        self.found_last = false;
        Ok(Verdict::WeakMaybe)
    }
}

/// Compares a chunk that was found by its fingerprint with what is stored, byte for byte (`--paranoid`). What is damaged or differs is
/// not used: the chunk is stored once more. Chunks that this job stores itself are still on their way and are not compared.
#[derive(Debug)]
pub(super) struct ByteComparison {
    reader: ChunkReader,
    runtime: IndexRuntime,
    job: JobId,
}

impl ByteComparison {
    pub(super) fn new(reader: ChunkReader, runtime: IndexRuntime, job: JobId) -> Self {
        Self { reader, runtime, job }
    }
}

impl Filter<RepositoryError> for ByteComparison {
    fn check(&mut self, chunk: &Chunk<'_>, found: Option<&ChunkRecord>) -> Result<Verdict, RepositoryError> {
        let Some(found) = found.filter(|found| found.chunk.container.job != self.job) else {
            return Ok(Verdict::WeakMaybe);
        };
        match self.runtime.block_on(self.reader.read(&found.chunk)) {
            Ok(stored) if stored == chunk.bytes => Ok(Verdict::Existing(*found)),
            Ok(_) => {
                tracing::error!(fingerprint = ?chunk.fingerprint, "two different chunks have one fingerprint");
                Ok(Verdict::NonExisting)
            }
            Err(error) if error.is_damage() => {
                tracing::warn!(%error, "a stored chunk is damaged; it is stored anew");
                Ok(Verdict::NonExisting)
            }
            Err(error) => Err(error),
        }
    }

    fn can_be_certain(&self) -> bool {
        true
    }
}
