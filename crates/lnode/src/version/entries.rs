//! The entries of a version, in path order, each with its place in the data stream.
//!
//! Within a block the decoder checks the order; from block to block it is checked here, because nothing else sees two of them.
//! Whoever restores relies on it: a folder comes before what it holds, and no path comes twice.

use std::cmp::Ordering;
use std::sync::Arc;

use larder_format::DecodeError;
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
    /// The last path given out; empty before the first, and after a skip.
    last_path: Vec<u8>,
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
            last_path: Vec::new(),
            failed: false,
        }
    }

    /// Goes on with the last segment that begins at or before `path`: nothing at or below `path` lies before it.
    ///
    /// Covers of nodes and segments say where they begin and how much data they have, so only the nodes on the way are read.
    pub(crate) fn skip_towards(&mut self, path: &[u8]) -> Result<(), RepositoryError> {
        let begins_after = |cover: &Option<Cover>| {
            cover.as_ref().is_none_or(|cover| path_order(&cover.first_path, path) == Ordering::Greater)
        };
        let nodes = self.reader.recipe().nodes.clone();
        let Some(number) = nodes.iter().rposition(|node| !begins_after(&node.cover)) else { return Ok(()) };
        let data = |cover: &Option<Cover>| cover.as_ref().map_or(0, |cover| cover.data_bytes);
        let before = nodes[..number].iter().fold(0u32, |sum, node| sum.saturating_add(node.segments));
        let node = self.reader.node(number)?;
        let place = node.segments.iter().rposition(|segment| !begins_after(&segment.cover)).unwrap_or(0);
        self.segment = before.saturating_add(place as u32);
        // The decoders have checked each sum by itself; a node may still say more than its manifest says of it.
        let nodes = nodes[..number].iter().map(|node| data(&node.cover));
        let segments = node.segments[..place].iter().map(|segment| data(&segment.cover));
        self.data_offset = nodes.chain(segments).fold(0, u64::saturating_add);
        self.last_path.clear();
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
        let block = decode_block(&bytes).map_err(|source| damaged(&chunk, source))?;
        if let (Some(first), Some(last)) = (block.first(), block.last()) {
            if path_order(&self.last_path, &first.path) != Ordering::Less {
                let why = "its first path does not come after the last of the block before";
                return Err(damaged(&chunk, DecodeError::Invalid { what: "metadata block", why }));
            }
            self.last_path.clone_from(&last.path);
        }
        self.block = block.into_iter();
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
