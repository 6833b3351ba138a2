//! Checks a map of changes: reads parts of the image that it leaves out, and compares them with the
//! base.
//!
//! A part is a segment of the base. Its proof recognises its bytes by one MAC. Where a segment has
//! no proof, or a change is in it, its chunks are compared by their fingerprints.
//!
//! If a share `f` of all segments changed without a word of the map, `k` random ones miss that with
//! a probability of `(1-f)^k`. So samples find maps that are plainly wrong, and full checks the
//! others.

use std::collections::BTreeSet;
use std::num::NonZeroU32;
use std::ops::Range;

use larder_format::recipe::SegmentRef;
use larder_job::Cancel;
use larder_reader::RecipeReader;
use larder_store::RepositoryError;
use larder_writer::Cutting;

use super::BackupError;
use super::image::ImageReader;
use super::taken_over::Stretch;

/// Segments that are compared at least, if there are as many.
const SEGMENTS_MIN: u64 = 64;
/// Of this number of unchanged segments, one is compared.
const ONE_IN: u64 = 100;
/// Bytes of a segment, roughly.
const SEGMENT_BYTES: u64 = 2 << 20;
/// Bytes that are read at once, and a segment more at most, if there is no bound. Servers of images
/// answer several requests at the same time.
const BATCH_BYTES: u64 = 8 << 20;

/// The result of a check.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Checked {
    /// Bytes that were compared.
    pub(super) bytes: u64,
    /// The offset in the data stream of the image of the first chunk found that differs.
    pub(super) wrong: Option<u64>,
}

/// See the module header.
pub(super) struct MapCheck<'a> {
    pub(super) base: RecipeReader,
    pub(super) image: &'a ImageReader,
    pub(super) stretches: &'a [Stretch],
    pub(super) cutting: &'a Cutting,
    /// Most bytes that are read at once, if there is a bound.
    pub(super) window: Option<usize>,
    pub(super) cancel: &'a Cancel,
    /// Path of the image, for errors.
    pub(super) path: &'a [u8],
}

/// Whether all is to be compared: after this number of versions that were not.
pub(super) fn is_full(every: Option<NonZeroU32>, since_full: usize) -> bool {
    every.is_some_and(|every| since_full.saturating_add(1) >= every.get() as usize)
}

/// A segment of the base, as far as it is in a stretch.
struct Part {
    /// Its number, and the offset of its first byte.
    segment: (u32, u64),
    /// The part of it, in the base.
    common: Range<u64>,
    /// The beginning of that part in the image.
    image: u64,
    /// The MAC of all of it.
    proof: Option<[u8; 16]>,
}

/// Parts that are read at once.
#[derive(Default)]
struct Batch {
    parts: Vec<Part>,
    bytes: u64,
    buffer: Vec<u8>,
}

