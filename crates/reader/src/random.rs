//! Any offset of a file in a version, for several threads: a snapshot as a read-only device.
//!
//! ```text
//! offset ─ contents ─▶ offset in the data stream ─ places ─▶ chunk ─ frames ─▶ opened frame
//!          (holes are zeros)                       (recipe)          (memory, disk, store)
//! ```
//!
//! [`RandomReader`] finds the chunks of a read in the recipe, fetches their frames by ranges, and
//! copies the bytes. Both layouts and retired containers are those of `chunk_resolver`. Sequential
//! streams are found (`streams`) and read ahead by a few threads (`read_ahead`). After
//! [`RandomReader::hydrate`], the store is not needed any more.
//!
//! Invariants
//! * Every chunk is compared with its fingerprint whenever bytes are taken from it, as in restores
//!   and dumps. A read returns all its bytes or an error.
//! * Memory is bounded by the context: 5/12 for opened frames, 1/12 for segments, 1/24 for tables
//!   of containers, beside the shared caches of metadata.
//! * A hit never waits for a request of another thread.
//!
//! Not here: the lease, which the caller holds as for any other read (`read_lease`).

mod contents;
mod disk_frames;
mod frames;
mod hydrate;
mod kept_places;
mod places;
mod read_ahead;
mod segment;
mod streams;
mod zeros;

use std::collections::HashSet;
use std::ops::Range;
use std::sync::Arc;

use larder_chunking::Fingerprinter;
use larder_format::container::FRAME_TARGET;
use larder_format::ids::ContainerId;
use larder_format::{ChunkRef, DecodeError, ErrorKind, names};
use larder_job::JobContext;
use larder_store::RepositoryError;
use parking_lot::Mutex;

use self::disk_frames::DiskFrames;
use self::frames::Frames;
use self::places::Places;
use self::read_ahead::{Queue, Workers};
use self::streams::Streams;
use self::zeros::Zeros;
use crate::container_cache::{FetchCounters, FetchOptions, FetchReport};
use crate::read_lease::is_missing;
use crate::recipe_reader::{RecipeReader, damaged};
use crate::version::VersionReader;

pub use contents::{Contents, Piece, RandomFile, Stretch};
pub use hydrate::Hydrated;

/// The part of a job's memory for decoded segments: one in this number.
const SEGMENTS_ONE_IN: usize = 12;
/// The part of a job's memory for tables of containers: one in this number.
const TABLES_ONE_IN: usize = 24;
/// The part of the memory for frames that read-ahead may fill: one in this number.
const AHEAD_ONE_IN: usize = 4;
/// The largest request of read-ahead, in bytes of payload: the usual content of a container.
const REQUEST_MAX: u64 = 16 << 20;
/// Damaged containers that are named in the log.
const NAMED_MAX: usize = 1000;

