//! One of the two streams of the new version: its recipe, and the streams of the bases that it
//! follows.
//!
//! A segment that equals the base's current segment is shared with the base. So every step that may
//! end a segment asks the base first.

use larder_chunking::RunMac;
use larder_format::recipe::{Cover, Recipe, SegmentRef};
use larder_format::segment::ChunkRecord;
use larder_store::RepositoryError;
use larder_writer::{Cutter, Merge, MetaSink, RecipeWriter};

use crate::backup::filters::BaseFilters;

/// See the module header.
pub(super) struct Stream {
    recipe: RecipeWriter,
    /// The streams of the bases; `None` without a base.
    pub(super) base: Option<BaseFilters>,
}

impl Stream {
    /// A stream that is written with `recipe` and follows `base`.
    pub(super) fn new(recipe: RecipeWriter, base: Option<BaseFilters>) -> Self {
        Self { recipe, base }
    }

    /// Whether the next record begins a segment, so that a whole segment of a base may be reused.
    pub(super) fn is_at_segment_start(&self) -> bool {
        self.recipe.is_at_segment_start()
    }

    /// Ends the open segment, and proves those of the beginning large file. See
    /// [`RecipeWriter::begin_file`].
    pub(super) fn begin_file(
        &mut self,
        cutter: Cutter,
        max: u32,
        run_mac: &RunMac,
        merge: Option<Merge>,
        sink: &mut MetaSink,
    ) -> Result<(), RepositoryError> {
        let candidate = followed(&mut self.base)?;
        self.recipe.begin_file(cutter, max, run_mac, merge, candidate, sink)
    }

    /// Ends the large file.
    pub(super) fn end_file(&mut self, sink: &mut MetaSink) -> Result<(), RepositoryError> {
        let candidate = followed(&mut self.base)?;
        self.recipe.end_file(candidate, sink)
    }

    /// The next records are those of a superchunk of the base. See
    /// [`RecipeWriter::keep_superchunk`].
    pub(super) fn keep_superchunk(&mut self, records: usize, mac: [u8; 16]) {
        self.recipe.keep_superchunk(records, mac);
    }

    /// Appends a record. `content`: its bytes, if they were read, for proofs.
    pub(super) fn push(
        &mut self,
        record: ChunkRecord,
        content: Option<&[u8]>,
        cover: Option<Cover>,
        sink: &mut MetaSink,
    ) -> Result<(), RepositoryError> {
        self.recipe.saw(&record, content);
        self.recipe.push(record, cover, || followed(&mut self.base), sink)
    }

    /// Ends the open segment, and appends a whole segment of a base.
    pub(super) fn push_segment(&mut self, segment: SegmentRef, sink: &mut MetaSink) -> Result<(), RepositoryError> {
        let candidate = followed(&mut self.base)?;
        self.recipe.border(candidate, sink)?;
        self.recipe.push_segment(segment, sink)
    }

    /// Ends the stream.
    pub(super) fn finish(mut self, sink: &mut MetaSink) -> Result<Recipe, RepositoryError> {
        let candidate = followed(&mut self.base)?;
        self.recipe.finish(candidate, sink)
    }
}

/// The current segment of the base.
fn followed(base: &mut Option<BaseFilters>) -> Result<Option<SegmentRef>, RepositoryError> {
    base.as_mut().map_or(Ok(None), BaseFilters::followed)
}
