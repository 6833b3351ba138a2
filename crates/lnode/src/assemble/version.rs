//! Writes a version that is one file, of segments whose chunks have their places already.
//!
//! The segments must be cut as an ordinary backup cuts them (`larder_dedup::Segmenter`, with a
//! border at the beginning of the file). Then both kinds of versions of a series share them, and
//! their recipes are equal. Nothing is read of the file here.

use std::ops::Range;
use std::sync::Arc;

use larder_dedup::Sketcher;
use larder_format::entry::Entry;
use larder_format::ids::{ContainerId, JobId};
use larder_format::manifest::{Manifest, SourceKind, Statistics};
use larder_format::metadata::{Block, BlockBuilder};
use larder_format::recipe::{Cover, Proof, SegmentRef};
use larder_format::segment::ChunkRecord;
use larder_job::JobContext;
use larder_reader::RecipeReader;
use larder_store::RepositoryError;
use larder_writer::{ContainerTotals, RecipeWriter, Sunk, holdings};

use super::{AssembleError, Contents, Description, OpenVersion, RecipeOutput, manifest};

/// See the module header.
#[derive(Debug)]
pub struct VersionWriter<'a> {
    context: &'a JobContext,
    job: JobId,
    base: Option<Base<'a>>,
    recipes: &'a mut RecipeOutput,
    /// Bytes of metadata containers that were stored before.
    stored_before: u64,
    data: RecipeWriter,
    metadata: RecipeWriter,
    sketcher: Sketcher,
    /// Bytes of the data stream so far.
    stream_bytes: u64,
    chunks: u64,
}

#[derive(Debug)]
struct Base<'a> {
    version: &'a OpenVersion,
    data: RecipeReader,
}

impl<'a> VersionWriter<'a> {
    /// A writer for the version of a job. `recipes` are of that job, or of one that its lease
    /// adopts and that was looked at after the lease. The lease names `base`, which was looked at
    /// as well. A base that is not whole helps nothing: segments of it are not taken over.
    pub fn new(
        context: &'a JobContext,
        job: JobId,
        recipes: &'a mut RecipeOutput,
        base: Option<&'a OpenVersion>,
    ) -> Self {
        let base = base.filter(|base| base.is_whole());
        // What a version counted that failed.
        let _ = recipes.sink.take();
        Self {
            context,
            job,
            stored_before: recipes.stored_bytes(),
            data: RecipeWriter::new(base.map(|base| &base.manifest.data)),
            metadata: RecipeWriter::new(base.map(|base| &base.manifest.metadata)),
            sketcher: Sketcher::new(),
            stream_bytes: 0,
            chunks: 0,
            base: base.map(|version| {
                let recipe = Arc::new(version.manifest.data.clone());
                Base { version, data: RecipeReader::new(recipe, recipes.chunks.clone()) }
            }),
            recipes,
        }
    }

    /// Appends segments of the base's data stream as they are.
    ///
    /// # Errors
    /// The base has no such segment, or its nodes cannot be read.
    pub fn keep(&mut self, segments: Range<u32>) -> Result<(), AssembleError> {
        for segment in segments {
            let row = match &mut self.base {
                Some(base) => base.data.segment_ref(segment)?,
                None => None,
            };
            let Some((row, start)) = row else { return Err(AssembleError::NotInBase { segment }) };
            self.sketcher.unseen(&row.samples, row.bytes, row.chunks, start);
            self.count(row.bytes, u64::from(row.chunks));
            self.data.push_segment(row, &mut self.recipes.sink)?;
        }
        Ok(())
    }

    /// Appends a segment, with the proof of its bytes.
    ///
    /// # Errors
    /// It is larger than segments may be, or an upload failed.
    pub fn segment(&mut self, records: Vec<ChunkRecord>, proof: Option<Proof>) -> Result<(), AssembleError> {
        let candidate = self.base_segment()?;
        let mut bytes = 0;
        for record in &records {
            self.sketcher.chunk(&record.chunk.fingerprint, record.chunk.size, None);
            bytes += u64::from(record.chunk.size);
        }
        self.count(bytes, records.len() as u64);
        Ok(self.data.push_cut(records, proof, candidate, &mut self.recipes.sink)?)
    }

