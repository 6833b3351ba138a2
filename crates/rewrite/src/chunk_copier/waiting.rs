//! Segments of a rewrite that wait for the copies of their chunks, in batches.
//!
//! A rewrite of one process has one batch at a time. With others, some batches are away, and come
//! back in the order of the stream. A chunk is copied once, so a batch may also wait for a chunk of
//! an earlier one.

use std::collections::{HashMap, VecDeque};

use larder_format::ids::ContainerId;
use larder_format::recipe::SegmentRef;
use larder_format::segment::Segment;
use larder_format::{ChunkRef, Fingerprint};
use larder_writer::{ContainerTotals, NodeWriter};

use super::{CopiedChunks, Move, Placing};

/// Segments of a batch at most.
pub(super) const WAITING_SEGMENTS: usize = 1024;
/// Bytes of the memory for batches that a record of a waiting segment takes.
const WAITING_RECORD: usize = 256;
/// The same for a row of a segment, a record, and a chunk that is placed, while batches are away.
const AWAY_ROW: usize = 512;
const AWAY_RECORD: usize = 128;
const AWAY_CHUNK: usize = 320;

/// A segment that is written when the chunks before it are copied.
pub(super) struct Waiting {
    pub(super) reference: SegmentRef,
    /// Its records, if some of them move.
    pub(super) contents: Option<Segment>,
}

/// Segments whose chunks are copied together.
#[derive(Default)]
pub(super) struct Batch {
    pub(super) number: u64,
    pub(super) waiting: Vec<Waiting>,
    /// Chunks to copy, in stream order.
    pub(super) wanted: Vec<ChunkRef>,
    /// Those that other versions need too, and their copies.
    pub(super) wanted_in_common: Vec<ChunkRef>,
    pub(super) copies_in_common: Vec<ChunkRef>,
    /// Chunks that have another copy, and that copy.
    pub(super) shared: Vec<(ChunkRef, ChunkRef)>,
    /// The new places of `wanted`. `None`: another process may copy them.
    pub(super) copies: Option<Vec<ChunkRef>>,
    records: usize,
    copied_bytes: u64,
    shared_bytes: u64,
}

impl Batch {
    /// Bytes of memory if it is processed at once: its chunks, and its records.
    pub(super) fn bytes(&self) -> usize {
        self.records * WAITING_RECORD + (self.copied_bytes + self.shared_bytes) as usize
    }

    /// Bytes of memory while it is away, with those that the other side of it takes.
    pub(super) fn bytes_away(&self) -> usize {
        let chunks = self.wanted.len() + self.wanted_in_common.len() + self.shared.len();
        self.waiting.len() * AWAY_ROW + self.records * AWAY_RECORD + chunks * AWAY_CHUNK
    }

    /// Bytes of chunks that others can process.
    pub(super) fn bytes_to_give(&self) -> u64 {
        self.copied_bytes + self.shared_bytes
    }

    /// Whether it is worth giving away, if batches have this number of bytes: containers would
    /// become small otherwise.
    pub(super) fn is_worth_giving(&self, bytes: u64) -> bool {
        let has_much = self.bytes_to_give() >= bytes / 2 && self.bytes_to_give() > 0;
        has_much && (self.wanted.is_empty() || self.copied_bytes >= bytes / 4)
    }
}

/// Where a chunk will be.
struct Pending {
    /// `None` until it is copied.
    place: Option<ChunkRef>,
    /// The last batch with a segment that needs it.
    last: u64,
}

/// The rewrite of one recipe.
pub(super) struct Rewriting {
    pub(super) nodes: NodeWriter,
    /// The batch that is collected.
    pub(super) batch: Batch,
    /// Batches before it, in order.
    pub(super) away: VecDeque<Batch>,
    /// The places of chunks of these batches, copied or shared. By fingerprint: of several left
    /// copies one is enough.
    pending: HashMap<Fingerprint, Pending>,
    /// The new places of the chunks of all earlier batches.
    places: CopiedChunks,
    moves_max: usize,
    pub(super) moves: Vec<Move>,
    pub(super) moved_chunks: u64,
    pub(super) moved_bytes: u64,
    pub(super) shared_chunks: u64,
    pub(super) shared_bytes: u64,
    pub(super) by_others: HashMap<ContainerId, ContainerTotals>,
}

impl Rewriting {
    pub(super) fn new(nodes: NodeWriter, places: CopiedChunks, moves_max: usize) -> Self {
        Self {
            nodes,
            batch: Batch::default(),
            away: VecDeque::new(),
            pending: HashMap::new(),
            places,
            moves_max,
            moves: Vec::new(),
            moved_chunks: 0,
            moved_bytes: 0,
            shared_chunks: 0,
            shared_bytes: 0,
            by_others: HashMap::new(),
        }
    }

    /// Bytes of memory of all batches, while some are away.
    pub(super) fn bytes_away(&self) -> usize {
        self.batch.bytes_away() + self.away.iter().map(Batch::bytes_away).sum::<usize>()
    }

