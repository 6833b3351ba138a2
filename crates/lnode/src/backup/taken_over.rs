//! The parts of an image that are taken over from the base unread, because nothing changed there.
//!
//! A stretch without changes begins and ends anywhere in the base's chunks. Its bytes are read up
//! to the first cut that the base has there too: from then on both have the same chunks. The last
//! chunks of a stretch are read again, because a cut depends on bytes behind it. So the image has
//! the chunks that it would have if all of it were read.
//!
//! The exception are contents that repeat, where cuts of both may never meet. Behind
//! [`MEETS_WITHIN`] the image is cut where the base is.

use std::ops::Range;
use std::sync::Arc;

use larder_format::segment::ChunkRecord;
use larder_reader::RecipeReader;
use larder_store::RepositoryError;

use super::image::Changes;

/// Bytes of a stretch within which the cuts of the image meet those of the base, nearly always.
const MEETS_WITHIN: u64 = 1 << 20;

/// What to do next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Step {
    /// Take over this many bytes at this offset of the base's data stream.
    TakeOver { offset: u64, bytes: u64 },
    /// Read and cut. The next bytes that may be taken over begin at `stop` of the image. With
    /// `must_cut`, a chunk ends there with any content.
    Cut { stop: u64, must_cut: bool },
}

/// See the module header.
#[derive(Debug)]
pub(super) struct Untouched {
    /// The base's data stream, which is the image of that version.
    base: RecipeReader,
    /// Its bytes.
    base_size: u64,
    /// Bytes of the image.
    size: u64,
    /// Stretches without changes that are not passed yet, the last one first.
    stretches: Vec<Range<u64>>,
    /// The segment that was read last: number, offset of its first byte, and its records.
    segment: Option<(u32, u64, Arc<Vec<ChunkRecord>>)>,
}

impl Untouched {
    /// The stretches between the changes. `base` is the data stream of the version that they are
    /// counted from.
    pub(super) fn new(base: RecipeReader, size: u64, changes: Changes) -> Self {
        let common = size.min(changes.size);
        let mut ranges = changes.ranges;
        ranges.sort_unstable_by_key(|range| range.start);
        let (mut stretches, mut at) = (Vec::new(), 0);
        for range in ranges {
            if at < range.start.min(common) {
                stretches.push(at..range.start.min(common));
            }
            at = at.max(range.end);
        }
        if at < common {
            stretches.push(at..common);
        }
        stretches.reverse();
        Self { base, base_size: changes.size, size, stretches, segment: None }
    }

    /// What to do at `at`, where a chunk ended. No cut depends on more than `max` bytes from the
    /// start of its chunk.
    pub(super) fn step(&mut self, at: u64, max: u64) -> Step {
        match self.try_step(at, max) {
            Ok(step) => step,
            Err(error) => {
                // Slower, not wrong. The filters read the base too, and report its damage.
                tracing::debug!(%error, "nothing more is taken over from the base");
                self.stretches.clear();
                Step::Cut { stop: u64::MAX, must_cut: false }
            }
        }
    }

    fn try_step(&mut self, at: u64, max: u64) -> Result<Step, RepositoryError> {
        while let Some(stretch) = self.stretches.last().cloned() {
            let first = self.cut_from(at.max(stretch.start))?;
            if first < stretch.end {
                let last = self.last_cut(stretch.end, max)?;
                if at == first && first < last {
                    self.stretches.pop();
                    return Ok(Step::TakeOver { offset: at, bytes: last - at });
                }
                if first < last {
                    return Ok(Step::Cut { stop: first, must_cut: at >= stretch.start + MEETS_WITHIN });
                }
            }
            self.stretches.pop();
        }
        Ok(Step::Cut { stop: u64::MAX, must_cut: false })
    }

    /// The first cut of the base at or behind `offset`, which is in the base.
    fn cut_from(&mut self, offset: u64) -> Result<u64, RepositoryError> {
        Ok(self
            .chunk_at(offset)?
            .map_or(self.base_size, |chunk| if chunk.start == offset { offset } else { chunk.end }))
    }

    /// The last cut of the base that the bytes before `end` decide.
    fn last_cut(&mut self, end: u64, max: u64) -> Result<u64, RepositoryError> {
        if end == self.base_size && end == self.size {
            return Ok(end);
        }
        let Some(offset) = end.checked_sub(max) else { return Ok(0) };
        let chunk = self.chunk_at(offset)?;
        // A base in another cut may have longer chunks.
        Ok(chunk.map_or(0, |chunk| if chunk.end <= end { chunk.end } else { chunk.start }))
    }

    /// The chunk of the base that holds a byte.
    fn chunk_at(&mut self, offset: u64) -> Result<Option<Range<u64>>, RepositoryError> {
        let Some((number, start)) = self.base.segment_at(offset)? else { return Ok(None) };
        if self.segment.as_ref().is_none_or(|known| known.0 != number) {
            self.segment = Some((number, start, self.base.segment(number)?));
        }
        let Some((_, start, records)) = &self.segment else { return Ok(None) };
        let mut chunk = *start..*start;
        for record in records.iter() {
            chunk = chunk.end..chunk.end + u64::from(record.chunk.size);
            if chunk.end > offset {
                return Ok(Some(chunk));
            }
        }
        Ok(None)
    }
}
