//! Entries of a version by their place or their path, for several threads.
//!
//! Covers of nodes and segments tell where a path may be; within a segment, blocks are searched by
//! their first paths. So a question decodes some blocks, however large the version is. Decoded
//! blocks and segments are kept in caches that all versions of a tree share.

use std::ops::Range;
use std::sync::{Arc, OnceLock};

use larder_format::DecodeError;
use larder_format::entry::{Entry, EntryKind, path_order};
use larder_format::ids::JobId;
use larder_format::metadata::{data_bytes, decode_block};
use larder_format::recipe::{Cover, Recipe};
use larder_format::segment::ChunkRecord;
use larder_reader::{MetaChunks, PlacedEntry, RecipeReader, damaged, is_at_or_below};
use larder_store::RepositoryError;
use larder_store::byte_lru::ByteLru;
use parking_lot::Mutex;

use crate::inode::Position;

/// Readers of the recipe that are kept for later questions. Each has a few nodes.
const IDLE_MAX: usize = 4;
/// Blocks that are read ahead of a scan.
const SCAN_AHEAD: usize = 64;

type Block = Arc<Vec<Entry>>;
type CachedSegments = ByteLru<(JobId, u32), Arc<Segment>>;

/// Decoded blocks and segments of all versions of a tree.
#[derive(Debug)]
pub(crate) struct MetadataCache {
    blocks: Mutex<ByteLru<(JobId, u32, u32), Block>>,
    segments: Mutex<CachedSegments>,
}

impl MetadataCache {
    /// Keeps at most about these bytes.
    pub(crate) fn new(blocks: usize, segments: usize) -> Self {
        Self { blocks: Mutex::new(ByteLru::new(blocks)), segments: Mutex::new(ByteLru::new(segments)) }
    }
}

/// The records of a segment.
#[derive(Debug)]
struct Segment {
    records: Arc<Vec<ChunkRecord>>,
    /// Bytes of the data stream before the entries of each block, counted from the segment.
    data_before: OnceLock<Vec<u64>>,
}

/// See the module header.
#[derive(Debug)]
pub(crate) struct Metadata {
    version: JobId,
    recipe: Arc<Recipe>,
    chunks: MetaChunks,
    cache: Arc<MetadataCache>,
    idle: Mutex<Vec<RecipeReader>>,
}

/// The part of the stream that a cover begins is wholly at or behind the wanted place.
fn begins_at(cover: &Option<Cover>, is_wanted: &dyn Fn(&[u8]) -> bool) -> bool {
    cover.as_ref().is_none_or(|cover| is_wanted(&cover.first_path))
}

impl Metadata {
    pub(crate) fn new(version: JobId, recipe: Arc<Recipe>, chunks: MetaChunks, cache: Arc<MetadataCache>) -> Self {
        Self { version, recipe, chunks, cache, idle: Mutex::default() }
    }

    /// The entry at a place.
    pub(crate) fn at(&self, position: Position) -> Result<Option<Entry>, RepositoryError> {
        let Some(block) = self.block(position)? else { return Ok(None) };
        Ok(block.get(position.entry as usize).cloned())
    }

    /// The place of a path.
    pub(crate) fn find(&self, path: &[u8]) -> Result<Option<(Position, Entry)>, RepositoryError> {
        Ok(self.at_or_behind(path)?.filter(|(_, entry)| entry.path == path))
    }

    /// The first entry at a path or behind it.
    pub(crate) fn at_or_behind(&self, path: &[u8]) -> Result<Option<(Position, Entry)>, RepositoryError> {
        self.first(&|entry: &[u8]| path_order(entry, path).is_ge())
    }

    /// The first entry behind everything at or below a path.
    pub(crate) fn behind_all_of(&self, path: &[u8]) -> Result<Option<(Position, Entry)>, RepositoryError> {
        self.first(&|entry: &[u8]| path_order(entry, path).is_gt() && !is_at_or_below(entry, path))
    }

    /// The entry behind a place.
    pub(crate) fn next(&self, position: Position) -> Result<Option<(Position, Entry)>, RepositoryError> {
        self.from(Position { entry: position.entry + 1, ..position })
    }

