//! The entries of a version, in path order, each with its place in the data stream.
//!
//! The decoder checks the order within a block. The order between blocks is checked here, because
//! no other code sees two of them. Restores rely on it: a folder comes before its contents, and no
//! path comes twice.

use std::cmp::Ordering;
use std::ops::Range;
use std::sync::Arc;

use larder_format::DecodeError;
use larder_format::entry::{Entry, path_order};
use larder_format::metadata::decode_block;
use larder_format::recipe::{Cover, Recipe};
use larder_store::RepositoryError;

use crate::recipe_reader::{MetaChunks, Node, RecipeReader, damaged};

/// An entry and where its stored bytes begin in the data stream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PlacedEntry {
    /// The entry.
    pub entry: Entry,
    /// Offset of its first stored byte in the data stream.
    pub data_offset: u64,
}

impl PlacedEntry {
    /// Its stored bytes in the data stream. The sizes of a forged stream may exceed 64 bits.
    pub fn data_range(&self) -> Range<u64> {
        self.data_offset..self.data_offset.saturating_add(self.entry.stored_bytes())
    }
}

/// Iterates over the entries of a metadata stream.
#[derive(Debug)]
pub struct Entries {
    reader: RecipeReader,
    segment: u32,
    records: Arc<Vec<larder_format::segment::ChunkRecord>>,
    record: usize,
    block: std::vec::IntoIter<Entry>,
    data_offset: u64,
    /// The last returned path; empty before the first, and after a skip.
    last_path: Vec<u8>,
    failed: bool,
    /// The records of the next segment are being read, not one of its blocks.
    at_segment: bool,
}

impl Entries {
    /// All entries of this metadata stream. Chunks are read through the cache.
    pub fn new(recipe: Arc<Recipe>, chunks: MetaChunks) -> Self {
        Self {
            reader: RecipeReader::new(recipe, chunks),
            segment: 0,
            records: Arc::default(),
            record: 0,
            block: Vec::new().into_iter(),
            data_offset: 0,
            last_path: Vec::new(),
            failed: false,
            at_segment: true,
        }
    }

    /// Continues with the last segment that begins at or before `path`: nothing at or below `path`
    /// is before it.
    ///
    /// Covers of nodes and segments tell their beginnings and amounts of data, so only the nodes on
    /// the way are read.
    pub fn skip_towards(&mut self, path: &[u8]) -> Result<(), RepositoryError> {
        let begins_after = |cover: &Option<Cover>| {
            cover.as_ref().is_none_or(|cover| path_order(&cover.first_path, path) == Ordering::Greater)
        };
        let nodes = &self.reader.recipe().nodes;
        let Some(number) = nodes.iter().rposition(|node| !begins_after(&node.cover)) else { return Ok(()) };
        let first = nodes[..number].iter().fold(0u32, |sum, node| sum.saturating_add(node.segments));
        // If the node is unreadable, recovery behind it starts from here.
        self.segment = first;
        let node = self.reader.node(number)?;
        let place = node.segments.iter().rposition(|segment| !begins_after(&segment.cover)).unwrap_or(0);
        self.go_to(number, &node, place);
        self.segment = first.saturating_add(place as u32);
        self.last_path.clear();
        Ok(())
    }

    /// The end, in the data stream, of the content at and below `path`, which is not empty.
    pub(crate) fn end_of(mut self, path: &[u8]) -> Result<u64, RepositoryError> {
        let is_beyond = |entry: &[u8]| path_order(entry, path) == Ordering::Greater && !is_at_or_below(entry, path);
        let begins_beyond = |cover: &Option<Cover>| cover.as_ref().is_none_or(|cover| is_beyond(&cover.first_path));
        let nodes = &self.reader.recipe().nodes;
        let Some(number) = nodes.iter().rposition(|node| !begins_beyond(&node.cover)) else { return Ok(0) };
        let first = nodes[..number].iter().fold(0u32, |sum, node| sum.saturating_add(node.segments));
        let node = self.reader.node(number)?;
        let place = node.segments.iter().rposition(|segment| !begins_beyond(&segment.cover)).unwrap_or(0);
        self.go_to(number, &node, place);
        self.segment = first.saturating_add(place as u32);
        while let Some(placed) = self.step()? {
            if is_beyond(&placed.entry.path) {
                return Ok(placed.data_offset);
            }
        }
        Ok(self.data_offset)
    }

    /// Continues after an error at the next entries with a known place in the data stream. They are
    /// the rest of the segment behind its last damaged block, counted from its end. Otherwise they
    /// are those of the next segment that the covers tell.
    ///
    /// Returns the first path that is known again; `None` when there is none behind the damage.
    pub(crate) fn recover(&mut self) -> Result<Option<Vec<u8>>, RepositoryError> {
        if !self.at_segment
            && let Some(path) = self.recover_in_segment()?
        {
            return Ok(Some(path));
        }
        // A segment with unreadable records is still the next; one with a bad block was passed.
        let mut segment = self.segment + u32::from(self.at_segment);
        while let Some((number, place)) = self.reader.node_of(segment) {
            match self.reader.node(number) {
                Ok(node) => {
                    let Some(cover) = node.segments.get(place).and_then(|segment| segment.cover.as_ref()) else {
                        break;
                    };
                    let path = cover.first_path.clone();
                    self.go_to(number, &node, place);
                    self.segment = segment;
                    self.failed = false;
                    return Ok(Some(path));
                }
                Err(error) if error.is_damage() => segment = self.reader.segments_through(number),
                Err(error) => return Err(error),
            }
        }
        Ok(None)
    }

