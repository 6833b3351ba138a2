//! The bytes of a large file that were read and not passed on yet.

use larder_chunking::{RunMac, StreamEnd};
use larder_writer::{Chunks, KnownRun};

/// Bytes read between two steps of a MAC: they are still in the cache of the core.
pub(super) const STEP_BYTES: usize = 256 << 10;

/// Buffers of bytes that are read have a multiple of this length. Nearly all segments fit into one
/// step. Only the part in use takes memory.
const BUFFER_STEP: usize = 4 << 20;

/// Makes `buffer` at least `bytes` long; its first `kept` bytes stay as they are. A buffer that is
/// too short is replaced: to grow it would copy everything in it, and new memory of zeros costs
/// nothing before it is used.
pub(super) fn lengthen(buffer: &mut Vec<u8>, kept: usize, bytes: usize) {
    if buffer.len() < bytes {
        let mut longer = vec![0; bytes.next_multiple_of(BUFFER_STEP)];
        longer[..kept].copy_from_slice(&buffer[..kept]);
        *buffer = longer;
    }
}

/// The results of cutting bytes.
#[derive(Debug, Default)]
pub(super) struct Pieces {
    pub(super) lengths: Vec<u32>,
    pub(super) known: Vec<KnownRun>,
}

/// The source of bytes.
pub(super) trait Supply {
    /// The next bytes; 0 is the end.
    fn read(&mut self, buffer: &mut [u8]) -> usize;

    /// Continues behind the next `bytes`, which came in another way. Only for supplies with such a
    /// way.
    fn pass(&mut self, bytes: u64);
}

/// See the module header. The buffer keeps its length and is filled in part, or zeroing it would
/// cost as much as cutting.
pub(super) struct ReadWindow<'a> {
    supply: &'a mut dyn Supply,
    chunks: Chunks,
    filled: usize,
    at_end: bool,
    /// Offset in the file of the first byte held.
    pub(super) at: u64,
}

impl std::fmt::Debug for ReadWindow<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ReadWindow").field("at", &self.at).field("filled", &self.filled).finish_non_exhaustive()
    }
}

impl<'a> ReadWindow<'a> {
    /// `chunks` has buffers for reuse.
    pub(super) fn new(chunks: Chunks, supply: &'a mut dyn Supply) -> Self {
        Self { supply, chunks, filled: 0, at_end: false, at: 0 }
    }

    /// The held bytes.
    pub(super) fn data(&self) -> &[u8] {
        &self.chunks.bytes[..self.filled]
    }

    /// Whether no byte is held and none will come.
    pub(super) fn is_over(&mut self) -> bool {
        self.fill(1);
        self.filled == 0
    }

    /// Reads until `bytes` are held, or the file ends; returns the held bytes.
    pub(super) fn fill(&mut self, bytes: usize) -> &[u8] {
        lengthen(&mut self.chunks.bytes, self.filled, bytes);
        while !self.at_end && self.filled < bytes {
            let count = self.supply.read(&mut self.chunks.bytes[self.filled..bytes]);
            self.filled += count;
            self.at_end = count == 0;
        }
        &self.chunks.bytes[..self.filled]
    }

    /// The MAC of the next `bytes`, which are held afterwards with `ahead` more; `None` when the
    /// file is shorter. The file may end before `ahead`.
    pub(super) fn mac(&mut self, mut mac: RunMac, bytes: usize, ahead: usize) -> Option<RunMac> {
        let whole = bytes + ahead;
        lengthen(&mut self.chunks.bytes, self.filled, whole);
        let mut done = 0;
        loop {
            let known = self.filled.min(bytes);
            mac.update(&self.chunks.bytes[done..known]);
            done = known;
            if self.at_end || self.filled >= whole {
                return (self.filled >= bytes).then_some(mac);
            }
            self.fill(whole.min(self.filled + STEP_BYTES));
        }
    }

    /// Drops the first `bytes`.
    pub(super) fn pass(&mut self, bytes: usize) {
        self.chunks.bytes.copy_within(bytes..self.filled, 0);
        self.filled -= bytes;
        self.at += bytes as u64;
    }

    /// Continues behind the next `bytes`, held or not.
    pub(super) fn leave_out(&mut self, bytes: usize) {
        let held = bytes.min(self.filled);
        self.pass(held);
        self.supply.pass((bytes - held) as u64);
        self.at += (bytes - held) as u64;
    }

    /// Adopts a buffer whose first `filled` bytes are the next ones; returns the previous one.
    pub(super) fn adopt(&mut self, buffer: Vec<u8>, filled: usize) -> Vec<u8> {
        debug_assert!(filled <= buffer.len());
        if filled <= self.filled {
            return buffer;
        }
        self.supply.pass((filled - self.filled) as u64);
        self.filled = filled;
        std::mem::replace(&mut self.chunks.bytes, buffer)
    }

    /// Lets `cut` cut the held bytes. It gets the bytes, fills in lengths and known runs, and
    /// returns the number of bytes that they cover. The chunks take the buffer with them; the rest
    /// moves into `next`.
    pub(super) fn cut(&mut self, next: Chunks, cut: impl FnOnce(&[u8], StreamEnd, &mut Pieces) -> usize) -> Chunks {
        let end = if self.at_end { StreamEnd::Reached } else { StreamEnd::Open };
        let mut chunks = std::mem::replace(&mut self.chunks, next);
        let mut pieces =
            Pieces { lengths: std::mem::take(&mut chunks.lengths), known: std::mem::take(&mut chunks.known) };
        pieces.lengths.clear();
        pieces.known.clear();
        let consumed = cut(&chunks.bytes[..self.filled], end, &mut pieces);
        (chunks.lengths, chunks.known) = (pieces.lengths, pieces.known);
        let rest = &chunks.bytes[consumed..self.filled];
        lengthen(&mut self.chunks.bytes, 0, rest.len());
        self.chunks.bytes[..rest.len()].copy_from_slice(rest);
        self.filled -= consumed;
        self.at += consumed as u64;
        chunks
    }
}