impl MapCheck<'_> {
    /// Compares everything that the map leaves out.
    pub(super) fn full(&mut self) -> Result<Checked, BackupError> {
        let (mut checked, mut batch) = (Checked::default(), Batch::default());
        for stretch in self.stretches {
            let whole = stretch.base_range();
            let mut at = whole.start;
            while at < whole.end && checked.wrong.is_none() {
                at = self.add(stretch, at, &mut batch, &mut checked)?;
            }
        }
        self.compare(&mut batch, &mut checked)?;
        Ok(checked)
    }

    /// Compares samples. `draw` gives random numbers.
    pub(super) fn sampled(
        &mut self,
        mut draw: impl FnMut() -> Result<u64, RepositoryError>,
    ) -> Result<Checked, BackupError> {
        let total: u64 = self.stretches.iter().map(|stretch| stretch.range.end - stretch.range.start).sum();
        let count = SEGMENTS_MIN.max(total / SEGMENT_BYTES / ONE_IN);
        if total <= count * SEGMENT_BYTES {
            return self.full();
        }
        // In rising order, so that nodes of the recipe are read once.
        let mut places = BTreeSet::new();
        for _ in 0..count {
            places.insert(draw()? % total);
        }
        let (mut checked, mut batch) = (Checked::default(), Batch::default());
        let (mut before, mut stretches, mut done) = (0, self.stretches.iter().peekable(), 0);
        for place in places {
            while let Some(stretch) = stretches.peek() {
                let length = stretch.range.end - stretch.range.start;
                if place - before < length {
                    break;
                }
                before += length;
                stretches.next();
            }
            let Some(stretch) = stretches.peek() else { break };
            let at = stretch.base + (place - before);
            // The segment around the place may have been compared for the one before.
            if at >= done && checked.wrong.is_none() {
                done = self.add(stretch, at, &mut batch, &mut checked)?;
            }
        }
        self.compare(&mut batch, &mut checked)?;
        Ok(checked)
    }

    /// Adds the part in a stretch of the segment that holds a byte of the base; returns where to
    /// continue. A full batch is compared.
    fn add(
        &mut self,
        stretch: &Stretch,
        at: u64,
        batch: &mut Batch,
        checked: &mut Checked,
    ) -> Result<u64, BackupError> {
        let found = match self.base.segment_at(at)? {
            Some((number, start)) => self.base.segment_ref(number)?.map(|(segment, _)| (number, start, segment)),
            None => None,
        };
        let Some((number, start, segment)) = found else { return Ok(stretch.base_range().end) };
        let whole = start..start + segment.bytes;
        let mut common = whole.start.max(stretch.base)..whole.end.min(stretch.base_range().end);
        let mut next = whole.end;
        let window = self.window.map(|window| window as u64);
        if let Some(window) = window {
            if common.end - common.start > window {
                let Some(part) = self.part_of((number, start), &common, at, window)? else { return Ok(whole.end) };
                (next, common) = (part.end, part);
            }
            if batch.bytes + (common.end - common.start) > window {
                self.compare(batch, checked)?;
                if checked.wrong.is_some() {
                    return Ok(next);
                }
            }
        }
        let proof = mac_of(&segment, common == whole);
        batch.bytes += common.end - common.start;
        batch.parts.push(Part { segment: (number, start), image: stretch.to_image(common.start), common, proof });
        if batch.bytes >= BATCH_BYTES {
            self.compare(batch, checked)?;
        }
        Ok(next)
    }

    /// Chunks of a segment within `common`, from the one that holds the byte `at` on: as many as
    /// the window holds. `None` when there are none.
    fn part_of(
        &mut self,
        (number, start): (u32, u64),
        common: &Range<u64>,
        at: u64,
        window: u64,
    ) -> Result<Option<Range<u64>>, RepositoryError> {
        let mut part: Option<Range<u64>> = None;
        let mut chunk = start..start;
        for record in self.base.segment(number)?.iter() {
            chunk = chunk.end..chunk.end + u64::from(record.chunk.size);
            if chunk.end <= at || chunk.start < common.start {
                continue;
            }
            let from = part.as_ref().map_or(chunk.start, |part| part.start);
            if chunk.end > common.end || chunk.end - from > window {
                break;
            }
            part = Some(from..chunk.end);
        }
        Ok(part)
    }

    /// Reads the parts of a batch, and compares them up to the first that differs.
    fn compare(&mut self, batch: &mut Batch, checked: &mut Checked) -> Result<(), BackupError> {
        if self.cancel.is_cancelled() {
            return Err(BackupError::Interrupted);
        }
        let parts = std::mem::take(&mut batch.parts);
        if parts.is_empty() {
            return Ok(());
        }
        batch.buffer.resize(std::mem::take(&mut batch.bytes) as usize, 0);
        let (mut wanted, mut rest) = (Vec::new(), &mut batch.buffer[..]);
        for part in &parts {
            let (own, others) = rest.split_at_mut((part.common.end - part.common.start) as usize);
            wanted.push((part.image, own));
            rest = others;
        }
        let read = self.image.read_parts(wanted);
        read.map_err(|source| BackupError::Input { path: self.path.to_owned(), source })?;
        checked.bytes += batch.buffer.len() as u64;
        let mut rest = &batch.buffer[..];
        for part in &parts {
            let (bytes, others) = rest.split_at((part.common.end - part.common.start) as usize);
            rest = others;
            let is_proved = match (&self.cutting.run_mac, part.proof) {
                (Some(mac), Some(proof)) => {
                    let mut mac = mac.clone();
                    mac.update(bytes);
                    mac.finish() == proof
                }
                _ => false,
            };
            if is_proved {
                continue;
            }
            let (number, start) = part.segment;
            if let Some(at) = self.difference(number, start, &part.common, bytes)? {
                checked.wrong = Some(part.image + (at - part.common.start));
                break;
            }
        }
        Ok(())
    }

    /// The place in the base of the first chunk of a segment that is within `common` and not in its
    /// bytes.
    fn difference(
        &mut self,
        number: u32,
        start: u64,
        common: &Range<u64>,
        bytes: &[u8],
    ) -> Result<Option<u64>, RepositoryError> {
        let mut chunk = start..start;
        for record in self.base.segment(number)?.iter() {
            chunk = chunk.end..chunk.end + u64::from(record.chunk.size);
            if chunk.start < common.start || chunk.end > common.end {
                continue;
            }
            let bytes = &bytes[(chunk.start - common.start) as usize..(chunk.end - common.start) as usize];
            if self.cutting.fingerprinter.one(bytes) != record.chunk.fingerprint {
                return Ok(Some(chunk.start));
            }
        }
        Ok(None)
    }
}

/// The MAC of a whole segment.
fn mac_of(segment: &SegmentRef, is_whole: bool) -> Option<[u8; 16]> {
    segment.proof.as_ref().filter(|_| is_whole).map(|proof| proof.mac)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_tenth_version_is_compared_as_a_whole() {
        let ten = NonZeroU32::new(10);
        assert!(!is_full(ten, 0) && !is_full(ten, 8) && is_full(ten, 9) && is_full(ten, 200));
        assert!(is_full(NonZeroU32::new(1), 0) && !is_full(None, 1000));
    }
}
