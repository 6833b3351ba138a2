//! The parts of an image, or of a large supplied file, that are taken over from the base unread,
//! because nothing changed there.
//!
//! A stretch without changes begins and ends anywhere in the base's chunks. Its bytes are read up
//! to the first cut that the base has there too: from then on both have the same chunks. The last
//! chunks of a stretch are read again, because a cut depends on bytes behind it. So the image has
//! the chunks that it would have if all of it were read.
//!
//! The exception are contents that repeat, where cuts of both may never meet. Behind
//! [`MEETS_WITHIN`] the image is cut where the base is.
//!
//! All of this is about data streams, which have no holes. Where holes came or went, stretches have
//! other offsets in the stream of the image than in that of the base.

use std::ops::Range;
use std::sync::Arc;

use larder_format::segment::ChunkRecord;
use larder_reader::RecipeReader;
use larder_source::image::Changes;
use larder_store::RepositoryError;

use super::image::Runs;

/// Bytes of a stretch within which the cuts of the image meet those of the base, nearly always.
const MEETS_WITHIN: u64 = 1 << 20;

/// What to do next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Step {
    /// Take over this many bytes at this offset of the base's data stream.
    TakeOver { offset: u64, bytes: u64 },
    /// Read and cut. The next bytes that may be taken over begin at `stop` of the image's data
    /// stream. With `must_cut`, a chunk ends there with any content.
    Cut { stop: u64, must_cut: bool },
}

/// Bytes that the image and the base have in common.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Stretch {
    /// Their range in the data stream of the image.
    pub(super) range: Range<u64>,
    /// Their offset in that of the base.
    pub(super) base: u64,
}

impl Stretch {
    fn bytes(&self) -> u64 {
        self.range.end - self.range.start
    }

    /// The range in the data stream of the base.
    pub(super) fn base_range(&self) -> Range<u64> {
        self.base..self.base + self.bytes()
    }

    /// The place in the base of one in the image, which is not before the stretch.
    fn to_base(&self, at: u64) -> u64 {
        self.base + (at - self.range.start)
    }

    /// The place in the image of one in the base; the beginning of the stretch for one before it.
    pub(super) fn to_image(&self, offset: u64) -> u64 {
        self.range.start + offset.saturating_sub(self.base)
    }
}

/// The stretches without changes, in their order: bytes that are data in both, and not in the map.
pub(super) fn stretches(image: &Runs, base: &Runs, changes: Changes, size: u64) -> Vec<Stretch> {
    let common = size.min(changes.size);
    let mut ranges = changes.ranges;
    ranges.sort_unstable_by_key(|range| range.start);
    let (mut unchanged, mut at) = (Vec::new(), 0);
    for range in ranges {
        if at < range.start.min(common) {
            unchanged.push(at..range.start.min(common));
        }
        at = at.max(range.end);
    }
    if at < common {
        unchanged.push(at..common);
    }
    let mut found: Vec<Stretch> = Vec::new();
    let (mut ours, mut theirs) = (0, 0);
    for range in unchanged {
        while let (Some((run, at)), Some((base_run, base_at))) = (image.run(ours), base.run(theirs)) {
            let from = range.start.max(run.start).max(base_run.start);
            let to = range.end.min(run.end).min(base_run.end);
            if from < to {
                let (start, base) = (at + (from - run.start), base_at + (from - base_run.start));
                let stretch = Stretch { range: start..start + (to - from), base };
                match found.last_mut() {
                    Some(last) if last.range.end == start && last.base_range().end == base => {
                        last.range.end = stretch.range.end;
                    }
                    _ => found.push(stretch),
                }
            }
            // The next range may begin in the run that ends behind this one.
            if run.end.min(base_run.end) > range.end {
                break;
            }
            if run.end <= base_run.end {
                ours += 1;
            }
            if base_run.end <= run.end {
                theirs += 1;
            }
        }
    }
    found
}

/// See the module header.
#[derive(Debug)]
pub(super) struct Untouched {
    /// The base's data stream.
    base: RecipeReader,
    /// The end of the image's predecessor in it.
    base_end: u64,
    /// Bytes of the image's data stream.
    size: u64,
    /// Stretches without changes that are not passed yet, the last one first.
    stretches: Vec<Stretch>,
    /// The segment that was read last: number, offset of its first byte, and its records.
    segment: Option<(u32, u64, Arc<Vec<ChunkRecord>>)>,
}