    fn recover_in_segment(&mut self) -> Result<Option<Vec<u8>>, RepositoryError> {
        let Some((number, place)) = self.segment.checked_sub(1).and_then(|segment| self.reader.node_of(segment)) else {
            return Ok(None);
        };
        let node = match self.reader.node(number) {
            Ok(node) => node,
            Err(error) if error.is_damage() => return Ok(None),
            Err(error) => return Err(error),
        };
        let end = self.data_before(number, &node, place + 1);
        let (mut first, mut from, mut data_bytes) = (None, self.record, 0_u64);
        for record in self.record..self.records.len() {
            match self.read_block(record) {
                Ok(entries) => {
                    if first.is_none() {
                        (first, from) = (entries.first().map(|entry| entry.path.clone()), record);
                    }
                    data_bytes =
                        data_bytes.saturating_add(entries.iter().map(Entry::stored_bytes).fold(0, u64::saturating_add));
                }
                Err(error) if error.is_damage() => (first, data_bytes) = (None, 0),
                Err(error) => return Err(error),
            }
        }
        let (Some(path), Some(data_offset)) = (first, end.checked_sub(data_bytes)) else { return Ok(None) };
        (self.record, self.data_offset, self.failed) = (from, data_offset, false);
        Ok(Some(path))
    }

    /// Bytes of the data stream before the content of a segment of a node.
    fn data_before(&self, node_number: usize, node: &Node, place: usize) -> u64 {
        let data = |cover: &Option<Cover>| cover.as_ref().map_or(0, |cover| cover.data_bytes);
        // The decoders have checked each sum by itself; a node may still state more than its
        // manifest states of it.
        let nodes = self.reader.recipe().nodes[..node_number].iter().map(|node| data(&node.cover));
        let segments = node.segments[..place].iter().map(|segment| data(&segment.cover));
        nodes.chain(segments).fold(0, u64::saturating_add)
    }

    fn go_to(&mut self, node_number: usize, node: &Node, place: usize) {
        self.data_offset = self.data_before(node_number, node, place);
        self.records = Arc::default();
        self.record = 0;
        self.block = Vec::new().into_iter();
        self.at_segment = true;
    }

    fn next_block(&mut self) -> Result<bool, RepositoryError> {
        while self.record >= self.records.len() {
            if self.segment >= self.reader.segments() {
                return Ok(false);
            }
            self.at_segment = true;
            self.records = self.reader.segment(self.segment)?;
            self.segment += 1;
            self.record = 0;
        }
        self.at_segment = false;
        let record = self.record;
        self.record += 1;
        let block = self.read_block(record)?;
        if let (Some(first), Some(last)) = (block.first(), block.last()) {
            if path_order(&self.last_path, &first.path) != Ordering::Less {
                let why = "its first path does not come after the last of the block before";
                let chunk = self.records[record].chunk;
                return Err(damaged(&chunk, DecodeError::Invalid { what: "metadata block", why }));
            }
            self.last_path.clone_from(&last.path);
        }
        self.block = block.into_iter();
        Ok(true)
    }

    fn read_block(&self, record: usize) -> Result<Vec<Entry>, RepositoryError> {
        let chunk = self.records[record].chunk;
        let bytes = self.reader.chunks().read(&chunk)?;
        decode_block(&bytes).map_err(|source| damaged(&chunk, source))
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

    /// Ends after the first error: later entries have no known place.
    fn next(&mut self) -> Option<Self::Item> {
        if self.failed {
            return None;
        }
        let item = self.step();
        self.failed = item.is_err();
        item.transpose()
    }
}

/// The entry at a path and all below it.
#[derive(Debug)]
pub struct EntriesBelow {
    entries: Entries,
    path: Vec<u8>,
    /// The reason why the beginning was not found; returned first.
    lost: Option<RepositoryError>,
    ended: bool,
}

impl EntriesBelow {
    /// `path`: empty for everything.
    pub(crate) fn new(mut entries: Entries, path: &[u8]) -> Self {
        let lost = if path.is_empty() { None } else { entries.skip_towards(path).err() };
        Self { entries, path: path.to_vec(), lost, ended: false }
    }

    /// Continues behind the damage after an error. Returns the first path from which entries are
    /// known again; `None` when there are no more here.
    pub fn recover(&mut self) -> Result<Option<Vec<u8>>, RepositoryError> {
        let path = self.entries.recover()?;
        Ok(path.filter(|path| is_at_or_below(path, &self.path) || path_order(path, &self.path) == Ordering::Less))
    }
}

impl Iterator for EntriesBelow {
    type Item = Result<PlacedEntry, RepositoryError>;

    /// Ends after an error, until [`EntriesBelow::recover`].
    fn next(&mut self) -> Option<Self::Item> {
        if let Some(error) = self.lost.take() {
            self.entries.failed = true;
            return Some(Err(error));
        }
        while !self.ended {
            let placed = match self.entries.next()? {
                Ok(placed) => placed,
                Err(error) => return Some(Err(error)),
            };
            if is_at_or_below(&placed.entry.path, &self.path) {
                return Some(Ok(placed));
            }
            self.ended = path_order(&placed.entry.path, &self.path) == Ordering::Greater;
        }
        None
    }
}

/// Whether `path` is `above` or is below it; everything is below the empty path.
pub fn is_at_or_below(path: &[u8], above: &[u8]) -> bool {
    match path.strip_prefix(above) {
        Some(rest) => above.is_empty() || rest.is_empty() || rest[0] == b'/',
        None => false,
    }
}
