//! The middle of the pipeline: takes work in path order, decides whether each chunk is new, and
//! writes the two streams of the version.
//!
//! One thread, and the only one that knows the order of the work. Invariant: the data stream is
//! exactly the stored bytes of the entries, in their order; [`Sequencer::finish`] checks it.

mod hard_links;
mod reuse_range;
mod stream;

use std::collections::HashSet;
use std::path::PathBuf;
use std::sync::Arc;

use crossbeam_channel::{Receiver, Sender};
use larder_dedup::chain::{self, Chunk};
use larder_dedup::{GroupFilter, Sketcher};
use larder_format::Fingerprint;
use larder_format::compress::ContentHint;
use larder_format::entry::{Entry, EntryKind};
use larder_format::ids::{ContainerId, JobId};
use larder_format::manifest::Statistics;
use larder_format::metadata::{Block, BlockBuilder};
use larder_format::recipe::{Cover, Recipe};
use larder_format::segment::ChunkRecord;
use larder_job::{Activity, Cancel, ItemFate, Problem, Progress};
use larder_reader::RecipeReader;
use larder_store::RepositoryError;
use larder_writer::{Chunks, Cutter, Cutting, Merge, MetaSink, RecipeWriter, Sunk, Usage};

use super::BackupError;
use super::bases::{BaseSegments, OrphanedContainers};
use super::batch::{self, BatchDone, EntryChange, Ready};
use super::feed::FeedItem;
use super::filters::BaseFilters;
use super::job_chunks::{JobChunks, data_filters, metadata_filters};
use super::layout_policy::LayoutPolicy;
use super::paranoid::ByteComparison;
use super::prediction::{PositionHint, PositionHints};
use super::read_window::for_reuse;
use super::root_coverage::RootCoverage;
use super::skip_duplicates::SkippedDuplicates;
use crate::assemble::DataWriter;
use hard_links::{HardLinks, LinkTo};
use reuse_range::ReusedRange;
use stream::Stream;

/// The parts of a sequencer.
pub(super) struct Parts {
    pub(super) job: JobId,
    pub(super) cutting: Arc<Cutting>,
    pub(super) data_writer: DataWriter,
    /// Stores metadata, and segments and nodes of both streams.
    pub(super) sink: MetaSink,
    /// The sources of duplicates.
    pub(super) bases: Vec<BaseReaders>,
    /// The data stream of the first base, if bytes may be reused from it unread.
    pub(super) unread: Option<RecipeReader>,
    pub(super) orphans: Option<OrphanedContainers>,
    /// Compares the bytes of duplicates that the others find.
    pub(super) comparison: Option<ByteComparison>,
    pub(super) index_memory: usize,
    /// Folder for data that exceeds this memory.
    pub(super) scratch: Option<PathBuf>,
    pub(super) policy: &'static dyn LayoutPolicy,
    /// Measures chunks that are in no base but were there before.
    pub(super) skips: Option<SkippedDuplicates>,
    /// The chunks of which runs become superchunks.
    pub(super) merge: Option<Merge>,
    pub(super) wanted: RootCoverage,
    /// Tells the feeder the stream's place.
    pub(super) hints: PositionHints,
    pub(super) progress: Arc<dyn Progress>,
    pub(super) cancel: Cancel,
    pub(super) spare: Sender<Chunks>,
}

/// The streams of one base.
pub(super) struct BaseReaders {
    pub(super) data: RecipeReader,
    pub(super) metadata: RecipeReader,
    /// Its missing containers: their chunks are no duplicates.
    pub(super) missing: Arc<HashSet<ContainerId>>,
}

/// The finished streams.
pub(super) struct Streams {
    pub(super) data: Recipe,
    pub(super) metadata: Recipe,
    pub(super) usage: Usage,
    pub(super) statistics: Statistics,
    pub(super) sketcher: Sketcher,
    pub(super) orphans: Option<GroupFilter<OrphanedContainers>>,
    /// A requested entry is new or changed, by its metadata; missing entries are not reported here.
    pub(super) differs: bool,
}

