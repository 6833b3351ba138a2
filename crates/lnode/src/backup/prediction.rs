//! The likely repetitions in a large file: the segments of the base at the file's present position.
//!
//! The feeder reads a file from front to back. While the file agrees with the base at some shift,
//! the base's segments predict whole stretches of it. A [`Proof`] decides each with one MAC: an
//! unchanged stretch is neither cut nor named. A changed stretch is cut in the ordinary way, up to
//! the place where the base's next segment begins. If a cut falls there, prediction continues.
//! Where bytes were inserted or removed, no cut falls there. The runs of the changed segment may
//! tell the new shift at once (`changed_segment.rs`). If not, the sequencer, which finds the chunks
//! by their names, tells it through the [`PositionHints`].
//!
//! A file that the base does not know by its path is guessed to begin where the one before it ended
//! in the base, as in a folder that was moved. The sequencer's hints come too late for files of
//! less than some 16 MiB.
//!
//! A wrong prediction costs only its MAC. After some wrong ones in a row, only one segment in
//! several is tried as a whole ([`Tries`]). The others are treated as changed: their runs are
//! tried. If all runs of one are proved, whole segments are tried again.

use std::ops::Range;
use std::sync::Arc;

use larder_chunking::{Chunker, RunMac};
use larder_dedup::Tries;
use larder_format::recipe::Proof;
use larder_reader::RecipeReader;
use larder_store::RepositoryError;
use larder_writer::Cutter;
use parking_lot::Mutex;

use super::changed_segment::Changed;
use super::proof_check::is_proved;

/// Shorter files and streams have no proofs, and no segments of their own (bytes).
pub(super) const PROVED_MIN: u64 = 1 << 20;

/// The last place in the base where the sequencer found the stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct PositionHint {
    /// Number of the large file, from 0.
    pub(super) file: u64,
    /// Bytes of that file before the place.
    pub(super) at: u64,
    /// The corresponding offset in the base's data stream.
    pub(super) base: u64,
}

/// Tells the feeder the sequencer's finds. Only the newest counts, and none is needed.
#[derive(Debug, Clone, Default)]
pub(super) struct PositionHints(Arc<Mutex<Option<PositionHint>>>);

impl PositionHints {
    pub(super) fn saw(&self, sighting: PositionHint) {
        *self.0.lock() = Some(sighting);
    }

    fn last(&self) -> Option<PositionHint> {
        *self.0.lock()
    }
}

/// A segment that may come next.
#[derive(Debug, Clone)]
pub(super) struct Predicted {
    /// Its place in the base's data stream.
    pub(super) offset: u64,
    /// Its length in bytes.
    pub(super) bytes: u64,
    /// The number of its chunks.
    pub(super) chunks: u32,
    /// Whether its MAC is worth computing.
    pub(super) is_tried: bool,
    number: u32,
    proof: Proof,
}

impl Predicted {
    /// Whether the stretch equals the segment. `mac` covers the segment's bytes, with which `data`
    /// begins. `data` continues with the following bytes, at least as far as the chunker looks, or
    /// to the end of the file.
    pub(super) fn is_proved(&self, mac: RunMac, data: &[u8], chunker: &dyn Chunker) -> bool {
        is_proved(&self.proof, self.bytes, mac, data, chunker)
    }
}

/// See the module header.
#[derive(Debug)]
pub(super) struct Predictor {
    /// `None` when there is no base, or it cannot be read.
    base: Option<RecipeReader>,
    run_mac: RunMac,
    hints: PositionHints,
    files: u64,
    /// Offset in the base minus offset in the file, once known.
    shift: Option<i64>,
    /// Whether the shift is only a guess. Then one segment at a time is tried.
    is_guess: bool,
    /// Guesses of this file that were wrong.
    misses: u32,
    /// Whether whole segments of this file are tried.
    tries: Tries,
    /// The place of the file where the shift was last found here: earlier hints are older.
    known_to: u64,
    /// The offset in the base where the next file is guessed to begin.
    next: i64,
}

/// A guess ends after this number of wrong predictions: the file is new.
const MISSES_MAX: u32 = 2;

impl Predictor {
    pub(super) fn new(base: RecipeReader, run_mac: RunMac, hints: PositionHints) -> Self {
        let base = Some(base);
        let tries = Tries::default();
        Self { base, run_mac, hints, files: 0, shift: None, is_guess: false, misses: 0, tries, known_to: 0, next: 0 }
    }

