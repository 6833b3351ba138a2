//! Proves the likely repetitions of a large file ahead of the feeder, on the pool's threads.
//!
//! A proof reads a segment and computes a MAC over it, at some 3 GB/s a core. One thread alone
//! would be the bottleneck of an unchanged file. But the base's next segments are known long
//! before, so free threads read them at their places. Whether a segment is proved is a fact about
//! bytes at a place of the file. So it does not depend on other results. A changed segment returns
//! with its bytes, and is not read again. One that is not to be tried is only read.
//!
//! Not here: files with holes and streams, which the feeder reads itself.

use std::collections::VecDeque;
use std::sync::Arc;

use crossbeam_channel::{Receiver, bounded};
use larder_chunking::RunMac;
use larder_source::Elsewhere;
use larder_writer::{Cutter, Cutting, PoolHandle};

use super::prediction::{Predicted, Predictor};
use super::read_window::{STEP_BYTES, is_worth_keeping, lengthen};

/// Segments under way at most, of some 2 MiB each: enough for every core of most machines, few
/// enough for memory.
const SEGMENTS_MAX: usize = 12;

/// The requirements of proofs.
pub(super) struct ProofPrefetch {
    /// The file.
    pub(super) file: Elsewhere,
    /// How it is cut.
    pub(super) cutter: Cutter,
    /// The chunkers.
    pub(super) cutting: Arc<Cutting>,
    /// The pool that proves.
    pub(super) pool: PoolHandle,
}

/// A predicted segment after its check.
#[derive(Debug)]
pub(super) struct Proved {
    /// The segment.
    pub(super) predicted: Predicted,
    /// Whether the file has it here, as far as that was tried.
    pub(super) holds: bool,
    /// The bytes that the file has here instead, and somewhat more.
    pub(super) buffer: Vec<u8>,
    /// The number of those bytes.
    pub(super) filled: usize,
}

/// A segment under way.
#[derive(Debug)]
struct Coming {
    at: u64,
    bytes: u64,
    proved: Receiver<Proved>,
}

/// See the module header.
pub(super) struct Proofs {
    ahead: ProofPrefetch,
    /// The distance that cuts look ahead.
    max: usize,
    coming: VecDeque<Coming>,
    spare: Vec<Vec<u8>>,
}

impl Proofs {
    /// Proofs for a file, before the first question.
    pub(super) fn new(ahead: ProofPrefetch, max: usize) -> Self {
        Self { ahead, max, coming: VecDeque::new(), spare: Vec::new() }
    }

    /// The segment that was predicted to begin at this place of the file, after its proof; later
    /// ones are proved meanwhile. `None` without a prediction here, or too near to the end of the
    /// file.
    pub(super) fn at(&mut self, at: u64, predictor: &mut Predictor) -> Option<Proved> {
        while self.coming.front().is_some_and(|coming| coming.at < at) {
            self.coming.pop_front();
        }
        self.look_ahead(at, predictor);
        let coming = self.coming.pop_front_if(|coming| coming.at == at)?;
        // The sender is dropped unsent only when a thread panicked: then the feeder reads by
        // itself, and the sequencer finds out.
        let proved = coming.proved.recv().ok()?;
        (proved.filled > 0).then_some(proved)
    }

    /// Returns a buffer for reuse.
    pub(super) fn give_back(&mut self, buffer: Vec<u8>) {
        if self.spare.len() < SEGMENTS_MAX && is_worth_keeping(&buffer) {
            self.spare.push(buffer);
        }
    }

    /// The stream has moved: what is under way is at wrong places.
    pub(super) fn forget(&mut self) {
        self.coming.clear();
    }

    fn look_ahead(&mut self, at: u64, predictor: &mut Predictor) {
        // One for each thread, and one that is ready: more would only leave the cores' caches.
        let most = if predictor.is_guess() { 1 } else { SEGMENTS_MAX.min(self.ahead.pool.threads() + 1) };
        while self.coming.len() < most {
            let next = self.coming.back().map_or(at, |coming| coming.at + coming.bytes);
            let Some(predicted) = predictor.predict(next, self.ahead.cutter) else { return };
            // The feeder reads the end of a file itself: it knows best where the end is.
            if next + predicted.bytes + self.max as u64 >= self.ahead.file.size() {
                return;
            }
            let bytes = predicted.bytes;
            let proved = self.prove(next, predicted, predictor.mac());
            self.coming.push_back(Coming { at: next, bytes, proved });
        }
    }

    fn prove(&mut self, at: u64, predicted: Predicted, mac: RunMac) -> Receiver<Proved> {
        let (done, proved) = bounded(1);
        let (file, cutting, cutter) = (self.ahead.file.clone(), self.ahead.cutting.clone(), self.ahead.cutter);
        let (mut mac, mut buffer) = (mac, self.spare.pop().unwrap_or_default());
        let whole = predicted.bytes as usize + self.max;
        self.ahead.pool.normal(move |_| {
            lengthen(&mut buffer, 0, whole);
            let mut filled = 0;
            while filled < whole {
                // The bytes just read are still in the cache of the core.
                let to = whole.min(filled + STEP_BYTES);
                if !file.fill(&mut buffer[filled..to], at + filled as u64) {
                    // Shorter than before, or unreadable: the feeder will find out.
                    filled = 0;
                    break;
                }
                let segment = if predicted.is_tried { predicted.bytes as usize } else { 0 };
                mac.update(&buffer[filled.min(segment)..to.min(segment)]);
                filled = to;
            }
            let may_hold = predicted.is_tried && filled > 0;
            let holds = may_hold && predicted.is_proved(mac, &buffer[..filled], cutting.chunker(cutter));
            let _ = done.send(Proved { predicted, holds, buffer, filled });
        });
        proved
    }
}
