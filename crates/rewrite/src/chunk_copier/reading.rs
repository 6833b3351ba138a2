//! Reads chunks where they are, container by container, and proves each by its fingerprint.
//! Requests are made here, few at once. All threads open frames and compare chunks, some frames of
//! one container at a time.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::ops::Range;
use std::sync::Arc;

use crossbeam_channel::Receiver;
use larder_chunking::{Fingerprint, Fingerprinter};
use larder_format::container::{CompressedFrame, FRAME_TARGET, FrameLocation};
use larder_format::ids::ContainerId;
use larder_format::{ChunkRef, DecodeError, names};
use larder_job::JobContext;
use larder_store::container_reader::OpenContainer;
use larder_store::{Repository, RepositoryError};
use larder_writer::{PoolHandle, Worker};

use super::{ChunkCopier, RewriteError};

/// Containers read at once.
const CONCURRENT_READS: usize = 4;
/// Frames that a thread opens at a time: up to this number of bytes, uncompressed.
const PIECE_BYTES: u32 = 2 * FRAME_TARGET as u32;
/// Pieces for each thread that wait to be opened. Each holds the read bytes of its container, so
/// there are few.
const PIECES_AHEAD: usize = 2;

/// Bytes of a frame, uncompressed, that is copied as it is.
const WHOLE_FRAME_MIN: u32 = (FRAME_TARGET / 2) as u32;
const WHOLE_FRAME_MAX: u32 = 2 * FRAME_TARGET as u32;

/// The wanted result of reading chunks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Wanted {
    /// Only the proof that they are right.
    Nothing,
    /// Their bytes.
    Bytes,
    /// Their bytes. Frames with these chunks and nothing else come as they were compressed.
    Frames,
}

/// A part of a batch that was read and verified.
#[derive(Debug)]
pub(super) enum Part<'a> {
    /// The bytes of a chunk.
    Chunk(&'a [u8]),
    /// A frame whose chunks are all requested, one after the other.
    Frame(Frame),
}

/// A frame that is copied as it is.
#[derive(Debug)]
pub(super) struct Frame {
    pub(super) chunks: usize,
    pub(super) compressed: CompressedFrame,
}

/// Reads batches of chunks.
pub(super) struct Reader {
    context: JobContext,
    fingerprinter: Arc<Fingerprinter>,
    threads: PoolHandle,
}

impl ChunkCopier {
    pub(super) fn reader(&self) -> Reader {
        let (context, threads) = (self.context.clone(), self.threads.clone());
        Reader { context, fingerprinter: self.fingerprinter.clone(), threads }
    }
}