impl Untouched {
    /// `base` is the data stream of the version that the stretches are of. The predecessor ends at
    /// `base_end` there. `size` has the bytes of the image's data stream.
    pub(super) fn new(base: RecipeReader, base_end: u64, size: u64, mut stretches: Vec<Stretch>) -> Self {
        stretches.reverse();
        Self { base, base_end, size, stretches, segment: None }
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
            let begin = at.max(stretch.range.start);
            if begin < stretch.range.end {
                let first = stretch.to_image(self.cut_from(stretch.to_base(begin))?);
                let last = stretch.to_image(self.last_cut(&stretch, max)?);
                if first < last {
                    if at == first {
                        self.stretches.pop();
                        return Ok(Step::TakeOver { offset: stretch.to_base(at), bytes: last - at });
                    }
                    return Ok(Step::Cut { stop: first, must_cut: at >= stretch.range.start + MEETS_WITHIN });
                }
            }
            self.stretches.pop();
        }
        Ok(Step::Cut { stop: u64::MAX, must_cut: false })
    }

    /// The first cut of the base at or behind `offset`, which is in the base.
    fn cut_from(&mut self, offset: u64) -> Result<u64, RepositoryError> {
        Ok(self.chunk_at(offset)?.map_or(self.base_end, |chunk| if chunk.start == offset { offset } else { chunk.end }))
    }

    /// The last cut of the base in a stretch that the bytes of the stretch decide.
    fn last_cut(&mut self, stretch: &Stretch, max: u64) -> Result<u64, RepositoryError> {
        let end = stretch.base_range().end;
        if end == self.base_end && stretch.range.end == self.size {
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

#[cfg(test)]
mod tests {
    use larder_format::entry::Extent;
    use larder_format::ids::JobId;
    use proptest::prelude::*;

    use super::*;

    /// Runs of an image whose block `n` of 10 bytes holds data when `blocks[n]`.
    fn runs(blocks: &[bool]) -> Runs {
        let mut extents: Vec<Extent> = Vec::new();
        for (number, _) in blocks.iter().enumerate().filter(|(_, has_data)| **has_data) {
            let offset = number as u64 * 10;
            match extents.last_mut() {
                Some(last) if last.offset + last.length == offset => last.length += 10,
                _ => extents.push(Extent { offset, length: 10 }),
            }
        }
        Runs::new(blocks.len() as u64 * 10, Some(&extents), 0)
    }

    /// The place of a byte in a stream of data.
    fn place(blocks: &[bool], byte: u64) -> Option<u64> {
        let block = (byte / 10) as usize;
        blocks.get(block).filter(|has_data| **has_data)?;
        Some(blocks[..block].iter().filter(|has_data| **has_data).count() as u64 * 10 + byte % 10)
    }

    proptest! {
        #[test]
        fn stretches_are_the_bytes_that_both_have_and_no_map_names(
            image in prop::collection::vec(any::<bool>(), 0..30),
            base in prop::collection::vec(any::<bool>(), 0..30),
            map in prop::collection::vec((0..300_u64, 0..40_u64), 0..6),
        ) {
            let (size, base_size) = (image.len() as u64 * 10, base.len() as u64 * 10);
            let ranges: Vec<_> = map.iter().map(|(from, length)| *from..from + length).collect();
            let changes = Changes { since: JobId::new(1, [1; 10]), size: base_size, ranges: ranges.clone() };
            let found = stretches(&runs(&image), &runs(&base), changes, size);
            let mut expected = Vec::new();
            for byte in 0..size.min(base_size) {
                let is_changed = ranges.iter().any(|range| range.contains(&byte));
                if let (false, Some(at), Some(base_at)) = (is_changed, place(&image, byte), place(&base, byte)) {
                    expected.push((at, base_at));
                }
            }
            let bytes = found.iter().flat_map(|stretch| stretch.range.clone().zip(stretch.base_range()));
            prop_assert_eq!(bytes.collect::<Vec<_>>(), expected);
            // As long as possible.
            let touches = |pair: &[Stretch]| {
                pair[0].range.end == pair[1].range.start && pair[0].base_range().end == pair[1].base
            };
            prop_assert!(!found.windows(2).any(touches));
        }
    }
}