/// Why a file cannot be opened or read at random offsets.
#[derive(Debug, thiserror::Error)]
pub enum RandomError {
    /// The version has no such path.
    #[error("there is no /{}", String::from_utf8_lossy(path))]
    NoSuchFile {
        /// The path.
        path: Vec<u8>,
    },
    /// The path is a folder.
    #[error("/{} is a folder and not a file", String::from_utf8_lossy(path))]
    Folder {
        /// The path.
        path: Vec<u8>,
        /// The first files below it.
        candidates: Vec<Vec<u8>>,
        /// Whether there are more.
        has_more: bool,
    },
    /// The path is a link or a special file.
    #[error("/{} is not a regular file", String::from_utf8_lossy(path))]
    NotAFile {
        /// The path.
        path: Vec<u8>,
    },
    /// No path was given, and there is more than one file.
    #[error("the snapshot has several files")]
    SeveralFiles {
        /// The first of them.
        candidates: Vec<Vec<u8>>,
        /// Whether there are more.
        has_more: bool,
    },
    /// There is no file at all.
    #[error("the snapshot has no files")]
    NoFiles,
    /// A read beyond the end of the file.
    #[error("a read of {length} bytes at {offset}, but the file has {size}")]
    BeyondEnd {
        /// Offset of the read.
        offset: u64,
        /// Its length.
        length: u64,
        /// Bytes of the file.
        size: u64,
    },
    /// The disk cache cannot keep everything.
    #[error("the disk cache cannot keep the whole file: {reason}")]
    NotKept {
        /// Why not.
        reason: String,
    },
    /// Hydration was asked to stop.
    #[error("interrupted")]
    Interrupted,
    /// The repository failed, or its data is damaged.
    #[error(transparent)]
    Repository(#[from] RepositoryError),
}

impl RandomError {
    /// The reaction that a caller can choose.
    pub fn kind(&self) -> ErrorKind {
        match self {
            Self::NoSuchFile { .. }
            | Self::Folder { .. }
            | Self::NotAFile { .. }
            | Self::SeveralFiles { .. }
            | Self::NoFiles => ErrorKind::Precondition,
            Self::BeyondEnd { .. } => ErrorKind::BadRequest,
            Self::NotKept { .. } => ErrorKind::Full,
            Self::Interrupted => ErrorKind::Interrupted,
            Self::Repository(error) => error.kind(),
        }
    }
}

/// Frames in memory and on disk that readers of several versions share.
#[derive(Clone)]
pub struct FrameCache(Arc<Frames>);

impl FrameCache {
    /// An empty cache, as large as the context and the options say.
    ///
    /// # Errors
    /// The temporary file of the disk cache cannot be created.
    pub fn new(context: &JobContext, options: &FetchOptions) -> Result<Self, RandomError> {
        Self::with_counters(context, options, Arc::default())
    }

    fn with_counters(
        context: &JobContext,
        options: &FetchOptions,
        counters: Arc<FetchCounters>,
    ) -> Result<Self, RandomError> {
        let disk = match options.cache_disk {
            0 => None,
            bytes => {
                let not_kept = |error: std::io::Error| RandomError::NotKept { reason: error.to_string() };
                Some(DiskFrames::new(&options.scratch, bytes).map_err(not_kept)?)
            }
        };
        let (memory, tables) = (options.memory(context.memory), context.memory / TABLES_ONE_IN);
        let (repository, executor) = (context.repository.clone(), context.executor.clone());
        Ok(Self(Arc::new(Frames::new(repository, executor, counters, memory, tables, disk))))
    }

    /// Counts of the contents fetched so far.
    pub fn fetched(&self) -> FetchReport {
        self.0.counters().report()
    }
}

impl std::fmt::Debug for FrameCache {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("FrameCache").finish_non_exhaustive()
    }
}

/// See the module header. Shared by threads; calls block.
#[derive(Debug)]
pub struct RandomReader {
    shared: Arc<Shared>,
    streams: Mutex<Streams>,
    /// Last: they end with the reader.
    _workers: Workers,
}

/// The state that the threads share.
struct Shared {
    version: VersionReader,
    contents: Contents,
    places: Places,
    frames: Arc<Frames>,
    queue: Queue,
    counters: Arc<FetchCounters>,
    fingerprinter: Fingerprinter,
    /// Bytes that are read ahead at most.
    ahead_max: u64,
    /// Bytes of payload in one request of read-ahead.
    request_max: u64,
    has_workers: bool,
    /// Containers whose damage was named.
    named: Mutex<HashSet<ContainerId>>,
    /// Fingerprints of zeros.
    zeros: Zeros,
}

impl std::fmt::Debug for Shared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Shared").field("size", &self.contents.size()).finish_non_exhaustive()
    }
}

impl RandomReader {
    /// Opens a file of a version. How it fetches is what [`VersionReader::fetching`] was told:
    /// `cache_memory` for opened frames, `cache_disk` for sealed ones, `prefetch` requests ahead.
    ///
    /// # Errors
    /// The temporary file of the disk cache cannot be created.
    pub fn open(version: VersionReader, file: &RandomFile) -> Result<Self, RandomError> {
        let frames = FrameCache::with_counters(&version.context, &version.options, version.counters.clone())?;
        Ok(Self::over(version, Contents::of(file), &frames, 1))
    }