impl Reader {
    /// Reads these chunks, and computes their fingerprints again. Each part is given with the place
    /// of its first chunk, in the order of the batch, as soon as all before it were given. So
    /// copies are uploaded while later chunks are read.
    pub(super) fn in_order(
        &self,
        batch: &[ChunkRef],
        wanted: Wanted,
        mut each: impl FnMut(usize, Part<'_>) -> Result<(), RewriteError>,
    ) -> Result<(), RewriteError> {
        let mut waiting = Waiting::new(batch.len());
        self.read(batch, wanted, |opened| {
            waiting.take(opened);
            waiting.give(batch, &mut each)
        })
    }

    /// Reads these chunks, and computes their fingerprints again.
    pub(super) fn verify(&self, batch: &[ChunkRef]) -> Result<(), RewriteError> {
        self.read(batch, Wanted::Nothing, |_| Ok(()))
    }

    fn read(
        &self,
        batch: &[ChunkRef],
        wanted: Wanted,
        mut take: impl FnMut(Opened) -> Result<(), RewriteError>,
    ) -> Result<(), RewriteError> {
        let containers = by_container(batch);
        // Requests go on by themselves, also while this thread waits for uploads: these may need
        // the connection that a request holds.
        let request = |(id, places): &(ContainerId, Vec<usize>)| {
            let (repository, id) = (self.context.repository.clone(), *id);
            let ranges: Vec<Range<u32>> = places.iter().map(|place| range_of(&batch[*place])).collect();
            self.context.executor.spawn(async move { repository.read_container_frames(id, &ranges).await })
        };
        let (mut rest, mut reads) = (containers.iter(), VecDeque::new());
        let mut opening = VecDeque::new();
        let opened = |opening: &mut VecDeque<Receiver<_>>| match opening.pop_front() {
            Some(piece) => Ok(Some(piece.recv().map_err(|_| RewriteError::WorkerDied)??)),
            None => Ok::<_, RewriteError>(None),
        };
        for (_, places) in &containers {
            while reads.len() < CONCURRENT_READS
                && let Some(next) = rest.next()
            {
                reads.push_back(request(next));
            }
            let Some(mut read) = reads.pop_front() else { break };
            let container = self.context.executor.block_on(read.finished()).ok_or(RewriteError::WorkerDied)?;
            let container = Arc::new(container?);
            let mut places = places.as_slice();
            while !places.is_empty() {
                opening.push_back(self.open(Piece::cut_off(&container, batch, &mut places, wanted)?));
                if opening.len() > self.threads.threads() * PIECES_AHEAD
                    && let Some(opened) = opened(&mut opening)?
                {
                    take(opened)?;
                }
            }
        }
        while let Some(opened) = opened(&mut opening)? {
            take(opened)?;
        }
        Ok(())
    }

    /// Lets a thread open it.
    fn open(&self, piece: Piece) -> Receiver<Result<Opened, RepositoryError>> {
        let (sender, receiver) = crossbeam_channel::bounded(1);
        let (repository, fingerprinter) = (self.context.repository.clone(), self.fingerprinter.clone());
        // The receiver is gone when another piece was damaged.
        self.threads.normal(move |worker| drop(sender.send(piece.open(worker, &repository, &fingerprinter))));
        receiver
    }
}

/// The containers of a batch, in the order of their first chunks in it. With each, places of chunks
/// in the batch, in the order of the container.
fn by_container(batch: &[ChunkRef]) -> Vec<(ContainerId, Vec<usize>)> {
    let mut numbers = HashMap::new();
    let mut containers: Vec<(ContainerId, Vec<usize>)> = Vec::new();
    for (place, chunk) in batch.iter().enumerate() {
        let number = *numbers.entry(chunk.container).or_insert_with(|| {
            containers.push((chunk.container, Vec::new()));
            containers.len() - 1
        });
        containers[number].1.push(place);
    }
    for (_, places) in &mut containers {
        places.sort_unstable_by_key(|place| (batch[*place].offset, *place));
    }
    containers
}

/// Chunks that were read, and wait for those before them.
struct Waiting {
    pieces: Vec<WaitingPiece>,
    /// By place in the batch: the piece, and the place in it.
    starts: Vec<Option<(usize, usize)>>,
    /// By the place of their first chunk. Their chunks are not in the pieces.
    frames: BTreeMap<usize, Frame>,
    /// The place of the first chunk that was not given.
    next: usize,
}

struct WaitingPiece {
    bytes: Vec<u8>,
    /// Chunks in it that were not given.
    left: usize,
}

impl Waiting {
    fn new(chunks: usize) -> Self {
        Self { pieces: Vec::new(), starts: vec![None; chunks], frames: BTreeMap::new(), next: 0 }
    }

    fn take(&mut self, opened: Opened) {
        for (place, start) in &opened.starts {
            self.starts[*place] = Some((self.pieces.len(), *start));
        }
        self.pieces.push(WaitingPiece { bytes: opened.bytes, left: opened.starts.len() });
        self.frames.extend(opened.frames);
    }

    /// Gives all parts that wait for none before them.
    fn give(
        &mut self,
        batch: &[ChunkRef],
        each: &mut impl FnMut(usize, Part<'_>) -> Result<(), RewriteError>,
    ) -> Result<(), RewriteError> {
        while let Some(chunk) = batch.get(self.next) {
            let place = self.next;
            if let Some(frame) = self.frames.remove(&place) {
                self.next += frame.chunks;
                each(place, Part::Frame(frame))?;
            } else if let Some((number, start)) = self.starts[place] {
                let piece = &mut self.pieces[number];
                self.next += 1;
                each(place, Part::Chunk(&piece.bytes[start..][..chunk.size as usize]))?;
                piece.left -= 1;
                if piece.left == 0 {
                    piece.bytes = Vec::new();
                }
            } else {
                break;
            }
        }
        Ok(())
    }
}

/// Some frames of a container, and the requested chunks of them.
struct Piece {
    container: Arc<OpenContainer>,
    /// Frames, each with the number of requested chunks in it.
    frames: Vec<(FrameLocation, usize)>,
    /// Chunks with their places in the batch, in the order of the container.
    chunks: Vec<(usize, ChunkRef)>,
    wanted: Wanted,
}

/// The result.
#[derive(Default)]
struct Opened {
    bytes: Vec<u8>,
    /// Places in the batch, and the places of these chunks in `bytes`.
    starts: Vec<(usize, usize)>,
    frames: Vec<(usize, Frame)>,
}

impl Piece {
    /// Removes the first frames from `places`, which are sorted by their place in the container.
    fn cut_off(
        container: &Arc<OpenContainer>,
        batch: &[ChunkRef],
        places: &mut &[usize],
        wanted: Wanted,
    ) -> Result<Self, RepositoryError> {
        let mut piece = Self { container: container.clone(), frames: Vec::new(), chunks: Vec::new(), wanted };
        let mut bytes = 0u32;
        while bytes < PIECE_BYTES
            && let Some(first) = places.first()
        {
            let chunk = &batch[*first];
            let frame = container.index.frame_at(chunk.offset);
            let frame = *frame.ok_or_else(|| damaged(chunk, "it lies outside of its container"))?;
            let end = frame.payload_range().end;
            let (here, rest) = places.split_at(places.partition_point(|place| batch[*place].offset < end));
            piece.chunks.extend(here.iter().map(|place| (*place, batch[*place])));
            piece.frames.push((frame, here.len()));
            bytes = bytes.saturating_add(frame.entry.raw_len);
            *places = rest;
        }
        Ok(piece)
    }

