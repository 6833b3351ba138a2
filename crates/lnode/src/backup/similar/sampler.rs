//! Cuts, names and samples bytes as the backup will.
//!
//! Bytes come in pieces, and the cuts do not depend on where pieces end: what is not cut yet is
//! kept until the next piece.

use larder_chunking::StreamEnd;
use larder_dedup::Sketcher;
use larder_format::sketch::Sketch;
use larder_writer::{Chunks, Cutter, Cutting, HEAD_BYTES};

/// Bytes of one piece at most.
pub(super) const PIECE_BYTES: usize = 4 << 20;
/// Cut bytes that are named together: enough to name many chunks at once.
const NAMED_BYTES: usize = 1 << 20;

/// See the module header.
pub(super) struct Sampler<'a> {
    cutting: &'a Cutting,
    sketcher: Sketcher,
    /// The bytes that were cut and not named yet, and behind them those that were not cut yet.
    chunks: Chunks,
    /// Where the latter begin.
    cut: usize,
    /// Of the present file: its length in bytes, if that is known, and how it is cut.
    total: Option<u64>,
    cutter: Option<Cutter>,
    /// Bytes of all files so far.
    bytes: u64,
}

impl<'a> Sampler<'a> {
    pub(super) fn new(cutting: &'a Cutting) -> Self {
        let (sketcher, chunks) = (Sketcher::new(), Chunks::default());
        Self { cutting, sketcher, chunks, cut: 0, total: None, cutter: None, bytes: 0 }
    }

    /// Bytes that it got so far.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// A file or stream of `total` bytes begins.
    pub(super) fn begin(&mut self, total: Option<u64>) {
        self.chunks.bytes.truncate(self.cut);
        (self.total, self.cutter) = (total, None);
    }

    /// Its next bytes; `end` tells whether they are the last.
    pub(super) fn piece(&mut self, bytes: &[u8], end: StreamEnd) {
        self.bytes += bytes.len() as u64;
        self.chunks.bytes.extend_from_slice(bytes);
        let stream = &self.chunks.bytes[self.cut..];
        if self.cutter.is_none() && (stream.len() >= HEAD_BYTES || end == StreamEnd::Reached) {
            self.cutter = Some(self.cutting.choose(&stream[..stream.len().min(HEAD_BYTES)], self.total));
        }
        let Some(cutter) = self.cutter else { return };
        self.cut += self.cutting.chunker(cutter).cut_all(stream, end, &mut self.chunks.lengths);
        if self.cut >= NAMED_BYTES {
            self.name();
        }
    }

    /// Names and samples what was cut.
    fn name(&mut self) {
        self.chunks.fingerprint(self.cutting);
        for (length, fingerprint) in self.chunks.lengths.iter().zip(&self.chunks.fingerprints) {
            self.sketcher.chunk(fingerprint, *length, None);
        }
        self.chunks.lengths.clear();
        self.chunks.bytes.drain(..self.cut);
        self.cut = 0;
    }

    /// The sketch of everything so far.
    pub(super) fn sketch(&mut self) -> Sketch {
        self.name();
        self.sketcher.clone().finish(None)
    }
}
