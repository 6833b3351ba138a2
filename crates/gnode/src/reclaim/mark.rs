//! Every chunk that retained versions name, sorted: all their recipes are read, each distinct
//! segment once.
//!
//! Segments may be given to workers ([`SharedMarks`]). This process reads the manifests and the
//! nodes of all recipes itself, so it alone decides which segments count, and knows the number of
//! records in each.

use larder_format::index_tables::ChunkKey;
use larder_format::lease::Pin;
use larder_format::manifest::Register;
use larder_format::recipe::SegmentRef;
use larder_format::run::{RecordLayout, ValueWidth};
use larder_format::segment::Segment;
use larder_index::{IndexPass, Sorted, Sorter};
use larder_job::Cancel;
use larder_reader::{MarkError, MetaChunks, References, SharedMarks, TakeMarks};
use larder_rewrite::chunk_copier::RewriteError;
use larder_store::RepositoryError;

use super::{ReclaimError, Work};

/// Keys of chunks, without values.
pub(super) const KEYS: RecordLayout = RecordLayout { key_len: 20, value: ValueWidth::Fixed(0) };

/// Segments that are given away together at most.
const SEGMENTS_MAX: usize = 2048;
/// Chunk records that are given away together at most: one for this number of bytes of the memory.
const CHUNK_MEMORY: usize = 512;

/// Whether the segments of an exact collection may be given away.
#[derive(Debug, Clone, Copy)]
pub(super) enum Sharing {
    /// No: nobody has announced a pass.
    Alone,
    /// Yes. This is how often the pass marked before.
    Look(u8),
}

/// The outcome.
enum Needed {
    /// These are needed.
    Keys(Sorted),
    /// It is not known.
    Unknown,
    /// A worker was wrong, so that no result of workers counts.
    WorkerWrong,
}

/// Keys that are needed.
#[derive(Debug)]
pub(super) struct Marked {
    pub(super) keys: Sorted,
    /// Whether workers may have read segments. Then a key may be missing, whatever was compared:
    /// see [`prove`](super::prove).
    pub(super) is_told: bool,
}

/// The keys of all chunks that these manifests need; `None` when one of them cannot be read, so
/// that they are unknown.
///
/// By fingerprint, not by place. Two versions may need a chunk in different places, and one copy of
/// it is enough.
pub(super) fn needed(
    pass: &IndexPass,
    work: &Work,
    walks: &[(Pin, u32)],
    sharing: Sharing,
) -> Result<Option<Marked>, ReclaimError> {
    if let (Sharing::Look(look), Some(sharing)) = (sharing, &work.sharing) {
        let context = work.context.on(&pass.io.executor);
        let at_once = sharing.batch_chunks().min((pass.memory / CHUNK_MEMORY) as u64);
        if let Some(mut shared) = sharing.begin_marks(&context, work.job, work.turn, look) {
            let needed = collect(pass, work, walks, Some((&mut *shared, at_once)));
            shared.end();
            match needed? {
                Needed::Keys(keys) => return Ok(Some(Marked { keys, is_told: true })),
                Needed::Unknown => return Ok(None),
                Needed::WorkerWrong => {}
            }
        }
    }
    Ok(match collect(pass, work, walks, None)? {
        Needed::Keys(keys) => Some(Marked { keys, is_told: false }),
        Needed::Unknown | Needed::WorkerWrong => None,
    })
}

/// Collects needed keys in this process.
pub(super) struct Own<'a> {
    pub(super) chunks: MetaChunks,
    pub(super) keys: &'a mut Sorter,
    pub(super) cancel: &'a Cancel,
}

impl TakeMarks for Own<'_> {
    fn read(&self, row: &SegmentRef) -> Result<Segment, RepositoryError> {
        self.chunks.segment(row)
    }

    fn needs(&mut self, key: &ChunkKey) -> Result<(), MarkError> {
        if self.cancel.is_cancelled() {
            return Err(MarkError::Interrupted);
        }
        Ok(self.keys.push(&key.0, Some(&[]))?)
    }
}

impl Own<'_> {
    /// Reads a segment: its chunks are needed.
    pub(super) fn segment(&mut self, row: &SegmentRef) -> Result<(), MarkError> {
        for record in &self.read(row)?.records {
            self.needs(&ChunkKey::of(&record.chunk.fingerprint))?;
        }
        Ok(())
    }
}