/// See the module header.
pub(super) struct Sequencer {
    job: JobId,
    cutting: Arc<Cutting>,
    data_writer: DataWriter,
    sink: MetaSink,
    data: Stream,
    metadata: Stream,
    blocks: BlockBuilder,
    own: JobChunks,
    orphans: Option<GroupFilter<OrphanedContainers>>,
    comparison: Option<ByteComparison>,
    skips: Option<SkippedDuplicates>,
    unread: Option<RecipeReader>,
    /// The range of the first base that is being reused.
    reused: Option<ReusedRange>,
    sketcher: Sketcher,
    statistics: Statistics,
    /// Bytes of the current large file.
    pending_bytes: u64,
    stream_bytes: u64,
    entry_bytes: u64,
    wanted: RootCoverage,
    /// See [`Streams`].
    differs: bool,
    links: HardLinks,
    /// Large files begun so far.
    files: u64,
    merge: Option<Merge>,
    hints: PositionHints,
    progress: Arc<dyn Progress>,
    cancel: Cancel,
    spare: Sender<Chunks>,
}

impl Sequencer {
    pub(super) fn new(parts: Parts) -> Self {
        let Parts { bases, index_memory, policy, .. } = parts;
        let whole = bases.first().filter(|base| base.missing.is_empty());
        let data = RecipeWriter::new(whole.map(|base| base.data.recipe()));
        let metadata = RecipeWriter::new(whole.map(|base| base.metadata.recipe()));
        let segments = |base: BaseReaders| {
            let metadata = BaseSegments::new(base.metadata, base.missing.clone());
            (BaseSegments::new(base.data, base.missing), metadata)
        };
        let (data_bases, meta_bases) = bases.into_iter().map(segments).unzip();
        let data_base = BaseFilters::new(data_bases, index_memory / 2, policy, &parts.scratch);
        let meta_base = BaseFilters::new(meta_bases, index_memory / 8, policy, &parts.scratch);
        Self {
            job: parts.job,
            cutting: parts.cutting,
            data_writer: parts.data_writer,
            sink: parts.sink,
            data: Stream::new(data, data_base),
            metadata: Stream::new(metadata, meta_base),
            blocks: BlockBuilder::new(),
            own: JobChunks::new(index_memory / 4, parts.scratch, parts.job, policy),
            orphans: parts.orphans.map(|orphans| GroupFilter::new(orphans, index_memory / 8)),
            comparison: parts.comparison,
            skips: parts.skips,
            unread: parts.unread,
            reused: None,
            sketcher: Sketcher::new(),
            statistics: Statistics::default(),
            pending_bytes: 0,
            stream_bytes: 0,
            entry_bytes: 0,
            wanted: parts.wanted,
            differs: false,
            links: HardLinks::default(),
            files: 0,
            merge: parts.merge,
            hints: parts.hints,
            progress: parts.progress,
            cancel: parts.cancel,
            spare: parts.spare,
        }
    }