    /// The entry behind a folder at a place and all that is below it.
    pub(crate) fn next_beside(
        &self,
        position: Position,
        path: &[u8],
    ) -> Result<Option<(Position, Entry)>, RepositoryError> {
        // Most folders end in their block or in the next one.
        let mut at = position;
        for _ in 0..2 {
            let Some(block) = self.block(at)? else { break };
            let rest = block.get(at.entry as usize..).unwrap_or_default();
            let below = rest.partition_point(|entry| is_at_or_below(&entry.path, path));
            if let Some(entry) = rest.get(below) {
                return Ok(Some((Position { entry: at.entry + below as u32, ..at }, entry.clone())));
            }
            at = Position { record: at.record + 1, entry: 0, ..at };
        }
        self.behind_all_of(path)
    }

    /// The entry at a place, with the place of its content in the data stream.
    pub(crate) fn placed(&self, position: Position) -> Result<Option<PlacedEntry>, RepositoryError> {
        let Some(block) = self.block(position)? else { return Ok(None) };
        let Some(entry) = block.get(position.entry as usize) else { return Ok(None) };
        let before = block[..position.entry as usize].iter().map(Entry::stored_bytes);
        let data_offset = before.fold(self.data_before(position)?, u64::saturating_add);
        Ok(Some(PlacedEntry { entry: entry.clone(), data_offset }))
    }

    /// Calls `each` for the path that every hard link has as its target.
    pub(crate) fn hard_links(&self, mut each: impl FnMut(&[u8])) -> Result<(), RepositoryError> {
        let segments = self.with_reader(|reader| Ok(reader.segments()))?;
        for number in 0..segments {
            let segment = self.segment(number)?;
            for records in segment.records.chunks(SCAN_AHEAD) {
                let promises = self.chunks.read_ahead(records.iter().map(|record| record.chunk).collect());
                for record in records {
                    // Not through the cache, which others need.
                    for entry in self.decode(record)? {
                        if let EntryKind::HardLink { target } = &entry.kind {
                            each(target);
                        }
                    }
                }
                drop(promises);
            }
        }
        Ok(())
    }

    /// The first entry whose path is wanted. Once a path is, all behind it are.
    fn first(&self, is_wanted: &dyn Fn(&[u8]) -> bool) -> Result<Option<(Position, Entry)>, RepositoryError> {
        // The last node, segment and block that begin before it: the first one of each may be
        // within, or at the beginning of the next.
        let nodes = &self.recipe.nodes;
        let number = nodes.partition_point(|node| !begins_at(&node.cover, is_wanted)).saturating_sub(1);
        if number >= nodes.len() {
            return Ok(None);
        }
        let first = nodes[..number].iter().fold(0_u32, |sum, node| sum.saturating_add(node.segments));
        let node = self.with_reader(|reader| reader.node(number))?;
        let place = node.segments.partition_point(|segment| !begins_at(&segment.cover, is_wanted)).saturating_sub(1);
        let number = first.saturating_add(place as u32);
        let segment = self.segment(number)?;
        let mut blocks: Range<usize> = 0..segment.records.len();
        while !blocks.is_empty() {
            let middle = blocks.start + blocks.len() / 2;
            let block = self.block_of(number, &segment, middle)?;
            match block.first().is_none_or(|entry| is_wanted(&entry.path)) {
                true => blocks.end = middle,
                false => blocks.start = middle + 1,
            }
        }
        let record = blocks.start.saturating_sub(1);
        if segment.records.is_empty() {
            return self.from(Position { segment: number, record: 0, entry: 0 });
        }
        let block = self.block_of(number, &segment, record)?;
        let entry = block.partition_point(|entry| !is_wanted(&entry.path)) as u32;
        self.from(Position { segment: number, record: record as u32, entry })
    }

    /// The entry at a place, or the first one behind it.
    fn from(&self, mut at: Position) -> Result<Option<(Position, Entry)>, RepositoryError> {
        loop {
            match self.block(at)? {
                Some(block) => match block.get(at.entry as usize) {
                    Some(entry) => return Ok(Some((at, entry.clone()))),
                    None => at = Position { record: at.record + 1, entry: 0, ..at },
                },
                None if at.segment + 1 >= self.with_reader(|reader| Ok(reader.segments()))? => return Ok(None),
                None => at = Position { segment: at.segment + 1, record: 0, entry: 0 },
            }
        }
    }

    fn block(&self, position: Position) -> Result<Option<Block>, RepositoryError> {
        let key = (self.version, position.segment, position.record);
        if let Some(block) = self.cache.blocks.lock().get(&key) {
            return Ok(Some(block));
        }
        let segment = self.segment(position.segment)?;
        if position.record as usize >= segment.records.len() {
            return Ok(None);
        }
        self.block_of(position.segment, &segment, position.record as usize).map(Some)
    }

