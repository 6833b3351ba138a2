//! A decoded segment: its chunks, and which of them holds a byte of the data stream.

use larder_format::ChunkRef;

use crate::resolved::SegmentNumber;

/// The chunks of a segment.
#[derive(Debug)]
pub(super) struct Segment {
    pub(super) number: SegmentNumber,
    /// Offset in the data stream.
    pub(super) start: u64,
    /// How often places had changed when these were found.
    pub(super) changes: u64,
    pub(super) chunks: Vec<ChunkRef>,
    /// Where each chunk begins, relative to the segment.
    starts: Vec<u64>,
    end: u64,
}

impl Segment {
    pub(super) fn new(number: SegmentNumber, start: u64, changes: u64, chunks: Vec<ChunkRef>) -> Self {
        let mut at = 0;
        let starts = chunks.iter().map(|chunk| {
            let start = at;
            at += u64::from(chunk.size);
            start
        });
        let starts = starts.collect();
        Self { number, start, changes, chunks, starts, end: start + at }
    }

    /// Offset in the data stream of the first byte behind it.
    pub(super) fn end(&self) -> u64 {
        self.end
    }

    /// The number of the chunk that holds the stream byte at `offset`.
    pub(super) fn chunk_at(&self, offset: u64) -> Option<usize> {
        let within = offset.checked_sub(self.start)?;
        let after = self.starts.partition_point(|start| *start <= within);
        after.checked_sub(1).filter(|_| offset < self.end)
    }

    /// Offset in the data stream of a chunk.
    pub(super) fn start_of(&self, chunk: usize) -> u64 {
        self.start + self.starts.get(chunk).copied().unwrap_or(0)
    }

    /// Bytes of memory that it takes, nearly.
    pub(super) fn bytes_held(&self) -> usize {
        size_of::<Self>() + self.chunks.len() * (size_of::<ChunkRef>() + size_of::<u64>())
    }
}