    /// The base's segment at the present place of the stream. In files that change in place it
    /// resembles the next one.
    fn base_segment(&mut self) -> Result<Option<SegmentRef>, RepositoryError> {
        let Some(base) = &mut self.base else { return Ok(None) };
        let Some((number, _)) = base.data.segment_at(self.stream_bytes)? else { return Ok(None) };
        Ok(base.data.segment_ref(number)?.map(|(row, _)| row))
    }

    fn count(&mut self, bytes: u64, chunks: u64) {
        self.stream_bytes += bytes;
        self.chunks += chunks;
    }

    /// Ends the version with the entry of its file, and waits until the store has acknowledged
    /// every container of the job that has the recipes. `counted` says what was read and which
    /// chunks were new, also in containers of adopted jobs. `held` knows the containers that
    /// records may name, beside those of that job and those of the base: those of further versions
    /// that the lease names, and of adopted jobs.
    ///
    /// # Errors
    /// Lengths differ, a record names any other container, an upload failed, or the job was asked
    /// to stop.
    pub fn finish(
        mut self,
        entry: &Entry,
        counted: Statistics,
        description: Description,
        held: impl Fn(&ContainerId) -> Option<ContainerTotals>,
    ) -> Result<Manifest, AssembleError> {
        let (stream_bytes, entry_bytes) = (self.stream_bytes, entry.stored_bytes());
        if stream_bytes != entry_bytes {
            return Err(AssembleError::OtherLength { stream_bytes, entry_bytes });
        }
        let mut blocks = BlockBuilder::new();
        for block in [blocks.push(entry).map_err(RepositoryError::from)?, blocks.finish()].into_iter().flatten() {
            self.block(block)?;
        }
        let data = self.data.finish(None, &mut self.recipes.sink)?;
        let metadata = self.metadata.finish(None, &mut self.recipes.sink)?;
        let Sunk { usage, added_bytes } = self.recipes.sink.take();
        self.recipes.flush()?;
        let statistics = Statistics {
            files_new: 1,
            logical_bytes: entry.size(),
            stream_bytes,
            chunks: self.chunks,
            added_bytes: counted.added_bytes + added_bytes,
            stored_bytes: counted.stored_bytes + (self.recipes.stored_bytes() - self.stored_before),
            ..counted
        };
        let of_base = self.base.as_ref().map(|base| &base.version.manifest);
        let sketch = match of_base.filter(|base| base.data == data && !base.summary.sketch.is_empty()) {
            // It knows more of what was proved and not cut.
            Some(base) => base.summary.sketch.clone(),
            None => self.sketcher.finish(of_base.map(|base| (&base.summary.sketch, base.data.bytes()))),
        };
        let stored = self.recipes.stored();
        let of_base = of_base.map(|base| holdings(&base.containers)).unwrap_or_default();
        let known = |container: &ContainerId| stored.get(container).or_else(|| of_base.get(container)).copied();
        let description = Description { source: SourceKind::Stream, ..description };
        let contents = Contents { data, metadata, usage, statistics, sketch };
        manifest(self.context, self.job, description, contents, |container| {
            known(container).or_else(|| held(container))
        })
    }

    fn block(&mut self, block: Block) -> Result<(), RepositoryError> {
        let fingerprint = self.recipes.sink.fingerprint(&block.bytes);
        let chunk = self.recipes.sink.push(fingerprint, &block.bytes)?;
        let cover = Cover { first_path: block.first_path, data_bytes: block.data_bytes };
        self.metadata.push(ChunkRecord { chunk, born: self.job }, Some(cover), || Ok(None), &mut self.recipes.sink)
    }
}