    fn block_of(&self, number: u32, segment: &Segment, record: usize) -> Result<Block, RepositoryError> {
        let key = (self.version, number, record as u32);
        if let Some(block) = self.cache.blocks.lock().get(&key) {
            return Ok(block);
        }
        let block = Arc::new(self.decode(&segment.records[record])?);
        let bytes = block.iter().map(bytes_held).sum();
        self.cache.blocks.lock().put(key, block.clone(), bytes);
        Ok(block)
    }

    fn decode(&self, record: &ChunkRecord) -> Result<Vec<Entry>, RepositoryError> {
        let bytes = self.chunks.read(&record.chunk)?;
        decode_block(&bytes).map_err(|source| damaged(&record.chunk, source))
    }

    fn segment(&self, number: u32) -> Result<Arc<Segment>, RepositoryError> {
        let key = (self.version, number);
        if let Some(segment) = self.cache.segments.lock().get(&key) {
            return Ok(segment);
        }
        let records = self.with_reader(|reader| reader.segment(number))?;
        // With the sums that may be added.
        let bytes = size_of_val(&**records) + records.len() * size_of::<u64>() + size_of::<Segment>();
        let segment = Arc::new(Segment { records, data_before: OnceLock::new() });
        self.cache.segments.lock().put(key, segment.clone(), bytes);
        Ok(segment)
    }

    /// Bytes of the data stream before the entries of a block.
    fn data_before(&self, position: Position) -> Result<u64, RepositoryError> {
        let segment = self.segment(position.segment)?;
        let within = match segment.data_before.get() {
            Some(sums) => sums.get(position.record as usize).copied(),
            None => {
                let mut sums = Vec::with_capacity(segment.records.len());
                let mut sum = 0_u64;
                for record in segment.records.iter() {
                    sums.push(sum);
                    let bytes = self.chunks.read(&record.chunk)?;
                    sum = sum.saturating_add(data_bytes(&bytes).map_err(|source| damaged(&record.chunk, source))?);
                }
                segment.data_before.get_or_init(|| sums).get(position.record as usize).copied()
            }
        };
        Ok(self.data_before_segment(position.segment)?.saturating_add(within.unwrap_or_default()))
    }

    /// Bytes of the data stream before the entries of a segment.
    fn data_before_segment(&self, number: u32) -> Result<u64, RepositoryError> {
        let data = |cover: &Option<Cover>| cover.as_ref().map_or(0, |cover| cover.data_bytes);
        let (mut first, mut sum) = (0_u32, 0_u64);
        for (place, node) in self.recipe.nodes.iter().enumerate() {
            let behind = first.saturating_add(node.segments);
            if number < behind {
                let node = self.with_reader(|reader| reader.node(place))?;
                let before = node.segments.iter().take((number - first) as usize);
                return Ok(before.map(|segment| data(&segment.cover)).fold(sum, u64::saturating_add));
            }
            (first, sum) = (behind, sum.saturating_add(data(&node.cover)));
        }
        let source = DecodeError::Invalid { what: "recipe", why: "it has no such segment" };
        Err(RepositoryError::Damaged { name: format!("snapshot {}", self.version.short()), source })
    }

    fn with_reader<T>(
        &self,
        work: impl FnOnce(&mut RecipeReader) -> Result<T, RepositoryError>,
    ) -> Result<T, RepositoryError> {
        let reader = self.idle.lock().pop();
        let mut reader = reader.unwrap_or_else(|| RecipeReader::new(self.recipe.clone(), self.chunks.clone()));
        let done = work(&mut reader);
        let mut idle = self.idle.lock();
        if idle.len() < IDLE_MAX {
            idle.push(reader);
        }
        done
    }
}

/// Bytes of memory that an entry takes, nearly.
fn bytes_held(entry: &Entry) -> usize {
    let of_kind = match &entry.kind {
        EntryKind::File { extents: Some(extents), .. } => size_of_val(&extents[..]),
        EntryKind::Symlink { target } | EntryKind::HardLink { target } => target.len(),
        _ => 0,
    };
    let xattrs: usize =
        entry.xattrs.iter().map(|xattr| size_of_val(xattr) + xattr.name.len() + xattr.value.len()).sum();
    size_of::<Entry>() + entry.path.len() + of_kind + xattrs
}
