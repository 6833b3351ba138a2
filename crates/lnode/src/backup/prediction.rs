//! What a large file is likely to repeat: the segments that the base has where the file is now.
//!
//! The feeder reads a file from front to back. As long as the file lies in the base with some shift, the base's segments predict
//! whole stretches of it, and a [`Proof`] settles each with one MAC: an unchanged stretch is neither cut nor named
//! (`DESIGN.md` section 11). Where a stretch has changed it is cut in the ordinary way, up to the place where the base's next segment
//! begins; if a cut falls there, prediction goes on. Where bytes were inserted or removed no cut falls there; then the sequencer,
//! which finds the chunks by their names, tells the new shift through the [`Track`].
//!
//! A wrong prediction costs its MAC and nothing else.

use std::ops::Range;
use std::sync::Arc;

use larder_chunking::{Chunker, RunMac};
use larder_format::recipe::Proof;
use larder_store::RepositoryError;
use parking_lot::Mutex;

use super::cutting::Cutter;
use crate::version::RecipeReader;

/// Files and streams shorter than this have no proofs, and their segments no borders of their own (bytes).
pub(super) const PROVED_MIN: u64 = 1 << 20;

/// Where the sequencer last found the stream in the base.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Sighting {
    /// Number of the large file, from 0.
    pub(super) file: u64,
    /// Bytes of that file before the place.
    pub(super) at: u64,
    /// The corresponding offset in the base's data stream.
    pub(super) base: u64,
}

/// Tells the feeder what the sequencer found. Only the newest sighting counts, and none is needed.
#[derive(Debug, Clone, Default)]
pub(super) struct Track(Arc<Mutex<Option<Sighting>>>);

impl Track {
    pub(super) fn saw(&self, sighting: Sighting) {
        *self.0.lock() = Some(sighting);
    }

    fn last(&self) -> Option<Sighting> {
        *self.0.lock()
    }
}

/// A segment that may come next.
#[derive(Debug, Clone)]
pub(super) struct Predicted {
    /// Where it lies in the base's data stream.
    pub(super) offset: u64,
    /// Its length in bytes.
    pub(super) bytes: u64,
    proof: Proof,
}

impl Predicted {
    /// Whether the stretch is the segment: `mac` was taken over its bytes, with which `data` begins. `data` goes on with what
    /// follows, at least as far as the chunker looks, or to the end of the file.
    pub(super) fn is_proved(&self, mac: RunMac, data: &[u8], chunker: &dyn Chunker) -> bool {
        let tail: u64 = self.proof.tail.iter().map(|length| u64::from(*length)).sum();
        if tail > self.bytes || mac.finish() != self.proof.mac {
            return false;
        }
        let mut at = (self.bytes - tail) as usize;
        self.proof.tail.iter().all(|length| {
            let confirmed = chunker.confirms(&data[at..], *length as usize);
            at += *length as usize;
            confirmed
        })
    }
}

/// See the module header.
#[derive(Debug)]
pub(super) struct Predictor {
    /// `None` when there is no base, or it cannot be read.
    base: Option<RecipeReader>,
    run_mac: RunMac,
    track: Track,
    files: u64,
    /// Offset in the base minus offset in the file, once known.
    shift: Option<i64>,
}

impl Predictor {
    pub(super) fn new(base: RecipeReader, run_mac: RunMac, track: Track) -> Self {
        Self { base: Some(base), run_mac, track, files: 0, shift: None }
    }

    /// A large file begins; the base may have its predecessor in this range.
    pub(super) fn begin(&mut self, known: Option<&Range<u64>>) {
        self.files += 1;
        self.shift = known.map(|range| range.start as i64);
    }

    /// A MAC to begin with.
    pub(super) fn mac(&self) -> RunMac {
        self.run_mac.clone()
    }

    /// The segment that is likely to begin at `at`, if it has a proof for this cutter.
    pub(super) fn predict(&mut self, at: u64, cutter: Cutter) -> Option<Predicted> {
        let (offset, segment, start) = self.segment_at(at)?;
        if start != offset {
            return None;
        }
        let found = self.read(|base| base.segment_ref(segment))?;
        let proof = found.0.proof.filter(|proof| proof.cutter == cutter as u8)?;
        Some(Predicted { offset, bytes: found.0.bytes, proof })
    }

    /// The next place behind `at` where a segment may begin: ordinary cutting stops there, if a cut falls there.
    pub(super) fn next_start(&mut self, at: u64) -> Option<u64> {
        let (offset, segment, start) = self.segment_at(at)?;
        let bytes = self.read(|base| base.segment_ref(segment))?.0.bytes;
        Some(at + (start + bytes).checked_sub(offset)?)
    }

    /// The stretch was not as predicted, or nothing was predicted: what the sequencer saw meanwhile may tell a new shift.
    pub(super) fn look_around(&mut self) {
        if let Some(seen) = self.track.last()
            && seen.file + 1 == self.files
        {
            self.shift = Some(seen.base as i64 - seen.at as i64);
        }
    }

    /// Offset in the base, number and beginning of the segment there.
    fn segment_at(&mut self, at: u64) -> Option<(u64, u32, u64)> {
        let offset = u64::try_from((at as i64).checked_add(self.shift?)?).ok()?;
        let (segment, start) = self.read(|base| base.segment_at(offset))?;
        Some((offset, segment, start))
    }

    /// Without the base nothing is predicted: slower, not wrong. What is damaged is told by the filters, which read it too.
    fn read<T>(&mut self, read: impl FnOnce(&mut RecipeReader) -> Result<Option<T>, RepositoryError>) -> Option<T> {
        match read(self.base.as_mut()?) {
            Ok(found) => found,
            Err(error) => {
                tracing::debug!(%error, "the base predicts nothing more");
                self.base = None;
                None
            }
        }
    }
}