    /// A large file begins; the base may have its predecessor in this range.
    pub(super) fn begin(&mut self, known: Option<&Range<u64>>) {
        self.files += 1;
        self.shift = Some(known.map_or(self.next, |range| range.start as i64));
        (self.is_guess, self.misses, self.known_to) = (known.is_none(), 0, 0);
        self.tries = Tries::default();
    }

    /// The large file is complete, with this number of bytes.
    pub(super) fn end(&mut self, bytes: u64) {
        // A new file does not move what is behind it in the base.
        if let Some(shift) = self.shift.filter(|_| !self.is_guess) {
            self.next = shift.saturating_add_unsigned(bytes);
        }
    }

    /// A file that is not predicted has this number of bytes; the base may have its predecessor in
    /// this range.
    pub(super) fn pass(&mut self, known: Option<&Range<u64>>, bytes: u64) {
        self.next = known.map_or(self.next.saturating_add_unsigned(bytes), |range| range.end as i64);
    }

    /// A prediction was right, as a whole or by all of its runs.
    pub(super) fn was_right(&mut self) {
        self.is_guess = false;
        self.tries.was_right();
    }

    /// A prediction that was tried was wrong.
    pub(super) fn was_wrong(&mut self) {
        self.tries.was_wrong();
    }

    /// Whether to predict only the next segment.
    pub(super) fn is_guess(&self) -> bool {
        self.is_guess
    }

    /// A MAC of no bytes yet.
    pub(super) fn mac(&self) -> RunMac {
        self.run_mac.clone()
    }

    /// The segment that is likely to begin at `at`, if it has a proof for this cutter.
    pub(super) fn predict(&mut self, at: u64, cutter: Cutter) -> Option<Predicted> {
        let (offset, segment, start) = self.segment_at(at)?;
        if start != offset {
            return None;
        }
        let found = self.read(|base| base.segment_ref(segment))?.0;
        let proof = found.proof.filter(|proof| proof.cutter == cutter as u8)?;
        // Only a proof makes a guess sure.
        let is_tried = self.is_guess || self.tries.is_next();
        Some(Predicted { offset, bytes: found.bytes, chunks: found.chunks, is_tried, number: segment, proof })
    }

    /// The parts of a changed segment; `None` when they save nothing.
    pub(super) fn changed(&mut self, predicted: &Predicted, chunker: &dyn Chunker) -> Option<Changed> {
        let segment = self.read(|base| base.whole_segment(predicted.number))?;
        if segment.superchunks.is_empty() && !chunker.is_worth_predicting() {
            return None;
        }
        Some(Changed::new(predicted.number, segment))
    }

    /// This number of bytes was inserted (or removed: negative) before the place `at` of the file.
    pub(super) fn moved(&mut self, bytes: i64, at: u64) {
        self.shift = self.shift.and_then(|shift| shift.checked_sub(bytes));
        (self.is_guess, self.known_to) = (false, at);
    }

    /// The next place behind `at` where a segment may begin: ordinary cutting stops there, if a cut
    /// falls there.
    pub(super) fn next_start(&mut self, at: u64) -> Option<u64> {
        let (offset, segment, start) = self.segment_at(at)?;
        let bytes = self.read(|base| base.segment_ref(segment))?.0.bytes;
        Some(at + (start + bytes).checked_sub(offset)?)
    }

    /// A prediction failed or was absent: the sequencer's latest finds may tell a new shift.
    pub(super) fn look_around(&mut self) {
        if let Some(seen) = self.hints.last()
            && seen.file + 1 == self.files
            && seen.at >= self.known_to
        {
            let shift = Some(seen.base as i64 - seen.at as i64);
            if shift != self.shift {
                // Segments were wrong at the old shift.
                self.tries = Tries::default();
            }
            (self.shift, self.is_guess) = (shift, false);
        } else if self.is_guess {
            self.misses += 1;
            self.shift = self.shift.filter(|_| self.misses < MISSES_MAX);
        }
    }

    /// Offset in the base, number and beginning of the segment there.
    fn segment_at(&mut self, at: u64) -> Option<(u64, u32, u64)> {
        let offset = u64::try_from((at as i64).checked_add(self.shift?)?).ok()?;
        let (segment, start) = self.read(|base| base.segment_at(offset))?;
        Some((offset, segment, start))
    }

    /// Without the base nothing is predicted: slower, not wrong. The filters read it too, and
    /// report its damage.
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