    /// Works through all fed items.
    pub(super) fn run(&mut self, fed: &Receiver<FeedItem>) -> Result<(), BackupError> {
        for item in fed {
            if self.cancel.is_cancelled() {
                return Err(BackupError::Interrupted);
            }
            match item {
                FeedItem::Batch(promise) => self.batch(wait(&promise)?)?,
                FeedItem::Begin(cutter) => self.begin_file(cutter)?,
                FeedItem::Block(promise) => {
                    let chunks = wait(&promise)?;
                    self.flush_reused()?;
                    self.contents(&chunks, 0, chunks.lengths.len(), 0)?;
                    let bytes = chunks.lengths.iter().map(|length| u64::from(*length)).sum();
                    self.pending_bytes += bytes;
                    self.progress.done(0, bytes);
                    self.tell_position()?;
                    let _ = self.spare.send(for_reuse(chunks));
                }
                FeedItem::Repeat { offset, bytes, chunks } => {
                    self.reuse(offset, bytes)?;
                    self.pending_bytes += bytes;
                    self.statistics.read_bytes += bytes;
                    self.statistics.predictions_right += u64::from(chunks);
                    self.statistics.predicted_bytes += bytes;
                    self.progress.done(0, bytes);
                }
                FeedItem::TakeOver { offset, bytes } => {
                    self.reuse(offset, bytes)?;
                    self.pending_bytes += bytes;
                    self.progress.done(0, bytes);
                }
                FeedItem::Mispredicted(count) => self.statistics.predictions_wrong += count,
                FeedItem::End(ended) => {
                    self.end_file()?;
                    debug_assert_eq!(ended.entry.stored_bytes(), self.pending_bytes);
                    self.pending_bytes = 0;
                    self.progress.current(&ended.entry.path);
                    self.progress.done(1, 0);
                    self.count(&ended.entry, ended.fate);
                    self.entry(&ended.entry)?;
                    for problem in ended.problems {
                        self.problem(&problem);
                    }
                }
                FeedItem::Lost { problem, may_be_linked_to } => self.lose(problem, may_be_linked_to),
                FeedItem::SourceFailed(error) => return Err(BackupError::Source(error)),
                FeedItem::InputFailed { path, source } => return Err(BackupError::Input { path, source }),
            }
        }
        if self.cancel.is_cancelled() { Err(BackupError::Interrupted) } else { Ok(()) }
    }

    /// From here on segments belong to one large file, and are proved.
    fn begin_file(&mut self, cutter: Cutter) -> Result<(), BackupError> {
        self.files += 1;
        self.data_writer.expect(cutter.content_hint());
        let cutting = self.cutting.clone();
        let Some(run_mac) = &cutting.run_mac else { return Ok(()) };
        self.flush_reused()?;
        let max = cutting.chunker(cutter).params().max;
        Ok(self.data.begin_file(cutter, max, run_mac, self.merge, &mut self.sink)?)
    }

    fn end_file(&mut self) -> Result<(), BackupError> {
        self.data_writer.expect(ContentHint::Any);
        self.flush_reused()?;
        Ok(self.data.end_file(&mut self.sink)?)
    }

    /// Tells the feeder the current large file's place in the base.
    fn tell_position(&mut self) -> Result<(), BackupError> {
        if let Some(base) = &mut self.data.base
            && let Some(offset) = base.position()?
        {
            self.hints.saw(PositionHint { file: self.files.saturating_sub(1), at: self.pending_bytes, base: offset });
        }
        Ok(())
    }

    /// Whether the version has any requested entry.
    pub(super) fn has_entries(&self) -> bool {
        self.wanted.is_any()
    }

    fn batch(&mut self, done: BatchDone) -> Result<(), BackupError> {
        let BatchDone { items, chunks } = done;
        let (mut next, mut offset) = (0, 0);
        for item in items {
            match item {
                Ready::Keep { entry, data_offset, fate } => {
                    self.reuse(data_offset, entry.stored_bytes())?;
                    self.count(&entry, fate);
                    self.progress.current(&entry.path);
                    self.progress.done(1, entry.size());
                    self.entry(&entry)?;
                }
                Ready::Entry { entry, fate, chunks: count } => {
                    if count > 0 {
                        self.flush_reused()?;
                        offset = self.contents(&chunks, next, next + count, offset)?;
                        next += count;
                    }
                    self.count(&entry, fate);
                    self.progress.current(&entry.path);
                    self.progress.done(1, entry.size());
                    self.entry(&entry)?;
                }
                Ready::Link { found, fate } => self.link(*found, fate)?,
                Ready::Lost { problem, may_be_linked_to } => self.lose(problem, may_be_linked_to),
                Ready::Problem(problem) => self.problem(&problem),
            }
        }
        let _ = self.spare.send(for_reuse(chunks));
        Ok(())
    }