/// Segments on their way to workers.
struct Away<'a> {
    shared: &'a mut dyn SharedMarks,
    /// Chunk records that make a batch.
    at_once: u64,
    batch: Vec<SegmentRef>,
    chunks: u64,
    has_failed: bool,
}

impl Away<'_> {
    fn push(&mut self, row: &SegmentRef, own: &mut Own<'_>) -> Result<(), MarkError> {
        if self.has_failed {
            return Ok(());
        }
        // Anybody can say so of a segment of others. Reading it tells.
        if row.chunks == 0 {
            return own.segment(row);
        }
        self.batch.push(row.clone());
        self.chunks += u64::from(row.chunks);
        if self.chunks >= self.at_once || self.batch.len() >= SEGMENTS_MAX { self.flush(own) } else { Ok(()) }
    }

    fn flush(&mut self, own: &mut Own<'_>) -> Result<(), MarkError> {
        self.chunks = 0;
        let batch = std::mem::take(&mut self.batch);
        self.has_failed |= !batch.is_empty() && self.shared.offer(batch, own)? == larder_reader::Marked::WorkerWrong;
        Ok(())
    }

    /// Until nothing is away. Returns whether a worker was wrong.
    fn finish(&mut self, own: &mut Own<'_>) -> Result<bool, MarkError> {
        self.flush(own)?;
        Ok(self.has_failed || self.shared.finish(own)? == larder_reader::Marked::WorkerWrong)
    }
}

fn collect(
    pass: &IndexPass,
    work: &Work,
    walks: &[(Pin, u32)],
    shared: Option<(&mut dyn SharedMarks, u64)>,
) -> Result<Needed, ReclaimError> {
    let mut keys = Sorter::new(&pass.io.repository, KEYS, pass.memory / 2, &pass.folder)?;
    let mut references = References::new(&work.context.on(&pass.io.executor));
    let mut own = Own { chunks: references.chunks(), keys: &mut keys, cancel: &work.context.cancel };
    let mut away =
        shared.map(|(shared, at_once)| Away { shared, at_once, batch: Vec::new(), chunks: 0, has_failed: false });
    let is_known = walk(
        pass,
        walks,
        &mut references,
        |_| true,
        |row| match &mut away {
            Some(away) => away.push(row, &mut own),
            None => own.segment(row),
        },
    )?;
    if !is_known {
        return Ok(Needed::Unknown);
    }
    if let Some(away) = &mut away {
        match away.finish(&mut own) {
            Ok(false) => {}
            Ok(true) => return Ok(Needed::WorkerWrong),
            Err(MarkError::Index(error)) if error.is_damage() => return Ok(unknown(&error)),
            Err(error) => return Err(error.into()),
        }
    }
    Ok(Needed::Keys(keys.finish()?))
}

/// Calls `each` for the distinct segments of these manifests that have a row which `is_wanted`.
/// Returns whether all could be read.
pub(super) fn walk(
    pass: &IndexPass,
    walks: &[(Pin, u32)],
    references: &mut References,
    is_wanted: impl Fn(&SegmentRef) -> bool,
    mut each: impl FnMut(&SegmentRef) -> Result<(), MarkError>,
) -> Result<bool, ReclaimError> {
    let repository = &pass.io.repository;
    for (version, generation) in walks {
        let manifest = match pass.io.executor.block_on(repository.read_register(*version, *generation)) {
            Ok(Some(Register::Committed(manifest))) => manifest,
            Ok(Some(Register::Aborted)) => continue,
            // Another pass was faster, and this one will not publish.
            Ok(None) => return Ok(false),
            Err(error) if error.is_damage() => {
                unknown(&error);
                return Ok(false);
            }
            Err(error) => return Err(error.into()),
        };
        match references.segments_where(&manifest.data, &is_wanted, &mut each) {
            Ok(()) => {}
            Err(MarkError::Index(error)) if error.is_damage() => {
                unknown(&error);
                return Ok(false);
            }
            Err(error) => return Err(error.into()),
        }
    }
    Ok(true)
}

fn unknown(error: &dyn std::error::Error) -> Needed {
    tracing::warn!(%error, "what is needed is not known, so nothing is collected chunk by chunk");
    Needed::Unknown
}

impl From<MarkError> for ReclaimError {
    fn from(error: MarkError) -> Self {
        match error {
            MarkError::Index(error) => Self::Index(error),
            MarkError::Interrupted => Self::ChunkCopier(RewriteError::Interrupted),
        }
    }
}
