//! Copies everything that a file needs to the disk cache, in stream order.
//!
//! Frames stay sealed, and places of chunks go to a second temporary file. Every chunk is verified
//! on the way. Afterwards reads need neither the store nor a lease.

use std::ops::Range;
use std::sync::Arc;

use larder_job::Cancel;

use super::frames::KeepError;
use super::kept_places::KeptPlaces;
use super::segment::Segment;
use super::{RandomError, RandomReader, Shared};

/// The result of hydration.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Hydrated {
    /// Bytes of the file that are stored.
    pub bytes: u64,
    /// Bytes in the disk cache.
    pub on_disk: u64,
}

impl RandomReader {
    /// Copies everything that is missing to the disk cache. Reads go on beside. `progress` gets the
    /// bytes that are done so far, and all.
    ///
    /// # Errors
    /// A part is damaged or cannot be read; the disk cache is too small; `cancel` says so. What was
    /// copied stays useful.
    pub fn hydrate(&self, cancel: &Cancel, progress: impl FnMut(u64, u64)) -> Result<Hydrated, RandomError> {
        let shared = &self.shared;
        let Some(disk) = &shared.frames.disk else {
            return Err(RandomError::NotKept { reason: KeepError::NoDisk.to_string() });
        };
        disk.pin();
        let kept = shared.copy_all(cancel, progress);
        match kept {
            Ok(kept) => shared.places.keep(kept),
            Err(error) => {
                disk.unpin();
                return Err(error);
            }
        }
        Ok(Hydrated { bytes: shared.contents.stored_bytes(), on_disk: disk.used() })
    }
}

impl Shared {
    fn copy_all(&self, cancel: &Cancel, mut progress: impl FnMut(u64, u64)) -> Result<KeptPlaces, RandomError> {
        let not_kept = |error: std::io::Error| RandomError::NotKept { reason: error.to_string() };
        let mut kept = KeptPlaces::new(&self.version.options.scratch).map_err(not_kept)?;
        let (all, mut done, mut planned) = (self.contents.stored_bytes(), 0, 0);
        // Frames that memory drops before they are verified come from the disk.
        let window = self.ahead_max.saturating_mul(2);
        for run in self.contents.stored() {
            let mut at = run.start;
            while at < run.end {
                if cancel.is_cancelled() {
                    return Err(RandomError::Interrupted);
                }
                // Half a window ahead at least, and nothing twice.
                if self.has_workers && at + window / 2 > planned && planned < run.end {
                    let from = planned.max(at);
                    planned = at.saturating_add(window).min(run.end);
                    self.queue.plan(from..planned);
                }
                let (segment, verified) = self.copy_segment(at..run.end)?;
                kept.push(&segment, verified).map_err(not_kept)?;
                let next = segment.end().min(run.end);
                done += next - at;
                at = next;
                progress(done, all);
            }
        }
        kept.finish().map_err(not_kept)?;
        Ok(kept)
    }

    /// Verifies the chunks of one segment in a range and puts their frames on disk. Returns the
    /// segment and the numbers of these chunks: only their places are known to be right.
    fn copy_segment(&self, range: Range<u64>) -> Result<(Arc<Segment>, Range<usize>), RandomError> {
        'again: loop {
            let segment = self.places.segment(range.start)?.ok_or_else(|| self.short())?;
            let first = segment.chunk_at(range.start).ok_or_else(|| self.short())?;
            let (mut buffer, mut verified) = (Vec::new(), first..first);
            for (number, chunk) in segment.chunks.iter().enumerate().skip(first) {
                let start = segment.start_of(number);
                if start >= range.end {
                    break;
                }
                buffer.resize(chunk.size as usize, 0);
                self.read_chunk(start, &mut buffer)?;
                // That read may have found the chunk elsewhere.
                if segment.changes != self.places.moved().changes() && !self.places.are_kept() {
                    continue 'again;
                }
                self.frames.ensure_on_disk(chunk.container, chunk.offset)?;
                verified.end = number + 1;
            }
            return Ok((segment, verified));
        }
    }
}

impl From<KeepError> for RandomError {
    fn from(error: KeepError) -> Self {
        match error {
            KeepError::Repository(error) => Self::Repository(error),
            error => Self::NotKept { reason: error.to_string() },
        }
    }
}