    /// A further name of an earlier file; if that file is missing, this one takes its place.
    fn link(&mut self, mut found: larder_source::Found, fate: EntryChange) -> Result<(), BackupError> {
        let EntryKind::HardLink { target } = &mut found.entry.kind else { return Ok(()) };
        let link_to = self.links.resolve(target);
        if let LinkTo::StandIn(stand_in) = link_to {
            *target = stand_in.to_vec();
        } else if link_to == LinkTo::Nothing {
            let lost = target.clone();
            let path = found.entry.path.clone();
            if let Err(error) = found.unlink() {
                self.problem(&Problem { path, during: Activity::Read, message: error.to_string() });
                return Ok(());
            }
            let mut chunks = Chunks::default();
            let mut items = Vec::new();
            batch::read(found, fate, &mut chunks, &self.cutting, &mut items);
            chunks.fingerprint(&self.cutting);
            if matches!(items.first(), Some(Ready::Entry { .. })) {
                self.links.stands_for(path, lost);
            }
            return self.batch(BatchDone { items, chunks });
        } else if fate != EntryChange::Unmodified {
            let errors = found.complete();
            for error in &errors {
                self.problem(&batch::attribute_problem(&found, error));
            }
        }
        self.count(&found.entry, fate);
        self.progress.done(1, 0);
        self.entry(&found.entry)
    }

    /// Writes the chunks `from..to` of `chunks`, whose bytes begin at `offset`; returns the offset
    /// behind them.
    fn contents(&mut self, chunks: &Chunks, from: usize, to: usize, mut offset: usize) -> Result<usize, BackupError> {
        for number in from..to {
            let length = &chunks.lengths[number];
            let bytes = &chunks.bytes[offset..offset + *length as usize];
            offset += *length as usize;
            let record = match chunks.known_at(number) {
                Some((run, place)) => {
                    if let Some(mac) = run.mac.filter(|_| number == run.chunks.start) {
                        self.data.keep_superchunk(run.chunks.len(), mac);
                    }
                    if number + 1 == run.chunks.end {
                        // The next bytes were not predicted, but are probably near this place of
                        // the base.
                        if let Some(base) = &mut self.data.base {
                            base.expect(run.segment, place as u32 + 1)?;
                        }
                    }
                    self.statistics.predictions_right += 1;
                    self.statistics.predicted_bytes += u64::from(*length);
                    run.records[place]
                }
                None => self.chunk(&chunks.fingerprints[number], bytes)?,
            };
            self.stream_bytes += u64::from(*length);
            self.statistics.read_bytes += u64::from(*length);
            self.sketcher.chunk(&record.chunk.fingerprint, *length, None);
            self.push_data(record, Some(bytes))?;
        }
        Ok(offset)
    }

    /// Finds a chunk of the data stream, or stores it.
    fn chunk(&mut self, fingerprint: &Fingerprint, bytes: &[u8]) -> Result<ChunkRecord, RepositoryError> {
        let chunk = Chunk { fingerprint, bytes };
        let filters = data_filters(&mut self.data.base, &mut self.own, &mut self.orphans, &mut self.comparison);
        if let Some(record) = chain::find(filters, &chunk)? {
            if let (Some(skips), Some(base)) = (&mut self.skips, &self.data.base)
                && base.is_in_second()
            {
                skips.found(chunk.size());
            }
            return Ok(record);
        }
        // A damaged chunk is found damaged each time it returns; this job has stored it again the
        // first time.
        if self.comparison.is_some()
            && let Some(record) = chain::find(self.own.filters(), &chunk)?
        {
            return Ok(record);
        }
        if let Some(skips) = &mut self.skips {
            skips.stored(fingerprint, chunk.size())?;
        }
        let stored = ChunkRecord { chunk: self.data_writer.push(*fingerprint, bytes)?, born: self.job };
        let filters = data_filters(&mut self.data.base, &mut self.own, &mut self.orphans, &mut self.comparison);
        chain::update(filters, &stored)?;
        self.own.make_room()?;
        self.statistics.new_chunks += 1;
        self.statistics.added_bytes += u64::from(chunk.size());
        Ok(stored)
    }

    fn push_data(&mut self, record: ChunkRecord, content: Option<&[u8]>) -> Result<(), RepositoryError> {
        self.statistics.chunks += 1;
        self.data.push(record, content, None, &mut self.sink)
    }