    /// Opens the whole data stream of a version: offsets are those of [`Contents`]. It shares the
    /// cache of frames with others. `readers`: the number of those that divide the memory for
    /// everything else.
    pub fn of_stream(version: VersionReader, frames: &FrameCache, readers: usize) -> Self {
        let bytes = RecipeReader::new(version.data.clone(), version.chunks.clone()).bytes();
        Self::over(version, Contents::of_stream(bytes), frames, readers.max(1))
    }

    fn over(version: VersionReader, contents: Contents, frames: &FrameCache, readers: usize) -> Self {
        let (context, options) = (&version.context, &version.options);
        let threads = if context.executor.is_in_turns() { 0 } else { options.prefetch };
        let ahead = (options.memory(context.memory) / AHEAD_ONE_IN) as u64;
        let shared = Arc::new(Shared {
            contents,
            places: Places::new(&version, context.memory / SEGMENTS_ONE_IN / readers),
            fingerprinter: Fingerprinter::new(context.repository.keys().fingerprint()),
            frames: frames.0.clone(),
            queue: Queue::default(),
            zeros: Zeros::default(),
            counters: frames.0.counters().clone(),
            request_max: (ahead / (threads as u64 + 1)).clamp(FRAME_TARGET as u64, REQUEST_MAX),
            ahead_max: ahead,
            has_workers: threads > 0,
            named: Mutex::default(),
            version,
        });
        let workers = Workers::start(&shared, threads);
        Self { shared, streams: Mutex::new(Streams::new(ahead)), _workers: workers }
    }

    /// Bytes of the file, holes included.
    pub fn size(&self) -> u64 {
        self.shared.contents.size()
    }

    /// Reads bytes of the file into `out`.
    ///
    /// # Errors
    /// The range is not in the file; a part of it is damaged; or the store gives no answer. `out`
    /// then has no meaning.
    pub fn read_at(&self, offset: u64, out: &mut [u8]) -> Result<(), RandomError> {
        let (length, size) = (out.len() as u64, self.size());
        let end = offset.checked_add(length).filter(|end| *end <= size);
        let end = end.ok_or(RandomError::BeyondEnd { offset, length, size })?;
        if self.shared.has_workers
            && let Some(ahead) = self.streams.lock().note(&(offset..end))
        {
            self.prefetch(ahead.start, ahead.end - ahead.start);
        }
        for piece in self.shared.contents.pieces(offset..end) {
            let part = (piece.range.start - offset) as usize..(piece.range.end - offset) as usize;
            match piece.stored {
                None => out[part].fill(0),
                Some(stored) => self.shared.read_stored(stored, &mut out[part])?,
            }
        }
        Ok(())
    }

    /// The holes of a range of the file, and the stretches between them: at most `most`, in order
    /// and without gaps.
    pub fn stretches(&self, range: Range<u64>, most: usize) -> Vec<Stretch> {
        let mut stretches: Vec<Stretch> = Vec::new();
        for piece in self.shared.contents.pieces(range) {
            let (offset, length) = (piece.range.start, piece.range.end - piece.range.start);
            let are_enough = stretches.len() >= most;
            match stretches.last_mut() {
                Some(last) if last.is_hole == piece.stored.is_none() => last.length += length,
                _ if are_enough => break,
                _ => stretches.push(Stretch { offset, length, is_hole: piece.stored.is_none() }),
            }
        }
        stretches
    }

    /// Announces that a range of the file will be read soon. Returns at once; the part that exceeds
    /// the memory for read-ahead is ignored.
    pub fn prefetch(&self, offset: u64, length: u64) {
        let end = offset.saturating_add(length.min(self.shared.ahead_max)).min(self.size());
        for piece in self.shared.contents.pieces(offset..end) {
            if let Some(stored) = piece.stored {
                self.shared.queue.plan(stored..stored + (piece.range.end - piece.range.start));
            }
        }
    }