    fn open(
        self,
        worker: &mut Worker,
        repository: &Repository,
        fingerprinter: &Fingerprinter,
    ) -> Result<Opened, RepositoryError> {
        let mut opened = Opened::default();
        let (mut lengths, mut found) = (Vec::new(), Vec::new());
        let mut chunks = self.chunks.as_slice();
        for (frame, count) in &self.frames {
            let (here, rest) = chunks.split_at(*count);
            chunks = rest;
            self.container.unseal_frame(repository, frame, &mut worker.compressed)?;
            worker.raw.resize(frame.entry.raw_len as usize, 0);
            let codec = frame.entry.codec;
            let decompressed = worker.decompressor.decompress_into(codec, &worker.compressed, &mut worker.raw);
            decompressed.map_err(|source| {
                let name = names::container(self.container.index.id);
                RepositoryError::Damaged { name, source }
            })?;
            let mut names = Names { fingerprinter, lengths: &mut lengths, found: &mut found };
            if let (Wanted::Frames, Some((first, _))) = (self.wanted, here.first())
                && is_whole(here, frame)
            {
                names.compare(&worker.raw, here)?;
                // Everything that these bytes decompress to has just been proved right, so they are
                // right for the copy.
                let bytes = worker.compressed.clone();
                let compressed = CompressedFrame { codec, raw_len: frame.entry.raw_len, bytes };
                opened.frames.push((*first, Frame { chunks: here.len(), compressed }));
                continue;
            }
            // Side by side, so that all of them are fingerprinted at once.
            let start = opened.bytes.len();
            opened.bytes.reserve_exact(here.iter().map(|(_, chunk)| chunk.size as usize).sum());
            for (place, chunk) in here {
                opened.starts.push((*place, opened.bytes.len()));
                opened.bytes.extend_from_slice(bytes_of(&worker.raw, frame, chunk)?);
            }
            names.compare(&opened.bytes[start..], here)?;
            if self.wanted == Wanted::Nothing {
                opened.bytes.clear();
                opened.starts.clear();
            }
        }
        Ok(opened)
    }
}

/// Compares chunks with their names, many at once.
struct Names<'a> {
    fingerprinter: &'a Fingerprinter,
    lengths: &'a mut Vec<u32>,
    found: &'a mut Vec<Fingerprint>,
}

impl Names<'_> {
    /// `bytes` has exactly these chunks, one after the other.
    fn compare(&mut self, bytes: &[u8], chunks: &[(usize, ChunkRef)]) -> Result<(), RepositoryError> {
        self.lengths.clear();
        self.lengths.extend(chunks.iter().map(|(_, chunk)| chunk.size));
        self.found.clear();
        self.fingerprinter.many(bytes, self.lengths, self.found);
        match chunks.iter().zip(&*self.found).find(|((_, chunk), found)| chunk.fingerprint != **found) {
            None => Ok(()),
            Some(((_, chunk), _)) => Err(damaged(chunk, "the bytes there have another fingerprint")),
        }
    }
}

fn range_of(chunk: &ChunkRef) -> Range<u32> {
    chunk.offset..chunk.offset.saturating_add(chunk.size)
}

fn bytes_of<'a>(raw: &'a [u8], frame: &FrameLocation, chunk: &ChunkRef) -> Result<&'a [u8], RepositoryError> {
    let from = (chunk.offset - frame.payload_offset) as usize;
    let bytes = raw.get(from..from + chunk.size as usize);
    bytes.ok_or_else(|| damaged(chunk, "it lies across the border of a frame"))
}

/// Whether a frame is worth keeping as it is: the requested chunks are all of it, in its order and
/// without gaps.
fn is_whole(chunks: &[(usize, ChunkRef)], frame: &FrameLocation) -> bool {
    // Smaller ones are merged, or frames would become smaller with every move.
    if !(WHOLE_FRAME_MIN..=WHOLE_FRAME_MAX).contains(&frame.entry.raw_len) {
        return false;
    }
    let (mut next, mut after) = (frame.payload_offset, None);
    for (place, chunk) in chunks {
        if chunk.offset != next || after.is_some_and(|after| after != *place) {
            return false;
        }
        next = range_of(chunk).end;
        after = Some(*place + 1);
    }
    next == frame.payload_range().end
}

fn damaged(chunk: &ChunkRef, why: &'static str) -> RepositoryError {
    let source = DecodeError::Invalid { what: "chunk record", why };
    RepositoryError::Damaged { name: names::container(chunk.container), source }
}