    fn entry(&mut self, entry: &Entry) -> Result<(), BackupError> {
        self.wanted.entry(entry);
        self.entry_bytes += entry.stored_bytes();
        match self.blocks.push(entry).map_err(RepositoryError::from)? {
            Some(block) => self.block(block),
            None => Ok(()),
        }
    }

    fn block(&mut self, block: Block) -> Result<(), BackupError> {
        let fingerprint = self.cutting.fingerprinter.one(&block.bytes);
        let filters = metadata_filters(&mut self.metadata.base, &mut self.comparison);
        let known = chain::find(filters, &Chunk { fingerprint: &fingerprint, bytes: &block.bytes })?;
        let record = match known {
            Some(record) => record,
            None => {
                let chunk = self.sink.push(fingerprint, &block.bytes)?;
                ChunkRecord { chunk, born: self.job }
            }
        };
        let cover = Cover { first_path: block.first_path, data_bytes: block.data_bytes };
        Ok(self.metadata.push(record, None, Some(cover), &mut self.sink)?)
    }

    fn count(&mut self, entry: &Entry, fate: EntryChange) {
        let statistics = &mut self.statistics;
        let counter = match (&entry.kind, fate) {
            (EntryKind::File { .. } | EntryKind::HardLink { .. }, EntryChange::New) => &mut statistics.files_new,
            (EntryKind::File { .. } | EntryKind::HardLink { .. }, EntryChange::Changed) => {
                &mut statistics.files_changed
            }
            (EntryKind::File { .. } | EntryKind::HardLink { .. }, EntryChange::Unmodified) => {
                &mut statistics.files_unmodified
            }
            (EntryKind::Directory, EntryChange::New) => &mut statistics.dirs_new,
            (EntryKind::Directory, EntryChange::Changed) => &mut statistics.dirs_changed,
            (EntryKind::Directory, EntryChange::Unmodified) => &mut statistics.dirs_unmodified,
            _ => &mut statistics.others,
        };
        *counter += 1;
        statistics.logical_bytes = statistics.logical_bytes.saturating_add(entry.size());
        self.differs |= fate != EntryChange::Unmodified && !self.wanted.is_above(entry);
        let fate = match fate {
            EntryChange::New => ItemFate::New,
            EntryChange::Changed => ItemFate::Changed,
            EntryChange::Unmodified => ItemFate::Unmodified,
        };
        self.progress.item(&entry.path, fate, entry.size());
    }

    fn problem(&mut self, problem: &Problem) {
        self.statistics.errors += 1;
        self.wanted.problem(problem);
        self.progress.problem(problem);
    }

    fn lose(&mut self, problem: Problem, may_be_linked_to: bool) {
        self.problem(&problem);
        if may_be_linked_to {
            self.links.lost(problem.path);
        }
    }

    /// Ends both streams and closes the open containers.
    pub(super) fn finish(mut self) -> Result<Streams, BackupError> {
        self.flush_reused()?;
        if let Some(block) = self.blocks.finish() {
            self.block(block)?;
        }
        // A wrong length would shift every later file's contents: better no version than that one.
        assert_eq!(self.stream_bytes, self.entry_bytes, "the data stream is not what the entries say of it");
        let data = self.data.finish(&mut self.sink)?;
        let metadata = self.metadata.finish(&mut self.sink)?;
        self.data_writer.close()?;
        let Sunk { usage, added_bytes } = self.sink.finish()?;
        self.statistics.added_bytes += added_bytes;
        self.statistics.stream_bytes = self.stream_bytes;
        self.statistics.skip_permille = self.skips.as_ref().and_then(SkippedDuplicates::permille);
        let Self { statistics, sketcher, orphans, differs, .. } = self;
        Ok(Streams { data, metadata, usage, statistics, sketcher, orphans, differs })
    }
}

/// Waits for the pool's result.
pub(super) fn wait<T>(promise: &Receiver<T>) -> Result<T, BackupError> {
    // The sender is dropped unsent only by a panic in the pool: a bug of this program that must end
    // the job.
    promise.recv().map_err(|_| BackupError::WorkerDied)
}
