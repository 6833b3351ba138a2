//! The bytes of a large file that were read and not passed on yet.

use larder_chunking::{RunMac, StreamEnd};
use larder_writer::{Chunks, KnownRun};

use super::read_budget::ReadBudget;

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

/// Whether a buffer may wait for its next use. One in twenty segments needs a longer one. Kept,
/// all buffers would be as long as the longest segment some day.
pub(super) fn is_worth_keeping(buffer: &[u8]) -> bool {
    buffer.len() <= BUFFER_STEP
}

/// These buffers for their next use, without bytes that are too long to wait.
pub(super) fn for_reuse(mut chunks: Chunks) -> Chunks {
    if !is_worth_keeping(&chunks.bytes) {
        chunks.bytes = Vec::new();
    }
    chunks
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
    budget: ReadBudget,
    /// Their bytes are the buffer.
    chunks: Chunks,
    /// Bytes of the buffer that were passed on.
    start: usize,
    /// Bytes behind them that are held.
    held: usize,
    at_end: bool,
    /// Offset in the file of the first byte held.
    pub(super) at: u64,
}

impl std::fmt::Debug for ReadWindow<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ReadWindow").field("at", &self.at).field("held", &self.held).finish_non_exhaustive()
    }
}

impl<'a> ReadWindow<'a> {
    /// `chunks` has buffers for reuse.
    pub(super) fn new(chunks: Chunks, supply: &'a mut dyn Supply, budget: ReadBudget) -> Self {
        Self { supply, budget, chunks, start: 0, held: 0, at_end: false, at: 0 }
    }

    /// The held bytes.
    pub(super) fn data(&self) -> &[u8] {
        &self.chunks.bytes[self.start..self.start + self.held]
    }

    /// Whether this number of bytes may be held at once.
    pub(super) fn may_hold(&self, bytes: usize) -> bool {
        self.budget.window.is_none_or(|window| bytes <= window)
    }

    /// Whether no byte is held and none will come.
    pub(super) fn is_over(&mut self) -> bool {
        self.fill(1);
        self.held == 0
    }

    /// Makes room for `bytes` in all.
    fn reserve(&mut self, bytes: usize) {
        if self.start + bytes > self.chunks.bytes.len() {
            self.move_to_front();
            lengthen(&mut self.chunks.bytes, self.held, bytes);
        }
    }

    fn move_to_front(&mut self) {
        if self.start > 0 {
            self.chunks.bytes.copy_within(self.start..self.start + self.held, 0);
            self.start = 0;
        }
    }

    /// Reads until `bytes` are held, or the file ends; returns the held bytes.
    pub(super) fn fill(&mut self, bytes: usize) -> &[u8] {
        self.reserve(bytes);
        while !self.at_end && self.held < bytes {
            let room = self.start + self.held..self.start + bytes;
            let count = self.supply.read(&mut self.chunks.bytes[room]);
            self.held += count;
            self.at_end = count == 0;
        }
        self.data()
    }

    /// The MAC of the next `bytes`, which are held afterwards with `ahead` more; `None` when the
    /// file is shorter. The file may end before `ahead`.
    pub(super) fn mac(&mut self, mut mac: RunMac, bytes: usize, ahead: usize) -> Option<RunMac> {
        let whole = bytes + ahead;
        self.reserve(whole);
        let mut done = 0;
        loop {
            let known = self.held.min(bytes);
            mac.update(&self.data()[done..known]);
            done = known;
            if self.at_end || self.held >= whole {
                return (self.held >= bytes).then_some(mac);
            }
            self.fill(whole.min(self.held + STEP_BYTES));
        }
    }

    /// Drops the first `bytes`.
    pub(super) fn pass(&mut self, bytes: usize) {
        self.start += bytes;
        self.held -= bytes;
        self.at += bytes as u64;
        // What follows uses the same pages of the buffer again.
        if self.budget.window.is_none() || self.held == 0 {
            self.move_to_front();
        }
    }

    /// Continues behind the next `bytes`, held or not.
    pub(super) fn leave_out(&mut self, bytes: usize) {
        let held = bytes.min(self.held);
        self.pass(held);
        self.supply.pass((bytes - held) as u64);
        self.at += (bytes - held) as u64;
    }

    /// Adopts a buffer whose first `filled` bytes are the next ones; returns the previous one.
    pub(super) fn adopt(&mut self, buffer: Vec<u8>, filled: usize) -> Vec<u8> {
        debug_assert!(filled <= buffer.len());
        if filled <= self.held {
            return buffer;
        }
        self.supply.pass((filled - self.held) as u64);
        (self.start, self.held) = (0, filled);
        std::mem::replace(&mut self.chunks.bytes, buffer)
    }

    /// Lets `cut` cut the held bytes, of which chunks have `max` at most. It gets the bytes, fills
    /// in lengths and known runs, and returns the number of bytes that they cover. The chunks take
    /// the buffer with them; the rest moves into `next`. With a bound for the window, `cut` gets a
    /// block, and the chunks take `next`.
    pub(super) fn cut(
        &mut self,
        mut next: Chunks,
        max: usize,
        cut: impl FnOnce(&[u8], StreamEnd, &mut Pieces) -> usize,
    ) -> Chunks {
        if self.budget.window.is_some() {
            let most = self.held.min(self.budget.block.max(max));
            let consumed = self.cut_first(most, &mut next, cut);
            lengthen(&mut next.bytes, 0, consumed);
            next.bytes[..consumed].copy_from_slice(&self.data()[..consumed]);
            self.pass(consumed);
            return next;
        }
        let consumed = self.cut_first(self.held, &mut next, cut);
        std::mem::swap(&mut next.bytes, &mut self.chunks.bytes);
        let rest = &next.bytes[self.start + consumed..self.start + self.held];
        lengthen(&mut self.chunks.bytes, 0, rest.len());
        self.chunks.bytes[..rest.len()].copy_from_slice(rest);
        (self.start, self.held) = (0, rest.len());
        self.at += consumed as u64;
        next
    }

    /// Cuts the first `bytes`.
    fn cut_first(
        &self,
        bytes: usize,
        into: &mut Chunks,
        cut: impl FnOnce(&[u8], StreamEnd, &mut Pieces) -> usize,
    ) -> usize {
        let end = if self.at_end && bytes == self.held { StreamEnd::Reached } else { StreamEnd::Open };
        let mut pieces = Pieces { lengths: std::mem::take(&mut into.lengths), known: std::mem::take(&mut into.known) };
        pieces.lengths.clear();
        pieces.known.clear();
        let consumed = cut(&self.data()[..bytes], end, &mut pieces);
        (into.lengths, into.known) = (pieces.lengths, pieces.known);
        consumed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffers_of_long_segments_are_not_kept() {
        let mut buffer = Vec::new();
        for (bytes, is_kept) in [(1, true), (BUFFER_STEP, true), (BUFFER_STEP + 1, false)] {
            lengthen(&mut buffer, 0, bytes);
            let chunks = for_reuse(Chunks { bytes: buffer.clone(), lengths: vec![1], ..Chunks::default() });
            assert_eq!((chunks.bytes.len() == buffer.len(), chunks.bytes.is_empty()), (is_kept, !is_kept), "{bytes}");
            assert_eq!(chunks.lengths, [1]);
        }
    }
}