    /// Counts of the contents fetched so far.
    pub fn fetched(&self) -> FetchReport {
        self.shared.version.fetched()
    }

    /// Bytes in the disk cache.
    pub fn cached_on_disk(&self) -> u64 {
        self.shared.frames.disk.as_ref().map_or(0, DiskFrames::used)
    }
}

impl Shared {
    /// Reads bytes of the data stream.
    fn read_stored(&self, offset: u64, out: &mut [u8]) -> Result<(), RepositoryError> {
        if self.has_workers && out.len() as u64 > FRAME_TARGET as u64 / 4 {
            self.ask_for(offset..offset.saturating_add(out.len() as u64))?;
        }
        let mut done = 0;
        while done < out.len() {
            done += self.read_chunk(offset + done as u64, &mut out[done..])?;
        }
        Ok(())
    }

    /// Reads from the chunk that holds the stream byte at `offset`, up to its end. Returns the
    /// number of bytes, which is not 0.
    fn read_chunk(&self, offset: u64, out: &mut [u8]) -> Result<usize, RepositoryError> {
        let moved = self.places.moved();
        loop {
            let segment = self.places.segment(offset)?.ok_or_else(|| self.short())?;
            let number = segment.chunk_at(offset).ok_or_else(|| self.short())?;
            let chunk = &segment.chunks[number];
            let skip = (offset - segment.start_of(number)) as usize;
            let is_stale = || segment.changes != moved.changes();
            match self.copy(chunk, skip, out) {
                Ok(count) => return Ok(count),
                // It may have been moved, or another copy may be right (`WrongIsAbsent`). Another
                // thread may have learned this already, or learn it at the same time.
                Err(error)
                    if (is_missing(&error) || error.is_damage())
                        && !self.places.are_kept()
                        && (is_stale() || moved.learn([chunk.container])? || is_stale()) => {}
                Err(error) => {
                    self.name(chunk, &error);
                    return Err(error);
                }
            }
        }
    }

    /// Copies from a chunk, from its byte `skip` on.
    fn copy(&self, chunk: &ChunkRef, skip: usize, out: &mut [u8]) -> Result<usize, RepositoryError> {
        let outside = |why| damaged(chunk, DecodeError::Invalid { what: "chunk record", why });
        let not_there = || outside("it lies outside of its container");
        let frame = self.frames.get(chunk.container, chunk.offset)?.ok_or_else(not_there)?;
        let from = (chunk.offset - frame.payload_offset) as usize;
        let bytes = frame.raw.get(from..from + chunk.size as usize);
        let bytes = bytes.ok_or_else(|| outside("it lies across the border of a frame"))?;
        if self.fingerprinter.one(bytes) != chunk.fingerprint {
            return Err(outside("the bytes there have another fingerprint"));
        }
        let rest = bytes.get(skip..).unwrap_or_default();
        let count = rest.len().min(out.len());
        out[..count].copy_from_slice(&rest[..count]);
        self.counters.used(count as u64);
        Ok(count)
    }

    fn short(&self) -> RepositoryError {
        let source = DecodeError::Invalid { what: "recipe", why: "it is shorter than its files" };
        let summary = &self.version.manifest().summary;
        RepositoryError::Damaged { name: format!("snapshot {}", summary.id.short()), source }
    }

    /// Names the damage of a container in the log, once.
    fn name(&self, chunk: &ChunkRef, error: &RepositoryError) {
        if !error.is_damage() {
            tracing::warn!(%error, "a read failed");
            return;
        }
        let mut named = self.named.lock();
        if named.len() < NAMED_MAX && named.insert(chunk.container) {
            drop(named);
            tracing::error!(%error, container = %names::container(chunk.container), "damaged data; reads of it fail");
            self.version.context.progress.problem(&larder_job::Problem {
                path: names::container(chunk.container).into_bytes(),
                during: larder_job::Activity::Read,
                message: error.to_string(),
            });
        }
    }
}
