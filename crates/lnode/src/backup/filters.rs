//! The filters of a backup that read from the store: the streams of base versions, and the comparison of bytes.

use larder_dedup::GroupFilter;
use larder_dedup::chain::{Chunk, Filter, Verdict};
use larder_format::ids::JobId;
use larder_format::recipe::SegmentRef;
use larder_format::segment::ChunkRecord;
use larder_store::RepositoryError;
use larder_store::container_reader::ChunkReader;
use tokio::runtime::Handle;

use super::bases::BaseSegments;
use crate::version::RecipeReader;

/// Chunks of one stream of a base version. Says nothing more once the base turns out to be damaged: nothing is lost by storing
/// again what it cannot give any more, and `check` tells about the base.
#[derive(Debug)]
pub(super) struct BaseFilter {
    filter: Option<GroupFilter<BaseSegments>>,
    /// Whether the chunk asked about last was there.
    found_last: bool,
}

impl BaseFilter {
    /// A filter that takes about `budget` bytes of memory.
    pub(super) fn new(reader: RecipeReader, budget: usize) -> Self {
        Self { filter: Some(GroupFilter::new(BaseSegments::new(reader), budget)), found_last: false }
    }

    /// The segment that the stream is following: the one a segment written now may be equal to.
    pub(super) fn followed(&mut self) -> Result<Option<SegmentRef>, RepositoryError> {
        let Some(filter) = &mut self.filter else { return Ok(None) };
        let Some(group) = filter.current_group() else { return Ok(None) };
        Ok(filter.loader_mut().reader.segment_ref(group)?.map(|(segment, _)| segment))
    }

    /// The next chunk is expected to be this record of this segment.
    pub(super) fn expect(&mut self, segment: u32, record: u32) -> Result<(), RepositoryError> {
        match &mut self.filter {
            Some(filter) => filter.expect(segment, record),
            None => Ok(()),
        }
    }
}

impl BaseFilter {
    /// The offset in the base's stream that corresponds to where the stream is now, if the last chunk was found there.
    pub(super) fn position(&mut self) -> Result<Option<u64>, RepositoryError> {
        let Some(filter) = self.filter.as_mut().filter(|_| self.found_last) else { return Ok(None) };
        let Some((segment, inside)) = filter.position() else { return Ok(None) };
        Ok(filter.loader_mut().reader.segment_ref(segment)?.map(|(_, start)| start + inside))
    }
}

impl Filter<RepositoryError> for BaseFilter {
    fn check(&mut self, chunk: &Chunk<'_>, found: Option<&ChunkRecord>) -> Result<Verdict, RepositoryError> {
        let Some(filter) = &mut self.filter else { return Ok(Verdict::WeakMaybe) };
        let verdict = filter.check(chunk, found).or_else(|error| {
            if !error.is_damage() {
                return Err(error);
            }
            tracing::warn!(%error, "a base version is damaged; its duplicates are stored anew");
            self.filter = None;
            Ok(Verdict::WeakMaybe)
        })?;
        self.found_last = matches!(verdict, Verdict::StrongMaybe(_));
        Ok(verdict)
    }
}

/// Compares a chunk that was found by its fingerprint with what is stored, byte for byte (`--paranoid`). What is damaged or differs is
/// not used: the chunk is stored once more. Chunks that this job stores itself are still on their way and are not compared.
#[derive(Debug)]
pub(super) struct ByteComparison {
    reader: ChunkReader,
    runtime: Handle,
    job: JobId,
}

impl ByteComparison {
    pub(super) fn new(reader: ChunkReader, runtime: Handle, job: JobId) -> Self {
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