    /// The next segment of the stream, and the chunks in it that leave their places.
    pub(super) fn wait(
        &mut self,
        reference: SegmentRef,
        contents: Option<Segment>,
        leaves: impl Fn(&ContainerId) -> bool,
        placing: impl Fn(&ChunkRef) -> Placing,
    ) {
        let records = contents.iter().flat_map(|segment| &segment.records);
        for chunk in records.map(|record| record.chunk).filter(|chunk| leaves(&chunk.container)) {
            self.place(chunk, &placing);
        }
        self.batch.records += contents.as_ref().map_or(0, |segment| segment.records.len());
        self.batch.waiting.push(Waiting { reference, contents });
    }

    fn place(&mut self, chunk: ChunkRef, placing: impl Fn(&ChunkRef) -> Placing) {
        let last = self.batch.number;
        if let Some(pending) = self.pending.get_mut(&chunk.fingerprint) {
            pending.last = last;
            return;
        }
        let mut place = self.places.get(&chunk.fingerprint);
        if place.is_none() {
            match placing(&chunk) {
                Placing::Copy(from) => {
                    self.batch.wanted.push(from);
                    self.batch.copied_bytes += u64::from(chunk.size);
                }
                Placing::CopyCommon(from) => {
                    self.batch.wanted_in_common.push(from);
                    self.batch.copied_bytes += u64::from(chunk.size);
                }
                Placing::Shared(other) => {
                    self.batch.shared.push((chunk, other));
                    self.batch.shared_bytes += u64::from(chunk.size);
                }
                Placing::At(there) => place = Some(there),
                Placing::Stay => return,
            }
        }
        self.pending.insert(chunk.fingerprint, Pending { place, last });
    }

    /// The batch that was collected; the next one begins.
    pub(super) fn next_batch(&mut self) -> Batch {
        let next = Batch { number: self.batch.number + 1, ..Batch::default() };
        std::mem::replace(&mut self.batch, next)
    }

    /// The chunks of a batch have their places.
    pub(super) fn settle(&mut self, batch: &mut Batch) {
        for (chunk, other) in batch.shared.drain(..) {
            self.is_at(chunk.fingerprint, other);
            self.shared_chunks += 1;
            self.shared_bytes += u64::from(chunk.size);
        }
        let in_common = batch.wanted_in_common.drain(..).zip(batch.copies_in_common.drain(..));
        let others = batch.wanted.drain(..).zip(batch.copies.take().unwrap_or_default());
        for (from, to) in in_common.chain(others) {
            self.is_at(from.fingerprint, to);
            self.moved_bytes += u64::from(to.size);
            self.moved_chunks += 1;
            if self.moves.len() < self.moves_max {
                self.moves.push(Move { from: from.container, to });
            }
        }
    }

    fn is_at(&mut self, fingerprint: Fingerprint, place: ChunkRef) {
        if let Some(pending) = self.pending.get_mut(&fingerprint) {
            pending.place = Some(place);
        }
        self.places.insert(place);
    }

    /// The new place of a chunk of the first batch; `None`: it stays.
    pub(super) fn place_of(&self, fingerprint: &Fingerprint) -> Option<ChunkRef> {
        self.pending.get(fingerprint)?.place
    }

    /// The segments of a batch are written. Later batches may need some of its chunks.
    pub(super) fn is_written(&mut self, number: u64) {
        self.pending.retain(|_, pending| pending.last > number);
    }
}

#[cfg(test)]
mod tests {
    use larder_format::ids::{ContainerKind, JobId};

    use super::*;

    fn chunk(number: u32) -> ChunkRef {
        let mut fingerprint = [0; 32];
        fingerprint[..4].copy_from_slice(&number.to_be_bytes());
        let container = ContainerId { kind: ContainerKind::Data, job: JobId([1; 16]), seq: number };
        ChunkRef { fingerprint: Fingerprint(fingerprint), container, offset: 0, size: 10 }
    }

    /// Each batch needs a chunk of the batch before it, which is away.
    #[test]
    fn a_chunk_is_copied_once_and_remembered_until_the_last_batch_with_it_is_written() {
        let mut rewriting = Rewriting::new(NodeWriter::new(None), CopiedChunks::new(0, None), 0);
        for number in 0..1000 {
            for needed in [number, number + 1] {
                rewriting.place(chunk(needed), |chunk| Placing::Copy(*chunk));
            }
            let next = rewriting.next_batch();
            let first = u32::from(number > 0);
            assert_eq!(next.wanted, [number, number + 1].map(chunk)[first as usize..]);
            rewriting.away.push_back(next);
            if number == 0 {
                continue;
            }
            let Some(mut written) = rewriting.away.pop_front() else { panic!("two were away") };
            written.copies = Some(written.wanted.clone());
            rewriting.settle(&mut written);
            assert_eq!(rewriting.place_of(&chunk(number - 1).fingerprint), Some(chunk(number - 1)));
            assert_eq!(rewriting.place_of(&chunk(number).fingerprint), Some(chunk(number)));
            rewriting.is_written(written.number);
            assert!(rewriting.pending.len() <= 2, "{}", rewriting.pending.len());
        }
        assert_eq!(rewriting.moved_chunks, 1000);
    }
}
