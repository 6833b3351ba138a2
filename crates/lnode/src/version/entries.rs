//! The entries of a version, in path order, each with its place in the data stream.

use std::sync::Arc;

use larder_format::entry::{Entry, path_order};
use larder_format::metadata::decode_block;
use larder_format::recipe::{Cover, Recipe};
use larder_store::RepositoryError;

use super::recipe_reader::{MetaChunks, RecipeReader, damaged};

/// An entry and where its stored bytes begin in the data stream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct PlacedEntry {
    pub(crate) entry: Entry,
    pub(crate) data_offset: u64,
}

/// Iterates over the entries of a metadata stream.
#[derive(Debug)]
pub(crate) struct Entries {
    reader: RecipeReader,
    segment: u32,
    records: Arc<Vec<larder_format::segment::ChunkRecord>>,
    record: usize,
    block: std::vec::IntoIter<Entry>,
    data_offset: u64,
    failed: bool,
}

impl Entries {
    pub(crate) fn new(recipe: Arc<Recipe>, chunks: MetaChunks) -> Self {
        Self {
            reader: RecipeReader::new(recipe, chunks),
            segment: 0,
            records: Arc::default(),
            record: 0,
            block: Vec::new().into_iter(),
            data_offset: 0,
            failed: false,
        }
    }

    /// Goes on with the last segment that begins at or before `path`: nothing at or below `path` lies before it.
    ///
    /// Covers of nodes and segments say where they begin and how much data they have, so only the nodes on the way are read.
    pub(crate) fn skip_towards(&mut self, path: &[u8]) -> Result<(), RepositoryError> {
        let begins_after = |cover: &Option<Cover>| {
            cover.as_ref().is_none_or(|cover| path_order(&cover.first_path, path) == std::cmp::Ordering::Greater)
        };
        let nodes = self.reader.recipe().nodes.clone();
        let Some(number) = nodes.iter().rposition(|node| !begins_after(&node.cover)) else { return Ok(()) };
        let data = |cover: &Option<Cover>| cover.as_ref().map_or(0, |cover| cover.data_bytes);
        let before: u32 = nodes[..number].iter().map(|node| node.segments).sum();
        let node = self.reader.node(number)?;
        let place = node.segments.iter().rposition(|segment| !begins_after(&segment.cover)).unwrap_or(0);
        self.segment = before + place as u32;
        self.data_offset = nodes[..number].iter().map(|node| data(&node.cover)).sum::<u64>()
            + node.segments[..place].iter().map(|segment| data(&segment.cover)).sum::<u64>();
        self.records = Arc::default();
        self.record = 0;
        self.block = Vec::new().into_iter();
        Ok(())
    }

    fn next_block(&mut self) -> Result<bool, RepositoryError> {
        while self.record >= self.records.len() {
            if self.segment >= self.reader.segments() {
                return Ok(false);
            }
            self.records = self.reader.segment(self.segment)?;
            self.segment += 1;
            self.record = 0;
        }
        let chunk = self.records[self.record].chunk;
        self.record += 1;
        let bytes = self.reader.chunks().read(&chunk)?;
        self.block = decode_block(&bytes).map_err(|source| damaged(&chunk, source))?.into_iter();
        Ok(true)
    }

    fn step(&mut self) -> Result<Option<PlacedEntry>, RepositoryError> {
        loop {
            if let Some(entry) = self.block.next() {
                let data_offset = self.data_offset;
                self.data_offset = data_offset.saturating_add(entry.stored_bytes());
                return Ok(Some(PlacedEntry { entry, data_offset }));
            }
            if !self.next_block()? {
                return Ok(None);
            }
        }
    }
}

impl Iterator for Entries {
    type Item = Result<PlacedEntry, RepositoryError>;

    /// Ends after the first error: what follows it has no known place.
    fn next(&mut self) -> Option<Self::Item> {
        if self.failed {
            return None;
        }
        let item = self.step();
        self.failed = item.is_err();
        item.transpose()
    }
}
