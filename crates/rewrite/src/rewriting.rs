//! Writes the streams of a version from parts of another: unchanged ranges of its data stream, and
//! new entries.
//!
//! Whole segments are shared, and so are blocks of metadata that did not change. Chunks are neither
//! read nor copied.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

use larder_chunking::Fingerprinter;
use larder_format::Fingerprint;
use larder_format::entry::Entry;
use larder_format::ids::{ContainerKind, JobId};
use larder_format::manifest::Manifest;
use larder_format::metadata::{Block, BlockBuilder};
use larder_format::recipe::{Cover, Recipe};
use larder_format::segment::ChunkRecord;
use larder_job::JobContext;
use larder_reader::{MetaChunks, RecipeReader, VersionReader};
use larder_store::RepositoryError;
use larder_writer::{Destination, MetaSink, Packer, RecipeWriter, Sunk, Usage};

/// See the module header.
pub(crate) struct Rewriting {
    job: JobId,
    from: RecipeReader,
    data: RecipeWriter,
    metadata: RecipeWriter,
    blocks: BlockBuilder,
    /// Blocks of the old version that are whole.
    known: HashMap<Fingerprint, ChunkRecord>,
    sink: MetaSink,
    /// The range of the old data stream to reuse, still growing.
    kept: Option<Range<u64>>,
    kept_bytes: u64,
    entry_bytes: u64,
    logical_bytes: u64,
}

/// The finished streams.
pub(crate) struct Rewritten {
    pub(crate) data: Recipe,
    pub(crate) metadata: Recipe,
    pub(crate) usage: Usage,
    pub(crate) added_bytes: u64,
    pub(crate) logical_bytes: u64,
}

impl Rewriting {
    /// `known`: blocks of the old version that are whole.
    pub(crate) fn new(
        context: &JobContext,
        job: JobId,
        old: &Manifest,
        known: HashMap<Fingerprint, ChunkRecord>,
        destination: Destination,
    ) -> Self {
        let packer = Packer::new(destination, ContainerKind::Meta, job).of_domain(old.summary.domain);
        let fingerprinter = Fingerprinter::new(context.repository.keys().fingerprint());
        Self {
            job,
            from: RecipeReader::new(Arc::new(old.data.clone()), MetaChunks::new(context)),
            data: RecipeWriter::new(Some(&old.data)),
            metadata: RecipeWriter::new(Some(&old.metadata)),
            blocks: BlockBuilder::new(),
            known,
            sink: MetaSink::new(packer, Arc::new(fingerprinter)),
            kept: None,
            kept_bytes: 0,
            entry_bytes: 0,
            logical_bytes: 0,
        }
    }

    /// Reuses a range of the old data stream. Ranges come in order, and begin and end where chunks
    /// do.
    pub(crate) fn keep(&mut self, range: Range<u64>) -> Result<(), RepositoryError> {
        if range.is_empty() {
            return Ok(());
        }
        self.kept_bytes += range.end - range.start;
        match &mut self.kept {
            Some(kept) if kept.end == range.start => kept.end = range.end,
            _ => {
                self.flush_kept()?;
                self.kept = Some(range);
            }
        }
        Ok(())
    }

    fn flush_kept(&mut self) -> Result<(), RepositoryError> {
        let Some(kept) = self.kept.take() else { return Ok(()) };
        let mut position = kept.start;
        while position < kept.end {
            let Some((number, start)) = self.from.segment_at(position)? else { break };
            let Some((segment, _)) = self.from.segment_ref(number)? else { break };
            let end = start + segment.bytes;
            let is_whole = position == start && end <= kept.end;
            if is_whole && (self.data.is_at_segment_start() || segment.proof.is_some()) {
                self.data.border(None, &mut self.sink)?;
                self.data.push_segment(segment, &mut self.sink)?;
                position = end;
                continue;
            }
            // Proved segments are of one large file; other data of the stream does not continue in
            // them.
            let is_proved = segment.proof.is_some();
            if is_proved {
                self.data.border(None, &mut self.sink)?;
            }
            let mut at = start;
            for record in self.from.segment(number)?.iter() {
                if at >= position && at < kept.end {
                    self.data.push(*record, None, || Ok(None), &mut self.sink)?;
                }
                at += u64::from(record.chunk.size);
            }
            if is_proved {
                self.data.border(None, &mut self.sink)?;
            }
            position = end.min(kept.end);
        }
        Ok(())
    }

    /// Appends an entry, whose stored bytes were reused.
    pub(crate) fn entry(&mut self, entry: &Entry) -> Result<(), RepositoryError> {
        self.entry_bytes = self.entry_bytes.saturating_add(entry.stored_bytes());
        self.logical_bytes = self.logical_bytes.saturating_add(entry.size());
        match self.blocks.push(entry)? {
            Some(block) => self.block(block),
            None => Ok(()),
        }
    }

    fn block(&mut self, block: Block) -> Result<(), RepositoryError> {
        let fingerprint = self.sink.fingerprint(&block.bytes);
        let record = match self.known.get(&fingerprint) {
            Some(record) => *record,
            None => {
                let chunk = self.sink.push(fingerprint, &block.bytes)?;
                ChunkRecord { chunk, born: self.job }
            }
        };
        let cover = Cover { first_path: block.first_path, data_bytes: block.data_bytes };
        self.metadata.push(record, Some(cover), || Ok(None), &mut self.sink)
    }

    /// Ends both streams; `None` when they do not agree, which is a bug.
    pub(crate) fn finish(mut self) -> Result<Option<Rewritten>, RepositoryError> {
        self.flush_kept()?;
        if let Some(block) = self.blocks.finish() {
            self.block(block)?;
        }
        let Self { data, metadata, mut sink, kept_bytes, entry_bytes, logical_bytes, .. } = self;
        let data = data.finish(None, &mut sink)?;
        let metadata = metadata.finish(None, &mut sink)?;
        let Sunk { usage, added_bytes } = sink.finish()?;
        if kept_bytes != entry_bytes || data.bytes() != entry_bytes {
            return Ok(None);
        }
        Ok(Some(Rewritten { data, metadata, usage, added_bytes, logical_bytes }))
    }
}

/// Blocks of metadata of a version by their fingerprint, except those in chunks that are not whole.
/// Damaged segments are passed over.
pub(crate) fn whole_blocks(
    reader: &VersionReader,
    is_whole: impl Fn(&ChunkRecord) -> bool,
) -> Result<HashMap<Fingerprint, ChunkRecord>, RepositoryError> {
    let mut recipe = reader.metadata_recipe();
    let mut known = HashMap::new();
    for number in 0..recipe.segments() {
        let records = match recipe.segment(number) {
            Ok(records) => records,
            Err(error) if error.is_damage() => continue,
            Err(error) => return Err(error),
        };
        let whole = records.iter().filter(|record| is_whole(record));
        known.extend(whole.map(|record| (record.chunk.fingerprint, *record)));
    }
    Ok(known)
}
